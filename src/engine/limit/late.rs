//! Charges of which a store hears late, and the units of them that still count when it does.
//!
//! Meanwhile the store has given units back as if nothing had been charged. So it does not get the sum, but units with
//! their ages.
//!
//! **Buckets.** A replica without the store charges the mirror as if all replicas charged as much: `assumed` units. If the
//! mirror is full after `D`, then `min(D, assumed)` is due to these charges. (A bucket owes `max(B + A - t, F)` after a time
//! `t`: `B` was the deficit before, `A` are all charges, and `F <= A` is the debt of the newest ones. Without the charges it
//! would owe `max(B - t, 0)`, which is `max(D - A, 0)`.) The store gets the part of this replica. The sum of the parts is
//! exact if all replicas have the same load, and otherwise larger than what the bucket would owe. But a bucket of the store
//! that is at its limit has had charges of other replicas in a short time, so that time gave nothing back: it takes all units.
//!
//! **Windows, logs and buckets that shape.** Units add up. Entries are kept for as long as they count,
//! about 128 of a rate: charges of one step have the time of the last of them.
//!
//! Not here: how replicas decide without a store, and how the units are sent (`store`).

pub mod units;

use std::collections::VecDeque;
use std::iter::repeat;

use smallvec::{SmallVec, smallvec};

pub use self::units::{LateByRate, LateUnits, most};
use super::Algorithm;
use super::quota::Quota;
use crate::base::time::Timestamp;

/// Entries of one rate, about: 2 KB for a key.
const ENTRIES_MAX: u64 = 128;

/// `units` under each rate that were charged just now.
pub fn at_once(rule: &Algorithm, units: i64) -> LateByRate {
    let late = (units != 0).then_some(LateUnits { units, age_ns: 0 });
    rule.rates().iter().map(|_| late.into_iter().collect()).collect()
}

/// The charges of one key that its store has not heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateCharges {
    /// Units of this replica; negative if more are given back.
    units: i64,
    /// Units that the mirror was charged.
    assumed: i64,
    begun: Timestamp,
    last: Timestamp,
    rates: SmallVec<[LateRate; 1]>,
}

/// The charges as one rate counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LateRate {
    /// The instant at which the bucket of the mirror is full.
    Bucket(Timestamp),
    /// Units with the time of their charge, in order of time.
    Dated(VecDeque<(Timestamp, i64)>),
    /// No unit comes back with time.
    Released,
}

impl LateCharges {
    /// A charge of `units` at `now`, for which the mirror was charged `assumed` units. After that, the mirror is idle at
    /// these instants, one for each rate; without them, as if it had been idle before.
    pub fn new(rule: &Algorithm, (units, assumed): (i64, i64), idle_at: &[Timestamp], now: Timestamp) -> Self {
        let idle_at = idle_at.iter().copied().map(Some).chain(repeat(None));
        let each = rule.rates().iter().zip(idle_at);
        let rates = each.map(|(rate, idle_at)| LateRate::new(rate, (units, assumed), idle_at, now)).collect();
        Self { units, assumed, begun: now, last: now, rates }
    }

    /// The time of the first charge.
    pub fn begun(&self) -> Timestamp {
        self.begun
    }

    /// The sum of all units of this replica.
    pub fn units(&self) -> i64 {
        self.units
    }

    /// Adds other charges, which are under the same rule, whatever their order.
    pub fn add(&mut self, rule: &Algorithm, other: &Self) {
        for ((rate, rule), other) in self.rates.iter_mut().zip(rule.rates()).zip(&other.rates) {
            match (rate, other) {
                (LateRate::Bucket(full_at), LateRate::Bucket(other)) => *full_at = (*full_at).max(*other),
                (LateRate::Dated(entries), LateRate::Dated(other)) => {
                    for (at, units) in other {
                        push(entries, *units, *at, rule);
                    }
                }
                _ => {}
            }
        }
        self.units = self.units.saturating_add(other.units);
        self.assumed = self.assumed.saturating_add(other.assumed);
        (self.begun, self.last) = (self.begun.min(other.begun), self.last.max(other.last));
    }

    /// The charges as if those that still count under `before` had been made at the last instant, under `rule`.
    pub fn under(&self, before: &Algorithm, rule: &Algorithm) -> Self {
        let units = most(&self.owed_at(before, self.last));
        Self { begun: self.begun, ..Self::new(rule, (units, units), &[], self.last) }
    }

    /// The units that still count at `now`. A bucket gets all units, with the time that has given some of them back, if half
    /// of it has not filled meanwhile. In a longer time all replicas may have been without the store.
    pub fn units_at(&self, rule: &Algorithm, now: Timestamp) -> LateByRate {
        let mut late = self.owed_at(rule, now);
        for (late, quota) in late.iter_mut().zip(rule.rates()).filter_map(|(late, rate)| Some((late, bucket(rate)?))) {
            let is_short = now.ns_since(self.begun) <= quota.capacity_ns() / 2;
            for late in late.iter_mut().filter(|late| is_short && late.units > 0) {
                let back_ns = positive(self.units - late.units).saturating_mul(quota.interval_ns());
                *late = LateUnits { units: self.units, age_ns: late.age_ns.saturating_add(back_ns) };
            }
        }
        late
    }

