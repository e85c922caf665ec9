//! Upstreams: the state and the figures of each endpoint, drains and weights.

use askama::Template;
use http::StatusCode;
use serde_json::Value;

use super::confirm;
use super::fields::{FormFields, json_of, link};
use super::pages::{PageRequest, Pages};
use super::shell::{self, Shell, Shown, Visitor, page, see_other};
use super::words;
use crate::admin::answer::Refused;
use crate::admin::upstreams::{EndpointBody, UpstreamBody, UpstreamsBody};

#[derive(Template)]
#[template(path = "upstreams.html", config = "src/admin/page/askama.toml")]
struct UpstreamsPage {
    shell: Shell,
    entered: FormFields,
    upstreams: Vec<UpstreamRows>,
}

/// An upstream with its endpoints.
struct UpstreamRows {
    name: String,
    queued: String,
    refused: String,
    endpoints: Vec<EndpointRow>,
}

/// An endpoint in words.
struct EndpointRow {
    /// The address if its name was looked up, else its text in the configuration.
    name: String,
    /// The text in the configuration, if `name` is an address.
    of: String,
    state: String,
    is_good: bool,
    /// The reason of the state, its begin, and its end if it is known.
    why: String,
    since: String,
    until: String,
    requests: String,
    errors: String,
    /// Median and 90th percentile.
    latency: [String; 2],
    active: String,
    connections: String,
    weight: u16,
    /// The endpoint of the order that drains it; empty if it is not drained.
    drained: String,
}

/// The page.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest) -> Shown {
    view(&pages, &visitor, query, None).await
}

/// Drains an endpoint.
pub(super) async fn drain(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let is_forced = fields.get("force") == "yes";
    if is_forced {
        let form = ("Upstreams", "/upstreams/drain", "/upstreams");
        let title = format!("Drain {} in any case?", fields.get("endpoint"));
        let effect =
            "If no other endpoint of the upstream is left, each of its requests gets 503 until the drain ends.";
        confirm::ask(&visitor, &fields, form, (title, effect, "Drain the endpoint"))?;
    }
    let mut body = fields.object(&["upstream", "endpoint", "for", "reason"]);
    body["force"] = Value::from(is_forced);
    change(&pages, &visitor, fields, ("/v1/upstreams/drain", "drained"), body).await
}

/// Ends the drain of an endpoint.
pub(super) async fn undrain(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let body = fields.object(&["upstream", "endpoint", "reason"]);
    change(&pages, &visitor, fields, ("/v1/upstreams/undrain", "undrained"), body).await
}

/// Sets the weight of an endpoint.
pub(super) async fn weight(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let mut body = fields.object(&["upstream", "endpoint", "for", "reason"]);
    let entered = fields.get("weight");
    body["weight"] = entered.parse::<u64>().map_or_else(|_| json_of(entered), Value::from);
    change(&pages, &visitor, fields, ("/v1/upstreams/weight", "weighted"), body).await
}

async fn change(
    pages: &Pages,
    visitor: &Visitor,
    fields: FormFields,
    (path, done): (&str, &str),
    body: Value,
) -> Shown {
    match pages.api.post::<UpstreamBody>(&visitor.operator, path, &body).await {
        Ok(_) => Ok(see_other(&link("/upstreams", &[("done", done)]))),
        Err(refused) => view(pages, visitor, fields, Some(refused)).await,
    }
}

async fn view(pages: &Pages, visitor: &Visitor, entered: FormFields, refused: Option<Refused>) -> Shown {
    let listed = pages.api.get::<UpstreamsBody>(&visitor.operator, "/v1/upstreams", &[]).await;
    let upstreams = listed.map_err(shell::refused)?.upstreams.into_iter().map(UpstreamRows::of).collect();
    let (status, error) = refused.map(|Refused(status, detail)| (status, detail)).unzip();
    let shell = Shell::new(visitor, "Upstreams", &entered).with_error(error);
    Ok(page(status.unwrap_or(StatusCode::OK), &UpstreamsPage { shell, entered, upstreams }))
}

impl UpstreamRows {
    fn of(UpstreamBody { upstream, queued, queue_refused, endpoints }: UpstreamBody) -> Self {
        Self {
            name: upstream,
            queued: queued.to_string(),
            refused: queue_refused.to_string(),
            endpoints: endpoints.into_iter().map(EndpointRow::of).collect(),
        }
    }
}

impl EndpointRow {
    fn of(body: EndpointBody) -> Self {
        let minute = &body.last_minute;
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // a rate for the eye
        let rate = |count: u64| words::rate((count as f64 / minute.seconds.max(0.1)) as f32);
        #[expect(clippy::cast_possible_truncation)] // microseconds for the eye
        let latency =
            |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), |ms| words::microseconds((ms * 1000.0) as f32));
        let drain = body.orders.iter().find(|order| order.weight.is_none());
        Self {
            of: body.address.as_ref().map(|_| body.endpoint.clone()).unwrap_or_default(),
            is_good: matches!(&*body.state, "up" | "returning"),
            why: body.why.unwrap_or_default(),
            since: words::instant(&body.since),
            until: body.until.as_deref().map(words::instant).unwrap_or_default(),
            requests: rate(minute.requests),
            errors: rate(minute.errors),
            latency: [latency(minute.p50_ms), latency(minute.p90_ms)],
            active: body.active.to_string(),
            connections: body.connections.to_string(),
            weight: body.weight,
            drained: drain.map(|order| order.endpoint.clone()).unwrap_or_default(),
            name: body.address.unwrap_or(body.endpoint),
            state: body.state,
        }
    }
}
