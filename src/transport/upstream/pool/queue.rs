//! Requests that wait for a connection to an upstream whose endpoints have as many as they may have.
//!
//! The first waiter is the oldest one whose client may have one more request at the upstream. Only the first waiter looks
//! for capacity, each time that it is woken. One client may use three quarters of an empty queue, and less of a fuller one.
//! The lock guards the waiters and the counts of clients, and is held while they change. Connections belong to workers: a
//! connection that becomes free at another worker is closed there, so that the first waiter can open its own.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::ceiling::{Ceiling, CeilingWaiter};
use super::fair_use::{FairUse, is_within_part};
use crate::base::telemetry::UpstreamMetrics;
use crate::base::time;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    /// The number of waiters, to be read without the lock. `SeqCst`, as the number of open connections: a request that
    /// joins writes this and then looks for capacity; a connection that closes writes that number and then looks here.
    /// So at least one sees the other.
    waiting: AtomicUsize,
    pub(crate) metrics: UpstreamMetrics,
    /// The bound on connections of all upstreams.
    pub(crate) ceiling: Arc<Ceiling>,
}

/// How many requests may wait: `max_queued`, and one for each connection without a request, if their client may have more.
/// Such a waiter is about to get that connection: it has been woken, or the connection is idle at another worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueBound {
    pub(crate) max_queued: usize,
    /// The connections that the upstream may use now.
    pub(crate) connections: usize,
}

#[derive(Debug, Default)]
struct QueueState {
    waiters: VecDeque<Arc<Waiter>>,
    workers: Vec<WorkerNotify>,
    fair_use: FairUse,
}

/// Notified when connections of a worker are needed elsewhere. It is also the identity of the worker.
pub(crate) type WorkerNotify = Arc<Notify>;

#[derive(Debug)]
struct Waiter {
    since: Instant,
    worker: WorkerNotify,
    /// None if the client is not counted.
    client: Option<IpAddr>,
    /// The next waiter may look for capacity too. Changed with the lock only.
    lets_pass: AtomicBool,
    woken: Arc<Notify>,
}

/// A waiter's entry in the queue, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct QueueTicket<'q> {
    queue: &'q Arc<Queue>,
    waiter: Arc<Waiter>,
}

/// Counts one active request at its upstream until dropped.
#[derive(Debug, Default)]
pub(crate) struct UpstreamRequest {
    client: Option<IpAddr>,
    /// None if the upstream counts no requests.
    queue: Option<Arc<Queue>>,
}

impl QueueState {
    /// The waiters that may look for capacity: the first, and if that lets others pass, the next one that does not.
    fn front(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        let mut allowed = self.waiters.iter().filter(|waiter| self.fair_use.allows(waiter.client));
        let lets_pass = |waiter: &Arc<Waiter>| waiter.lets_pass.load(Ordering::Relaxed);
        let first = allowed.next();
        let next = first.filter(|first| lets_pass(first)).and_then(|_| allowed.find(|waiter| !lets_pass(waiter)));
        first.into_iter().chain(next)
    }

    fn wake_front(&self) {
        self.front().for_each(|waiter| waiter.woken.notify_one());
    }
}

impl Queue {
    pub(crate) fn new(metrics: UpstreamMetrics, ceiling: Arc<Ceiling>) -> Self {
        Self { state: Mutex::default(), waiting: AtomicUsize::new(0), metrics, ceiling }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a worker whose connections may be needed elsewhere.
    pub(crate) fn register(&self, worker: &WorkerNotify) {
        let workers = &mut self.state().workers;
        if !workers.iter().any(|known| Arc::ptr_eq(known, worker)) {
            workers.push(Arc::clone(worker));
        }
    }

    /// The number of waiters.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// The wait of the first waiter until `now`; zero without one. Older waiters wait because of their clients.
    pub(crate) fn longest_wait(&self, now: Instant) -> Duration {
        if !self.has_waiters() {
            return Duration::ZERO;
        }
        self.state().front().next().map_or(Duration::ZERO, |first| now.saturating_duration_since(first.since))
    }

    /// Whether any request waits.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting() > 0
    }

