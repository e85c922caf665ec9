//! Per-client usage: the connections and the requests in flight of each client.
//!
//! A connection looks up its client once, under a lock. A request then changes one atomic counter. A connection of a
//! trusted proxy looks up a client when the proxy names another one than before.
//!
//! Not here: the division of capacity among clients.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Number of locks; workers seldom meet at one of them.
const SHARDS: usize = 16;
/// Counters of each shard that wait for a new client.
const SPARE_MAX: usize = 64;

/// The usage of all clients that have a connection. A lock is held for one lookup in a map.
#[derive(Debug, Default)]
pub struct ClientUsage {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
}

/// The clients under one lock.
#[derive(Debug, Default)]
struct Shard {
    clients: HashMap<IpAddr, ClientEntry>,
    /// Unused counters, so that a client that comes and goes costs no allocation.
    spare: Vec<Arc<ClientCounters>>,
}

/// The number of connections of one client, and its counters.
#[derive(Debug)]
struct ClientEntry {
    connections: usize,
    /// Handles of connections and requests.
    handles: usize,
    client: Arc<ClientCounters>,
}

/// Counters that all connections of one client share.
#[derive(Debug, Default)]
struct ClientCounters {
    /// Requests in flight to upstreams.
    in_flight: AtomicUsize,
    /// Requests that wait until fewer are in flight.
    waiting: AtomicUsize,
    /// Notified when a waiting request may find capacity.
    freed: Arc<Notify>,
}

/// One connection of a client, counted until it is dropped, or the requests of a client on a connection of a trusted
/// proxy.
#[derive(Debug)]
pub(crate) struct ClientHandle {
    is_connection: bool,
    clients: Arc<ClientUsage>,
    ip: IpAddr,
    client: Arc<ClientCounters>,
    /// The most requests of the client, in flight or waiting.
    max_requests: usize,
}

/// The client of the last request on a connection of a trusted proxy. The next request of this client takes no lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxiedClient(RefCell<Option<Rc<ClientHandle>>>);

/// A request that waits until its client has fewer in flight.
#[derive(Debug)]
pub(crate) struct RequestWaiter<'e>(&'e ClientCounters);

impl ClientUsage {
    /// Counts a connection of the client at `ip`. None if the client has `max_connections` already.
    pub(crate) fn enter(
        self: &Arc<Self>,
        ip: IpAddr,
        max_connections: usize,
        max_requests: usize,
    ) -> Option<ClientHandle> {
        let client = {
            let mut shard = self.shard(ip);
            let entry = shard.entry(ip);
            if entry.connections >= max_connections {
                return None;
            }
            entry.connections += 1;
            entry.handles += 1;
            Arc::clone(&entry.client)
        };
        Some(ClientHandle { is_connection: true, clients: Arc::clone(self), ip, client, max_requests })
    }

    /// A handle for requests that a trusted proxy forwards for the client at `ip`. It counts no connection.
    fn enter_proxied(self: &Arc<Self>, ip: IpAddr, max_requests: usize) -> ClientHandle {
        let client = {
            let mut shard = self.shard(ip);
            let entry = shard.entry(ip);
            entry.handles += 1;
            Arc::clone(&entry.client)
        };
        ClientHandle { is_connection: false, clients: Arc::clone(self), ip, client, max_requests }
    }

    #[allow(clippy::cast_possible_truncation)] // only the low bits matter
    fn shard(&self, ip: IpAddr) -> MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(ip) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// The entry of the client at `ip`.
    fn entry(&mut self, ip: IpAddr) -> &mut ClientEntry {
        let Self { clients, spare } = self;
        clients.entry(ip).or_insert_with(|| {
            let client = spare.pop().unwrap_or_default();
            ClientEntry { connections: 0, handles: 0, client }
        })
    }
}

impl ProxiedClient {
    /// The handle for a request that a trusted proxy forwards for the client at `ip`.
    pub(crate) fn handle(
        &self,
        clients: &Arc<ClientUsage>,
        ip: IpAddr,
        max_requests: usize,
    ) -> Option<Rc<ClientHandle>> {
        let mut last = self.0.borrow_mut();
        if last.as_ref().is_none_or(|handle| (handle.ip, handle.max_requests) != (ip, max_requests)) {
            let entered = clients.enter_proxied(ip, max_requests);
            match last.as_mut().and_then(Rc::get_mut) {
                Some(handle) => *handle = entered,
                None => *last = Some(Rc::new(entered)),
            }
        }
        last.clone()
    }
}

impl ClientHandle {
    /// The client's address or network.
    pub(crate) fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Counts one more request if `fits` accepts the number in flight before it. [`ClientHandle::end`] must follow.
    pub(crate) fn begin(&self, fits: impl FnOnce(usize) -> bool) -> bool {
        let before = self.client.in_flight.fetch_add(1, Ordering::Relaxed);
        let begins = before < self.max_requests && fits(before);
        if !begins {
            self.client.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        begins
    }

    /// Counts the end of a request.
    pub(crate) fn end(&self) {
        // `SeqCst`, as in `wait`: either the new waiter sees this end, or this end sees the waiter.
        self.client.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.wake();
    }

    /// Whether requests of the client wait.
    pub(crate) fn has_waiters(&self) -> bool {
        self.client.waiting.load(Ordering::SeqCst) > 0
    }

    /// Lets the oldest waiter try again.
    pub(crate) fn wake(&self) {
        if self.has_waiters() {
            self.client.freed.notify_one();
        }
    }

    /// Adds a waiter. None if the client has its most requests already.
    pub(crate) fn wait(&self) -> Option<RequestWaiter<'_>> {
        let ClientCounters { in_flight, waiting, .. } = &*self.client;
        let before = waiting.fetch_add(1, Ordering::SeqCst);
        let place = RequestWaiter(&self.client);
        (before + in_flight.load(Ordering::SeqCst) < self.max_requests).then_some(place)
    }
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        let mut shard = self.clients.shard(self.ip);
        let Shard { clients, spare } = &mut *shard;
        if let Entry::Occupied(mut entry) = clients.entry(self.ip) {
            let counts = entry.get_mut();
            counts.connections -= usize::from(self.is_connection);
            counts.handles -= 1;
            if counts.handles == 0 {
                // No request is in flight or waits, so the counters are 0. A late notification only makes a waiter of
                // the next client try once more.
                let client = entry.remove().client;
                if spare.len() < SPARE_MAX {
                    spare.push(client);
                }
            }
        }
    }
}

