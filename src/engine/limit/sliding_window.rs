//! Sliding window: two counters, the older of which fades.
//!
//! Time is cut into windows of `period`, the same for all keys. The units of the last window count in proportion to the
//! part of it that a span of one period up to now still covers, as if they had been spent evenly:
//! `estimate = last * (period - elapsed) / period + this`, rounded up.
//!
//! Bound: in any span of length `w` at most `count + w * count / period` units, as with a token bucket of that
//! burst and rate. (If one window has `a` units and the next is `e` old, the next has at most
//! `count - a * (period - e) / period`. The sum gives the bound, window by window.)

use bytes::BufMut;

use super::late::units::LateUnits;
use super::packed::{Packed, Unpacker, put_instant};
use super::portable::{Charged, Numbers, Portable, from_us, to_us};
use super::rule::{Rule, Scale};
use super::state::{self, charged, dated_receipt, settled};
use super::{Allowance, Decision, Pace, QuotaError, Rate, Retry};
use crate::base::time::Timestamp;

impl Rule for Allowance {
    fn capacity(&self) -> u64 {
        self.count()
    }

    fn period_ns(&self) -> Option<u64> {
        Some(self.period_ns())
    }

    fn pace(&self, _: Timestamp) -> Option<Pace> {
        // The estimate is rounded up, which costs an even stream one unit in each period.
        let window_ns = match self.count().saturating_sub(1) {
            0 => self.period_ns().saturating_mul(2),
            evenly => scale_up(self.period_ns(), self.count(), evenly),
        };
        Some(Pace::of_windows(self.count(), window_ns))
    }

    fn counts(&self, at: Timestamp, now: Timestamp) -> bool {
        (now.as_ns() / self.period_ns()).saturating_sub(at.as_ns() / self.period_ns()) < 2
    }

    fn is_within(&self, other: &Self) -> bool {
        self.count() <= other.count() && self.period_ns() == other.period_ns()
    }

    fn scaled(&self, scale: Scale) -> Result<Self, QuotaError> {
        Ok(Self::unchecked(scale.units(self.count()), self.period_ns()))
    }

    #[cfg(test)]
    fn bound(&self, span_ns: u64) -> u64 {
        self.count() + narrow(u128::from(self.count()) * u128::from(span_ns) / u128::from(self.period_ns()))
    }
}

/// The state of one key: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    began: Timestamp,
    last: u64,
    this: u64,
    period_ns: u64,
}

/// The proof of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    cost: u64,
    began: Timestamp,
    period_ns: u64,
}

dated_receipt!(Receipt);

/// Windows that are counted exactly for a wait; further ahead it is estimated.
const WINDOWS_COUNTED_MAX: usize = 1024;

impl State {
    /// The length of its windows in nanoseconds.
    pub(super) const fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// The state at `now` under `rule`.
    fn rolled(&self, rule: &Allowance, now: Timestamp) -> Self {
        if self.period_ns != rule.period_ns() {
            return self.adopted(rule, now);
        }
        let (period_ns, elapsed_ns) = (self.period_ns, now.ns_since(self.began));
        if elapsed_ns < period_ns {
            *self
        } else if elapsed_ns < 2 * period_ns {
            Self { began: self.began.saturating_add_ns(period_ns), last: self.this, this: 0, period_ns }
        } else {
            Self::new(0, rule, now)
        }
    }

    /// The state under another period: all units that count are dated now.
    #[cold]
    fn adopted(&self, rule: &Allowance, now: Timestamp) -> Self {
        let old = Allowance::unchecked(rule.count(), self.period_ns);
        let rolled = self.rolled(&old, now);
        Self::new(rolled.used(now), rule, now)
    }

    fn new(used: u64, rule: &Allowance, now: Timestamp) -> Self {
        let period_ns = rule.period_ns();
        Self { began: now.saturating_sub_ns(now.as_ns() % period_ns), last: 0, this: used, period_ns }
    }

    /// Nanoseconds until its window begins.
    fn early_ns(&self, now: Timestamp) -> u64 {
        self.began.ns_since(now)
    }

    fn elapsed_ns(&self, now: Timestamp) -> u64 {
        now.ns_since(self.began)
    }

