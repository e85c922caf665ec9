//! `stream`: replicas that decide from their own tables and tell each other their charges.

use prost::Message as _;
use weir::base::time::Timestamp;
use weir::engine::limit::{Algorithm, Key, OnFull};
use weir::engine::store::stream::message::{BanChange, Cursor, LimitCharges, LimitStates, Message, States};
use weir::engine::store::stream::{Ledger, PeerId, Pending, Replica, Taken, Timing, merge_states, pack_states};
use weir::engine::store::{Batch, Charge, Table};

use super::world::{Strategy, World, key};

const LIMIT: &str = "limit";

pub struct Streams {
    rule: Algorithm,
    timing: Timing,
    replicas: usize,
    pub nodes: Vec<Option<Node>>,
}

/// One replica.
pub struct Node {
    pub replica: Replica,
    books: Books,
    /// The instant of the next tick that is armed.
    armed: u64,
}

struct Books {
    rule: Algorithm,
    table: Table,
    pending: Pending,
}

impl Ledger for Books {
    fn take(&mut self, now: Timestamp) -> Taken {
        let mut taken = Vec::new();
        let is_complete = self.pending.take(now, &mut taken);
        let mut charges = LimitCharges::of(LIMIT, None);
        for one in &taken {
            charges.push(one.key, one.units);
        }
        let limits = if taken.is_empty() { Vec::new() } else { vec![charges] };
        Taken { limits, bans: Vec::new(), is_complete }
    }

    fn charge(&mut self, charges: &LimitCharges, at: Timestamp, now: Timestamp) {
        for (key, units) in charges.each() {
            self.table.charge_as_of(key, &self.rule, units, at, now);
        }
    }

    fn ban(&mut self, _: &[BanChange], _: Timestamp) {}

    fn states(&mut self, at: &Cursor, now: Timestamp) -> States {
        let (states, next) = pack_states(LIMIT, &self.table, at.from, |_| Some(&self.rule), now);
        let next = next.map(|from| Cursor { limit: LIMIT.into(), from, bans: 0 });
        States { at: Some(at.clone()), limits: vec![states], bans: Vec::new(), next }
    }

    fn merge(&mut self, states: &LimitStates, now: Timestamp) {
        merge_states(states, &self.table, |_| Some(&self.rule), now);
    }
}

impl Streams {
    pub fn new(rule: Algorithm, timing: Timing, replicas: usize) -> Self {
        Self { rule, timing, replicas, nodes: (0..replicas).map(|_| None).collect() }
    }

    /// The replicas that do not hear `node`. The address of one that has crashed refuses connections.
    fn absent(&self, node: usize, world: &World<Self>) -> i64 {
        let (now, Some(Node { replica, .. })) = (world.clock(node), &self.nodes[node]) else { return 0 };
        let is_young = replica.uptime_ns(now) < self.timing.isolate_after_ns;
        let others = (0..self.replicas).filter(|other| *other != node && !is_young && world.is_up(*other));
        others.filter(|other| !replica.reaches(PeerId(*other as u32), now)).count() as i64
    }

    /// Sends what is due to `peers`, and arms the next tick.
    fn pump(&mut self, node: usize, peers: &[usize], world: &mut World<Self>) {
        let Some(Node { replica, books, armed }) = &mut self.nodes[node] else { return };
        let now = world.clock(node);
        for peer in peers {
            while let Some(message) = replica.next_message(PeerId(*peer as u32), books, now) {
                world.send(node, *peer, message.encoded_len(), message);
            }
        }
        let tick_at = world.at(node, replica.tick_at()).max(world.now);
        if *armed <= world.now || tick_at < *armed {
            *armed = tick_at;
            world.set_timer(node, tick_at, 0);
        }
    }
}

impl Strategy for Streams {
    type Message = Message;

    fn request(&mut self, node: usize, number: usize, world: &mut World<Self>) {
        let (now, key) = (world.clock(node), key(number));
        let Some(Node { books, .. }) = &self.nodes[node] else { return };
        if !admit(&books.table, &books.rule, key, now) {
            return;
        }
        world.admit(number);
        let absent = self.absent(node, world);
        let Some(Node { replica, books, .. }) = &mut self.nodes[node] else { return };
        if absent > 0 {
            books.table.settle(key, &books.rule, absent, u64::MAX, now);
        }
        if books.pending.add(key, 0, 1, books.rule.capacity()) {
            replica.hurry();
            self.pump(node, &[], world);
        }
    }

    fn receive(&mut self, node: usize, from: usize, message: Message, world: &mut World<Self>) {
        let now = world.clock(node);
        let Some(Node { replica, books, .. }) = &mut self.nodes[node] else { return };
        replica.receive(PeerId(from as u32), &message, books, now);
        self.pump(node, &[from], world);
    }

    fn timer(&mut self, node: usize, _: u64, world: &mut World<Self>) {
        let now = world.clock(node);
        let Some(Node { replica, books, armed }) = &mut self.nodes[node] else { return };
        if replica.tick_at() > now {
            return;
        }
        *armed = world.now;
        replica.tick(books, now);
        let peers = world.neighbours(node);
        self.pump(node, &peers, world);
    }

    fn start(&mut self, node: usize, world: &mut World<Self>) {
        let table = Table::new(&self.rule, 1000, OnFull::Shared);
        let books = Books { rule: self.rule.clone(), table, pending: Pending::default() };
        let replica = Replica::new(self.timing, world.clock(node));
        self.nodes[node] = Some(Node { replica, books, armed: world.now });
        self.pump(node, &[], world);
    }

    fn connected(&mut self, node: usize, to: usize, world: &mut World<Self>) {
        let now = world.clock(node);
        if let Some(Node { replica, .. }) = &mut self.nodes[node] {
            replica.connect(PeerId(to as u32), now);
        }
    }

    fn disconnected(&mut self, node: usize, from: usize, _: &mut World<Self>) {
        if let Some(Node { replica, .. }) = &mut self.nodes[node] {
            replica.disconnect(PeerId(from as u32));
        }
    }
}

/// Decides a request of one unit by one table.
pub fn admit(table: &Table, rule: &Algorithm, key: Key, now: Timestamp) -> bool {
    let mut batch: Batch<'_, ()> = std::iter::once(Charge::new(table, key, rule, 1, true, ())).collect();
    batch.admit(now)
}
