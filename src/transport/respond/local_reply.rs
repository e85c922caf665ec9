//! Local replies: problem+json (RFC 9457), or trailers only for a gRPC client.

use std::borrow::Cow;
use std::sync::Arc;

use http::{Method, StatusCode};
use smallvec::SmallVec;

use super::accept::prefers_html;
use super::escapes::{escape, grpc_message, write_names};
use super::headers::number;
use super::pushback::Pushback;
use super::reply_id::ReplyId;
use super::{Disposition, HeaderSink, ProblemKind, Profiles, Reply, limit_headers};
use crate::base::fields::Fields;
use crate::base::telemetry::RefusedBy;
use crate::engine::gate::{
    Budget, BudgetItem, Budgets, Cause, Credential, IdentityError, Receipt, Refusal, RetryJitter, Shed, Standing,
    Unidentified,
};
use crate::engine::limit::Retry;
use crate::engine::policy::RefusalAnswer;
use crate::engine::policy::access::DenialReason;
use crate::engine::policy::jwt::TokenError;

/// A response that Weir makes itself, before it is encoded. Its writer adds the framing headers and `connection`.
#[derive(Debug)]
pub struct LocalReply<'a> {
    kind: ProblemKind,
    detail: Detail,
    violated: SmallVec<[&'a str; 2]>,
    is_grpc: bool,
    retry_after_s: Option<u64>,
    /// The retry advice for a gRPC client.
    pushback: Option<Pushback>,
    /// Another status than that of its kind.
    status: Option<StatusCode>,
    /// The answer of a limit in place of the problem document.
    answer: Option<Arc<RefusalAnswer>>,
    /// A field that explains the status, with its name.
    hint: Option<(&'static str, &'static str)>,
    standing: Option<(Standing<'a>, Disposition)>,
    budgets: Budgets<'a>,
    id: Option<(ReplyId, Box<str>)>,
    /// The facts of a refusal, to be kept under its id.
    receipt: Option<Box<Receipt<'a>>>,
}

/// The detail for people; it contains no secret.
#[derive(Debug)]
enum Detail {
    Text(Cow<'static, str>),
    /// The reason why limits refuse the request, formatted when the response is encoded.
    Beyond {
        cause: Cause,
        /// The whole seconds of `Retry-After` beyond the wait.
        jitter_s: u64,
        /// Whether the wait is an estimate.
        is_estimate: bool,
    },
}

/// Whether a request is gRPC, so that its response must be gRPC too.
pub fn is_grpc(method: &Method, headers: Fields<'_>) -> bool {
    let is_grpc_type = |value: &[u8]| {
        let kind = value.strip_prefix(b"application/grpc");
        kind.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    };
    *method == Method::POST && headers.first("content-type").is_some_and(is_grpc_type)
}

impl<'a> LocalReply<'a> {
    /// A problem of this kind, with its detail.
    pub fn new(kind: ProblemKind, detail: impl Into<Cow<'static, str>>, is_grpc: bool) -> Self {
        Self {
            kind,
            detail: Detail::Text(detail.into()),
            violated: SmallVec::new(),
            is_grpc,
            retry_after_s: kind.retry_after_s(),
            pushback: kind.retry_after_s().map(|s| Pushback::AfterMs(s.saturating_mul(1000))),
            status: None,
            answer: None,
            hint: None,
            standing: None,
            budgets: Vec::new(),
            id: None,
            receipt: None,
        }
    }

    /// The response to a request with these headers that limits refuse.
    pub fn refusal(refusal: Refusal<'a>, headers: Fields<'_>, is_grpc: bool) -> Self {
        let retry_after_s = refusal.retry_after_s();
        let is_wanted = |answer: &Arc<RefusalAnswer>| match &**answer {
            RefusalAnswer::Body { is_html, .. } => !is_html || prefers_html(headers),
            RefusalAnswer::Redirect { .. } => true,
        };
        Self {
            kind: refusal.cause.into(),
            detail: Detail::Beyond {
                cause: refusal.cause,
                jitter_s: refusal.jitter.s,
                is_estimate: refusal.is_estimate,
            },
            violated: refusal.violated,
            is_grpc,
            retry_after_s,
            pushback: Some(Pushback::of(refusal.retry, refusal.jitter)),
            status: refusal.status,
            answer: refusal.answer.filter(|_| !is_grpc).filter(is_wanted),
            hint: None,
            standing: refusal.standing.map(|standing| (standing, Disposition::Refused { retry_after_s })),
            budgets: refusal.budgets,
            id: None,
            receipt: refusal.receipt,
        }
    }

    /// The response to a request without a valid identity: 401, or 503 if the keys for the check are missing.
    pub fn unidentified(missing: &Unidentified<'_>, is_grpc: bool) -> Self {
        if missing.why == IdentityError::Token(TokenError::NoKeys) {
            return Self::new(ProblemKind::KeysMissing, missing.to_string(), is_grpc);
        }
        // RFC 6750, section 3: the error code only if the request had a token.
        let challenge = match (missing.credential, missing.why) {
            (Credential::Other, _) => None,
            (Credential::ApiKey, _) => Some("ApiKey"),
            (Credential::Bearer, IdentityError::Missing) => Some("Bearer"),
            (Credential::Bearer, IdentityError::Several) => Some("Bearer error=\"invalid_request\""),
            (Credential::Bearer, _) => Some("Bearer error=\"invalid_token\""),
        };
        let hint = challenge.map(|challenge| ("www-authenticate", challenge));
        Self { hint, ..Self::new(ProblemKind::Unidentified, missing.to_string(), is_grpc) }
    }

    /// The response to a client that asks for its limits too often: 429.
    pub fn too_often(retry: Retry) -> Self {
        let retry_after_s = match retry {
            Retry::AfterNs(ns) => Some(ns.div_ceil(1_000_000_000).max(1)),
            Retry::Never => None,
        };
        let pushback = Some(Pushback::of(retry, RetryJitter::default()));
        Self { retry_after_s, pushback, ..Self::new(ProblemKind::Limited, "asked too often", false) }
    }

    /// The response to a request that is shed: 503.
    pub fn shed(shed: &Shed, is_grpc: bool) -> Self {
        let Shed { priority, wait_s, jitter } = *shed;
        let retry = Retry::AfterNs(wait_s.saturating_mul(1_000_000_000));
        let detail = format!("overloaded, so that requests of priority {} are shed", priority.word());
        let retry_after_s = Some(wait_s.saturating_add(jitter.s));
        let pushback = Some(Pushback::of(retry, jitter));
        Self { retry_after_s, pushback, ..Self::new(ProblemKind::Overloaded, detail, is_grpc) }
    }

    /// Sets the id, which has no characters that JSON escapes.
    pub fn set_id(&mut self, of: ReplyId, id: &str) {
        self.id = Some((of, id.into()));
    }

    /// The facts to keep under the id, with the seconds of `Retry-After`; `None` if there are none to keep.
    pub fn take_receipt(&mut self) -> Option<(Box<Receipt<'a>>, Option<u64>)> {
        Some((self.receipt.take()?, self.retry_after_s))
    }

    /// The row of the problem table.
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// The response to a request that `[access]` refuses: 403. The detail has only what the client knows, and the
    /// plans that would open the path.
    pub fn denied(ground: DenialReason<'_>, is_grpc: bool) -> Self {
        Self::new(ProblemKind::AccessRefused, ground.to_string(), is_grpc)
    }

    /// Adds the limit headers to a response that no limit caused.
    pub fn standing(mut self, standing: Option<Standing<'a>>, budgets: Budgets<'a>) -> Self {
        self.standing = standing.map(|standing| (standing, Disposition::Forwarded));
        self.budgets = budgets;
        self
    }

    /// The response to a method that a resource does not have; `allowed` lists its methods (RFC 9110, section 15.5.6).
    pub fn method_refused(detail: &'static str, allowed: &'static str) -> Self {
        Self { hint: Some(("allow", allowed)), ..Self::new(ProblemKind::MethodRefused, detail, false) }
    }

    /// Answers with `status` in place of that of the limit, if the request is beyond a limit.
    pub(super) fn limited_as(self, status: Option<StatusCode>) -> Self {
        let Some(status) = status.filter(|_| self.kind == ProblemKind::Limited) else { return self };
        Self { status: Some(status), ..self }.without_redirect()
    }

    /// Answers in place of the problem document.
    pub(crate) fn answered_by(self, answer: RefusalAnswer) -> Self {
        Self { answer: Some(Arc::new(answer)), ..self }
    }

    /// Answers with the status of the refusal in place of a redirect.
    pub(super) fn without_redirect(self) -> Self {
        Self { answer: self.answer.filter(|answer| matches!(**answer, RefusalAnswer::Body { .. })), ..self }
    }

    /// Milliseconds until a retry; none if it is unknown or useless.
    pub(super) fn retry_after_ms(&self) -> Option<u64> {
        match self.pushback? {
            Pushback::AfterMs(ms) => Some(ms),
            Pushback::Never => None,
        }
    }

    /// The standing and the budgets of the limit headers.
    pub(crate) fn into_limits(self) -> (Option<Standing<'a>>, Budgets<'a>) {
        (self.standing.map(|(standing, _)| standing), self.budgets)
    }

    /// The names of the limits that refuse the request.
    pub(crate) fn violated(&self) -> &[&'a str] {
        &self.violated
    }

    /// Writes the headers that do not describe the body.
    pub(super) fn write_fields(&self, sink: &mut impl HeaderSink, profiles: Profiles) {
        if let Some((of, id)) = &self.id {
            sink.put(of.header(), id);
        }
        if let Some((name, value)) = self.hint {
            sink.put(name, value);
        }
        if let Some(s) = self.retry_after_s {
            number(sink, "retry-after", s);
        }
        if let Some((standing, verdict)) = &self.standing {
            limit_headers(sink, profiles, standing, &self.budgets, *verdict);
        }
    }

    /// The names in `RateLimit-Policy` of the rates that refuse the request.
    fn violated_policies(&self) -> Vec<Cow<'a, str>> {
        let items = self.budgets.iter().flat_map(Budget::items).filter(|item| item.remaining.denied.is_some());
        let items: Vec<_> = items.collect();
        let policies = self.violated.iter().flat_map(|name| {
            let rates: Vec<_> = items.iter().filter(|item| item.limit == *name).map(BudgetItem::policy).collect();
            if rates.is_empty() { vec![Cow::Borrowed(*name)] } else { rates }
        });
        policies.collect()
    }

    /// Writes the detail. Writing to memory does not fail.
    pub(super) fn write_detail(&self, text: &mut Vec<u8>) {
        let (cause, jitter_s, is_estimate) = match &self.detail {
            Detail::Text(detail) => return text.extend_from_slice(detail.as_bytes()),
            Detail::Beyond { cause: Cause::ShuttingDown, .. } => {
                return text.extend_from_slice(b"the proxy is shutting down");
            }
            Detail::Beyond { cause, jitter_s, is_estimate } => (cause, jitter_s, *is_estimate),
        };
        let names = |text: &mut Vec<u8>| {
            for (index, name) in self.violated.iter().enumerate() {
                text.extend_from_slice(if index == 0 { b"" } else { b", " });
                text.extend_from_slice(name.as_bytes());
            }
        };
        if *cause == Cause::Banned {
            text.extend_from_slice(if self.violated.is_empty() { b"banned" } else { b"banned by " });
            names(text);
            if let Some(s) = self.retry_after_s {
                write_seconds(text, b"; retry after ", s, b" s");
            }
            return;
        }
        if self.standing.is_some_and(|(standing, _)| standing.burst == 0) {
            text.extend_from_slice(b"a ramp has lowered the limit to zero: ");
            return names(text);
        }
        let Some(s) = self.retry_after_s else {
            text.extend_from_slice(b"this request costs more than ");
            names(text);
            return text.extend_from_slice(b" can ever hold");
        };
        text.extend_from_slice(b"beyond ");
        names(text);
        match cause {
            Cause::WaitTooLong => {
                let before: &[u8] = if is_estimate { b", and the wait of about " } else { b", and the wait of " };
                write_seconds(text, before, s.saturating_sub(*jitter_s), b" s is longer than allowed");
            }
            Cause::QueueFull => write_seconds(text, b", and too many are waiting; retry after ", s, b" s"),
            Cause::Limit | Cause::Banned | Cause::Gone | Cause::ShuttingDown => {
                write_seconds(text, b"; retry after ", s, b" s");
            }
        }
    }
}

impl Reply for LocalReply<'_> {
    fn refused_by(&self) -> Option<RefusedBy> {
        Some(self.kind.refused_by())
    }

    /// 200 for a gRPC client, which reads `grpc-status`.
    fn status(&self) -> StatusCode {
        match self.answer.as_deref() {
            _ if self.is_grpc => StatusCode::OK,
            Some(RefusalAnswer::Redirect { status, .. }) => *status,
            _ => self.status.unwrap_or_else(|| self.kind.status()),
        }
    }

    fn closes(&self) -> bool {
        self.kind.closes()
    }

    fn write_headers(&self, sink: &mut impl HeaderSink, profiles: Profiles) {
        if self.is_grpc {
            sink.put("content-type", "application/grpc");
            sink.put("grpc-status", self.kind.grpc_status());
            let mut detail = Vec::new();
            self.write_detail(&mut detail);
            sink.put("grpc-message", &grpc_message(&detail));
            if let Some(pushback) = self.pushback {
                pushback.write(sink);
            }
        } else {
            let content_type = match self.answer.as_deref() {
                Some(RefusalAnswer::Body { content_type, .. }) => content_type,
                _ => "application/problem+json",
            };
            sink.put("content-type", content_type);
        }
        if let Some(RefusalAnswer::Redirect { url, .. }) = self.answer.as_deref() {
            sink.put("location", url);
        }
        self.write_fields(sink, profiles);
    }

    fn write_body(&self, body: &mut Vec<u8>) {
        if self.is_grpc {
            return;
        }
        if let Some(RefusalAnswer::Body { text, .. }) = self.answer.as_deref() {
            return RefusalAnswer::write(text, self.retry_after_s, body);
        }
        let status = self.status();
        let problem_type = self.kind.problem_type();
        if let Some(written) = problem_type {
            body.extend_from_slice(written.as_bytes());
        } else {
            body.extend_from_slice(b"{\"type\":\"about:blank\",\"title\":\"");
            body.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
            body.extend_from_slice(b"\",\"status\":");
        }
        body.extend_from_slice(status.as_str().as_bytes());
        body.extend_from_slice(b",\"detail\":\"");
        let detail_at = body.len();
        self.write_detail(body);
        escape(body, detail_at);
        body.push(b'"');
        if problem_type.is_some() && !self.violated.is_empty() {
            body.extend_from_slice(b",\"violated-policies\":[");
            if self.budgets.is_empty() {
                write_names(body, &self.violated);
            } else {
                write_names(body, &self.violated_policies());
            }
            body.push(b']');
        }
        if let Some((of, id)) = &self.id {
            body.extend_from_slice(of.member().as_bytes());
            body.extend_from_slice(id.as_bytes());
            body.push(b'"');
        }
        body.push(b'}');
    }
}

