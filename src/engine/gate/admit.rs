//! The decision over all limits of one stage.
//!
//! The order of a decision: find the limits that apply, identify the request, compute keys, charge all limits or none.
//! Most requests end there. The others are banned, delayed, held or refused.

use smallvec::SmallVec;

use super::ask::Asking;
use super::check::{
    Check, Checks, LimitCheck, banned_ns, is_delayed, is_denied, is_limited, select_mode, select_rule, would_queue,
};
use super::identify::{Principals, RequestIdentities, Unidentified, Unkeyed, identify_for};
use super::look::{self, is_look};
use super::pass::{Pass, listed, wake_undone};
use super::queue::delay::Delayed;
use super::queue::enqueue::{Candidate, HoldingLimit};
use super::queue::wait::{WaitItem, Waiting};
use super::refusal::{Cause, Refusal};
use super::standing::Standing;
use super::state::{Gate, Live};
use super::{bans, shadow};
use crate::base::telemetry::RequestRecord;
use crate::base::time::Timestamp;
use crate::engine::limit::Retry;
use crate::engine::policy::{Facts, KeyPart, OnLimit, Plan, Principal, Stage};
use crate::engine::store::LocalDecision;

/// What happens to a request after one stage. The most frequent case is small.
#[derive(Debug)]
pub enum Step<'l> {
    /// The request passes the stage.
    Pass(Box<Pass<'l>>),
    /// The request is refused.
    Refuse(Box<Refusal<'l>>),
    /// The request waits.
    Wait(Box<Waiting<'l>>),
    /// The request passes later.
    Delay(Box<Delayed<'l>>),
    /// A store decides about the request.
    Ask(Box<Asking<'l>>),
}

/// A request, with its identities and its plan as far as limits need them.
#[derive(Clone, Copy)]
pub(super) struct Requester<'a, 'f> {
    pub(super) facts: &'a Facts<'f>,
    pub(super) identities: &'a [Principal<'f>],
    pub(super) plan: Option<&'a str>,
}

/// How a request is to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handling {
    /// Its limits are charged, or it is denied.
    Plain,
    /// Some keys may be banned, delayed, without a limit, or decided by a store.
    Special,
    /// It joins a queue, because other requests wait already.
    Queued,
}

impl Gate {
    /// Decides the limits of `stage` at `now`. `head_bytes` is called only for a request that would wait.
    ///
    /// # Errors
    /// The identity or the part of a key for which the request has no single value.
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
        let instead = self.admit_into(&mut pass, (live, stage), facts, head_bytes, now, None)?;
        Ok(instead.unwrap_or_else(|| Step::Pass(Box::new(pass))))
    }

    /// Decides the limits of a stage, and writes the pass into `pass`, which is empty before. So the pass is not moved.
    /// Returns what happens to the request instead, if it does not pass now. Adds the keys of the request to `record`.
    ///
    /// # Errors
    /// The identity or the part of a key for which the request has no single value.
    #[inline]
    pub fn admit_into<'l>(
        &'l self,
        pass: &mut Pass<'l>,
        (live, stage): (&'l Live, Stage),
        facts: &Facts<'_>,
        head_bytes: impl FnOnce() -> usize,
        now: Timestamp,
        mut record: Option<&mut RequestRecord>,
    ) -> Result<Option<Step<'l>>, Unkeyed<'l>> {
        live.find(stage, facts, &mut pass.charged.checks);
        if pass.charged.checks.is_empty() {
            return Ok(None);
        }
        let identified;
        let requester = if stage == Stage::Identified && live.needs_identity {
            identified = self.identify((live, stage), facts, pass.charged.checks.charges(), now)?;
            Requester { facts, identities: &identified.0, plan: identified.1.as_deref() }
        } else {
            Requester { facts, identities: &[], plan: None }
        };
        let handling = match self.compute_keys(live, requester, pass.charged.checks.charges_mut(), now)? {
            Handling::Plain if is_look(facts) => Handling::Special,
            handling => handling,
        };
        let is_admitted = handling == Handling::Plain && pass.charged.checks.admit(now);
        if let Some(record) = record.as_deref_mut() {
            self.describe_keys(live, requester, &pass.charged.checks, record);
            if is_admitted {
                shadow::describe(&pass.charged.checks, record);
            }
        }
        if is_admitted {
            pass.complete(now);
            return Ok(None);
        }
        let special = match handling {
            Handling::Plain => None,
            handling => self.decide_special(live, requester, &mut pass.charged.checks, handling, now),
        };
        let mut step = match special {
            Some(Special::Refused(refusal)) => Some(Step::Refuse(refusal)),
            Some(Special::Admitted) => self.pass_or_delay(pass, live, facts, head_bytes, now),
            Some(Special::Looked(standing)) => {
                pass.standing = standing;
                None
            }
            Some(Special::Asked) => {
                if let Some(record) = record {
                    shadow::describe(&pass.charged.checks, record);
                }
                let pass = std::mem::take(pass);
                return Ok(Some(Step::Ask(Box::new(Asking { gate: self, live, stage, pass }))));
            }
            None => Some(self.deny(live, requester, &mut pass.charged.checks, head_bytes(), now)),
        };
        if let Some(Step::Refuse(refusal)) = &mut step {
            self.show_keys(refusal, live, requester, pass.charged.checks.charges());
        }
        // A request that waits counts at its turn.
        if let Some(record) = record.filter(|_| !matches!(step, Some(Step::Wait(_)))) {
            shadow::describe(&pass.charged.checks, record);
        }
        if step.is_some() {
            pass.charged.checks.retain(|_| false);
        }
        Ok(step)
    }

    /// Identifies a request as its limits need it, before more of the request is read for them.
    ///
    /// # Errors
    /// The identity for which the request has no single value.
    pub fn identify_early<'l>(&self, live: &'l Live, facts: &Facts<'_>, now: Timestamp) -> Result<(), Unkeyed<'l>> {
        let mut checks = Checks::default();
        live.find(Stage::Identified, facts, &mut checks);
        self.identify((live, Stage::Identified), facts, checks.charges(), now)?;
        Ok(())
    }

    /// Computes the keys of `checks`, and how they are to be decided.
    ///
    /// # Errors
    /// The part of a key for which the request has several values.
    #[inline]
    pub(super) fn compute_keys<'l>(
        &self,
        live: &'l Live,
        requester: Requester<'_, '_>,
        checks: &mut [Check<'l>],
        now: Timestamp,
    ) -> Result<Handling, &'l KeyPart> {
        let Requester { facts, identities, plan } = requester;
        let mut handling = Handling::Plain;
        let has_bans = self.operator_bans.has_keys();
        for index in 0..checks.len() {
            let (before, behind) = checks.split_at_mut(index);
            let Some(check) = behind.first_mut() else { break };
            let applied = check.check.applied;
            let (state, limit) = (check.check.state, applied.limit);
            let alike = before.iter().find(|other| other.check.applied.traits.keyed_as == applied.traits.keyed_as);
            check.key = if let Some(other) = alike {
                other.key
            } else {
                self.secret.key(&limit.key, applied.route, facts, live.policy.client_ip.prefixes, identities)?
            };
            let may_be_banned = has_bans && state.has_operator_bans();
            if !applied.traits.is_unusual && !may_be_banned {
                continue;
            }
            let key = check.key;
            if limit.is_partly_enforced() {
                select_mode(check, (facts, identities), live.policy.client_ip.prefixes)?;
            }
            let is_limited = !limit.allowed.is_special() || select_rule(check, live.variant(&applied, key, plan));
            check.check.is_queued = is_limited && would_queue(&check.check, key);
            let remote = live.remotes[applied.index].as_ref();
            check.set_remote(remote);
            let delays = matches!(limit.on_limit, OnLimit::Delay(_));
            handling = match handling {
                Handling::Queued => Handling::Queued,
                _ if check.check.is_queued => Handling::Queued,
                _ if delays || remote.is_some() || limit.allowed.is_special() => Handling::Special,
                _ if state.queues.has_sharers() => Handling::Special,
                _ if banned_ns(check, now).is_some() => Handling::Special,
                handling => handling,
            };
        }
        Ok(handling)
    }

    /// Finds the identities and the plan that the limits of a stage need.
    #[inline(never)]
    pub(super) fn identify<'l, 'f>(
        &self,
        (live, stage): (&'l Live, Stage),
        facts: &Facts<'f>,
        checks: &[Check<'l>],
        now: Timestamp,
    ) -> Result<(Principals<'f>, Option<Plan<'f>>), Unidentified<'l>> {
        identify_for(&mut RequestIdentities::new(self, live, facts, now), stage, checks)
    }

    /// Decides checks of which some may be banned, queued, delayed or without a rule. `None` if they are denied.
    fn decide_special<'l>(
        &self,
        live: &Live,
        requester: Requester<'_, '_>,
        checks: &mut Checks<'l>,
        handling: Handling,
        now: Timestamp,
    ) -> Option<Special<'l>> {
        let banned = |check: &Check<'l>| {
            Some((check.check.state, check.key, check.check.applied.limit.refusals.banned, banned_ns(check, now)?))
        };
        if let Some(refusal) = bans::refusal(checks.charges().iter().filter_map(banned), now) {
            let banning = checks.charges().iter().filter(|check| banned(check).is_some());
            self.note_refused(live, requester, banning);
            return Some(Special::Refused(Box::new(refusal)));
        }
        // Only now: a ban outweighs an override without a limit.
        checks.retain(is_limited);
        if is_look(requester.facts) {
            look::prepare(checks);
            let decide = |checks| look::decide(checks, now).map_or_else(Special::Refused, Special::Looked);
            return Some(if checks.has_remote() { Special::Asked } else { decide(checks) });
        }
        if handling == Handling::Queued {
            checks.peek(now);
            return None;
        }
        if checks.has_remote() {
            return match checks.admit_local(now) {
                LocalDecision::Denied => None,
                LocalDecision::Admitted => Some(Special::Admitted),
                LocalDecision::Open => Some(Special::Asked),
            };
        }
        if would_undo_shares(checks, now) {
            return None;
        }
        checks.admit(now).then_some(Special::Admitted)
    }

    /// Completes the pass of admitted checks, or delays the request.
    pub(super) fn pass_or_delay<'l>(
        &'l self,
        pass: &mut Pass<'l>,
        live: &Live,
        facts: &Facts<'_>,
        head_bytes: impl FnOnce() -> usize,
        now: Timestamp,
    ) -> Option<Step<'l>> {
        let checks = &mut pass.charged.checks;
        if !checks.charges().iter().any(is_delayed) {
            pass.complete(now);
            return None;
        }
        let is_arrival = checks.charges().iter().any(|check| check.check.applied.limit.stage == Stage::Arrival);
        let reserve = || self.capacity.reserve(live.footprint(facts, head_bytes()), live.caps);
        match self.slow_down(checks, reserve, now) {
            Ok(delay) => {
                pass.complete(now);
                Some(Step::Delay(Box::new(delay.of(std::mem::take(pass), is_arrival))))
            }
            Err(refusal) => Some(Step::Refuse(refusal)),
        }
    }

    /// Denies a request: it is held if all denying limits hold, else refused.
    #[cold]
    pub(super) fn deny<'l>(
        &'l self,
        live: &'l Live,
        requester: Requester<'_, '_>,
        checks: &mut Checks<'l>,
        head_bytes: usize,
        now: Timestamp,
    ) -> Step<'l> {
        self.note_refused(live, requester, checks.charges().iter().filter(|check| is_denied(check)));
        wake_undone(checks);
        let mut is_estimate = false;
        let step = match holding(checks.charges()) {
            None => Err((Cause::Limit, None)),
            Some(holding) => {
                let is_arrival = holding.first().is_some_and(HoldingLimit::is_arrival);
                let priority = RequestIdentities::new(self, live, requester.facts, now).priority(is_arrival);
                is_estimate = holding.iter().any(|limit| limit.may_be_overtaken(priority));
                let item = |check: &Check<'l>| {
                    let LimitCheck { state, percentile, .. } = check.check;
                    WaitItem { state, key: check.key, cost: check.cost, percentile }
                };
                let candidate = Candidate {
                    gate: self,
                    caps: live.caps,
                    items: checks.charges().iter().map(item).collect(),
                    plan: requester.plan.map(Into::into),
                    footprint: live.footprint(requester.facts, head_bytes),
                    priority,
                    now,
                };
                candidate.join(&holding).map_err(|(cause, expected_ns)| (cause, Some(expected_ns)))
            }
        };
        match step {
            Ok(waiting) => Step::Wait(Box::new(waiting)),
            Err((cause, expected_ns)) => {
                let refusal = refuse(checks, cause, expected_ns, now);
                Step::Refuse(Box::new(Refusal { is_estimate, ..refusal }))
            }
        }
    }

    /// Counts the request for its key in each limit that denies it, and for the network of its client.
    fn note_refused<'c, 'l: 'c>(
        &self,
        live: &Live,
        requester: Requester<'_, '_>,
        denying: impl Iterator<Item = &'c Check<'l>>,
    ) {
        let Requester { facts, identities, .. } = requester;
        self.refused_networks.count(&self.secret, facts.client_ip);
        for denying in denying {
            let shown = || {
                let mut text = String::new();
                live.policy.write_shown(&mut text, &self.secret, &denying.check.applied, facts, identities);
                text
            };
            denying.check.state.refused.count(denying.key, shown);
        }
    }
}