impl RequestWaiter<'_> {
    /// Notified when the waiter should try again.
    pub(crate) fn notify(&self) -> &Arc<Notify> {
        &self.0.freed
    }

    /// Waits for the next notification; one since the last wait counts.
    pub(crate) async fn woken(&self) {
        self.0.freed.notified().await;
    }
}

impl Drop for RequestWaiter<'_> {
    fn drop(&mut self) {
        // The notification may serve the next waiter.
        if self.0.waiting.fetch_sub(1, Ordering::SeqCst) > 1 {
            self.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_woken(place: &RequestWaiter<'_>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(place.woken()).poll(&mut cx).is_ready()
    }

    fn has_no_client(clients: &ClientUsage) -> bool {
        clients.shards.iter().all(|shard| shard.lock().unwrap().clients.is_empty())
    }

    #[test]
    fn connections_are_counted_by_client_until_they_close() {
        let clients = Arc::<ClientUsage>::default();
        let [a, b] = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([0; 16])];
        let entered: Vec<_> = [a, a, b].map(|ip| clients.enter(ip, 2, 1).unwrap()).into();
        assert!(clients.enter(a, 2, 1).is_none());
        let again = clients.enter(b, 2, 1).unwrap();
        drop(entered);
        assert!(clients.enter(a, 1, 1).is_some());
        drop(again);
        assert!(has_no_client(&clients));
    }

    #[test]
    fn requests_through_a_proxy_count_to_their_client_without_a_connection() {
        let clients = Arc::<ClientUsage>::default();
        let ip = IpAddr::from([192, 0, 2, 1]);
        let direct = clients.enter(ip, 1, 2).unwrap();
        let proxied = [(); 2].map(|()| ProxiedClient::default().handle(&clients, ip, 2).unwrap());
        assert!(proxied[0].begin(|before| before == 0) && direct.begin(|before| before == 1));
        assert!(!proxied[1].begin(|_| true), "no more than the client may have");
        assert!(clients.enter(ip, 1, 2).is_none(), "one connection");
        drop(direct);
        drop(clients.enter(ip, 1, 2).unwrap());
        drop(proxied);
        assert!(has_no_client(&clients));
    }

    #[test]
    fn clients_behind_a_proxy_share_the_memory_of_its_connection() {
        let clients = Arc::<ClientUsage>::default();
        let connection = ProxiedClient::default();
        let of = |last: u8, max_requests| connection.handle(&clients, [192, 0, 2, last].into(), max_requests).unwrap();
        let first = of(1, 9);
        let place = Rc::as_ptr(&first);
        drop(first);
        // The next client, a client that returns, and another bound after a reload.
        for (last, max_requests) in [(1, 9), (2, 9), (1, 9), (1, 8)] {
            let handle = of(last, max_requests);
            assert_eq!((Rc::as_ptr(&handle), handle.ip), (place, [192, 0, 2, last].into()));
            assert!((0..max_requests).all(|_| handle.begin(|_| true)) && !handle.begin(|_| true));
            (0..max_requests).for_each(|_| handle.end());
        }
        let [one, other] = [of(1, 9), of(2, 9)];
        assert!(one.begin(|before| before == 0) && other.begin(|before| before == 0), "at the same time");
        drop((one, other, connection));
        assert!(has_no_client(&clients));
        let spare = |clients: &ClientUsage| clients.shards.iter().map(|shard| shard.lock().unwrap().spare.len()).sum();
        let before: usize = spare(&clients);
        let again = clients.enter([192, 0, 2, 1].into(), 1, 1).unwrap();
        assert_eq!(spare(&clients), before - 1);
        drop(again);
    }

    #[test]
    fn requests_of_all_connections_of_a_client_count_together() {
        let clients = Arc::<ClientUsage>::default();
        let [one, other] = [(); 2].map(|()| clients.enter([0; 4].into(), 9, 3).unwrap());
        assert!(one.begin(|before| before == 0) && other.begin(|before| before == 1));
        assert!(!one.begin(|_| false), "other clients use the capacity");
        let place = one.wait().unwrap();
        assert!(other.wait().is_none(), "two are in flight and one waits");
        assert!(other.has_waiters() && is_woken(&place), "a refused waiter wakes the next one");
        assert!(!is_woken(&place));
        other.end();
        assert!(is_woken(&place) && one.begin(|before| before == 1));
        drop(place);
        assert!(!one.has_waiters());
        assert!(other.begin(|_| true) && !other.begin(|_| true), "the client has its most requests");
    }
}
