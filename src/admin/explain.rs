//! `POST /v1/explain`: what would happen to a request now.

mod question;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::question::QuestionBody;
use super::answer::{Answered, Refused, json};
use super::body::{self, Json};
use super::rates::{adapted_in_words, described, unit_in_words, units_in_words};
use super::state::Admin;
use crate::base::telemetry::RefusedBy;
use crate::engine::gate::{
    BudgetExplanation, Cause, Explanation, LimitExplanation, Question, Rejection, RemoteExplanation, RouteExplanation,
    RuleSource, StoredKey, Verdict,
};
use crate::engine::limit::Algorithm;
use crate::engine::policy::{Mismatch, Mode, Policy, Stage, Strategy, Unit, WrittenRule};
use crate::engine::store::backend::OnFailure;
use crate::transport::respond::{LocalReply, ProblemKind};

/// The end of the reason of a limit that reads the bodies of requests.
pub const NEEDS_BODY: &str = "it depends on the body, which this question does not have";

/// The body of an answer: what would happen to the request, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Explanation)]
pub struct ExplanationBody {
    /// The request as limits see it: method, host and path without the query.
    pub request: String,
    /// The client's address.
    #[schema(value_type = String)]
    pub ip: IpAddr,
    /// The route; `null` if no route takes the request.
    #[serde(default)]
    pub route: Option<RouteBody>,
    /// Every limit, in the order of the configuration.
    pub limits: Vec<LimitBody>,
    /// `admitted`, `held`, `delayed` or `refused`.
    pub decision: String,
    /// The reason of a refusal: `limit`, `ban`, `access`, `identity` or `other`; `null` for other decisions.
    #[serde(default)]
    pub refused_by: Option<String>,
    /// The reason, as a sentence.
    pub why: String,
    /// The names of the limits that refuse the request, hold it or delay it.
    pub violated: Vec<String>,
    /// Milliseconds until the request passes, or could; `null` if it passes at once or never, or the wait is unknown.
    pub retry_after_ms: Option<u64>,
    /// Whole units that remain of the tightest limit, as in the headers of the answer; `null` if no limit applies, or if
    /// the key is banned.
    pub remaining: Option<u64>,
}

/// The route of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ExplainedRoute)]
pub struct RouteBody {
    /// The position of the `[[route]]` in the configuration, from 1; `null` without routes.
    pub number: Option<usize>,
    /// The patterns of its paths; empty if it takes all paths.
    pub paths: Vec<String>,
    /// The name of the upstream; `null` if it has no name.
    pub upstream: Option<String>,
}

/// One limit, as far as it concerns the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ExplainedLimit)]
pub struct LimitBody {
    /// The name.
    pub limit: String,
    /// `arrival` or `identified`.
    pub stage: String,
    /// `enforce`, `shadow` or `off`.
    pub mode: String,
    /// How replicas share the limit, as in `limit.strategy`.
    #[serde(default)]
    pub strategy: String,
    /// What the limit decides, and why, as a sentence.
    #[serde(default)]
    pub reason: String,
    /// The part of the rate that is in force, and the signal that it follows; absent if it follows none.
    #[serde(default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapted: Option<String>,
    /// Why the limit does not apply; empty if it does.
    pub why_not: Vec<String>,
    /// The budget of the request, if the limit applies and the request gets so far.
    pub budget: Option<BudgetBody>,
}

/// The budget that a limit would charge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ExplainedBudget)]
pub struct BudgetBody {
    /// The names of the key's parts, and their texts without secrets.
    pub key: Vec<(String, String)>,
    /// The rule in words; `null` if the key has no limit.
    pub rule: Option<String>,
    /// `limit`, `plan NAME`, `plan NAME, assigned to the key`, `plan NAME, assigned to the key at run time`, `override` or
    /// `override set at run time`: where the rule is configured.
    pub from: String,
    /// What the units are: `micro-usd` or `content-bytes`; absent if that is unknown.
    #[serde(default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Units that the request takes.
    pub cost: u64,
    /// Whether the limit admits the request.
    pub admits: bool,
    /// Whole units that remain, after the request if it is admitted.
    pub remaining: u64,
    /// Units charged beyond the limit and not yet paid.
    pub debt: u64,
    /// Milliseconds until the key has all units again; `null` if that is unknown.
    pub reset_after_ms: Option<u64>,
    /// Milliseconds until the limit could admit the request; `null` if it does now or never will, or the wait is unknown.
    pub retry_after_ms: Option<u64>,
    /// Requests that wait on the key.
    pub waiting: usize,
    /// What decides if replicas count the limit together; `null` if each counts alone.
    #[serde(default)]
    pub decided_by: Option<String>,
    /// The age of the state of the store in milliseconds; `null` if it is unknown, or no store has the state.
    #[serde(default)]
    pub mirror_age_ms: Option<u64>,
}

