//! A model of replicas that ask one limiter: all orders of calls, answers and corrections, which may be lost, late or
//! doubled, over `calls`, the outbox of the driver, and the table of the limiter.
//!
//! A request whose answer is late is decided by the share of its replica. The clock stands still, so no unit comes back
//! with time.

mod search;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::calls::Calls;
use super::refund::Refund;
use crate::base::telemetry::Counter;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key, OnFull, Rate, fixed_window};
use crate::engine::store::backend::{CallId, LimiterReceipt, Settlement};
use crate::engine::store::{Batch as Charges, Charge, Receipt, Table};
use crate::fleet::stores::driver::{Batch, Outbox, Report};
use crate::testing::Budget;

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
