//! What operators see of the process: metrics and logs.
//!
//! Label values come from the configuration, never from a client. Not here: the HTTP endpoint /metrics (admin).

mod cells;
mod checks;
mod factory;
mod fleet;
mod gauge;
mod log;
mod metrics;
mod openmetrics;
mod outcome;
mod remote_config;
mod sample;
mod scrape;
mod snapshots;
mod stores;
mod tap;
mod upstreams;

pub use cells::{DurationHistogram, EndpointCells, EndpointResult, HistogramSnapshot, LimitCells, LimitDecision};
pub use checks::{CheckCounters, CheckMetrics};
pub use fleet::{FleetMetrics, Traffic};
pub use gauge::LiveGauge;
pub use log::{AccessLine, AccessLog, LogFormat, LogGuard, LogSettings, start_logs};
pub use prometheus::{IntCounter as Counter, IntGauge as Gauge};

pub use openmetrics::OPENMETRICS_TYPE;

pub use metrics::{LimitMetrics, Metrics};
pub use outcome::Outcome;
pub use remote_config::RemoteConfigMetrics;
pub use sample::Sample;
pub use snapshots::SnapshotMetrics;
pub use stores::{RemoteLimitMetrics, StoreMetrics};
pub use tap::{BANNED, TAPS_MAX, Tap, TapFilter, TapMetrics, TappedKey, TappedRequest, Taps, verdicts};
pub use upstreams::{EndpointMetrics, UpstreamMetrics};
