//! A model of replicas that ask a Redis which loses its keys: all orders of calls, answers, joins, losses and crashes, over
//! the production rules for a generation ([`Seen`], [`Joined::next`]).
//!
//! The server here stands for the scripts `decide`, `push` and `correct` and the commands of `generation::begin`, with a
//! number of spent units for each key. No unit comes back with time. Replicas read no clock: a generation is an instant of
//! the server, whose clock may be set back when it loses its keys.

use std::collections::BTreeSet;

use super::generation::{Seen, WARM_AFTER_US};
use crate::fleet::stores::driver::{Generation, Joined, NextStep};
use crate::testing::{Budget, Fleet, Story, finds, hashed, holds, sorted};

const LIMIT: u64 = 2;
const KEYS: usize = 3;

type Units = [u64; KEYS];

/// A safeguard that the model leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// A node decides before all replicas have brought what they know.
    Early,
    /// A call does not name its generation.
    Unnamed,
    /// What was brought to an older generation counts for a new one.
    Outdated,
    /// Charges of an outage are not sent.
    Unsent,
}

#[derive(Clone, Copy, Debug, PartialEq, Hash)]
struct Call {
    replica: usize,
    session: u64,
    key: usize,
    generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Hash)]
enum Message {
    Call(Call),
    /// Whether the unit is admitted, and the spent units; `None` from another generation.
    Answer(Call, Option<(bool, u64)>),
}

#[derive(Clone, Debug, Hash)]
struct Replica {
    session: u64,
    /// The generation under which it lets the node decide.
    generation: Option<u64>,
    last: u64,
    /// The generation to which it is about to bring what it knows, and the last one to which it did.
    bringing: Option<u64>,
    brought: Option<u64>,
    /// Units that the node has told it of, that it assumes to be spent since, and that the node has not heard of.
    heard: Units,
    assumed: Units,
    unreported: Units,
}

#[derive(Clone, Debug, Default)]
struct Node {
    now_us: u64,
    begun_us: Option<u64>,
    /// The sessions that brought what they know.
    met: BTreeSet<u64>,
    spent: Units,
}

#[derive(Clone)]
struct World {
    budget: Budget,
    messages: Vec<Message>,
    replicas: Vec<Replica>,
    node: Node,
    sessions: u64,
    /// Keys and replicas from these on have got no request, so they are alike.
    fresh: (usize, usize),
    /// Units that the node admitted.
    admitted: Units,
    /// Units that no living replica knew of when the node lost its keys, or that nobody brought in time.
    gone: Units,
}

#[derive(Clone, Debug)]
enum Event {
    Request(usize, usize),
    Arrive(usize),
    /// A replica looks at the generation of the node.
    Join(usize),
    /// It brings what it knows.
    Bring(usize),
    /// The node loses its keys; its clock may be set back by an hour.
    LoseKeys(bool),
    /// Time passes after which a node decides without replicas that are missing.
    Step,
    Crash(usize),
}

impl Replica {
    fn new(session: u64) -> Self {
        Self {
            session,
            generation: None,
            last: 0,
            bringing: None,
            brought: None,
            heard: [0; KEYS],
            assumed: [0; KEYS],
            unreported: [0; KEYS],
        }
    }

    /// Decides without the node: as if all `replicas` got the same requests.
    fn decide_alone(&mut self, key: usize, replicas: u64) {
        if self.heard[key] + self.assumed[key] + replicas <= LIMIT {
            self.assumed[key] += replicas;
            self.unreported[key] += 1;
        }
    }
}

impl World {
    fn request(&mut self, index: usize, key: usize) {
        let replicas = self.replicas.len() as u64;
        let replica = &mut self.replicas[index];
        match replica.generation {
            None => replica.decide_alone(key, replicas),
            Some(generation) => {
                let call = Call { replica: index, session: replica.session, key, generation };
                self.messages.push(Message::Call(call));
            }
        }
    }

    fn arrive(&mut self, message: Message, fault: Fault) {
        match message {
            Message::Call(call) => {
                let is_named = self.node.begun_us == Some(call.generation) || fault == Fault::Unnamed;
                let spent = &mut self.node.spent[call.key];
                let is_admitted = is_named && *spent < LIMIT;
                *spent += u64::from(is_admitted);
                let answer = is_named.then_some((is_admitted, *spent));
                self.messages.push(Message::Answer(call, answer));
            }
            Message::Answer(Call { replica: index, session, key, generation }, answer) => {
                let replicas = self.replicas.len() as u64;
                let replica = &mut self.replicas[index];
                match answer.filter(|_| replica.session == session) {
                    Some((is_admitted, spent)) => {
                        replica.heard[key] = replica.heard[key].max(spent);
                        replica.assumed[key] = 0;
                        self.admitted[key] += u64::from(is_admitted);
                    }
                    None if replica.session == session => {
                        replica.generation = replica.generation.filter(|known| *known != generation);
                        replica.decide_alone(key, replicas);
                    }
                    None => {}
                }
            }
        }
    }