/// Writes a number between two texts.
fn write_seconds(text: &mut Vec<u8>, before: &[u8], s: u64, after: &[u8]) {
    text.extend_from_slice(before);
    text.extend_from_slice(itoa::Buffer::new().format(s).as_bytes());
    text.extend_from_slice(after);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::pushback::PUSHBACK;
    use super::*;
    use crate::engine::gate::RetryJitter;

    proptest! {
        #[test]
        fn any_detail_is_a_json_string(detail in ".*") {
            let mut body = Vec::new();
            LocalReply::new(ProblemKind::BadPath, detail.clone(), false).write_body(&mut body);
            let read: serde_json::Value = serde_json::from_slice(&body).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(read["detail"].as_str(), Some(&*detail));
            prop_assert_eq!(read["status"].as_u64(), Some(400));
        }
    }

    #[test]
    fn grpc_pushback() {
        for (retry, expected) in [
            (Retry::AfterNs(1), Some("1")),
            (Retry::AfterNs(2_000_000_001), Some("2001")),
            (Retry::ON_RELEASE, Some("1000")),
            (Retry::Never, Some("-1")),
        ] {
            let answer = LocalReply {
                pushback: Some(Pushback::of(retry, RetryJitter::default())),
                ..LocalReply::new(ProblemKind::Limited, "", true)
            };
            assert_eq!(pushback(&answer), expected.map(str::to_owned), "{retry:?}");
        }
        for (kind, is_grpc, expected) in [
            (ProblemKind::UpstreamBusy, true, Some("1000")),
            (ProblemKind::ClientBusy, true, Some("1000")),
            (ProblemKind::UpstreamBusy, false, None),
            (ProblemKind::AccessRefused, true, None),
        ] {
            assert_eq!(pushback(&LocalReply::new(kind, "", is_grpc)), expected.map(str::to_owned), "{kind:?}");
        }
    }

    fn pushback(answer: &LocalReply<'_>) -> Option<String> {
        let mut headers = http::HeaderMap::new();
        answer.write_headers(&mut headers, Profiles::NONE);
        headers.get(PUSHBACK).map(|value| value.to_str().unwrap_or_default().to_owned())
    }
}
