//! Sub-windows: a ring of `n` counters, each for an `n`th of the period. Their sum is the number of used units.
//!
//! Sub-windows are the same for all keys. The oldest is forgotten as a whole when the newest begins.
//!
//! Bound: at most `count` units in any `n` consecutive sub-windows, and so in any span of up to `(n - 1) / n` of the
//! period. A span of a whole period meets a part of one more sub-window, and can see twice as much. With `n = 1` this is
//! the fixed window. The period is rounded up to `n` times a whole number of nanoseconds.
//!
//! Memory: `8 * n` bytes for a key that has spent something. An admission takes constant time, plus the time for the
//! sub-windows that have passed since the last charge, at most `n`.

mod rule;

use bytes::BufMut;

pub use self::rule::{Rule, SUB_WINDOWS_MAX};
use super::late::units::LateUnits;
use super::packed::{Packed, Unpacker};
use super::portable::{Charged, Numbers, Portable, from_us, proof_of_entries, to_us};
use super::rule::Rule as _;
use super::state::{self, charged, dated_receipt, settled};
use super::{Allowance, Decision, Rate, Retry};
use crate::base::time::Timestamp;

/// The largest number of a sub-window; beyond it the numbers of its successors would overflow.
const NUMBER_MAX: u64 = u64::MAX - 2 * SUB_WINDOWS_MAX as u64;

/// The state of one key: 40 bytes, and the ring once something is spent.
#[derive(Clone, Debug)]
pub struct State {
    /// Units charged in each sub-window, by its number modulo `n`.
    ring: Box<[u64]>,
    /// The number, counted from the epoch, of the newest sub-window that was charged.
    newest: u64,
    sum: u64,
    sub_ns: u64,
}

/// The proof of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    cost: u64,
    number: u64,
    sub_ns: u64,
}

dated_receipt!(Receipt);

impl State {
    fn n(&self) -> u64 {
        self.ring.len() as u64
    }

    fn slot(&self, number: u64) -> usize {
        usize::try_from(number % self.n().max(1)).unwrap_or(0)
    }

    /// The number of the sub-window of `now`; never older than one that was charged.
    #[inline]
    fn number(&self, sub_ns: u64, now: Timestamp) -> u64 {
        let number = now.as_ns() / sub_ns;
        if self.sum == 0 { number } else { number.max(self.newest) }
    }

    /// Numbers of sub-windows that may have been charged, and have expired in the sub-window `number`.
    fn expired(&self, number: u64) -> std::ops::RangeInclusive<u64> {
        // Slots after the newest hold sub-windows that are a round older.
        let passed = (number - self.newest).min(self.n());
        self.newest + 1..=self.newest + passed
    }

    /// Units used in the sub-window `number`.
    #[inline]
    fn used(&self, number: u64) -> u64 {
        if self.sum == 0 || number == self.newest {
            return self.sum;
        }
        let expired: u64 = self.expired(number).map(|number| self.ring[self.slot(number)]).sum();
        self.sum - expired
    }

    /// Nanoseconds until at most `most` units are used, if nothing is charged meanwhile.
    fn falls_to(&self, most: u64, now: Timestamp) -> u64 {
        let mut used = self.sum;
        let mut at = now;
        for age in (0..self.n()).rev().filter(|age| *age <= self.newest) {
            if used <= most {
                break;
            }
            let number = self.newest - age;
            used -= self.ring[self.slot(number)];
            at = at.max(self.ends_counting(number));
        }
        at.ns_since(now)
    }

    fn ends_counting(&self, number: u64) -> Timestamp {
        Timestamp::from_ns((number.saturating_add(self.n())).saturating_mul(self.sub_ns))
    }

    /// Drops units that have expired in the sub-window `number`.
    fn roll(&mut self, number: u64) {
        for expired in self.expired(number) {
            let slot = self.slot(expired);
            self.sum -= std::mem::take(&mut self.ring[slot]);
        }
        self.newest = number;
    }

    /// Charges the sub-window `number`.
    #[inline]
    fn charge(&mut self, rule: &Rule, units: u64, number: u64) {
        if units == 0 {
            return;
        }
        if self.sum == 0 {
            *self = Self::new(rule, number);
        } else if number != self.newest {
            self.roll(number);
        }
        self.sum = self.sum.saturating_add(units);
        let slot = self.slot(self.newest);
        self.ring[slot] = self.ring[slot].saturating_add(units);
    }

    /// Charges a sub-window that may be before the newest one.
    fn charge_earlier(&mut self, rule: &Rule, units: u64, number: u64) {
        if self.sum == 0 || number >= self.newest {
            self.charge(rule, units, number);
        } else if self.newest - number < self.n() {
            let slot = self.slot(number);
            self.ring[slot] = self.ring[slot].saturating_add(units);
            self.sum = self.sum.saturating_add(units);
        }
    }

