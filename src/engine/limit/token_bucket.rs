//! Token bucket as the generic cell rate algorithm (ITU-T I.371, virtual scheduling).
//!
//! State is the theoretical arrival time (`tat`): the instant at which the bucket is full again. With
//! `deficit = max(tat - now, 0)`, a request of cost `c` is admitted iff `deficit + c * interval <= burst *
//! interval`, and then adds `c * interval` to it.
//!
//! Bound: in any span of length `w` a key is admitted at most `burst + w / interval` units.
//!
//! A state has the interval under which it was written. Under another interval its deficit is converted, so that the
//! number of spent units stays the same. A changed rate neither refills nor drains a bucket; from then on units come back
//! at the new rate. A lowered burst leaves a debt that is paid first.

mod bucket;
mod refund;

use bytes::BufMut;

pub use self::bucket::Bucket;
use super::late::units::LateUnits;
use super::packed::{Packed, Unpacker, put_instant};
use super::quota::{IntervalTag, rounded_units};
use super::state;
use crate::base::time::Timestamp;
use crate::engine::limit::{Decision, Quota, Retry};

/// The state of one key: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    tat: Timestamp,
    interval: IntervalTag,
    /// Units given back so far from below later charges, at most [`REFUNDED_MAX`].
    refunded: u32,
}

/// The count of units given back from which on more are not counted.
const REFUNDED_MAX: u32 = u32::MAX;

/// The proof of a charge: 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    cost: u64,
    at: Timestamp,
    full_at: Timestamp,
    interval: IntervalTag,
    refunded: u32,
    /// Changes of the interval before the charge, if its bucket is a [`Bucket`].
    changes: u32,
}

/// The raw answer of a bucket, in two registers; [`Answer::decision`] computes the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    is_admitted: bool,
    refunded: u32,
    /// Nanoseconds until the bucket is full, after the request.
    deficit_ns: u64,
}

impl Answer {
    /// The answer of a bucket that admitted a request, and is full after `deficit_ns`.
    pub fn admitted(deficit_ns: u64, refunded: u32) -> Self {
        Self { is_admitted: true, refunded, deficit_ns }
    }

    /// Units given back so far from below later charges. They lower the refund of a receipt.
    pub fn refunded(self) -> u32 {
        self.refunded
    }

    /// Whether the request may pass.
    pub fn is_admitted(self) -> bool {
        self.is_admitted
    }

    /// The proof of the charge of `cost` units at `now`, if it was made.
    pub fn receipt(self, quota: &Quota, cost: u64, now: Timestamp) -> Receipt {
        Receipt::new(cost, now, self.deficit_ns, quota.interval_tag(), self.refunded)
    }
}

impl Receipt {
    /// The proof of a charge of `cost` units at `at`, after which the bucket was full after `deficit_ns`.
    fn new(cost: u64, at: Timestamp, deficit_ns: u64, interval: IntervalTag, refunded: u32) -> Self {
        let most_ns = interval.interval_ns().saturating_mul(REFUNDED_MAX.into());
        Self { cost, at, full_at: at.saturating_add_ns(deficit_ns.min(most_ns)), interval, refunded, changes: 0 }
    }

    /// The instant of the charge.
    pub fn at(&self) -> Timestamp {
        self.at
    }
}

impl State {
    /// The state of a new key.
    pub const fn fresh(quota: &Quota) -> Self {
        Self { tat: Timestamp::ZERO, interval: quota.interval_tag(), refunded: 0 }
    }

    /// The instant from which the key is idle: it decides as [`State::fresh`] does, under any quota, and no receipt gives
    /// anything back. The bucket is full at this instant or before.
    pub const fn idle_at(&self) -> Timestamp {
        if self.refunded == 0 {
            return self.tat;
        }
        self.tat.saturating_add_ns(self.interval.interval_ns_ceil().saturating_mul(self.refunded as u64))
    }

    /// The state as two words.
    #[inline]
    pub const fn to_words(&self) -> [u64; 2] {
        [self.tat.as_ns(), (self.interval.0 as u64) << 32 | self.refunded as u64]
    }

    /// The state of the words of [`State::to_words`].
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the halves of a word
    pub const fn from_words([tat_ns, rest]: [u64; 2]) -> Self {
        Self { tat: Timestamp::from_ns(tat_ns), interval: IntervalTag((rest >> 32) as u32), refunded: rest as u32 }
    }

