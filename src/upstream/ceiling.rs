//! How many connections to all upstreams the process may have, and how many of them one client may use.
//!
//! Descriptors are shared out at the start, so that requests cannot take those of clients and operators. The more of these
//! connections are in use, the fewer one client may have: of `most` connections, of which `free` are free of requests, it
//! may have `free² / most`. Then one greedy client leaves more than half of them to others, and n clients, also if they
//! come one after another and none of their requests ends, leave about one of n + 1. Not here: the bound of each endpoint.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::net::clients::Entered;

/// The bound on upstream connections of the process, and the share of each client in it.
#[derive(Debug)]
pub struct Ceiling {
    most: usize,
    open: AtomicUsize,
    /// Requests on connections of their own, by worker; each writes to its own cache line.
    in_hand: Box<[OneLine]>,
    /// Workers that have one of those.
    workers: AtomicUsize,
    /// Requests at the front of their queues that wait for any connection to close.
    short: Mutex<Vec<Arc<Notify>>>,
    /// How many those are, to be read without the lock; `SeqCst` as in the queue.
    short_count: AtomicUsize,
    /// Requests that wait until their clients may have more.
    beside: Mutex<Waiters>,
    /// How many those are, as `short_count`.
    beside_count: AtomicUsize,
}

/// Bells of waiting requests by ticket, rung one after another.
#[derive(Debug, Default)]
struct Waiters {
    bells: BTreeMap<u64, Arc<Notify>>,
    issued: u64,
    /// The ticket of the bell that was rung last.
    rung: u64,
}

/// A request that waits until its client may have more, while this is kept.
#[derive(Debug)]
pub(super) struct Beside<'c> {
    ceiling: &'c Ceiling,
    ticket: u64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct OneLine(AtomicUsize);

/// The count of one worker.
#[derive(Debug)]
pub(crate) struct Hands {
    ceiling: Arc<Ceiling>,
    index: usize,
}

/// A request that is counted as in hand until this is dropped.
#[derive(Debug)]
pub(super) struct InHand {
    client: Option<Rc<Entered>>,
    /// None if it shares its connection.
    hands: Option<Rc<Hands>>,
}

/// A request that waits for any connection to close, while this is kept.
#[derive(Debug)]
pub(super) struct Short<'c> {
    ceiling: &'c Ceiling,
    woken: &'c Arc<Notify>,
}

impl Ceiling {
    /// One of so many connections, for so many workers.
    pub fn new(most: usize, workers: usize) -> Self {
        Self {
            most,
            open: AtomicUsize::new(0),
            in_hand: (0..workers.max(1)).map(|_| OneLine::default()).collect(),
            workers: AtomicUsize::new(0),
            short: Mutex::default(),
            short_count: AtomicUsize::new(0),
            beside: Mutex::default(),
            beside_count: AtomicUsize::new(0),
        }
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.in_hand.len()
    }

    /// One more connection, if there are fewer than there may be.
    pub(super) fn open(&self) -> bool {
        let more = |open: usize| Some(open + 1).filter(|open| *open <= self.most);
        self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// A connection was closed.
    pub(super) fn close(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        if self.is_short() {
            self.short().iter().for_each(|front| front.notify_one());
        }
        self.wake_beside();
    }

    /// There is more room: wakes one of the requests that wait for it beside other clients, each in turn. One that has
    /// no room yet does not pass this on, so that an end costs one wake-up; [`Ceiling::sweep`] wakes the rest.
    fn wake_beside(&self) {
        if self.beside_count.load(Ordering::SeqCst) > 0 {
            self.beside().ring_next();
        }
    }

    /// Wakes all requests that wait for room beside other clients; to be called every now and then.
    pub(crate) fn sweep(&self) {
        if self.beside_count.load(Ordering::SeqCst) > 0 {
            self.beside().bells.values().for_each(|bell| bell.notify_one());
        }
    }

    fn beside(&self) -> MutexGuard<'_, Waiters> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no connection may be opened now.
    pub(super) fn is_full(&self) -> bool {
        self.open.load(Ordering::SeqCst) >= self.most
    }

    /// Whether requests wait for any connection to close.
    pub(super) fn is_short(&self) -> bool {
        self.short_count.load(Ordering::SeqCst) > 0
    }

    /// How many of them wait.
    pub(super) fn short_count(&self) -> usize {
        self.short_count.load(Ordering::SeqCst)
    }

    fn short(&self) -> MutexGuard<'_, Vec<Arc<Notify>>> {
        self.short.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a client that has so many requests in hand may have one more.
    fn has_room(&self, in_hand: usize) -> bool {
        // In this order: the first two cost next to nothing.
        in_hand == 0
            || self.is_share(in_hand, self.open.load(Ordering::SeqCst))
            || self.is_share(in_hand, self.in_hand.iter().map(|count| count.0.load(Ordering::SeqCst)).sum())
    }

    /// Whether that leaves room for one more of the client's, where so many connections are in use.
    fn is_share(&self, in_hand: usize, used: usize) -> bool {
        let free = self.most.saturating_sub(used);
        in_hand.saturating_mul(self.most) < free.saturating_mul(free)
    }
}

impl Hands {
    /// Those of one more worker.
    pub(crate) fn new(ceiling: &Arc<Ceiling>) -> Rc<Self> {
        let index = ceiling.workers.fetch_add(1, Ordering::Relaxed) % ceiling.in_hand.len();
        Rc::new(Self { ceiling: Arc::clone(ceiling), index })
    }

