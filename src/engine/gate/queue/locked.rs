//! The wait queues of one limit behind one lock, by key.
//!
//! The lock is held for one push, cancel or look. It is taken only while requests wait on the limit: an atomic count
//! keeps all other requests away from it. No other lock is taken under it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::sync::Notify;

use super::wait_queue::{Backlog, Rank, WaitQueue, Waiter, priority_of};
use crate::base::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard};
use crate::base::time::Timestamp;
use crate::engine::limit::{Key, KeyHasher};
use crate::engine::policy::Priority;

type QueueByKey = HashMap<Key, WaitQueue<Arc<Notify>>, BuildHasherDefault<KeyHasher>>;

/// The queues of one limit.
#[derive(Debug, Default)]
pub(in crate::engine::gate) struct LockedQueues {
    waiting: AtomicUsize,
    /// The least part in percent that each priority below critical gets of the units that pass.
    min_share: AtomicUsize,
    /// Whether the newest policy gives requests priorities.
    has_priorities: AtomicBool,
    /// Whether all keys spend from one budget.
    is_shared: AtomicBool,
    queues: Mutex<QueueByKey>,
}

/// A request that joins a queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine::gate) struct Joining<'w> {
    pub(super) key: Key,
    pub(super) rank: Rank,
    pub(super) cost: u64,
    pub(super) wake: &'w Arc<Notify>,
    /// The instant at which its own timer wakes it, if it has one.
    pub(super) timer: Option<Timestamp>,
}

/// What a request in a queue has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is at the front.
    Now,
    /// It is behind others, and sleeps until its timer or a wake-up.
    Later(Option<Timestamp>),
}

impl LockedQueues {
    /// Whether requests wait on `key`.
    pub(in crate::engine::gate) fn has_waiters(&self, key: Key) -> bool {
        self.waiting.load(Ordering::Acquire) > 0 && self.lock().get(&key).is_some_and(|queue| !queue.is_empty())
    }

    /// Sets whether requests have priorities, and then the least part in percent that each priority below critical gets of
    /// the units that pass. Requests that can be overtaken from now on are woken.
    pub(in crate::engine::gate) fn set_priorities(&self, min_share: Option<u8>) {
        let mut queues = self.lock();
        let percent = usize::from(min_share.unwrap_or(0));
        let before = self.min_share.swap(percent, Ordering::Relaxed);
        let had_priorities = self.has_priorities.swap(min_share.is_some(), Ordering::Relaxed);
        if before == percent && had_priorities == min_share.is_some() {
            return;
        }
        for queue in queues.values_mut() {
            queue.set_min_share(percent as u64);
            queue.wakes().for_each(|wake| wake.notify_one());
        }
    }

    /// Whether requests that come later may overtake one of this priority that waits.
    pub(super) fn may_be_overtaken(&self, priority: Priority) -> bool {
        match priority {
            _ if self.is_shared() => true,
            Priority::Critical => self.min_share.load(Ordering::Relaxed) > 0,
            Priority::Normal => self.has_priorities.load(Ordering::Relaxed),
            Priority::Background => true, // also if a reload has removed the priorities
        }
    }

    /// Whether all keys spend from one budget.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Whether sharers of one budget wait.
    pub(in crate::engine::gate) fn has_sharers(&self) -> bool {
        self.is_shared() && self.waiting.load(Ordering::Acquire) > 0
    }

