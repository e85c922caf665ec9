//! A model of replicas that ask one limiter: all orders of calls, answers and corrections, which may be lost, late or
//! doubled, over `calls`, the outbox of the driver, and the table of the limiter.
//!
//! A request whose answer is late is decided by the share of its replica. The clock stands still, so no unit comes back
//! with time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use super::calls::Calls;
use super::refund::Refund;
use crate::base::telemetry::Counter;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key, OnFull, Rate, fixed_window};
use crate::engine::store::backend::{CallId, LimiterReceipt, Settlement};
use crate::engine::store::{Batch as Charges, Charge, Receipt, Table};
use crate::fleet::stores::driver::{Batch, Outbox, Report};
use crate::testing::{Story, finds, holds};

const LIMIT: u64 = 2;
/// Units that a replica admits without the limiter.
const SHARE: u64 = 1;
const KEY: Key = Key { first: 4, second: 1 };
const NOW: Timestamp = Timestamp::from_ns(1_700_000_000_000_000_000);

/// A safeguard that the model leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// A call has effect after it was given back.
    LateCall,
    /// A batch of corrections has effect twice.
    Twice,
    /// A batch without an answer is not sent again.
    Unsent,
    /// A call without an answer is not given back.
    Kept,
}

/// How often each kind of event may happen.
#[derive(Clone, Copy, Debug)]
struct Budget {
    requests: usize,
    late: usize,
    returns: usize,
    losses: usize,
    doubles: usize,
    crashes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Fleet {
    replicas: usize,
    budget: Budget,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Request(usize),
    /// The message at an index arrives.
    Arrive(usize),
    /// It arrives, and will again.
    ArriveTwice(usize),
    Lose(usize),
    /// A replica waits no longer for the call of a number.
    GiveUp(usize, u64),
    /// An admitted request of a replica has reached no service.
    Return(usize),
    /// A replica sends corrections, the oldest without an answer first.
    Send(usize),
    Crash(usize),
}

#[derive(Clone, Debug, PartialEq)]
enum Message {
    Call(usize, CallId),
    Answer(usize, CallId, bool),
    Correct(usize, u64, u64, Vec<Report<Refund>>),
    Done(usize, u64, u64),
}

struct Replica {
    /// The number of the process and of its worker.
    session: u64,
    calls: u64,
    batches: u64,
    asked: BTreeMap<u64, CallId>,
    admitted: Vec<CallId>,
    given_up: BTreeSet<u64>,
    outbox: Outbox<Refund>,
    unanswered: VecDeque<Batch<Refund>>,
    alone: u64,
}

struct World {
    rule: Algorithm,
    budget: Budget,
    messages: Vec<Message>,
    replicas: Vec<Replica>,
    /// Replicas from this one on have got no request, so they are alike.
    fresh: usize,
    /// The table, the calls and the last batches of the limiter.
    table: Table,
    sessions: BTreeMap<u64, Calls<Option<Receipt>>>,
    batches: BTreeMap<u64, u64>,
    /// Units that requests have, admitted by the limiter and without it.
    admitted: u64,
    alone: u64,
    /// Units that a dead process was to give back, and to report.
    unreturned: u64,
    unreported: u64,
}

impl Replica {
    fn new(session: u64) -> Self {
        Self {
            session,
            calls: 0,
            batches: 0,
            asked: BTreeMap::new(),
            admitted: Vec::new(),
            given_up: BTreeSet::new(),
            outbox: Outbox::new(Counter::new("dropped", "Dropped.").unwrap()),
            unanswered: VecDeque::new(),
            alone: 0,
        }
    }
}

impl World {
    /// Sends a message, unless an equal one is on its way.
    fn send(&mut self, message: Message) {
        if !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }

    fn request(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        replica.calls += 1;
        let call = CallId { process: 1, session: replica.session, number: replica.calls, at: NOW };
        replica.asked.insert(call.number, call);
        self.send(Message::Call(index, call));
    }

    fn arrive(&mut self, message: Message, fault: Fault) {
        match message {
            Message::Call(from, call) => {
                let calls = self.sessions.entry(call.session).or_default();
                if !calls.is_new(call.number) && fault != Fault::LateCall {
                    return;
                }
                let charge = Charge::new(&self.table, KEY, &self.rule, 1, true, ());
                let mut charges: Charges<'_, ()> = std::iter::once(charge).collect();
                let is_admitted = charges.admit(NOW);
                calls.made(call.number, is_admitted.then(|| charges.take_receipt(0)));
                drop(charges);
                self.send(Message::Answer(from, call, is_admitted));
            }
            Message::Answer(to, call, is_admitted) => {
                let replica = &mut self.replicas[to];
                let is_awaited = replica.session == call.session && replica.asked.remove(&call.number).is_some();
                if is_awaited && is_admitted {
                    replica.admitted.push(call);
                    self.admitted += 1;
                }
            }
            Message::Correct(from, session, batch, reports) => {
                let last = self.batches.entry(session).or_default();
                if *last < batch || fault == Fault::Twice {
                    *last = batch;
                    for report in &reports {
                        self.correct(report);
                    }
                }
                self.send(Message::Done(from, session, batch));
            }
            Message::Done(to, session, batch) => {
                let replica = &mut self.replicas[to];
                let is_own = replica.session == session;
                if let Some(sent) = replica.unanswered.pop_front_if(|sent| is_own && sent.first == batch) {
                    replica.outbox.sent(sent.reports.len());
                }
            }
        }
    }

