//! Metrics of snapshots, which exist only with `[snapshot]`.

use prometheus::{Gauge, IntGauge, Registry};

use super::histogram::as_float;
use crate::base::time::Timestamp;

/// The metrics of snapshots.
#[derive(Debug)]
pub struct SnapshotMetrics {
    /// 1 if this process restored a snapshot.
    pub restored: IntGauge,
    /// 1 if the last snapshot was written.
    pub successful: IntGauge,
    timestamp: Gauge,
    bytes: IntGauge,
}

impl SnapshotMetrics {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        Ok(Self {
            restored: IntGauge::new("weir_snapshot_restored", "1 if this process restored a snapshot.")?,
            successful: IntGauge::new("weir_snapshot_last_successful", "1 if the last snapshot was written, else 0.")?,
            timestamp: Gauge::new("weir_snapshot_last_timestamp_seconds", "When the last snapshot was written.")?,
            bytes: IntGauge::new("weir_snapshot_bytes", "Length of the last snapshot.")?,
        })
    }

    pub(super) fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        for gauge in [&self.restored, &self.successful, &self.bytes] {
            registry.register(Box::new(gauge.clone()))?;
        }
        registry.register(Box::new(self.timestamp.clone()))
    }

    /// Records that a snapshot of `bytes` bytes was written at `now`.
    pub fn written(&self, bytes: u64, now: Timestamp) {
        self.successful.set(1);
        self.timestamp.set(as_float(now.as_secs()));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
