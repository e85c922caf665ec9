//! Fixed window: `count` units in each window, all of which come back at once when it ends.
//!
//! Windows are those of a calendar ("per day" ends at midnight), or a window begins with the first request of its key
//! and lasts `period`.
//!
//! Bound: `count` units in each window. Other spans can see twice as much: all of one window at its end, and all of the
//! next at its beginning. A span of length `w` admits `count` units for each window that it meets: with windows of length
//! `p` at most `(w / p + 2) * count`, where the quotient is rounded down. The last window of a day is shorter if `p` does
//! not divide the day; each such window in the span counts in addition.
//!
//! A changed count keeps spent units. A changed kind or length of window keeps them until a window of the new kind ends.

use bytes::BufMut;

use super::late::units::LateUnits;
use super::packed::{Packed, Unpacker, put_instant};
use super::portable::{Charged, Numbers, Portable, from_us, signed, to_us_ceil, us};
use super::rule::{self, Scale};
use super::state::{self, charged, dated_receipt, settled};
use super::{Allowance, Calendar, Decision, Pace, QuotaError, Rate, Retry};
use crate::base::time::Timestamp;

/// The rule of a fixed window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    count: u64,
    windows: Windows,
}

/// When windows begin and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Windows {
    /// A window begins with the first request after the last window, and has this length in nanoseconds.
    FromFirst(u64),
    /// Windows are the same for all keys.
    Calendar(Calendar),
}

/// How far clocks of replicas and servers may differ near the end of a calendar's window.
const SKEW_NS: u64 = 3_600_000_000_000;

/// The bit that tells calendars from lengths.
const IS_CALENDAR: u64 = 1 << 63;

impl Rule {
    /// `rate.count` units in `rate.period_ns` from the first request.
    pub fn from_first(rate: Rate) -> Result<Self, QuotaError> {
        let allowance = Allowance::new(rate)?;
        Ok(Self { count: allowance.count(), windows: Windows::FromFirst(allowance.period_ns()) })
    }

    /// `count` units in each window of `calendar`.
    pub fn in_calendar(count: u64, calendar: Calendar) -> Result<Self, QuotaError> {
        if count == 0 {
            return Err(QuotaError::Zero);
        }
        Ok(Self { count, windows: Windows::Calendar(calendar) })
    }

    /// Units in a window.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// When windows begin and end.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// The usual length of a window in nanoseconds.
    fn usual_ns(&self) -> u64 {
        match &self.windows {
            Windows::FromFirst(period_ns) => *period_ns,
            Windows::Calendar(calendar) => calendar.nominal_ns(),
        }
    }

    /// When the window that ends at `ends` has begun; `None` for windows of a calendar.
    pub(super) fn began(&self, ends: Timestamp) -> Option<Timestamp> {
        match &self.windows {
            Windows::FromFirst(period_ns) => Some(ends.saturating_sub_ns(*period_ns)),
            Windows::Calendar(_) => None,
        }
    }

    /// The end of a window whose first request comes at `now`.
    fn end(&self, now: Timestamp) -> Timestamp {
        match &self.windows {
            Windows::FromFirst(period_ns) => now.saturating_add_ns(*period_ns),
            Windows::Calendar(calendar) => calendar.end(now),
        }
    }

    /// The end of the window `more` windows after the window that ends at `end`, if requests come without a pause.
    fn end_after(&self, end: Timestamp, more: u64) -> Timestamp {
        match &self.windows {
            Windows::FromFirst(period_ns) => end.saturating_add_ns(more.saturating_mul(*period_ns)),
            Windows::Calendar(calendar) => calendar.end_after(end, more),
        }
    }

    const fn kind(&self) -> u64 {
        match &self.windows {
            Windows::FromFirst(period_ns) => *period_ns,
            Windows::Calendar(calendar) => calendar.id() | IS_CALENDAR,
        }
    }
}

impl rule::Rule for Rule {
    fn capacity(&self) -> u64 {
        self.count
    }

    /// The usual length of a window.
    fn period_ns(&self) -> Option<u64> {
        Some(self.usual_ns())
    }

    fn pace(&self, now: Timestamp) -> Option<Pace> {
        let window_ns = match &self.windows {
            Windows::FromFirst(period_ns) => *period_ns,
            Windows::Calendar(calendar) => calendar.window_ns(now),
        };
        Some(Pace::of_windows(self.count, window_ns))
    }

    /// A window that begins with a request has the date of that request, so it has no bound.
    fn chargeable_from(&self, earliest: Timestamp, now: Timestamp) -> Timestamp {
        let Windows::Calendar(calendar) = &self.windows else { return earliest };
        let ends = |at: &Timestamp| Some(calendar.end(*at)).filter(|end| *end <= now);
        std::iter::successors(Some(earliest), ends).last().unwrap_or(now)
    }

