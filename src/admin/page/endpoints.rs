//! The endpoints of services in words.

use super::words;
use crate::admin::upstreams::{EndpointBody, UpstreamBody};

/// An endpoint in words.
pub(super) struct EndpointSummary {
    /// The name as configured, and the address that a lookup returned.
    pub(super) name: String,
    pub(super) upstream: String,
    pub(super) state: String,
    /// Whether it gets requests.
    pub(super) serves: bool,
    /// Why it has this state, and since when.
    pub(super) why: String,
    /// Requests of the last minute.
    pub(super) requests: String,
    /// Failed requests of the last minute.
    pub(super) errors: String,
    /// The median and the 90th percentile of the last minute.
    pub(super) latency: String,
    pub(super) active: u64,
    pub(super) connections: usize,
    /// Requests that wait for a connection to the upstream.
    pub(super) queued: usize,
}

/// All endpoints; those that serve no requests are first.
pub(super) fn rows(upstreams: &[UpstreamBody]) -> Vec<EndpointSummary> {
    let all = upstreams.iter().flat_map(|upstream| upstream.endpoints.iter().map(move |one| row(upstream, one)));
    let mut rows: Vec<_> = all.collect();
    rows.sort_by_key(|row| row.serves);
    rows
}

/// Whether the endpoint gets requests.
pub(super) fn serves(endpoint: &EndpointBody) -> bool {
    ["up", "returning"].contains(&&*endpoint.state)
}

fn row(upstream: &UpstreamBody, endpoint: &EndpointBody) -> EndpointSummary {
    let EndpointBody { endpoint: name, address, state, why, since, until, active, connections, last_minute, .. } =
        endpoint;
    let per_second = |count: u64| {
        let rate = if last_minute.seconds > 0.0 { words::per_second(count, last_minute.seconds) } else { 0.0 };
        words::rate(rate)
    };
    let ms = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.1} ms"));
    let until = until.as_deref().map(|until| format!(", until {}", words::instant(until))).unwrap_or_default();
    let why = why.as_deref().map(|why| format!("{why}, ")).unwrap_or_default();
    EndpointSummary {
        name: address.as_ref().map_or_else(|| name.clone(), |address| format!("{name} {address}")),
        upstream: upstream.upstream.clone(),
        serves: serves(endpoint),
        state: state.clone(),
        why: format!("{why}since {}{until}", words::instant(since)),
        requests: per_second(last_minute.requests),
        errors: per_second(last_minute.errors),
        latency: format!("{}, {}", ms(last_minute.p50_ms), ms(last_minute.p90_ms)),
        active: *active,
        connections: *connections,
        queued: upstream.queued,
    }
}
