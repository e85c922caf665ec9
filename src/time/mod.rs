//! When: the one place that reads a clock.
//!
//! A [`Timestamp`] is unix nanoseconds taken as "unix time at start plus elapsed monotonic time", so it
//! never runs backwards and still means a date. Pure code takes one as an argument.
//!
//! Not here: timers (they belong to whoever waits) and calendar arithmetic.

#![allow(clippy::disallowed_methods)] // the one place that may

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

#[cfg(test)]
mod late;

#[cfg(test)]
pub(crate) use late::Lateness;

/// Nanoseconds since the unix epoch, monotonic within a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch itself, earlier than every reading of a [`Clock`].
    pub const ZERO: Timestamp = Timestamp(0);

    /// From nanoseconds since the unix epoch.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the unix epoch.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Whole seconds since the unix epoch, rounded up.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }

    /// Whole seconds since the unix epoch, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// This instant moved `ns` nanoseconds later, saturating.
    pub const fn saturating_add_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// This instant moved `ns` nanoseconds earlier, saturating at the epoch.
    pub const fn saturating_sub_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }

    /// Nanoseconds from `earlier` to this instant; 0 if `earlier` is later.
    pub const fn ns_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Reads the time. Copies of one clock agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    unix_ns_at_start: u64,
    start: Instant,
    /// By how much timers are armed too late; not at all by default.
    #[cfg(test)]
    lateness: Option<&'static Lateness>,
}

impl Clock {
    /// Starts a clock at the system's present date.
    ///
    /// It reads tokio's clock, so it stands still inside a runtime whose time is paused.
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self {
            unix_ns_at_start: saturating_ns(unix),
            start: Instant::now(),
            #[cfg(test)]
            lateness: None,
        }
    }

    /// When the clock was started.
    pub const fn started(&self) -> Timestamp {
        Timestamp(self.unix_ns_at_start)
    }

    /// The present.
    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// The timestamp of an instant already read.
    pub fn at(&self, instant: Instant) -> Timestamp {
        let elapsed = instant.saturating_duration_since(self.start);
        Timestamp(self.unix_ns_at_start.saturating_add(saturating_ns(elapsed)))
    }

    /// The instant of a timestamp, for arming a timer; one before the clock's start gives the start.
    pub fn instant(&self, at: Timestamp) -> Instant {
        #[cfg(test)]
        let at = at.saturating_add_ns(self.lateness.map_or(0, Lateness::next_ns));
        let since_start = Duration::from_nanos(at.0.saturating_sub(self.unix_ns_at_start));
        self.start.checked_add(since_start).unwrap_or_else(|| self.start + FAR_FUTURE)
    }
}

/// What a timer is armed with for an instant that no `Instant` can express: 30 years, as tokio does.
const FAR_FUTURE: Duration = Duration::from_hours(24 * 365 * 30);

/// The monotonic clock, for measuring durations that no decision depends on.
pub fn instant_now() -> Instant {
    Instant::now()
}

/// The system's date as it is now, which may have been set since a [`Clock`] was started.
pub fn system_now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, saturating_ns))
}

/// Seconds of the system's date, for whatever needs to be done only so often.
pub fn coarse_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `duration` in nanoseconds, at most `u64::MAX` (584 years).
pub fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
