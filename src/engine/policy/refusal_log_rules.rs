//! How long refusals are kept, and how many.

/// The bounds on kept refusals; by default none is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalLogRules {
    /// Nanoseconds for which a refusal is kept; 0 keeps none.
    pub keep_ns: u64,
    /// The most refusals.
    pub max: usize,
}