    fn counts(&self, at: Timestamp, now: Timestamp) -> bool {
        match &self.windows {
            Windows::FromFirst(period_ns) => now.ns_since(at) < *period_ns,
            Windows::Calendar(calendar) => now < calendar.end(at),
        }
    }

    fn is_within(&self, other: &Self) -> bool {
        let (Windows::Calendar(narrow), Windows::Calendar(wide)) = (&self.windows, &other.windows) else {
            return false;
        };
        narrow.most_within(wide).is_some_and(|most| self.count.saturating_mul(most) <= other.count)
    }

    fn scaled(&self, scale: Scale) -> Result<Self, QuotaError> {
        Ok(Self { count: scale.units(self.count), windows: self.windows.clone() })
    }

    fn portable_numbers(&self, now: Timestamp) -> [i64; 5] {
        let count = signed(self.count);
        match &self.windows {
            Windows::FromFirst(period_ns) => [count, us(*period_ns), 0, 0, 0],
            Windows::Calendar(calendar) => {
                let earliest = now.saturating_sub_ns(calendar.nominal_ns().min(SKEW_NS));
                let (begins, ends) = (self.chargeable_from(earliest, now), calendar.end(now));
                // 52 bits, so that the negative number is not 0.
                let hash = -1 - signed(calendar.id() >> 12);
                [count, hash, us(begins.as_ns()), us(ends.as_ns()), us(calendar.end(ends).as_ns())]
            }
        }
    }

    #[cfg(test)]
    fn bound(&self, span_ns: u64) -> u64 {
        const DAY_NS: u64 = 24 * HOUR_NS;
        const HOUR_NS: u64 = 3_600_000_000_000;
        let shortest_ns = match (&self.windows, self.usual_ns()) {
            (Windows::FromFirst(period_ns), _) => *period_ns,
            // The last of a day, February, and days on which clocks are put forward.
            (_, ns) if ns > 20 * DAY_NS => 27 * DAY_NS,
            (_, ns) if ns >= DAY_NS => ns - HOUR_NS,
            (_, ns) => ns / 6,
        };
        self.count * (span_ns / shortest_ns + 2)
    }
}

/// The state of one key: 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    ends: Timestamp,
    used: u64,
    /// [`Rule::kind`] of the window.
    kind: u64,
}

/// The proof of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    cost: u64,
    ends: Timestamp,
}

dated_receipt!(Receipt);

impl Receipt {
    /// Whether the window of the charge has ended at `now`.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.ends <= now
    }
}

impl State {
    /// The length of its window in nanoseconds; `None` if the window is one of a calendar.
    pub(super) fn length_ns(&self) -> Option<u64> {
        Some(self.kind).filter(|kind| kind & IS_CALENDAR == 0)
    }

    /// Units used in the window of `now`; 0 if there is no window. The state is under the rule in force.
    fn open(&self, now: Timestamp) -> u64 {
        if now < self.ends { self.used } else { 0 }
    }

    #[cold]
    fn change_kind(&mut self, rule: &Rule, now: Timestamp) {
        let kind = std::mem::replace(&mut self.kind, rule.kind());
        if self.open(now) == 0 {
            (self.ends, self.used) = (Timestamp::ZERO, 0);
            return;
        }
        self.ends = match &rule.windows {
            Windows::FromFirst(period_ns) if kind & IS_CALENDAR == 0 => {
                let began = self.ends.saturating_sub_ns(kind);
                if *period_ns > kind { began.saturating_add_ns(*period_ns) } else { self.ends.min(rule.end(now)) }
            }
            _ => rule.end(now),
        };
    }

    /// Sets the used units, in a new window if there is none.
    fn use_up(&mut self, used: u64, rule: &Rule, now: Timestamp) {
        if used > 0 && self.open(now) == 0 {
            self.ends = rule.end(now);
        }
        self.used = used;
    }

    fn adopted(&self, rule: &Rule, now: Timestamp) -> Self {
        let mut adopted = *self;
        state::State::adopt(&mut adopted, rule, now);
        adopted
    }
}

impl state::State for State {
    type Rule = Rule;
    type Receipt = Receipt;

    fn fresh(rule: &Rule) -> Self {
        Self { ends: Timestamp::ZERO, used: 0, kind: rule.kind() }
    }

    fn is_of(&self, rule: &Rule) -> bool {
        self.kind == rule.kind()
    }

    fn adopt(&mut self, rule: &Rule, now: Timestamp) {
        if !self.is_of(rule) {
            self.change_kind(rule, now);
        }
    }