/// The decision of special checks.
enum Special<'l> {
    Admitted,
    /// The request looks, and one unit would pass.
    Looked(Option<Standing<'l>>),
    /// By the local limits. Stores decide about the others.
    Asked,
    Refused(Box<Refusal<'l>>),
}

/// Whether a limit whose sharers wait admits a request that another limit denies. A charge that is undone at once would wake
/// them all.
fn would_undo_shares(checks: &mut Checks<'_>, now: Timestamp) -> bool {
    let is_shared = |check: &Check<'_>| check.check.state.queues.has_sharers();
    checks.charges().iter().any(is_shared)
        && !checks.peek(now)
        && checks.charges().iter().any(|check| is_shared(check) && check.is_admitted())
}

/// The limits that deny the request and hold it, if all denying limits would hold it.
pub(super) fn holding<'c, 'l>(checks: &'c [Check<'l>]) -> Option<SmallVec<[HoldingLimit<'c, 'l>; 4]>> {
    let denying = checks.iter().enumerate().filter(|(_, check)| is_denied(check));
    let holding = denying.map(|(index, check)| match check.check.applied.limit.on_limit {
        OnLimit::Hold(rule) if check.decision().denied != Some(Retry::Never) && !check.is_rejected() => {
            Some(HoldingLimit { index, check, rule })
        }
        _ => None,
    });
    holding.collect()
}

/// The refusal of denied checks, which it counts.
pub(super) fn refuse<'l>(checks: &Checks<'l>, cause: Cause, expected_ns: Option<u64>, now: Timestamp) -> Refusal<'l> {
    shadow::count_refused(checks, now);
    let denials = checks.charges().iter().filter(|check| is_denied(check));
    Refusal { budgets: listed(checks), ..Refusal::of(denials, now, cause, expected_ns) }
}
