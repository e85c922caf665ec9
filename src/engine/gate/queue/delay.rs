//! A request over limits that delay: it is charged at once, and passes later.
//!
//! It needs as much capacity as a held request. Dropping it, at any time, gives its charges back, but for limits of the
//! arrival stage. Not here: the length of the delay (`limit::slow_down`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::capacity::Reservation;
use super::locked::Joining;
use super::wait_queue::{Backlog, Rank};
use crate::base::telemetry::LimitDecision;
use crate::base::time::Timestamp;
use crate::engine::gate::check::{Checked, is_delayed};
use crate::engine::gate::delta::units;
use crate::engine::gate::pass::{Pass, wake_undone};
use crate::engine::gate::refusal::{Cause, Refusal};
use crate::engine::gate::state::{Gate, LimitState};
use crate::engine::limit::{Key, Retry};
use crate::engine::policy::{DelayRule, Limit, Mode, OnLimit};
use crate::engine::store::{Batch, Charge};

/// A request that passes later.
#[derive(Debug)]
pub struct Delayed<'l> {
    // Dropped first, so that charges are given back before the slots.
    pass: Pass<'l>,
    delay: Delay<'l>,
}

/// The delay of a request that is charged.
#[derive(Debug)]
pub(in crate::engine::gate) struct Delay<'l> {
    gate: &'l Gate,
    limits: SmallVec<[LimitDelay<'l>; 2]>,
    /// The limit with the longest delay.
    slowest: &'l Arc<LimitState>,
    since: Timestamp,
    slots: DelaySlots<'l>,
}

/// The delay of one limit.
#[derive(Clone, Copy, Debug)]
struct LimitDelay<'l> {
    state: &'l Arc<LimitState>,
    delay_ns: u64,
}

/// The slots that a delayed request takes in the queues of its limits, released on drop.
#[derive(Debug)]
struct DelaySlots<'l> {
    rank: Rank,
    wake: Arc<Notify>,
    keys: SmallVec<[(&'l Arc<LimitState>, Key); 2]>,
    _reservation: Reservation<'l>,
}

/// The rule of a limit that delays requests.
fn delay_rule(limit: &Limit) -> Option<DelayRule> {
    match limit.on_limit {
        OnLimit::Delay(rule) => Some(rule),
        _ => None,
    }
}

impl<'l> DelaySlots<'l> {
    /// Takes a slot on the key of each delaying limit. `None` if one of them has too many delayed requests already.
    fn take<C: Checked<'l>>(gate: &Gate, reservation: Reservation<'l>, batch: &Batch<'_, C>) -> Option<Self> {
        let rank = gate.ranks.fetch_add(1, Ordering::Relaxed);
        let mut slots = Self { rank, wake: Arc::default(), keys: SmallVec::new(), _reservation: reservation };
        for charge in batch.charges().iter().filter(|charge| is_delayed(charge)) {
            let Some(rule) = delay_rule(charge.check.limit()) else { continue };
            let (state, key) = (charge.check.state(), charge.key);
            let joining = Joining { key, rank, cost: charge.cost, wake: &slots.wake, timer: None };
            let agree = |others: Backlog| (others.waiting < rule.max_waiting).then_some(()).ok_or(());
            state.delays.join(joining, agree).ok()?;
            slots.keys.push((state, key));
        }
        Some(slots)
    }
}

impl Drop for DelaySlots<'_> {
    fn drop(&mut self) {
        for (state, key) in &self.keys {
            // The next request passes at an instant of its own.
            let _ = state.delays.leave(*key, self.rank);
        }
    }
}

