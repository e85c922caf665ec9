//! The limits that apply to one request, each with all that is needed to decide it and to give its charge back.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{LimitState, Live};
use crate::limit::{Algorithm, Key};
use crate::policy::{Applied, Facts, Limit, Mode, OnLimit, Stage, Variant};
use crate::store::Charge;

/// One limit that applies to the request in hand, with all that is needed to decide it.
#[derive(Debug)]
pub(super) struct Case<'l> {
    pub(super) state: &'l Arc<LimitState>,
    pub(super) applied: Applied<'l>,
    pub(super) key: Key,
    /// Which of the limit's rules it goes by, and that rule.
    pub(super) variant: Variant,
    pub(super) rule: &'l Algorithm,
    pub(super) cost: u64,
    /// Whether it refuses requests beyond it, or makes them wait.
    pub(super) enforced: bool,
    /// Others wait on this key already.
    pub(super) queued: bool,
    pub(super) taken: Took,
    /// What it said when it was charged.
    pub(super) remaining: u64,
    pub(super) reset_after_ns: u64,
    /// If it was charged to a bucket: what else its receipt is made of.
    pub(super) given_back: u32,
}

/// Whether a limit is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    Nothing,
    /// To a bucket, to stay.
    Plain,
    /// In another way, of which more is kept elsewhere.
    Other,
}

impl<'l> Case<'l> {
    #[inline]
    pub(super) fn charge(&self) -> Charge<'l> {
        let &Self { state, key, rule, cost, enforced, .. } = self;
        Charge { table: &state.table, key, rule, cost, enforced }
    }

    /// Goes by another of its limit's rules; says whether that is a limit at all. One that is none is sorted out before
    /// anything is charged.
    pub(super) fn vary(&mut self, variant: Variant) -> bool {
        self.variant = variant;
        let rule = self.applied.limit.allowed.rule(variant);
        self.rule = rule.unwrap_or(self.rule);
        rule.is_some()
    }
}

/// What `limit` would take for a request. One that its variant does not limit is charged as usual by nobody: such
/// cases are sorted out before.
pub(super) fn charge<'l>(state: &'l LimitState, key: Key, limit: &'l Limit, variant: Variant, cost: u64) -> Charge<'l> {
    let rule = limit.allowed.rule(variant).unwrap_or(&limit.allowed.usual);
    Charge { table: &state.table, key, rule, cost, enforced: is_enforced(limit) }
}

#[inline]
fn is_enforced(limit: &Limit) -> bool {
    limit.mode == Mode::Enforce && !matches!(limit.on_limit, OnLimit::Delay(_))
}

pub(super) type Cases<'l> = SmallVec<[Case<'l>; 4]>;

impl Live {
    /// Adds the limits of `stage` that apply to a request, without their keys. They are made where they stay: copying
    /// them costs as much as finding them.
    #[inline]
    pub(super) fn find<'l>(&'l self, stage: Stage, facts: &Facts<'_>, cases: &mut Cases<'l>) {
        self.policy.for_each_applied(stage, facts, |applied| {
            let limit = applied.limit;
            cases.push(Case {
                state: &self.states[applied.index],
                applied,
                key: Key::default(),
                variant: Variant::Usual,
                rule: &limit.allowed.usual,
                cost: limit.cost.units(facts),
                enforced: is_enforced(limit),
                queued: false,
                taken: Took::Nothing,
                remaining: 0,
                reset_after_ns: 0,
                given_back: 0,
            });
        });
    }
}
