//! The decision over all limits of one stage.

use smallvec::SmallVec;

use super::identify::identify;
use super::verdict::Taken;
use super::wait::{Candidate, Holding, Item, Waiting};
use super::{Cause, Charged, Gate, LimitState, Live, Pass, Refusal, Standing, Unidentified};
use crate::limit::{Decision, Key, Retry};
use crate::policy::key::Who;
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
    applied: Applied<'l>,
    key: Key,
    /// Others wait on this key already.
    queued: bool,
}

impl<'l> Case<'l> {
    #[inline]
    fn charge(&self) -> Charge<'l> {
        charge(self.state, self.key, self.applied.limit)
    }

    fn is_enforced(&self) -> bool {
        self.applied.limit.mode == Mode::Enforce
    }
}

/// What `limit` would take for a request.
#[inline]
pub(super) fn charge<'l>(state: &'l LimitState, key: Key, limit: &'l Limit) -> Charge<'l> {
    let enforced = limit.mode == Mode::Enforce;
    Charge { table: &state.table, key, quota: &limit.quota, cost: limit.cost, enforced }
}

/// Whether others wait on `key` already, before whom nobody passes.
#[inline]
fn would_queue(state: &LimitState, limit: &Limit, key: Key) -> bool {
    limit.on_limit != OnLimit::Reject && limit.mode == Mode::Enforce && state.line.has_waiters(key)
}

type Cases<'l> = SmallVec<[Case<'l>; 4]>;

impl Gate {
    /// Decides the limits of `stage` at the instant `now`. `head_bytes` is asked only of a request that would wait.
    #[inline]
    pub fn admit<'l>(
        &'l self,
        live: &'l Live,
        stage: Stage,
        facts: &Facts<'_>,
        head_bytes: impl FnOnce() -> usize,
        now: Timestamp,
    ) -> Result<Step<'l>, Unidentified<'l>> {
        let mut cases = Cases::new();
        live.policy.for_each_applied(stage, facts, |applied| {
            cases.push(Case { state: &live.states[applied.index], applied, key: Key::default(), queued: false });
        });
        match &*cases {
            [] => return Ok(Step::Pass(Pass::free())),
            [case] if stage == Stage::Arrival || live.policy.identities.is_empty() => {
                if let Some(pass) = self.admit_one(live, case, facts, now) {
                    return Ok(Step::Pass(pass));
                }
            }
            _ => {}
        }
        self.admit_all(live, stage, facts, &mut cases, head_bytes, now)
    }

    /// The usual request: one limit, which admits it. `None` if it does not, and nothing is charged.
    #[inline]
    fn admit_one<'l>(&self, live: &Live, case: &Case<'l>, facts: &Facts<'_>, now: Timestamp) -> Option<Pass<'l>> {
        let &Case { state, applied, .. } = case;
        let key = self.secret.key(&applied, facts, live.policy.client_ip.ipv6_prefix, &[]);
        if would_queue(state, applied.limit, key) {
            return None;
        }
        let charge = charge(state, key, applied.limit);
        let decision = charge.table.admit(key, charge.quota, charge.cost, now);
        decision.is_admitted().then(|| pass(std::iter::once((state, charge, &decision)), now))
    }

    fn admit_all<'l>(
        &'l self,
        live: &'l Live,
        stage: Stage,
        facts: &Facts<'_>,
        cases: &mut [Case<'l>],
        head_bytes: impl FnOnce() -> usize,
        now: Timestamp,
    ) -> Result<Step<'l>, Unidentified<'l>> {
        let is_queued = self.key(live, stage, facts, cases, now)?;
        let mut decisions = Decisions::new();
        let charges = cases.iter().map(Case::charge);
        let admitted = if is_queued {
            decisions.extend(charges.map(|charge| store::peek(&charge, now)));
            false
        } else {
            store::admit(charges, now, &mut decisions)
        };
        if admitted {
            let charged = cases.iter().zip(&decisions).map(|(case, decision)| (case.state, case.charge(), decision));
            return Ok(Step::Pass(pass(charged, now)));
        }
        Ok(self.beyond(live, cases, &decisions, head_bytes(), now))
    }

    /// Finds whose budgets they are, and says whether others wait on one of them.
    #[inline]
    fn key<'l>(
        &self,
        live: &'l Live,
        stage: Stage,
        facts: &Facts<'_>,
        cases: &mut [Case<'l>],
        now: Timestamp,
    ) -> Result<bool, Unidentified<'l>> {
        let found;
        let whos: &[Who<'_>] = match stage {
            Stage::Identified if !live.policy.identities.is_empty() => {
                found = identify(self, live, &cases.iter().map(|case| case.applied), facts, now)?;
                &found
            }
            _ => &[],
        };
        let mut is_queued = false;
        for index in 0..cases.len() {
            let (before, behind) = cases.split_at_mut(index);
            let Some(case) = behind.first_mut() else { break };
            let alike = before.iter().find(|other| other.applied.keyed_as == case.applied.keyed_as);
            case.key = match alike {
                Some(other) => other.key,
                None => self.secret.key(&case.applied, facts, live.policy.client_ip.ipv6_prefix, whos),
            };
            case.queued = would_queue(case.state, case.applied.limit, case.key);
            is_queued |= case.queued;
        }
        Ok(is_queued)
    }

    /// A request that at least one enforced limit denies: held if all of those hold, else refused.
    #[cold]
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
            all.filter(|(_, case, decision)| case.is_enforced() && (case.queued || !decision.is_admitted()))
        };
        let holding: Option<SmallVec<[Holding<'l>; 4]>> = denying()
            .map(|(place, case, decision)| match case.applied.limit.on_limit {
                OnLimit::Hold(rule) if decision.denied != Some(Retry::Never) => {
                    Some(Holding { place, state: case.state, charge: case.charge(), rule })
                }
                _ => None,
            })
            .collect();
        wake_behind(cases.iter().zip(decisions).map(|(case, decision)| (case.state, case.key, decision)));
        let refuse = |cause, expected_ns| {
            for (case, decision) in cases.iter().zip(decisions) {
                if !case.is_enforced() && !decision.is_admitted() {
                    case.state.metrics.cells.count(Decided::ShadowRejected);
                }
            }
            let denials = denying().map(|(_, case, decision)| (case.state, case.charge(), *decision));
            Step::Refuse(Box::new(refusal(denials, now, cause, expected_ns)))
        };
        let Some(holding) = holding else {
            return refuse(Cause::Limit, None);
        };
        let items = cases.iter().map(|case| Item { state: case.state, key: case.key }).collect();
        let candidate = Candidate { gate: self, caps: live.caps, items, head_bytes, now };
        match candidate.join(&holding) {
            Ok(waiting) => Step::Wait(Box::new(waiting)),
            Err((cause, expected_ns)) => refuse(cause, Some(expected_ns)),
        }
    }
}

