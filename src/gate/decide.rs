//! The decision over all limits of one stage.

use std::sync::Arc;

use smallvec::SmallVec;

use super::ban;
use super::delay::{Decided as Limited, Delayed, is_late};
use super::identify::{Asked, Whos, identify};
use super::settle::Terms;
use super::verdict::Taken;
use super::wait::{Candidate, Holding, Item, Waiting};
use super::{Cause, Charged, Gate, LimitState, Live, Pass, Refusal, Standing, Unidentified};
use crate::limit::{Key, Retry};
use crate::policy::key::Who;
use crate::policy::{Applied, Facts, Limit, Mode, OnLimit, Stage, Variant};
use crate::store::{self, Charge, Outcome, Outcomes};
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
    /// It passes, but later.
    Delay(Box<Delayed<'l>>),
}

/// One limit that applies to the request in hand, with all that is needed to decide it.
pub(super) struct Case<'l> {
    pub(super) state: &'l Arc<LimitState>,
    pub(super) applied: Applied<'l>,
    pub(super) key: Key,
    /// Which of the limit's rules it goes by.
    pub(super) variant: Variant,
    pub(super) cost: u64,
    /// Others wait on this key already.
    pub(super) queued: bool,
}

impl<'l> Case<'l> {
    #[inline]
    pub(super) fn charge(&self) -> Charge<'l> {
        charge(self.state, self.key, self.applied.limit, self.variant, self.cost)
    }

    /// Whether it refuses requests beyond it, or makes them wait.
    pub(super) fn denies(&self) -> bool {
        self.charge().enforced
    }
}

/// What `limit` would take for a request. One that its variant does not limit is charged as usual by nobody: such
/// cases are sorted out before.
#[inline]
pub(super) fn charge<'l>(state: &'l LimitState, key: Key, limit: &'l Limit, variant: Variant, cost: u64) -> Charge<'l> {
    let enforced = limit.mode == Mode::Enforce && !matches!(limit.on_limit, OnLimit::Delay(_));
    let rule = limit.allowed.rule(variant).unwrap_or(&limit.allowed.usual);
    Charge { table: &state.table, key, rule, cost, enforced }
}

/// Whether others wait on `key` already, before whom nobody passes.
#[inline]
fn would_queue(state: &LimitState, limit: &Limit, key: Key) -> bool {
    limit.on_limit.is_hold() && limit.mode == Mode::Enforce && state.line.has_waiters(key)
}

pub(super) type Cases<'l> = SmallVec<[Case<'l>; 4]>;

