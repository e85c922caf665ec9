//! The events of the model in all orders, and its bounds.
//!
//! Not here: what an event does to replicas and messages (`models`).

use super::*;
use crate::testing::{Fleet, Story, finds, hashed, holds, miscounted, printed, sorted};

#[derive(Clone, Debug)]
pub(super) enum Event {
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

impl Story for Fleet<Fault> {
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
        let Budget { requests, late, returns, losses, doubles, crashes, .. } = world.budget;
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

    fn digest(&self, world: &World) -> u64 {
        let World { budget, replicas, sessions, batches, admitted, alone, .. } = world;
        let messages = sorted(&world.messages, printed);
        let owed = world.table.owed(KEY, &world.rule, NOW);
        let lost = (world.unreturned, world.unreported);
        let replicas = replicas.iter().map(|replica| {
            let Replica { session, calls, asked, admitted, outbox, unanswered, alone, .. } = replica;
            let reports = outbox.take();
            let digest = printed(&(session, calls, asked, admitted, &reports, unanswered, alone));
            outbox.park(reports);
            outbox.unpark();
            digest
        });
        let replicas: Vec<_> = replicas.collect();
        hashed(&(budget, messages, printed(sessions), batches, owed, admitted, alone, lost, replicas))
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
        miscounted(owed, all, (world.unreturned, world.unreported))
    }
}

const BUDGET: Budget = Budget { requests: 2, late: 2, returns: 1, ..Budget::NONE };

#[test]
fn each_unit_counts_once_through_lost_messages() {
    let budget = Budget { losses: 1, ..BUDGET };
    holds("a limiter, losses", &Fleet { replicas: 2, budget, fault: Fault::None }, 1000);
}

#[test]
fn each_unit_counts_once_through_doubled_messages() {
    let budget = Budget { doubles: 1, ..BUDGET };
    holds("a limiter, doubles", &Fleet { replicas: 2, budget, fault: Fault::None }, 1000);
}

#[test]
fn three_replicas_take_no_more_than_the_limit() {
    let budget = Budget { requests: 3, late: 1, returns: 0, ..BUDGET };
    holds("a limiter, three replicas", &Fleet { replicas: 3, budget, fault: Fault::None }, 1000);
}

#[test]
fn a_dead_replica_loses_only_its_own_reports() {
    let budget = Budget { returns: 0, crashes: 1, ..BUDGET };
    holds("a limiter, a crash", &Fleet { replicas: 2, budget, fault: Fault::None }, 1000);
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
        finds(&format!("{fault:?}"), &Fleet { replicas: 2, budget, fault }, expected);
    }
}
