//! What operators see of the inside: metric handles and logs.
//!
//! Labels come from the configuration only, never from a client. Not here: serving /metrics (admin).

mod cells;
mod log;
mod metrics;
mod scrape;

pub use cells::{Decided, Durations, EndpointCells, LimitCells, Reached};
pub use log::{AccessLine, AccessLog, LogFormat, LogGuard, LogSettings, start_logs};
pub use prometheus::{IntCounter as Counter, IntGauge as Gauge};

pub use metrics::{EndpointMetrics, LimitMetrics, Metrics, Outcome, UpstreamMetrics};
