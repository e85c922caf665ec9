//! The decision over all limits of one stage.

use smallvec::SmallVec;

use super::ban;
use super::budget::listed;
use super::candidate::{Candidate, Holding};
use super::case::{Case, Cases};
use super::charge::charge_all;
use super::delay::{Decided as Limited, Delayed, is_late};
use super::identify::{Asked, Whos, identify};
use super::outcome::{pass, refusal, shadowed, wake_behind};
use super::room::Size;
use super::wait::{Item, Waiting};
use super::{Cause, Gate, LimitState, Live, Pass, Refusal, Unidentified, Unkeyed};
use crate::limit::{Key, Retry};
use crate::policy::{Facts, Limit, Mode, OnLimit, Plan, Stage};
use crate::policy::{KeyPart, Who};
use crate::store::{self, Outcome, Outcomes};
use crate::time::Timestamp;

/// What becomes of a request after one stage. The common case is small.
#[derive(Debug)]
pub enum Step<'l> {
    /// It passes the stage.
    Pass(Box<Pass<'l>>),
    /// It is refused.
    Refuse(Box<Refusal<'l>>),
    /// It waits.
    Wait(Box<Waiting<'l>>),
    /// It passes, but later.
    Delay(Box<Delayed<'l>>),
}

/// A request, and what was found out about whom it is from.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a, 'f> {
    pub(super) facts: &'a Facts<'f>,
    pub(super) whos: &'a [Who<'f>],
    pub(super) plan: Option<&'a str>,
}

/// How a request is to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By charging its limits.
    Usual,
    /// Not so simply.
    Unusual,
    /// By waiting: others do already.
    Queued,
}

