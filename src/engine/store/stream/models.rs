//! A model of three replicas that tell each other charges of one key: all orders of charges, batches and messages, which
//! may be lost, late or doubled, links of one direction, and restarts, over `Replica` and the table.
//!
//! Time passes by an interval with each batch, so no replica becomes isolated, and no unit comes back.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;

use super::message::{BanChange, Cursor, LimitCharges, LimitStates, Message, States};
use super::{Ledger, PeerId, Replica, Taken, Timing, merge_states, pack_states};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key, OnFull, Rate, fixed_window};
use crate::engine::store::{Batch, Charge, Table};
use crate::testing::{Budget, Story, finds, hashed, holds, printed, sorted};

const LIMIT: u64 = 2;
const KEY: Key = Key { first: 4, second: 1 };
const MS: u64 = 1_000_000;
const TIMING: Timing = Timing { interval_ns: 20 * MS, isolate_after_ns: 1000 * MS };
const STARTED: Timestamp = Timestamp::from_ns(1_800_000_000_000 * MS);
/// So much later that the age of a process that restarts is certain.
const BEGIN: Timestamp = STARTED.saturating_add_ns(10_000 * MS);
/// Rounds of 200 ms in which a network without faults brings everything to its end.
const ROUNDS: usize = 4;

/// A safeguard that the model leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// A doubled batch has another number.
    Renumbered,
    /// A link of one direction never works again.
    Deaf,
    /// A replica restarts under the name of its last process.
    SameEpoch,
}

#[derive(Clone, Copy, Debug)]
struct Fleet {
    budget: Budget,
    /// Messages from one replica to another vanish.
    cut: Option<(usize, usize)>,
    fault: Fault,
}

#[derive(Clone, Debug)]
enum Event {
    Request(usize),
    /// A replica makes a batch of its charges.
    Tick(usize),
    /// The message at an index arrives.
    Arrive(usize),
    /// It arrives, and will again.
    ArriveTwice(usize),
    Lose(usize),
    Restart(usize),
}

struct Books {
    rule: Algorithm,
    table: Table,
    untold: u64,
    /// Whether the replica has started with the others, or has got their states since.
    is_whole: bool,
}

struct Node {
    replica: Replica,
    books: Books,
}

struct World {
    now: Timestamp,
    budget: Budget,
    cut: Option<(usize, usize)>,
    nodes: Vec<Node>,
    /// Replicas from this one on have got no request.
    fresh: usize,
    /// Sender, receiver and message.
    messages: Vec<(usize, usize, Message)>,
    admitted: u64,
    restarts: u64,
    /// The links of a replica that restarted on which nothing has come since.
    silent: BTreeSet<(usize, usize)>,
    /// Units that any replica had not told, or that were on the way, when one restarted, or that were admitted before it had
    /// the states of another one and all had heard of each other.
    untold: u64,
}

impl Ledger for Books {
    fn take(&mut self, _: Timestamp) -> Taken {
        let mut charges = LimitCharges::of("a", None);
        charges.push(KEY, i64::try_from(self.untold).unwrap());
        let limits = if self.untold > 0 { vec![charges] } else { Vec::new() };
        self.untold = 0;
        Taken { limits, bans: Vec::new(), is_complete: true }
    }

    fn charge(&mut self, charges: &LimitCharges, at: Timestamp, now: Timestamp) {
        charges.each().for_each(|(key, units)| self.table.charge_as_of(key, &self.rule, units, at, now));
    }

    fn ban(&mut self, _: &[BanChange], _: Timestamp) {}

    fn states(&mut self, at: &Cursor, now: Timestamp) -> States {
        let (states, next) = pack_states("a", &self.table, at.from, |_| Some(&self.rule), now);
        let next = next.map(|from| Cursor { limit: "a".into(), from, bans: 0 });
        States { at: Some(at.clone()), limits: vec![states], bans: Vec::new(), next }
    }

    fn merge(&mut self, states: &LimitStates, now: Timestamp) {
        self.is_whole = true;
        merge_states(states, &self.table, |_| Some(&self.rule), now);
    }
}

fn peer(index: usize) -> PeerId {
    PeerId(u32::try_from(index).unwrap())
}

impl Node {
    fn new(rule: &Algorithm, started: Timestamp, is_whole: bool) -> Self {
        let books = Books { rule: rule.clone(), table: Table::new(rule, 100, OnFull::Reject), untold: 0, is_whole };
        Self { replica: Replica::new(TIMING, started), books }
    }

    fn owed(&self, now: Timestamp) -> u64 {
        self.books.table.owed(KEY, &self.books.rule, now)
    }
}

