//! `weir upstreams`.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::target::{ApiRequest, Target, json_or_text, text};
use crate::admin::{EndpointBody, UpstreamBody, UpstreamsBody};
use crate::cli::output::Exit;
use crate::cli::table::table;

#[derive(Debug, Args)]
pub(in crate::cli) struct UpstreamsArgs {
    #[command(subcommand)]
    action: UpstreamsAction,
}

#[derive(Debug, Subcommand)]
enum UpstreamsAction {
    /// List the endpoints with their states and the figures of the last minute.
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Drain an endpoint: it gets no new request, and active requests finish.
    Drain {
        #[command(flatten)]
        endpoint: EndpointArgs,
        /// How long, such as `10min`; without it until `undrain`.
        #[arg(long = "for", value_name = "TIME")]
        length: Option<String>,
        /// Drain it even if no other endpoint of the upstream is up.
        #[arg(long)]
        force: bool,
        /// The reason, for the list and the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// End the drain of an endpoint.
    Undrain {
        #[command(flatten)]
        endpoint: EndpointArgs,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Set the weight of an endpoint: its part of the requests, relative to the weights of the others.
    Weight {
        #[command(flatten)]
        endpoint: EndpointArgs,
        /// A whole number from 1 to 65535, or `default` for that of the DNS, or 1.
        weight: String,
        /// How long, such as `10min`; without it until the next weight.
        #[arg(long = "for", value_name = "TIME")]
        length: Option<String>,
        /// The reason, for the list and the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
}

/// One endpoint.
#[derive(Debug, Args)]
struct EndpointArgs {
    /// The name of the upstream; `upstream` for `[upstream]`.
    upstream: String,
    /// The endpoint as configured, with or without its scheme, or one address of its name.
    endpoint: String,
}

pub(in crate::cli) fn upstreams(UpstreamsArgs { action }: UpstreamsArgs) -> Exit {
    match action {
        UpstreamsAction::List { target } => {
            target.run(ApiRequest::query(Method::GET, "/v1/upstreams", Vec::new()), show_upstreams)
        }
        UpstreamsAction::Drain { endpoint: EndpointArgs { upstream, endpoint }, length, force, reason, target } => {
            let drain =
                json!({ "upstream": upstream, "endpoint": endpoint, "for": length, "force": force, "reason": reason });
            target.run(ApiRequest::post("/v1/upstreams/drain", &drain), show_upstream)
        }
        UpstreamsAction::Undrain { endpoint: EndpointArgs { upstream, endpoint }, reason, target } => {
            let undrain = json!({ "upstream": upstream, "endpoint": endpoint, "reason": reason });
            target.run(ApiRequest::post("/v1/upstreams/undrain", &undrain), show_upstream)
        }
        UpstreamsAction::Weight { endpoint: EndpointArgs { upstream, endpoint }, weight, length, reason, target } => {
            let weight = if weight == "default" { Value::Null } else { json_or_text(&weight, Value::is_number) };
            let weight = json!({ "upstream": upstream, "endpoint": endpoint, "weight": weight, "for": length, "reason": reason });
            target.run(ApiRequest::post("/v1/upstreams/weight", &weight), show_upstream)
        }
    }
}

/// The table of one upstream after a change. The change ends with the process.
fn show_upstream(changed: &Value) -> String {
    show_upstreams(&json!({ "upstreams": [changed] })) + "\n\nOrders about endpoints end when Weir is restarted."
}

/// The columns of [`endpoint_rows`].
pub(super) const ENDPOINT_HEADINGS: [&str; 12] = [
    "UPSTREAM",
    "ENDPOINT",
    "STATE",
    "REQUESTS/S",
    "ERRORS/S",
    "P50",
    "P90",
    "ACTIVE",
    "QUEUED",
    "CONNECTIONS",
    "WEIGHT",
    "SINCE",
];

/// A row for each endpoint. The queue of an upstream is in its first row.
pub(super) fn endpoint_rows(body: &UpstreamsBody) -> Vec<Vec<String>> {
    let of_upstream = |upstream: &UpstreamBody| {
        let row = |(index, endpoint): (usize, &EndpointBody)| {
            let queued = if index == 0 { upstream.queued.to_string() } else { String::new() };
            endpoint_row(&upstream.upstream, endpoint, queued)
        };
        upstream.endpoints.iter().enumerate().map(row).collect::<Vec<_>>()
    };
    body.upstreams.iter().flat_map(of_upstream).collect()
}

fn endpoint_row(upstream: &str, endpoint: &EndpointBody, queued: String) -> Vec<String> {
    let minute = &endpoint.last_minute;
    #[expect(clippy::cast_precision_loss)] // a rate for the eye
    let rate = |count: u64| {
        if minute.seconds > 0.0 { format!("{:.1}", count as f64 / minute.seconds) } else { "-".to_owned() }
    };
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    let name = endpoint.address.as_ref().map(|address| format!("{} {address}", endpoint.endpoint));
    vec![
        upstream.to_owned(),
        name.unwrap_or_else(|| endpoint.endpoint.clone()),
        endpoint.state.clone(),
        rate(minute.requests),
        rate(minute.errors),
        ms(minute.p50_ms),
        ms(minute.p90_ms),
        endpoint.active.to_string(),
        queued,
        endpoint.connections.to_string(),
        endpoint.weight.to_string(),
        endpoint.since.clone(),
    ]
}

/// A table of all endpoints, and a line with the reason of each state that has one.
fn show_upstreams(answer: &Value) -> String {
    let Ok(body) = serde_json::from_value::<UpstreamsBody>(answer.clone()) else { return text(answer) };
    let rows = endpoint_rows(&body);
    let endpoints = body.upstreams.iter().flat_map(|upstream| &upstream.endpoints);
    let reasons = rows.iter().zip(endpoints).filter_map(|(row, endpoint)| {
        let until = endpoint.until.as_ref().map(|until| format!(", until {until}")).unwrap_or_default();
        Some(vec![row[0].clone(), row[1].clone(), format!("{}{until}", endpoint.why.as_ref()?)])
    });
    let reasons: Vec<_> = reasons.collect();
    let shown = table(&ENDPOINT_HEADINGS, &rows);
    if reasons.is_empty() {
        shown
    } else {
        format!("{shown}\n\n{}", table(&["UPSTREAM", "ENDPOINT", "REASON"], &reasons))
    }
}
