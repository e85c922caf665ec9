//! Charging all limits of a request, where that is all there is to do.
//!
//! By far the most requests are decided here. What is made is made where it stays: a copy of something that was just
//! written in pieces costs more than making it.

use super::case::{Case, Took};
use super::journal::units;
use super::outcome::shadowed;
use super::settle::Terms;
use super::verdict::{Others, Taken};
use super::{Pass, Standing, budget};
use crate::limit::{Algorithm, Decision};
use crate::policy::Mode;
use crate::store::{self, Known, Outcomes};
use crate::telemetry::Decided;
use crate::time::Timestamp;

/// Charges all cases of `pass`; or none, and says what each of their limits would say.
#[inline]
pub(super) fn charge_all(pass: &mut Pass<'_>, now: Timestamp) -> Option<Outcomes> {
    let charged = &mut pass.charged;
    charged.at = now;
    let mut denied = None;
    for (place, case) in charged.cases.iter_mut().enumerate() {
        let known = case.state.table.charge_known(case.key, case.rule, case.cost, now);
        let decision = match known {
            // A bucket is nothing that is released.
            Some(known) if case.applied.limit.after.is_none() => {
                let decision = known.decision();
                if decision.is_admitted() {
                    (case.taken, case.given_back) = (Took::Plain, known.given_back());
                }
                decision
            }
            known => charge_other(case, known, &mut charged.others, now),
        };
        (case.remaining, case.reset_after_ns) = (decision.remaining, decision.reset_after_ns);
        if case.enforced && !decision.is_admitted() {
            denied = Some((place, decision));
            break;
        }
    }
    if let Some((place, decision)) = denied {
        charged.undo(now);
        return Some(said(&charged.cases, place, decision, now));
    }
    if let Some(others) = &mut charged.others {
        set_terms(&charged.cases, others, now);
    }
    let cases = &charged.cases[..];
    if cases.first().is_some_and(|case| case.state.journal.is_on()) {
        tell(cases);
    }
    pass.standing = count(cases, now).map(|case| standing(case, now));
    None
}

/// Charges a limit of another algorithm, or a key that is new, or one with which more is to be done.
#[inline(never)]
fn charge_other<'l>(
    case: &mut Case<'l>,
    known: Option<Known<'_>>,
    others: &mut Option<Box<Others<'l>>>,
    now: Timestamp,
) -> Decision {
    let outcome = match known {
        Some(known) => known.outcome(now),
        None => case.state.table.admit(case.key, case.rule, case.cost, now),
    };
    if outcome.is_admitted() {
        let taken = Taken { state: case.state, key: case.key, receipt: outcome.receipt, terms: None };
        others.get_or_insert_default().push(taken);
        case.taken = Took::Other;
    }
    outcome.decision
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
    for case in cases.iter().filter(|case| case.taken != Took::Nothing) {
        case.state.tell(case.key, case.rule, units(case.cost));
    }
}

/// Counts that all limits are charged, and returns the tightest.
#[inline]
fn count<'c, 'l>(cases: &'c [Case<'l>], now: Timestamp) -> Option<&'c Case<'l>> {
    let mut tightest: Option<&Case<'_>> = None;
    for case in cases {
        let is_charged = case.taken != Took::Nothing;
        let decided = if is_charged { Decided::Admitted } else { shadow(case, now) };
        case.state.metrics.cells.decided(decided, case.rule.percent(case.remaining));
        if is_charged
            && case.applied.limit.mode == Mode::Enforce
            && tightest.is_none_or(|other| is_tighter(case, other, now))
        {
            tightest = Some(case);
        }
    }
    tightest
}

/// What a limit in shadow mode, which does not admit the request, would have done to it.
#[cold]
fn shadow(case: &Case<'_>, now: Timestamp) -> Decided {
    let decision = store::peek(&case.charge(), now).decision;
    shadowed(case.applied.limit, &decision).unwrap_or(Decided::ShadowRejected)
}

fn is_tighter(one: &Case<'_>, other: &Case<'_>, now: Timestamp) -> bool {
    let is_plain = |case: &Case<'_>| case.remaining >= case.cost.max(1) && !matches!(case.rule, Algorithm::Several(_));
    if is_plain(one) && is_plain(other) {
        let tightness = |case: &Case<'_>| (None, case.remaining, case.rule.capacity());
        return budget::is_tighter(tightness(one), tightness(other));
    }
    standing(one, now).is_tighter(&standing(other, now))
}

/// Where the client stands with a limit that is charged.
#[inline]
fn standing<'l>(case: &Case<'l>, now: Timestamp) -> Standing<'l> {
    let decision = Decision { denied: None, remaining: case.remaining, reset_after_ns: case.reset_after_ns };
    Standing::new(&case.state.name, &case.charge(), &decision, now)
}

/// Says how those charges are settled that may not simply stay.
#[inline(never)]
fn set_terms<'l>(cases: &[Case<'l>], others: &mut Others<'l>, now: Timestamp) {
    for (case, taken) in cases.iter().filter(|case| case.taken == Took::Other).zip(others) {
        taken.terms = Terms::of(case.state, case.key, case.applied.limit, case.rule, case.cost, now);
    }
}