/// What would happen to a request now. Nothing is charged.
#[utoipa::path(
    post,
    path = "/v1/explain",
    request_body = QuestionBody,
    responses((status = 200, body = ExplanationBody, description = "the decision, and the state of every limit"))
)]
pub(super) async fn explain(State(admin): State<Arc<Admin>>, Json(asked): Json) -> Answered {
    let question = Question::try_from(body::object::<QuestionBody>(&asked)?)?;
    let mut heard: Vec<StoredKey> = Vec::new();
    loop {
        let (body, mut stored) = explained(&admin, &question)?;
        stored.retain(|key| !heard.iter().any(|heard| heard.is(key)));
        if stored.is_empty() {
            return Ok(json(StatusCode::OK, &body));
        }
        heard.extend(stored.iter().cloned());
        // The newest states may show limits of the second stage, which the mirrors did not.
        admin.hear_stores(|_| stored).await;
    }
}

/// The explanation by the states that this process knows, and the keys whose states are in stores.
fn explained(admin: &Admin, question: &Question) -> Result<(ExplanationBody, Vec<StoredKey>), Refused> {
    let (live, routing) = (admin.live.load(), admin.routing.load());
    let explained = admin.gate.explain(&live, question, &routing, admin.gate.clock().now());
    let explained = explained.map_err(|error| error.to_string())?;
    let budgets = explained.limits.iter().filter_map(|limit| limit.budget.as_ref());
    let stored = budgets.filter_map(|budget| budget.stored.clone()).collect();
    Ok((ExplanationBody::of(explained, &live.policy), stored))
}

impl ExplanationBody {
    /// An explanation under `policy` as JSON.
    pub fn of(explanation: Explanation<'_>, policy: &Policy) -> Self {
        let Explanation { request, ip, route, limits, verdict, violated, retry_after_ns, remaining } = explanation;
        let (decision, why) = verdict_text(&verdict, policy);
        let refused_by = refused_by(&verdict).map(|by| by.label().to_owned());
        Self {
            request,
            ip,
            route: route.map(RouteBody::of),
            limits: limits.into_iter().map(LimitBody::of).collect(),
            decision: decision.to_owned(),
            refused_by,
            why,
            violated: violated.into_iter().map(str::to_owned).collect(),
            retry_after_ms: retry_after_ns.map(ms),
            remaining,
        }
    }
}

/// The decision and the reason of a verdict.
fn verdict_text(verdict: &Verdict<'_>, policy: &Policy) -> (&'static str, String) {
    let (decision, why) = match verdict {
        Verdict::Admitted => ("admitted", "no limit refuses it"),
        Verdict::Freed => ("admitted", "[access] frees it from limits"),
        Verdict::Held => ("held", "beyond limits that hold"),
        Verdict::Delayed => ("delayed", "beyond limits that delay"),
        Verdict::Rejected(rejection) => ("refused", rejection_text(*rejection)),
        Verdict::NoRoute => ("refused", "no [[route]] takes it"),
        Verdict::Denied(ground) => return ("refused", ground.to_string()),
        Verdict::Unidentified(unidentified) => return ("refused", unidentified.to_string()),
        Verdict::SeveralValues(part) => return ("refused", policy.several(part)),
    };
    (decision, why.to_owned())
}

