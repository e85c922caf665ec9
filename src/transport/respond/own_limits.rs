//! The limits of a client as it sees them itself: JSON for programs, a page for browsers.

use std::fmt::Write as _;

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

#[derive(Serialize)]
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
        // It has text keys only, so this cannot fail.
        let body = if is_html { page(&body).into_bytes() } else { serde_json::to_vec(&body).unwrap_or_default() };
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

fn ms(ns: u64) -> u64 {
    ns.div_ceil(1_000_000)
}

/// The page. Writing to a string does not fail.
fn page(body: &OwnLimitsBody<'_>) -> String {
    let mut page = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Your limits</title></head><body>\n\
         <h1>Your limits</h1>\n",
    );
    for limit in &body.limits {
        let _ = writeln!(page, "<h2>{}</h2>", escaped(limit.limit));
        if limit.banned {
            page.push_str("<p>You are banned.</p>\n");
        }
        if limit.state == "copy" {
            page.push_str("<p>A store has the state; this is a copy.</p>\n");
        }
        page.push_str("<table><tr><th>Policy<th>Remaining<th>Retry after<th>Reset after</tr>\n");
        for rate in &limit.rates {
            let seconds = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{} s", ms.div_ceil(1000)));
            let (policy, remaining, capacity) = (escaped(&rate.policy), rate.remaining, rate.capacity);
            let (retry, reset) = (seconds(rate.retry_after_ms), seconds(rate.reset_after_ms));
            let _ = writeln!(page, "<tr><td>{policy}<td>{remaining} of {capacity}<td>{retry}<td>{reset}</tr>");
        }
        page.push_str("</table>\n");
        for RefusalBody { id, cause, ago_s } in &limit.refusals {
            let _ = writeln!(page, "<p>Refused {ago_s} s ago ({cause}): id <code>{}</code></p>", escaped(id));
        }
    }
    page.push_str(if body.limits.is_empty() { "<p>No limit.</p>\n</body></html>\n" } else { "</body></html>\n" });
    page
}

/// A text in HTML.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
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
        let page = page(&OwnLimitsBody { limits: vec![limit] });
        assert_eq!(page.matches("&lt;b&gt;&#39;&quot;&amp;").count(), 3, "{page}");
        assert!(!page.contains("<b>") && page.contains("1 of 2<td>-<td>1 s") && page.contains("banned"), "{page}");
    }
}
