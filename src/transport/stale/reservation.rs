//! Bytes that are taken of a cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are taken of a cache, until this is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    /// All bytes that are taken of the cache.
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Reservation {
    /// `bytes` that have been added to `all`.
    pub(super) fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Self {
        Self { all: Arc::clone(all), bytes }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds `bytes` that have been added to those of the cache.
    pub(super) fn has_taken(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Gives all but `bytes` back.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.all.fetch_sub(self.bytes.saturating_sub(bytes), Ordering::Relaxed);
        self.bytes = self.bytes.min(bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}
