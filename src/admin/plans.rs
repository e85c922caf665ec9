//! `/v1/plans`: lists, assigns and removes the plans of single keys.
//!
//! An assigned plan is an override whose allowance is `{ plan = "NAME" }`. So a key has either numbers of its own or a
//! plan, and the later change replaces the earlier one.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use utoipa::{IntoParams, ToSchema};

use super::access::Operator;
use super::answer::{Answered, OneOrMany, Refused, json};
use super::body::{self, Json, Parameters, Reason};
use super::edits::{EditBody, EditedBody, Edits, find_override, seconds_left, shown_key};
use super::key::KeyNameBody;
use super::overrides::of_limit;
use super::state::{Admin, Call};
use super::times::rfc3339;
use crate::engine::policy::overrides::Override;

/// A plan to assign to a key of a limit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPlan)]
struct NewPlanBody {
    /// The name of the limit.
    limit: String,
    /// The parts of the key by name, each a text or a whole number; or the text of the key.
    key: KeyNameBody,
    /// The name of one of the limit's plans.
    plan: String,
    /// How long it is assigned, such as `10min` or `24h`; without it, until it is removed.
    #[serde(rename = "for")]
    length: Option<String>,
    /// Whether the plan may drop windows of a limit with several rates; `false` by default.
    #[serde(default)]
    replace: bool,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

/// A plan that is assigned to a key.
#[derive(Serialize, ToSchema)]
#[schema(as = AssignedPlan)]
struct PlanBody {
    /// The name of the limit.
    limit: Box<str>,
    /// The parts of the key by name, without secrets; a masked text if the limit has no such key.
    key: Value,
    /// The name of the plan.
    plan: Value,
    /// The end by the clock of the machine. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// Seconds until the end, rounded up. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_s: Option<u64>,
    /// Whether it does not fit the configuration, and so does not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<bool>,
    /// Why it does not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Box<str>>,
}

/// A plan that was assigned or removed.
#[derive(Serialize, ToSchema)]
#[schema(as = ChangedPlan)]
struct ChangedPlanBody {
    /// The name of the limit.
    limit: String,
    /// The parts of the key by name, without secrets.
    key: Value,
    /// The plan now; `null` if it was removed.
    plan: Option<Value>,
    /// The end. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// The override before, as `/v1/overrides` has it; `null` if there was none.
    was: Option<Value>,
    /// The end of the ban of the key, or `for good`: a plan does not lift a ban. Absent if the key is not banned.
    #[serde(skip_serializing_if = "Option::is_none")]
    banned_until: Option<String>,
    /// Why the plan ends with the process. Absent if it outlives the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_kept: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PlansQuery {
    /// The name of one limit; all limits by default.
    limit: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PlanRemovalQuery {
    /// The name of the limit.
    limit: String,
    /// The key: its text as in `overrides`, or a JSON object with its parts by name.
    key: String,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

/// The plans that are assigned to keys.
#[utoipa::path(
    get,
    path = "/v1/plans",
    params(PlansQuery),
    responses(
        (status = 200, body = [PlanBody], description = "all assigned plans, or those of one limit"),
        (status = 404, description = "the limit does not exist"),
    )
)]
pub(super) async fn list(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<PlansQuery>) -> Answered {
    let (live, in_force) = (admin.live.load(), admin.overrides.in_force.load());
    let found = of_limit(&live, &in_force, asked.limit.as_deref())?;
    let body = |one: &Override| {
        let plan = plan_of(&one.allowance)?.clone();
        let Override { limit, key, until, rejection: why, .. } = one.clone();
        let (key, left_out) = (shown_key(&admin.gate, &live, &limit, &key), why.is_some().then_some(true));
        let (until, left_s) = (until.map(rfc3339), until.map(seconds_left));
        Some(PlanBody { limit, key, plan, until, left_s, left_out, why })
    };
    Ok(json(StatusCode::OK, &found.into_iter().filter_map(body).collect::<Vec<_>>()))
}

/// Assigns a plan to a key, or up to 1000 plans as an array: all of them or none.
#[utoipa::path(
    method(post, put),
    path = "/v1/plans",
    request_body(content = OneOrMany<NewPlanBody>, description = "a plan, or an array of plans"),
    responses(
        (status = 200, body = OneOrMany<ChangedPlanBody>, description = "the plan; for an array, an array of plans"),
        (status = 409, description = "the files on disk allow no change"),
    )
)]
pub(super) async fn assign(Call(admin, operator): Call, Json(body): Json) -> Answered {
    let read = |body: &Value| {
        let NewPlanBody { limit, key, plan, length, replace, reason } = body::object(body)?;
        Ok(EditBody { limit, key, to: value!({ "plan": plan }), length, replace, reason })
    };
    // The policy must not be kept alive while the edits wait.
    let edits = Edits::read((&admin.gate, &admin.live.load()), "plan", &body, read)?;
    answer(&admin, &operator, edits).await
}

/// Removes the plan of a key.
#[utoipa::path(
    delete,
    path = "/v1/plans",
    params(PlanRemovalQuery),
    responses(
        (status = 200, body = ChangedPlanBody, description = "the plan that was removed"),
        (status = 409, description = "the files on disk allow no change"),
    )
)]
pub(super) async fn remove(Call(admin, operator): Call, Parameters(asked): Parameters<PlanRemovalQuery>) -> Answered {
    let edits = removal(&admin, &asked)?;
    answer(&admin, &operator, edits).await
}

fn removal(admin: &Admin, PlanRemovalQuery { limit, key, reason }: &PlanRemovalQuery) -> Result<Edits, Refused> {
    let (live, in_force) = (admin.live.load(), admin.overrides.in_force.load());
    of_limit(&live, &in_force, Some(limit))?;
    let found =
        find_override((&admin.gate, &live), &in_force, limit, key).filter(|one| plan_of(&one.allowance).is_some());
    let found = found.ok_or_else(|| Refused(StatusCode::NOT_FOUND, "no plan is assigned to this key".to_owned()))?;
    Ok(Edits::removal((&admin.gate, &live), "plan", found, reason.as_ref().map(Reason::as_str)))
}

/// The plan that an allowance assigns, if it does.
fn plan_of(allowance: &Value) -> Option<&Value> {
    allowance.as_object()?.get("plan")
}

/// Makes the edits, and answers with them.
async fn answer(admin: &Admin, operator: &Operator, edits: Edits) -> Answered {
    let body = |EditedBody { limit, key, to, until, was, banned_until, not_kept }| {
        let plan = to.as_ref().and_then(plan_of).cloned();
        ChangedPlanBody { limit, key, plan, until, was, banned_until, not_kept }
    };
    edits.answer(admin, operator, body).await
}
