//! `/v1/overrides`: lists overrides that were set at run time, sets and removes them.
//!
//! This file has the HTTP and JSON. The owner of the configuration makes the changes (`change`).

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answered, OneOrMany, Refused, json};
use super::body::{self, Json, Parameters, Reason};
use super::edits::{EditBody, EditedBody, Edits, find_override, seconds_left, shown_key};
use super::keys::unknown_limit;
use super::state::{Admin, Call};
use super::times::rfc3339;
use crate::engine::gate::Live;
use crate::engine::policy::overrides::Override;

/// An override.
#[derive(Serialize, ToSchema)]
#[schema(as = Override)]
struct OverrideBody {
    /// The name of the limit.
    limit: Box<str>,
    /// The parts of the key by name, without secrets; a masked text if the limit has no such key.
    key: Value,
    /// The allowance.
    to: Value,
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

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OverridesQuery {
    /// The name of one limit; all limits by default.
    limit: Option<String>,
    /// `true` lists only overrides that do not fit the configuration, `false` only those that do.
    left_out: Option<bool>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemovalQuery {
    /// The name of one limit.
    limit: Option<String>,
    /// The key: its text as in `overrides`, or a JSON object with its parts by name.
    key: Option<String>,
    /// `true` in place of `key` removes all overrides that do not fit the configuration.
    left_out: Option<bool>,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

/// The overrides that are set.
#[utoipa::path(
    get,
    path = "/v1/overrides",
    params(OverridesQuery),
    responses(
        (status = 200, body = [OverrideBody], description = "all overrides, or those of one limit"),
        (status = 404, description = "the limit does not exist"),
    )
)]
pub(super) async fn list(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<OverridesQuery>) -> Answered {
    let (gate, live, in_force) = (&admin.gate, admin.live.load(), admin.overrides.in_force.load());
    let of_limit = of_limit(&live, &in_force, asked.limit.as_deref())?;
    let is_asked = |one: &&Override| asked.left_out.is_none_or(|left_out| left_out == one.rejection.is_some());
    let body = |one: &Override| {
        let Override { limit, key, allowance: to, until, rejection: why, .. } = one.clone();
        let (key, left_out) = (shown_key(gate, &live, &limit, &key), why.is_some().then_some(true));
        OverrideBody { limit, key, to, until: until.map(rfc3339), left_s: until.map(seconds_left), left_out, why }
    };
    Ok(json(StatusCode::OK, &of_limit.into_iter().filter(is_asked).map(body).collect::<Vec<_>>()))
}

/// The overrides of one limit, or all. Errs if there is no such limit, and no override of one.
pub(super) fn of_limit<'o>(
    live: &Live,
    overrides: &'o [Override],
    limit: Option<&str>,
) -> Result<Vec<&'o Override>, Refused> {
    let found: Vec<_> = overrides.iter().filter(|one| limit.is_none_or(|limit| *one.limit == *limit)).collect();
    let has_limit = |limit: &str| live.policy.nameable_limits().any(|known| known == limit);
    if limit.is_some_and(|limit| found.is_empty() && !has_limit(limit)) {
        return Err(unknown_limit(live));
    }
    Ok(found)
}

/// Sets or removes an override, or up to 1000 as an array: all of them or none.
#[utoipa::path(
    post,
    path = "/v1/overrides",
    request_body(content = OneOrMany<EditBody>, description = "a change, or an array of changes"),
    responses(
        (status = 200, body = OneOrMany<EditedBody>, description = "the change; for an array, an array of changes"),
        (status = 409, description = "the files on disk allow no change"),
    )
)]
pub(super) async fn change(Call(admin, operator): Call, Json(body): Json) -> Answered {
    // The policy must not be kept alive while the edits wait.
    let edits = Edits::read((&admin.gate, &admin.live.load()), "override", &body, |body| body::object(body))?;
    edits.answer(&admin, &operator, |edited| edited).await
}

/// Removes an override, or all overrides that do not fit the configuration.
#[utoipa::path(
    delete,
    path = "/v1/overrides",
    params(RemovalQuery),
    responses(
        (status = 200, body = OneOrMany<EditedBody>, description = "the removed override; with `left_out`, an array"),
        (status = 409, description = "the files on disk allow no change"),
    )
)]
pub(super) async fn remove(Call(admin, operator): Call, Parameters(asked): Parameters<RemovalQuery>) -> Answered {
    removals(&admin, &asked)?.answer(&admin, &operator, |edited| edited).await
}

fn removals(admin: &Admin, RemovalQuery { limit, key, left_out, reason }: &RemovalQuery) -> Result<Edits, Refused> {
    let (live, in_force) = (admin.live.load(), admin.overrides.in_force.load());
    let (at, reason) = ((&*admin.gate, &*live), reason.as_ref().map(Reason::as_str));
    match (limit.as_deref(), key.as_deref(), left_out) {
        (Some(limit), Some(key), None) => {
            of_limit(&live, &in_force, Some(limit))?;
            let found = find_override(at, &in_force, limit, key);
            let found = found.ok_or_else(|| Refused(StatusCode::NOT_FOUND, "there is no such override".to_owned()))?;
            Ok(Edits::removal(at, "override", found, reason))
        }
        (limit, None, Some(true)) => {
            let found = of_limit(&live, &in_force, limit)?.into_iter().filter(|one| one.rejection.is_some());
            Ok(Edits::removals(at, "override", found, reason))
        }
        _ => Err("expected `limit` and `key`, or `left_out=true`".to_owned().into()),
    }
}
