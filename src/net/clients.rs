//! What each client has at once: connections, and requests that upstreams have in hand.
//!
//! A connection looks its client up once, under a lock; a request then counts in one atomic number. Not here: how many
//! requests fit beside those of other clients.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Locks, so that workers seldom meet at one.
const SHARDS: usize = 16;

/// All clients that have a connection. A lock is held for one look into a map.
#[derive(Debug, Default)]
pub struct Clients {
    shards: [Mutex<HashMap<IpAddr, Known>>; SHARDS],
    hasher: RandomState,
}

/// A client and its number of connections.
#[derive(Debug)]
struct Known {
    connections: usize,
    client: Arc<Client>,
}

/// What the connections of one client share.
#[derive(Debug, Default)]
struct Client {
    /// Requests that upstreams have in hand.
    in_hand: AtomicUsize,
    /// Requests that wait until fewer are in hand.
    waiting: AtomicUsize,
    /// Notified when waiting requests may have room.
    room: Arc<Notify>,
}

/// One connection of a client, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    clients: Arc<Clients>,
    ip: IpAddr,
    client: Arc<Client>,
    /// Requests that the client may have, those that wait included.
    max_requests: usize,
}

/// A request that waits until fewer of its client are in hand.
#[derive(Debug)]
pub(crate) struct Waiting<'e>(&'e Client);

impl Clients {
    /// One more connection of the client at `ip`; none if it has `max_connections` already.
    pub(crate) fn enter(self: &Arc<Self>, ip: IpAddr, max_connections: usize, max_requests: usize) -> Option<Entered> {
        let client = match self.shard(ip).entry(ip) {
            Entry::Occupied(known) if known.get().connections >= max_connections => return None,
            Entry::Occupied(known) => {
                let known = known.into_mut();
                known.connections += 1;
                Arc::clone(&known.client)
            }
            Entry::Vacant(place) => {
                let client = Arc::<Client>::default();
                place.insert(Known { connections: 1, client: Arc::clone(&client) });
                client
            }
        };
        Some(Entered { clients: Arc::clone(self), ip, client, max_requests })
    }

    #[allow(clippy::cast_possible_truncation)] // only the low bits count
    fn shard(&self, ip: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, Known>> {
        let index = self.hasher.hash_one(ip) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entered {
    /// Counts one more request if `has_room` says so of the number in hand. To be ended by [`Entered::end`].
    pub(crate) fn begin(&self, has_room: impl FnOnce(usize) -> bool) -> bool {
        let before = self.client.in_hand.fetch_add(1, Ordering::Relaxed);
        let begins = before < self.max_requests && has_room(before);
        if !begins {
            self.client.in_hand.fetch_sub(1, Ordering::Relaxed);
        }
        begins
    }

    /// A request has ended.
    pub(crate) fn end(&self) {
        // `SeqCst`, as in `wait`: one that begins to wait sees this end, or is seen here.
        self.client.in_hand.fetch_sub(1, Ordering::SeqCst);
        self.wake();
    }

    /// Whether requests of the client wait.
    pub(crate) fn has_waiters(&self) -> bool {
        self.client.waiting.load(Ordering::SeqCst) > 0
    }

    /// Lets the request that has waited longest look again.
    pub(crate) fn wake(&self) {
        if self.has_waiters() {
            self.client.room.notify_one();
        }
    }

    /// A place among those that wait; none if the client has as many requests as it may have.
    pub(crate) fn wait(&self) -> Option<Waiting<'_>> {
        let Client { in_hand, waiting, .. } = &*self.client;
        let before = waiting.fetch_add(1, Ordering::SeqCst);
        let place = Waiting(&self.client);
        (before + in_hand.load(Ordering::SeqCst) < self.max_requests).then_some(place)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut shard = self.clients.shard(self.ip);
        if let Entry::Occupied(mut known) = shard.entry(self.ip) {
            known.get_mut().connections -= 1;
            if known.get().connections == 0 {
                known.remove();
            }
        }
    }
}

impl Waiting<'_> {
    /// Notified when it is worth another look.
    pub(crate) fn bell(&self) -> &Arc<Notify> {
        &self.0.room
    }

    /// Waits until it is worth another look; an end since the last one counts.
    pub(crate) async fn woken(&self) {
        self.0.room.notified().await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // What woke this one may do for the next.
        if self.0.waiting.fetch_sub(1, Ordering::SeqCst) > 1 {
            self.0.room.notify_one();
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

    fn is_woken(place: &Waiting<'_>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(place.woken()).poll(&mut cx).is_ready()
    }

    #[test]
    fn connections_are_counted_by_client_and_nothing_is_left() {
        let clients = Arc::<Clients>::default();
        let [a, b] = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([0; 16])];
        let entered: Vec<_> = [a, a, b].map(|ip| clients.enter(ip, 2, 1).unwrap()).into();
        assert!(clients.enter(a, 2, 1).is_none());
        let again = clients.enter(b, 2, 1).unwrap();
        drop(entered);
        assert!(clients.enter(a, 1, 1).is_some());
        drop(again);
        assert!(clients.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn requests_of_all_connections_of_a_client_count_together() {
        let clients = Arc::<Clients>::default();
        let [one, other] = [(); 2].map(|()| clients.enter([0; 4].into(), 9, 3).unwrap());
        assert!(one.begin(|before| before == 0) && other.begin(|before| before == 1));
        assert!(!one.begin(|_| false), "there is no room beside those of others");
        let place = one.wait().unwrap();
        assert!(other.wait().is_none(), "two are in hand and one waits");
        assert!(other.has_waiters() && is_woken(&place), "one left without a place, which may be worth a look");
        assert!(!is_woken(&place));
        other.end();
        assert!(is_woken(&place) && one.begin(|before| before == 1));
        drop(place);
        assert!(!one.has_waiters());
        assert!(other.begin(|_| true) && !other.begin(|_| true), "no more than the client may have");
    }
}