impl Gate {
    /// Charges an admitted batch to its delaying limits too. If there is no capacity for one more delayed request, the
    /// batch is undone and the request is refused.
    #[cold]
    pub(in crate::engine::gate) fn slow_down<'l, C: Checked<'l>>(
        &'l self,
        batch: &mut Batch<'_, C>,
        reserve: impl FnOnce() -> Option<Reservation<'l>>,
        now: Timestamp,
    ) -> Result<Delay<'l>, Box<Refusal<'l>>> {
        let slots = if self.is_closed() { None } else { reserve() };
        let Some(slots) = slots.and_then(|reservation| DelaySlots::take(self, reservation, batch)) else {
            return Err(Box::new(self.refuse_delay(batch, now)));
        };
        let mut limits = SmallVec::<[LimitDelay<'l>; 2]>::new();
        for index in 0..batch.charges().len() {
            let Some(charge) = batch.charges().get(index).filter(|charge| is_delayed(charge)) else { continue };
            let (state, key, rule) = (charge.check.state(), charge.key, charge.rule);
            let Some(DelayRule { slow_down, .. }) = delay_rule(charge.check.limit()) else { continue };
            let (delay_ns, charged) = match charge.remote() {
                Some(_) => batch.slow_down_remote(index, &slow_down, now),
                None => batch.slow_down(index, &slow_down, now),
            };
            state.report(key, rule, units(charged), now);
            limits.push(LimitDelay { state, delay_ns });
        }
        let Some(&LimitDelay { state: slowest, .. }) = limits.iter().max_by_key(|limit| limit.delay_ns) else {
            return Err(Box::new(self.refuse_delay(batch, now))); // no limit delays it
        };
        slowest.metrics.cells.count(LimitDecision::Held);
        slowest.metrics.held_now.inc();
        Ok(Delay { gate: self, limits, slowest, since: now, slots })
    }

    /// Undoes a batch that has no capacity for its delay.
    fn refuse_delay<'l, C: Checked<'l>>(&self, batch: &mut Batch<'_, C>, now: Timestamp) -> Refusal<'l> {
        batch.undo(now);
        wake_undone(batch);
        let delaying = || batch.charges().iter().filter(|charge| is_delayed(*charge));
        let max_ns = |charge: &Charge<'_, C>| delay_rule(charge.check.limit()).map(|rule| rule.slow_down.max_ns);
        // After the longest delay all requests that are delayed now have passed.
        let expected_ns = delaying().filter_map(max_ns).max();
        let cause = if self.is_closed() { Cause::ShuttingDown } else { Cause::QueueFull };
        if cause == Cause::QueueFull {
            self.metrics.hold_overflow.inc();
        }
        Refusal::of(delaying(), now, cause, expected_ns)
    }
}

impl<'l> Delay<'l> {
    /// The request of this delay, whose charges `pass` has.
    pub(in crate::engine::gate) fn of(self, mut pass: Pass<'l>, is_committed: bool) -> Delayed<'l> {
        pass.charged.commit(is_committed);
        Delayed { pass, delay: self }
    }

    /// The end of the delay according to the limits as they are now, and never later than it was at first.
    fn until(&self) -> Timestamp {
        let delays = self.limits.iter().map(|limit| {
            match limit.state.current().newest.load().as_deref().map(|newest| &**newest) {
                Some(Limit { mode: Mode::Enforce, on_limit: OnLimit::Delay(rule), .. }) => {
                    limit.delay_ns.min(rule.slow_down.max_ns)
                }
                _ => 0,
            }
        });
        self.since.saturating_add_ns(delays.max().unwrap_or(0))
    }

    fn count(&self, decided: LimitDecision) {
        self.limits.iter().for_each(|limit| limit.state.metrics.cells.count(decided));
    }
}

impl<'l> Delayed<'l> {
    /// The name of the limit with the longest delay.
    pub fn held_by(&self) -> &'l str {
        &self.delay.slowest.name
    }

    /// Waits until the delay ends, or Weir lets no request wait any more.
    pub async fn wait(mut self: Box<Self>) -> Result<Box<Pass<'l>>, Box<Refusal<'l>>> {
        let gate = self.delay.gate;
        loop {
            let now = gate.clock.now();
            let until = self.delay.until();
            if until <= now {
                return Ok(Box::new(self.take_pass(now)));
            }
            if gate.is_closed() {
                return Err(Box::new(self.refused(until.ns_since(now))));
            }
            tokio::select! {
                () = sleep_until(gate.clock.instant(until)) => {}
                () = self.delay.slots.wake.notified() => {}
            }
        }
    }

    fn take_pass(&mut self, now: Timestamp) -> Pass<'l> {
        self.pass.charged.begin(now);
        for limit in &self.delay.limits {
            limit.state.metrics.cells.decided(LimitDecision::Admitted, 0);
        }
        std::mem::take(&mut self.pass)
    }

    /// Refuses the request `remaining_ns` before its delay ends.
    fn refused(&self, remaining_ns: u64) -> Refusal<'l> {
        self.delay.count(LimitDecision::Refused);
        Refusal {
            standing: self.pass.standing,
            violated: self.delay.limits.iter().map(|limit| &*limit.state.name).collect(),
            retry: Retry::AfterNs(remaining_ns),
            cause: Cause::ShuttingDown,
            budgets: self.pass.budgets(),
            ..Refusal::default()
        }
    }
}

impl Drop for Delay<'_> {
    fn drop(&mut self) {
        self.slowest.metrics.held_now.dec();
        let delayed_ns = self.gate.clock.now().ns_since(self.since);
        self.slowest.metrics.hold_duration.observe(Duration::from_nanos(delayed_ns).as_secs_f64());
    }
}
