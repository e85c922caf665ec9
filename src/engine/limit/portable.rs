//! States as a few integers, for a store that decides by the same arithmetic elsewhere.
//!
//! No instant is among the numbers of a state, because clocks differ: all times count from the present. Those of buckets
//! are nanoseconds, all others microseconds. Every number is below 2^53, so that a double holds it.
//!
//! Not here: the numbers of rules, and of states under any rule (`algorithm/portable.rs`); the encoding of the numbers, and
//! the server that keeps them (`stores`).

use smallvec::SmallVec;

use super::state::State;
use crate::base::time::Timestamp;

/// The numbers of a state under one rate.
pub type Numbers = SmallVec<[u64; 4]>;

const NS_PER_US: u64 = 1000;

/// A state that has a portable form.
pub(super) trait Portable: State {
    /// Appends the numbers of the state under `rule`.
    fn export(&self, rule: &Self::Rule, now: Timestamp, numbers: &mut Numbers);

    /// The state under `rule` with these numbers, each of which is below 2^53. `None` if no state has them.
    fn import(rule: &Self::Rule, numbers: &mut dyn Iterator<Item = u64>, now: Timestamp) -> Option<Self>;
}

/// Nanoseconds of a number of microseconds.
pub(super) const fn from_us(us: u64) -> u64 {
    us.saturating_mul(NS_PER_US)
}

/// Microseconds, rounded down.
pub(super) const fn to_us(ns: u64) -> u64 {
    ns / NS_PER_US
}

/// Microseconds, rounded up.
pub(super) const fn to_us_ceil(ns: u64) -> u64 {
    ns.div_ceil(NS_PER_US)
}
