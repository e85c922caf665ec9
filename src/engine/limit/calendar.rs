//! Windows of civil time: the end of the second, minute, hour, day, week or month of an instant.
//!
//! Days, weeks and months begin at midnight in their time zone, so a day may last 23 or 25 hours. Weeks begin on Monday.
//! Shorter windows are counted from midnight in elapsed time, and the last window of a day ends with the day. So windows
//! never overlap and leave no gap when clocks change.
//!
//! The rules of time zones are part of the program (the IANA database of its build); nothing is read from disk.

mod zone;

pub use self::zone::Zone;
use self::zone::zoned;

use jiff::ToSpan;
use jiff::civil::{Date, date};
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::base::time::Timestamp;

/// The unit of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Milliseconds.
    Millisecond,
    /// Seconds.
    Second,
    /// Minutes.
    Minute,
    /// Hours.
    Hour,
    /// Days, at midnight.
    Day,
    /// Weeks, at midnight before Monday.
    Week,
    /// Months, at midnight before the first.
    Month,
}

/// Why a calendar is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// Windows of no length.
    #[error("must be at least 1")]
    Zero,
    /// Windows of clock units longer than a day, or of others longer than a year.
    #[error("is longer than a day (for units up to the hour) or a year")]
    TooLong,
    /// No time zone of that name.
    #[error("is no time zone of the IANA database")]
    UnknownZone,
}

/// Windows of `every` units in one time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    unit: Unit,
    every: u32,
    zone: TimeZone,
    /// A hash: equal for equal calendars, and almost never for others.
    id: u64,
}

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 24 * 3600 * SECOND_NS;
const EPOCH: Date = date(1970, 1, 1);
/// The first Monday since the epoch.
const FIRST_MONDAY: i32 = 4;
/// Windows that are counted exactly; further ahead the nominal length is used.
const WINDOWS_COUNTED_MAX: u64 = 1024;

impl Calendar {
    /// Windows of `every` `unit`s in the zone of an IANA name such as `Europe/Berlin`.
    pub fn new(unit: Unit, every: u32, zone: &str) -> Result<Self, CalendarError> {
        let most = match unit {
            Unit::Millisecond => 86_400_000,
            Unit::Second => 86_400,
            Unit::Minute => 1440,
            Unit::Hour => 24,
            Unit::Day => 366,
            Unit::Week => 52,
            Unit::Month => 12,
        };
        if every == 0 {
            return Err(CalendarError::Zero);
        }
        if every > most {
            return Err(CalendarError::TooLong);
        }
        let Zone(zone) = Zone::new(zone).ok_or(CalendarError::UnknownZone)?;
        let mut calendar = Self { unit, every, zone, id: 0 };
        calendar.id = calendar.fingerprint();
        Ok(calendar)
    }

    /// The names of all time zones.
    pub fn zones() -> Vec<String> {
        TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect()
    }