/// Whether others wait on `key` already, before whom nobody passes.
#[inline]
fn would_queue(state: &LimitState, limit: &Limit, key: Key) -> bool {
    limit.on_limit.is_hold() && limit.mode == Mode::Enforce && state.line.has_waiters(key)
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
    ) -> Result<Step<'l>, Unkeyed<'l>> {
        let mut pass = Pass::default();
        let instead = self.admit_into(&mut pass, live, stage, facts, head_bytes, now)?;
        Ok(instead.unwrap_or_else(|| Step::Pass(Box::new(pass))))
    }

    /// The same, for those who have a place for the pass, an empty one: it need not be moved there. If the request does
    /// not pass now, says what becomes of it instead.
    #[inline]
    pub fn admit_into<'l>(
        &'l self,
        pass: &mut Pass<'l>,
        live: &'l Live,
        stage: Stage,
        facts: &Facts<'_>,
        head_bytes: impl FnOnce() -> usize,
        now: Timestamp,
    ) -> Result<Option<Step<'l>>, Unkeyed<'l>> {
        live.find(stage, facts, &mut pass.charged.cases);
        if pass.charged.cases.is_empty() {
            return Ok(None);
        }
        let asked;
        let asker = if stage == Stage::Identified && live.needs_identity {
            asked = self.identify(live, facts, &pass.charged.cases, now)?;
            Asker { facts, whos: &asked.0, plan: asked.1.as_deref() }
        } else {
            Asker { facts, whos: &[], plan: None }
        };
        Ok(match self.key(live, asker, &mut pass.charged.cases, now)? {
            Way::Usual => charge_all(pass, now)
                .map(|outcomes| self.deny(live, asker, &pass.charged.cases, &outcomes, head_bytes(), now)),
            way => {
                let cases = &mut pass.charged.cases;
                Some(self.admit_unusual(live, asker, cases, way == Way::Queued, head_bytes, now))
            }
        })
    }

    /// Where others wait, some are banned or delayed, or not everyone goes by the same rule.
    fn admit_unusual<'l>(
        &'l self,
        live: &'l Live,
        asker: Asker<'_, '_>,
        cases: &mut Cases<'l>,
        is_queued: bool,
        head_bytes: impl FnOnce() -> usize,
        now: Timestamp,
    ) -> Step<'l> {
        cases.retain(|case| case.applied.limit.allowed.rule(case.variant).is_some());
        let banned = |case: &Case<'l>| Some((case.state, case.state.banned_ns(case.applied.limit, case.key, now)?));
        if cases.iter().any(|case| banned(case).is_some())
            && let Some(refusal) = ban::refusal(cases.iter().filter_map(banned))
        {
            let banning = cases.iter().filter(|case| banned(case).is_some());
            self.note_refused(live, asker.facts, asker.whos, banning);
            return Step::Refuse(Box::new(refusal));
        }
        let mut outcomes = Outcomes::new();
        let charges = cases.iter().map(Case::charge);
        let admitted = if is_queued {
            outcomes.extend(charges.map(|charge| store::peek(&charge, now)));
            false
        } else {
            store::admit(charges, now, &mut outcomes)
        };
        if !admitted {
            return self.deny(live, asker, cases, &outcomes, head_bytes(), now);
        }
        if cases.iter().zip(&outcomes).any(|(case, outcome)| is_late(case.applied.limit, outcome)) {
            let decided = cases.iter().zip(outcomes);
            let decided = decided.map(|(case, outcome)| Limited {
                state: case.state,
                limit: case.applied.limit,
                charge: case.charge(),
                outcome,
            });
            return match self.slow_down(decided, || self.reserve(live.size(asker.facts, head_bytes()), live.caps), now)
            {
                Ok(delayed) => Step::Delay(delayed),
                Err(refusal) => Step::Refuse(refusal),
            };
        }
        let charged = cases.iter().zip(outcomes).map(|(case, outcome)| {
            let (limit, charge) = (case.applied.limit, case.charge());
            (case.state, limit, charge, outcome)
        });
        Step::Pass(Box::new(pass(charged, now)))
    }

    /// Finds whose budgets they are, and how that is to be decided.
    ///
    /// # Errors
    /// The part of a key that the request has several times.
    #[inline]
    pub(super) fn key<'l>(
        &self,
        live: &Live,
        asker: Asker<'_, '_>,
        cases: &mut [Case<'l>],
        now: Timestamp,
    ) -> Result<Way, &'l KeyPart> {
        let Asker { facts, whos, plan } = asker;
        let mut way = Way::Usual;
        for index in 0..cases.len() {
            let (before, behind) = cases.split_at_mut(index);
            let Some(case) = behind.first_mut() else { break };
            let (state, limit) = (case.state, case.applied.limit);
            let alike = before.iter().find(|other| other.applied.foreknown.keyed_as == case.applied.foreknown.keyed_as);
            case.key = if let Some(other) = alike {
                other.key
            } else {
                self.secret.key(
                    &case.applied.limit.key,
                    case.applied.route,
                    facts,
                    live.policy.client_ip.ipv6_prefix,
                    whos,
                )?
            };
            if !case.applied.foreknown.is_unusual {
                continue;
            }
            let is_limited = !limit.allowed.is_special() || case.vary(live.variant(&case.applied, case.key, plan));
            case.queued = is_limited && would_queue(state, limit, case.key);
            let is_late = matches!(limit.on_limit, OnLimit::Delay(_));
            way = match way {
                Way::Queued => Way::Queued,
                _ if case.queued => Way::Queued,
                _ if is_late || limit.allowed.is_special() => Way::Unusual,
                _ if state.banned_ns(limit, case.key, now).is_some() => Way::Unusual,
                way => way,
            };
        }
        Ok(way)
    }

    /// Finds the identities and the plan that limits go by.
    #[inline(never)]
    pub(super) fn identify<'l, 'f>(
        &self,
        live: &'l Live,
        facts: &Facts<'f>,
        cases: &[Case<'l>],
        now: Timestamp,
    ) -> Result<(Whos<'f>, Option<Plan<'f>>), Unidentified<'l>> {
        let mut asked = Asked::new(self, live, facts, now);
        let has_plans = |case: &Case<'_>| !case.applied.limit.allowed.plans.is_empty();
        let plan = if cases.iter().any(has_plans) { asked.plan()? } else { None };
        Ok((identify(&mut asked, &cases.iter().map(|case| case.applied))?, plan))
    }

    /// A request that some limit denies.
    #[cold]
    fn deny<'l>(
        &'l self,
        live: &'l Live,
        asker: Asker<'_, '_>,
        cases: &[Case<'l>],
        outcomes: &Outcomes,
        head_bytes: usize,
        now: Timestamp,
    ) -> Step<'l> {
        let Asker { facts, whos, plan } = asker;
        self.note_refused(live, facts, whos, denying(cases, outcomes).map(|(_, case, _)| case));
        self.beyond(live, cases, outcomes, plan, live.size(facts, head_bytes), now)
    }

    /// Counts the request for its key in each limit that denies it.
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
        plan: Option<&str>,
        size: Size,
        now: Timestamp,
    ) -> Step<'l> {
        let holding = holding(denying(cases, outcomes));
        wake_behind(cases.iter().zip(outcomes).map(|(case, outcome)| (case.state, case.key, outcome)));
        let refuse = |cause, expected_ns| {
            for (case, outcome) in cases.iter().zip(outcomes) {
                let (limit, is_shadow) = (case.applied.limit, case.applied.limit.mode == Mode::Shadow);
                if let Some(decided) = shadowed(limit, &outcome.decision).filter(|_| is_shadow) {
                    case.state.metrics.cells.count(decided);
                }
            }
            let denials = denying(cases, outcomes)
                .map(|(_, case, outcome)| (case.state, case.applied.limit, case.charge(), outcome));
            Step::Refuse(Box::new(Refusal { budgets: listed(cases), ..refusal(denials, now, cause, expected_ns) }))
        };
        let Some(holding) = holding else {
            return refuse(Cause::Limit, None);
        };
        let item = |case: &Case<'l>| Item { state: case.state, key: case.key, cost: case.cost };
        let items = cases.iter().map(item).collect();
        let candidate = Candidate { gate: self, caps: live.caps, items, plan: plan.map(Into::into), size, now };
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
    all.filter(|(_, case, outcome)| case.enforced && (case.queued || !outcome.is_admitted()))
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