impl Live {
    /// Adds the limits of `stage` that apply to a request, without their keys. They are made where they stay: copying
    /// them costs as much as finding them.
    #[inline]
    pub(super) fn find<'l>(&'l self, stage: Stage, facts: &Facts<'_>, cases: &mut Cases<'l>) {
        self.policy.for_each_applied(stage, facts, |applied| {
            let cost = applied.limit.cost.units(facts);
            let (state, key, variant) = (&self.states[applied.index], Key::default(), Variant::Usual);
            cases.push(Case { state, applied, key, variant, cost, queued: false });
        });
    }
}

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
        live.find(stage, facts, &mut cases);
        match &mut *cases {
            [] => return Ok(Step::Pass(Pass::free())),
            [case]
                if !live.is_special[case.applied.index]
                    && (stage == Stage::Arrival || live.policy.identities.is_empty()) =>
            {
                if let Some(charge) = self.charge_alone(live, case, facts, now) {
                    let outcome = charge.table.admit(charge.key, charge.rule, charge.cost, now);
                    if outcome.is_admitted() {
                        let charged = (case.state, case.applied.limit, charge, outcome);
                        return Ok(Step::Pass(pass(std::iter::once(charged), now)));
                    }
                    if charge.enforced {
                        let outcomes = Outcomes::from_iter([outcome]);
                        self.note_refused(live, facts, &[], cases.iter());
                        return Ok(self.beyond(live, &cases, &outcomes, head_bytes(), now));
                    }
                }
            }
            _ => {}
        }
        self.admit_all(live, stage, facts, &mut cases, head_bytes, now)
    }

    /// The usual request, with one limit: what that would charge. None if others wait on its key, or it is banned.
    #[inline]
    fn charge_alone<'l>(
        &self,
        live: &Live,
        case: &mut Case<'l>,
        facts: &Facts<'_>,
        now: Timestamp,
    ) -> Option<Charge<'l>> {
        let key = self.secret.key(&case.applied, facts, live.policy.client_ip.ipv6_prefix, &[]);
        case.key = key;
        let (state, limit) = (case.state, case.applied.limit);
        if would_queue(state, limit, key) || state.banned_ns(limit, key, now).is_some() {
            return None;
        }
        Some(charge(state, key, limit, Variant::Usual, case.cost))
    }

    fn admit_all<'l>(
        &'l self,
        live: &'l Live,
        stage: Stage,
        facts: &Facts<'_>,
        cases: &mut Cases<'l>,
        head_bytes: impl FnOnce() -> usize,
        now: Timestamp,
    ) -> Result<Step<'l>, Unidentified<'l>> {
        let mut whos = Whos::new();
        let is_queued = self.key(live, stage, facts, cases, &mut whos, now)?;
        cases.retain(|case| case.applied.limit.allowed.rule(case.variant).is_some());
        let banned = |case: &Case<'l>| Some((case.state, case.state.banned_ns(case.applied.limit, case.key, now)?));
        if cases.iter().any(|case| banned(case).is_some())
            && let Some(refusal) = ban::refusal(cases.iter().filter_map(banned))
        {
            return Ok(Step::Refuse(Box::new(refusal)));
        }
        let mut outcomes = Outcomes::new();
        let charges = cases.iter().map(Case::charge);
        let admitted = if is_queued {
            outcomes.extend(charges.map(|charge| store::peek(&charge, now)));
            false
        } else {
            store::admit(charges, now, &mut outcomes)
        };
        if admitted {
            if cases.iter().zip(&outcomes).any(|(case, outcome)| is_late(case.applied.limit, outcome)) {
                let decided = cases.iter().zip(outcomes);
                let decided = decided.map(|(case, outcome)| Limited {
                    state: case.state,
                    limit: case.applied.limit,
                    charge: case.charge(),
                    outcome,
                });
                let room = || self.reserve(head_bytes(), live.caps);
                return Ok(match self.slow_down(decided, room, now) {
                    Ok(delayed) => Step::Delay(delayed),
                    Err(refusal) => Step::Refuse(refusal),
                });
            }
            let charged = cases.iter().zip(outcomes).map(|(case, outcome)| {
                let (limit, charge) = (case.applied.limit, case.charge());
                (case.state, limit, charge, outcome)
            });
            return Ok(Step::Pass(pass(charged, now)));
        }
        self.note_refused(live, facts, &whos, denying(cases, &outcomes).map(|(_, case, _)| case));
        Ok(self.beyond(live, cases, &outcomes, head_bytes(), now))
    }

    /// Finds whose budgets they are, and says whether others wait on one of them.
    #[inline]
    pub(super) fn key<'l, 'f>(
        &self,
        live: &'l Live,
        stage: Stage,
        facts: &Facts<'f>,
        cases: &mut [Case<'l>],
        found: &mut Whos<'f>,
        now: Timestamp,
    ) -> Result<bool, Unidentified<'l>> {
        let mut asked = Asked::new(self, live, facts, now);
        let has_plans = |case: &Case<'_>| !case.applied.limit.allowed.plans.is_empty();
        let plan = if stage == Stage::Identified && cases.iter().any(has_plans) { asked.plan()? } else { None };
        let whos: &[Who<'_>] = match stage {
            Stage::Identified if !live.policy.identities.is_empty() => {
                *found = identify(&mut asked, &cases.iter().map(|case| case.applied))?;
                found
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
            if live.is_special[case.applied.index] {
                case.variant = live.variant(&case.applied, case.key, plan.as_deref());
            }
            case.queued = would_queue(case.state, case.applied.limit, case.key);
            is_queued |= case.queued;
        }
        Ok(is_queued)
    }

    /// Counts for each limit that denies the request whose it is.
    fn note_refused<'c, 'l: 'c>(
        &self,
        live: &Live,
        facts: &Facts<'_>,
        whos: &[Who<'_>],
        denying: impl Iterator<Item = &'c Case<'l>>,
    ) {
        for case in denying {
            let shown = || live.policy.shown(&self.secret, &case.applied, facts, whos).collect::<Vec<_>>().join("|");
            case.state.refused.count(case.key, shown);
        }
    }

    /// A request that at least one enforced limit denies: held if all of those hold, else refused.
    #[cold]
    fn beyond<'l>(
        &'l self,
        live: &'l Live,
        cases: &[Case<'l>],
        outcomes: &Outcomes,
        head_bytes: usize,
        now: Timestamp,
    ) -> Step<'l> {
        let holding = holding(denying(cases, outcomes));
        wake_behind(cases.iter().zip(outcomes).map(|(case, outcome)| (case.state, case.key, outcome)));
        let refuse = |cause, expected_ns| {
            for (case, outcome) in cases.iter().zip(outcomes) {
                if case.applied.limit.mode == Mode::Shadow && !outcome.is_admitted() {
                    case.state.metrics.cells.count(Decided::ShadowRejected);
                }
            }
            let denials = denying(cases, outcomes)
                .map(|(_, case, outcome)| (case.state, case.applied.limit, case.charge(), outcome));
            Step::Refuse(Box::new(refusal(denials, now, cause, expected_ns)))
        };
        let Some(holding) = holding else {
            return refuse(Cause::Limit, None);
        };
        let item = |case: &Case<'l>| Item { state: case.state, key: case.key, variant: case.variant, cost: case.cost };
        let items = cases.iter().map(item).collect();
        let candidate = Candidate { gate: self, caps: live.caps, items, head_bytes, now };
        match candidate.join(&holding) {
            Ok(waiting) => Step::Wait(Box::new(waiting)),
            Err((cause, expected_ns)) => refuse(cause, Some(expected_ns)),
        }
    }
}

