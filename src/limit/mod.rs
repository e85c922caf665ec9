//! How much: the arithmetic of limits, as functions of state, quota, cost and `now`.
//!
//! A state is one small value per key. Nothing here reads a clock, takes a lock, does I/O or logs.

mod divisor;
mod key;
mod quota;
pub mod token_bucket;

pub use key::Key;
pub use quota::{Quota, QuotaError, Rate};

use crate::time::Timestamp;

/// When a denied request could pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// After this many nanoseconds, if nothing else is charged meanwhile.
    AfterNs(u64),
    /// Never: it costs more than the quota can hold.
    Never,
}

/// What one limit says about one request at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// `None` if admitted, else when to come back.
    pub denied: Option<Retry>,
    /// Whole units left after this decision.
    pub remaining: u64,
    /// Nanoseconds until the key is as good as new, if nothing else is charged.
    pub reset_after_ns: u64,
}

impl Decision {
    /// Whether the request may pass.
    pub fn is_admitted(&self) -> bool {
        self.denied.is_none()
    }

    /// The instant at which the key is as good as new, for a decision made at `now`.
    pub fn full_at(&self, now: Timestamp) -> Timestamp {
        now.saturating_add_ns(self.reset_after_ns)
    }
}
