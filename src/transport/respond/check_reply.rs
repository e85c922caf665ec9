//! The answer to a check: headers for another proxy, or JSON for a service.

use http::StatusCode;
use serde::Serialize;

use super::{Disposition, HeaderSink, LocalReply, Profiles, Reply, limit_headers};
use crate::base::telemetry::RefusedBy;
use crate::engine::gate::{Budget, BudgetItem, Budgets, Standing};
use crate::engine::limit::{Decision, Retry};

/// The answer to a check.
#[derive(Debug)]
pub struct CheckReply<'a> {
    decision: CheckDecision<'a>,
    /// The budgets of the JSON body; `None` if the answer is for a proxy, which reads no JSON.
    listed: Option<Budgets<'a>>,
}

/// The decision about the request of a check.
#[derive(Debug)]
pub enum CheckDecision<'a> {
    /// The request may pass. The headers describe `standing` and `budgets`.
    Allowed {
        /// The standing of the client at the tightest limit.
        standing: Option<Standing<'a>>,
        /// The budgets to list.
        budgets: Budgets<'a>,
    },
    /// The request gets this response.
    Refused(Box<LocalReply<'a>>),
}

/// The JSON body.
#[derive(Serialize)]
struct Body<'a> {
    allowed: bool,
    status: u16,
    detail: Option<String>,
    violated: &'a [&'a str],
    retry_after_ms: Option<u64>,
    limits: Vec<LimitItem<'a>>,
}

/// One rate of one limit.
#[derive(Serialize)]
struct LimitItem<'a> {
    limit: &'a str,
    /// The position of the rate, if the limit has several.
    rate: Option<usize>,
    capacity: u64,
    remaining: u64,
    /// Whether another request of the same cost would pass.
    admits: bool,
    retry_after_ms: Option<u64>,
    reset_after_ms: Option<u64>,
}

impl<'a> LimitItem<'a> {
    fn of(item: &BudgetItem<'a>) -> Self {
        let BudgetItem { limit, position: rate, capacity, remaining, .. } = *item;
        let retry_after_ms = match remaining.denied {
            None | Some(Retry::ON_RELEASE | Retry::Never) => None,
            Some(Retry::AfterNs(ns)) => Some(ms(ns)),
        };
        let reset_after_ms = Some(remaining.reset_after_ns).filter(|ns| *ns != Decision::UNKNOWN_NS).map(ms);
        let admits = remaining.denied.is_none();
        Self { limit, rate, capacity, remaining: remaining.units, admits, retry_after_ms, reset_after_ms }
    }
}

fn ms(ns: u64) -> u64 {
    ns.div_ceil(1_000_000)
}

impl<'a> CheckReply<'a> {
    /// The answer for a proxy. A refusal by a limit has the status `refuse`; that of the limit without one.
    pub fn for_proxy(decision: CheckDecision<'a>, refuse: Option<StatusCode>) -> Self {
        Self { decision: decision.limited_as(refuse), listed: None }
    }

    /// The answer for a service, with a JSON body that lists `budgets`.
    pub fn in_json(decision: CheckDecision<'a>, refuse: Option<StatusCode>, budgets: Budgets<'a>) -> Self {
        let decision = match decision.limited_as(refuse) {
            CheckDecision::Refused(reply) => CheckDecision::Refused(Box::new(reply.without_redirect())),
            allowed @ CheckDecision::Allowed { .. } => allowed,
        };
        Self { decision, listed: Some(budgets) }
    }

    fn body<'s>(&'s self, listed: &'s [Budget<'a>]) -> Body<'s> {
        let limits = listed.iter().flat_map(Budget::items).map(|item| LimitItem::of(&item)).collect();
        let (allowed, status) = (matches!(self.decision, CheckDecision::Allowed { .. }), self.status().as_u16());
        let body = Body { allowed, status, detail: None, violated: &[], retry_after_ms: None, limits };
        let CheckDecision::Refused(reply) = &self.decision else { return body };
        let mut detail = Vec::new();
        reply.write_detail(&mut detail);
        let detail = Some(String::from_utf8_lossy(&detail).into_owned());
        Body { detail, violated: reply.violated(), retry_after_ms: reply.retry_after_ms(), ..body }
    }
}

impl CheckDecision<'_> {
    fn limited_as(self, status: Option<StatusCode>) -> Self {
        match self {
            Self::Refused(reply) => Self::Refused(Box::new(reply.limited_as(status))),
            allowed @ Self::Allowed { .. } => allowed,
        }
    }
}

impl Reply for CheckReply<'_> {
    fn refused_by(&self) -> Option<RefusedBy> {
        match &self.decision {
            CheckDecision::Allowed { .. } => None,
            CheckDecision::Refused(reply) => reply.refused_by(),
        }
    }

    fn status(&self) -> StatusCode {
        match &self.decision {
            CheckDecision::Allowed { .. } => StatusCode::OK,
            CheckDecision::Refused(reply) => reply.status(),
        }
    }

    fn closes(&self) -> bool {
        matches!(&self.decision, CheckDecision::Refused(reply) if reply.closes())
    }

    fn write_headers(&self, sink: &mut impl HeaderSink, profiles: Profiles) {
        if self.listed.is_some() {
            sink.put("content-type", "application/json");
        }
        match &self.decision {
            CheckDecision::Allowed { standing: None, .. } => {}
            CheckDecision::Allowed { standing: Some(standing), budgets } => {
                limit_headers(sink, profiles, standing, budgets, Disposition::Forwarded);
            }
            CheckDecision::Refused(reply) if self.listed.is_some() => reply.write_fields(sink, profiles),
            CheckDecision::Refused(reply) => reply.write_headers(sink, profiles),
        }
    }

    fn write_body(&self, body: &mut Vec<u8>) {
        match (&self.listed, &self.decision) {
            (Some(listed), _) => {
                // Writing to a vector cannot fail.
                let _ = serde_json::to_writer(body, &self.body(listed));
            }
            (None, CheckDecision::Refused(reply)) => reply.write_body(body),
            (None, CheckDecision::Allowed { .. }) => {}
        }
    }
}
