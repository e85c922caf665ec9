//! Requests that wait for a connection to an upstream whose endpoints have as many as they may have.
//!
//! Only the first waiter looks for capacity, each time that it is woken. The lock guards the list of waiters alone and is
//! held while the list changes. Connections belong to workers: a connection that becomes free at another worker is closed
//! there, so that the first waiter can open its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::ceiling::{Ceiling, CeilingWaiter};
use crate::telemetry::UpstreamMetrics;

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

#[derive(Debug, Default)]
struct QueueState {
    waiters: VecDeque<Arc<Waiter>>,
    workers: Vec<WorkerNotify>,
}

/// Notified when connections of a worker are needed elsewhere. It is also the identity of the worker.
pub(crate) type WorkerNotify = Arc<Notify>;

#[derive(Debug)]
struct Waiter {
    worker: WorkerNotify,
    woken: Arc<Notify>,
}

/// A waiter's entry in the queue, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct QueueTicket<'q> {
    queue: &'q Queue,
    waiter: Arc<Waiter>,
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

    /// Whether any request waits.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Adds a waiter at the end. None if `max_queued` requests wait already. The request has to look for capacity after
    /// this.
    pub(crate) fn join(&self, worker: &WorkerNotify, max_queued: usize) -> Option<QueueTicket<'_>> {
        let mut state = self.state();
        if state.waiters.len() >= max_queued {
            return None;
        }
        let waiter = Arc::new(Waiter { worker: Arc::clone(worker), woken: Arc::default() });
        state.waiters.push_back(Arc::clone(&waiter));
        self.waiting.store(state.waiters.len(), Ordering::SeqCst);
        self.metrics.queued.inc();
        Some(QueueTicket { queue: self, waiter })
    }

    /// Wakes the first waiter: there may be capacity.
    pub(crate) fn wake_front(&self) {
        if self.has_waiters()
            && let Some(front) = self.state().waiters.front()
        {
            front.woken.notify_one();
        }
    }

    /// Whether the first waiter is a request of this worker.
    pub(crate) fn is_front_of(&self, worker: &WorkerNotify) -> bool {
        self.state().waiters.front().is_some_and(|front| Arc::ptr_eq(&front.worker, worker))
    }

    /// The number of waiters of other workers.
    pub(crate) fn waiting_elsewhere(&self, worker: &WorkerNotify) -> usize {
        if !self.has_waiters() {
            return 0;
        }
        self.state().waiters.iter().filter(|waiter| !Arc::ptr_eq(&waiter.worker, worker)).count()
    }
}

impl QueueTicket<'_> {
    /// Whether this is the first waiter.
    pub(crate) fn is_front(&self) -> bool {
        self.queue.state().waiters.front().is_some_and(|front| Arc::ptr_eq(front, &self.waiter))
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
        // The next waiter is the first now, and a wake-up of this one may have been for it.
        if let Some(front) = state.waiters.front() {
            front.woken.notify_one();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::telemetry::Metrics;

    fn queue() -> Queue {
        Queue::new(Metrics::new("", "").unwrap().upstream("a"), Arc::new(Ceiling::new(1, 1)))
    }

    fn is_woken(ticket: &QueueTicket<'_>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(ticket.woken()).poll(&mut cx).is_ready()
    }

    #[test]
    fn only_the_first_waiter_is_woken() {
        let (queue, worker) = (queue(), WorkerNotify::default());
        let [first, second, third] = [(); 3].map(|()| queue.join(&worker, 3).unwrap());
        assert!(queue.join(&worker, 3).is_none(), "the queue is full");
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
    fn other_workers_are_notified() {
        let (queue, [ours, theirs]) = (queue(), [(); 2].map(|()| WorkerNotify::default()));
        for worker in [&ours, &theirs, &ours] {
            queue.register(worker);
        }
        let ticket = queue.join(&ours, 9).unwrap();
        assert!(queue.is_front_of(&ours) && !queue.is_front_of(&theirs));
        assert_eq!([&ours, &theirs].map(|worker| queue.waiting_elsewhere(worker)), [0, 1]);
        ticket.notify_other_workers();
        let mut cx = Context::from_waker(Waker::noop());
        let rings = [&ours, &theirs].map(|worker| pin!(worker.notified()).poll(&mut cx).is_ready());
        assert_eq!(rings, [false, true]);
    }
}
