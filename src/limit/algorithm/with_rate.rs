//! A rule with another rate.

use super::Algorithm;
use crate::limit::{Allowance, Quota, QuotaError, Rate, concurrency, fixed_window, leaky_bucket, sub_window};

impl Algorithm {
    /// A rule of this algorithm that allows `rate`, with a burst of as many units. Windows begin with the first request,
    /// not by a calendar. A sliding log becomes a sliding window, whose memory does not grow with the rate. Several rates
    /// become one.
    ///
    /// # Errors
    /// If the algorithm cannot have the rate.
    pub fn with_rate(&self, rate: Rate) -> Result<Self, QuotaError> {
        let quota = || Quota::new(rate, rate.count);
        match self {
            Self::TokenBucket(_) => quota().map(Self::TokenBucket),
            Self::LeakyBucket(rule) => quota().map(|quota| Self::LeakyBucket(leaky_bucket::Rule { quota, ..*rule })),
            Self::FixedWindow(_) => fixed_window::Rule::from_first(rate).map(Self::FixedWindow),
            Self::SlidingLog(_) | Self::SlidingWindow(_) => Allowance::new(rate).map(Self::SlidingWindow),
            Self::SubWindow(rule) => {
                let n = u32::try_from(rule.sub_windows()).unwrap_or(1);
                sub_window::Rule::new(rate, n).map(Self::SubWindow)
            }
            Self::Concurrency(_) => concurrency::Rule::new(rate.count).map(Self::Concurrency),
            Self::Several(rules) => rules.first().map_or(Err(QuotaError::Zero), |rule| rule.with_rate(rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Calendar, Unit, sliding_log};

    const MINUTE: Rate = Rate { count: 10, period_ns: 60_000_000_000 };
    const HOUR: Rate = Rate { count: 7, period_ns: 3_600_000_000_000 };

    #[test]
    fn the_algorithm_stays_and_the_rate_changes() {
        let quota = |rate: Rate, burst| Quota::new(rate, burst).unwrap();
        let leaky = |quota| Algorithm::LeakyBucket(leaky_bucket::Rule { quota, shapes: true });
        let calendar = fixed_window::Rule::in_calendar(10, Calendar::new(Unit::Day, 1, "UTC").unwrap()).unwrap();
        let window = Algorithm::SlidingWindow(Allowance::new(HOUR).unwrap());
        let bucket = Algorithm::TokenBucket(quota(HOUR, 7));
        let sub = |rate| Algorithm::SubWindow(sub_window::Rule::new(rate, 6).unwrap());
        for (before, expected) in [
            (Algorithm::TokenBucket(quota(MINUTE, 50)), bucket.clone()),
            (leaky(quota(MINUTE, 50)), leaky(quota(HOUR, 7))),
            (Algorithm::FixedWindow(calendar), Algorithm::FixedWindow(fixed_window::Rule::from_first(HOUR).unwrap())),
            (Algorithm::SlidingLog(sliding_log::Rule::new(MINUTE).unwrap()), window.clone()),
            (Algorithm::SlidingWindow(Allowance::new(MINUTE).unwrap()), window),
            (sub(MINUTE), sub(HOUR)),
            (Algorithm::Several([Algorithm::TokenBucket(quota(MINUTE, 10)), sub(MINUTE)].into()), bucket),
        ] {
            assert_eq!(before.with_rate(HOUR), Ok(expected));
        }
        let fast = Rate { count: u64::from(u32::MAX), period_ns: 1_000_000_000 };
        assert_eq!(Algorithm::TokenBucket(quota(MINUTE, 10)).with_rate(fast), Err(QuotaError::TooFast));
    }
}
