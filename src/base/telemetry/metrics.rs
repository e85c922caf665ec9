//! The Prometheus metrics. Handles with labels are resolved when a policy is installed, never for a request.

use prometheus::proto::MetricFamily;
use prometheus::{Encoder, Gauge, IntCounter, IntCounterVec, IntGauge, Registry, TextEncoder};

use super::cells::{ByteCells, DurationHistogram, LimitCells};
use super::checks::CheckMetrics;
use super::factory::MetricFactory;
use super::fetches::FetchMetrics;
use super::fleet::FleetMetrics;
use super::gauge::{LiveGauge, set_or_remove};
use super::histogram::as_float;
use super::limits::{LimitMetrics, LimitVecs, StaleMetrics};
use super::openmetrics;
use super::outcome::Outcome;
use super::overload::OverloadMetrics;
use super::process::ProcessCollector;
use super::remote_config::RemoteConfigMetrics;
use super::scrape::Scrape;
use super::snapshots::SnapshotMetrics;
use super::spans::SpanMetrics;
use super::stores::{RemoteLimitMetrics, StoreMetrics, StoreVecs};
use super::tap::TapMetrics;
use super::upstreams::{EndpointMetrics, EndpointVecs, UpstreamMetrics};
use crate::base::time::Timestamp;

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    limits: LimitVecs,
    endpoints: EndpointVecs,
    stores: StoreVecs,
    scrape: Scrape,
    /// The metrics of the limiter service.
    pub checks: CheckMetrics,
    /// The time that Weir adds to a request that does not wait, from its parsed head to the start of forwarding.
    pub overhead: DurationHistogram,
    /// The bytes from and to clients.
    pub client_bytes: ByteCells,
    /// Responses that Weir made itself, except those of limits, by kind of problem.
    pub problems: IntCounterVec,
    /// Open connections.
    pub connections: LiveGauge,
    /// Open connections and HTTP/2 streams that were upgraded to another protocol.
    pub upgraded: LiveGauge,
    /// Connections closed unserved at `server.max_connections`.
    pub connections_refused: IntCounter,
    /// Connections closed unserved because their client has too many.
    pub client_connections_refused: IntCounter,
    /// Failed TLS handshakes, except those of clients that sent nothing.
    pub tls_handshakes_failed: IntCounter,
    /// Connections closed because their PROXY header was invalid or late.
    pub proxy_headers_refused: IntCounter,
    /// Requests refused because the wait queue was full.
    pub hold_overflow: IntCounter,
    /// CORS preflights: those that limits charge, and those that are free.
    pub preflights: [IntCounter; 2],
    /// Admin connections closed in favour of newer ones.
    pub admin_connections_displaced: IntCounter,
    /// Bans that operators set.
    pub operator_bans: IntGauge,
    /// Requests of addresses that operators banned.
    pub banned_addresses: IntCounter,
    /// The metrics of requests that are shed.
    pub overload: OverloadMetrics,
    /// The metrics of taps.
    pub taps: TapMetrics,
    /// The metrics of traces.
    pub spans: SpanMetrics,
    untaken_bytes: LiveGauge,
    tasks: IntGauge,
    /// Requests that ended in a panic.
    pub panics: IntCounter,
    /// Log lines dropped because the channel was full.
    pub log_lines_dropped: IntCounter,
    /// 1 if the last reload succeeded.
    pub reload_successful: IntGauge,
    /// Unix seconds of the last successful reload.
    pub reload_timestamp: Gauge,
    /// Overrides set at run time that do not fit the configuration.
    pub overrides_left_out: IntGauge,
    /// The fetches of keys behind URLs by identity, and the times of the last successful ones.
    pub jwks: FetchMetrics,
    /// The orders of certificates by ACME by their first host, and the ends of the certificates.
    pub acme: FetchMetrics,
    /// The metrics of snapshots, which [`Metrics::show_snapshots`] registers.
    pub snapshots: SnapshotMetrics,
    /// The metrics of a remote configuration, which [`Metrics::show_remote_config`] registers.
    pub remote_config: RemoteConfigMetrics,
}

const UNTAKEN_OVERFLOW: &str = "untaken_overflow";

