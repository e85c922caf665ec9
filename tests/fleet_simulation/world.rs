//! Virtual time: events in order, a network with faults, load, and the units that were admitted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weir::base::time::Timestamp;
use weir::engine::limit::Key;

use super::random::Random;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;

/// The instant at which simulations begin.
const START: u64 = 1_800_000_000 * SECOND;

/// How the replicas of a fleet share a limit. Nodes are numbered from 0; a store is the last node.
pub trait Strategy: Sized {
    type Message;

    /// A request comes to a replica.
    fn request(&mut self, node: usize, key: usize, world: &mut World<Self>);
    fn receive(&mut self, node: usize, from: usize, message: Self::Message, world: &mut World<Self>);
    fn timer(&mut self, node: usize, number: u64, world: &mut World<Self>);

    /// A node starts without a memory. It has no connection yet.
    fn start(&mut self, node: usize, world: &mut World<Self>);

    /// Two nodes have a connection, or none any more. Called for both.
    fn connected(&mut self, _node: usize, _to: usize, _world: &mut World<Self>) {}
    fn disconnected(&mut self, _node: usize, _from: usize, _world: &mut World<Self>) {}
}

/// What a network does to messages.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Parts in a thousand.
    pub lost: u64,
    pub doubled: u64,
    /// The least and the longest time on the way. Messages overtake each other.
    pub delay_ns: (u64, u64),
}

/// A fault, with its beginning and its end.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    pub from_ns: u64,
    pub to_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum FaultKind {
    /// Nodes below the number lose the others, silently or with their connections.
    Partition { below: usize, cuts: bool },
    /// Messages between the nodes of these pairs vanish, from the first to the second.
    Ways(&'static [(usize, usize)]),
    /// The node ends and starts anew.
    Crash(usize),
    /// The node stands still. Messages wait for it; requests leave.
    Pause(usize),
}

/// Requests: all nodes together get `per_second`, spread over `keys` keys. `weights` are the parts of the nodes.
#[derive(Clone, Debug)]
pub struct Load {
    pub per_second: f64,
    pub keys: usize,
    pub weights: Vec<u64>,
}

/// The unit of work of the simulation. A message is in a box, because the heap moves events.
#[derive(Debug)]
enum Event<M> {
    Request,
    Message { to: usize, from: usize, connection: u32, message: Box<M> },
    Timer { node: usize, life: u32, number: u64 },
    Begins(usize),
    Ends(usize),
}

#[derive(Debug)]
struct Scheduled<M> {
    at: u64,
    order: u64,
    event: Event<M>,
}

impl<M> PartialEq for Scheduled<M> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<M> Eq for Scheduled<M> {}

impl<M> PartialOrd for Scheduled<M> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Scheduled<M> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Up,
    Down,
    PausedUntil(u64),
}

/// What was admitted of one key.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub admitted: u64,
    pub offered: u64,
    /// Instants of the last requests, as far as they are within the span of [`World::bound_span_ns`].
    recent: VecDeque<u64>,
    /// The most requests in such a span.
    pub most_recent: u64,
    /// For each whole second since the start, the units that were admitted up to it.
    pub seconds: Vec<u64>,
    /// The most units by which the admitted ones exceeded `B + r t`.
    pub over: f64,
}

/// The state of a simulation, but for the strategy.
pub struct World<S: Strategy> {
    pub nodes: usize,
    pub now: u64,
    pub random: Random,
    pub network: Network,
    pub load: Load,
    pub faults: Vec<Fault>,
    /// The rate in units a second and the burst, to which the admitted units are compared.
    pub rate: f64,
    pub burst: f64,
    pub bound_span_ns: u64,
    pub accounts: Vec<Account>,
    pub messages: u64,
    pub bytes: u64,
    /// By which each clock is ahead.
    skews: Vec<u64>,
    health: Vec<Health>,
    lives: Vec<u32>,
    /// The number of the connection between two nodes, by `one * all + other`; 0 if there is none.
    connections: Vec<u32>,
    connected: u32,
    events: BinaryHeap<Reverse<Scheduled<S::Message>>>,
    order: u64,
}