    /// FNV-1a over the parts of the calendar.
    fn fingerprint(&self) -> u64 {
        let name = self.zone.iana_name().unwrap_or_default().bytes();
        let bytes = [self.unit as u8].into_iter().chain(self.every.to_le_bytes()).chain(name);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// The nominal length of a window in nanoseconds; a month counts as 30 days.
    pub fn nominal_ns(&self) -> u64 {
        let unit_ns = match self.unit {
            Unit::Millisecond => SECOND_NS / 1000,
            Unit::Second => SECOND_NS,
            Unit::Minute => 60 * SECOND_NS,
            Unit::Hour => 3600 * SECOND_NS,
            Unit::Day => DAY_NS,
            Unit::Week => 7 * DAY_NS,
            Unit::Month => 30 * DAY_NS,
        };
        unit_ns * u64::from(self.every)
    }

    /// The length of the window of `at` in nanoseconds. For windows shorter than a day it is the nominal length, although
    /// the last window of a day may be shorter.
    pub fn window_ns(&self, at: Timestamp) -> u64 {
        match self.unit {
            Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour => self.nominal_ns(),
            Unit::Day | Unit::Week | Unit::Month => {
                let end = self.end(at);
                let began = self.began(end.saturating_sub_ns(1)).unwrap_or(at);
                end.ns_since(began)
            }
        }
    }

    /// The most windows of this calendar in one window of `other`. `None` if a window may be in two of them, or if that is
    /// unknown.
    pub(super) fn most_within(&self, other: &Self) -> Option<u64> {
        if self == other {
            return Some(1);
        }
        // Clocks that go back make a day longer by an hour.
        let day_ns = if self.zone == TimeZone::UTC { DAY_NS } else { DAY_NS + 3600 * SECOND_NS };
        let (own_ns, other_ns) = (self.nominal_ns(), other.nominal_ns());
        match (self.most_days(), other.most_days()) {
            _ if self.zone != other.zone => None,
            // Both begin at midnight.
            (None, None) => other_ns.is_multiple_of(own_ns).then_some(other_ns / own_ns),
            (None, Some(days)) => Some(days * day_ns.div_ceil(own_ns)),
            (Some(1), Some(days)) => Some(days),
            (Some(_), _) => None,
        }
    }

    /// The most days of a window; `None` if windows are parts of a day.
    fn most_days(&self) -> Option<u64> {
        let days = match self.unit {
            Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour => return None,
            Unit::Day => 1,
            Unit::Week => 7,
            Unit::Month => 31,
        };
        Some(days * u64::from(self.every))
    }

    /// The midnight at which the window of `at` began, for windows of days, weeks or months.
    fn began(&self, at: Timestamp) -> Option<Timestamp> {
        self.midnight(self.first_date(zoned(at, &self.zone)?.date(), 0)?)
    }

    /// The end of the window of `at`, which is the beginning of the next; always later than `at`.
    pub fn end(&self, at: Timestamp) -> Timestamp {
        let end = match self.unit {
            Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour => self.end_within_day(at),
            Unit::Day | Unit::Week | Unit::Month => self.midnight_after(at, |date| self.next_date(date)),
        };
        end.unwrap_or_else(|| at.saturating_add_ns(self.nominal_ns()))
    }

    /// The end of the window that comes `more` windows after the window that ends at `end`.
    ///
    /// Exact for the next 1024 windows, and for windows of nominal length; else an estimate.
    pub fn end_after(&self, end: Timestamp, more: u64) -> Timestamp {
        let counted = more.min(WINDOWS_COUNTED_MAX);
        let end = (0..counted).fold(end, |end, _| self.end(end));
        end.saturating_add_ns((more - counted).saturating_mul(self.nominal_ns()))
    }

    fn end_within_day(&self, at: Timestamp) -> Option<Timestamp> {
        let span_ns = self.nominal_ns();
        let (midnight, next) = if self.zone == TimeZone::UTC {
            let midnight_ns = at.as_ns() - at.as_ns() % DAY_NS;
            (Timestamp::from_ns(midnight_ns), Timestamp::from_ns(midnight_ns.saturating_add(DAY_NS)))
        } else {
            let today = zoned(at, &self.zone)?.date();
            let next = self.midnight_after(at, |date| date.tomorrow().ok())?;
            (self.midnight(today)?.min(at), next)
        };
        let windows = at.ns_since(midnight) / span_ns + 1;
        Some(midnight.saturating_add_ns(windows.saturating_mul(span_ns)).min(next))
    }

    /// The first midnight after `at` among the dates that `next` steps through.
    fn midnight_after(&self, at: Timestamp, next: impl Fn(Date) -> Option<Date>) -> Option<Timestamp> {
        let mut date = next(zoned(at, &self.zone)?.date())?;
        loop {
            let midnight = self.midnight(date)?;
            if midnight > at {
                return Some(midnight);
            }
            // Clocks went back over midnight, so this date has begun already.
            date = next(date)?;
        }
    }

    fn midnight(&self, date: Date) -> Option<Timestamp> {
        let ns = date.to_zoned_datetime(self.zone.clone()).ok()?.timestamp().as_nanosecond();
        Some(Timestamp::from_ns(u64::try_from(ns.max(0)).ok()?))
    }

    /// The first date of the next window of days, weeks or months.
    fn next_date(&self, today: Date) -> Option<Date> {
        self.first_date(today, 1)
    }

    /// The first date of the window of days, weeks or months that comes `later` windows after that of `today`.
    fn first_date(&self, today: Date, later: i32) -> Option<Date> {
        let every = i32::try_from(self.every).ok()?;
        let next = |count: i32, every: i32| (count.div_euclid(every) + later) * every;
        if self.unit == Unit::Month {
            let months = next(i32::from(today.year()) * 12 + i32::from(today.month()) - 1, every);
            let (year, month) = (i16::try_from(months / 12).ok()?, i8::try_from(months % 12 + 1).ok()?);
            return Date::new(year, month, 1).ok();
        }
        let (first, every) = if self.unit == Unit::Week { (FIRST_MONDAY, 7 * every) } else { (0, every) };
        let today = today.since((jiff::Unit::Day, EPOCH)).ok()?.get_days();
        EPOCH.checked_add((next(today - first, every) + first).days()).ok()
    }
}

#[cfg(test)]
mod tests;
