//! `DELETE /v1/keys` and `/v1/keys/all`: gives all units back, to one key or to all keys of a limit.

use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json as value;
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answered, Refused, json};
use super::audit::Audited;
use super::body::{Parameters, Reason};
use super::keys::{self, KeyBody};
use super::state::{Admin, Call};
use crate::base::time::Timestamp;
use crate::engine::gate::{ChargeError, Live};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ResetQuery {
    /// The name of the limit.
    limit: String,
    /// The key: its text as in `overrides`, or a JSON object with its parts by name.
    key: Option<String>,
    /// The id of the key, in place of `key`.
    id: Option<String>,
    /// The plan by whose numbers the limit decides.
    plan: Option<String>,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ResetAllQuery {
    /// The name of the limit.
    limit: String,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

/// A key before and after a reset.
#[derive(Serialize, ToSchema)]
#[schema(as = Reset)]
struct ResetBody {
    before: KeyBody,
    after: KeyBody,
}

/// Keys that were reset together.
#[derive(Serialize, ToSchema)]
#[schema(as = ResetKeys)]
struct ResetAllBody {
    /// The name of the limit.
    limit: String,
    /// Keys that were reset.
    reset: usize,
    /// Keys that were not, because a store or a fleet hears of at most 50,000 together. A second request resets them.
    more: usize,
}

/// Gives all units of a key back, here, in its store and in other replicas. A ban of the key stays.
#[utoipa::path(
    delete,
    path = "/v1/keys",
    params(ResetQuery),
    responses((status = 200, body = ResetBody, description = "the key before and after"))
)]
pub(super) async fn reset(Call(admin, operator): Call, Parameters(asked): Parameters<ResetQuery>) -> Answered {
    let name = (asked.key.as_deref(), asked.id.as_deref());
    keys::hear(&admin, &asked.limit, name, asked.plan.as_deref()).await;
    let now = admin.gate.clock().now();
    let reset = reset_now(&admin, &asked, now)?;
    let ResetBody { before, after } = &reset;
    let units = |key: &KeyBody| value!({ "remaining": key.remaining, "debt": key.debt });
    let target = after.key.as_ref().map_or_else(|| value!({ "id": after.id }), |key| value!(key));
    let (limit, before, after) = (Some(after.limit.clone()), units(before), units(after));
    let reason = asked.reason.map(Into::into);
    let change = Audited { action: "reset", limit, target, before, after, reason, outcome: None };
    admin.record(&operator, vec![change]).await;
    Ok(json(StatusCode::OK, &reset))
}

/// Gives all units back to every key of a limit that this process remembers, here, in its store and in other replicas. Bans
/// stay.
#[utoipa::path(
    delete,
    path = "/v1/keys/all",
    params(ResetAllQuery),
    responses((status = 200, body = ResetAllBody, description = "the number of keys"))
)]
pub(super) async fn reset_all(Call(admin, operator): Call, Parameters(asked): Parameters<ResetAllQuery>) -> Answered {
    let now = admin.gate.clock().now();
    let ResetAllQuery { limit, reason } = asked;
    // In a thread of its own, because a limit may have millions of keys.
    let (state, name) = (Arc::clone(&admin), limit.clone());
    let reset = spawn_blocking(move || {
        let live = state.live.load();
        state.gate.reset_all(&live, &name, now).map_err(|error| charge_refused(&live, &error))
    });
    let (reset, more) = reset.await??;
    let used = |keys: usize| value!({ "used_keys": keys });
    let (target, before, after) = (value!({ "all": true }), used(reset + more), used(more));
    let reason = reason.map(Into::into);
    let change = Audited { action: "reset", limit: Some(limit.clone()), target, before, after, reason, outcome: None };
    admin.record(&operator, vec![change]).await;
    Ok(json(StatusCode::OK, &ResetAllBody { limit, reset, more }))
}

fn charge_refused(live: &Live, error: &ChargeError) -> Refused {
    match error {
        ChargeError::Key(error) => keys::refused(live, error),
        ChargeError::InFlight | ChargeError::Units => error.to_string().into(),
    }
}

fn reset_now(admin: &Admin, asked: &ResetQuery, now: Timestamp) -> Result<ResetBody, Refused> {
    let (live, plan) = (admin.live.load(), asked.plan.as_deref());
    let found = keys::find(admin, &live, &asked.limit, (asked.key.as_deref(), asked.id.as_deref()))?;
    let before = keys::state(admin, &live, (&asked.limit, &found), plan, now)?;
    admin.gate.reset_key(&live, &found, plan, now).map_err(|error| charge_refused(&live, &error))?;
    let after = keys::state(admin, &live, (&asked.limit, &found), plan, now)?;
    Ok(ResetBody { before, after })
}
