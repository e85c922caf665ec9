//! What the gate says.

use smallvec::SmallVec;

use super::LimitState;
use crate::limit::{Decision, Key, Quota, Retry};
use crate::store::Charge;
use crate::time::Timestamp;

/// Where a client stands with one limit.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'l> {
    /// The limit's name.
    pub limit: &'l str,
    /// What it allows.
    pub quota: Quota,
    /// Whole units left.
    pub remaining: u64,
    /// Nanoseconds from `at` until the client has all of them.
    pub reset_after_ns: u64,
    /// When this was true.
    pub at: Timestamp,
    /// Units that the request took.
    cost: u64,
}

impl<'l> Standing<'l> {
    pub(super) fn new(limit: &'l str, charge: &Charge<'_>, decision: &Decision, at: Timestamp) -> Self {
        let &Charge { quota, cost, .. } = charge;
        let cost = if decision.is_admitted() { cost } else { 0 };
        Self { limit, quota, remaining: decision.remaining, reset_after_ns: decision.reset_after_ns, at, cost }
    }

    /// The same once the request's units have been given back.
    pub fn refunded(self) -> Self {
        Self {
            remaining: self.remaining.saturating_add(self.cost).min(self.quota.burst()),
            reset_after_ns: self.reset_after_ns.saturating_sub(self.cost.saturating_mul(self.quota.interval_ns())),
            cost: 0,
            ..self
        }
    }

    /// The one of two with the smaller part left.
    pub fn tighter(self, other: Self) -> Self {
        let part = |a: &Self, b: &Self| u128::from(a.remaining) * u128::from(b.quota.burst());
        if part(&other, &self) < part(&self, &other) { other } else { self }
    }

    /// The tighter of those that exist.
    pub fn tightest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.tighter(other)),
            (one, other) => one.or(other),
        }
    }
}

/// A request may be forwarded.
#[derive(Debug)]
pub struct Pass<'l> {
    /// The tightest limit, if any applies.
    pub standing: Option<Standing<'l>>,
    /// What was charged for it; given back on drop.
    pub charged: Charged<'l>,
    /// The limit that made it wait, and for how many nanoseconds.
    pub held: Option<(&'l str, u64)>,
}

/// A request is refused.
#[derive(Debug)]
pub struct Refusal<'l> {
    /// Of the limits that deny it, the one with the longest wait; none if it is gone by now.
    pub standing: Option<Standing<'l>>,
    /// The names of the limits that deny it.
    pub violated: SmallVec<[&'l str; 2]>,
    /// When it could pass.
    pub retry: Retry,
    /// Why it does not wait for that.
    pub cause: Cause,
}

/// Why a request beyond a limit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The limit refuses.
    Limit,
    /// It would wait, but longer than it may.
    WaitTooLong,
    /// It would wait, but too many do already.
    QueueFull,
    /// It waited, and Weir is shutting down.
    ShuttingDown,
}

/// What was charged for a request, given back on drop unless it is to be kept.
#[derive(Debug, Default)]
pub struct Charged<'l> {
    items: SmallVec<[Item<'l>; 2]>,
    kept: bool,
}

#[derive(Debug)]
struct Item<'l> {
    state: &'l LimitState,
    key: Key,
    cost: u64,
    full_at: Timestamp,
}

impl<'l> Charged<'l> {
    /// Takes note of a charge that was admitted at `now`.
    pub(super) fn add(&mut self, state: &'l LimitState, charge: &Charge<'_>, decision: &Decision, now: Timestamp) {
        self.items.push(Item { state, key: charge.key, cost: charge.cost, full_at: decision.full_at(now) });
    }

    /// Whether bytes of the request may have reached the upstream, so that what was charged stays charged.
    pub fn keep(&mut self, kept: bool) {
        self.kept = kept;
    }

    /// Whether it stays charged.
    pub fn is_kept(&self) -> bool {
        self.kept
    }
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for item in self.items.drain(..) {
            item.state.table.refund(item.key, item.cost, item.full_at, item.state.clock.now());
            item.state.line.wake_front(item.key);
        }
    }
}
