//! The clock: the only module that reads the time.
//!
//! A [`Timestamp`] is unix time in nanoseconds. It is the unix time at the start plus the elapsed monotonic time, so it
//! never runs backwards and still is a date. Pure code takes a timestamp as an argument.
//!
//! Not here: timers (each caller arms its own) and calendar arithmetic.

#![allow(clippy::disallowed_methods)] // the only module that may read a clock

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

#[cfg(test)]
use self::late::Lateness;

/// Nanoseconds since the unix epoch, monotonic within a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The unix epoch, earlier than every reading of a [`Clock`].
    pub const ZERO: Timestamp = Timestamp(0);

    /// The timestamp that is `ns` nanoseconds after the unix epoch.
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

    /// This timestamp plus `ns` nanoseconds, at most the largest timestamp.
    pub const fn saturating_add_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// This timestamp minus `ns` nanoseconds, at least the epoch.
    pub const fn saturating_sub_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }

    /// Nanoseconds from `earlier` to this timestamp; 0 if `earlier` is later.
    pub const fn ns_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This timestamp in the dates of a clock that was set by `by_ns` nanoseconds.
    pub const fn moved(self, by_ns: i64) -> Self {
        Self(self.0.saturating_add_signed(by_ns))
    }

    /// By how many nanoseconds a clock was set that shows this timestamp in place of `expected`. Less than a second counts
    /// as nothing.
    pub fn moved_from(self, expected: Timestamp) -> i64 {
        let ahead = i64::try_from(self.ns_since(expected)).unwrap_or(i64::MAX);
        let behind = i64::try_from(expected.ns_since(self)).unwrap_or(i64::MAX);
        let by_ns = ahead - behind;
        if by_ns.unsigned_abs() < STEP_NS_MIN { 0 } else { by_ns }
    }
}

/// A smaller difference of clocks counts as nothing.
pub const STEP_NS_MIN: u64 = 1_000_000_000;

/// A clock. All copies of a clock agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    unix_ns_at_start: u64,
    start: Instant,
    /// The delay that is added to each timer; none by default.
    #[cfg(test)]
    lateness: Option<&'static Lateness>,
}

impl Clock {
    /// Starts a clock at the current date of the system.
    ///
    /// The clock reads the time of tokio, so it stands still in a runtime whose time is paused.
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self {
            unix_ns_at_start: saturating_ns(unix),
            start: Instant::now(),
            #[cfg(test)]
            lateness: None,
        }
    }

    /// Starts a clock at a date, so that a test repeats and knows where calendar windows begin.
    #[cfg(test)]
    pub fn start_at(date: Timestamp) -> Self {
        Self { unix_ns_at_start: date.as_ns(), ..Self::start() }
    }

    /// The time when the clock was started.
    pub const fn started(&self) -> Timestamp {
        Timestamp(self.unix_ns_at_start)
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// The timestamp of an instant.
    pub fn at(&self, instant: Instant) -> Timestamp {
        let elapsed = instant.saturating_duration_since(self.start);
        Timestamp(self.unix_ns_at_start.saturating_add(saturating_ns(elapsed)))
    }

    /// By how many nanoseconds the clock of the system was set since the start of this one.
    pub fn set_since_start(&self) -> i64 {
        system_now().moved_from(self.now())
    }

    /// The instant of a timestamp, for arming a timer; the start of the clock for an earlier timestamp.
    pub fn instant(&self, at: Timestamp) -> Instant {
        #[cfg(test)]
        let at = at.saturating_add_ns(self.lateness.map_or(0, Lateness::next_ns));
        let since_start = Duration::from_nanos(at.0.saturating_sub(self.unix_ns_at_start));
        self.start.checked_add(since_start).unwrap_or_else(|| self.start + FAR_FUTURE)
    }
}

/// The span to a timer whose instant no `Instant` can express: 30 years, as in tokio.
const FAR_FUTURE: Duration = Duration::from_hours(24 * 365 * 30);

/// The current instant of the monotonic clock, for durations that no decision depends on.
pub fn instant_now() -> Instant {
    Instant::now()
}

/// The current date of the system. An operator may have set it since a [`Clock`] was started.
pub fn system_now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, saturating_ns))
}

/// `duration` in nanoseconds, at most `u64::MAX` (584 years).
pub fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Timers that fire late by random spans of time, for tests.
#[cfg(test)]
mod late {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Clock;
    use crate::base::split_mix::{STEP, mix};

    /// Random spans of time from a seed.
    #[derive(Debug)]
    pub(super) struct Lateness {
        state: AtomicU64,
        ns_max: u64,
    }

    impl Lateness {
        /// The next span in nanoseconds.
        pub(super) fn next_ns(&self) -> u64 {
            mix(self.state.fetch_add(STEP, Ordering::Relaxed)) % (self.ns_max + 1)
        }
    }

    impl Clock {
        /// A copy of the clock whose timers fire up to `ns_max` nanoseconds late. The spans follow from `seed`.
        pub(crate) fn with_late_timers(self, seed: u64, ns_max: u64) -> Self {
            let lateness = Box::leak(Box::new(Lateness { state: AtomicU64::new(seed), ns_max }));
            Self { lateness: Some(lateness), ..self }
        }
    }
}