    /// One turn of `monitor::warm`, with the commands of `generation::begin`.
    fn join(&mut self, index: usize, fault: Fault) {
        let replicas = self.replicas.len() as u64;
        let (node, replica) = (&mut self.node, &mut self.replicas[index]);
        node.now_us += 1;
        let begun_us = *node.begun_us.get_or_insert(node.now_us);
        if replica.brought == Some(begun_us) || fault == Fault::Outdated && replica.brought.is_some() {
            node.met.insert(replica.session);
            replica.brought = Some(begun_us);
        }
        let seen = Seen { begun_us, now_us: node.now_us, met: node.met.len() as u64 };
        let is_ready = seen.is_warm(replicas) || fault == Fault::Early;
        let joined = Joined { generation: Generation::of(begun_us), is_known: seen.is_known(replica.last), is_ready };
        match joined.next(replica.brought) {
            NextStep::Wait => {}
            NextStep::Bring => replica.bringing = Some(begun_us),
            NextStep::Decide => {
                (replica.generation, replica.last) = (Some(begun_us), begun_us);
                self.report(index, fault);
                self.note_missing(fault);
            }
        }
    }

    /// Sends the charges of an outage.
    fn report(&mut self, index: usize, fault: Fault) {
        if fault != Fault::Unsent {
            let unreported = std::mem::take(&mut self.replicas[index].unreported);
            (0..KEYS).for_each(|key| self.node.spent[key] += unreported[key]);
        }
    }

    /// Notes what replicas know that have not brought it in time. A replica that crashed after it brought its own counts in
    /// place of one that has not.
    fn note_missing(&mut self, fault: Fault) {
        let dead = self.node.met.iter().any(|met| self.replicas.iter().all(|replica| replica.session != *met));
        if fault != Fault::None || !dead && self.node.met.len() >= self.replicas.len() {
            return;
        }
        for key in 0..KEYS {
            let missing = self.replicas.iter().filter(|replica| !self.node.met.contains(&replica.session));
            let most = missing.map(|replica| replica.heard[key]).max().unwrap_or(0);
            self.gone[key] += most.saturating_sub(self.node.spent[key]);
        }
    }

    fn bring(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        replica.brought = replica.bringing.take();
        for key in 0..KEYS {
            self.node.spent[key] = self.node.spent[key].max(replica.heard[key]);
        }
    }

    /// The most units of a key that a living replica has heard of.
    fn known(&self, key: usize) -> u64 {
        self.replicas.iter().map(|replica| replica.heard[key]).max().unwrap_or(0)
    }

    fn lose_keys(&mut self, is_set_back: bool) {
        for key in 0..KEYS {
            self.gone[key] += self.node.spent[key].saturating_sub(self.known(key));
        }
        let now_us = self.node.now_us + 1;
        let now_us = if is_set_back { now_us.saturating_sub(3_600_000_000) } else { now_us };
        self.node = Node { now_us, ..Node::default() };
    }

    fn crash(&mut self, index: usize) {
        self.sessions += 1;
        let dead = std::mem::replace(&mut self.replicas[index], Replica::new(self.sessions));
        for key in 0..KEYS {
            self.gone[key] += dead.heard[key].saturating_sub(self.known(key).max(self.node.spent[key]));
        }
    }

    /// Everything that is under way comes to its end.
    fn end(&mut self, fault: Fault) {
        for _ in 0..4 {
            while !self.messages.is_empty() {
                let message = self.messages.remove(0);
                self.arrive(message, fault);
            }
            for index in 0..self.replicas.len() {
                // `monitor::look` notices another generation.
                self.replicas[index].generation = self.replicas[index]
                    .generation
                    .filter(|_| self.node.begun_us.is_some() && self.replicas[index].generation == self.node.begun_us);
                if self.replicas[index].generation.is_none() {
                    self.join(index, fault);
                    if self.replicas[index].bringing.is_some() {
                        self.bring(index);
                    }
                } else {
                    self.report(index, fault);
                }
            }
        }
    }
}

/// A fleet, and the number of keys that get requests.
struct Keyed(usize, Fleet<Fault>);

impl Story for Keyed {
    type World = World;
    type Event = Event;

    fn begin(&self) -> World {
        World {
            budget: self.1.budget,
            messages: Vec::new(),
            replicas: (1..=self.1.replicas as u64).map(Replica::new).collect(),
            node: Node { now_us: 7_200_000_000, ..Node::default() },
            sessions: self.1.replicas as u64,
            fresh: (0, 0),
            admitted: [0; KEYS],
            gone: [0; KEYS],
        }
    }

