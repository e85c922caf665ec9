//! Leaky bucket: units run out at a constant rate, one every `interval`.
//!
//! As a meter it **polices**: a request that would make the bucket overflow is refused. This is equivalent to a token
//! bucket, with the same bound: `burst + w / interval` units in any span of length `w`.
//!
//! As a queue it **shapes**: requests pass one after another, each when the request before has run out. `burst` is then the
//! number of units that may queue. Not here: the queue itself (gate). Bound: after a request of `c` units
//! the next passes no sooner than `c * interval` later. So in any span of length `w` all requests but the last take at
//! most `w / interval` units. A request may pass up to [`BACKDATE_NS_MAX`](super::BACKDATE_NS_MAX) after its slot, which
//! delays no request behind it.

use super::late::units::LateUnits;
use super::packed::{Packed, Unpacker};
use super::portable::{Charged, Numbers, Portable, Unportable};
use super::rule::{self, Scale};
use super::{Decision, Pace, Quota, QuotaError, Retry, state, token_bucket};
use crate::base::time::Timestamp;

/// The rule of a leaky bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The outflow, and the units that the bucket holds.
    pub quota: Quota,
    /// Whether requests queue, or are refused beyond `burst`.
    pub shapes: bool,
}

impl rule::Rule for Rule {
    fn capacity(&self) -> u64 {
        self.quota.burst()
    }

    fn period_ns(&self) -> Option<u64> {
        Some(self.quota.period_ns())
    }

    fn interval_ns(&self) -> u64 {
        self.quota.interval_ns()
    }

    fn memory_ns(&self) -> u64 {
        self.quota.memory_ns()
    }

    fn pace(&self, now: Timestamp) -> Option<Pace> {
        self.quota.pace(now)
    }

    fn is_within(&self, other: &Self) -> bool {
        self.shapes == other.shapes && self.quota.is_within(&other.quota)
    }

    fn scaled(&self, scale: Scale) -> Result<Self, QuotaError> {
        Ok(Self { quota: self.quota.scaled(scale)?, ..*self })
    }

    fn to_portable(&self, max_debt: u64) -> Result<Self, Unportable> {
        Ok(Self { quota: self.quota.to_portable(max_debt)?, ..*self })
    }

    fn portable_debt_max(&self) -> Option<u64> {
        self.quota.portable_debt_max()
    }

    fn portable_numbers(&self, now: Timestamp) -> [i64; 5] {
        let [burst, interval_ns, tag, tag_ceil, _] = self.quota.portable_numbers(now);
        [burst, interval_ns, tag, tag_ceil, self.shapes.into()]
    }

    #[cfg(test)]
    fn bound(&self, span_ns: u64) -> u64 {
        self.quota.bound(span_ns)
    }
}

/// The state of one key: 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    bucket: token_bucket::Bucket,
}

impl state::State for State {
    type Rule = Rule;
    type Receipt = token_bucket::Receipt;

    fn fresh(rule: &Rule) -> Self {
        Self { bucket: token_bucket::Bucket::fresh(&rule.quota) }
    }

    fn is_of(&self, rule: &Rule) -> bool {
        self.bucket.is_of(&rule.quota)
    }

    fn adopt(&mut self, rule: &Rule, now: Timestamp) {
        self.bucket.adopt(&rule.quota, now);
    }

    fn admit(&mut self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        if !rule.shapes {
            return self.bucket.admit(&rule.quota, cost, now);
        }
        let bucket = self.bucket.state_to_charge(&rule.quota, now);
        let decision = shape(&rule.quota, bucket.deficit_ns(&rule.quota, now), cost);
        if decision.is_admitted() && cost > 0 {
            bucket.fill_until(decision.full_at(now), now);
        }
        decision
    }

    fn peek(&self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        if rule.shapes {
            shape(&rule.quota, self.bucket.state().deficit_ns(&rule.quota, now), cost)
        } else {
            self.bucket.peek(&rule.quota, cost, now)
        }
    }

    /// Exact for all costs.
    fn wait(&self, rule: &Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        let quota = &rule.quota;
        if rule.shapes && cost <= quota.burst() {
            let ahead_ns = ahead.saturating_mul(quota.interval_ns());
            return Retry::AfterNs(self.bucket.state().deficit_ns(quota, now).saturating_add(ahead_ns));
        }
        self.bucket.wait(quota, ahead, cost, now)
    }

    fn receipt(&self, cost: u64, now: Timestamp) -> token_bucket::Receipt {
        self.bucket.receipt(cost, now)
    }

    fn refund(&mut self, rule: &Rule, receipt: &token_bucket::Receipt, now: Timestamp) -> u64 {
        self.bucket.refund(&rule.quota, receipt, now)
    }

    fn settle(&mut self, rule: &Rule, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        self.bucket.settle(&rule.quota, extra, max_debt, now)
    }

    fn settle_late(&mut self, rule: &Rule, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        self.bucket.settle_late(&rule.quota, late, max_debt, now);
    }

    fn over(&self, rule: &Rule, now: Timestamp) -> u64 {
        self.bucket.over(&rule.quota, now)
    }

    fn idle_at(&self) -> Timestamp {
        self.bucket.idle_at()
    }
}

impl State {
    /// Gives `units` back that another replica gave back of its charges.
    pub(super) fn take_back(&mut self, rule: &Rule, units: u64, now: Timestamp) {
        self.bucket.take_back(&rule.quota, units, now);
    }
}

impl Packed for State {
    fn pack(&self, bytes: &mut Vec<u8>) {
        self.bucket.pack(bytes);
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        token_bucket::Bucket::unpack(from).map(|bucket| Self { bucket })
    }
}

impl Portable for State {
    fn export(&self, rule: &Rule, now: Timestamp, numbers: &mut Numbers) {
        self.bucket.export(&rule.quota, now, numbers);
    }

    fn import(rule: &Rule, numbers: &mut dyn Iterator<Item = u64>, now: Timestamp) -> Option<Self> {
        token_bucket::Bucket::import(&rule.quota, numbers, now).map(|bucket| Self { bucket })
    }

    fn proof(rule: &Rule, numbers: &[u64], charged: Charged) -> Option<(usize, [u64; 5])> {
        token_bucket::Bucket::proof(&rule.quota, numbers, charged)
    }
}

/// One request at a time: a key has all units or none.
fn shape(quota: &Quota, deficit_ns: u64, cost: u64) -> Decision {
    let taken_ns = cost.saturating_mul(quota.interval_ns());
    let (denied, deficit_ns) = match cost {
        0 => (None, deficit_ns),
        cost if cost > quota.burst() => (Some(Retry::Never), deficit_ns),
        _ if deficit_ns > 0 => (Some(Retry::AfterNs(deficit_ns)), deficit_ns),
        _ => (None, taken_ns),
    };
    Decision { denied, remaining: if deficit_ns == 0 { quota.burst() } else { 0 }, reset_after_ns: deficit_ns }
}

#[cfg(test)]
mod tests;
