//! What requests and the connections to peers tell each other.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The number of replicas that stands for an unknown one.
const UNKNOWN: u64 = u64::MAX;

/// The link between the requests of a replica and its connections to peers.
#[derive(Debug, Default)]
pub struct Link {
    urgent: Notify,
    absent: AtomicU64,
    unmet: AtomicU64,
}

impl Link {
    /// Has pending charges sent soon, because a key has used a part of its limit.
    pub fn hurry(&self) {
        self.urgent.notify_one();
    }

    /// Waits until charges are urgent.
    pub async fn urgent(&self) {
        self.urgent.notified().await;
    }

    /// Sets the number of other replicas that do not hear the charges of this one, and of those besides that have no
    /// connection; `None` if it is unknown how many replicas there are.
    pub fn set_absent(&self, replicas: u64, unmet: Option<u64>) {
        self.absent.store(replicas, Ordering::Relaxed);
        self.unmet.store(unmet.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// The number of other replicas that are not connected, and whose absence is not certain yet. They may admit as much as
    /// this one. `None` if it is unknown how many replicas there are.
    pub fn unmet(&self) -> Option<u64> {
        Some(self.unmet.load(Ordering::Relaxed)).filter(|unmet| *unmet != UNKNOWN)
    }

    /// The number of other replicas that do not hear the charges of this one. Each charge counts here in their place.
    pub fn absent(&self) -> u64 {
        self.absent.load(Ordering::Relaxed)
    }
}
