//! The pace of a rate: a sustained rate that is never refused.

use super::Algorithm;
use crate::base::time::Timestamp;

const NS_PER_S: u64 = 1_000_000_000;

/// `units` in every `window_s` seconds. A client that spreads them evenly is never refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// At least the capacity of the rate.
    pub units: u64,
    /// At least 1.
    pub window_s: u64,
}

impl Algorithm {
    /// The rates in the order of the configuration: the rules of [`Algorithm::Several`], or the rule itself.
    pub fn rates(&self) -> &[Self] {
        match self {
            Self::Several(rules) => rules,
            one => std::slice::from_ref(one),
        }
    }

    /// The pace of a rate at `now`; `None` for [`Algorithm::Concurrency`], which has no window.
    pub fn pace(&self, now: Timestamp) -> Option<Pace> {
        match self {
            Self::TokenBucket(quota) | Self::LeakyBucket(super::leaky_bucket::Rule { quota, .. }) => {
                // Each interval is rounded up by less than 1 ns, which the burst makes up for.
                let window_ns = quota.capacity_ns() - (quota.burst() - 1);
                Some(pace(quota.burst(), window_ns, quota.interval_ns().into(), 1))
            }
            Self::FixedWindow(rule) => Some(per_window(rule.count(), rule.window_ns(now))),
            Self::SlidingLog(rule) => Some(per_window(rule.count(), rule.period_ns())),
            Self::SubWindow(rule) => Some(per_window(rule.count(), rule.period_ns())),
            Self::SlidingWindow(rule) => {
                // The estimate is rounded up, which costs an even stream one unit in each period.
                let evenly = rule.count().saturating_sub(1);
                let window_ns = match evenly {
                    0 => rule.period_ns().saturating_mul(2),
                    evenly => scaled_up(rule.period_ns(), rule.count(), evenly),
                };
                Some(per_window(rule.count(), window_ns))
            }
            Self::Concurrency(_) => None,
            Self::Several(rules) => rules.iter().filter_map(|rule| rule.pace(now)).max_by_key(Pace::ns_per_million),
        }
    }
}

impl Pace {
    fn ns_per_million(&self) -> u128 {
        u128::from(self.window_s) * 1_000_000_000_000_000 / u128::from(self.units.max(1))
    }
}

fn per_window(count: u64, window_ns: u64) -> Pace {
    pace(count, window_ns, window_ns.into(), count)
}

/// The pace of a rate by which `units` units come back in `units_ns`. The window is `window_ns` in whole seconds, rounded
/// up; its units are those that come back in it, and at least `capacity`.
fn pace(capacity: u64, window_ns: u64, units_ns: u128, units: u64) -> Pace {
    let window_s = window_ns.div_ceil(NS_PER_S).max(1);
    let in_window = u128::from(window_s) * u128::from(NS_PER_S) * u128::from(units) / units_ns.max(1);
    Pace { units: capacity.max(u64::try_from(in_window).unwrap_or(u64::MAX)), window_s }
}

/// `ns * by / of`, rounded up.
fn scaled_up(ns: u64, by: u64, of: u64) -> u64 {
    u64::try_from((u128::from(ns) * u128::from(by)).div_ceil(u128::from(of))).unwrap_or(u64::MAX)
}