/// The reason of a refusal, as metrics and taps have it; `None` for other verdicts.
fn refused_by(verdict: &Verdict<'_>) -> Option<RefusedBy> {
    let kind = match verdict {
        Verdict::Admitted | Verdict::Freed | Verdict::Held | Verdict::Delayed => return None,
        Verdict::Rejected(Rejection::Cause(cause)) => (*cause).into(),
        Verdict::Rejected(Rejection::Cost | Rejection::Zero | Rejection::Store) => ProblemKind::Limited,
        Verdict::NoRoute => ProblemKind::NoRoute,
        Verdict::Denied(_) => ProblemKind::AccessRefused,
        Verdict::Unidentified(unidentified) => LocalReply::unidentified(unidentified, false).kind(),
        Verdict::SeveralValues(_) => ProblemKind::SeveralValues,
    };
    Some(kind.refused_by())
}

fn rejection_text(rejection: Rejection) -> &'static str {
    match rejection {
        Rejection::Cost => "it costs more than can ever be there",
        Rejection::Store => "refused because the store does not decide, and `on_failure` is `reject`",
        Rejection::Cause(Cause::Limit) => "beyond a limit",
        Rejection::Cause(Cause::WaitTooLong) => "it would wait longer than it may",
        Rejection::Cause(Cause::QueueFull) => "too many are waiting",
        Rejection::Zero | Rejection::Cause(Cause::Gone) => "a ramp has lowered the limit to zero",
        Rejection::Cause(Cause::Banned) => "it is banned",
        Rejection::Cause(Cause::ShuttingDown) => "Weir is shutting down",
    }
}

impl RouteBody {
    fn of(RouteExplanation { number, paths, upstream }: RouteExplanation) -> Self {
        Self { number, paths, upstream: upstream.map(Into::into) }
    }
}

impl LimitBody {
    fn of(explained: LimitExplanation<'_>) -> Self {
        let mut reason = reason(&explained);
        let LimitExplanation { limit, mode, mismatches, budget, adapted, .. } = explained;
        let stage = if limit.stage == Stage::Arrival { "arrival" } else { "identified" };
        let is_open = limit.read_bytes().is_some() && mismatches.iter().all(|why| matches!(why, Mismatch::Body(_)));
        if is_open {
            reason = format!("{}; {NEEDS_BODY}", if mismatches.is_empty() { &reason } else { "may apply" });
        }
        Self {
            limit: limit.name.to_string(),
            stage: stage.to_owned(),
            mode: mode.word().to_owned(),
            strategy: limit.strategy.name().to_owned(),
            reason,
            adapted: adapted.map(adapted_in_words),
            why_not: mismatches.iter().map(ToString::to_string).collect(),
            budget: budget.map(BudgetBody::of),
        }
    }

    /// Whether the body, which a question does not have, may change what the limit decides.
    pub fn needs_body(&self) -> bool {
        self.reason.ends_with(NEEDS_BODY)
    }
}

/// What a limit decides about the request, and why.
fn reason(LimitExplanation { limit, mode, mismatches, budget, banned_ns, .. }: &LimitExplanation<'_>) -> String {
    let duration = |ns: u64| humantime::format_duration(Duration::from_millis(ms(ns))).to_string();
    if !mismatches.is_empty() {
        return "does not apply".to_owned();
    }
    let Some(budget) = budget else { return "applies, but the request does not get so far".to_owned() };
    if let Some(ban_ns) = banned_ns {
        let length = if *ban_ns == u64::MAX { "for good".to_owned() } else { format!("for {}", duration(*ban_ns)) };
        return format!("refuses: the key is banned {length}");
    }
    if budget.rule.is_none() {
        return "admits: the key has no limit".to_owned();
    }
    let unit = limit.unit();
    let shown = |units| units_in_words(units, unit.as_ref().map(Unit::name));
    let [cost, remaining, owed] = [budget.cost, budget.remaining, budget.debt].map(shown);
    let BudgetExplanation { debt, waiting, .. } = budget;
    if budget.admits {
        return format!("admits: the request takes {cost}, and {remaining} remain");
    }
    let refuses = match (mode, limit.mode) {
        (Mode::Shadow, Mode::Shadow) => "would refuse, but its mode is `shadow`",
        (Mode::Shadow, _) => "would refuse, but `enforce` leaves this key out",
        _ => "refuses",
    };
    let debt = if *debt > 0 { format!(", and the key owes {owed}") } else { String::new() };
    let queue = if *waiting > 0 { format!("; {waiting} requests wait before it") } else { String::new() };
    let then = budget.retry_after_ns.map_or_else(String::new, |ns| format!("; retry after {}", duration(ns)));
    format!("{refuses}: the request takes {cost}, and {remaining} remain{debt}{queue}{then}")
}

