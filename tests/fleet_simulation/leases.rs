//! `lease`: replicas that borrow units from a store, which is the last node. The store decides by the table of the library,
//! and never fails; connections to it do. A replica without an answer decides by its share, and tells the store later.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use weir::engine::limit::{Algorithm, LeaseUnits, OnFull};
use weir::engine::store::{Call, Grant, LEASE_NS, Leases, Supply, Table};

use super::streams::admit;
use super::world::{MS, Strategy, World, key};

/// The time of a call, and of a request that waits for one.
const TIMEOUT_NS: u64 = 20 * MS;

/// From one look for expired grants to the next.
const SWEEP_NS: u64 = 100 * MS;
const SWEEP: u64 = u64::MAX;

/// Bytes of a call of the script over one connection, about, and of its answer.
const CALL_BYTES: usize = 300;
const ANSWER_BYTES: usize = 120;

#[derive(Clone, Debug)]
pub enum LeaseMessage {
    Borrow {
        call: u64,
        key: usize,
        cost: u64,
        want: u64,
    },
    Answer {
        call: u64,
        key: usize,
        units: u64,
        is_exhausted: bool,
    },
    /// Units that go back, or were spent without the store if negative. Numbered, so that it counts once.
    Back {
        number: u64,
        key: usize,
        units: i64,
    },
    BackTaken(u64),
}

pub struct LeaseFleet {
    rule: Algorithm,
    share: Algorithm,
    store: Table,
    corrected: HashSet<(usize, u64)>,
    nodes: Vec<Node>,
    numbers: u64,
}

struct Node {
    leases: Arc<Leases<()>>,
    alone: Table,
    calls: HashMap<u64, (Call<()>, usize, u64)>,
    waiting: Vec<(u64, usize)>,
    backs: HashMap<u64, (usize, i64)>,
}

impl Node {
    fn new(share: &Algorithm) -> Self {
        Self {
            leases: Arc::default(),
            alone: Table::new(share, 1000, OnFull::Shared),
            calls: HashMap::new(),
            waiting: Vec::new(),
            backs: HashMap::new(),
        }
    }
}

impl LeaseFleet {
    pub fn new(rule: &Algorithm, replicas: usize) -> Self {
        let share = rule.share(replicas as u64).unwrap();
        let nodes = (0..replicas).map(|_| Node::new(&share)).collect();
        let store = Table::new(rule, 1000, OnFull::Shared);
        Self { rule: rule.clone(), share, store, corrected: HashSet::new(), nodes, numbers: 0 }
    }

    fn give_back(&mut self, node: usize, (key, units): (usize, i64), world: &mut World<Self>) {
        self.numbers += 1;
        self.nodes[node].backs.insert(self.numbers, (key, units));
        let back = LeaseMessage::Back { number: self.numbers, key, units };
        world.send(node, world.nodes, CALL_BYTES, back);
    }

    /// Spends a unit, or asks for more. `since` is when the request came.
    fn spend(&mut self, node: usize, number: usize, since: u64, world: &mut World<Self>) {
        let (leases, now) = (&self.nodes[node].leases, world.clock(node));
        let (call, cost) = match leases.supply(key(number), 1, LeaseUnits::Auto, now) {
            Supply::Spent(_) => {
                world.admit(number);
                (leases.refill(key(number), LeaseUnits::Auto, now), 0)
            }
            Supply::Borrow(call) => (Some(call), 1),
            Supply::Wait(_) => return self.nodes[node].waiting.push((since, number)),
            Supply::Denied(_) => return,
        };
        let Some(call) = call else { return };
        self.numbers += 1;
        let (id, want) = (self.numbers, call.want);
        self.nodes[node].calls.insert(id, (call, number, cost));
        let borrow = LeaseMessage::Borrow { call: id, key: number, cost, want };
        world.send(node, world.nodes, CALL_BYTES, borrow);
        world.set_timer(node, world.now + TIMEOUT_NS, id);
    }

    /// Decides a request without the store.
    fn fall_back(&mut self, node: usize, number: usize, world: &mut World<Self>) {
        if admit(&self.nodes[node].alone, &self.share, key(number), world.clock(node)) {
            world.admit(number);
            self.give_back(node, (number, -1), world);
        }
    }

    fn wake(&mut self, node: usize, world: &mut World<Self>) {
        for (since, number) in std::mem::take(&mut self.nodes[node].waiting) {
            if world.now - since >= TIMEOUT_NS {
                self.fall_back(node, number, world);
            } else {
                self.spend(node, number, since, world);
            }
        }
    }
}

impl Strategy for LeaseFleet {
    type Message = LeaseMessage;

    fn request(&mut self, node: usize, number: usize, world: &mut World<Self>) {
        self.spend(node, number, world.now, world);
    }

    fn receive(&mut self, node: usize, from: usize, message: LeaseMessage, world: &mut World<Self>) {
        let now = world.clock(node);
        match message {
            LeaseMessage::Borrow { call, key: number, cost, want } => {
                let remaining = self.store.peek(key(number), &self.rule, 0, now).remaining;
                let units = if remaining < cost { 0 } else { want.min(remaining).max(cost) };
                self.store.settle(key(number), &self.rule, units as i64, 0, now);
                let is_exhausted = remaining == units;
                world.send(node, from, ANSWER_BYTES, LeaseMessage::Answer { call, key: number, units, is_exhausted });
            }
            LeaseMessage::Back { number, key: of, units } => {
                if self.corrected.insert((from, number)) {
                    self.store.settle(key(of), &self.rule, -units, self.rule.capacity(), now);
                }
                world.send(node, from, ANSWER_BYTES, LeaseMessage::BackTaken(number));
            }
            LeaseMessage::BackTaken(number) => _ = self.nodes[node].backs.remove(&number),
            LeaseMessage::Answer { call, key: number, units, is_exhausted } => {
                let Some((call, _, cost)) = self.nodes[node].calls.remove(&call) else {
                    return self.give_back(node, (number, units as i64), world); // of a call that was given up
                };
                if is_exhausted {
                    call.is_scarce(0, u64::MAX, now);
                }
                if units > 0 {
                    let expires = now.saturating_add_ns(LEASE_NS);
                    call.granted(Grant { units, expires, receipt: Arc::default() }, cost, now);
                    (0..cost).for_each(|_| world.admit(number));
                }
                drop(call);
                self.wake(node, world);
            }
        }
    }

    fn timer(&mut self, node: usize, timer: u64, world: &mut World<Self>) {
        if timer == SWEEP {
            for (owner, grant) in self.nodes[node].leases.sweep(false, world.clock(node)) {
                let number = (0..world.accounts.len()).find(|number| key(*number) == owner);
                self.give_back(node, (number.unwrap(), grant.units as i64), world);
            }
            for (number, (key, units)) in self.nodes[node].backs.clone() {
                world.send(node, world.nodes, CALL_BYTES, LeaseMessage::Back { number, key, units });
            }
            return world.set_timer(node, world.now + SWEEP_NS, SWEEP);
        }
        if let Some((call, number, cost)) = self.nodes[node].calls.remove(&timer) {
            drop(call);
            if cost > 0 {
                self.fall_back(node, number, world);
            }
            self.wake(node, world);
        }
    }

    fn start(&mut self, node: usize, world: &mut World<Self>) {
        if node < world.nodes {
            self.nodes[node] = Node::new(&self.share);
            world.set_timer(node, world.now + SWEEP_NS, SWEEP);
        }
    }
}
