//! `/v1/overrides`: lists overrides that were set at run time, and sets them.
//!
//! This file has the HTTP and JSON. The owner of the configuration makes the changes (`change`).

use std::collections::HashSet;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::access::Operator;
use super::answer::{Answer, ProblemBody, json, problem};
use super::audit::{self, Audited};
use super::body::{self, BATCH_MAX, Json, Parameters};
use super::key;
use super::state::Admin;
use crate::gate::{FoundKey, Gate, KeyError, KeyName, Live};
use crate::policy::overrides::{Override, OverrideEdit, OverrideError};

/// The HTTP status of an error.
fn status(error: &OverrideError) -> StatusCode {
    match error {
        OverrideError::NoFile | OverrideError::InvalidOnDisk(_) => StatusCode::CONFLICT,
        OverrideError::Invalid { .. } => StatusCode::BAD_REQUEST,
        OverrideError::Write(_) => StatusCode::INTERNAL_SERVER_ERROR,
        OverrideError::Fleet(_) | OverrideError::Timeout => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// A change of one override.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OverrideChange)]
struct EditBody {
    /// The name of the limit.
    limit: String,
    /// The parts of the key by name, each a text or a whole number; or the text of the key.
    // Read as any value, because the error of `serde` would repeat it.
    #[schema(value_type = Object)]
    key: Value,
    /// A rate, a list of rates, `"unlimited"`, or a table as in the configuration; `null` removes the override.
    // Not an `Option`: an absent field must not mean `null`.
    to: Value,
    /// The reason, for the audit log.
    reason: Option<String>,
}

/// A change that was made.
#[derive(Serialize, ToSchema)]
#[schema(as = ChangedOverride)]
struct EditedBody {
    /// The name of the limit.
    limit: String,
    /// The parts of the key by name, without secrets.
    key: Value,
    /// The allowance now; `null` if the override was removed.
    to: Option<Value>,
    /// The allowance before; `null` if there was none.
    was: Option<Value>,
}

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
}

/// An edit, its key as it is shown, and its reason.
struct ShownEdit {
    edit: OverrideEdit,
    key: Value,
    reason: Option<String>,
}

/// The overrides that are set.
#[utoipa::path(
    get,
    path = "/v1/overrides",
    params(OverridesQuery),
    responses(
        (status = 200, body = [OverrideBody], description = "all overrides, or those of one limit"),
        (status = 404, body = ProblemBody, description = "the limit does not exist"),
    )
)]
pub(super) async fn list(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<OverridesQuery>) -> Answer {
    let (gate, live, limit) = (&admin.gate, admin.live.load(), asked.limit.as_deref());
    let in_force = admin.overrides.in_force.load();
    let of_limit: Vec<_> = in_force.iter().filter(|one| limit.is_none_or(|limit| *one.limit == *limit)).collect();
    let has_limit = |limit: &str| live.policy.limits().iter().any(|known| *known.name == *limit);
    if limit.is_some_and(|limit| of_limit.is_empty() && !has_limit(limit)) {
        return problem(StatusCode::NOT_FOUND, KeyError::UnknownLimit.to_string());
    }
    let body = |one: &&Override| {
        let Override { limit, key, allowance, rejection } = (*one).clone();
        let key = shown_key(gate, &live, &limit, &key);
        OverrideBody { limit, key, to: allowance, left_out: rejection.is_some().then_some(true), why: rejection }
    };
    json(StatusCode::OK, &of_limit.iter().map(body).collect::<Vec<_>>())
}

/// Sets or removes an override, or up to 1000 as an array: all of them or none.
#[utoipa::path(
    post,
    path = "/v1/overrides",
    request_body(content = EditBody, description = "a change, or an array of changes"),
    responses(
        (status = 200, body = EditedBody, description = "the change; for an array, an array of changes"),
        (status = 400, body = ProblemBody, description = "the change is not possible"),
        (status = 404, body = ProblemBody, description = "the limit does not exist"),
        (status = 409, body = ProblemBody, description = "the files on disk allow no change"),
    )
)]
pub(super) async fn change(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
    Json(body): Json,
) -> Answer {
    // The policy must not be kept alive while the edits wait.
    let edits = EditRequest::read(&admin.gate, &admin.live.load(), &body);
    match edits {
        Ok(edits) => edits.apply(&admin, &operator).await,
        Err((status, detail)) => problem(status, detail),
    }
}

