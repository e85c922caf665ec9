//! The limits of a client as it sees them itself: JSON for programs, a page for browsers.

use askama::Template;
use http::StatusCode;
use serde::Serialize;

use super::accept::prefers_html;
use super::headers::policy_item;
use super::{HeaderSink, Profiles, Reply};
use crate::base::fields::Fields;
use crate::base::telemetry::RefusedBy;
use crate::base::time::Timestamp;
use crate::engine::gate::{BudgetItem, LoggedRefusal, OwnLimit};
use crate::engine::limit::{Decision, Retry};

/// Nothing is loaded, run or sent, and no other page shows this one.
const CONTENT_POLICY: &str = "default-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// The answer to a client that asks for its limits.
#[derive(Debug)]
pub struct OwnLimitsReply {
    is_html: bool,
    body: Vec<u8>,
}

/// The answer as JSON, or as a page in which each text is escaped.
#[derive(Serialize, Template)]
#[template(
    ext = "html",
    source = r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Your limits</title></head><body>
<h1>Your limits</h1>
{% for limit in limits %}<h2>{{ limit.limit }}</h2>
{% if limit.banned %}<p>You are banned.</p>
{% endif %}{% if limit.state == "copy" %}<p>A store has the state; this is a copy.</p>
{% endif %}<table><tr><th>Policy<th>Remaining<th>Retry after<th>Reset after</tr>
{% for rate in limit.rates %}<tr><td>{{ rate.policy }}<td>{{ rate.remaining }} of {{ rate.capacity }}
<td>{{ self::seconds(*rate.retry_after_ms) }}<td>{{ self::seconds(*rate.reset_after_ms) }}</tr>
{% endfor %}</table>
{% for refusal in limit.refusals %}<p>Refused {{ refusal.ago_s }} s ago ({{ refusal.cause }}):
id <code>{{ refusal.id }}</code></p>
{% endfor %}{% else %}<p>No limit.</p>
{% endfor %}</body></html>
"#
)]
struct OwnLimitsBody<'a> {
    limits: Vec<LimitBody<'a>>,
}

#[derive(Serialize)]
struct LimitBody<'a> {
    limit: &'a str,
    banned: bool,
    /// `local`, or `copy` if a store has the state.
    state: &'static str,
    /// `null` if the store has said nothing of the key yet.
    copy_age_ms: Option<u64>,
    rates: Vec<RateBody>,
    refusals: Vec<RefusalBody<'a>>,
}

#[derive(Serialize)]
struct RateBody {
    /// As in `RateLimit-Policy`.
    policy: String,
    capacity: u64,
    remaining: u64,
    /// `null` if a request passes now, or if that is unknown.
    retry_after_ms: Option<u64>,
    /// `null` if that is unknown.
    reset_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct RefusalBody<'a> {
    id: &'a str,
    cause: &'a str,
    ago_s: u64,
}

impl OwnLimitsReply {
    /// The answer to a request with these headers.
    pub fn new(limits: &[OwnLimit<'_>], headers: Fields<'_>, now: Timestamp) -> Self {
        let is_html = prefers_html(headers);
        let body = OwnLimitsBody { limits: limits.iter().map(|limit| LimitBody::of(limit, now)).collect() };
        // Neither form can fail: its keys are texts, and it is written into memory.
        let page = || body.render().unwrap_or_default().into_bytes();
        let body = if is_html { page() } else { serde_json::to_vec(&body).unwrap_or_default() };
        Self { is_html, body }
    }
}

impl<'a> LimitBody<'a> {
    fn of(own: &'a OwnLimit<'_>, now: Timestamp) -> Self {
        let refusal = |logged: &'a LoggedRefusal| RefusalBody {
            id: &logged.id,
            cause: logged.cause,
            ago_s: now.ns_since(logged.at) / 1_000_000_000,
        };
        Self {
            limit: own.budget.limit(),
            banned: own.banned_ns.is_some(),
            state: if own.is_copy { "copy" } else { "local" },
            copy_age_ms: own.copy_age_ns.map(ms),
            rates: own.budget.items().map(|item| RateBody::of(&item, own.banned_ns)).collect(),
            refusals: own.refusals.iter().map(refusal).collect(),
        }
    }
}

impl RateBody {
    fn of(item: &BudgetItem<'_>, banned_ns: Option<u64>) -> Self {
        let retry_ns = match item.remaining.denied {
            None => banned_ns,
            Some(Retry::ON_RELEASE | Retry::Never) => None,
            Some(Retry::AfterNs(ns)) => Some(ns.max(banned_ns.unwrap_or(0))),
        };
        Self {
            policy: policy_item(item),
            capacity: item.capacity,
            remaining: item.remaining.units,
            // The longest ban is for good.
            retry_after_ms: retry_ns.filter(|ns| *ns != u64::MAX).map(ms),
            reset_after_ms: Some(item.remaining.reset_after_ns).filter(|ns| *ns != Decision::UNKNOWN_NS).map(ms),
        }
    }
}

/// A wait on the page.
fn seconds(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{} s", ms.div_ceil(1000)))
}

fn ms(ns: u64) -> u64 {
    ns.div_ceil(1_000_000)
}

impl Reply for OwnLimitsReply {
    fn refused_by(&self) -> Option<RefusedBy> {
        None
    }

    fn status(&self) -> StatusCode {
        StatusCode::OK
    }

    fn closes(&self) -> bool {
        false
    }

    fn write_headers(&self, sink: &mut impl HeaderSink, _: Profiles) {
        sink.put("content-type", if self.is_html { "text/html; charset=utf-8" } else { "application/json" });
        for (name, value) in [
            ("cache-control", "no-store"),
            ("content-security-policy", CONTENT_POLICY),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            sink.put(name, value);
        }
    }

    fn write_body(&self, body: &mut Vec<u8>) {
        body.extend_from_slice(&self.body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_the_page_is_escaped() {
        let text = "<b>'\"&";
        let rate =
            RateBody { policy: text.into(), capacity: 2, remaining: 1, retry_after_ms: None, reset_after_ms: Some(1) };
        let refusals = vec![RefusalBody { id: text, cause: "limit", ago_s: 3 }];
        let limit =
            LimitBody { limit: text, banned: true, state: "copy", copy_age_ms: None, rates: vec![rate], refusals };
        let page = OwnLimitsBody { limits: vec![limit] }.render().unwrap();
        assert_eq!(page.matches("&#60;b&#62;&#39;&#34;&#38;").count(), 3, "{page}");
        assert!(!page.contains("<b>") && page.contains("1 of 2\n<td>-<td>1 s") && page.contains("banned"), "{page}");
    }
}
