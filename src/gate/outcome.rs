//! What is counted and told of outcomes: where a client stands, what it is charged, when it may come back.
//!
//! For those that were not admitted at first sight: that is `charge.rs`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::budget::{Budget, Budgets, told};
use super::journal::units;
use super::settle::Terms;
use super::verdict::Taken;
use super::{Cause, Charged, LimitState, Pass, Refusal, Standing};
use crate::limit::{Decision, Key, Retry};
use crate::policy::{Limit, Mode};
use crate::store::{Charge, Outcome};
use crate::telemetry::Decided;
use crate::time::Timestamp;

/// Counts an admission and says where the client stands.
pub(super) fn pass<'l, 'c>(
    charged: impl Iterator<Item = (&'l Arc<LimitState>, &'c Limit, Charge<'c>, Outcome)>,
    now: Timestamp,
) -> Pass<'l> {
    let (mut taken, mut standing, mut budgets) = (SmallVec::new(), None, Budgets::new());
    for (state, limit, charge, outcome) in charged {
        budgets.extend(Budget::of(state, limit, &charge));
        standing = Standing::tightest(standing, standing_of(state, limit, &charge, &outcome, now));
        taken.extend(admitted(state, limit, &charge, outcome, now));
    }
    Pass { standing, charged: Charged::new(taken), held: None, budgets }
}

/// What a limit in shadow mode, which says this, would have done to the request; none if it admits it.
pub(super) fn shadowed(limit: &Limit, decision: &Decision) -> Option<Decided> {
    let waits = limit.on_limit.waits(decision.denied?);
    Some(if waits { Decided::ShadowHeld } else { Decided::ShadowRejected })
}

/// Counts a charge, and takes note of it if it was made.
fn admitted<'l>(
    state: &'l Arc<LimitState>,
    limit: &Limit,
    charge: &Charge<'_>,
    outcome: Outcome,
    now: Timestamp,
) -> Option<Taken<'l>> {
    let is_admitted = outcome.is_admitted();
    let decided = shadowed(limit, &outcome.decision).unwrap_or(Decided::Admitted);
    state.metrics.cells.decided(decided, charge.rule.percent(outcome.decision.remaining));
    if !is_admitted {
        return None;
    }
    let &Charge { key, rule, cost, .. } = charge;
    state.tell(key, rule, units(cost));
    let terms = Terms::of(state, key, limit, rule, cost, now);
    Some(Taken { state, key, receipt: outcome.receipt, terms })
}

fn standing_of<'l>(
    state: &'l LimitState,
    limit: &Limit,
    charge: &Charge<'_>,
    outcome: &Outcome,
    now: Timestamp,
) -> Option<Standing<'l>> {
    (limit.mode == Mode::Enforce && outcome.is_admitted())
        .then(|| Standing::new(&state.name, charge, &outcome.decision, now))
}

/// Counts a refusal and says when to come back: after `expected_ns` if that is known, else after the longest wait.
pub(super) fn refusal<'l, 'c>(
    denials: impl Iterator<Item = (&'l Arc<LimitState>, &'c Limit, Charge<'c>, &'c Outcome)>,
    now: Timestamp,
    cause: Cause,
    expected_ns: Option<u64>,
) -> Refusal<'l> {
    let mut longest: Option<(Retry, Standing<'l>)> = None;
    let (mut violated, mut budgets) = (SmallVec::new(), Budgets::new());
    for (state, limit, charge, Outcome { decision, .. }) in denials {
        if cause != Cause::ShuttingDown {
            state.refused(limit, charge.key, now);
        }
        state.metrics.cells.decided(Decided::Rejected, charge.rule.percent(decision.remaining));
        violated.push(&*state.name);
        budgets.extend(Budget::of(state, limit, &charge));
        let retry = decision.denied.unwrap_or(Retry::AfterNs(0));
        let standing = Standing::new(&state.name, &charge, decision, now);
        // A release comes at an unknown time, so it is waited for after what has a known time.
        if longest.as_ref().is_none_or(|(known, _)| told(Some(retry)) > told(Some(*known))) {
            longest = Some((retry, standing));
        }
    }
    let (retry, standing) = longest.map_or((Retry::AfterNs(0), None), |(retry, standing)| (retry, Some(standing)));
    let expected = told(expected_ns.map(Retry::AfterNs));
    Refusal { standing, violated, retry: expected.unwrap_or(retry), cause, budgets }
}

/// After a refusal: whoever is next on a key that was charged for a moment may have seen it so, and overslept.
pub(super) fn wake_behind<'l, 'c>(decided: impl Iterator<Item = (&'l Arc<LimitState>, Key, &'c Outcome)>) {
    for (state, key, _) in decided.filter(|(_, _, outcome)| outcome.is_admitted()) {
        state.line.wake_front(key);
    }
}