    /// Nanoseconds until full under `quota`; more than its capacity while in debt.
    #[inline]
    pub(super) fn deficit_ns(&self, quota: &Quota, now: Timestamp) -> u64 {
        let deficit = self.tat.ns_since(now);
        if deficit == 0 || self.interval == quota.interval_tag() {
            return deficit;
        }
        convert(deficit, self.interval.interval_ns(), quota.interval_ns())
    }

    /// Carries spent units over to the interval of `quota`. From `now` on units come back at its rate.
    #[inline]
    pub fn adopt(&mut self, quota: &Quota, now: Timestamp) {
        if !self.is_under(quota) {
            self.tat = now.saturating_add_ns(self.deficit_ns(quota, now));
            self.interval = quota.interval_tag();
        }
    }

    /// A bucket that is full at `tat`.
    pub(super) const fn filling(tat: Timestamp, quota: &Quota) -> Self {
        Self { tat, ..Self::fresh(quota) }
    }

    /// Charges units so that the bucket is full at `full_at`.
    pub(super) fn fill_until(&mut self, full_at: Timestamp, now: Timestamp) {
        if self.refunded == 0 {
            self.tat = full_at;
        } else {
            self.fill_refunded_until(full_at, now);
        }
    }

    #[cold]
    fn fill_refunded_until(&mut self, full_at: Timestamp, now: Timestamp) {
        if self.idle_at() <= now {
            self.refunded = 0;
        }
        // A bucket that stays full is idle no later than before.
        self.tat = if full_at > now { full_at } else { self.tat.min(now) };
    }

    /// Whether the state is under the interval of `quota`, and nothing is to be adopted.
    #[inline]
    pub fn is_under(&self, quota: &Quota) -> bool {
        self.interval == quota.interval_tag()
    }

    /// The shorter one of its interval and that of `quota`, rounded down.
    pub fn shorter_interval_ns(&self, quota: &Quota) -> u64 {
        self.interval.min(quota.interval_tag()).interval_ns()
    }

    /// Decides a request of `cost` units and, if admitted, charges it. Does only the work that needs a lock;
    /// [`Answer::decision`] does the rest.
    #[inline]
    pub fn charge(&mut self, quota: &Quota, cost: u64, now: Timestamp) -> Answer {
        self.adopt(quota, now);
        let mut answer = self.answer(quota, cost, now);
        if answer.is_admitted {
            self.fill_until(now.saturating_add_ns(answer.deficit_ns), now);
            answer.refunded = self.refunded;
        }
        answer
    }

    /// Decides a request of `cost` units and, if admitted, charges it.
    pub fn admit(&mut self, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        self.charge(quota, cost, now).decision(quota, cost)
    }

    /// The decision that [`State::admit`] would make. Nothing is charged.
    pub fn peek(&self, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        self.answer(quota, cost, now).decision(quota, cost)
    }

    #[inline]
    fn answer(&self, quota: &Quota, cost: u64, now: Timestamp) -> Answer {
        let deficit_ns = self.deficit_ns(quota, now);
        let needed_ns = cost.saturating_mul(quota.interval_ns());
        let is_admitted = needed_ns <= quota.capacity_ns().saturating_sub(deficit_ns);
        // If admitted the sum is at most the capacity.
        let deficit_ns = if is_admitted { deficit_ns + needed_ns } else { deficit_ns };
        Answer { is_admitted, refunded: self.refunded, deficit_ns }
    }

    /// Nanoseconds from `now` until `units` have been admitted one after another, each as early as possible.
    ///
    /// Exact for the last request of a queue whose costs add up to `units`, each of them at most `burst`.
    pub fn wait_ns(&self, quota: &Quota, units: u64, now: Timestamp) -> u64 {
        let needed = u128::from(units) * u128::from(quota.interval_ns()) + u128::from(self.deficit_ns(quota, now));
        u64::try_from(needed.saturating_sub(u128::from(quota.capacity_ns()))).unwrap_or(u64::MAX)
    }
}

impl state::State for State {
    type Rule = Quota;
    type Receipt = Receipt;

    fn fresh(quota: &Quota) -> Self {
        Self::fresh(quota)
    }

    fn is_of(&self, quota: &Quota) -> bool {
        self.is_under(quota)
    }

