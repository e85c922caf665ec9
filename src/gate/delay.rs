//! A request over limits that slow down: it is charged at once, and passes later.
//!
//! It needs as much room as one that is held. Dropping it, at any time, gives back what it was charged, but for limits
//! of the arrival stage. Not here: how much later (`limit::slow_down`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::budget::Budget;
use super::hold::Rank;
use super::journal::units;
use super::outcome::{pass, refusal, wake_behind};
use super::room::Reserved;
use super::settle::Terms;
use super::verdict::Taken;
use super::{Cause, Gate, LimitState, Pass, Refusal, Standing};
use crate::limit::{Key, Retry};
use crate::policy::{Limit, Mode, OnLimit, Stage};
use crate::store::{Charge, Outcome};
use crate::telemetry;
use crate::time::Timestamp;

/// What one limit said to a request, and what it charged for it.
pub(super) struct Decided<'l, 'c> {
    pub(super) state: &'l Arc<LimitState>,
    pub(super) limit: &'c Limit,
    pub(super) charge: Charge<'c>,
    pub(super) outcome: Outcome,
}

/// Whether a limit that said this slows the request down.
#[inline]
pub(super) fn is_late(limit: &Limit, outcome: &Outcome) -> bool {
    !outcome.is_admitted() && limit.mode == Mode::Enforce && matches!(limit.on_limit, OnLimit::Delay(_))
}

/// A request that passes later.
#[derive(Debug)]
pub struct Delayed<'l> {
    gate: &'l Gate,
    pass: Pass<'l>,
    late: SmallVec<[Late<'l>; 2]>,
    /// The limit that delays it most.
    slowest: &'l Arc<LimitState>,
    since: Timestamp,
    room: Room<'l>,
}

/// One limit that delays it.
#[derive(Clone, Copy, Debug)]
struct Late<'l> {
    state: &'l Arc<LimitState>,
    delay_ns: u64,
}

/// The places that a delayed request takes up, left on drop.
#[derive(Debug)]
struct Room<'l> {
    rank: Rank,
    wake: Arc<Notify>,
    places: SmallVec<[(&'l Arc<LimitState>, Key); 2]>,
    _reserved: Reserved<'l>,
}

impl<'l> Room<'l> {
    /// Takes a place on the key of each of these limits; none if one of them has too many already.
    fn take<'c>(gate: &Gate, reserved: Reserved<'l>, late: &[Decided<'l, 'c>]) -> Option<Self> {
        let rank = gate.ranks.fetch_add(1, Ordering::Relaxed);
        let mut room = Self { rank, wake: Arc::default(), places: SmallVec::new(), _reserved: reserved };
        for Decided { state, limit, charge, .. } in late {
            let OnLimit::Delay(rule) = limit.on_limit else { continue };
            let joined = state.delays.join(charge.key, rank, charge.cost, &room.wake, |others| {
                if others.waiting < rule.max_waiting { Ok(()) } else { Err(()) }
            });
            joined.ok()?;
            room.places.push((*state, charge.key));
        }
        Some(room)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        for (state, key) in &self.places {
            state.delays.leave(*key, self.rank);
        }
    }
}

