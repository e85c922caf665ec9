//! Units with their ages.

use smallvec::SmallVec;

/// Units that were charged a while ago, or are given back if the number is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateUnits {
    /// The units.
    pub units: i64,
    /// The time since the charge; 0 if units are given back. A bucket has given back what comes back in this time.
    pub age_ns: u64,
}

/// The units that still count under each rate of a rule: charges, the oldest first, and then what is given back.
pub type LateByRate = SmallVec<[SmallVec<[LateUnits; 1]>; 1]>;

/// The units under the rate that has the most.
pub fn most(late: &LateByRate) -> i64 {
    let sums = late.iter().map(|rate| rate.iter().map(|late| late.units).fold(0, i64::saturating_add));
    sums.max_by_key(|sum| sum.unsigned_abs()).unwrap_or(0)
}
