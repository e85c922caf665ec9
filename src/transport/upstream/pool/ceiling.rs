//! The bound on the upstream connections of the process, and on the part of them that one client may use.
//!
//! The process divides its file descriptors at the start, so that requests cannot take those of clients and operators.
//! The more connections are in use, the fewer requests one client may have: of `max` connections, of which `free` are
//! free of requests, it may have `free² / max`, and always one. So one greedy client leaves more than half of them to
//! others, and n clients whose requests never end leave about one of n + 1. Not here: the bound of each endpoint.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The bound on the connections to all upstreams, and what each worker and client uses of it.
#[derive(Debug)]
pub struct Ceiling {
    max: usize,
    open: AtomicUsize,
    /// Requests on connections of their own, by worker. Each worker writes to its own cache line.
    active: Box<[PaddedCounter]>,
    /// Workers that have a counter.
    workers: AtomicUsize,
    /// Notifies the first waiters of queues that wait until any upstream connection closes.
    full_waiters: Mutex<Vec<Arc<Notify>>>,
    /// The length of `full_waiters`, to be read without the lock; `SeqCst` as in the queue.
    full_count: AtomicUsize,
    /// Requests that wait until their clients may have more.
    allowance_waiters: Mutex<AllowanceWaiters>,
    /// The number of `allowance_waiters`, as `full_count`.
    allowance_count: AtomicUsize,
}

/// Notifies waiting requests by ticket, one after another.
#[derive(Debug, Default)]
struct AllowanceWaiters {
    by_ticket: BTreeMap<u64, Arc<Notify>>,
    issued: u64,
    /// The ticket of the request that was notified last.
    notified: u64,
}

/// Registers a request that waits until its client may have more, until dropped.
#[derive(Debug)]
pub(crate) struct AllowanceWaiter<'c> {
    ceiling: &'c Ceiling,
    ticket: u64,
}

/// Registers a request that waits until any upstream connection closes, until dropped.
#[derive(Debug)]
pub(crate) struct CeilingWaiter<'c> {
    ceiling: &'c Ceiling,
    woken: &'c Arc<Notify>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct PaddedCounter(AtomicUsize);

impl Ceiling {
    /// A bound of `max` connections for so many workers.
    pub fn new(max: usize, workers: usize) -> Self {
        Self {
            max,
            open: AtomicUsize::new(0),
            active: (0..workers.max(1)).map(|_| PaddedCounter::default()).collect(),
            workers: AtomicUsize::new(0),
            full_waiters: Mutex::default(),
            full_count: AtomicUsize::new(0),
            allowance_waiters: Mutex::default(),
            allowance_count: AtomicUsize::new(0),
        }
    }