/// Those of `cases` that deny the request, with their places.
pub(super) fn denying<'c, 'l>(
    cases: &'c [Case<'l>],
    outcomes: &'c Outcomes,
) -> impl Iterator<Item = (usize, &'c Case<'l>, &'c Outcome)> + Clone {
    let all = cases.iter().zip(outcomes).enumerate().map(|(place, (case, outcome))| (place, case, outcome));
    all.filter(|(_, case, outcome)| case.denies() && (case.queued || !outcome.is_admitted()))
}

/// The same as what they would hold the request by, if all of them would.
pub(super) fn holding<'c, 'l: 'c>(
    denying: impl Iterator<Item = (usize, &'c Case<'l>, &'c Outcome)>,
) -> Option<SmallVec<[Holding<'l>; 4]>> {
    let holding = denying.map(|(place, case, outcome)| match case.applied.limit.on_limit {
        OnLimit::Hold(rule) if outcome.decision.denied != Some(Retry::Never) => {
            Some(Holding { place, state: case.state, charge: case.charge(), rule })
        }
        _ => None,
    });
    holding.collect()
}

/// Counts an admission and says where the client stands.
#[inline]
pub(super) fn pass<'l, 'c>(
    mut charged: impl ExactSizeIterator<Item = (&'l Arc<LimitState>, &'c Limit, Charge<'c>, Outcome)>,
    now: Timestamp,
) -> Pass<'l> {
    // The first goes into the answer as it is made: most requests have but one, and a copy costs as much as it does.
    let (mut first, mut standing) = (None, None);
    if let Some((state, limit, charge, outcome)) = charged.next() {
        standing = standing_of(state, limit, &charge, &outcome, now);
        first = admitted(state, limit, &charge, outcome, now);
    }
    let mut rest = Vec::new();
    if charged.len() > 0 {
        rest.reserve_exact(charged.len());
        for (state, limit, charge, outcome) in charged {
            standing = Standing::tightest(standing, standing_of(state, limit, &charge, &outcome, now));
            rest.extend(admitted(state, limit, &charge, outcome, now));
        }
    }
    Pass { standing, charged: Charged::new(first, rest), held: None }
}

/// Counts a charge, and takes note of it if it was made.
#[allow(clippy::inline_always)] // measured: it is made in the answer, and not copied there
#[inline(always)]
fn admitted<'l>(
    state: &'l Arc<LimitState>,
    limit: &Limit,
    charge: &Charge<'_>,
    outcome: Outcome,
    now: Timestamp,
) -> Option<Taken<'l>> {
    let is_admitted = outcome.is_admitted();
    let decided = if is_admitted { Decided::Admitted } else { Decided::ShadowRejected };
    state.metrics.cells.decided(decided, charge.rule.percent(outcome.decision.remaining));
    if !is_admitted {
        return None;
    }
    let &Charge { key, rule, cost, .. } = charge;
    let terms = Terms::of(state, key, limit, rule, cost, now);
    Some(Taken { state, key, receipt: outcome.receipt, terms })
}

#[inline]
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
    let mut violated = SmallVec::new();
    for (state, limit, charge, Outcome { decision, .. }) in denials {
        if cause != Cause::ShuttingDown {
            state.refused(limit, charge.key, now);
        }
        state.metrics.cells.decided(Decided::Rejected, charge.rule.percent(decision.remaining));
        violated.push(&*state.name);
        let retry = decision.denied.unwrap_or(Retry::AfterNs(0));
        let standing = Standing::new(&state.name, &charge, decision, now);
        if longest.as_ref().is_none_or(|(known, _)| retry > *known) {
            longest = Some((retry, standing));
        }
    }
    let (retry, standing) = longest.map_or((Retry::AfterNs(0), None), |(retry, standing)| (retry, Some(standing)));
    Refusal { standing, violated, retry: expected_ns.map_or(retry, Retry::AfterNs), cause }
}

/// After a refusal: whoever is next on a key that was charged for a moment may have seen it so, and overslept.
pub(super) fn wake_behind<'l, 'c>(decided: impl Iterator<Item = (&'l Arc<LimitState>, Key, &'c Outcome)>) {
    for (state, key, _) in decided.filter(|(_, _, outcome)| outcome.is_admitted()) {
        state.line.wake_front(key);
    }
}
