//! The limits that apply to one request, each with the charge that it makes.

use std::sync::Arc;

use super::state::{LimitState, Live};
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Key};
use crate::engine::policy::client_ip::Prefixes;
use crate::engine::policy::{Applied, Facts, KeyPart, KeySecret, Limit, Mode, OnLimit, Principal, Stage, Variant};
use crate::engine::store::backend::{OnFailure, Unavailable};
use crate::engine::store::{Batch, Charge};

/// A limit that takes part in a decision.
pub(super) trait Checked<'l> {
    fn state(&self) -> &'l Arc<LimitState>;

    fn limit(&self) -> &Limit;

    /// The mode of the limit for the key.
    fn mode(&self) -> Mode;

    /// The rule of the limit that the request goes by.
    fn variant(&self) -> Variant;
}

/// A limit that applies to the request in hand.
#[derive(Debug)]
pub(super) struct LimitCheck<'l> {
    pub(super) state: &'l Arc<LimitState>,
    pub(super) applied: Applied<'l>,
    /// The rule of the limit that the request goes by.
    pub(super) variant: Variant,
    /// Whether other requests wait on the key already.
    pub(super) is_queued: bool,
    /// The percentile of the key ([`Key::percentile`]); zero unless the limit is enforced for some keys only.
    pub(super) percentile: u8,
}

/// The limits that apply to one request, with their charges.
pub(super) type Checks<'l> = Batch<'l, LimitCheck<'l>>;

/// One of [`Checks`].
pub(super) type Check<'l> = Charge<'l, LimitCheck<'l>>;

impl<'l> Checked<'l> for LimitCheck<'l> {
    #[inline]
    fn state(&self) -> &'l Arc<LimitState> {
        self.state
    }

    #[inline]
    fn limit(&self) -> &Limit {
        self.applied.limit
    }

    #[inline]
    fn mode(&self) -> Mode {
        self.limit().mode_of(self.percentile)
    }

    #[inline]
    fn variant(&self) -> Variant {
        self.variant
    }
}

/// Selects the rule of `check`. Returns whether the request is limited at all; a check without a rule must be removed
/// before anything is charged.
pub(super) fn select_rule(check: &mut Check<'_>, variant: Variant) -> bool {
    check.check.variant = variant;
    let rule = check.check.applied.limit.allowed.rule(variant);
    check.rule = rule.unwrap_or(check.rule);
    check.enforced = is_enforced(check.check.limit(), check.check.mode(), check.rule);
    rule.is_some()
}

/// Selects whether a limit that is enforced for a part of its keys is enforced for this one.
///
/// # Errors
/// The part of the key for which the request has several values.
#[cold]
pub(super) fn select_mode<'l>(
    check: &mut Check<'l>,
    (facts, identities): (&Facts<'_>, &[Principal<'_>]),
    prefixes: Prefixes,
) -> Result<(), &'l KeyPart> {
    let Applied { limit, route, .. } = check.check.applied;
    check.check.percentile = KeySecret::percentile(&limit.key, route, facts, prefixes, identities)?;
    check.enforced = is_enforced(limit, check.check.mode(), check.rule);
    Ok(())
}

/// Whether a new request on `key` has to queue behind waiting ones.
#[inline]
pub(super) fn would_queue(check: &LimitCheck<'_>, key: Key) -> bool {
    check.limit().on_limit.is_hold() && check.mode() == Mode::Enforce && check.state.queues.has_waiters(key)
}

/// Whether the limit applies a rule to the request.
pub(super) fn is_limited(check: &Check<'_>) -> bool {
    check.check.applied.limit.allowed.rule(check.check.variant).is_some()
}

/// Whether the limit denies the request.
pub(super) fn is_denied(check: &Check<'_>) -> bool {
    check.enforced && (check.check.is_queued || !check.is_admitted())
}

/// Nanoseconds until the ban of the key ends; `None` if it is not banned.
pub(super) fn banned_ns(check: &Check<'_>, now: Timestamp) -> Option<u64> {
    check.check.state.banned_ns(check.check.limit(), check.check.mode(), check.key, now)
}

/// Whether the charge denies the request.
pub(super) fn is_refused<C>(charge: &Charge<'_, C>) -> bool {
    charge.enforced && !charge.is_admitted()
}

/// Enforces a charge that would be delayed, if the requests of its limit are rejected while the store says nothing.
pub(super) fn enforce_rejection<'l, C: Checked<'l>>(charge: &mut Charge<'_, C>, why: Unavailable) {
    let rejects = charge.remote().is_some_and(|remote| remote.on_failure(why) == OnFailure::Reject);
    charge.enforced |= rejects && charge.check.mode() == Mode::Enforce;
}

/// Whether the limit delays the request.
#[inline]
pub(super) fn is_delayed<'l, C: Checked<'l>>(charge: &Charge<'_, C>) -> bool {
    !charge.is_admitted()
        && !charge.enforced
        && matches!(charge.check.limit().on_limit, OnLimit::Delay(_))
        && charge.check.mode() == Mode::Enforce
}

/// Whether a denial by `limit`, which has this mode and this rule for the key, denies the request. No delay makes room under a
/// rule without units.
#[inline]
pub(super) fn is_enforced(limit: &Limit, mode: Mode, rule: &Algorithm) -> bool {
    mode == Mode::Enforce && (!matches!(limit.on_limit, OnLimit::Delay(_)) || rule.capacity() == 0)
}

impl Live {
    /// Adds the limits of `stage` that apply to a request, without their keys. The checks are built in place: copying
    /// them costs as much as finding them.
    #[inline]
    pub(super) fn find<'l>(&'l self, stage: Stage, facts: &Facts<'_>, checks: &mut Checks<'l>) {
        self.policy.for_each_applied(stage, facts, |applied| {
            let (state, limit) = (&self.states[applied.index], applied.limit);
            let check = LimitCheck { state, applied, variant: Variant::Usual, is_queued: false, percentile: 0 };
            let (rule, cost) = (&limit.allowed.usual, limit.cost.units(facts));
            let enforced = is_enforced(limit, limit.mode, rule);
            checks.push(Charge::new(&state.table, Key::default(), rule, cost, enforced, check));
        });
        if let Some(cost) = facts.cost {
            checks.charges_mut().iter_mut().for_each(|check| check.cost = cost);
        }
    }
}