    fn adopt(&mut self, quota: &Quota, now: Timestamp) {
        self.adopt(quota, now);
    }

    fn admit(&mut self, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        self.admit(quota, cost, now)
    }

    fn peek(&self, quota: &Quota, cost: u64, now: Timestamp) -> Decision {
        self.peek(quota, cost, now)
    }

    /// Exact for all costs.
    fn wait(&self, quota: &Quota, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        if cost > quota.burst() {
            return Retry::Never;
        }
        Retry::AfterNs(self.wait_ns(quota, ahead.saturating_add(cost), now))
    }

    fn receipt(&self, cost: u64, now: Timestamp) -> Receipt {
        Receipt::new(cost, now, self.tat.ns_since(now), self.interval, self.refunded)
    }

    /// As far as the bucket alone knows. [`Bucket`] knows more.
    fn refund(&mut self, quota: &Quota, receipt: &Receipt, now: Timestamp) -> u64 {
        self.give_back(receipt, quota.interval_ns(), |_, most_ns| most_ns, now)
    }

    fn settle(&mut self, quota: &Quota, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        self.adopt(quota, now);
        let (deficit_ns, interval_ns) = (self.deficit_ns(quota, now), quota.interval_ns());
        let units_ns = extra.unsigned_abs().saturating_mul(interval_ns);
        let most_ns = quota.capacity_ns().saturating_add(max_debt.saturating_mul(interval_ns)).max(deficit_ns);
        let settled_ns = match extra {
            0.. => deficit_ns.saturating_add(units_ns).min(most_ns),
            _ => deficit_ns.saturating_sub(units_ns),
        };
        self.fill_until(now.saturating_add_ns(settled_ns), now);
        // A receipt must not give these units back again.
        self.count_refunded(deficit_ns.saturating_sub(settled_ns).div_ceil(interval_ns));
        let units = rounded_units(deficit_ns.abs_diff(settled_ns), interval_ns);
        if extra < 0 { state::charged(units, 0) } else { state::charged(0, units) }
    }

    fn settle_late(&mut self, quota: &Quota, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        self.settle_late(quota, late, max_debt, now);
    }

    /// Receipts stay valid.
    fn raise(&mut self, quota: &Quota, other: &Self, now: Timestamp) {
        self.adopt(quota, now);
        self.fill_until(now.saturating_add_ns(self.deficit_ns(quota, now).max(other.deficit_ns(quota, now))), now);
    }

    fn over(&self, quota: &Quota, now: Timestamp) -> u64 {
        self.deficit_ns(quota, now).saturating_sub(quota.capacity_ns()).div_ceil(quota.interval_ns())
    }

    fn idle_at(&self) -> Timestamp {
        self.idle_at()
    }
}

impl Packed for State {
    fn pack(&self, bytes: &mut Vec<u8>) {
        put_instant(bytes, self.tat);
        bytes.put_u32_le(self.interval.0);
        bytes.put_u32_le(self.refunded);
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        Some(Self { tat: from.instant()?, interval: IntervalTag::from_bits(from.u32()?)?, refunded: from.u32()? })
    }
}

/// A deficit under one interval converted to another, rounded up. A tag rounds the first interval down, so up to 3 in 10^8
/// units are added, and none is lost.
#[cold]
fn convert(deficit_ns: u64, from_interval_ns: u64, to_interval_ns: u64) -> u64 {
    let scaled = (u128::from(deficit_ns) * u128::from(to_interval_ns)).div_ceil(u128::from(from_interval_ns.max(1)));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

impl Answer {
    /// The decision about a request of `cost` units under `quota`.
    #[inline]
    pub fn decision(self, quota: &Quota, cost: u64) -> Decision {
        let Self { is_admitted, deficit_ns, .. } = self;
        let denied = (!is_admitted).then(|| retry(quota, cost, deficit_ns));
        let remaining = quota.units_in(quota.capacity_ns().saturating_sub(deficit_ns));
        Decision { denied, remaining, reset_after_ns: deficit_ns }
    }
}

fn retry(quota: &Quota, cost: u64, deficit_ns: u64) -> Retry {
    if cost > quota.burst() {
        return Retry::Never;
    }
    Retry::AfterNs(deficit_ns.saturating_add(cost * quota.interval_ns()) - quota.capacity_ns())
}

#[cfg(test)]
mod tests;