impl Metrics {
    /// Creates and registers all metrics. `version` and `revision` are labels of `weir_build_info`.
    pub fn new(version: &str, revision: &str) -> Result<Self, prometheus::Error> {
        let make = MetricFactory { registry: Registry::new() };
        let build = make.gauges("weir_build_info", "1, with the running version.", &["version", "revision"])?;
        build.with_label_values(&[version, revision]).set(1);
        make.register(ProcessCollector::new()?)?;
        let scrape = make.register(Scrape::new()?)?;
        let preflights = make.counters("weir_preflights_total", "CORS preflights, charged or free.", &["verdict"])?;
        Ok(Self {
            preflights: ["charged", "free"].map(|verdict| preflights.with_label_values(&[verdict])),
            limits: LimitVecs::new(&make)?,
            endpoints: EndpointVecs::new(&make)?,
            stores: StoreVecs::new(&make)?,
            checks: CheckMetrics::new(&make)?,
            overhead: scrape.overhead.clone(),
            client_bytes: scrape.client_bytes.clone(),
            scrape,
            problems: make.counters("weir_problems_total", "Answers of Weir itself, and ends, by kind.", &["kind"])?,
            connections: make.live_gauge("weir_connections", "Client connections open now.")?,
            upgraded: make.live_gauge("weir_upgraded_connections", "Connections upgraded to another protocol.")?,
            connections_refused: make
                .counter("weir_connections_refused_total", "Connections closed unserved at the bound.")?,
            client_connections_refused: make
                .counter("weir_client_connections_refused_total", "Connections closed at the bound of a client.")?,
            tls_handshakes_failed: make
                .counter("weir_tls_handshakes_failed_total", "Connections without a TLS session.")?,
            proxy_headers_refused: make.counter(
                "weir_proxy_headers_refused_total",
                "Connections closed because of an invalid or late PROXY header.",
            )?,
            hold_overflow: make
                .counter("weir_hold_overflow_total", "Requests refused because too much was waiting.")?,
            operator_bans: make.gauge("weir_operator_bans", "Bans that operators set.")?,
            banned_addresses: make
                .counter("weir_banned_address_requests_total", "Requests of addresses that operators banned.")?,
            admin_connections_displaced: make.counter(
                "weir_admin_connections_displaced_total",
                "Admin connections closed at the bound to make room for newer ones.",
            )?,
            overload: OverloadMetrics::new(&make)?,
            taps: TapMetrics::new(&make)?,
            spans: SpanMetrics::new(&make)?,
            untaken_bytes: make.live_gauge(
                "weir_untaken_bytes",
                "Bytes of answers that wait for their clients, as of a second ago.",
            )?,
            tasks: make.gauge("weir_tasks", "Tasks of all runtimes, as of a second ago.")?,
            panics: make.counter("weir_panics_total", "Connections that ended in a panic.")?,
            log_lines_dropped: make.counter("weir_log_lines_dropped_total", "Log lines lost at the bound.")?,
            reload_successful: make
                .gauge("weir_config_last_reload_successful", "1 if the last reload succeeded, else 0.")?,
            reload_timestamp: make
                .float_gauge("weir_config_last_reload_timestamp_seconds", "When the last successful reload was.")?,
            overrides_left_out: make
                .gauge("weir_overrides_left_out", "Overrides set at run time that do not fit the configuration.")?,
            jwks: FetchMetrics::of_jwks(&make)?,
            acme: FetchMetrics::of_acme(&make)?,
            snapshots: SnapshotMetrics::new()?,
            remote_config: RemoteConfigMetrics::new()?,
            registry: make.registry,
        })
    }

