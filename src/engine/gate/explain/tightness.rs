//! The tightness of the limit that the headers of an answer would report.

use crate::base::time::Timestamp;
use crate::engine::gate::check::Check;
use crate::engine::gate::standing::{Standing, known_wait};
use crate::engine::limit::tightness::Tightness;

/// The tightness of the denying limit with the longest wait, as a refusal reports it. `None` without a denial.
pub(super) fn of_denials<'c, 'l: 'c>(
    denials: impl Iterator<Item = &'c Check<'l>>,
    now: Timestamp,
) -> Option<Tightness> {
    let denied = denials.map(|check| {
        let decision = check.decision();
        let standing = Standing::new(&check.check.state.name, check, &decision, now);
        (known_wait(decision.denied), standing.tightness())
    });
    denied.reduce(|longest, other| if other.0 > longest.0 { other } else { longest }).map(|(_, tightness)| tightness)
}

/// The tightness of a limit after `check`, which the limit has not charged yet. `None` if the limit has no rate.
pub(super) fn after(check: &Check<'_>, now: Timestamp) -> Option<Tightness> {
    let by_rate = check.table().remaining(check.key, check.rule, check.cost, now);
    let (share, rates) = (check.foreseen_share(now), check.rule.rates());
    // Headers have the share of what remains of one rate, while it suffices for another request.
    let decided = check.decision().remaining;
    let decided = (share.is_some() && rates.len() == 1 && decided >= check.cost.max(1)).then_some(decided);
    let cost = if check.is_admitted() { share.unwrap_or(check.cost) } else { 0 };
    let after = rates.iter().zip(by_rate).map(|(rate, found)| {
        let remaining = decided.unwrap_or(found.units.saturating_sub(cost));
        let is_short = remaining < check.cost.max(1);
        let denied = if is_short { known_wait(Some(check.wait(check.cost, now))) } else { None };
        Tightness { denied, remaining, capacity: rate.capacity() }
    });
    after.reduce(tighter)
}

/// The tighter of two; `one` if they are equal.
pub(super) fn tighter(one: Tightness, other: Tightness) -> Tightness {
    if other.is_tighter(one) { other } else { one }
}