    fn count(&self) -> &AtomicUsize {
        &self.ceiling.in_hand[self.index].0
    }
}

impl InHand {
    /// One of `client`, none for one that is not counted; none if it has to wait. Requests that share a connection
    /// take no descriptor.
    pub(super) fn new(client: Option<&Rc<Entered>>, hands: &Rc<Hands>, is_shared: bool) -> Option<Self> {
        if let Some(client) = client
            && !client.begin(|in_hand| is_shared || hands.ceiling.has_room(in_hand))
        {
            return None;
        }
        let hands = (!is_shared).then(|| Rc::clone(hands));
        if let Some(hands) = &hands {
            hands.count().fetch_add(1, Ordering::Relaxed);
        }
        Some(Self { client: client.cloned(), hands })
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        if let Some(hands) = &self.hands {
            // `SeqCst`: a request that begins to wait sees this end, or is woken below.
            hands.count().fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(client) = &self.client {
            client.end();
        }
        if let Some(hands) = &self.hands {
            hands.ceiling.wake_beside();
        }
    }
}

impl Waiters {
    fn ring_next(&mut self) {
        let next = self.bells.range(self.rung + 1..).next().or_else(|| self.bells.first_key_value());
        if let Some((ticket, bell)) = next {
            bell.notify_one();
            self.rung = *ticket;
        }
    }
}

impl<'c> Beside<'c> {
    /// One that is notified by `bell`. To look for room after this.
    pub(super) fn new(ceiling: &'c Ceiling, bell: &Arc<Notify>) -> Self {
        let mut waiters = ceiling.beside();
        waiters.issued += 1;
        let ticket = waiters.issued;
        waiters.bells.insert(ticket, Arc::clone(bell));
        ceiling.beside_count.store(waiters.bells.len(), Ordering::SeqCst);
        Self { ceiling, ticket }
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        let mut waiters = self.ceiling.beside();
        waiters.bells.remove(&self.ticket);
        self.ceiling.beside_count.store(waiters.bells.len(), Ordering::SeqCst);
    }
}

impl<'c> Short<'c> {
    /// One that is told by `woken`. To be asked for room after this.
    pub(super) fn new(ceiling: &'c Ceiling, woken: &'c Arc<Notify>) -> Self {
        let mut short = ceiling.short();
        short.push(Arc::clone(woken));
        ceiling.short_count.store(short.len(), Ordering::SeqCst);
        Self { ceiling, woken }
    }
}

impl Drop for Short<'_> {
    fn drop(&mut self) {
        let mut short = self.ceiling.short();
        short.retain(|woken| !Arc::ptr_eq(woken, self.woken));
        self.ceiling.short_count.store(short.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::net::clients::{Clients, Waiting};

    /// Connections that are left when so many clients have all that they can get; they ask in turn, or one after another.
    fn left(most: usize, count: u8, in_turn: bool) -> usize {
        let hands = Hands::new(&Arc::new(Ceiling::new(most, 2)));
        let known = Arc::<Clients>::default();
        let client = |n| Rc::new(known.enter([10, 0, 0, n].into(), 1, usize::MAX).unwrap());
        let clients: Vec<_> = (0..count).map(client).collect();
        let mut had = Vec::new();
        let mut ask = |client: &Rc<Entered>| {
            let begun = InHand::new(Some(client), &hands, false);
            let begins = begun.is_some() && hands.ceiling.open();
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
        let left = most - had.len();
        drop(had);
        assert_eq!(hands.count().load(Ordering::Relaxed), 0);
        left
    }

    #[test]
    fn no_client_takes_what_others_need() {
        for (most, clients, in_turn, expected) in [
            (100, 1, true, 61),
            (440, 1, true, 271),
            (440, 20, true, 86),
            (440, 20, false, 20),
            (9_928, 1, false, 6_135),
            (9_928, 100, false, 88),
            (1, 1, true, 0),
        ] {
            assert_eq!(left(most, clients, in_turn), expected, "{most} {clients} {in_turn}");
        }
    }

    /// Whether `waiting` has been notified.
    fn is_woken(waiting: &Waiting<'_>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(waiting.woken()).poll(&mut cx).is_ready()
    }

    #[test]
    fn requests_of_other_clients_that_end_wake_waiting_ones_in_turn() {
        let ceiling = Arc::new(Ceiling::new(100, 1));
        let hands = Hands::new(&ceiling);
        let known = Arc::<Clients>::default();
        let [a, b] = [1, 2].map(|n| Rc::new(known.enter([10, 0, 0, n].into(), 1, 9).unwrap()));
        let begin = |client| InHand::new(client, &hands, false);
        let _held = [&a, &b].map(|client| begin(Some(client)).unwrap());
        let mut others: Vec<_> = (0..95).map(|_| begin(None).unwrap()).collect();
        (0..97).for_each(|_| assert!(ceiling.open()));
        assert!(begin(Some(&a)).is_none());

        let [first, second] = [&a, &b].map(|client| client.wait().unwrap());
        let beside = [&first, &second].map(|waiting| Beside::new(&ceiling, waiting.bell()));
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
        drop(beside);
        ceiling.close();
        assert_eq!((woken(), ceiling.beside().bells.len()), ([false, false], 0));
    }

    #[test]
    fn connections_are_no_more_than_there_may_be() {
        let ceiling = Ceiling::new(2, 1);
        assert!(ceiling.open() && ceiling.open() && !ceiling.open() && ceiling.is_full());
        ceiling.close();
        assert!(!ceiling.is_full() && ceiling.open());
    }

    #[test]
    fn requests_that_share_a_connection_are_bounded_by_their_client_only() {
        let hands = Hands::new(&Arc::new(Ceiling::new(1, 1)));
        let client = Rc::new(Arc::<Clients>::default().enter([0; 4].into(), 1, 3).unwrap());
        let begun: Vec<_> = (0..5).map_while(|_| InHand::new(Some(&client), &hands, true)).collect();
        assert_eq!(begun.len(), 3);
        assert!(InHand::new(None, &hands, true).is_some());
    }
}