    /// The largest number of connections.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// The number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.active.len()
    }

    /// The index of the counter of one more worker.
    pub(crate) fn add_worker(&self) -> usize {
        self.workers.fetch_add(1, Ordering::Relaxed) % self.active.len()
    }

    /// The requests of the worker at `index` that have a connection of their own.
    pub(crate) fn active(&self, index: usize) -> &AtomicUsize {
        &self.active[index].0
    }

    /// Counts one more connection. Returns false if there are as many as there may be.
    pub(crate) fn open(&self) -> bool {
        let more = |open: usize| Some(open + 1).filter(|open| *open <= self.max);
        self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Ends the count of one connection.
    pub(crate) fn close(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        if self.has_waiters() {
            self.full_waiters().iter().for_each(|first| first.notify_one());
        }
        self.wake_allowance_waiter();
    }

    /// Wakes one of the requests that wait for their clients' allowance, each in turn. A request that still may not
    /// begin wakes no other, so that each end costs one wake-up; [`Ceiling::sweep`] wakes the rest.
    pub(crate) fn wake_allowance_waiter(&self) {
        if self.allowance_count.load(Ordering::SeqCst) > 0 {
            self.allowance_waiters().notify_next();
        }
    }

    /// Wakes all requests that wait for their clients' allowance. To be called periodically.
    pub(crate) fn sweep(&self) {
        if self.allowance_count.load(Ordering::SeqCst) > 0 {
            self.allowance_waiters().by_ticket.values().for_each(|woken| woken.notify_one());
        }
    }

    #[cfg(test)]
    pub(crate) fn allowance_waiting(&self) -> usize {
        self.allowance_waiters().by_ticket.len()
    }

    fn allowance_waiters(&self) -> MutexGuard<'_, AllowanceWaiters> {
        self.allowance_waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of connections that may be opened now.
    pub(crate) fn free(&self) -> usize {
        self.max.saturating_sub(self.open.load(Ordering::SeqCst))
    }

    /// Whether no connection may be opened now.
    pub(crate) fn is_full(&self) -> bool {
        self.free() == 0
    }

    /// Whether requests wait until any upstream connection closes.
    pub(crate) fn has_waiters(&self) -> bool {
        self.full_count.load(Ordering::SeqCst) > 0
    }

    /// The number of requests that wait until any upstream connection closes.
    pub(crate) fn waiting(&self) -> usize {
        self.full_count.load(Ordering::SeqCst)
    }

    fn full_waiters(&self) -> MutexGuard<'_, Vec<Arc<Notify>>> {
        self.full_waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a client with so many active requests may begin one more.
    pub(crate) fn allows(&self, client_active: usize) -> bool {
        // In this order: the first two cost next to nothing.
        client_active == 0
            || is_allowed(client_active, self.open.load(Ordering::SeqCst), self.max)
            || is_allowed(client_active, self.active.iter().map(|count| count.0.load(Ordering::SeqCst)).sum(), self.max)
    }
}

/// Whether a client that uses `client` of `max` units may use one more, when all clients use `used` of them.
pub(crate) fn is_allowed(client: usize, used: usize, max: usize) -> bool {
    let free = max.saturating_sub(used);
    client == 0 || client.saturating_mul(max) < free.saturating_mul(free)
}

impl AllowanceWaiters {
    fn notify_next(&mut self) {
        let next = self.by_ticket.range(self.notified + 1..).next().or_else(|| self.by_ticket.first_key_value());
        if let Some((ticket, woken)) = next {
            woken.notify_one();
            self.notified = *ticket;
        }
    }
}

impl<'c> AllowanceWaiter<'c> {
    /// Registers a request that `woken` notifies. The request has to look for capacity after this.
    pub(crate) fn new(ceiling: &'c Ceiling, woken: &Arc<Notify>) -> Self {
        let mut waiters = ceiling.allowance_waiters();
        waiters.issued += 1;
        let ticket = waiters.issued;
        waiters.by_ticket.insert(ticket, Arc::clone(woken));
        ceiling.allowance_count.store(waiters.by_ticket.len(), Ordering::SeqCst);
        Self { ceiling, ticket }
    }
}

impl Drop for AllowanceWaiter<'_> {
    fn drop(&mut self) {
        let mut waiters = self.ceiling.allowance_waiters();
        waiters.by_ticket.remove(&self.ticket);
        self.ceiling.allowance_count.store(waiters.by_ticket.len(), Ordering::SeqCst);
    }
}

impl<'c> CeilingWaiter<'c> {
    /// Registers a request that `woken` notifies. The request has to look for capacity after this.
    pub(crate) fn new(ceiling: &'c Ceiling, woken: &'c Arc<Notify>) -> Self {
        let mut waiters = ceiling.full_waiters();
        waiters.push(Arc::clone(woken));
        ceiling.full_count.store(waiters.len(), Ordering::SeqCst);
        Self { ceiling, woken }
    }
}

impl Drop for CeilingWaiter<'_> {
    fn drop(&mut self) {
        let mut waiters = self.ceiling.full_waiters();
        waiters.retain(|woken| !Arc::ptr_eq(woken, self.woken));
        self.ceiling.full_count.store(waiters.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_at_most_the_maximum() {
        let ceiling = Ceiling::new(2, 1);
        assert!(ceiling.open() && ceiling.open() && !ceiling.open() && ceiling.is_full());
        ceiling.close();
        assert!(!ceiling.is_full() && ceiling.open());
    }
}
