//! Counts active requests by worker, client and upstream.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::ceiling::Ceiling;
use super::queue::UpstreamRequest;
use crate::transport::net::client_usage::ClientHandle;

/// The counter of one worker.
#[derive(Debug)]
pub(crate) struct WorkerRequests {
    ceiling: Arc<Ceiling>,
    index: usize,
}

/// A request that counts as active until this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    client: Option<Rc<ClientHandle>>,
    /// None if the request shares its connection.
    worker: Option<Rc<WorkerRequests>>,
    /// Its count at the upstream.
    upstream: UpstreamRequest,
}

impl WorkerRequests {
    /// The counter of one more worker.
    pub(crate) fn new(ceiling: &Arc<Ceiling>) -> Rc<Self> {
        Rc::new(Self { ceiling: Arc::clone(ceiling), index: ceiling.add_worker() })
    }

    fn count(&self) -> &AtomicUsize {
        self.ceiling.active(self.index)
    }
}

impl ActiveRequest {
    /// Counts a request of `client`; none if the client is not counted. Returns none if the request has to wait.
    /// `is_shared`: it shares its connection, so it uses no file descriptor of its own.
    pub(crate) fn new(client: Option<&Rc<ClientHandle>>, worker: &Rc<WorkerRequests>, is_shared: bool) -> Option<Self> {
        if let Some(client) = client
            && !client.begin(|client_active| is_shared || worker.ceiling.allows(client_active))
        {
            return None;
        }
        let worker = (!is_shared).then(|| Rc::clone(worker));
        if let Some(worker) = &worker {
            worker.count().fetch_add(1, Ordering::Relaxed);
        }
        Some(Self { client: client.cloned(), worker, upstream: UpstreamRequest::default() })
    }

    /// Adds its count at the upstream.
    pub(crate) fn at_upstream(mut self, upstream: UpstreamRequest) -> Self {
        self.upstream = upstream;
        self
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        drop(std::mem::take(&mut self.upstream));
        if let Some(worker) = &self.worker {
            // `SeqCst`: a request that begins to wait sees this end, or is woken below.
            worker.count().fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(client) = &self.client {
            client.end();
        }
        if let Some(worker) = &self.worker {
            worker.ceiling.wake_allowance_waiter();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::super::ceiling::AllowanceWaiter;
    use super::*;
    use crate::transport::net::client_usage::{ClientUsage, RequestWaiter};

    /// The connections that remain when so many clients have all that they can get. They ask in turn or one after another.
    fn remaining(max: usize, count: u8, in_turn: bool) -> usize {
        let worker_requests = WorkerRequests::new(&Arc::new(Ceiling::new(max, 2)));
        let known = Arc::<ClientUsage>::default();
        let client = |n| Rc::new(known.enter([10, 0, 0, n].into(), 1, usize::MAX).unwrap());
        let clients: Vec<_> = (0..count).map(client).collect();
        let mut had = Vec::new();
        let mut ask = |client: &Rc<ClientHandle>| {
            let begun = ActiveRequest::new(Some(client), &worker_requests, false);
            let begins = begun.is_some() && worker_requests.ceiling.open();
            had.extend(begun.filter(|_| begins));
            begins
        };
        if in_turn {
            while clients.iter().filter(|client| ask(client)).count() > 0 {}
        } else {
            for client in &clients {
                while ask(client) {}
            }
        }
        let remaining = max - had.len();
        drop(had);
        assert_eq!(worker_requests.count().load(Ordering::Relaxed), 0);
        remaining
    }

    #[test]
    fn no_client_takes_the_connections_that_others_need() {
        for (max, clients, in_turn, expected) in [
            (100, 1, true, 61),
            (440, 1, true, 271),
            (440, 20, true, 86),
            (440, 20, false, 20),
            (9_928, 1, false, 6_135),
            (9_928, 100, false, 88),
            (1, 1, true, 0),
        ] {
            assert_eq!(remaining(max, clients, in_turn), expected, "{max} {clients} {in_turn}");
        }
    }

    /// Whether `waiting` has been notified.
    fn is_woken(waiting: &RequestWaiter<'_>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(waiting.woken()).poll(&mut cx).is_ready()
    }

    #[test]
    fn ended_requests_of_other_clients_wake_waiting_requests_in_turn() {
        let ceiling = Arc::new(Ceiling::new(100, 1));
        let worker_requests = WorkerRequests::new(&ceiling);
        let known = Arc::<ClientUsage>::default();
        let [a, b] = [1, 2].map(|n| Rc::new(known.enter([10, 0, 0, n].into(), 1, 9).unwrap()));
        let begin = |client| ActiveRequest::new(client, &worker_requests, false);
        let _held = [&a, &b].map(|client| begin(Some(client)).unwrap());
        let mut others: Vec<_> = (0..95).map(|_| begin(None).unwrap()).collect();
        (0..97).for_each(|_| assert!(ceiling.open()));
        assert!(begin(Some(&a)).is_none());

        let [first, second] = [&a, &b].map(|client| client.wait().unwrap());
        let waiters = [&first, &second].map(|waiting| AllowanceWaiter::new(&ceiling, waiting.notify()));
        let woken = || [&first, &second].map(is_woken);
        assert_eq!(woken(), [false, false]);
        others.pop();
        assert_eq!(woken(), [true, false]);
        others.pop();
        assert_eq!(woken(), [false, true]);
        ceiling.close();
        assert_eq!(woken(), [true, false]);
        ceiling.sweep();
        assert_eq!(woken(), [true, true]);
        others.clear();
        assert_eq!(woken(), [true, true]);
        let _begun = begin(Some(&a)).unwrap();
        drop(waiters);
        ceiling.close();
        assert_eq!((woken(), ceiling.allowance_waiting()), ([false, false], 0));
    }

    #[test]
    fn requests_on_shared_connections_are_bounded_only_by_their_client() {
        let worker_requests = WorkerRequests::new(&Arc::new(Ceiling::new(1, 1)));
        let client = Rc::new(Arc::<ClientUsage>::default().enter([0; 4].into(), 1, 3).unwrap());
        let begun: Vec<_> = (0..5).map_while(|_| ActiveRequest::new(Some(&client), &worker_requests, true)).collect();
        assert_eq!(begun.len(), 3);
        assert!(ActiveRequest::new(None, &worker_requests, true).is_some());
    }
}
