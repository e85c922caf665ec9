//! The decision over all limits of one stage.

use std::borrow::Borrow;

use smallvec::SmallVec;

use super::identify::{Whos, identify};
use super::wait::{Candidate, Holding, Item, Waiting};
use super::{Cause, Charged, Gate, LimitState, Live, Pass, Refusal, Standing, Unidentified};
use crate::limit::{Decision, Retry};
use crate::policy::{Applied, Facts, Limit, Mode, OnLimit, Stage};
use crate::store::{self, Charge, Decisions};
use crate::telemetry::Decided;
use crate::time::Timestamp;

/// What becomes of a request after one stage. The common case is small.
#[derive(Debug)]
pub enum Step<'l> {
    /// It passes the stage.
    Pass(Pass<'l>),
    /// It is refused.
    Refuse(Box<Refusal<'l>>),
    /// It waits.
    Wait(Box<Waiting<'l>>),
}

/// One limit that applies to the request in hand, with all that is needed to decide it.
struct Case<'l> {
    state: &'l LimitState,
    limit: &'l Limit,
    charge: Charge<'l>,
    /// Others wait on this key already.
    queued: bool,
}

impl<'l> Borrow<Charge<'l>> for Case<'l> {
    fn borrow(&self) -> &Charge<'l> {
        &self.charge
    }
}

type Cases<'l> = SmallVec<[Case<'l>; 4]>;

impl Gate {
    /// Decides the limits of `stage` at the instant `now`. `head_bytes` is asked only of a request that would wait.
    pub fn admit<'l>(
        &'l self,
        live: &'l Live,
        stage: Stage,
        facts: &Facts<'_>,
        head_bytes: impl FnOnce() -> usize,
        now: Timestamp,
    ) -> Result<Step<'l>, Unidentified<'l>> {
        let mut applied: SmallVec<[Applied<'l>; 4]> = SmallVec::new();
        live.policy.for_each_applied(stage, facts, |limit| applied.push(limit));
        if applied.is_empty() {
            return Ok(Step::Pass(Pass { standing: None, charged: Charged::default(), held: None }));
        }
        let whos = match stage {
            Stage::Arrival => Whos::new(),
            Stage::Identified if live.policy.identities.is_empty() => Whos::new(),
            Stage::Identified => identify(self, live, &applied, facts, now)?,
        };
        let mut cases = Cases::new();
        for applied in &applied {
            cases.push(self.case(live, applied, facts, &whos)); // in place: collecting would move all of them
        }
        Ok(self.decide(live, &cases, head_bytes, now))
    }

    fn case<'l>(&self, live: &'l Live, applied: &Applied<'l>, facts: &Facts<'_>, whos: &Whos<'_>) -> Case<'l> {
        let state = &*live.states[applied.index];
        let limit = applied.limit;
        let key = self.secret.key(applied, facts, live.policy.client_ip.ipv6_prefix, whos);
        let enforced = limit.mode == Mode::Enforce;
        Case {
            state,
            limit,
            queued: enforced && limit.on_limit != OnLimit::Reject && state.line.has_waiters(key),
            charge: Charge { table: &state.table, key, quota: limit.quota, cost: limit.cost, enforced },
        }
    }

    fn decide<'l>(
        &'l self,
        live: &'l Live,
        cases: &[Case<'l>],
        head_bytes: impl FnOnce() -> usize,
        now: Timestamp,
    ) -> Step<'l> {
        let mut decisions = Decisions::new();
        let admitted = if cases.iter().any(|case| case.queued) {
            decisions.extend(cases.iter().map(|case| store::peek(&case.charge, now)));
            false
        } else {
            store::admit(cases, now, &mut decisions)
        };
        if admitted {
            return Step::Pass(pass(
                cases.iter().zip(&decisions).map(|(case, decision)| (case.state, &case.charge, *decision)),
                now,
            ));
        }
        self.beyond(live, cases, &decisions, head_bytes(), now)
    }

    /// A request that at least one enforced limit denies: held if all of those hold, else refused.
    fn beyond<'l>(
        &'l self,
        live: &'l Live,
        cases: &[Case<'l>],
        decisions: &Decisions,
        head_bytes: usize,
        now: Timestamp,
    ) -> Step<'l> {
        let denying = || {
            let all = cases.iter().zip(decisions).enumerate().map(|(place, (case, decision))| (place, case, decision));
            all.filter(|(_, case, decision)| case.charge.enforced && (case.queued || !decision.is_admitted()))
        };
        let holding: Option<SmallVec<[Holding<'l>; 4]>> = denying()
            .map(|(place, case, decision)| match case.limit.on_limit {
                OnLimit::Hold(rule) if decision.denied != Some(Retry::Never) => {
                    Some(Holding { place, state: case.state, charge: case.charge, rule })
                }
                _ => None,
            })
            .collect();
        wake_behind(cases.iter().zip(decisions).map(|(case, decision)| (case.state, &case.charge, decision)));
        let refuse = |cause, expected_ns| {
            for (case, decision) in cases.iter().zip(decisions) {
                if !case.charge.enforced && !decision.is_admitted() {
                    case.state.metrics.cells.count(Decided::ShadowRejected);
                }
            }
            let denials = denying().map(|(_, case, decision)| (case.state, &case.charge, *decision));
            Step::Refuse(Box::new(refusal(denials, now, cause, expected_ns)))
        };
        let Some(holding) = holding else {
            return refuse(Cause::Limit, None);
        };
        let items = cases.iter().map(|case| Item { state: case.state, key: case.charge.key }).collect();
        let candidate = Candidate { gate: self, caps: live.caps, items, head_bytes, now };
        match candidate.join(&holding) {
            Ok(waiting) => Step::Wait(Box::new(waiting)),
            Err((cause, expected_ns)) => refuse(cause, Some(expected_ns)),
        }
    }
}

