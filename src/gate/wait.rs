//! A request that waits for its turn.
//!
//! It stands in the queue of one key: that of the limit it must wait longest for. The front of a queue
//! sleeps until the instant at which it could pass, its slot, tests all of its limits again, and is charged by all or
//! by none. It is charged as of its slot, not of its wake-up, which is always later: so late timers cost no capacity,
//! and waiters whose slots have passed are released one after another without a timer. If another limit is what stops it then, it moves to that one's queue at the rank it arrived with.
//!
//! When it moves to the front of a queue that is no slower, it keeps its turn in the one it comes from: else
//! two busy limits that come free in turn could starve it. It never keeps a turn while it waits in a slower
//! queue, so it holds nobody up for longer than their own budget takes to come back. Turns are kept in order
//! of rank, so no two wait for each other. Dropping it, at any time, leaves all queues.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::ban;
use super::case;
use super::delay::{Decided as Limited, Delayed, is_late};
use super::hold::Rank;
use super::live::Newest;
use super::outcome::{pass, refusal, wake_behind};
use super::room::Reserved;
use super::{Cause, Gate, LimitState, Pass, Refusal};
use crate::limit::{BACKDATE_NS_MAX, Key, Retry};
use crate::policy::{Limit, Mode, Variant};
use crate::store::{self, Charge, Outcome, Outcomes};
use crate::time::Timestamp;

/// One budget that a waiting request needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'l> {
    pub(super) state: &'l Arc<LimitState>,
    pub(super) key: Key,
    pub(super) cost: u64,
}

/// A request in a queue.
#[derive(Debug)]
pub struct Waiting<'l> {
    pub(super) gate: &'l Gate,
    pub(super) items: SmallVec<[Item<'l>; 4]>,
    /// The plan that it has, if a limit asked for it.
    pub(super) plan: Option<Box<str>>,
    /// The item in whose queue it stands.
    pub(super) place: usize,
    /// Items in whose queues it keeps its turn meanwhile.
    pub(super) kept: SmallVec<[usize; 2]>,
    pub(super) rank: Rank,
    pub(super) wake: Arc<Notify>,
    pub(super) reserved: RefCell<Option<Reserved<'l>>>,
    pub(super) since: Timestamp,
    pub(super) max_wait_ns: Option<u64>,
    /// The limit that made it wait first.
    pub(super) held_by: &'l Arc<LimitState>,
}

