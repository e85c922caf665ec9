//! A request that would wait: whether it may, its expected wait, and its entry into the queue.
//!
//! Not here: the wait itself (`wait.rs`).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tokio::sync::Notify;

use super::capacity::{Footprint, HoldCaps};
use super::locked::Joining;
use super::wait::{NEVER_NS, UNKNOWN_NS, WaitItem, Waiting, expected_ns};
use super::wait_queue::{Backlog, rank_of};
use crate::base::telemetry::LimitDecision;
use crate::base::time::Timestamp;
use crate::engine::gate::check::Check;
use crate::engine::gate::refusal::Cause;
use crate::engine::gate::state::{Gate, LimitState};
use crate::engine::policy::{HoldRule, Priority, Stage};

/// A request that would wait, with everything that it needs to join a queue.
pub(in crate::engine::gate) struct Candidate<'l> {
    pub(in crate::engine::gate) gate: &'l Gate,
    pub(in crate::engine::gate) caps: HoldCaps,
    pub(in crate::engine::gate) items: SmallVec<[WaitItem<'l>; 4]>,
    pub(in crate::engine::gate) plan: Option<Box<str>>,
    pub(in crate::engine::gate) footprint: Footprint,
    pub(in crate::engine::gate) priority: Priority,
    pub(in crate::engine::gate) now: Timestamp,
}

/// A limit that denies a candidate and would let it wait.
#[derive(Clone, Copy)]
pub(in crate::engine::gate) struct HoldingLimit<'c, 'l> {
    /// The index of the limit among the candidate's items.
    pub(in crate::engine::gate) index: usize,
    pub(in crate::engine::gate) check: &'c Check<'l>,
    pub(in crate::engine::gate) rule: HoldRule,
}

/// Why a candidate may not wait, with its expected wait in nanoseconds.
type Denial = (Cause, u64);

impl<'l> HoldingLimit<'_, 'l> {
    /// Whether the limit is decided before identities are known.
    pub(in crate::engine::gate) fn is_arrival(&self) -> bool {
        self.check.check.applied.limit.stage == Stage::Arrival
    }

    /// Whether requests that come later may pass before one of this priority.
    pub(in crate::engine::gate) fn may_be_overtaken(&self, priority: Priority) -> bool {
        self.state().queues.may_be_overtaken(priority)
    }

    fn state(&self) -> &'l Arc<LimitState> {
        self.check.check.state
    }

    fn backlog(&self, priority: Priority) -> Backlog {
        self.state().queues.backlog_of(self.check.key, priority, self.check.cost)
    }

    /// The wait behind `backlog` in nanoseconds; [`UNKNOWN_NS`] if it ends with another request.
    fn expected_ns(&self, backlog: Backlog, now: Timestamp) -> u64 {
        expected_ns(self.check, backlog, now)
    }

    /// Whether the candidate may wait behind `backlog` for `expected_ns`.
    fn agrees(&self, backlog: Backlog, expected_ns: u64, max_wait_ns: Option<u64>) -> Result<(), Denial> {
        if backlog.waiting >= self.rule.max_waiting {
            return Err((Cause::QueueFull, expected_ns));
        }
        // An unknown wait is refused when it has lasted too long.
        if max_wait_ns.is_some_and(|max| expected_ns > max && expected_ns != UNKNOWN_NS) {
            return Err((Cause::WaitTooLong, expected_ns));
        }
        Ok(())
    }
}

/// The shortest of the waits that are allowed.
fn max_wait_ns(holding: &[HoldingLimit<'_, '_>]) -> Option<u64> {
    holding.iter().filter_map(|limit| limit.rule.max_wait_ns).min()
}

impl<'l> Candidate<'l> {
    /// The expected wait in nanoseconds, or why the request may not wait. Decides as [`Candidate::join`] does.
    pub(in crate::engine::gate) fn foresee(&self, holding: &[HoldingLimit<'_, 'l>]) -> Result<u64, Denial> {
        let Some((expected_ns, longest, backlog)) = self.longest(holding) else { return Err((Cause::Limit, 0)) };
        if self.gate.is_closed() {
            return Err((Cause::ShuttingDown, expected_ns));
        }
        if !self.gate.capacity.fits(self.footprint, self.caps) {
            return Err((Cause::QueueFull, expected_ns));
        }
        longest.agrees(backlog, expected_ns, max_wait_ns(holding)).map(|()| expected_ns)
    }