    fn correct(&mut self, report: &Report<Refund>) {
        let receipt = match report {
            Report::GiveBack(Refund::Call(call), _) => {
                self.sessions.entry(call.session).or_default().end(call.number).flatten()
            }
            Report::GiveBack(Refund::Charge(LimiterReceipt { call, .. }), _) => {
                let charged = self.sessions.get_mut(&call.session).unwrap().charged(call.number);
                charged.unwrap().and_then(Option::take)
            }
            Report::Settle(settlement) => {
                self.table.settle(KEY, &self.rule, settlement.units(), settlement.max_debt, NOW);
                None
            }
        };
        if let Some(receipt) = receipt {
            self.table.refund(KEY, &receipt, NOW);
        }
    }

    fn give_up(&mut self, index: usize, number: u64, fault: Fault) {
        let replica = &mut self.replicas[index];
        let Some(call) = replica.asked.remove(&number) else { return };
        replica.given_up.insert(number);
        if fault != Fault::Kept {
            replica.outbox.give_back(Refund::Call(call), Timestamp::ZERO);
        }
        if replica.alone < SHARE {
            replica.alone += 1;
            replica.outbox.settle(Settlement::new("a", KEY, &self.rule, (1, LIMIT * 4), NOW));
            self.alone += 1;
        }
    }

    fn give_back(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        let Some(call) = replica.admitted.pop() else { return };
        let (limit, rule) = ("a".into(), self.rule.digest());
        let receipt = LimiterReceipt { call, index: 0, limit, key: KEY, rule, units: 1 };
        replica.outbox.give_back(Refund::Charge(receipt), NOW);
        self.admitted -= 1;
    }

    /// Sends what has no answer, or else what waits.
    fn flush(&mut self, index: usize, fault: Fault) {
        let replica = &mut self.replicas[index];
        let batches = &mut replica.batches;
        let number = |_| {
            *batches += 1;
            *batches
        };
        replica.unanswered.extend(Batch::of_all(replica.outbox.take(), NOW, number));
        let Some(batch) = replica.unanswered.front() else { return };
        let message = Message::Correct(index, replica.session, batch.first, batch.reports.clone());
        if fault == Fault::Unsent {
            let sent = replica.unanswered.pop_front().map_or(0, |batch| batch.reports.len());
            replica.outbox.sent(sent);
        }
        self.send(message);
    }

    fn crash(&mut self, index: usize) {
        let session = self.replicas[index].session + self.replicas.len() as u64;
        let dead = std::mem::replace(&mut self.replicas[index], Replica::new(session));
        let sent = dead.unanswered.into_iter().flat_map(|batch| batch.reports);
        for report in dead.outbox.take().into_iter().chain(sent) {
            match report {
                Report::GiveBack(..) => self.unreturned += 1,
                Report::Settle(settlement) => self.unreported += settlement.units().unsigned_abs(),
            }
        }
        self.unreturned += dead.asked.len() as u64;
    }

    /// Everything that is under way arrives, and is answered.
    fn end(&mut self, fault: Fault) {
        for _ in 0..8 {
            while !self.messages.is_empty() {
                let message = self.messages.remove(0);
                self.arrive(message, fault);
            }
            for index in 0..self.replicas.len() {
                while let Some(number) = self.replicas[index].asked.keys().next().copied() {
                    self.give_up(index, number, fault);
                }
                self.flush(index, fault);
            }
        }
    }
}

impl Story for Fleet {
    type World = World;
    type Event = Event;

    fn begin(&self) -> World {
        let rule = fixed_window::Rule::from_first(Rate { count: LIMIT, period_ns: 3_600_000_000_000 }).unwrap();
        let rule = Algorithm::FixedWindow(rule);
        World {
            table: Table::new(&rule, 100, OnFull::Reject),
            rule,
            budget: self.budget,
            messages: Vec::new(),
            replicas: (1..=self.replicas as u64).map(Replica::new).collect(),
            fresh: 0,
            sessions: BTreeMap::new(),
            batches: BTreeMap::new(),
            admitted: 0,
            alone: 0,
            unreturned: 0,
            unreported: 0,
        }
    }