    fn possible(&self, world: &World) -> Vec<Event> {
        let Budget { requests, losses, steps, crashes, .. } = world.budget;
        let mut events: Vec<_> = (0..world.messages.len()).map(Event::Arrive).collect();
        for (index, replica) in world.replicas.iter().enumerate() {
            if requests > 0 && index <= world.fresh.1 {
                events.extend((0..self.0.min(world.fresh.0 + 1)).map(|key| Event::Request(index, key)));
            }
            match (replica.generation, replica.bringing) {
                (Some(_), _) => {}
                (None, Some(_)) => events.push(Event::Bring(index)),
                (None, None) => events.push(Event::Join(index)),
            }
            events.extend((crashes > 0).then_some(Event::Crash(index)));
        }
        if losses > 0 && world.node.begun_us.is_some() {
            events.extend([Event::LoseKeys(false), Event::LoseKeys(true)]);
        }
        events.extend((steps > 0).then_some(Event::Step));
        events
    }

    fn happen(&self, world: &mut World, event: &Event) {
        match *event {
            Event::Request(index, key) => {
                world.budget.requests -= 1;
                world.fresh = (world.fresh.0.max(key + 1), world.fresh.1.max(index + 1));
                world.request(index, key);
            }
            Event::Arrive(at) => {
                let message = world.messages.remove(at);
                world.arrive(message, self.1.fault);
            }
            Event::Join(index) => world.join(index, self.1.fault),
            Event::Bring(index) => world.bring(index),
            Event::LoseKeys(is_set_back) => {
                world.budget.losses -= 1;
                world.lose_keys(is_set_back);
            }
            Event::Step => {
                world.budget.steps -= 1;
                world.node.now_us += WARM_AFTER_US;
            }
            Event::Crash(index) => {
                world.budget.crashes -= 1;
                world.crash(index);
            }
        }
    }

    fn copy(&self, world: &World) -> Option<World> {
        Some(world.clone())
    }

    fn digest(&self, world: &World) -> u64 {
        let World { budget, messages, replicas, node, fresh, admitted, gone, .. } = world;
        let messages = sorted(messages, hashed);
        // While a generation lasts, turns of a replica that waits differ only by microseconds.
        let time = node.begun_us.ok_or(node.now_us).map(|begun_us| (begun_us, node.now_us - begun_us >= WARM_AFTER_US));
        let node = (time, &node.met, node.spent);
        hashed(&(budget, messages, replicas, node, fresh, admitted, gone))
    }

    fn broken(&self, mut world: World) -> Option<String> {
        for key in 0..KEYS {
            let most = LIMIT + world.gone[key];
            if world.admitted[key] > most {
                return Some(format!("{} units of a key admitted, at most {most} are allowed", world.admitted[key]));
            }
        }
        world.end(self.1.fault);
        let waits = |replica: &&Replica| replica.generation.is_none();
        if let Some(waiting) = world.replicas.iter().find(waits) {
            return Some(format!("a replica waits without end: {waiting:?}"));
        }
        let unreported = world.replicas.iter().find(|replica| replica.unreported != [0; KEYS]);
        unreported.map(|replica| format!("charges are lost: {replica:?}"))
    }
}

const BUDGET: Budget = Budget { requests: 3, losses: 1, ..Budget::NONE };

#[test]
fn keys_that_are_lost_are_not_spent_again() {
    holds("a Redis that loses its keys", &Keyed(KEYS, Fleet { replicas: 2, budget: BUDGET, fault: Fault::None }), 1000);
}

#[test]
fn three_replicas_bring_what_they_know() {
    let budget = Budget { requests: 2, ..BUDGET };
    holds("a Redis, three replicas", &Keyed(KEYS, Fleet { replicas: 3, budget, fault: Fault::None }), 1000);
}

#[test]
fn a_dead_replica_is_not_waited_for() {
    for (name, budget) in
        [("a Redis, a crash", Budget { crashes: 1, ..BUDGET }), ("a Redis, two seconds", Budget { steps: 1, ..BUDGET })]
    {
        holds(name, &Keyed(1, Fleet { replicas: 2, budget, fault: Fault::None }), 1000);
    }
}

#[test]
fn a_missing_safeguard_is_found() {
    for (fault, expected) in [
        (Fault::Early, "3 units of a key admitted"),
        (Fault::Unnamed, "3 units of a key admitted"),
        (Fault::Outdated, "3 units of a key admitted"),
        (Fault::Unsent, "charges are lost"),
    ] {
        let budget = Budget { requests: 4, ..BUDGET };
        finds(&format!("{fault:?}"), &Keyed(1, Fleet { replicas: 2, budget, fault }), expected);
    }
}