impl BudgetBody {
    pub(super) fn of(budget: BudgetExplanation<'_>) -> Self {
        Self {
            key: budget.key,
            rule: budget.rule.map(|rule| {
                let unit = unit_in_words(budget.unit.as_ref(), rule);
                in_words(budget.written, None, rule) + &unit + &share_in_words(&budget.strategy, rule)
            }),
            from: match budget.source {
                RuleSource::Limit => "limit".to_owned(),
                RuleSource::Plan(name) => format!("plan {name}"),
                RuleSource::Override => "override".to_owned(),
                RuleSource::RuntimeOverride => "override set at run time".to_owned(),
                RuleSource::AssignedPlan(name) => format!("plan {name}, assigned to the key"),
                RuleSource::RuntimePlan(name) => format!("plan {name}, assigned to the key at run time"),
            },
            unit: budget.unit.map(|unit| unit.name().to_owned()),
            cost: budget.cost,
            admits: budget.admits,
            remaining: budget.remaining,
            debt: budget.debt,
            reset_after_ms: budget.reset_after_ns.map(ms),
            retry_after_ms: budget.retry_after_ns.map(ms),
            waiting: budget.waiting,
            decided_by: decided_by(&budget.strategy, budget.absent, budget.remote.as_ref()),
            mirror_age_ms: budget.remote.and_then(|remote| remote.mirror_age_ns).map(ms),
        }
    }
}

/// What decides about a key of a limit with this strategy; `None` if this process counts alone. `absent` other replicas are
/// not heard.
fn decided_by(strategy: &Strategy, absent: u64, remote: Option<&RemoteExplanation>) -> Option<String> {
    let word = match strategy {
        Strategy::Local | Strategy::Split(_) => return None,
        Strategy::Redis { .. } => "redis",
        Strategy::Service { .. } => "service",
        Strategy::Lease { .. } => "lease",
        Strategy::Stream if absent > 0 => {
            let times = absent.saturating_add(1);
            return Some(format!("this replica, which hears no other one: each unit counts {times} times (stream)"));
        }
        Strategy::Stream => return Some("this replica, with the charges of all others (stream)".to_owned()),
    };
    // Without a running Weir there is no store.
    let Some(RemoteExplanation { store, node, is_up, on_failure, replicas, .. }) = remote else {
        return Some(word.to_owned());
    };
    let node = node.as_ref().map_or_else(String::new, |node| format!(", node {node}"));
    let store = format!("store {store}{node}");
    if *is_up {
        return Some(format!("{word} ({store})"));
    }
    let fallback = match on_failure {
        OnFailure::Split => format!("the share of one of {replicas} replicas"),
        OnFailure::Local => "this replica, by the whole limit".to_owned(),
        OnFailure::Reject => "nothing: requests are refused".to_owned(),
        OnFailure::Allow => "nothing: requests are admitted".to_owned(),
    };
    Some(format!("{fallback}, because the store does not decide ({store})"))
}

/// A rule, or one of its rates, as it is written. A rule that a caller requested is not written, but described.
pub(super) fn in_words(written: Option<&WrittenRule>, rate: Option<usize>, rule: &Algorithm) -> String {
    written.and_then(|written| written.text(rate)).unwrap_or_else(|| described(rule))
}

/// The part of a written rule that this replica may spend alone, if it is not all of it.
pub(super) fn share_in_words(strategy: &Strategy, rule: &Algorithm) -> String {
    let Strategy::Split(replicas @ 2..) = strategy else { return String::new() };
    format!(" (the share of one of {replicas} replicas is {})", rule.capacity())
}

/// Milliseconds, rounded up.
fn ms(ns: u64) -> u64 {
    ns.div_ceil(1_000_000)
}