impl World {
    fn peers(&self, index: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|peer| *peer != index).collect()
    }

    /// Sends what is due to some peers.
    fn send(&mut self, index: usize, to: &[usize]) {
        let Node { replica, books } = &mut self.nodes[index];
        for to in to {
            while let Some(message) = replica.next_message(peer(*to), books, self.now) {
                if self.cut != Some((index, *to)) {
                    self.messages.push((index, *to, message));
                }
            }
        }
    }

    fn request(&mut self, index: usize) {
        let is_whole = self.silent.is_empty() && self.nodes.iter().all(|node| node.books.is_whole);
        let Books { rule, table, untold, .. } = &mut self.nodes[index].books;
        let mut batch: Batch<'_, ()> = std::iter::once(Charge::new(table, KEY, rule, 1, true, ())).collect();
        if batch.admit(self.now) {
            self.admitted += 1;
            *untold += 1;
            self.untold += u64::from(!is_whole);
        }
    }

    fn tick(&mut self, index: usize) {
        let Node { replica, books } = &mut self.nodes[index];
        replica.tick(books, self.now);
        self.send(index, &self.peers(index));
    }

    fn arrive(&mut self, (from, to, message): (usize, usize, Message)) {
        self.silent.remove(&(from, to));
        let Node { replica, books } = &mut self.nodes[to];
        replica.receive(peer(from), &message, books, self.now);
        self.send(to, &[from]);
    }

    /// A replica gets a connection to another one, which has none to it any more.
    fn connect(&mut self, index: usize, other: usize) {
        self.nodes[other].replica.disconnect(peer(index));
        self.nodes[other].replica.connect(peer(index), self.now);
        self.nodes[index].replica.connect(peer(other), self.now);
        self.send(other, &[index]);
        self.send(index, &[other]);
    }

    fn deliver(&mut self) {
        while !self.messages.is_empty() {
            let message = self.messages.remove(0);
            self.arrive(message);
        }
    }

    fn restart(&mut self, index: usize, fault: Fault) {
        let started = if fault == Fault::SameEpoch { STARTED } else { self.now };
        let fresh = Node::new(&self.nodes[index].books.rule, started, false);
        let dead = std::mem::replace(&mut self.nodes[index], fresh);
        let sent = self.messages.iter().filter_map(|(from, _, message)| Some((*from, message.charges()?)));
        let batches: BTreeMap<_, _> = sent.map(|(from, batch)| ((from, batch.sequence), batch.limits)).collect();
        let units = batches.values().flatten().flat_map(LimitCharges::each).map(|(_, units)| units.unsigned_abs());
        let others = self.nodes.iter().map(|node| node.books.untold);
        self.untold += dead.books.untold + others.sum::<u64>() + units.sum::<u64>();
        self.restarts += 1;
        self.silent = self.peers(index).into_iter().flat_map(|other| [(index, other), (other, index)]).collect();
        self.messages.retain(|(from, to, _)| *from != index && *to != index);
        self.peers(index).into_iter().for_each(|other| self.connect(index, other));
    }

    /// Everything arrives, and is sent again until it does.
    fn end(&mut self, fault: Fault) {
        self.cut = self.cut.filter(|_| fault == Fault::Deaf);
        for _ in 0..ROUNDS {
            self.deliver();
            self.now = self.now.saturating_add_ns(TIMING.isolate_after_ns / 5);
            (0..self.nodes.len()).for_each(|index| self.tick(index));
        }
        self.deliver();
    }
}

impl Story for Fleet {
    type World = World;
    type Event = Event;

