//! Sliding log: the instants of all charges of the last `period`. It is exact, and the most expensive algorithm.
//!
//! Bound: at most `count` units in any span shorter than `period`. No sharper bound is possible.
//!
//! Memory: 16 bytes for each instant with a charge within the last `period`, so at most `16 * count` for a key (twice that
//! while its log grows). Entries that expired within the last [`BACKDATE_NS_MAX`] stay too, because a waiting request may
//! be decided as of an earlier instant. Refused requests are not stored. An admission looks at the expired entries that
//! stay; a refusal also looks at the entries that must expire, at most `cost`.

use std::collections::VecDeque;

use bytes::BufMut;

use super::late::units::LateUnits;
use super::packed::{Packed, Unpacker, put_instant};
use super::portable::{Charged, Numbers, Portable, from_us, proof_of_entries, to_us};
use super::rule::{self, Scale};
use super::state::{self, charged, dated_receipt, settled};
use super::{Allowance, BACKDATE_NS_MAX, Decision, Pace, QuotaError, Rate, Retry};
use crate::base::time::Timestamp;

/// The largest number of units: 16 MB for one key.
pub const COUNT_MAX: u64 = 1_000_000;

/// The rule of a sliding log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    count: u64,
    period_ns: u64,
}

impl Rule {
    /// `rate.count` units in any `rate.period_ns`.
    pub fn new(rate: Rate) -> Result<Self, QuotaError> {
        if rate.count > COUNT_MAX {
            return Err(QuotaError::TooMany);
        }
        Allowance::new(rate).map(|rate| Self { count: rate.count(), period_ns: rate.period_ns() })
    }
}

impl rule::Rule for Rule {
    fn capacity(&self) -> u64 {
        self.count
    }

    fn period_ns(&self) -> Option<u64> {
        Some(self.period_ns)
    }

    fn pace(&self, _: Timestamp) -> Option<Pace> {
        Some(Pace::of_windows(self.count, self.period_ns))
    }

    fn counts(&self, at: Timestamp, now: Timestamp) -> bool {
        now.ns_since(at) < self.period_ns
    }

    fn is_within(&self, other: &Self) -> bool {
        // That many spans of this rule cover one of the other.
        let spans = other.period_ns.div_ceil(self.period_ns.max(1));
        self.count.saturating_mul(spans) <= other.count
    }

    fn scaled(&self, scale: Scale) -> Result<Self, QuotaError> {
        let count = scale.units(self.count);
        if count > COUNT_MAX { Err(QuotaError::TooMany) } else { Ok(Self { count, ..*self }) }
    }

    #[cfg(test)]
    fn bound(&self, span_ns: u64) -> u64 {
        self.count * (span_ns / self.period_ns + 1)
    }
}

/// The state of one key: 48 bytes, and the log.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// In order of time. An instant before the newest entry counts as that of the newest.
    log: VecDeque<Entry>,
    /// Units of all entries, including expired ones.
    logged: u64,
    period_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Timestamp,
    units: u64,
}

/// The proof of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    cost: u64,
    at: Timestamp,
}

dated_receipt!(Receipt);

impl State {
    /// The number of entries that have expired at `now`, and their units.
    fn expired(&self, rule: &Rule, now: Timestamp) -> (usize, u64) {
        let period_ns = rule.period_ns.min(self.period_ns);
        let expired = self.log.iter().take_while(|entry| entry.at.saturating_add_ns(period_ns) <= now);
        expired.fold((0, 0), |(entries, units), entry| (entries + 1, units + entry.units))
    }

    fn used(&self, rule: &Rule, now: Timestamp) -> u64 {
        self.logged - self.expired(rule, now).1
    }

    /// The wait until at most `most` units are used, if nothing is charged meanwhile.
    fn falls_to(&self, most: u64, rule: &Rule, now: Timestamp) -> u64 {
        let (expired, units) = self.expired(rule, now);
        let mut used = self.logged - units;
        let mut at = now;
        for entry in self.log.iter().skip(expired) {
            if used <= most {
                break;
            }
            used -= entry.units;
            at = at.max(entry.at.saturating_add_ns(rule.period_ns));
        }
        at.ns_since(now)
    }

    fn push(&mut self, units: u64, now: Timestamp) {
        self.logged += units;
        match self.log.back_mut() {
            _ if units == 0 => {}
            Some(last) if last.at >= now => last.units += units,
            _ => self.log.push_back(Entry { at: now, units }),
        }
    }

    /// Adds units of an instant that may be before the newest entry.
    fn insert(&mut self, units: u64, at: Timestamp) {
        let index = self.log.partition_point(|entry| entry.at < at);
        self.logged += units;
        match self.log.get_mut(index) {
            _ if units == 0 => {}
            Some(entry) if entry.at == at => entry.units += units,
            _ => self.log.insert(index, Entry { at, units }),
        }
    }

    /// Removes up to `units` units from an entry, and the entry with its last unit. Returns the number of units.
    fn take(&mut self, index: usize, units: u64) -> u64 {
        let Some(entry) = self.log.get_mut(index) else { return units };
        let taken = units.min(entry.units);
        entry.units -= taken;
        self.logged -= taken;
        if entry.units == 0 {
            self.log.remove(index);
        }
        taken
    }
}

impl state::State for State {
    type Rule = Rule;
    type Receipt = Receipt;

    fn fresh(rule: &Rule) -> Self {
        Self { log: VecDeque::new(), logged: 0, period_ns: rule.period_ns }
    }

    fn is_of(&self, rule: &Rule) -> bool {
        self.period_ns == rule.period_ns
    }