    /// Sets whether all keys spend from one budget, so that units of one key may let any request pass.
    pub(in crate::engine::gate) fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::Relaxed);
    }

    /// Whether a request on `key` passes before one of this rank and cost.
    pub(super) fn has_before(&self, key: Key, rank: Rank, cost: u64) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
            && self.lock().get(&key).is_some_and(|queue| queue.has_before(rank, cost))
    }

    /// Notes that a request of this rank and cost passes, for the shares of lower priorities that wait on `key`.
    pub(super) fn pass(&self, key: Key, rank: Rank, cost: u64) {
        if self.min_share.load(Ordering::Relaxed) > 0
            && self.waiting.load(Ordering::Acquire) > 0
            && let Some(front) = self.lock().get_mut(&key).and_then(|queue| queue.pass(rank, cost))
        {
            front.wake.notify_one();
        }
    }

    /// Whether `rank` is at the front of `key`. If not, a timer of it that has fired by `now` is forgotten, so the
    /// request that leaves the front wakes it.
    pub(super) fn turn(&self, key: Key, rank: Rank, now: Timestamp) -> Turn {
        match self.lock().get_mut(&key) {
            Some(queue) if queue.is_front(rank) => Turn::Now,
            Some(queue) => Turn::Later(queue.timer(rank, now)),
            None => Turn::Later(None),
        }
    }

    /// Adds a request if `agree` accepts the backlog. No other request can join between the two.
    pub(super) fn join<E>(&self, joining: Joining<'_>, agree: impl FnOnce(Backlog) -> Result<(), E>) -> Result<(), E> {
        let Joining { key, rank, cost, wake, timer } = joining;
        let mut queues = self.lock();
        agree(queues.get(&key).map(|queue| queue.backlog_of(priority_of(rank), cost)).unwrap_or_default())?;
        let waiter = Waiter { cost, wake: Arc::clone(wake), timer };
        if let Some(displaced) = self.queue(&mut queues, key).push(rank, waiter) {
            displaced.notify_one();
        }
        self.waiting.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Removes a request. Returns the new front if another request is the front then.
    pub(super) fn leave(&self, key: Key, rank: Rank) -> Option<Waiter<Arc<Notify>>> {
        let mut queues = self.lock();
        let queue = queues.get_mut(&key)?;
        let next = queue.cancel(rank).cloned();
        if queue.is_unused() {
            queues.remove(&key);
        }
        self.waiting.fetch_sub(1, Ordering::Release);
        next
    }

    /// Notes that a request of this rank needs `cost` units of `key`, wherever it waits, if lower priorities have shares.
    /// Returns whether they have.
    pub(super) fn attend(&self, key: Key, rank: Rank, cost: u64) -> bool {
        let has_shares = self.min_share.load(Ordering::Relaxed) > 0;
        if has_shares {
            self.queue(&mut self.lock(), key).attend(rank, cost);
        }
        has_shares
    }

    /// Notes that a request of this rank, which attends, waits no more.
    pub(super) fn unattend(&self, key: Key, rank: Rank) {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(&key) else { return };
        if let Some(front) = queue.unattend(rank) {
            front.wake.notify_one();
        }
        if queue.is_unused() {
            queues.remove(&key);
        }
    }

    /// Notes that another replica has taken units that the front of `key` waited for. Known until the queue is empty.
    pub(super) fn contend(&self, key: Key) {
        if let Some(queue) = self.lock().get_mut(&key) {
            queue.is_contended = true;
        }
    }

    /// Whether other replicas have taken units that fronts of `key` waited for.
    pub(super) fn is_contended(&self, key: Key) -> bool {
        self.lock().get(&key).is_some_and(|queue| queue.is_contended)
    }

    /// Wakes the front of `key`, or of each key with a shared budget, because units came back sooner than it could know.
    pub(in crate::engine::gate) fn wake_front(&self, key: Key) {
        if self.is_shared() {
            return self.wake_fronts(|_| true);
        }
        if self.waiting.load(Ordering::Acquire) > 0
            && let Some((_, front)) = self.lock().get(&key).and_then(WaitQueue::front)
        {
            front.wake.notify_one();
        }
    }

    /// Wakes the front of each of these keys.
    pub(in crate::engine::gate) fn wake_fronts(&self, is_meant: impl Fn(Key) -> bool) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let queues = self.lock();
        let woken = queues.iter().filter(|(key, _)| is_meant(**key)).filter_map(|(_, queue)| queue.front());
        woken.for_each(|(_, front)| front.wake.notify_one());
    }

    /// Wakes all requests, to look at changed circumstances.
    pub(in crate::engine::gate) fn wake_all(&self) {
        self.lock().values().flat_map(WaitQueue::wakes).for_each(|wake| wake.notify_one());
    }

    /// The requests that wait on `key`.
    pub(in crate::engine::gate) fn backlog(&self, key: Key) -> Backlog {
        self.lock().get(&key).map(WaitQueue::backlog).unwrap_or_default()
    }

    /// What a new request of this priority and cost would wait for on `key`.
    pub(super) fn backlog_of(&self, key: Key, priority: Priority, cost: u64) -> Backlog {
        self.lock().get(&key).map(|queue| queue.backlog_of(priority, cost)).unwrap_or_default()
    }

    /// The requests that wait on each key.
    pub(in crate::engine::gate) fn backlogs(&self) -> HashMap<Key, Backlog> {
        self.lock().iter().map(|(key, queue)| (*key, queue.backlog())).collect()
    }

    /// Whether there are no requests and no empty queues.
    #[cfg(test)]
    pub(in crate::engine::gate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0 && self.lock().is_empty()
    }

    /// The queue of `key`, which is added if there is none.
    fn queue<'q>(&self, queues: &'q mut QueueByKey, key: Key) -> &'q mut WaitQueue<Arc<Notify>> {
        queues.entry(key).or_insert_with(|| WaitQueue::new(self.min_share.load(Ordering::Relaxed) as u64))
    }

    fn lock(&self) -> MutexGuard<'_, QueueByKey> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[cfg(feature = "loom")]
mod interleavings {
    use super::*;
    use crate::testing::is_woken;

    const KEY: Key = Key { first: 4, second: 1 };

    /// A request joins a queue with this rank.
    fn join(queues: &LockedQueues, rank: Rank) -> Arc<Notify> {
        let wake = Arc::default();
        let joining = Joining { key: KEY, rank, cost: 1, wake: &wake, timer: None };
        queues.join::<()>(joining, |_| Ok(())).unwrap();
        wake
    }

    /// Units come back while a request joins: the request finds them, or is woken.
    #[test]
    fn no_unit_comes_back_unseen() {
        loom::model(|| {
            let shared = Arc::new((LockedQueues::default(), Mutex::new(0_u64)));
            let gives_back = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    *shared.1.lock().unwrap() += 1;
                    shared.0.wake_front(KEY);
                })
            };
            let wake = join(&shared.0, 1);
            assert_eq!(shared.0.turn(KEY, 1, Timestamp::ZERO), Turn::Now);
            let found = *shared.1.lock().unwrap();
            gives_back.join().unwrap();
            assert!(found == 1 || is_woken(wake.notified()));
        });
    }

    /// The front leaves while a request joins behind it: the request is the front at once, or is woken.
    #[test]
    fn no_front_leaves_unseen() {
        loom::model(|| {
            let queues = Arc::new(LockedQueues::default());
            join(&queues, 1);
            let leaves = {
                let queues = Arc::clone(&queues);
                loom::thread::spawn(move || {
                    if let Some(next) = queues.leave(KEY, 1) {
                        next.wake.notify_one();
                    }
                })
            };
            let wake = join(&queues, 2);
            let turn = queues.turn(KEY, 2, Timestamp::ZERO);
            leaves.join().unwrap();
            assert!(turn == Turn::Now || is_woken(wake.notified()));
            assert!(queues.has_waiters(KEY) && !queues.has_before(KEY, 2, 1));
        });
    }
}