    /// The units that are owed at `now`, if time has given the others back.
    fn owed_at(&self, rule: &Algorithm, now: Timestamp) -> LateByRate {
        let each = self.rates.iter().zip(rule.rates());
        each.map(|(rate, rule)| match rate {
            LateRate::Bucket(full_at) => {
                bucket(rule).and_then(|quota| self.units_of_bucket(quota, *full_at, now)).into_iter().collect()
            }
            LateRate::Dated(entries) => units_of(entries, rule, now),
            LateRate::Released => smallvec![LateUnits { units: self.units, age_ns: 0 }],
        })
        .collect()
    }

    /// The units that a bucket is charged.
    fn units_of_bucket(&self, quota: &Quota, full_at: Timestamp, now: Timestamp) -> Option<LateUnits> {
        let interval_ns = quota.interval_ns();
        if self.units <= 0 {
            // As if all had been given back first.
            let given_ns =
                self.units.unsigned_abs().saturating_mul(interval_ns).saturating_sub(now.ns_since(self.begun));
            let units = signed(given_ns / interval_ns);
            return (units > 0).then_some(LateUnits { units: -units, age_ns: 0 });
        }
        let owed = u128::from(self.owed_ns(quota, full_at, now)) * u128::from(positive(self.units));
        let owed_ns = u64::try_from(owed / u128::from(positive(self.assumed.max(self.units)))).unwrap_or(u64::MAX);
        let units = owed_ns.div_ceil(interval_ns);
        let age_ns = units.saturating_mul(interval_ns).saturating_sub(owed_ns);
        (units > 0).then_some(LateUnits { units: signed(units), age_ns })
    }

    /// The part of the deficit of a bucket at `now` that is due to the charges, those of other replicas with it.
    fn owed_ns(&self, quota: &Quota, full_at: Timestamp, now: Timestamp) -> u64 {
        full_at.ns_since(now).min(positive(self.assumed).saturating_mul(quota.interval_ns()))
    }
}

impl LateRate {
    fn new(rate: &Algorithm, (units, assumed): (i64, i64), idle_at: Option<Timestamp>, now: Timestamp) -> Self {
        if let Some(quota) = bucket(rate) {
            let charged_ns = quota.interval_ns().saturating_mul(positive(assumed));
            return Self::Bucket(idle_at.unwrap_or(now.saturating_add_ns(charged_ns)));
        }
        let began = match rate {
            rate if rate.is_released() => return Self::Released,
            // Units of a window of the key have the date at which it began.
            Algorithm::FixedWindow(rule) => idle_at.and_then(|ends| rule.began(ends)),
            _ => None,
        };
        let charge = (units != 0).then_some((began.map_or(now, |began| began.min(now)), units));
        Self::Dated(charge.into_iter().collect())
    }
}

/// Adds units that were charged at `at`, or takes the newest units back.
fn push(entries: &mut VecDeque<(Timestamp, i64)>, units: i64, at: Timestamp, rule: &Algorithm) {
    let mut rest = units;
    while rest < 0
        && let Some((_, newest)) = entries.back_mut().filter(|(_, newest)| *newest > 0)
    {
        let taken = rest.unsigned_abs().min(newest.unsigned_abs());
        rest += signed(taken);
        *newest -= signed(taken);
        if *newest == 0 {
            entries.pop_back();
        }
    }
    let count_ns = counts_ns(rule);
    let step = |at: Timestamp| at.as_ns() / (count_ns / ENTRIES_MAX).max(1);
    let index = entries.partition_point(|(other, _)| step(*other) < step(at));
    match entries.get_mut(index) {
        _ if rest == 0 => {}
        Some(entry) if step(entry.0) == step(at) && entry.1.signum() == rest.signum() => {
            *entry = (at.max(entry.0), entry.1.saturating_add(rest));
        }
        _ => entries.insert(index, (at, rest)),
    }
    let newest = entries.back().map_or(at, |(newest, _)| *newest);
    while entries.front().is_some_and(|(begun, _)| newest.ns_since(*begun) >= count_ns) {
        entries.pop_front();
    }
}

fn units_of(entries: &VecDeque<(Timestamp, i64)>, rule: &Algorithm, now: Timestamp) -> SmallVec<[LateUnits; 1]> {
    let counts = |(at, _): &&(Timestamp, i64)| rule.counts(*at, now);
    let (charged, given): (SmallVec<[_; 1]>, SmallVec<[_; 1]>) =
        entries.iter().filter(counts).copied().partition(|(_, units)| *units > 0);
    let charged = charged.into_iter().map(|(at, units)| LateUnits { units, age_ns: now.ns_since(at) });
    charged.chain(given.into_iter().map(|(_, units)| LateUnits { units, age_ns: 0 })).collect()
}

/// The longest time for which units of a window or a log count, in nanoseconds.
fn counts_ns(rule: &Algorithm) -> u64 {
    let windows = if matches!(rule, Algorithm::SlidingWindow(_)) { 2 } else { 1 };
    rule.memory_ns().saturating_mul(windows)
}

fn bucket(rate: &Algorithm) -> Option<&Quota> {
    match rate {
        // One that shapes has units of one request at a time: none of several shares.
        Algorithm::TokenBucket(quota) | Algorithm::LeakyBucket(quota) if !quota.shapes() => Some(quota),
        _ => None,
    }
}

fn positive(units: i64) -> u64 {
    u64::try_from(units).unwrap_or(0)
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