/// What a test of all limits found.
enum Test<'l> {
    // Boxed: whoever waits keeps room for what this is.
    Admitted(Box<Pass<'l>>),
    Delayed(Box<Delayed<'l>>),
    Refused(Refusal<'l>),
    /// Not before `until`, or not before others in that queue.
    Blocked {
        place: usize,
        until: Option<Timestamp>,
    },
}

impl<'l> Waiting<'l> {
    /// The name of the limit that makes it wait.
    pub fn held_by(&self) -> &'l str {
        &self.held_by.name
    }

    /// Waits until the request passes, or can no longer.
    pub async fn wait(mut self: Box<Self>) -> Result<Pass<'l>, Refusal<'l>> {
        loop {
            let now = self.gate.clock.now();
            if self.gate.is_closed() {
                return Err(self.refuse(Cause::ShuttingDown, now));
            }
            let here = self.items[self.place];
            if !here.state.line.is_front(here.key, self.rank) {
                self.wake.notified().await;
                continue;
            }
            match self.test(now) {
                Test::Admitted(mut pass) => {
                    pass.held = Some((&self.held_by.name, now.ns_since(self.since)));
                    return Ok(*pass);
                }
                Test::Delayed(delayed) => {
                    let (gate, held_by, since) = (self.gate, self.held_by, self.since);
                    drop(self); // its turns are for others now
                    let mut pass = Box::pin(delayed.wait()).await?; // rare, and large
                    pass.held = Some((&held_by.name, gate.clock.now().ns_since(since)));
                    return Ok(pass);
                }
                Test::Refused(refusal) => return Err(refusal),
                Test::Blocked { place, .. } if place != self.place => self.move_to(place),
                Test::Blocked { until, .. } => {
                    let until = until.unwrap_or(now);
                    let deadline = self.deadline_before(until);
                    if deadline.is_some_and(|deadline| deadline <= now) {
                        return Err(self.refuse(Cause::WaitTooLong, now));
                    }
                    let until = deadline.unwrap_or(until);
                    tokio::select! {
                        () = sleep_until(self.gate.clock.instant(until)) => {}
                        () = self.wake.notified() => {}
                    }
                }
            }
        }
    }

    /// When it has waited too long, if it would wait until `slot`. It is not refused for a delay that is small beside
    /// its `max_wait`: it was accepted for a shorter wait, so the delay is Weir's own.
    fn deadline_before(&self, slot: Timestamp) -> Option<Timestamp> {
        let max_ns = self.max_wait_ns?;
        let delay_ns = (max_ns / 10).saturating_add(BACKDATE_NS_MAX);
        let deadline = self.since.saturating_add_ns(max_ns);
        (deadline.saturating_add_ns(delay_ns) < slot).then_some(deadline)
    }

    /// Tests all limits as they are now and, if they admit, charges them.
    fn test(&self, now: Timestamp) -> Test<'l> {
        let rules: SmallVec<[(usize, Arc<Newest>); 4]> = self.rules().collect();
        let banned = rules.iter().filter_map(|(place, limit)| {
            let Item { state, key, .. } = self.items[*place];
            Some((state, state.banned_ns(limit, key, now)?))
        });
        if let Some(refusal) = ban::refusal(banned) {
            return Test::Refused(refusal);
        }
        if let Some(place) = self.behind(&rules) {
            return Test::Blocked { place, until: None };
        }
        let charges = rules.iter().map(|(place, limit)| self.charge(*place, limit));
        // Looking first: a charge that is taken back at once may keep others from their turn.
        let mut outcomes: Outcomes = charges.clone().map(|charge| store::peek(&charge, now)).collect();
        let would_pass =
            charges.clone().zip(&outcomes).all(|(charge, outcome)| outcome.is_admitted() || !charge.enforced);
        let earliest = now.saturating_sub_ns(BACKDATE_NS_MAX).max(self.since);
        let as_of = if would_pass { store::slot(charges.clone(), earliest, now) } else { now };
        let mut admit = |at| store::admit(charges.clone(), at, &mut outcomes);
        if would_pass && (admit(as_of) || as_of < now && admit(now)) {
            let is_slow = rules.iter().zip(&outcomes).any(|((_, limit), outcome)| is_late(limit, outcome));
            let charged = rules.iter().zip(charges).zip(outcomes);
            if is_slow {
                let decided = charged.map(|(((place, limit), charge), outcome)| {
                    let state = self.items[*place].state;
                    Limited { state, limit, charge, outcome }
                });
                return match self.gate.slow_down(decided, || self.reserved.borrow_mut().take(), now) {
                    Ok(delayed) => Test::Delayed(delayed),
                    Err(refusal) => Test::Refused(*refusal),
                };
            }
            let charged = charged.map(|(((place, limit), charge), outcome)| {
                let state = self.items[*place].state;
                (state, limit_of(limit), charge, outcome)
            });
            let mut pass = Box::new(pass(charged, now));
            pass.standing.iter_mut().for_each(|standing| standing.at = as_of);
            return Test::Admitted(pass);
        }
        let cases = rules
            .iter()
            .zip(charges)
            .zip(&outcomes)
            .map(|(((place, limit), charge), outcome)| (*place, limit, charge, outcome));
        if would_pass {
            let decided = cases.clone();
            wake_behind(decided.map(|(place, _, charge, outcome)| (self.items[place].state, charge.key, outcome)));
        }
        let denials = cases.filter(|(_, _, charge, outcome)| charge.enforced && !outcome.is_admitted());
        let holds = |limit: &Limit, outcome: &Outcome| {
            limit.on_limit.is_hold() && outcome.decision.denied != Some(Retry::Never)
        };
        if denials.clone().all(|(_, limit, _, outcome)| holds(limit, outcome)) {
            let longest = denials.map(|(place, _, _, outcome)| (outcome.decision.denied, place)).max();
            let (denied, place) = longest.unwrap_or((None, self.place));
            let until = denied.map(|retry| match retry {
                Retry::AfterNs(ns) => now.saturating_add_ns(ns),
                Retry::Never => now,
            });
            return Test::Blocked { place, until };
        }
        let denials =
            denials.map(|(place, limit, charge, outcome)| (self.items[place].state, limit_of(limit), charge, outcome));
        Test::Refused(refusal(denials, now, Cause::Limit, None))
    }

    /// The place of another of its limits in whose queue an older request waits.
    fn behind(&self, rules: &[(usize, Arc<Newest>)]) -> Option<usize> {
        let has_older = |(place, limit): &&(usize, Arc<Newest>)| {
            let item = self.items[*place];
            *place != self.place
                && limit.mode == Mode::Enforce
                && limit.on_limit.is_hold()
                && item.state.line.has_older(item.key, self.rank)
        };
        rules.iter().find(has_older).map(|(place, _)| *place)
    }

    /// The limits as the newest policy has them, by place; those that are gone or off stop nobody.
    fn rules(&self) -> impl Iterator<Item = (usize, Arc<Newest>)> {
        self.items.iter().enumerate().filter_map(|(place, item)| {
            let limit = item.state.rule.load_full()?;
            let is_limited = limit.mode != Mode::Off && limit.allowed.rule(self.variant(*item, &limit)).is_some();
            is_limited.then_some((place, limit))
        })
    }

    /// Stands in the queue of `place`, and goes on standing where it may keep its turn.
    fn move_to(&mut self, place: usize) {
        let to = self.items[place];
        let is_next = !to.state.line.has_older(to.key, self.rank);
        let refill_ns = self.refill_ns(place);
        let mut stood = std::mem::take(&mut self.kept);
        stood.push(std::mem::replace(&mut self.place, place));
        if !stood.contains(&place) {
            let joined: Result<(), ()> = to.state.line.join(to.key, self.rank, to.cost, &self.wake, |_| Ok(()));
            debug_assert!(joined.is_ok(), "nothing objects to a move");
        }
        for one in stood.into_iter().filter(|one| *one != place) {
            if is_next && self.refill_ns(one) >= refill_ns {
                self.kept.push(one);
            } else {
                self.items[one].state.line.leave(self.items[one].key, self.rank);
            }
        }
    }

    /// How long what it takes from the limit at `place` needs to come back; 0 if that limit is gone.
    fn refill_ns(&self, place: usize) -> u64 {
        let item = self.items[place];
        let limit = item.state.rule.load();
        let rule = limit.as_ref().and_then(|limit| limit.allowed.rule(self.variant(item, limit)));
        rule.map_or(0, |rule| rule.refill_ns(item.cost))
    }

    /// Which rule of the newest limit it goes by for this budget.
    fn variant(&self, item: Item<'_>, limit: &Newest) -> Variant {
        limit.variant(item.key, self.plan.as_deref())
    }

    /// What the newest limit of the item at `place` would take for it.
    fn charge<'a>(&'a self, place: usize, limit: &'a Newest) -> Charge<'a> {
        let item = self.items[place];
        case::charge(item.state, item.key, limit, self.variant(item, limit), item.cost)
    }

    /// Refused by the limit in whose queue it stands, with the wait that is left.
    fn refuse(&self, cause: Cause, now: Timestamp) -> Refusal<'l> {
        let here = self.items[self.place];
        let Some(limit) = here.state.rule.load_full() else {
            return refusal(std::iter::empty(), now, cause, Some(0));
        };
        let charge = self.charge(self.place, &limit);
        let outcome = store::peek(&charge, now);
        // It stands in the queue itself.
        let ahead = here.state.line.backlog(here.key).units.saturating_sub(charge.cost);
        let expected_ns = expected_ns(&charge, ahead, now);
        refusal(std::iter::once((here.state, limit_of(&limit), charge, &outcome)), now, cause, Some(expected_ns))
    }
}

fn limit_of(newest: &Newest) -> &Limit {
    newest
}

/// A wait that ends when another request does: nobody knows when.
pub(super) const UNKNOWN_NS: u64 = u64::MAX;

/// How long `charge` has to wait behind `ahead` units, in nanoseconds, or [`UNKNOWN_NS`].
pub(super) fn expected_ns(charge: &Charge<'_>, ahead: u64, now: Timestamp) -> u64 {
    match charge.table.wait(charge.key, charge.rule, ahead, charge.cost, now) {
        Retry::AfterNs(ns) => ns,
        Retry::Never => UNKNOWN_NS - 1,
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        for place in self.kept.iter().copied().chain([self.place]) {
            let item = self.items[place];
            item.state.line.leave(item.key, self.rank);
        }
        self.held_by.metrics.held_now.dec();
        let waited_ns = self.gate.clock.now().ns_since(self.since);
        self.held_by.metrics.hold_duration.observe(std::time::Duration::from_nanos(waited_ns).as_secs_f64());
    }
}
