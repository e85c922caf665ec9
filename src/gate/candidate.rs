//! A request that would wait: whether it may, for how long, and joining the queue.
//!
//! Not here: waiting itself (`wait.rs`).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tokio::sync::Notify;

use super::hold::Backlog;
use super::room::Size;
use super::wait::{Item, UNKNOWN_NS, Waiting, expected_ns};
use super::{Cause, Gate, HoldCaps, LimitState};
use crate::policy::HoldRule;
use crate::store::Charge;
use crate::telemetry::Decided;
use crate::time::Timestamp;

/// A request that would wait, with what it needs to join a queue.
pub(super) struct Candidate<'l> {
    pub(super) gate: &'l Gate,
    pub(super) caps: HoldCaps,
    pub(super) items: SmallVec<[Item<'l>; 4]>,
    pub(super) plan: Option<Box<str>>,
    pub(super) size: Size,
    pub(super) now: Timestamp,
}

/// A limit that denies a candidate and would let it wait.
#[derive(Clone, Copy)]
pub(super) struct Holding<'l> {
    pub(super) place: usize,
    pub(super) state: &'l Arc<LimitState>,
    pub(super) charge: Charge<'l>,
    pub(super) rule: HoldRule,
}

impl Holding<'_> {
    /// The wait behind so many units, in nanoseconds; [`UNKNOWN_NS`] if it ends with another request.
    fn expected_ns(&self, ahead: u64, now: Timestamp) -> u64 {
        expected_ns(&self.charge, ahead, now)
    }

    /// Whether one may wait behind `backlog`, and how long that is.
    fn agrees(
        &self,
        backlog: Backlog,
        expected_ns: u64,
        max_wait_ns: Option<u64>,
        now: Timestamp,
    ) -> Result<u64, (Cause, u64)> {
        let expected_ns = expected_ns.max(self.expected_ns(backlog.units, now));
        if backlog.waiting >= self.rule.max_waiting {
            return Err((Cause::QueueFull, expected_ns));
        }
        // A wait that nobody knows ends when it has lasted too long.
        if max_wait_ns.is_some_and(|max| expected_ns > max && expected_ns != UNKNOWN_NS) {
            return Err((Cause::WaitTooLong, expected_ns));
        }
        Ok(expected_ns)
    }
}

/// The shortest of the waits that are allowed.
fn max_wait_ns(holding: &[Holding<'_>]) -> Option<u64> {
    holding.iter().filter_map(|one| one.rule.max_wait_ns).min()
}

impl<'l> Candidate<'l> {
    /// The wait that it would have, or why it would have none; as [`Candidate::join`] decides, without joining.
    pub(super) fn foresee(&self, holding: &[Holding<'l>]) -> Result<u64, (Cause, u64)> {
        let Some((expected_ns, longest)) = self.longest(holding) else { return Err((Cause::Limit, 0)) };
        if self.gate.is_closed() {
            return Err((Cause::ShuttingDown, expected_ns));
        }
        if !self.gate.has_room(self.size, self.caps) {
            return Err((Cause::QueueFull, expected_ns));
        }
        let backlog = longest.state.line.backlog(longest.charge.key);
        longest.agrees(backlog, expected_ns, max_wait_ns(holding), self.now)
    }

    /// The limit with the longest wait, and how long that is in nanoseconds.
    fn longest<'h>(&self, holding: &'h [Holding<'l>]) -> Option<(u64, &'h Holding<'l>)> {
        let expected = |one: &Holding<'_>| one.expected_ns(one.state.line.backlog(one.charge.key).units, self.now);
        holding.iter().map(|one| (expected(one), one)).max_by_key(|(ns, _)| *ns)
    }

    /// Joins the queue of the limit with the longest wait; if it may not, says why and how long it would have been.
    pub(super) fn join(self, holding: &[Holding<'l>]) -> Result<Waiting<'l>, (Cause, u64)> {
        let now = self.now;
        let Some((expected_ns, longest)) = self.longest(holding) else { return Err((Cause::Limit, 0)) };
        if self.gate.is_closed() {
            return Err((Cause::ShuttingDown, expected_ns));
        }
        let max_wait_ns = max_wait_ns(holding);
        let Some(reserved) = self.gate.reserve(self.size, self.caps) else {
            self.gate.metrics.hold_overflow.inc();
            return Err((Cause::QueueFull, expected_ns));
        };
        let rank = self.gate.ranks.fetch_add(1, Ordering::Relaxed);
        let wake = Arc::new(Notify::new());
        longest.state.line.join(longest.charge.key, rank, longest.charge.cost, &wake, |backlog| {
            let agreed = longest.agrees(backlog, expected_ns, max_wait_ns, now);
            if matches!(agreed, Err((Cause::QueueFull, _))) {
                self.gate.metrics.hold_overflow.inc();
            }
            agreed.map(|_| ())
        })?;
        longest.state.metrics.cells.count(Decided::Held);
        longest.state.metrics.held_now.inc();
        Ok(Waiting {
            gate: self.gate,
            items: self.items,
            plan: self.plan,
            place: longest.place,
            kept: SmallVec::new(),
            rank,
            wake,
            reserved: RefCell::new(Some(reserved)),
            since: now,
            max_wait_ns,
            held_by: longest.state,
        })
    }
}
