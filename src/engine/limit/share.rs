//! What one of several replicas may spend alone: its share of a rule, and the size of a lease.

use super::{Algorithm, QuotaError};

impl Algorithm {
    /// The rule of one of `replicas` that share this one: together they never admit more than it does. Units that do not
    /// divide evenly are lost.
    ///
    /// # Errors
    /// [`QuotaError::Zero`] if a replica would have no unit.
    pub fn share(&self, replicas: u64) -> Result<Self, QuotaError> {
        Ok(match self {
            Self::TokenBucket(quota) => Self::TokenBucket(quota.share(replicas)?),
            Self::LeakyBucket(rule) => Self::LeakyBucket(rule.share(replicas)?),
            Self::FixedWindow(rule) => Self::FixedWindow(rule.share(replicas)?),
            Self::SlidingLog(rule) => Self::SlidingLog(rule.share(replicas)?),
            Self::SlidingWindow(rule) => Self::SlidingWindow(rule.share(replicas)?),
            Self::SubWindow(rule) => Self::SubWindow(rule.share(replicas)?),
            Self::Concurrency(rule) => Self::Concurrency(rule.share(replicas)?),
            Self::Several(rules) => {
                Self::Several(rules.iter().map(|rule| rule.share(replicas)).collect::<Result<_, _>>()?)
            }
        })
    }
}

/// The number of units that a replica borrows at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseUnits {
    /// As many as recent demand needs.
    #[default]
    Auto,
    /// This number, at least 1.
    Fixed(u64),
}
