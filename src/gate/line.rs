//! The queues of one limit behind one lock, by key.
//!
//! The lock guards the queues for one push, cancel or look, and is taken only while somebody waits on the
//! limit: an atomic count keeps everyone else away from it. Under it at most one table is read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::hold::{Backlog, Queue, Rank};
use crate::limit::Key;

/// Everyone who waits on one limit.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: AtomicUsize,
    queues: Mutex<HashMap<Key, Queue<Arc<Notify>>>>,
}

impl Line {
    /// Whether a newcomer would barge in on `key`.
    pub(super) fn has_waiters(&self, key: Key) -> bool {
        self.waiting.load(Ordering::Acquire) > 0 && self.lock().contains_key(&key)
    }

    /// Whether someone on `key` began to wait before `rank` did.
    pub(super) fn has_older(&self, key: Key, rank: Rank) -> bool {
        self.waiting.load(Ordering::Acquire) > 0 && self.front(key).is_some_and(|front| front < rank)
    }

    /// Whether it is the turn of `rank`.
    pub(super) fn is_front(&self, key: Key, rank: Rank) -> bool {
        self.front(key) == Some(rank)
    }

    /// Joins the queue of `key`, if `agree` does once it knows the backlog. Nobody can join between the two.
    pub(super) fn join<E>(
        &self,
        key: Key,
        rank: Rank,
        cost: u64,
        wake: &Arc<Notify>,
        agree: impl FnOnce(Backlog) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut queues = self.lock();
        agree(queues.get(&key).map(Queue::backlog).unwrap_or_default())?;
        if let Some(displaced) = queues.entry(key).or_default().push(rank, cost, Arc::clone(wake)) {
            displaced.notify_one();
        }
        self.waiting.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Leaves the queue of `key` and wakes whoever is next.
    pub(super) fn leave(&self, key: Key, rank: Rank) {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(&key) else { return };
        if let Some(next) = queue.cancel(rank) {
            next.notify_one();
        }
        if queue.backlog().waiting == 0 {
            queues.remove(&key);
        }
        self.waiting.fetch_sub(1, Ordering::Release);
    }

    /// Wakes the front of `key`, whose budget came back sooner than it could know.
    pub(super) fn wake_front(&self, key: Key) {
        if self.waiting.load(Ordering::Acquire) > 0
            && let Some((_, wake)) = self.lock().get(&key).and_then(Queue::front)
        {
            wake.notify_one();
        }
    }

    /// Wakes everyone, to look at changed circumstances.
    pub(super) fn wake_all(&self) {
        self.lock().values().flat_map(Queue::wakes).for_each(|wake| wake.notify_one());
    }

    /// What is waiting on `key`.
    pub(super) fn backlog(&self, key: Key) -> Backlog {
        self.lock().get(&key).map(Queue::backlog).unwrap_or_default()
    }

    /// Whether nobody waits and nothing is left of those who did.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0 && self.lock().is_empty()
    }

    fn front(&self, key: Key) -> Option<Rank> {
        self.lock().get(&key).and_then(Queue::front).map(|(rank, _)| rank)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Queue<Arc<Notify>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