    #[cold]
    fn new(rule: &Rule, number: u64) -> Self {
        let ring = vec![0; usize::try_from(rule.n).unwrap_or(1)].into_boxed_slice();
        Self { ring, newest: number, sum: 0, sub_ns: rule.sub_ns }
    }

    /// Removes up to `units` units from a sub-window and returns their number. The newest sub-window has units after that.
    fn take(&mut self, number: u64, units: u64) -> u64 {
        let slot = self.slot(number);
        let taken = units.min(self.ring[slot]);
        self.ring[slot] -= taken;
        self.sum -= taken;
        while self.sum > 0 && self.ring[self.slot(self.newest)] == 0 {
            self.newest -= 1;
        }
        taken
    }

    fn counts(&self, number: u64) -> bool {
        self.sum > 0 && number <= self.newest && self.newest - number < self.n()
    }
}

impl state::State for State {
    type Rule = Rule;
    type Receipt = Receipt;

    fn fresh(rule: &Rule) -> Self {
        Self { ring: Box::default(), newest: 0, sum: 0, sub_ns: rule.sub_ns }
    }

    fn is_of(&self, rule: &Rule) -> bool {
        self.sub_ns == rule.sub_ns && (self.sum == 0 || self.n() == rule.n)
    }

    fn adopt(&mut self, rule: &Rule, now: Timestamp) {
        if !self.is_of(rule) {
            // All units that count are dated now.
            let used = self.used(self.number(self.sub_ns, now));
            *self = Self::fresh(rule);
            self.charge(rule, used, now.as_ns() / rule.sub_ns);
        }
    }

    fn admit(&mut self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        self.adopt(rule, now);
        let number = self.number(rule.sub_ns, now);
        let decision = decide(self, rule, cost, number, now);
        if decision.is_admitted() {
            self.charge(rule, cost, number);
        }
        decision
    }

    fn peek(&self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        if self.is_of(rule) {
            return decide(self, rule, cost, self.number(rule.sub_ns, now), now);
        }
        let mut adopted = self.clone();
        adopted.adopt(rule, now);
        decide(&adopted, rule, cost, adopted.number(rule.sub_ns, now), now)
    }

    fn wait(&self, rule: &Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        if cost > rule.count {
            return Retry::Never;
        }
        let mut state = self.clone();
        state.adopt(rule, now);
        // Requests pass in rounds of as many as fit at once. Each passes when its counterpart of the last round expires.
        let cost = cost.max(1);
        let (place, round) = (ahead.div_ceil(cost), rule.count / cost);
        let first_ns = state.falls_to(rule.count - (place % round + 1) * cost, now);
        let Some(more) = (place / round).checked_sub(1) else { return Retry::AfterNs(first_ns) };
        let number = now.saturating_add_ns(first_ns).as_ns() / rule.sub_ns;
        let second = Timestamp::from_ns((number.saturating_add(rule.n)).saturating_mul(rule.sub_ns));
        Retry::AfterNs(second.saturating_add_ns(more.saturating_mul(rule.length_ns())).ns_since(now))
    }

    fn receipt(&self, cost: u64, _now: Timestamp) -> Receipt {
        Receipt { cost, number: self.newest, sub_ns: self.sub_ns }
    }

    /// Exact, at any time and in any order. A charge under other sub-windows gives nothing back.
    fn refund(&mut self, rule: &Rule, receipt: &Receipt, now: Timestamp) -> u64 {
        if receipt.sub_ns != self.sub_ns || !self.counts(receipt.number) {
            return 0;
        }
        let is_counted = self.number(rule.sub_ns, now).saturating_sub(receipt.number) < self.n();
        let taken = self.take(receipt.number, receipt.cost);
        if is_counted { taken } else { 0 }
    }

    /// A negative number removes the newest units.
    fn settle(&mut self, rule: &Rule, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        self.adopt(rule, now);
        let number = self.number(rule.sub_ns, now);
        let used = self.used(number);
        let target = settled(used, extra, rule.count, max_debt);
        self.charge(rule, target.saturating_sub(used), number);
        let mut surplus = used.saturating_sub(target);
        if surplus > 0 {
            self.roll(number);
        }
        while surplus > 0 && self.sum > 0 {
            surplus -= self.take(self.newest, surplus);
        }
        charged(used, target)
    }

    /// Units count in the sub-window of their charge.
    fn settle_late(&mut self, rule: &Rule, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        self.adopt(rule, now);
        for LateUnits { units, age_ns } in late {
            if *units < 0 {
                self.settle(rule, *units, max_debt, now);
                continue;
            }
            let (at, used) = (now.saturating_sub_ns(*age_ns), self.used(self.number(rule.sub_ns, now)));
            if rule.counts(at, now) {
                let number = at.as_ns() / rule.sub_ns;
                self.charge_earlier(rule, settled(used, *units, rule.count, max_debt) - used, number);
            }
        }
    }

