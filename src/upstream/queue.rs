//! Who waits for a connection to an upstream whose endpoints have as many as they may have.
//!
//! Whoever is in front tries again each time that it is woken; nobody else may. The lock guards the line and nothing
//! else, and is held for as long as it takes to change it. Connections belong to workers: one that is free at another
//! worker is closed there, so that the one in front can open its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::ceiling::{Ceiling, Short};
use super::state::EndpointState;
use crate::telemetry::UpstreamMetrics;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Queue {
    line: Mutex<Line>,
    /// How many wait, to be read without the lock. `SeqCst`, as the number of open connections: who joins writes this
    /// and then looks for room, who makes room writes that and then looks here, so that one sees the other.
    waiting: AtomicUsize,
    pub(super) metrics: UpstreamMetrics,
    /// The bound on connections of all upstreams.
    pub(super) ceiling: Arc<Ceiling>,
}

#[derive(Debug, Default)]
struct Line {
    waiters: VecDeque<Arc<Waiter>>,
    workers: Vec<WorkerBell>,
}

/// Told when connections of a worker are wanted elsewhere; also the worker's identity.
pub(crate) type WorkerBell = Arc<Notify>;

#[derive(Debug)]
struct Waiter {
    worker: WorkerBell,
    woken: Arc<Notify>,
}

/// A place in the line, given up when dropped.
#[derive(Debug)]
pub(super) struct Place<'q> {
    queue: &'q Queue,
    waiter: Arc<Waiter>,
}

/// One of the connections that an endpoint may have, given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    endpoint: Arc<EndpointState>,
    queue: Arc<Queue>,
}

impl Queue {
    pub(super) fn new(metrics: UpstreamMetrics, ceiling: Arc<Ceiling>) -> Self {
        Self { line: Mutex::default(), waiting: AtomicUsize::new(0), metrics, ceiling }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections of this worker may be wanted from now on.
    pub(super) fn register(&self, worker: &WorkerBell) {
        let workers = &mut self.line().workers;
        if !workers.iter().any(|known| Arc::ptr_eq(known, worker)) {
            workers.push(Arc::clone(worker));
        }
    }

    /// Whether anybody waits.
    pub(super) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// A place at the end, unless `at_most` wait already. To be asked for room after this.
    pub(super) fn join(&self, worker: &WorkerBell, at_most: usize) -> Option<Place<'_>> {
        let mut line = self.line();
        if line.waiters.len() >= at_most {
            return None;
        }
        let waiter = Arc::new(Waiter { worker: Arc::clone(worker), woken: Arc::default() });
        line.waiters.push_back(Arc::clone(&waiter));
        self.waiting.store(line.waiters.len(), Ordering::SeqCst);
        self.metrics.queued.inc();
        Some(Place { queue: self, waiter })
    }

    /// There may be room.
    pub(super) fn wake_front(&self) {
        if self.has_waiters()
            && let Some(front) = self.line().waiters.front()
        {
            front.woken.notify_one();
        }
    }

    /// Whether the one in front is a request of this worker.
    pub(super) fn is_front_of(&self, worker: &WorkerBell) -> bool {
        self.line().waiters.front().is_some_and(|front| Arc::ptr_eq(&front.worker, worker))
    }

    /// How many requests of other workers wait.
    pub(super) fn waiting_beside(&self, worker: &WorkerBell) -> usize {
        if !self.has_waiters() {
            return 0;
        }
        self.line().waiters.iter().filter(|waiter| !Arc::ptr_eq(&waiter.worker, worker)).count()
    }
}

impl Place<'_> {
    /// Whether it is this one's turn.
    pub(super) fn is_front(&self) -> bool {
        self.queue.line().waiters.front().is_some_and(|front| Arc::ptr_eq(front, &self.waiter))
    }

    /// Asks other workers to close what they do not use.
    pub(super) fn ask_others(&self) {
        for worker in self.queue.line().workers.iter().filter(|worker| !Arc::ptr_eq(worker, &self.waiter.worker)) {
            worker.notify_one();
        }
    }

    /// Asks all workers to close what any upstream does not use. To be asked for room after this.
    pub(super) fn ask_all(&self) -> Short<'_> {
        let short = Short::new(&self.queue.ceiling, &self.waiter.woken);
        self.queue.line().workers.iter().for_each(|worker| worker.notify_one());
        short
    }

    /// Waits until it is worth another look; what happened since the last one counts.
    pub(super) async fn woken(&self) {
        self.waiter.woken.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut line = self.queue.line();
        line.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        self.queue.waiting.store(line.waiters.len(), Ordering::SeqCst);
        self.queue.metrics.queued.dec();
        // The next one is in front now, or what woke this one was for it.
        if let Some(front) = line.waiters.front() {
            front.woken.notify_one();
        }
    }
}

impl Slot {
    /// One more connection to `endpoint`, if it has fewer than `at_most` and all together have fewer than they may.
    pub(super) fn new(endpoint: &Arc<EndpointState>, queue: &Arc<Queue>, at_most: usize) -> Option<Self> {
        if !endpoint.open(at_most) {
            return None;
        }
        if !queue.ceiling.open() {
            endpoint.close();
            return None;
        }
        Some(Self { endpoint: Arc::clone(endpoint), queue: Arc::clone(queue) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.endpoint.close();
        self.queue.ceiling.close();
        self.queue.wake_front();
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

    fn is_woken(place: &Place<'_>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(place.woken()).poll(&mut cx).is_ready()
    }

    #[test]
    fn the_one_in_front_is_woken_and_nobody_else() {
        let (queue, worker) = (queue(), WorkerBell::default());
        let [first, second, third] = [(); 3].map(|()| queue.join(&worker, 3).unwrap());
        assert!(queue.join(&worker, 3).is_none(), "no more than there may be");
        assert!(first.is_front() && !second.is_front() && queue.has_waiters());
        queue.wake_front();
        assert_eq!([&first, &second, &third].map(is_woken), [true, false, false]);

        // One that leaves from the middle takes nothing with it; one from the front hands on what woke it.
        drop(second);
        assert_eq!([is_woken(&first), is_woken(&third)], [true, false], "it looks once too often");
        queue.wake_front();
        drop(first);
        assert!(third.is_front() && is_woken(&third));
        drop(third);
        assert!(!queue.has_waiters() && queue.metrics.queued.get() == 0);
    }

    #[test]
    fn workers_are_asked_for_what_others_want() {
        let (queue, [ours, theirs]) = (queue(), [(); 2].map(|()| WorkerBell::default()));
        for worker in [&ours, &theirs, &ours] {
            queue.register(worker);
        }
        let place = queue.join(&ours, 9).unwrap();
        assert!(queue.is_front_of(&ours) && !queue.is_front_of(&theirs));
        assert_eq!([&ours, &theirs].map(|worker| queue.waiting_beside(worker)), [0, 1]);
        place.ask_others();
        let mut cx = Context::from_waker(Waker::noop());
        let rings = [&ours, &theirs].map(|worker| pin!(worker.notified()).poll(&mut cx).is_ready());
        assert_eq!(rings, [false, true]);
    }
}
