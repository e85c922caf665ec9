//! What limits in shadow mode would do to a request.

use smallvec::SmallVec;

use super::check::{Check, Checked, Checks, is_denied};
use super::delta::units;
use crate::base::telemetry::{LimitDecision, RequestRecord, Text};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Decision};
use crate::engine::policy::{Limit, Mode};
use crate::engine::store::{Batch, Charge};

/// What a limit in shadow mode would have done to a request under `rule`; `None` if it admits the request.
pub(super) fn shadowed(limit: &Limit, rule: &Algorithm, decision: &Decision) -> Option<LimitDecision> {
    let waits = limit.on_limit.waits(decision.denied?) && rule.capacity() > 0;
    Some(if waits { LimitDecision::ShadowHeld } else { LimitDecision::ShadowRefused })
}

/// Counts for each limit in shadow mode a request that others refuse.
pub(super) fn count_refused(checks: &Checks<'_>, now: Timestamp) {
    for check in checks.charges().iter().filter(|check| check.check.mode() == Mode::Shadow) {
        let (limit, state) = (check.check.applied.limit, check.check.state);
        let live = limit.candidate_of.filter(|_| !check.rule.is_released());
        if live.is_some_and(|live| is_denied_only_by(live, checks)) {
            charge_candidate(check, now);
        } else if let Some(decided) = shadowed(limit, check.rule, &check.decision()) {
            state.metrics.cells.count(decided);
        }
    }
}

/// Whether no limit but the one at `index` denies the request.
fn is_denied_only_by(index: usize, checks: &Checks<'_>) -> bool {
    checks.charges().iter().filter(|check| is_denied(check)).all(|check| check.check.applied.index == index)
}

/// Decides a request for a candidate that its limit alone refuses. The candidate is in the place of the limit, so it is
/// charged if it admits the request.
fn charge_candidate(check: &Check<'_>, now: Timestamp) {
    let state = check.check.state;
    let alone = Charge::new(check.table(), check.key, check.rule, check.cost, false, ());
    let mut alone: Batch<'_, ()> = std::iter::once(alone).collect();
    alone.admit(now);
    let [decided] = alone.charges() else { return };
    let decision = decided.decision();
    match shadowed(check.check.applied.limit, check.rule, &decision) {
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
    if let Some(names) = denying(checks) {
        add_names(record, &names);
    }
}

/// Adds names of limits to those of an earlier stage.
pub(super) fn add_names(record: &mut RequestRecord, names: &str) {
    let before = record.text(Text::ShadowLimits);
    let all = if before.is_empty() { names.to_owned() } else { format!("{before},{names}") };
    record.set(Text::ShadowLimits, &all);
}

/// The names of the limits in shadow mode that deny the request, with commas; `None` if there are none.
pub(super) fn denying<'l, C: Checked<'l>>(batch: &Batch<'_, C>) -> Option<Box<str>> {
    let denies = |charge: &&Charge<'_, C>| {
        charge.check.mode() == Mode::Shadow && shadowed(charge.check.limit(), charge.rule, &charge.decision()).is_some()
    };
    let denying = batch.charges().iter().filter(denies).map(|charge| &*charge.check.state().name);
    let names = denying.collect::<SmallVec<[&str; 2]>>();
    (!names.is_empty()).then(|| names.join(",").into())
}