    /// The limit with the longest expected wait, that wait in nanoseconds, and its backlog.
    fn longest<'h, 'c>(&self, holding: &'h [HoldingLimit<'c, 'l>]) -> Option<(u64, &'h HoldingLimit<'c, 'l>, Backlog)> {
        let expected = |limit: &'h HoldingLimit<'c, 'l>| {
            let backlog = limit.backlog(self.priority);
            (limit.expected_ns(backlog, self.now), limit, backlog)
        };
        holding.iter().map(expected).max_by_key(|(ns, ..)| *ns)
    }

    /// Joins the queue of the limit with the longest expected wait, or returns why the request may not wait.
    pub(in crate::engine::gate) fn join(self, holding: &[HoldingLimit<'_, 'l>]) -> Result<Waiting<'l>, Denial> {
        let gate = self.gate;
        let Some((expected_ns, longest, backlog)) = self.longest(holding) else { return Err((Cause::Limit, 0)) };
        if gate.is_closed() {
            return Err((Cause::ShuttingDown, expected_ns));
        }
        let max_wait_ns = max_wait_ns(holding);
        let Some(reservation) = gate.capacity.reserve(self.footprint, self.caps) else {
            gate.metrics.hold_overflow.inc();
            return Err((Cause::QueueFull, expected_ns));
        };
        let rank = rank_of(self.priority, gate.ranks.fetch_add(1, Ordering::Relaxed));
        let wake = Arc::new(Notify::new());
        let check = longest.check;
        let joining = Joining { key: check.key, rank, cost: check.cost, wake: &wake, timer: None };
        if let Err(denial) = self.join_behind(longest, joining, (backlog, expected_ns), max_wait_ns) {
            if denial.0 == Cause::QueueFull {
                gate.metrics.hold_overflow.inc();
            }
            return Err(denial);
        }
        let held_by = longest.state();
        held_by.metrics.cells.count(LimitDecision::Held);
        held_by.metrics.held_now.inc();
        let mut waiting = Waiting {
            gate,
            items: self.items,
            plan: self.plan,
            index: longest.index,
            reserved_turns: SmallVec::new(),
            attended: SmallVec::new(),
            rank,
            wake,
            reservation: RefCell::new(Some(reservation)),
            since: self.now,
            max_wait_ns,
            held_by,
        };
        waiting.attend();
        Ok(waiting)
    }

    /// Joins the queue of `limit`. The expected wait is computed before the queue's lock is taken. If the backlog has
    /// grown by then, the wait is computed again.
    fn join_behind(
        &self,
        limit: &HoldingLimit<'_, 'l>,
        joining: Joining<'_>,
        seen: (Backlog, u64),
        max_wait_ns: Option<u64>,
    ) -> Result<(), Denial> {
        let (mut backlog, mut longest_ns) = seen;
        loop {
            limit.agrees(backlog, longest_ns, max_wait_ns)?;
            let timer = self.timer(limit, longest_ns);
            let joined = limit.state().queues.join(Joining { timer, ..joining }, |found| {
                let is_as_seen = found.units <= backlog.units && found.waiting < limit.rule.max_waiting;
                if is_as_seen { Ok(()) } else { Err(found) }
            });
            match joined {
                Ok(()) => return Ok(()),
                Err(grown) => backlog = grown,
            }
            longest_ns = longest_ns.max(limit.expected_ns(backlog, self.now));
        }
    }

    /// The instant at which a timer wakes the request, so that the request before it need not. None if that instant
    /// depends on other requests, on other sharers or on a store, or could differ from what the request before it computes.
    fn timer(&self, limit: &HoldingLimit<'_, 'l>, expected_ns: u64) -> Option<Timestamp> {
        let is_alone = limit.check.remote().is_none() && !limit.state().queues.is_shared();
        let is_known = expected_ns < NEVER_NS && is_alone && self.plan.is_none();
        is_known.then(|| self.now.saturating_add_ns(expected_ns))
    }
}
