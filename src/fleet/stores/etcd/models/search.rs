//! The events of the model in all orders, and its bounds.
//!
//! Not here: what an event does to replicas and transactions (`models`).

use super::*;
use crate::testing::{Fleet, Story, finds, hashed, holds, miscounted, printed};

#[derive(Clone, Debug)]
pub(super) enum Event {
    Request(usize),
    /// A replica tells of spent and unspent units.
    Settle(usize),
    /// etcd makes the transaction at an index. Its replica hears of it, if it still waits and the answer is not lost.
    Make {
        at: usize,
        is_heard: bool,
    },
    /// A replica waits no longer. Its transaction is on its way.
    GiveUp(usize),
    Step,
    Crash(usize),
    /// etcd deletes the loans of a dead process.
    Expire(u64),
}

impl Story for Fleet<Fault> {
    type World = World;
    type Event = Event;

    fn begin(&self) -> World {
        let rule = fixed_window::Rule::from_first(Rate { count: LIMIT, period_ns: 3_600_000_000_000 }).unwrap();
        World {
            rule: Algorithm::FixedWindow(rule),
            now: Timestamp::from_ns(1_700_000_000_000_000_000),
            budget: self.budget,
            etcd: Etcd::default(),
            replicas: (1..=self.replicas as u64).map(Replica::new).collect(),
            dead: Vec::new(),
            fresh: 0,
            admitted: 0,
            alone: 0,
            forgotten: 0,
            unreported: 0,
        }
    }

    fn possible(&self, world: &World) -> Vec<Event> {
        let budget = &world.budget;
        let mut events = Vec::new();
        for (index, replica) in world.replicas.iter().enumerate() {
            let is_free = replica.pending.is_none();
            if is_free && budget.requests > 0 && index <= world.fresh {
                events.push(Event::Request(index));
            }
            if is_free && (!replica.outbox.is_empty() || replica.holding.is_due(false, world.now)) {
                events.push(Event::Settle(index));
            }
            if !is_free && budget.late > 0 {
                events.push(Event::GiveUp(index));
            }
            if budget.crashes > 0 && replica.numbers > 0 {
                events.push(Event::Crash(index));
            }
        }
        for at in 0..world.etcd.arriving.len() {
            events.push(Event::Make { at, is_heard: true });
            events.extend((budget.late > 0).then_some(Event::Make { at, is_heard: false }));
        }
        if budget.steps > 0 {
            events.push(Event::Step);
        }
        events.extend(world.dead.iter().copied().map(Event::Expire));
        if self.fault == Fault::Expired {
            events.extend(world.etcd.loans.keys().copied().map(Event::Expire));
        }
        events
    }

    fn happen(&self, world: &mut World, event: &Event) {
        match *event {
            Event::Request(index) => {
                world.budget.requests -= 1;
                world.fresh = world.fresh.max(index + 1);
                let replica = &mut world.replicas[index];
                match replica.leases.supply(KEY, 1, LeaseUnits::Fixed(2), world.now) {
                    Supply::Spent(_) => world.admitted += 1,
                    Supply::Borrow(call) => {
                        let loan = replica.number();
                        world.ask(index, Some((call, loan)));
                    }
                    Supply::Denied(_) | Supply::Wait(_) => {}
                }
            }
            Event::Settle(index) => world.settle(index),
            Event::Make { at, is_heard } => {
                world.budget.late -= usize::from(!is_heard);
                world.make(at, is_heard, self.fault);
            }
            Event::GiveUp(index) => {
                world.budget.late -= 1;
                world.give_up(index, self.fault);
            }
            Event::Step => {
                world.budget.steps -= 1;
                world.step(self.fault);
            }
            Event::Crash(index) => {
                world.budget.crashes -= 1;
                world.crash(index);
            }
            // The budget of the fault is its loans.
            Event::Expire(process) if self.fault == Fault::Expired => _ = world.etcd.loans.remove(&process),
            Event::Expire(process) => world.expire(process),
        }
    }

    fn digest(&self, world: &World) -> u64 {
        let World { now, budget, etcd, replicas, dead, admitted, alone, forgotten, unreported, .. } = world;
        hashed(&(now, budget, printed(etcd), printed(replicas), dead, admitted, alone, forgotten, unreported))
    }

    fn broken(&self, mut world: World) -> Option<String> {
        let most = LIMIT + world.forgotten;
        if world.admitted > most {
            return Some(format!("{} units admitted, at most {most} are allowed", world.admitted));
        }
        world.end(self.fault);
        let ((spent, lent), all) = (world.counted(), world.admitted + world.alone);
        if lent > 0 {
            return Some(format!("loans without end: {lent} units"));
        }
        miscounted(spent, all, (world.unreported, world.forgotten + world.unreported))
    }
}

const BUDGET: Budget = Budget { requests: 3, steps: 1, ..Budget::NONE };

#[test]
fn loans_keep_the_limit_through_late_and_lost_answers() {
    let budget = Budget { requests: 2, late: 1, ..BUDGET };
    holds("etcd, a late answer", &Fleet { replicas: 2, budget, fault: Fault::None }, 1000);
    let budget = Budget { requests: 2, late: 2, steps: 0, ..BUDGET };
    holds("etcd, two late answers", &Fleet { replicas: 2, budget, fault: Fault::None }, 1000);
}

#[test]
fn three_replicas_borrow_no_more_than_the_limit() {
    let budget = Budget { late: 1, steps: 0, ..BUDGET };
    holds("etcd, three replicas", &Fleet { replicas: 3, budget, fault: Fault::None }, 1000);
}

#[test]
fn a_dead_replica_frees_only_its_last_loans() {
    let budget = Budget { crashes: 1, ..BUDGET };
    holds("etcd, a crash", &Fleet { replicas: 2, budget, fault: Fault::None }, 1000);
}

#[test]
fn a_missing_safeguard_is_found() {
    let budget = |requests, late, steps| Budget { requests, late, steps, ..BUDGET };
    for (fault, budget, expected) in [
        (Fault::Unresolved, budget(2, 1, 1), "lost units"),
        (Fault::Uncompared, budget(2, 0, 1), "free units"),
        (Fault::Expired, budget(4, 0, 0), "4 units admitted"),
        (Fault::Unreturned, budget(2, 0, 1), "lost units"),
    ] {
        finds(&format!("{fault:?}"), &Fleet { replicas: 2, budget, fault }, expected);
    }
}
