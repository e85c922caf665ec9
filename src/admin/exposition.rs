//! `GET /metrics`, in one of two text formats.

use std::sync::Arc;

use axum::extract::State;
use http::header::{ACCEPT, HeaderValue, VARY};
use http::{HeaderMap, StatusCode};

use super::answer::{Answer, of_kind, text};
use super::state::Admin;
use crate::base::telemetry::OPENMETRICS_TYPE;

/// The Prometheus text exposition format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics, in the Prometheus text format or as `OpenMetrics`.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = str, description = "the metrics")))]
pub(super) async fn metrics(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Answer {
    admin.gate.publish();
    let (rendered, kind) = match preferred(&headers) {
        Format::Prometheus => (admin.metrics.render(), METRICS_TYPE),
        Format::OpenMetrics => {
            let rendered = admin.metrics.render_openmetrics(admin.gate.clock().started());
            (Ok(rendered.into_bytes()), OPENMETRICS_TYPE)
        }
    };
    match rendered {
        Ok(rendered) => {
            let mut response = of_kind(StatusCode::OK, kind, rendered);
            response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
            response
        }
        Err(error) => {
            tracing::error!(%error, "cannot render the metrics");
            text(StatusCode::INTERNAL_SERVER_ERROR, "cannot render the metrics\n")
        }
    }
}

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// The Prometheus text format, version 0.0.4.
    Prometheus,
    /// The `OpenMetrics` text format, version 1.0.0.
    OpenMetrics,
}

/// The format that `Accept` prefers (RFC 9110, section 12.5.1). A wildcard does not select `OpenMetrics`.
fn preferred(headers: &HeaderMap) -> Format {
    let (mut openmetrics, mut text) = (0.0_f32, 0.0_f32);
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let (mut quality, mut is_known) = (1.0, true);
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match (key.trim_ascii().to_ascii_lowercase().as_str(), value.trim_ascii().trim_matches('"')) {
                ("q", value) => quality = value.parse().unwrap_or(0.0),
                ("version", version) => is_known = version == "1.0.0",
                _ => {}
            }
        }
        match name.to_ascii_lowercase().as_str() {
            "application/openmetrics-text" if is_known => openmetrics = openmetrics.max(quality),
            "text/plain" | "text/*" | "*/*" => text = text.max(quality),
            _ => {}
        }
    }
    if openmetrics > 0.0 && openmetrics >= text { Format::OpenMetrics } else { Format::Prometheus }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_only_if_accept_prefers_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, expected) in [
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8", Format::OpenMetrics),
            ("application/openmetrics-text;q=0.5,text/plain;q=0.9", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;version=2.0.0,*/*;q=0.1", Format::Prometheus),
            ("text/plain", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("", Format::Prometheus),
            (";;q=,", Format::Prometheus),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(preferred(&headers), expected, "{accept}");
        }
        assert_eq!(preferred(&HeaderMap::new()), Format::Prometheus);
    }
}
