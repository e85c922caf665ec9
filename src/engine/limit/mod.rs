//! The arithmetic of limits, as functions of state, rule, cost and `now`.
//!
//! A state is one small value per key. Every algorithm has a file, which states its bound, and a [`State`]. Nothing here
//! reads a clock, does I/O or logs; only [`fair_share`] takes a lock.

mod algorithm;
mod calendar;
mod key;
mod pace;
mod packed;
mod portable;
mod quota;
mod remaining;
mod rule;
pub mod state;

pub mod late;
pub mod lost_time;
pub mod token_bucket;

pub mod concurrency;
pub mod fair_share;
pub mod fixed_window;
pub mod sliding_log;
pub mod sliding_window;
pub mod sub_window;

pub mod tightness;
pub mod windows;

pub mod adaptive_rate;
pub mod ban;
pub mod sketch;
pub mod slow_down;
pub mod top;

pub use algorithm::{Algorithm, AlgorithmName, AnyReceipt, AnyState, Several};
pub use calendar::{Calendar, CalendarError, Unit, Zone};
pub use key::{Key, KeyHasher, OnFull};
pub use pace::Pace;
pub use packed::{ClockShift, Packed, Unpacker};
pub use portable::{Charged, Numbers, PortableRate, Unportable};
pub use quota::{Allowance, Quota};
pub use remaining::{Remaining, RemainingByRate};
pub use rule::{QuotaError, Rate, Rule, Scale, Settings};
pub use state::State;

use crate::base::time::Timestamp;

/// The largest number of nanoseconds by which the charge of a waiting request may be backdated.
///
/// A timer fires after its instant, and a task runs after its wake-up. So a request that waited is decided as of the
/// instant at which it could pass, if that is not longer ago than this. Otherwise each request of a queue would lose
/// some of the rate. The bound of an algorithm for spans of length `w` becomes its bound for spans of
/// `w + BACKDATE_NS_MAX`. Decisions about other requests are never backdated.
pub const BACKDATE_NS_MAX: u64 = 10_000_000;

/// When a denied request could pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// After this many nanoseconds, if nothing else is charged meanwhile; [`Retry::ON_RELEASE`] is no duration.
    AfterNs(u64),
    /// Never: the cost exceeds the capacity.
    #[default]
    Never,
}

impl Retry {
    /// When a request in flight ends, which is at an unknown time. A timer armed with it never fires, and clients get no
    /// time. It is the longest [`Retry::AfterNs`] (584 years), so it must be matched before the others.
    pub const ON_RELEASE: Self = Self::AfterNs(u64::MAX);
}

/// The decision of one limit about one request at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When to retry; `None` if the request is admitted.
    pub denied: Option<Retry>,
    /// Whole units that remain after this decision.
    pub remaining: u64,
    /// Nanoseconds until the key is idle, if nothing else is charged; or [`Decision::UNKNOWN_NS`].
    pub reset_after_ns: u64,
}

impl Decision {
    /// The `reset_after_ns` of a key that does not become idle by time alone.
    pub const UNKNOWN_NS: u64 = u64::MAX;

    /// Whether the request may pass.
    pub fn is_admitted(&self) -> bool {
        self.denied.is_none()
    }

    /// The instant at which the key is idle, for a decision made at `now`.
    pub fn full_at(&self, now: Timestamp) -> Timestamp {
        now.saturating_add_ns(self.reset_after_ns)
    }
}

/// The number of units that a replica borrows at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseUnits {
    /// As many as recent demand needs.
    #[default]
    Auto,
    /// This number, at least 1.
    Fixed(u64),
}

#[cfg(test)]
pub(crate) mod tests;