    /// Creates the series of these kinds at 0, so that the first problem of a kind is an increase.
    pub fn show_problems<'k>(&self, kinds: impl Iterator<Item = &'k str>) {
        for kind in kinds.chain(["broken_answer", "untaken_answer", UNTAKEN_OVERFLOW]) {
            self.problems.with_label_values(&[kind]);
        }
    }

    /// Registers the metrics of snapshots. Call it once.
    pub fn show_snapshots(&self) -> Result<(), prometheus::Error> {
        self.snapshots.register(&self.registry)
    }

    /// Registers the metrics of a remote configuration. Call it once.
    pub fn show_remote_config(&self) -> Result<(), prometheus::Error> {
        self.remote_config.register(&self.registry)
    }

    /// Registers the metrics of the connections between replicas. Call it once.
    pub fn show_fleet(&self) -> Result<FleetMetrics, prometheus::Error> {
        FleetMetrics::new(&MetricFactory { registry: self.registry.clone() })
    }

    /// Records a successful reload at `now`.
    pub fn reloaded(&self, now: Timestamp) {
        self.reload_successful.set(1);
        self.reload_timestamp.set(as_float(now.as_secs()));
    }

    /// Sets the bytes of untaken responses of one worker. `before` is the last value of this worker.
    pub fn set_untaken_bytes(&self, now: usize, before: &mut usize) {
        let as_gauge = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.untaken_bytes.add(as_gauge(now) - as_gauge(std::mem::replace(before, now)));
    }

    /// Sets the number of tasks of one runtime. `before` is the last value of this runtime.
    pub fn set_tasks(&self, now: usize, before: &mut usize) {
        let as_gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.tasks.add(as_gauge(now) - as_gauge(std::mem::replace(before, now)));
    }

    /// The counter of upstream responses that broke off after their head.
    pub fn broken_answers(&self) -> IntCounter {
        self.problems.with_label_values(&["broken_answer"])
    }

    /// The counter of connections and streams ended because untaken responses used too much memory.
    pub fn untaken_overflow(&self) -> IntCounter {
        self.problems.with_label_values(&[UNTAKEN_OVERFLOW])
    }

    /// The counter of responses that their clients did not take in time.
    pub fn untaken_answers(&self) -> IntCounter {
        self.problems.with_label_values(&["untaken_answer"])
    }

    /// Counts a request.
    #[inline]
    pub fn count(&self, outcome: Outcome) {
        self.scrape.outcomes.count(outcome);
    }

    /// Counts a response to a client.
    #[inline]
    pub fn answered(&self, status: u16) {
        self.scrape.statuses.count(status);
    }

    /// The requests so far, by outcome.
    pub fn outcomes(&self) -> [(Outcome, u64); Outcome::ALL.len()] {
        Outcome::ALL.map(|outcome| (outcome, self.scrape.outcomes.counted(outcome)))
    }

    /// The counters of the decisions of the limit `name`. Equal names have the same counters.
    pub fn limit_cells(&self, name: &str) -> LimitCells {
        self.scrape.limit(name)
    }

    /// The metrics of the limit `name`. Equal names have the same series.
    pub fn limit(&self, name: &str) -> LimitMetrics {
        self.limits.limit(name, self.scrape.limit(name))
    }

    /// The metrics of the stored answers of the limit `name`, with these causes. Equal names have the same series.
    pub fn stale(&self, name: &str, causes: [&str; 3]) -> StaleMetrics {
        self.limits.stale(name, causes)
    }

    /// The metrics of one more address of an endpoint. Equal names have the same series.
    pub fn endpoint(&self, upstream: &str, endpoint: &str) -> EndpointMetrics {
        self.endpoints.endpoint(upstream, endpoint, self.scrape.address(upstream, endpoint))
    }

    /// The metrics of the upstream `name`. Equal names have the same series.
    pub fn upstream(&self, name: &str) -> UpstreamMetrics {
        self.endpoints.upstream(name, self.scrape.upstream(name))
    }

    /// The metrics of the store `name`. Equal names have the same series.
    pub fn store(&self, name: &str) -> StoreMetrics {
        self.stores.store(name, self.scrape.store(name))
    }

    /// The counter of units that other replicas charged to the limit `name`. Equal names have the same series.
    pub fn streamed_units(&self, name: &str) -> IntCounter {
        self.limits.streamed.with_label_values(&[name])
    }

    /// Removes the series of a store without those of its nodes. `kinds` are its kinds of errors.
    pub fn remove_store<'k>(&self, name: &str, kinds: impl Iterator<Item = &'k str>) {
        self.scrape.remove_store(name);
        self.stores.remove_store(name, kinds);
    }

    /// The metrics of the limit `name` whose state is in a store. Equal names have the same series.
    pub fn remote_limit(&self, name: &str, has_leases: bool) -> RemoteLimitMetrics {
        self.stores.limit(name, has_leases)
    }

    /// Sets the most that the fleet admits of a limit, as a multiple of it; `None` if replicas do not share the limit.
    pub fn set_fleet_bound(&self, limit: &str, ratio: Option<f64>) {
        set_or_remove(&self.stores.bound, limit, ratio);
    }

    /// Sets the bound of a limit that follows its service; `None` for other limits.
    pub fn set_limit_bound(&self, limit: &str, units: Option<u64>) {
        set_or_remove(&self.limits.bound, limit, units.map(|units| i64::try_from(units).unwrap_or(i64::MAX)));
    }

    /// Sets the part of its rate that a limit has by `adapt`, in thousandths; `None` for other limits.
    pub fn set_adapted_part(&self, limit: &str, part: Option<u64>) {
        set_or_remove(&self.limits.adapted, limit, part.map(|part| as_float(part) / 1000.0));
    }

    /// Removes the series of the leases of a limit that has none any more.
    pub fn remove_lease_units(&self, limit: &str) {
        // A missing series is no error.
        let _ = self.stores.lease_units.remove_label_values(&[limit]);
    }

    /// Removes the series of an upstream.
    pub fn remove_upstream(&self, name: &str) {
        self.scrape.remove_upstream(name);
        self.endpoints.remove_upstream(name);
    }

    /// Removes the series of an endpoint.
    pub fn remove_endpoint(&self, upstream: &str, endpoint: &str) {
        self.scrape.remove_endpoint(upstream, endpoint);
        self.endpoints.remove_endpoint(upstream, endpoint);
    }

    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// All metrics in the Prometheus text format, version 0.0.4.
    pub fn render(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.gather(), &mut text)?;
        Ok(text)
    }

    /// All metrics in the `OpenMetrics` text format. `started` is the time at which all counters were 0.
    pub fn render_openmetrics(&self, started: Timestamp) -> String {
        openmetrics::encode(&self.gather(), started)
    }
}