impl Gate {
    /// Charges a request that all limits admit but some that slow it down; what the former charged is in `decided`.
    /// It is refused, and nothing stays charged, if there is no `room` for it.
    #[cold]
    pub(super) fn slow_down<'l, 'c>(
        &'l self,
        decided: impl Iterator<Item = Decided<'l, 'c>>,
        room: impl FnOnce() -> Option<Reserved<'l>>,
        now: Timestamp,
    ) -> Result<Box<Delayed<'l>>, Box<Refusal<'l>>> {
        type Several<'l, 'c> = SmallVec<[Decided<'l, 'c>; 4]>;
        let (late, others): (Several<'l, 'c>, Several<'l, 'c>) =
            decided.partition(|one| is_late(one.limit, &one.outcome));
        let is_closed = self.is_closed();
        let room = if is_closed { None } else { room().and_then(|reserved| Room::take(self, reserved, &late)) };
        let Some(room) = room else {
            for Decided { charge, outcome, .. } in &others {
                charge.table.refund(charge.key, &outcome.receipt, now);
            }
            wake_behind(others.iter().map(|one| (one.state, one.charge.key, &one.outcome)));
            let denials = late.iter().map(|one| (one.state, one.limit, one.charge, &one.outcome));
            // By then everyone who is delayed now has passed.
            let max_ns = late.iter().filter_map(|one| match one.limit.on_limit {
                OnLimit::Delay(rule) => Some(rule.slow_down.max_ns),
                _ => None,
            });
            let expected_ns = max_ns.max();
            if is_closed {
                return Err(Box::new(refusal(denials, now, Cause::ShuttingDown, expected_ns)));
            }
            self.metrics.hold_overflow.inc();
            return Err(Box::new(refusal(denials, now, Cause::QueueFull, expected_ns)));
        };
        let others = others.into_iter().map(|one| (one.state, one.limit, one.charge, one.outcome));
        let mut pass = pass(others, now);
        let late = late.iter().filter_map(|one| charge(&mut pass, one, now)).collect::<SmallVec<[Late<'l>; 2]>>();
        let Some(&Late { state: slowest, .. }) = late.iter().max_by_key(|one| one.delay_ns) else {
            let nobody = std::iter::empty();
            return Err(Box::new(refusal(nobody, now, Cause::Limit, None))); // not asked for
        };
        slowest.metrics.cells.count(telemetry::Decided::Held);
        slowest.metrics.held_now.inc();
        Ok(Box::new(Delayed { gate: self, pass, late, slowest, since: now, room }))
    }
}

/// Charges a request to a limit that it is over.
fn charge<'l>(pass: &mut Pass<'l>, one: &Decided<'l, '_>, now: Timestamp) -> Option<Late<'l>> {
    let &Decided { state, limit, charge, .. } = one;
    let OnLimit::Delay(rule) = limit.on_limit else { return None };
    let Charge { table, key, rule: numbers, cost, .. } = charge;
    let slowed = table.slow_down(key, numbers, &rule.slow_down, cost, now);
    state.tell(key, numbers, units(cost));
    // What is given back is a debt, which the client does not see as units.
    let standing = Standing::new(&state.name, &Charge { cost: 0, ..charge }, &slowed.decision, now);
    pass.standing = Standing::tightest(Some(standing), pass.standing);
    pass.budgets.extend(Budget::of(state, limit, &charge));
    let terms = Terms::of(state, key, limit, numbers, cost, now);
    pass.charged.others.get_or_insert_default().push(Taken { state, key, receipt: slowed.receipt, terms });
    pass.charged.keep(limit.stage == Stage::Arrival);
    Some(Late { state, delay_ns: slowed.delay_ns })
}

impl<'l> Delayed<'l> {
    /// The name of the limit that delays it most.
    pub fn held_by(&self) -> &'l str {
        &self.slowest.name
    }

    /// Waits until the request passes, or Weir waits for nobody any more.
    pub async fn wait(mut self) -> Result<Pass<'l>, Refusal<'l>> {
        loop {
            let now = self.gate.clock.now();
            let until = self.until();
            if until <= now {
                return Ok(self.passed(now));
            }
            if self.gate.is_closed() {
                return Err(self.refused(until.ns_since(now)));
            }
            tokio::select! {
                () = sleep_until(self.gate.clock.instant(until)) => {}
                () = self.room.wake.notified() => {}
            }
        }
    }

    /// When it passes, by the limits as they are now: no later than it was told.
    fn until(&self) -> Timestamp {
        let delays = self.late.iter().map(|one| match one.state.rule.load().as_deref().map(|newest| &**newest) {
            Some(Limit { mode: Mode::Enforce, on_limit: OnLimit::Delay(rule), .. }) => {
                one.delay_ns.min(rule.slow_down.max_ns)
            }
            _ => 0,
        });
        self.since.saturating_add_ns(delays.max().unwrap_or(0))
    }

    fn passed(&mut self, now: Timestamp) -> Pass<'l> {
        for one in &self.late {
            one.state.metrics.cells.decided(telemetry::Decided::Admitted, 0);
        }
        let mut pass = std::mem::take(&mut self.pass);
        pass.held = Some((&self.slowest.name, now.ns_since(self.since)));
        pass
    }

    fn refused(&self, left_ns: u64) -> Refusal<'l> {
        let standing = self.pass.standing;
        let violated = self.late.iter().map(|one| &*one.state.name).collect();
        for one in &self.late {
            one.state.metrics.cells.count(telemetry::Decided::Rejected);
        }
        let budgets = self.pass.budgets.clone();
        Refusal { standing, violated, retry: Retry::AfterNs(left_ns), cause: Cause::ShuttingDown, budgets }
    }
}

impl Drop for Delayed<'_> {
    fn drop(&mut self) {
        self.slowest.metrics.held_now.dec();
        let delayed_ns = self.gate.clock.now().ns_since(self.since);
        self.slowest.metrics.hold_duration.observe(std::time::Duration::from_nanos(delayed_ns).as_secs_f64());
    }
}
