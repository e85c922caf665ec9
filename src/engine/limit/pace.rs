//! The pace of a rate: a sustained rate that is never refused.

const NS_PER_S: u64 = 1_000_000_000;

/// `units` in every `window_s` seconds. A client that spreads them evenly is never refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// At least the capacity of the rate.
    pub units: u64,
    /// At least 1.
    pub window_s: u64,
}

impl Pace {
    /// The pace of a rate by which `units` units come back in `units_ns`. The window is `window_ns` in whole seconds, rounded
    /// up; its units are those that come back in it, and at least `capacity`. A rate without a capacity admits nothing.
    pub(super) fn new(capacity: u64, window_ns: u64, (units, units_ns): (u64, u64)) -> Self {
        let window_s = window_ns.div_ceil(NS_PER_S).max(1);
        let in_window = u128::from(window_s) * u128::from(NS_PER_S) * u128::from(units) / u128::from(units_ns.max(1));
        let units = if capacity == 0 { 0 } else { capacity.max(u64::try_from(in_window).unwrap_or(u64::MAX)) };
        Self { units, window_s }
    }

    /// The pace of `count` units that come back in each window.
    pub(super) fn of_windows(count: u64, window_ns: u64) -> Self {
        Self::new(count, window_ns, (count, window_ns))
    }

    pub(super) fn ns_per_million(&self) -> u128 {
        u128::from(self.window_s) * 1_000_000_000_000_000 / u128::from(self.units.max(1))
    }
}