    fn begin(&self) -> World {
        let rule = fixed_window::Rule::from_first(Rate { count: LIMIT, period_ns: 3_600_000 * MS }).unwrap();
        let nodes = (0..3).map(|_| Node::new(&Algorithm::FixedWindow(rule.clone()), STARTED, true)).collect();
        let (budget, messages) = (self.budget, Vec::new());
        let (admitted, restarts, untold, silent) = (0, 0, 0, BTreeSet::new());
        let mut world =
            World { now: BEGIN, budget, cut: None, nodes, fresh: 0, messages, admitted, restarts, silent, untold };
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            world.connect(one, other);
        }
        world.deliver();
        world.now = world.now.saturating_add_ns(TIMING.interval_ns);
        world.cut = self.cut;
        world
    }

    fn possible(&self, world: &World) -> Vec<Event> {
        let Budget { requests, losses, doubles, crashes, .. } = world.budget;
        let mut events = Vec::new();
        for (index, node) in world.nodes.iter().enumerate() {
            // Without a link that is cut they are alike.
            let is_next = index <= world.fresh || self.cut.is_some();
            events.extend((requests > 0 && is_next).then_some(Event::Request(index)));
            events.extend((node.books.untold > 0).then_some(Event::Tick(index)));
            events.extend((crashes > 0).then_some(Event::Restart(index)));
        }
        for at in 0..world.messages.len() {
            // States and charges of one connection arrive in order; batches alone need no order.
            let (from, to, _) = world.messages[at];
            let is_behind = world.messages[..at].iter().any(|(other, receiver, _)| (*other, *receiver) == (from, to));
            if is_behind && self.budget.crashes > 0 {
                continue;
            }
            events.push(Event::Arrive(at));
            events.extend((losses > 0).then_some(Event::Lose(at)));
            events.extend((doubles > 0).then_some(Event::ArriveTwice(at)));
        }
        events
    }

    fn happen(&self, world: &mut World, event: &Event) {
        match *event {
            Event::Request(index) => {
                world.budget.requests -= 1;
                world.fresh = world.fresh.max(index + 1);
                world.request(index);
            }
            Event::Tick(index) => {
                world.tick(index);
                world.now = world.now.saturating_add_ns(TIMING.interval_ns);
            }
            Event::Arrive(at) => {
                let message = world.messages.remove(at);
                world.arrive(message);
            }
            Event::ArriveTwice(at) => {
                world.budget.doubles -= 1;
                let message = world.messages[at].clone();
                if self.fault == Fault::Renumbered
                    && let Some(mut charges) = message.2.charges()
                {
                    charges.sequence += 1;
                    world.messages[at].2.charges = charges.encode_to_vec().into();
                }
                world.arrive(message);
            }
            Event::Lose(at) => {
                world.budget.losses -= 1;
                world.messages.remove(at);
            }
            Event::Restart(index) => {
                world.budget.crashes -= 1;
                world.restart(index, self.fault);
            }
        }
    }

    fn digest(&self, world: &World) -> u64 {
        let World { now, budget, nodes, messages, admitted, restarts, silent, untold, .. } = world;
        let messages = sorted(messages, printed);
        let nodes =
            nodes.iter().map(|node| (printed(&node.replica), node.books.untold, node.books.is_whole, node.owed(*now)));
        let nodes: Vec<_> = nodes.collect();
        hashed(&(now, budget, nodes, messages, admitted, restarts, silent, untold))
    }

    fn broken(&self, mut world: World) -> Option<String> {
        let most = (world.nodes.len() as u64 + world.restarts) * LIMIT;
        if world.admitted > most {
            return Some(format!("{} units admitted, at most {most} are allowed", world.admitted));
        }
        world.end(self.fault);
        let owed: Vec<_> = world.nodes.iter().map(|node| node.owed(world.now)).collect();
        let World { admitted, untold, restarts, .. } = world;
        if restarts == 0 && owed.iter().any(|one| *one != owed[0]) {
            return Some(format!("tables differ: {owed:?} are spent, {admitted} were admitted"));
        }
        let once = admitted.saturating_sub(untold)..=admitted + untold;
        let wrong = owed.iter().any(|one| !once.contains(one));
        wrong.then(|| format!("counted not once: {owed:?} are spent, {admitted} were admitted, {untold} were untold"))
    }
}

const BUDGET: Budget = Budget { requests: 2, ..Budget::NONE };

#[test]
fn each_charge_counts_once_through_lost_and_doubled_messages() {
    let budget = Budget { losses: 2, doubles: 1, ..BUDGET };
    holds("streams, losses and doubles", &Fleet { budget, cut: None, fault: Fault::None }, 1000);
}

#[test]
fn all_tables_agree_behind_a_link_of_one_direction() {
    let budget = Budget { requests: 3, ..BUDGET };
    holds("streams, one way", &Fleet { budget, cut: Some((0, 1)), fault: Fault::None }, 1000);
}

#[test]
fn a_restart_miscounts_only_what_was_not_told() {
    let budget = Budget { requests: 1, crashes: 1, ..BUDGET };
    holds("streams, a restart", &Fleet { budget, cut: None, fault: Fault::None }, 300);
}

#[test]
fn a_missing_safeguard_is_found() {
    for (fault, budget, cut, expected) in [
        (Fault::Renumbered, Budget { doubles: 1, ..BUDGET }, None, "tables differ"),
        (Fault::Deaf, BUDGET, Some((0, 1)), "tables differ"),
        (Fault::SameEpoch, Budget { crashes: 1, ..BUDGET }, None, "counted not once"),
    ] {
        finds(&format!("{fault:?}"), &Fleet { budget, cut, fault }, expected);
    }
}
