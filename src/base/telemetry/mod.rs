//! What operators see of the process: metrics and logs.
//!
//! Label values come from the configuration, never from a client. Not here: the HTTP endpoint /metrics (admin).

mod cells;
mod checks;
mod factory;
mod fetches;
mod fleet;
mod gauge;
mod histogram;
mod limits;
mod log;
mod metrics;
mod openmetrics;
mod outcome;
mod overload;
mod process;
mod remote_config;
mod request;
mod sample;
mod scrape;
mod snapshots;
mod spans;
mod stores;
mod tap;
mod upstreams;

pub use cells::{
    ByteCells, DurationHistogram, EndpointCells, EndpointResult, LimitCells, LimitDecision, UpstreamCells,
};
pub use checks::{CheckCounters, CheckMetrics};
pub use fetches::FetchMetrics;
pub use fleet::{FleetMetrics, Traffic};
pub use gauge::LiveGauge;
pub use histogram::HistogramSnapshot;
pub use log::{
    AccessLog, AccessSettings, LogFormat, LogGuard, LogSettings, access_log_names_gate, is_fifo, log_request,
    open_to_append, set_log_level, start_logs,
};
pub use prometheus::{IntCounter as Counter, IntGauge as Gauge};

pub use openmetrics::OPENMETRICS_TYPE;

pub use limits::{LimitMetrics, StaleMetrics};
pub use metrics::Metrics;
pub use outcome::{Outcome, RefusedBy};
pub use overload::OverloadMetrics;
pub use remote_config::RemoteConfigMetrics;
pub use request::{
    COMBINED, FIELDS, Field, FieldKind, LineFormat, LineTimes, RequestRecord, TappedKey, Template, Text, Texts,
    fields_markdown, is_unprintable, write_fields_json,
};
pub use sample::Sample;
pub use snapshots::SnapshotMetrics;
pub use spans::{SpanContext, SpanMetrics, Spans, TracedRequest};
pub use stores::{RemoteLimitMetrics, StoreMetrics};
pub use tap::{TAPS_MAX, Tap, TapFilter, TapMetrics, Taps};
pub use upstreams::{EndpointMetrics, UpstreamMetrics};
