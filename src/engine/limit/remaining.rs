//! The units that remain of a rate.

use smallvec::SmallVec;

use super::{Decision, Retry};

/// The units that remain of one rate at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Whole units.
    pub units: u64,
    /// See [`Decision::reset_after_ns`].
    pub reset_after_ns: u64,
    /// When to retry a request of the given cost; `None` if it would be admitted.
    pub denied: Option<Retry>,
    /// When there will be more units: enough for that request if it would be denied, else one more. `None` if nothing
    /// is spent.
    pub more: Option<Retry>,
}

/// The units that remain of each rate, in the order of the rates.
pub type RemainingByRate = SmallVec<[Remaining; 2]>;

impl From<Decision> for Remaining {
    fn from(Decision { denied, remaining, reset_after_ns }: Decision) -> Self {
        Self { units: remaining, reset_after_ns, denied, more: denied }
    }
}