impl<S: Strategy> World<S> {
    /// `nodes` replicas, whose clocks differ by at most `skew_ns`, and `stores` further nodes.
    pub fn new(seed: u64, (nodes, stores): (usize, usize), network: Network, load: Load, skew_ns: u64) -> Self {
        let (mut random, all) = (Random::new(seed), nodes + stores);
        Self {
            nodes,
            now: START,
            network,
            faults: Vec::new(),
            rate: 0.0,
            burst: 0.0,
            bound_span_ns: 0,
            accounts: vec![Account::default(); load.keys],
            load,
            messages: 0,
            bytes: 0,
            skews: (0..all).map(|_| random.below(skew_ns + 1)).collect(),
            health: vec![Health::Up; all],
            lives: vec![0; all],
            connections: vec![0; all * all],
            connected: 0,
            events: BinaryHeap::new(),
            order: 0,
            random,
        }
    }

    /// Nanoseconds since the start.
    pub fn elapsed(&self) -> u64 {
        self.now - START
    }

    /// The clock of a node.
    pub fn clock(&self, node: usize) -> Timestamp {
        Timestamp::from_ns(self.now + self.skews[node])
    }

    /// The instant of the world at which the clock of `node` shows `at`.
    pub fn at(&self, node: usize, at: Timestamp) -> u64 {
        at.as_ns() - self.skews[node]
    }

    pub fn is_up(&self, node: usize) -> bool {
        self.health[node] != Health::Down
    }

    /// The nodes that `node` has a connection to.
    pub fn neighbours(&self, node: usize) -> Vec<usize> {
        let all = self.health.len();
        (0..all).filter(|other| self.connections[node * all + other] != 0).collect()
    }

    fn schedule(&mut self, at: u64, event: Event<S::Message>) {
        self.order += 1;
        self.events.push(Reverse(Scheduled { at, order: self.order, event }));
    }

    /// Calls [`Strategy::timer`] with `number` at an instant of the world, unless the node crashes before.
    pub fn set_timer(&mut self, node: usize, at: u64, number: u64) {
        let life = self.lives[node];
        self.schedule(at.max(self.now), Event::Timer { node, life, number });
    }

    /// Whether messages pass between two nodes.
    fn reaches(&self, one: usize, other: usize) -> bool {
        let now = self.elapsed();
        self.faults.iter().filter(|fault| (fault.from_ns..fault.to_ns).contains(&now)).all(|fault| match fault.kind {
            FaultKind::Partition { below, .. } => (one < below) == (other < below),
            FaultKind::Ways(ways) => !ways.contains(&(one, other)),
            FaultKind::Crash(_) | FaultKind::Pause(_) => true,
        })
    }

    /// Sends a message of so many bytes over the connection of two nodes, if they have one.
    pub fn send(&mut self, from: usize, to: usize, bytes: usize, message: S::Message)
    where
        S::Message: Clone,
    {
        let connection = self.connections[from * self.health.len() + to];
        if connection == 0 {
            return;
        }
        self.messages += 1;
        self.bytes += bytes as u64;
        if !self.reaches(from, to) || self.random.happens(self.network.lost) {
            return;
        }
        let message = Box::new(message);
        if self.random.happens(self.network.doubled) {
            let at = self.now + self.random.between(self.network.delay_ns);
            self.schedule(at, Event::Message { to, from, connection, message: message.clone() });
        }
        let at = self.now + self.random.between(self.network.delay_ns);
        self.schedule(at, Event::Message { to, from, connection, message });
    }

    /// Notes that a request passes.
    pub fn admit(&mut self, key: usize) {
        let allowed = self.burst + self.rate * self.elapsed() as f64 / SECOND as f64;
        let account = &mut self.accounts[key];
        account.admitted += 1;
        account.over = account.over.max(account.admitted as f64 - allowed);
    }

    /// The most units that a fleet may admit of a key beyond `B + r t`, if a charge arrives within the span of the bound.
    pub fn one_off_bound(&self, key: usize) -> f64 {
        let delay = self.bound_span_ns as f64 / SECOND as f64;
        let others = (self.nodes - 1) as f64 * (self.burst + self.rate * delay + 1.0);
        others.min(self.accounts[key].most_recent as f64)
    }

    fn offer(&mut self, key: usize) {
        let (now, span) = (self.now, self.bound_span_ns);
        let second = (self.elapsed() / SECOND) as usize;
        let account = &mut self.accounts[key];
        account.offered += 1;
        while account.seconds.len() <= second {
            account.seconds.push(account.admitted);
        }
        account.recent.push_back(now);
        while account.recent.front().is_some_and(|at| now - at > span) {
            account.recent.pop_front();
        }
        account.most_recent = account.most_recent.max(account.recent.len() as u64);
    }

