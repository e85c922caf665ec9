//! A partial order of rules by strictness.

use super::super::fixed_window::Windows;
use super::Algorithm;

impl Algorithm {
    /// Whether this rule is at least as strict as `other`: if both charge a key, this one at least as much, then `other`
    /// admits whatever this one admits. `false` also if that is unknown.
    pub fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::TokenBucket(own), Self::TokenBucket(other)) => {
                own.burst() <= other.burst() && own.interval_ns() >= other.interval_ns()
            }
            (Self::LeakyBucket(own), Self::LeakyBucket(other)) => {
                own.shapes == other.shapes
                    && own.quota.burst() <= other.quota.burst()
                    && own.quota.interval_ns() >= other.quota.interval_ns()
            }
            (Self::FixedWindow(own), Self::FixedWindow(other)) => {
                let (Windows::Calendar(narrow), Windows::Calendar(wide)) = (own.windows(), other.windows()) else {
                    return false;
                };
                narrow.most_within(wide).is_some_and(|most| own.count().saturating_mul(most) <= other.count())
            }
            (Self::SlidingLog(own), Self::SlidingLog(other)) => {
                // That many spans of `own` cover one of `other`.
                let spans = other.period_ns().div_ceil(own.period_ns().max(1));
                own.count().saturating_mul(spans) <= other.count()
            }
            (Self::SlidingWindow(own), Self::SlidingWindow(other)) => {
                own.count() <= other.count() && own.period_ns() == other.period_ns()
            }
            (Self::SubWindow(own), Self::SubWindow(other)) => {
                let is_alike = (own.period_ns(), own.sub_windows()) == (other.period_ns(), other.sub_windows());
                is_alike && own.count() <= other.count()
            }
            (Self::Concurrency(own), Self::Concurrency(other)) => own.max() <= other.max(),
            (own, Self::Several(others)) => others.iter().all(|other| own.is_within(other)),
            (Self::Several(own), other) => own.iter().any(|own| own.is_within(other)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Quota, QuotaError, Rate, leaky_bucket, sliding_log};
    use super::*;

    fn bucket(count: u64, burst: u64) -> Result<Algorithm, QuotaError> {
        Quota::new(Rate { count, period_ns: 1_000_000_000 }, burst).map(Algorithm::TokenBucket)
    }

    fn log(count: u64, period_ns: u64) -> Result<Algorithm, QuotaError> {
        sliding_log::Rule::new(Rate { count, period_ns }).map(Algorithm::SlidingLog)
    }

    fn leaky(count: u64, burst: u64, shapes: bool) -> Result<Algorithm, QuotaError> {
        let quota = Quota::new(Rate { count, period_ns: 1_000_000_000 }, burst)?;
        Ok(Algorithm::LeakyBucket(leaky_bucket::Rule { quota, shapes }))
    }

    #[test]
    fn a_rule_is_within_a_rule_that_admits_more() -> Result<(), QuotaError> {
        let several = |rules: [Algorithm; 2]| Algorithm::Several(rules.into());
        for (own, other, is_within) in [
            (bucket(10, 10)?, bucket(10, 10)?, true),
            (bucket(10, 10)?, bucket(20, 20)?, true),
            (bucket(10, 20)?, bucket(20, 10)?, false),
            (bucket(20, 10)?, bucket(10, 20)?, false),
            (leaky(10, 10, true)?, leaky(20, 20, true)?, true),
            (leaky(10, 10, true)?, leaky(20, 20, false)?, false),
            (leaky(10, 20, true)?, leaky(20, 10, true)?, false),
            (leaky(20, 10, true)?, leaky(10, 20, true)?, false),
            (bucket(10, 10)?, log(100, 1_000_000_000)?, false),
            (log(10, 2_000_000_000)?, log(10, 1_000_000_000)?, true),
            (log(10, 1_000_000_000)?, log(10, 2_000_000_000)?, false),
            (log(10, 1_000_000_000)?, log(20, 2_000_000_000)?, true),
            (log(10, 1_000_000_000)?, log(20, 2_000_000_001)?, false),
            (several([bucket(10, 10)?, log(5, 5)?]), bucket(20, 20)?, true),
            (bucket(20, 20)?, several([bucket(10, 10)?, bucket(30, 30)?]), false),
            (bucket(10, 10)?, several([bucket(10, 10)?, bucket(30, 30)?]), true),
            (several([bucket(10, 10)?, bucket(5, 50)?]), several([bucket(5, 60)?, bucket(10, 10)?]), true),
        ] {
            assert_eq!(own.is_within(&other), is_within, "{own:?} in {other:?}");
        }
        Ok(())
    }
}