    /// The estimate.
    fn used(&self, now: Timestamp) -> u64 {
        let left_ns = self.period_ns - self.elapsed_ns(now);
        self.this.saturating_add(scale_up(self.last, left_ns, self.period_ns))
    }

    /// Nanoseconds until `cost`, which is at most `count`, fits beside the estimate.
    fn retry_ns(&self, count: u64, cost: u64, now: Timestamp) -> u64 {
        let (elapsed_ns, early_ns) = (self.elapsed_ns(now), self.early_ns(now));
        if let Some(room) = (count - cost).checked_sub(self.this) {
            return early_ns + fades_at(self.last, room, self.period_ns).saturating_sub(elapsed_ns);
        }
        early_ns + self.period_ns - elapsed_ns + fades_at(self.this, count - cost, self.period_ns)
    }

    fn reset_after_ns(&self, now: Timestamp) -> u64 {
        self.idle_after_ns().map_or(0, |ns| self.early_ns(now) + ns - self.elapsed_ns(now))
    }

    fn idle_after_ns(&self) -> Option<u64> {
        match (self.last, self.this) {
            (0, 0) => None,
            (_, 0) => Some(self.period_ns),
            _ => Some(2 * self.period_ns),
        }
    }
}

/// `units * part / whole`, rounded up.
fn scale_up(units: u64, part: u64, whole: u64) -> u64 {
    match units.checked_mul(part) {
        Some(product) => product.div_ceil(whole),
        None => narrow((u128::from(units) * u128::from(part)).div_ceil(u128::from(whole))),
    }
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// The age of a window at which `last` counts for at most `room`.
fn fades_at(last: u64, room: u64, period_ns: u64) -> u64 {
    if last <= room {
        return 0;
    }
    period_ns - narrow(u128::from(room) * u128::from(period_ns) / u128::from(last))
}

impl state::State for State {
    type Rule = Allowance;
    type Receipt = Receipt;

    fn fresh(rule: &Allowance) -> Self {
        Self { began: Timestamp::ZERO, last: 0, this: 0, period_ns: rule.period_ns() }
    }

    fn is_of(&self, rule: &Allowance) -> bool {
        self.period_ns == rule.period_ns()
    }

    /// Does not roll the window: a waiting request may still be charged as of an instant in it.
    fn adopt(&mut self, rule: &Allowance, now: Timestamp) {
        if self.period_ns != rule.period_ns() {
            *self = self.adopted(rule, now);
        }
    }

    fn admit(&mut self, rule: &Allowance, cost: u64, now: Timestamp) -> Decision {
        *self = self.rolled(rule, now);
        let decision = decide(self, rule, cost, now);
        if decision.is_admitted() {
            self.this += cost;
        }
        decision
    }

    fn peek(&self, rule: &Allowance, cost: u64, now: Timestamp) -> Decision {
        decide(&self.rolled(rule, now), rule, cost, now)
    }

    fn wait(&self, rule: &Allowance, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        if cost > rule.count() {
            return Retry::Never;
        }
        let (cost, count) = (cost.max(1), rule.count());
        let mut window = self.rolled(rule, now);
        let mut place = ahead.div_ceil(cost);
        let mut at = now;
        for _ in 0..WINDOWS_COUNTED_MAX {
            // A request that fits at the last nanosecond of a window passes within it.
            let fading = scale_up(window.last, 1, window.period_ns);
            let here = count.saturating_sub(window.this).saturating_sub(fading) / cost;
            if place < here {
                let retry_ns = window.retry_ns(count, (place + 1) * cost, at);
                return Retry::AfterNs(at.saturating_add_ns(retry_ns).ns_since(now));
            }
            place -= here;
            window = Self {
                began: window.began.saturating_add_ns(window.period_ns),
                last: window.this + here * cost,
                this: 0,
                ..window
            };
            at = window.began;
        }
        let more_ns = (place / (count / cost)).saturating_mul(rule.period_ns());
        Retry::AfterNs(at.saturating_add_ns(more_ns).ns_since(now))
    }

    fn receipt(&self, cost: u64, _now: Timestamp) -> Receipt {
        Receipt { cost, began: self.began, period_ns: self.period_ns }
    }

    /// Exact, at any time and in any order. A charge under another period gives nothing back.
    fn refund(&mut self, rule: &Allowance, receipt: &Receipt, now: Timestamp) -> u64 {
        if receipt.period_ns != self.period_ns {
            return 0;
        }
        *self = self.rolled(rule, now);
        let used = self.used(now);
        if receipt.began == self.began {
            self.this = self.this.saturating_sub(receipt.cost);
        } else if receipt.began.saturating_add_ns(self.period_ns) == self.began {
            self.last = self.last.saturating_sub(receipt.cost);
        }
        used.saturating_sub(self.used(now))
    }

    /// A negative number removes the newest units.
    fn settle(&mut self, rule: &Allowance, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        *self = self.rolled(rule, now);
        let used = self.used(now);
        if extra < 0 {
            let from_this = extra.unsigned_abs().min(self.this);
            self.this -= from_this;
            self.last = self.last.saturating_sub(extra.unsigned_abs() - from_this);
        } else {
            self.this = self.this.saturating_add(settled(used, extra, rule.count(), max_debt) - used);
        }
        charged(used, self.used(now))
    }

    /// Units count in the window of their charge.
    fn settle_late(&mut self, rule: &Allowance, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        *self = self.rolled(rule, now);
        for LateUnits { units, age_ns } in late {
            if *units < 0 {
                self.settle(rule, *units, max_debt, now);
                continue;
            }
            let (at, used) = (now.saturating_sub_ns(*age_ns), self.used(now));
            let charged = settled(used, *units, rule.count(), max_debt) - used;
            if at >= self.began {
                self.this = self.this.saturating_add(charged);
            } else if self.began.ns_since(at) <= self.period_ns {
                self.last = self.last.saturating_add(charged);
            }
        }
    }

    fn over(&self, rule: &Allowance, now: Timestamp) -> u64 {
        self.rolled(rule, now).used(now).saturating_sub(rule.count())
    }

    fn idle_at(&self) -> Timestamp {
        self.idle_after_ns().map_or(Timestamp::ZERO, |ns| self.began.saturating_add_ns(ns))
    }
}

/// `state` is rolled to `now`. An instant before its window counts as the beginning of the window.
fn decide(state: &State, rule: &Allowance, cost: u64, now: Timestamp) -> Decision {
    let free = rule.count().saturating_sub(state.used(now));
    if cost <= free {
        let after = State { this: state.this.saturating_add(cost), ..*state };
        return Decision { denied: None, remaining: free - cost, reset_after_ns: after.reset_after_ns(now) };
    }
    let retry =
        if cost > rule.count() { Retry::Never } else { Retry::AfterNs(state.retry_ns(rule.count(), cost, now)) };
    Decision { denied: Some(retry), remaining: free, reset_after_ns: state.reset_after_ns(now) }
}

impl Packed for State {
    fn pack(&self, bytes: &mut Vec<u8>) {
        put_instant(bytes, self.began);
        for number in [self.last, self.this, self.period_ns] {
            bytes.put_u64_le(number);
        }
    }

    /// After the clock was set, a key keeps its window boundaries until it is idle.
    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        let (began, last, this, period_ns) = (from.instant()?, from.u64()?, from.u64()?, from.u64()?);
        Allowance::new(Rate { count: 1, period_ns }).ok()?;
        Some(Self { began, last, this, period_ns })
    }
}

/// Microseconds since the window began, the units of the last window, and those of this one.
impl Portable for State {
    fn export(&self, rule: &Allowance, now: Timestamp, numbers: &mut Numbers) {
        let rolled = self.rolled(rule, now);
        numbers.extend([to_us(rolled.elapsed_ns(now)), rolled.last, rolled.this]);
    }

    fn import(rule: &Allowance, numbers: &mut dyn Iterator<Item = u64>, now: Timestamp) -> Option<Self> {
        let began = now.saturating_sub_ns(from_us(numbers.next()?));
        Some(Self { began, last: numbers.next()?, this: numbers.next()?, period_ns: rule.period_ns() })
    }

    fn proof(rule: &Allowance, numbers: &[u64], charged: Charged) -> Option<(usize, [u64; 5])> {
        let [elapsed_us, _, _, ..] = numbers else { return None };
        Some((3, [charged.at_us.saturating_sub(*elapsed_us), to_us(rule.period_ns()), 0, 0, 0]))
    }
}

#[cfg(test)]
mod tests;