    fn connect(&mut self, strategy: &mut S, one: usize, other: usize) {
        self.disconnect(strategy, one, other);
        if one == other || !self.is_up(one) || !self.is_up(other) || !self.reaches(one, other) {
            return;
        }
        self.connected += 1;
        let all = self.health.len();
        self.connections[one * all + other] = self.connected;
        self.connections[other * all + one] = self.connected;
        strategy.connected(one, other, self);
        strategy.connected(other, one, self);
    }

    fn disconnect(&mut self, strategy: &mut S, one: usize, other: usize) {
        let all = self.health.len();
        if self.connections[one * all + other] != 0 {
            self.connections[one * all + other] = 0;
            self.connections[other * all + one] = 0;
            strategy.disconnected(one, other, self);
            strategy.disconnected(other, one, self);
        }
    }

    /// Runs for `span_ns`. The faults begin and end meanwhile.
    pub fn run(&mut self, strategy: &mut S, span_ns: u64)
    where
        S::Message: Clone,
    {
        let all = self.health.len();
        (0..all).for_each(|node| strategy.start(node, self));
        for one in 0..all {
            (0..one).for_each(|other| self.connect(strategy, one, other));
        }
        for (index, fault) in self.faults.clone().into_iter().enumerate() {
            self.schedule(START + fault.from_ns, Event::Begins(index));
            self.schedule(START + fault.to_ns, Event::Ends(index));
        }
        self.schedule(self.now, Event::Request);
        while let Some(Reverse(Scheduled { at, event, .. })) = self.events.pop() {
            if at > START + span_ns {
                break;
            }
            self.now = at;
            self.step(strategy, event);
        }
    }

    fn step(&mut self, strategy: &mut S, event: Event<S::Message>) {
        let node = match &event {
            Event::Message { to, .. } => Some(*to),
            Event::Timer { node, .. } => Some(*node),
            _ => None,
        };
        if let Some(Health::PausedUntil(until)) = node.map(|node| self.health[node]) {
            return self.schedule(until, event);
        }
        match event {
            Event::Request => self.request(strategy),
            Event::Message { to, from, connection, message } => {
                if self.connections[to * self.health.len() + from] == connection {
                    strategy.receive(to, from, *message, self);
                }
            }
            Event::Timer { node, life, number } if life == self.lives[node] && self.is_up(node) => {
                strategy.timer(node, number, self);
            }
            Event::Timer { .. } => {}
            Event::Begins(index) => self.begin(strategy, self.faults[index]),
            Event::Ends(index) => self.end(strategy, self.faults[index]),
        }
    }

    fn request(&mut self, strategy: &mut S) {
        let next = self.random.exponential(SECOND as f64 / self.load.per_second);
        self.schedule(self.now + next, Event::Request);
        let key = self.random.below(self.load.keys as u64) as usize;
        let mut part = self.random.below(self.load.weights.iter().sum());
        let node = self.load.weights.iter().position(|weight| {
            let is_here = part < *weight;
            part = part.saturating_sub(*weight);
            is_here
        });
        self.offer(key);
        if let Some(node) = node.filter(|node| self.health[*node] == Health::Up) {
            strategy.request(node, key, self);
        }
    }

    fn begin(&mut self, strategy: &mut S, fault: Fault) {
        let all = self.health.len();
        match fault.kind {
            FaultKind::Partition { below, cuts: true } => {
                for one in 0..below.min(all) {
                    (below..all).for_each(|other| self.disconnect(strategy, one, other));
                }
            }
            FaultKind::Partition { cuts: false, .. } | FaultKind::Ways(_) => {}
            FaultKind::Crash(node) => {
                (0..all).for_each(|other| self.disconnect(strategy, node, other));
                self.health[node] = Health::Down;
                self.lives[node] += 1;
            }
            FaultKind::Pause(node) => self.health[node] = Health::PausedUntil(START + fault.to_ns),
        }
    }

    fn end(&mut self, strategy: &mut S, fault: Fault) {
        let all = self.health.len();
        match fault.kind {
            FaultKind::Partition { below, cuts: true } => {
                for one in 0..below.min(all) {
                    (below..all).for_each(|other| self.connect(strategy, one, other));
                }
            }
            FaultKind::Partition { cuts: false, .. } | FaultKind::Ways(_) => {}
            FaultKind::Crash(node) => {
                self.health[node] = Health::Up;
                strategy.start(node, self);
                (0..all).for_each(|other| self.connect(strategy, node, other));
            }
            FaultKind::Pause(node) => self.health[node] = Health::Up,
        }
    }
}

/// The key with a number.
pub fn key(number: usize) -> Key {
    let mut random = Random::new(number as u64 + 1);
    Key::of_hash(random.next(), random.next())
}