/// Counts an admission and says where the client stands.
#[inline]
pub(super) fn pass<'l, 'c>(
    mut charged: impl ExactSizeIterator<Item = (&'l LimitState, Charge<'c>, &'c Decision)>,
    now: Timestamp,
) -> Pass<'l> {
    // The first goes into the answer as it is made: most requests have but one, and a copy costs as much as it does.
    let (mut first, mut standing) = (None, None);
    if let Some((state, charge, decision)) = charged.next() {
        first = admitted(state, &charge, decision, now);
        standing = standing_of(state, &charge, decision, now);
    }
    let mut rest = Vec::new();
    if charged.len() > 0 {
        rest.reserve_exact(charged.len());
        for (state, charge, decision) in charged {
            rest.extend(admitted(state, &charge, decision, now));
            standing = Standing::tightest(standing, standing_of(state, &charge, decision, now));
        }
    }
    Pass { standing, charged: Charged::new(first, rest), held: None }
}

/// Counts a charge, and takes note of it if it was made.
#[inline]
fn admitted<'l>(state: &'l LimitState, charge: &Charge<'_>, decision: &Decision, now: Timestamp) -> Option<Taken<'l>> {
    let is_admitted = decision.is_admitted();
    let decided = if is_admitted { Decided::Admitted } else { Decided::ShadowRejected };
    state.metrics.cells.decided(decided, charge.quota.percent(decision.remaining));
    is_admitted.then(|| Taken { state, key: charge.key, cost: charge.cost, full_at: decision.full_at(now) })
}

#[inline]
fn standing_of<'l>(
    state: &'l LimitState,
    charge: &Charge<'_>,
    decision: &Decision,
    now: Timestamp,
) -> Option<Standing<'l>> {
    (charge.enforced && decision.is_admitted()).then(|| Standing::new(&state.name, charge, decision, now))
}

/// Counts a refusal and says when to come back: after `expected_ns` if that is known, else after the longest wait.
pub(super) fn refusal<'l, 'c>(
    denials: impl Iterator<Item = (&'l LimitState, Charge<'c>, Decision)>,
    now: Timestamp,
    cause: Cause,
    expected_ns: Option<u64>,
) -> Refusal<'l> {
    let mut longest: Option<(Retry, Standing<'l>)> = None;
    let mut violated = SmallVec::new();
    for (state, charge, decision) in denials {
        state.metrics.cells.decided(Decided::Rejected, charge.quota.percent(decision.remaining));
        violated.push(&*state.name);
        let retry = decision.denied.unwrap_or(Retry::AfterNs(0));
        let standing = Standing::new(&state.name, &charge, &decision, now);
        if longest.as_ref().is_none_or(|(known, _)| retry > *known) {
            longest = Some((retry, standing));
        }
    }
    let (retry, standing) = longest.map_or((Retry::AfterNs(0), None), |(retry, standing)| (retry, Some(standing)));
    Refusal { standing, violated, retry: expected_ns.map_or(retry, Retry::AfterNs), cause }
}

/// After a refusal: whoever is next on a key that was charged for a moment may have seen it so, and overslept.
pub(super) fn wake_behind<'l, 'c>(decided: impl Iterator<Item = (&'l LimitState, Key, &'c Decision)>) {
    for (state, key, _) in decided.filter(|(_, _, decision)| decision.is_admitted()) {
        state.line.wake_front(key);
    }
}