    /// Sets how many requests the upstream can have at once; none to count no clients.
    pub(crate) fn set_capacity(&self, capacity: Option<usize>) {
        self.state().fair_use.set_capacity(capacity);
    }

    /// Counts a request of `client` at an upstream that can have `capacity` at once. None if the client has to wait until
    /// it or others have fewer.
    pub(crate) fn begin(self: &Arc<Self>, client: Option<IpAddr>, capacity: usize) -> Option<UpstreamRequest> {
        let mut state = self.state();
        state.fair_use.set_capacity(Some(capacity));
        if !state.fair_use.allows(client) {
            return None;
        }
        state.fair_use.begin(client);
        Some(UpstreamRequest { client, queue: Some(Arc::clone(self)) })
    }

    /// Adds a waiter at the end. None if too many requests wait already, or if too many of them are of `client`. The
    /// request has to look for capacity after this.
    pub(crate) fn join(
        self: &Arc<Self>,
        worker: &WorkerNotify,
        client: Option<IpAddr>,
        bound: QueueBound,
    ) -> Option<QueueTicket<'_>> {
        let mut state = self.state();
        let free = state.fair_use.free(client, bound.connections).min(self.ceiling.free());
        let (queued, max) = (state.waiters.len(), bound.max_queued + free);
        let of_client = || state.waiters.iter().filter(|waiter| waiter.client == client).count();
        if queued >= max || (client.is_some() && !is_within_part(of_client(), queued, max)) {
            return None;
        }
        let since = time::instant_now();
        let (worker, lets_pass) = (Arc::clone(worker), AtomicBool::new(false));
        let waiter = Arc::new(Waiter { since, worker, client, lets_pass, woken: Arc::default() });
        state.waiters.push_back(Arc::clone(&waiter));
        self.waiting.store(state.waiters.len(), Ordering::SeqCst);
        self.metrics.queued.inc();
        Some(QueueTicket { queue: self, waiter })
    }

    /// Wakes the first waiter: there may be capacity.
    pub(crate) fn wake_front(&self) {
        if self.has_waiters() {
            self.state().wake_front();
        }
    }

    /// Wakes all waiters: operators may have drained all endpoints.
    pub(crate) fn wake_all(&self) {
        for waiter in &self.state().waiters {
            waiter.woken.notify_one();
        }
    }

    /// Whether the waiters at the front are requests of this worker. None if no request waits whose client may have more.
    pub(crate) fn is_front_of(&self, worker: &WorkerNotify) -> Option<bool> {
        if !self.has_waiters() {
            return None;
        }
        let state = self.state();
        state.front().map(|waiter| Arc::ptr_eq(&waiter.worker, worker)).reduce(|all, is_of_worker| all && is_of_worker)
    }

    /// The number of waiters of other workers whose clients may have more.
    pub(crate) fn waiting_elsewhere(&self, worker: &WorkerNotify) -> usize {
        if !self.has_waiters() {
            return 0;
        }
        let state = self.state();
        let is_elsewhere = |waiter: &&Arc<Waiter>| !Arc::ptr_eq(&waiter.worker, worker);
        let waiters = state.waiters.iter().filter(is_elsewhere);
        waiters.filter(|waiter| state.fair_use.allows(waiter.client)).count()
    }
}