/// Counts an admission and says where the client stands.
pub(super) fn pass<'l, 'c>(
    charged: impl Iterator<Item = (&'l LimitState, &'c Charge<'l>, Decision)>,
    now: Timestamp,
) -> Pass<'l>
where
    'l: 'c,
{
    let mut pass = Pass { standing: None, charged: Charged::default(), held: None };
    for (state, charge, decision) in charged {
        observe(state, charge, &decision);
        if !decision.is_admitted() {
            state.metrics.cells.count(Decided::ShadowRejected);
            continue;
        }
        state.metrics.cells.count(Decided::Admitted);
        pass.charged.add(state, charge, &decision, now);
        if charge.enforced {
            let standing = Standing::new(&state.name, charge, &decision, now);
            pass.standing = Standing::tightest(pass.standing, Some(standing));
        }
    }
    pass
}

/// Counts a refusal and says when to come back: after `expected_ns` if that is known, else after the longest wait.
pub(super) fn refusal<'l, 'c>(
    denials: impl Iterator<Item = (&'l LimitState, &'c Charge<'l>, Decision)>,
    now: Timestamp,
    cause: Cause,
    expected_ns: Option<u64>,
) -> Refusal<'l>
where
    'l: 'c,
{
    let mut longest: Option<(Retry, Standing<'l>)> = None;
    let mut violated = SmallVec::new();
    for (state, charge, decision) in denials {
        observe(state, charge, &decision);
        state.metrics.cells.count(Decided::Rejected);
        violated.push(&*state.name);
        let retry = decision.denied.unwrap_or(Retry::AfterNs(0));
        let standing = Standing::new(&state.name, charge, &decision, now);
        if longest.as_ref().is_none_or(|(known, _)| retry > *known) {
            longest = Some((retry, standing));
        }
    }
    let (retry, standing) = longest.map_or((Retry::AfterNs(0), None), |(retry, standing)| (retry, Some(standing)));
    Refusal { standing, violated, retry: expected_ns.map_or(retry, Retry::AfterNs), cause }
}

/// After a refusal: whoever is next on a key that was charged for a moment may have seen it so, and overslept.
pub(super) fn wake_behind<'l, 'c>(decided: impl Iterator<Item = (&'l LimitState, &'c Charge<'l>, &'c Decision)>)
where
    'l: 'c,
{
    for (state, charge, _) in decided.filter(|(_, _, decision)| decision.is_admitted()) {
        state.line.wake_front(charge.key);
    }
}

fn observe(state: &LimitState, charge: &Charge<'_>, decision: &Decision) {
    state.metrics.cells.headroom(decision.remaining, charge.quota.burst());
}
