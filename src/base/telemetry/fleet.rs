//! Metrics of the connections between replicas.

use prometheus::{Error, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::factory::MetricFactory;
use super::histogram::as_float;
use crate::base::time::Timestamp;

/// The metrics of the connections between replicas.
#[derive(Clone, Debug)]
pub struct FleetMetrics {
    /// The replicas, this one included.
    pub replicas: IntGauge,
    /// 1 while this replica keeps to its share, because another one does not hear it.
    pub isolated: IntGauge,
    /// Messages to other replicas.
    pub sent: Traffic,
    /// Messages of other replicas.
    pub received: Traffic,
    /// Connections refused because of another secret.
    pub refused_secret: IntCounter,
    /// Connections refused because they were no replica's, or too slow.
    pub refused_stranger: IntCounter,
    /// Connections refused at a bound.
    pub refused_busy: IntCounter,
    up: IntGaugeVec,
    lag: IntGaugeVec,
    last_received: GaugeVec,
    skew: GaugeVec,
}

/// Messages in one direction.
#[derive(Clone, Debug)]
pub struct Traffic {
    messages: IntCounter,
    bytes: IntCounter,
}

impl FleetMetrics {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, Error> {
        let direction = &["direction"];
        let messages = make.counters("weir_fleet_messages_total", "Messages between replicas.", direction)?;
        let bytes = make.counters("weir_fleet_bytes_total", "Bytes of messages between replicas.", direction)?;
        let traffic = |direction| Traffic {
            messages: messages.with_label_values(&[direction]),
            bytes: bytes.with_label_values(&[direction]),
        };
        let refused: IntCounterVec =
            make.counters("weir_fleet_refused_total", "Refused connections of the fleet listener.", &["reason"])?;
        let [refused_secret, refused_stranger, refused_busy] =
            ["secret", "stranger", "busy"].map(|reason| refused.with_label_values(&[reason]));
        let peer = &["peer"];
        Ok(Self {
            replicas: make.gauge("weir_fleet_replicas", "Replicas of the fleet, this one included.")?,
            isolated: make.gauge(
                "weir_fleet_isolated",
                "1 while another replica does not hear this one, so it keeps to a part.",
            )?,
            sent: traffic("sent"),
            received: traffic("received"),
            refused_secret,
            refused_stranger,
            refused_busy,
            up: make.gauges("weir_fleet_peer_up", "1 while the replica is connected.", peer)?,
            lag: make.gauges("weir_fleet_peer_lag_batches", "Batches of charges that the replica lacks.", peer)?,
            last_received: make.float_gauges(
                "weir_fleet_peer_last_received_timestamp_seconds",
                "When the last message of the replica came.",
                peer,
            )?,
            skew: make.float_gauges(
                "weir_clock_skew_seconds",
                "Seconds by which the clock of the replica is ahead.",
                peer,
            )?,
        })
    }

    /// Records what is known of a replica.
    #[allow(clippy::cast_precision_loss)] // seconds and their fractions
    pub fn peer(&self, peer: &str, is_up: bool, lag: u64, last_received: Option<Timestamp>, ahead_ns: Option<i64>) {
        let labels = &[peer];
        self.up.with_label_values(labels).set(i64::from(is_up));
        self.lag.with_label_values(labels).set(i64::try_from(lag).unwrap_or(i64::MAX));
        if let Some(at) = last_received {
            self.last_received.with_label_values(labels).set(as_float(at.as_ns()) / 1e9);
        }
        if let Some(ahead_ns) = ahead_ns {
            self.skew.with_label_values(labels).set(ahead_ns as f64 / 1e9);
        }
    }

    /// Removes the series of a replica.
    pub fn remove_peer(&self, peer: &str) {
        // A missing series is no error.
        let _ = self.up.remove_label_values(&[peer]);
        let _ = self.lag.remove_label_values(&[peer]);
        let _ = self.last_received.remove_label_values(&[peer]);
        let _ = self.skew.remove_label_values(&[peer]);
    }
}

impl Traffic {
    /// Counts a message of `bytes` bytes.
    pub fn count(&self, bytes: usize) {
        self.messages.inc();
        self.bytes.inc_by(bytes as u64);
    }
}