impl QueueTicket<'_> {
    /// Whether this is the first waiter, or the first behind one that lets others pass.
    pub(crate) fn is_front(&self) -> bool {
        self.queue.state().front().any(|waiter| Arc::ptr_eq(waiter, &self.waiter))
    }

    /// Lets other waiters look for capacity while this one waits: it cannot use all of it.
    pub(crate) fn let_others_pass(&self) {
        let state = self.queue.state();
        self.waiter.lets_pass.store(true, Ordering::Relaxed);
        state.wake_front();
    }

    /// Counts the request of this ticket, which is at the front. To be called with the queue's capacity set.
    pub(crate) fn begin(&self) -> UpstreamRequest {
        let client = self.waiter.client;
        self.queue.state().fair_use.begin(client);
        UpstreamRequest { client, queue: Some(Arc::clone(self.queue)) }
    }

    /// Notifies the other workers, so that they close idle connections to this upstream.
    pub(crate) fn notify_other_workers(&self) {
        for worker in self.queue.state().workers.iter().filter(|worker| !Arc::ptr_eq(worker, &self.waiter.worker)) {
            worker.notify_one();
        }
    }

    /// Notifies all workers, so that they close idle connections to any upstream. The request has to look for capacity
    /// after this.
    pub(crate) fn wait_for_ceiling(&self) -> CeilingWaiter<'_> {
        let waiter = CeilingWaiter::new(&self.queue.ceiling, &self.waiter.woken);
        self.queue.state().workers.iter().for_each(|worker| worker.notify_one());
        waiter
    }

    /// Waits until the request has to look for capacity again. A wake-up since the last look counts.
    pub(crate) async fn woken(&self) {
        self.waiter.woken.notified().await;
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        self.queue.waiting.store(state.waiters.len(), Ordering::SeqCst);
        self.queue.metrics.queued.dec();
        // Another waiter may be the first now, and a wake-up of this one may have been for it.
        state.wake_front();
    }
}

