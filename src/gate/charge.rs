//! Charging all limits of a request, where that is all there is to do.
//!
//! By far the most requests are decided here. What is made is made where it stays: a copy of something that was just
//! written in pieces costs more than making it.

use super::decide::{Case, Cases};
use super::journal::units;
use super::settle::Terms;
use super::verdict::{Plain, Taken};
use super::{Charged, Pass, Standing};
use crate::limit::Decision;
use crate::policy::Mode;
use crate::store::{self, Known, Outcomes};
use crate::telemetry::Decided;
use crate::time::Timestamp;

/// The limit of which the smallest part is left, by its place, and what it said.
type Tightest = Option<(usize, Decision)>;

/// Charges all limits, or none: then it says what each of them would say.
#[inline]
pub(super) fn charge_all<'l>(cases: &mut Cases<'l>, pass: &mut Pass<'l>, now: Timestamp) -> Option<Outcomes> {
    let (charged, mut tightest) = (&mut pass.charged, None);
    charged.reserve(cases.len());
    for place in 0..cases.len() {
        let (before, behind) = cases.split_at_mut(place);
        let Some(case) = behind.first_mut() else { break };
        let charge = case.charge();
        let decision = match charge.table.charge_known(charge.key, charge.rule, charge.cost, now) {
            Some(known) if !Terms::are_needed(case.applied.limit, charge.rule) => {
                let decision = known.decision();
                if decision.is_admitted() {
                    charged.push_plain(Plain { state: case.state, key: charge.key, receipt: known.receipt(now) });
                }
                decision
            }
            known => charge_other(case, known, charged, now),
        };
        case.left_percent = charge.rule.percent(decision.remaining);
        case.is_charged = decision.is_admitted();
        if charge.enforced && !case.is_charged {
            charged.undo(now);
            return Some(said(cases, place, decision, now));
        }
        note_tightest(&mut tightest, before, case, place, decision);
    }
    count(cases, charged, now);
    if cases.first().is_some_and(|case| case.state.journal.is_on()) {
        tell(cases);
    }
    pass.standing = tightest.and_then(|(place, decision)| {
        let case = cases.get(place)?;
        Some(Standing::new(&case.state.name, &case.charge(), &decision, now))
    });
    None
}

/// Charges a limit of another algorithm, or a key that is new, or one with which more is to be done.
#[inline(never)]
fn charge_other<'l>(
    case: &mut Case<'l>,
    known: Option<Known<'_>>,
    charged: &mut Charged<'l>,
    now: Timestamp,
) -> Decision {
    let outcome = match known {
        Some(known) => known.outcome(now),
        None => case.state.table.admit(case.key, case.charge().rule, case.cost, now),
    };
    if outcome.is_admitted() {
        charged.push(Taken { state: case.state, key: case.key, receipt: outcome.receipt, terms: None });
        case.has_terms = true;
    }
    outcome.decision
}

#[inline]
fn note_tightest(tightest: &mut Tightest, before: &[Case<'_>], case: &Case<'_>, place: usize, decision: Decision) {
    if !case.is_charged || case.applied.limit.mode != Mode::Enforce {
        return;
    }
    let part = |remaining: u64, other: &Case<'_>| u128::from(remaining) * u128::from(other.charge().rule.capacity());
    let is_tightest = tightest.as_ref().is_none_or(|(other, tightest)| {
        before.get(*other).is_none_or(|other| part(decision.remaining, other) < part(tightest.remaining, case))
    });
    if is_tightest {
        *tightest = Some((place, decision));
    }
}

/// What the limits say if the one at `place` said this: the others as they would.
#[cold]
fn said(cases: &[Case<'_>], place: usize, decision: Decision, now: Timestamp) -> Outcomes {
    let said = |(other, case): (usize, &Case<'_>)| {
        if other == place { decision.into() } else { store::peek(&case.charge(), now) }
    };
    cases.iter().enumerate().map(said).collect()
}

/// Somebody is told what is charged.
#[cold]
fn tell(cases: &[Case<'_>]) {
    for case in cases.iter().filter(|case| case.is_charged) {
        case.state.tell(case.key, case.charge().rule, units(case.cost));
    }
}

/// All limits are charged.
#[inline]
fn count<'l>(cases: &[Case<'l>], charged: &mut Charged<'l>, now: Timestamp) {
    for case in cases {
        let decided = if case.is_charged { Decided::Admitted } else { Decided::ShadowRejected };
        case.state.metrics.cells.decided(decided, case.left_percent);
    }
    if cases.iter().any(|case| case.has_terms) {
        let others = cases.iter().filter(|case| case.has_terms).zip(charged.others());
        for (case, taken) in others {
            taken.terms = Terms::of(case.state, case.key, case.applied.limit, case.charge().rule, case.cost, now);
        }
    }
}
