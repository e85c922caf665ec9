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
use crate::admin::upstreams::{UpstreamBody, UpstreamsBody};

#[derive(Template)]
#[template(path = "upstreams.html", config = "src/admin/page/askama.toml")]
struct UpstreamsPage {
    shell: Shell,
    entered: FormFields,
    upstreams: Vec<UpstreamBody>,
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
    let upstreams = listed.map_err(shell::refused)?.upstreams;
    let (status, error) = refused.map(|Refused(status, detail)| (status, detail)).unzip();
    let shell = Shell::new(visitor, "Upstreams", &entered).with_error(error);
    Ok(page(status.unwrap_or(StatusCode::OK), &UpstreamsPage { shell, entered, upstreams }))
}

/// A latency in words; a dash if it is unknown.
#[expect(clippy::cast_possible_truncation)] // microseconds for the eye
fn latency(ms: Option<f64>) -> String {
    ms.map_or_else(|| "–".to_owned(), |ms| words::microseconds((ms * 1000.0) as f32))
}