impl Drop for UpstreamRequest {
    fn drop(&mut self) {
        let Some(queue) = &self.queue else { return };
        let mut state = queue.state();
        state.fair_use.end(self.client);
        state.wake_front();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::base::telemetry::Metrics;

    fn queue() -> Arc<Queue> {
        let queue = Queue::new(Metrics::new("", "").unwrap().upstream("a"), Arc::new(Ceiling::new(1, 1)));
        Arc::new(queue)
    }

    fn bound(max_queued: usize) -> QueueBound {
        QueueBound { max_queued, connections: 0 }
    }

    fn is_woken(ticket: &QueueTicket<'_>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(ticket.woken()).poll(&mut cx).is_ready()
    }

    #[test]
    fn only_the_first_waiter_is_woken() {
        let (queue, worker) = (queue(), WorkerNotify::default());
        let [first, second, third] = [(); 3].map(|()| queue.join(&worker, None, bound(3)).unwrap());
        assert!(queue.join(&worker, None, bound(3)).is_none(), "the queue is full");
        assert!(first.is_front() && !second.is_front() && queue.has_waiters());
        queue.wake_front();
        assert_eq!([&first, &second, &third].map(is_woken), [true, false, false]);

        // A waiter that leaves from the middle wakes the first one. The first one passes its wake-up on when it leaves.
        drop(second);
        assert_eq!([is_woken(&first), is_woken(&third)], [true, false], "one superfluous look");
        queue.wake_front();
        drop(first);
        assert!(third.is_front() && is_woken(&third));
        drop(third);
        assert!(!queue.has_waiters() && queue.metrics.queued.get() == 0);
    }

    #[test]
    fn a_waiter_lets_the_next_one_look_too() {
        let (queue, worker) = (queue(), WorkerNotify::default());
        let tickets = [(); 4].map(|()| queue.join(&worker, None, bound(4)).unwrap());
        let front = || tickets.each_ref().map(QueueTicket::is_front);
        // Each may look in turn, so that the waiters behind it do not wait for it.
        for (passed, expected) in [
            (1, [true, false, false, false]),
            (0, [true, false, true, false]),
            (2, [true, false, false, true]),
            (3, [true, false, false, false]),
        ] {
            tickets[passed].let_others_pass();
            assert_eq!(front(), expected, "{passed}");
            assert_eq!(tickets.each_ref().map(is_woken), expected, "{passed}");
        }
    }

    #[test]
    fn other_workers_are_notified() {
        let (queue, [ours, theirs]) = (queue(), [(); 2].map(|()| WorkerNotify::default()));
        for worker in [&ours, &theirs, &ours] {
            queue.register(worker);
        }
        let ticket = queue.join(&ours, None, bound(9)).unwrap();
        assert_eq!([&ours, &theirs].map(|worker| queue.is_front_of(worker)), [Some(true), Some(false)]);
        assert_eq!([&ours, &theirs].map(|worker| queue.waiting_elsewhere(worker)), [0, 1]);
        let behind = queue.join(&theirs, None, bound(9)).unwrap();
        ticket.let_others_pass();
        assert_eq!(queue.is_front_of(&ours), Some(false), "the other one cannot use an idle connection of this worker");
        drop(behind);
        ticket.notify_other_workers();
        let mut cx = Context::from_waker(Waker::noop());
        let rings = [&ours, &theirs].map(|worker| pin!(worker.notified()).poll(&mut cx).is_ready());
        assert_eq!(rings, [false, true]);
    }

    #[test]
    fn a_waiter_of_a_client_beyond_its_allowance_lets_others_pass() {
        let (queue, worker) = (queue(), WorkerNotify::default());
        let [greedy, good] = [1, 2].map(|n| Some(IpAddr::from([10, 0, 0, n])));
        let mut active: Vec<_> = std::iter::from_fn(|| queue.begin(greedy, 4)).collect();
        assert_eq!(active.len(), 3);
        let first = queue.join(&worker, greedy, bound(10)).unwrap();
        assert!(!first.is_front() && queue.is_front_of(&worker).is_none() && !is_woken(&first));
        assert_eq!(queue.longest_wait(first.waiter.since + Duration::from_secs(9)), Duration::ZERO);
        let second = queue.join(&worker, good, bound(10)).unwrap();
        assert!(second.is_front() && queue.is_front_of(&worker) == Some(true));
        let wait = Duration::from_secs(1);
        assert_eq!(queue.longest_wait(second.waiter.since + wait), wait, "that of a waiter which passes next");
        queue.wake_front();
        assert_eq!([&first, &second].map(is_woken), [false, true]);
        // The end of an active request raises the allowance, and the oldest waiter is the first again.
        drop(active.pop());
        assert!(is_woken(&first) && first.is_front());
        assert!(queue.waiting_elsewhere(&WorkerNotify::default()) == 2);
    }

    #[test]
    fn one_client_leaves_places_in_the_queue_to_others() {
        let (queue, worker) = (queue(), WorkerNotify::default());
        let client = |n| Some(IpAddr::from([10, 0, 0, n]));
        for (max_queued, expected) in [(0, [0, 0]), (1, [1, 0]), (2, [2, 0]), (10, [8, 2]), (100, [75, 19])] {
            let mut tickets = Vec::new();
            let queued = [1, 2].map(|n| {
                let before = tickets.len();
                tickets.extend(std::iter::from_fn(|| queue.join(&worker, client(n), bound(max_queued))));
                tickets.len() - before
            });
            assert_eq!(queued, expected, "{max_queued}");
            let others = max_queued - tickets.len();
            tickets.extend(std::iter::from_fn(|| queue.join(&worker, None, bound(max_queued))));
            assert_eq!(tickets.len(), max_queued, "{others} of clients that are not counted");
        }
    }

    #[test]
    fn a_request_for_a_free_connection_may_always_wait() {
        let (queue, worker) = (queue(), WorkerNotify::default());
        let mut active: Vec<_> = [(); 2].map(|()| queue.begin(None, 2).unwrap()).into();
        let join = |max_queued, connections| queue.join(&worker, None, QueueBound { max_queued, connections });
        let first = join(1, 2).unwrap();
        assert!(join(1, 2).is_none(), "all connections have requests");
        active.pop();
        assert!(is_woken(&first) && join(1, 1).is_none(), "the endpoint of the free connection is out");
        queue.ceiling.open();
        assert!(join(1, 2).is_none(), "the process has all connections that it may have");
        queue.ceiling.close();
        let second = join(1, 2).unwrap();
        assert!(join(1, 2).is_none(), "only one connection is free");
        drop((first, second));
        assert!(join(0, 2).is_some(), "another worker may have to close the connection first");

        let client = Some(IpAddr::from([10, 0, 0, 1]));
        active.clear();
        active.extend(std::iter::from_fn(|| queue.begin(client, 4)));
        let bound = QueueBound { max_queued: 0, connections: 4 };
        let may_wait = [client, None].map(|client| queue.join(&worker, client, bound).is_some());
        assert_eq!((active.len(), may_wait), (3, [false, true]), "the last connection is for other clients");
    }
}
