//! The order of limits by which a client is told of one of several.

use super::Retry;

/// How near a limit is to denying a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tightness {
    /// Why the limit would deny the request; `None` if it would admit it.
    pub denied: Option<Retry>,
    /// Whole units that remain.
    pub remaining: u64,
    /// Units of a key that has spent nothing.
    pub capacity: u64,
}

impl Tightness {
    /// Whether this limit is tighter than `other`: the longer wait first, then the smaller fraction that remains.
    #[inline]
    pub fn is_tighter(self, other: Self) -> bool {
        // Fractions are compared without dividing.
        let own = u128::from(self.remaining) * u128::from(other.capacity);
        let others = u128::from(other.remaining) * u128::from(self.capacity);
        self.denied > other.denied || (self.denied == other.denied && own < others)
    }
}
