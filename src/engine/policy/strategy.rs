//! How the replicas of a fleet share a limit.

use crate::engine::limit::LeaseUnits;

/// How the replicas of a fleet share a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Each replica decides alone, by the whole limit.
    #[default]
    Local,
    /// Each of so many replicas decides alone, by an equal share of the limit.
    Split(u64),
    /// A store decides each request.
    Redis {
        /// The index of the store in the configuration.
        store: usize,
        /// The number of replicas, for decisions while the store is down or has lost its keys.
        replicas: u64,
    },
    /// The limiter service of another Weir decides each request.
    Service {
        /// The index of the store in the configuration.
        store: usize,
        /// The number of replicas, for decisions while the limiter is down or has lost its keys.
        replicas: u64,
    },
    /// Each replica decides alone, by units that it borrowed from a store.
    Lease {
        /// The index of the store in the configuration.
        store: usize,
        /// The number of replicas, for decisions while the store is down or has lost its keys.
        replicas: u64,
        /// The size of a lease.
        units: LeaseUnits,
    },
    /// Each replica decides alone, by the whole limit, and charges what the others tell it. Their number is known at run
    /// time.
    Stream,
}

impl Strategy {
    /// The word of `limit.strategy`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Split(_) => "split",
            Self::Redis { .. } => "redis",
            Self::Service { .. } => "service",
            Self::Lease { .. } => "lease",
            Self::Stream => "stream",
        }
    }

    /// The index of the store that has the state of the limit; `None` if no store has it.
    pub fn store(&self) -> Option<usize> {
        match *self {
            Self::Local | Self::Split(_) | Self::Stream => None,
            Self::Redis { store, .. } | Self::Service { store, .. } | Self::Lease { store, .. } => Some(store),
        }
    }

    /// Whether a store has the state of the limit.
    pub fn is_remote(&self) -> bool {
        self.store().is_some()
    }

    /// Whether no replica learns what the others charge. If one does, all must hash keys alike.
    pub fn counts_alone(&self) -> bool {
        matches!(self, Self::Local | Self::Split(_))
    }

    /// The size of a lease; `None` if the limit has no leases.
    pub fn lease(&self) -> Option<LeaseUnits> {
        match *self {
            Self::Lease { units, .. } => Some(units),
            _ => None,
        }
    }

    /// The number of replicas that share the limit; 1 if each replica decides by all of it.
    pub fn replicas(&self) -> u64 {
        match *self {
            Self::Local | Self::Stream => 1,
            Self::Split(replicas)
            | Self::Redis { replicas, .. }
            | Self::Service { replicas, .. }
            | Self::Lease { replicas, .. } => replicas,
        }
    }

    /// This strategy for so many replicas.
    pub(super) fn with_replicas(mut self, count: u64) -> Self {
        match &mut self {
            Self::Local | Self::Stream => {}
            Self::Split(replicas)
            | Self::Redis { replicas, .. }
            | Self::Service { replicas, .. }
            | Self::Lease { replicas, .. } => *replicas = count,
        }
        self
    }
}