    fn over(&self, rule: &Rule, now: Timestamp) -> u64 {
        self.used(self.number(self.sub_ns, now)).saturating_sub(rule.count)
    }

    fn idle_at(&self) -> Timestamp {
        if self.sum == 0 { Timestamp::ZERO } else { self.ends_counting(self.newest) }
    }
}

/// `state` is under `rule`, and `number` is the sub-window of `now`.
#[inline]
fn decide(state: &State, rule: &Rule, cost: u64, number: u64, now: Timestamp) -> Decision {
    let used = state.used(number);
    let free = rule.count.saturating_sub(used);
    if cost <= free && cost > 0 {
        let idle = Timestamp::from_ns(number.saturating_add(rule.n).saturating_mul(rule.sub_ns));
        return Decision { denied: None, remaining: free - cost, reset_after_ns: idle.ns_since(now) };
    }
    let denied = match cost {
        0 => None,
        cost if cost > rule.count => Some(Retry::Never),
        cost => Some(Retry::AfterNs(state.falls_to(rule.count - cost, now))),
    };
    let reset_after_ns = if used == 0 { 0 } else { state.ends_counting(state.newest).ns_since(now) };
    Decision { denied, remaining: free, reset_after_ns }
}

impl Packed for State {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.put_u64_le(self.sub_ns);
        bytes.put_u64_le(self.newest);
        // At most `SUB_WINDOWS_MAX`, and none while nothing is spent.
        let ring = if self.sum == 0 { &[][..] } else { &self.ring };
        bytes.put_u32_le(u32::try_from(ring.len()).unwrap_or(u32::MAX));
        for units in ring {
            bytes.put_u64_le(*units);
        }
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        let (sub_ns, newest, n) = (from.u64()?, from.u64()?, from.u32()?);
        if n > SUB_WINDOWS_MAX || newest > NUMBER_MAX {
            return None;
        }
        Allowance::new(Rate { count: 1, period_ns: sub_ns.checked_mul(u64::from(n.max(1)))? }).ok()?;
        let mut ring = Vec::with_capacity(usize::try_from(n).ok()?);
        let mut sum: u64 = 0;
        for _ in 0..n {
            // The sum must not overflow.
            let units = from.u64()?.min(u64::MAX - sum);
            sum += units;
            ring.push(units);
        }
        let mut state = Self { ring: ring.into_boxed_slice(), newest, sum, sub_ns };
        // No sub-window is before the epoch, so the search for the newest ends.
        let is_early = |number: usize| number as u64 > newest && state.ring[number] > 0;
        if (0..state.ring.len()).any(is_early) {
            return None;
        }
        if let Some((then, now)) = from.moved().filter(|_| sum > 0) {
            let used = state.used(state.number(sub_ns, then));
            state.ring.fill(0);
            (state.sum, state.newest) = (used, now.as_ns() / sub_ns);
            let slot = state.slot(state.newest);
            state.ring[slot] = used;
        }
        Some(state)
    }
}

/// The number of sub-windows with units; then of each the microseconds since it began and its units, the oldest first.
impl Portable for State {
    fn export(&self, rule: &Rule, now: Timestamp, numbers: &mut Numbers) {
        let number = self.number(rule.sub_ns, now);
        let first = (number + 1).saturating_sub(rule.n);
        let counts = |number: &u64| self.counts(*number) && self.ring[self.slot(*number)] > 0;
        let at = numbers.len();
        numbers.push(0);
        for counted in (first..=number).filter(counts) {
            let age_ns = now.ns_since(Timestamp::from_ns(counted.saturating_mul(rule.sub_ns)));
            numbers.extend([to_us(age_ns), self.ring[self.slot(counted)]]);
            numbers[at] += 1;
        }
    }

    /// Sub-windows begin at the same dates for all keys, so an age counts as a number of sub-windows.
    fn import(rule: &Rule, numbers: &mut dyn Iterator<Item = u64>, now: Timestamp) -> Option<Self> {
        let mut state = <Self as state::State>::fresh(rule);
        let present = now.as_ns() / rule.sub_ns;
        let mut oldest = rule.n;
        for _ in 0..numbers.next()? {
            let (age, units) = (from_us(numbers.next()?) / rule.sub_ns, numbers.next()?);
            if age >= oldest || units == 0 {
                return None;
            }
            oldest = age;
            state.charge(rule, units, present.checked_sub(age)?);
        }
        Some(state)
    }

    fn proof(rule: &Rule, numbers: &[u64], charged: Charged) -> Option<(usize, [u64; 5])> {
        proof_of_entries(numbers, to_us(rule.sub_ns), charged)
    }
}

#[cfg(test)]
mod tests;