    fn possible(&self, world: &World) -> Vec<Event> {
        let Budget { requests, late, returns, losses, doubles, crashes } = world.budget;
        let mut events = Vec::new();
        for (index, replica) in world.replicas.iter().enumerate() {
            if requests > 0 && index <= world.fresh {
                events.push(Event::Request(index));
            }
            if returns > 0 && !replica.admitted.is_empty() {
                events.push(Event::Return(index));
            }
            let asked = replica.asked.keys().filter(|_| late > 0);
            events.extend(asked.map(|number| Event::GiveUp(index, *number)));
            let is_sending = |message: &Message| matches!(message, Message::Correct(from, ..) if *from == index);
            let reports = replica.outbox.len();
            if reports > 0 && !world.messages.iter().any(is_sending) {
                events.push(Event::Send(index));
            }
            if crashes > 0 && replica.calls > 0 {
                events.push(Event::Crash(index));
            }
        }
        for at in 0..world.messages.len() {
            events.push(Event::Arrive(at));
            events.extend((doubles > 0).then_some(Event::ArriveTwice(at)));
            events.extend((losses > 0).then_some(Event::Lose(at)));
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
            Event::Arrive(at) => {
                let message = world.messages.remove(at);
                world.arrive(message, self.fault);
            }
            Event::ArriveTwice(at) => {
                world.budget.doubles -= 1;
                world.arrive(world.messages[at].clone(), self.fault);
            }
            Event::Lose(at) => {
                world.budget.losses -= 1;
                world.messages.remove(at);
            }
            Event::GiveUp(index, number) => {
                world.budget.late -= 1;
                world.give_up(index, number, self.fault);
            }
            Event::Return(index) => {
                world.budget.returns -= 1;
                world.give_back(index);
            }
            Event::Send(index) => world.flush(index, self.fault),
            Event::Crash(index) => {
                world.budget.crashes -= 1;
                world.crash(index);
            }
        }
    }

    fn digest(&self, world: World) -> String {
        let World { budget, replicas, sessions, batches, admitted, alone, .. } = &world;
        let mut messages: Vec<_> = world.messages.iter().map(|message| format!("{message:?}")).collect();
        messages.sort_unstable();
        let owed = world.table.owed(KEY, &world.rule, NOW);
        let lost = (world.unreturned, world.unreported);
        let mut digest = format!("{budget:?} {messages:?} {sessions:?} {batches:?} {owed} {admitted} {alone} {lost:?}");
        for replica in replicas {
            let Replica { session, calls, asked, admitted, outbox, unanswered, alone, .. } = replica;
            let reports = outbox.take();
            let replica = (session, calls, asked, admitted, reports, unanswered, alone);
            let _ = write!(digest, "{replica:?}");
        }
        digest
    }

    fn broken(&self, mut world: World) -> Option<String> {
        if world.admitted > LIMIT {
            return Some(format!("{} units admitted, at most {LIMIT} are allowed", world.admitted));
        }
        world.end(self.fault);
        for Replica { session, given_up, outbox, .. } in &world.replicas {
            if outbox.len() > 0 {
                return Some(format!("reports without end: {}", outbox.len()));
            }
            let mut calls = world.sessions.remove(session).unwrap_or_default();
            if let Some(number) = given_up.iter().find(|number| matches!(calls.charged(**number), Ok(Some(_)))) {
                return Some(format!("a reservation without end: call {number}"));
            }
        }
        let (owed, all) = (world.table.owed(KEY, &world.rule, NOW), world.admitted + world.alone);
        if owed > all + world.unreturned {
            return Some(format!("lost units: {owed} are spent, {all} were admitted"));
        }
        (owed + world.unreported < all).then(|| format!("free units: {owed} are spent, {all} were admitted"))
    }
}

const BUDGET: Budget = Budget { requests: 2, late: 2, returns: 1, losses: 0, doubles: 0, crashes: 0 };

#[test]
fn each_unit_counts_once_through_lost_messages() {
    let budget = Budget { losses: 1, ..BUDGET };
    holds("a limiter, losses", Fleet { replicas: 2, budget, fault: Fault::None }, 1000);
}

#[test]
fn each_unit_counts_once_through_doubled_messages() {
    let budget = Budget { doubles: 1, ..BUDGET };
    holds("a limiter, doubles", Fleet { replicas: 2, budget, fault: Fault::None }, 1000);
}

#[test]
fn three_replicas_take_no_more_than_the_limit() {
    let budget = Budget { requests: 3, late: 1, returns: 0, ..BUDGET };
    holds("a limiter, three replicas", Fleet { replicas: 3, budget, fault: Fault::None }, 1000);
}

#[test]
fn a_dead_replica_loses_only_its_own_reports() {
    let budget = Budget { returns: 0, crashes: 1, ..BUDGET };
    holds("a limiter, a crash", Fleet { replicas: 2, budget, fault: Fault::None }, 1000);
}

#[test]
fn a_missing_safeguard_is_found() {
    let budget = Budget { losses: 1, doubles: 1, ..BUDGET };
    for (fault, expected) in [
        (Fault::LateCall, "lost units"),
        (Fault::Twice, "lost units"),
        (Fault::Unsent, "a reservation without end"),
        (Fault::Kept, "a reservation without end"),
    ] {
        finds(&format!("{fault:?}"), Fleet { replicas: 2, budget, fault }, expected);
    }
}
