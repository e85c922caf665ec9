//! How much: the arithmetic of limits, as functions of state, quota, cost and `now`.
//!
//! A state is one small value per key. Every algorithm has a file, which states its bound, and a [`State`]. Nothing
//! here reads a clock, takes a lock, does I/O or logs.

mod algorithm;
mod calendar;
mod divisor;
mod full;
mod key;
mod packed;
mod quota;
mod remaining;
pub mod state;

pub mod token_bucket;

pub mod concurrency;
pub mod fixed_window;
pub mod leaky_bucket;
pub mod sliding_log;
pub mod sliding_window;
pub mod sub_window;

pub mod tightness;
pub mod windows;

pub mod ban;
pub mod sketch;
pub mod slow_down;
pub mod top;

pub use algorithm::{Algorithm, AnyReceipt, AnyState, Several};
pub use calendar::{Calendar, CalendarError, Unit};
pub use full::OnFull;
pub use key::Key;
pub use packed::{Moved, Packed, Unpacker};
pub use quota::{Allowance, Quota, QuotaError, Rate};
pub use remaining::{Pace, Remaining, RemainingByRate};
pub use state::State;

use crate::time::Timestamp;

/// The most by which the charge of a waiting request may be dated back, in nanoseconds.
///
/// A timer fires after its instant, and a task runs after it is woken. A request that waited is therefore decided as of
/// the instant at which it could pass, if that is not longer ago than this; else the delay would be lost to the rate,
/// once for each request of a queue. So the bound of an algorithm for spans of length `w` becomes its bound for spans
/// of `w + BACKDATE_NS_MAX`. Decisions of other requests are never dated back.
pub const BACKDATE_NS_MAX: u64 = 10_000_000;

/// When a denied request could pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// After this many nanoseconds, if nothing else is charged meanwhile; [`Retry::ON_RELEASE`] is no duration.
    AfterNs(u64),
    /// Never: it costs more than the quota can hold.
    Never,
}

impl Retry {
    /// Once something that is in flight is released: nobody knows when, so a timer armed with it never fires, and a
    /// client is not told a time. To be matched before [`Retry::AfterNs`], of which it is the longest (584 years).
    pub const ON_RELEASE: Self = Self::AfterNs(u64::MAX);
}

/// What one limit says about one request at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// `None` if admitted, else when to come back.
    pub denied: Option<Retry>,
    /// Whole units left after this decision.
    pub remaining: u64,
    /// Nanoseconds until the key is as good as new, if nothing else is charged; or [`Decision::UNKNOWN_NS`].
    pub reset_after_ns: u64,
}

impl Decision {
    /// The `reset_after_ns` of a key that time alone will not make as good as new.
    pub const UNKNOWN_NS: u64 = u64::MAX;

    /// Whether the request may pass.
    pub fn is_admitted(&self) -> bool {
        self.denied.is_none()
    }

    /// The instant at which the key is as good as new, for a decision made at `now`.
    pub fn full_at(&self, now: Timestamp) -> Timestamp {
        now.saturating_add_ns(self.reset_after_ns)
    }
}

#[cfg(test)]
pub(crate) mod tests;