    fn adopt(&mut self, rule: &Rule, now: Timestamp) {
        // Expired entries must not count again under a longer period.
        let is_same = self.period_ns == rule.period_ns;
        let (entries, units) = self.expired(rule, if is_same { now.saturating_sub_ns(BACKDATE_NS_MAX) } else { now });
        self.period_ns = rule.period_ns;
        self.log.drain(..entries);
        self.logged -= units;
    }

    fn admit(&mut self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        self.adopt(rule, now);
        let decision = self.peek(rule, cost, now);
        if decision.is_admitted() {
            self.push(cost, now);
        }
        decision
    }

    fn peek(&self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        let used = self.used(rule, now);
        let free = rule.count.saturating_sub(used);
        let denied = if cost <= free {
            None
        } else if cost > rule.count {
            Some(Retry::Never)
        } else {
            Some(Retry::AfterNs(self.falls_to(rule.count - cost, rule, now)))
        };
        let charged = if denied.is_none() { cost } else { 0 };
        let last = self.log.back().map(|entry| entry.at).filter(|_| used > 0);
        let last = if charged > 0 { last.max(Some(now)) } else { last };
        let reset_after_ns = last.map_or(0, |last| last.saturating_add_ns(rule.period_ns).ns_since(now));
        Decision { denied, remaining: free - charged, reset_after_ns }
    }

    fn wait(&self, rule: &Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        if cost > rule.count {
            return Retry::Never;
        }
        // Requests pass in rounds of as many as fit at once. Each follows its counterpart of the last round.
        let cost = cost.max(1);
        let (place, round) = (ahead.div_ceil(cost), rule.count / cost);
        let first_ns = self.falls_to(rule.count - (place % round + 1) * cost, rule, now);
        Retry::AfterNs(first_ns.saturating_add((place / round).saturating_mul(rule.period_ns)))
    }

    fn receipt(&self, cost: u64, now: Timestamp) -> Receipt {
        Receipt { cost, at: self.log.back().map_or(now, |last| last.at) }
    }

    /// Exact, at any time and in any order.
    fn refund(&mut self, rule: &Rule, receipt: &Receipt, now: Timestamp) -> u64 {
        let Ok(index) = self.log.binary_search_by_key(&receipt.at, |entry| entry.at) else { return 0 };
        let taken = self.take(index, receipt.cost);
        if receipt.at.saturating_add_ns(rule.period_ns) > now { taken } else { 0 }
    }

    /// A negative number removes the newest units.
    fn settle(&mut self, rule: &Rule, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        self.adopt(rule, now);
        let used = self.used(rule, now);
        let target = settled(used, extra, rule.count, max_debt);
        self.push(target.saturating_sub(used), now);
        let mut surplus = used.saturating_sub(target);
        while surplus > 0 {
            surplus -= self.take(self.log.len() - 1, surplus);
        }
        charged(used, target)
    }

    /// Units have the time of their charge.
    fn settle_late(&mut self, rule: &Rule, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        self.adopt(rule, now);
        for LateUnits { units, age_ns } in late {
            if *units < 0 {
                self.settle(rule, *units, max_debt, now);
                continue;
            }
            let (at, used) = (now.saturating_sub_ns(*age_ns), self.used(rule, now));
            if at.saturating_add_ns(rule.period_ns) > now {
                self.insert(settled(used, *units, rule.count, max_debt) - used, at);
            }
        }
    }

    fn over(&self, rule: &Rule, now: Timestamp) -> u64 {
        self.used(rule, now).saturating_sub(rule.count)
    }

    fn idle_at(&self) -> Timestamp {
        self.log.back().map_or(Timestamp::ZERO, |last| last.at.saturating_add_ns(self.period_ns))
    }
}

impl Packed for State {
    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.put_u64_le(self.period_ns);
        // At most `COUNT_MAX` entries, and those of a debt.
        bytes.put_u32_le(u32::try_from(self.log.len()).unwrap_or(u32::MAX));
        for entry in self.log.iter().take(u32::MAX as usize) {
            put_instant(bytes, entry.at);
            bytes.put_u64_le(entry.units);
        }
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        let period_ns = from.u64()?;
        let mut log: VecDeque<Entry> = VecDeque::new();
        let mut logged: u64 = 0;
        for _ in 0..from.u32()? {
            let entry = Entry { at: from.instant()?, units: from.u64()? };
            if entry.units == 0 || log.back().is_some_and(|last| last.at > entry.at) {
                return None;
            }
            logged = logged.checked_add(entry.units)?;
            log.push_back(entry);
        }
        Some(Self { log, logged, period_ns })
    }
}

/// The number of entries; then of each its age in microseconds and its units, the oldest first.
impl Portable for State {
    fn export(&self, rule: &Rule, now: Timestamp, numbers: &mut Numbers) {
        let (expired, _) = self.expired(rule, now);
        numbers.push((self.log.len() - expired) as u64);
        let counted = self.log.iter().skip(expired);
        numbers.extend(counted.flat_map(|entry| [to_us(now.ns_since(entry.at)), entry.units]));
    }

    fn import(rule: &Rule, numbers: &mut dyn Iterator<Item = u64>, now: Timestamp) -> Option<Self> {
        let mut state = <Self as state::State>::fresh(rule);
        for _ in 0..numbers.next()? {
            let at = now.saturating_sub_ns(from_us(numbers.next()?));
            let units = numbers.next().filter(|units| *units > 0)?;
            if state.log.back().is_some_and(|last| last.at > at) {
                return None;
            }
            state.logged = state.logged.checked_add(units)?;
            state.log.push_back(Entry { at, units });
        }
        Some(state)
    }

    fn proof(_: &Rule, numbers: &[u64], charged: Charged) -> Option<(usize, [u64; 5])> {
        proof_of_entries(numbers, 0, charged)
    }
}

#[cfg(test)]
mod tests;