    fn admit(&mut self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        self.adopt(rule, now);
        let used = self.open(now);
        let free = rule.count.saturating_sub(used);
        let denied = if cost <= free {
            self.use_up(used + cost, rule, now);
            None
        } else if cost > rule.count {
            Some(Retry::Never)
        } else {
            Some(Retry::AfterNs(self.ends.ns_since(now)))
        };
        let charged = if denied.is_none() { cost } else { 0 };
        let reset_after_ns = if used + charged == 0 { 0 } else { self.ends.ns_since(now) };
        Decision { denied, remaining: free - charged, reset_after_ns }
    }

    fn peek(&self, rule: &Rule, cost: u64, now: Timestamp) -> Decision {
        let mut copy = *self;
        copy.admit(rule, cost, now)
    }

    fn wait(&self, rule: &Rule, ahead: u64, cost: u64, now: Timestamp) -> Retry {
        if cost > rule.count {
            return Retry::Never;
        }
        let adopted = self.adopted(rule, now);
        let (cost, used) = (cost.max(1), adopted.open(now));
        let (place, here) = (ahead.div_ceil(cost), rule.count.saturating_sub(used) / cost);
        if place < here {
            return Retry::AfterNs(0);
        }
        let ends = if used > 0 { adopted.ends } else { rule.end(now) };
        Retry::AfterNs(rule.end_after(ends, (place - here) / (rule.count / cost)).ns_since(now))
    }

    fn receipt(&self, cost: u64, _now: Timestamp) -> Receipt {
        Receipt { cost, ends: self.ends }
    }

    /// Exact in any order within the window of the charge. After it nothing is given back.
    fn refund(&mut self, _rule: &Rule, receipt: &Receipt, now: Timestamp) -> u64 {
        if receipt.ends != self.ends {
            return 0;
        }
        let used = self.open(now);
        self.used = used.saturating_sub(receipt.cost);
        used - self.used
    }

    /// A debt ends with its window.
    fn settle(&mut self, rule: &Rule, extra: i64, max_debt: u64, now: Timestamp) -> i64 {
        self.adopt(rule, now);
        let before = self.open(now);
        let used = settled(before, extra, rule.count, max_debt);
        self.use_up(used, rule, now);
        charged(before, used)
    }

    /// Units of a window of the calendar that has ended do not count. A window that began with a request begins with the
    /// earliest one.
    fn settle_late(&mut self, rule: &Rule, late: &[LateUnits], max_debt: u64, now: Timestamp) {
        self.adopt(rule, now);
        for LateUnits { units, age_ns } in late {
            let ends = rule.end(now.saturating_sub_ns(*age_ns));
            if ends <= now {
                continue;
            }
            let before = self.open(now);
            self.ends = match &rule.windows {
                _ if before == 0 => ends,
                Windows::FromFirst(_) => self.ends.min(ends),
                Windows::Calendar(_) => self.ends,
            };
            self.used = settled(before, *units, rule.count, max_debt);
        }
    }

    fn over(&self, rule: &Rule, now: Timestamp) -> u64 {
        self.adopted(rule, now).open(now).saturating_sub(rule.count)
    }

    fn idle_at(&self) -> Timestamp {
        if self.used == 0 { Timestamp::ZERO } else { self.ends }
    }
}

impl Packed for State {
    fn pack(&self, bytes: &mut Vec<u8>) {
        put_instant(bytes, self.ends);
        bytes.put_u64_le(self.used);
        bytes.put_u64_le(self.kind);
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        let (ends, used, kind) = (from.instant()?, from.u64()?, from.u64()?);
        let is_calendar = kind & IS_CALENDAR != 0;
        // Of another calendar, so that what is used is put into the window that is open now.
        let kind = if is_calendar && from.moved().is_some() { !kind | IS_CALENDAR } else { kind };
        Some(Self { ends, used, kind })
    }
}

/// Microseconds until the window ends, and its used units.
impl Portable for State {
    fn export(&self, _: &Rule, now: Timestamp, numbers: &mut Numbers) {
        let used = self.open(now);
        numbers.extend([if used > 0 { to_us_ceil(self.ends.ns_since(now)) } else { 0 }, used]);
    }

    fn import(rule: &Rule, numbers: &mut dyn Iterator<Item = u64>, now: Timestamp) -> Option<Self> {
        let ends = now.saturating_add_ns(from_us(numbers.next()?));
        Some(Self { ends, used: numbers.next()?, kind: rule.kind() })
    }

    fn proof(_: &Rule, numbers: &[u64], charged: Charged) -> Option<(usize, [u64; 5])> {
        let [left_us, _, ..] = numbers else { return None };
        Some((2, [charged.at_us + left_us, 0, 0, 0, 0]))
    }
}

#[cfg(test)]
mod tests;