/// The names and texts of the parts of a key, without secrets. A masked text if the text is not a key of this limit.
fn shown_key(gate: &Gate, live: &Live, limit: &str, text: &str) -> Value {
    match gate.shown_key(live, limit, text) {
        Ok(parts) => parts.into_iter().map(|(name, text)| (name, Value::String(text))).collect(),
        Err(masked) => Value::String(masked),
    }
}

/// The edits of one request. They do not borrow the policy, so that no policy is kept alive while they wait.
struct EditRequest {
    is_array: bool,
    edits: Vec<ShownEdit>,
}

impl EditRequest {
    /// Reads one edit or an array of edits. The error is that of the first invalid edit.
    fn read(gate: &Gate, live: &Live, body: &Value) -> Result<Self, (StatusCode, String)> {
        let Value::Array(all) = body else {
            return Ok(Self { is_array: false, edits: vec![edit(gate, live, body)?] });
        };
        if all.len() > BATCH_MAX {
            return Err((StatusCode::BAD_REQUEST, format!("more than {BATCH_MAX} changes")));
        }
        let mut keys = HashSet::new();
        let mut edits = Vec::with_capacity(all.len());
        for (index, body) in all.iter().enumerate() {
            let at_index = |(status, detail)| (status, format!("[{index}]: {detail}"));
            let shown = edit(gate, live, body).map_err(at_index)?;
            if !keys.insert((shown.edit.limit.clone(), shown.edit.key.clone())) {
                return Err(at_index((StatusCode::BAD_REQUEST, "an earlier change has this key of the limit".into())));
            }
            edits.push(shown);
        }
        Ok(Self { is_array: true, edits })
    }

    /// Makes all edits or none.
    async fn apply(self, admin: &Admin, operator: &Operator) -> Answer {
        let edits: Vec<_> = self.edits.iter().map(|shown| shown.edit.clone()).collect();
        let before = match admin.overrides.change(edits).await {
            Ok(before) => before,
            Err(OverrideError::Invalid { index: Some(index), reason }) if self.is_array => {
                return problem(StatusCode::BAD_REQUEST, format!("[{index}]: {reason}"));
            }
            Err(error) => return problem(status(&error), error.to_string()),
        };
        let (mut audited, mut made) = (Vec::new(), Vec::new());
        for (ShownEdit { edit: OverrideEdit { limit, allowance, .. }, key, reason }, was) in
            self.edits.into_iter().zip(before)
        {
            audited.push(Audited {
                action: "override",
                limit: Some(limit.clone()),
                target: key.clone(),
                before: was.clone().unwrap_or_default(),
                after: allowance.clone().unwrap_or_default(),
                reason,
            });
            made.push(EditedBody { limit, key, to: allowance, was });
        }
        audit::record(&admin.access.load_full(), operator, admin.gate.clock().now(), audited).await;
        match made.pop() {
            Some(only) if !self.is_array => json(StatusCode::OK, &only),
            last => {
                made.extend(last);
                json(StatusCode::OK, &made)
            }
        }
    }
}

/// The names and the texts of the parts of a key.
fn pairs_of(found: FoundKey) -> Vec<(String, String)> {
    let names = found.shown.unwrap_or_default().into_iter().map(|(name, _)| name);
    names.zip(found.texts.unwrap_or_default()).collect()
}

fn edit(gate: &Gate, live: &Live, body: &Value) -> Result<ShownEdit, (StatusCode, String)> {
    let bad = |detail: String| (StatusCode::BAD_REQUEST, detail);
    let EditBody { limit, key, to, reason } = body::object(body).map_err(bad)?;
    let refused = |error: KeyError| match error {
        KeyError::UnknownLimit => (StatusCode::NOT_FOUND, error.to_string()),
        _ => bad(error.to_string()),
    };
    let key = match key::name_of_json(key).map_err(bad)? {
        KeyName::Parts(parts) => parts,
        name => pairs_of(gate.find_key(live, &limit, &name).map_err(refused)?),
    };
    let text = gate.key_text(live, &limit, &key).map_err(refused)?;
    let shown = shown_key(gate, live, &limit, &text);
    let allowance = Some(to).filter(|to| !to.is_null());
    Ok(ShownEdit { edit: OverrideEdit { limit, key: text, allowance }, key: shown, reason })
}
