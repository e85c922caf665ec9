//! Instants of civil time as texts, and days between them.

use jiff::ToSpan as _;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::base::time::Timestamp;

/// A time zone.
#[derive(Clone, Debug)]
pub struct Zone(pub(super) TimeZone);

impl Zone {
    /// The zone of an IANA name such as `Europe/Berlin`; `None` if there is none.
    pub fn new(name: &str) -> Option<Self> {
        let zone = match name {
            "UTC" => TimeZone::UTC,
            name => TimeZoneDatabase::bundled().get(name).ok()?,
        };
        Some(Self(zone))
    }

    /// The instant of an RFC 3339 text, or of a date, with or without a time, in this zone. A date begins at midnight.
    pub fn instant(&self, text: &str) -> Option<Timestamp> {
        let at = match text.parse::<jiff::Timestamp>() {
            Ok(at) => at,
            Err(_) => text.parse::<DateTime>().ok()?.to_zoned_datetime(self.0.clone()).ok()?.timestamp(),
        };
        u64::try_from(at.as_nanosecond()).ok().map(Timestamp::from_ns)
    }

    /// The instant with the same local time so many days after `at`.
    pub fn days_after(&self, at: Timestamp, days: u32) -> Option<Timestamp> {
        let later = zoned(at, &self.0)?.checked_add(i64::from(days).days()).ok()?;
        u64::try_from(later.timestamp().as_nanosecond()).ok().map(Timestamp::from_ns)
    }
}

/// An instant in a zone.
pub(super) fn zoned(at: Timestamp, zone: &TimeZone) -> Option<jiff::ZonedDateTime> {
    let at = jiff::Timestamp::from_nanosecond(i128::from(at.as_ns())).ok()?;
    Some(at.to_zoned_datetime(zone.clone()))
}
