//! What limits in shadow mode would do to a request.

use smallvec::SmallVec;

use super::check::{Check, Checked as _, Checks, is_denied};
use super::delta::units;
use crate::base::telemetry::{LimitDecision, RequestRecord, Text};
use crate::base::time::Timestamp;
use crate::engine::limit::Decision;
use crate::engine::policy::{Limit, Mode};
use crate::engine::store::{Batch, Charge};

/// What a limit in shadow mode would have done to a request; `None` if it admits the request.
pub(super) fn shadowed(limit: &Limit, decision: &Decision) -> Option<LimitDecision> {
    let waits = limit.on_limit.waits(decision.denied?);
    Some(if waits { LimitDecision::ShadowHeld } else { LimitDecision::ShadowRefused })
}

/// Counts for each limit in shadow mode a request that others refuse.
pub(super) fn count_refused(checks: &Checks<'_>, now: Timestamp) {
    for check in checks.charges().iter().filter(|check| check.check.mode() == Mode::Shadow) {
        let (limit, state) = (check.check.applied.limit, check.check.state);
        if limit.candidate_of.is_some_and(|live| is_denied_only_by(live, checks)) {
            charge_candidate(check, now);
        } else if let Some(decided) = shadowed(limit, &check.decision()) {
            state.metrics.cells.count(decided);
        }
    }
}

/// Whether no limit but the one at `index` denies the request.
fn is_denied_only_by(index: usize, checks: &Checks<'_>) -> bool {
    checks.charges().iter().filter(|check| is_denied(check)).all(|check| check.check.applied.index == index)
}

/// Decides a request for a candidate that its limit alone refuses. The candidate is in the place of the limit, so it is
/// charged if it admits the request; a request that is never sent cannot be in flight.
fn charge_candidate(check: &Check<'_>, now: Timestamp) {
    let state = check.check.state;
    let alone = Charge::new(check.table(), check.key, check.rule, check.cost, false, ());
    let mut alone: Batch<'_, ()> = std::iter::once(alone).collect();
    if check.rule.is_released() {
        alone.peek(now);
    } else {
        alone.admit(now);
    }
    let [decided] = alone.charges() else { return };
    let decision = decided.decision();
    match shadowed(check.check.applied.limit, &decision) {
        Some(shadowed) => state.metrics.cells.count(shadowed),
        None => state.metrics.cells.decided(LimitDecision::Admitted, check.rule.percent(decision.remaining)),
    }
    if decided.is_charged() {
        state.report(check.key, check.rule, units(check.cost), now);
    }
}

/// Adds the limits in shadow mode that deny the request, as far as they are decided, to its record.
#[inline(never)]
pub(super) fn describe(checks: &Checks<'_>, record: &mut RequestRecord) {
    let denies = |check: &&Check<'_>| {
        check.check.mode() == Mode::Shadow && shadowed(check.check.applied.limit, &check.decision()).is_some()
    };
    let denying = checks.charges().iter().filter(denies).map(|check| &*check.check.state.name);
    let names = denying.collect::<SmallVec<[&str; 2]>>().join(",");
    if !names.is_empty() {
        record.set(Text::ShadowLimits, &names);
    }
}
