//! The order of rules by strictness.

use super::{Algorithm, QuotaError, Rate, sliding_log};
use crate::engine::limit::Quota;

fn bucket(count: u64, burst: u64) -> Result<Algorithm, QuotaError> {
    Quota::new(Rate { count, period_ns: 1_000_000_000 }, burst).map(Algorithm::TokenBucket)
}

fn log(count: u64, period_ns: u64) -> Result<Algorithm, QuotaError> {
    sliding_log::Rule::new(Rate { count, period_ns }).map(Algorithm::SlidingLog)
}

fn leaky(count: u64, burst: u64, shapes: bool) -> Result<Algorithm, QuotaError> {
    let quota = Quota::new(Rate { count, period_ns: 1_000_000_000 }, burst)?;
    Ok(Algorithm::LeakyBucket(quota.shaping(shapes)))
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
