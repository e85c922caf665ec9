//! `/v1/apikeys`: lists, makes, rotates and revokes API keys.
//!
//! A change edits the file of the keys, and then reloads. Only the answer to a new key has the key: neither the log nor
//! the audit log has it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json as value;
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};

use super::access::Operator;
use super::answer::{Answer, Answered, Refused, json};
use super::audit::Audited;
use super::body::{self, Json, Parameters, Reason};
use super::edits::parsed_length;
use super::reloads::{ReloadBody, ReloadTarget};
use super::state::{Admin, Call};
use super::times::rfc3339;
use crate::base::time::{Timestamp, system_now};
use crate::engine::policy::Policy;
use crate::engine::policy::api_keys::{ApiKey, ApiKeys, EditedKeys, KeyChange, KeyEdit, KeyEditError, KeyOwner};

/// Most owners of one answer.
const LISTED_MAX: usize = 1000;
/// The time for which the old key stays valid beside the new one, by default.
pub const OVERLAP_DEFAULT: &str = "24h";

/// An API key, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ApiKey)]
pub struct ApiKeyBody {
    /// The first eight digits of its SHA-256.
    pub id: String,
    /// When it was made.
    pub created: String,
    /// The instant from which it is refused; `null` without an end.
    pub expires: Option<String>,
    /// Whether it has expired.
    pub expired: bool,
    /// The begin of the hour of its last use; `null` if it was not used since this process began.
    pub last_used: Option<String>,
}

/// The owner of API keys.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ApiKeyOwner)]
pub struct ApiKeyOwnerBody {
    /// The name of the identity whose file has the keys.
    pub identity: String,
    /// The name, which is the identity of requests.
    pub name: String,
    /// The plan; `null` if it has none.
    pub plan: Option<String>,
    /// Whether all of its keys are refused.
    pub disabled: bool,
    /// The keys: one, or two during a rotation.
    pub keys: Vec<ApiKeyBody>,
}

/// Owners of API keys.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ApiKeyOwners)]
pub(super) struct ApiKeyOwnersBody {
    /// The owners, at most 1000.
    pub owners: Vec<ApiKeyOwnerBody>,
    /// The number of owners that are not listed.
    pub more: usize,
}

/// A change of the keys of an owner.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ChangedApiKeys)]
pub(super) struct ChangedApiKeysBody {
    /// The new key. It cannot be shown again. Absent if none was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The owner now; `null` if it has no key any more.
    pub owner: Option<ApiKeyOwnerBody>,
    /// The owner before; `null` if there was none.
    pub was: Option<ApiKeyOwnerBody>,
    /// Why the change is in the file, but not in force. Absent if it is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_in_force: Option<String>,
}

/// A first key for an owner.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewApiKey)]
struct NewApiKeyBody {
    /// The name of the identity; it can be absent if only one has API keys.
    identity: Option<String>,
    /// The name of the owner.
    name: String,
    /// The plan of the owner.
    plan: Option<String>,
    /// The life of the key, such as `90d`; without it, it is valid until it is revoked.
    expires: Option<String>,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

/// A rotation of the key of an owner.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ApiKeyRotation)]
struct RotationBody {
    /// The name of the identity; it can be absent if only one has API keys.
    identity: Option<String>,
    /// The name of the owner.
    name: String,
    /// The rest of the old key's life, such as `24h`, which is the default, or `0s`.
    overlap: Option<String>,
    /// The life of the new key, such as `90d`; by default as long as that of the old one.
    expires: Option<String>,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ApiKeysQuery {
    /// The name of an identity; all by default.
    identity: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RevocationQuery {
    /// The name of the identity; it can be absent if only one has API keys.
    identity: Option<String>,
    /// The name of the owner.
    name: String,
    /// The id of one key; all keys by default.
    id: Option<String>,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

impl ApiKeyOwnerBody {
    /// An owner of keys of `identity` at `now`. `uses` knows the last uses; none are known without it.
    pub fn of(identity: &str, owner: &KeyOwner, uses: Option<&ApiKeys>, now: Timestamp) -> Self {
        let key = |key: &ApiKey| ApiKeyBody {
            id: key.id(),
            created: rfc3339(key.created),
            expires: key.end().map(rfc3339),
            expired: key.has_expired(now),
            last_used: uses.and_then(|uses| uses.last_used(&key.digest)).map(rfc3339),
        };
        Self {
            identity: identity.to_owned(),
            name: owner.name.to_string(),
            plan: owner.plan.as_deref().map(str::to_owned),
            disabled: owner.is_disabled,
            keys: owner.keys.iter().map(key).collect(),
        }
    }
}

/// The owners of API keys, without their keys.
#[utoipa::path(
    get,
    path = "/v1/apikeys",
    params(ApiKeysQuery),
    responses((status = 200, body = ApiKeyOwnersBody, description = "the owners, in the order of their files"))
)]
pub(super) async fn list(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<ApiKeysQuery>) -> Answer {
    let (live, now) = (admin.live.load(), system_now());
    let is_asked = |identity: &str| asked.identity.as_deref().is_none_or(|asked| asked == identity);
    let all = live.policy.api_keys().filter(|(identity, _)| is_asked(identity));
    let mut all = all.flat_map(|(identity, keys)| keys.owners().iter().map(move |owner| (identity, keys, owner)));
    let body = |(identity, keys, owner)| ApiKeyOwnerBody::of(identity, owner, Some(keys), now);
    let owners = all.by_ref().take(LISTED_MAX).map(body).collect();
    json(StatusCode::OK, &ApiKeyOwnersBody { owners, more: all.count() })
}

/// Makes the first key of an owner. The answer has the key, which Weir does not keep.
#[utoipa::path(
    post,
    path = "/v1/apikeys",
    request_body(content = NewApiKeyBody),
    responses(
        (status = 200, body = ChangedApiKeysBody, description = "the key"),
        (status = 409, description = "the owner has a key, or the file is invalid or not writable"),
    )
)]
pub(super) async fn create(Call(admin, operator): Call, Json(body): Json) -> Answered {
    let NewApiKeyBody { identity, name, plan, expires, reason } = body::object(&body)?;
    let lifetime = expires.as_deref().map(|text| parsed_length("expires", text)).transpose()?;
    let edit = KeyEdit { name, change: KeyChange::New { plan, lifetime } };
    change(&admin, &operator, ("new_key", identity, edit, reason)).await
}

/// Makes another key for an owner. The old key stays valid for a while. The answer has the new key, which Weir does not
/// keep.
#[utoipa::path(
    post,
    path = "/v1/apikeys/rotate",
    request_body(content = RotationBody),
    responses(
        (status = 200, body = ChangedApiKeysBody, description = "the new key"),
        (status = 409, description = "two keys are valid, or the file is invalid or not writable"),
    )
)]
pub(super) async fn rotate(Call(admin, operator): Call, Json(body): Json) -> Answered {
    let RotationBody { identity, name, overlap, expires, reason } = body::object(&body)?;
    let overlap = overlap.as_deref().unwrap_or(OVERLAP_DEFAULT);
    let overlap = match humantime::parse_duration(overlap) {
        Ok(Duration::ZERO) => Duration::ZERO,
        _ => parsed_length("overlap", overlap)?,
    };
    let lifetime = expires.as_deref().map(|text| parsed_length("expires", text)).transpose()?;
    let edit = KeyEdit { name, change: KeyChange::Rotate { overlap, lifetime } };
    change(&admin, &operator, ("rotate_key", identity, edit, reason)).await
}

/// Revokes all keys of an owner, or one of them.
#[utoipa::path(
    delete,
    path = "/v1/apikeys",
    params(RevocationQuery),
    responses(
        (status = 200, body = ChangedApiKeysBody, description = "the owner before and now"),
        (status = 409, description = "the file is invalid or not writable"),
    )
)]
pub(super) async fn revoke(Call(admin, operator): Call, Parameters(asked): Parameters<RevocationQuery>) -> Answered {
    let RevocationQuery { identity, name, id, reason } = asked;
    let edit = KeyEdit { name, change: KeyChange::Revoke { id } };
    change(&admin, &operator, ("revoke_key", identity, edit, reason)).await
}

/// The name of an identity with API keys, and their file. Without a name it is the only one.
fn file_of(policy: &Policy, wanted: Option<&str>) -> Result<(String, PathBuf), Refused> {
    let all: Vec<_> = policy.api_keys().collect();
    let found = match (wanted, &all[..]) {
        (Some(wanted), all) => all.iter().find(|(name, _)| *name == wanted),
        (None, [only]) => Some(only),
        (None, [_, ..]) => return Err("identity: several identities have API keys".to_owned().into()),
        (None, []) => None,
    };
    let (name, keys) =
        found.ok_or_else(|| Refused(StatusCode::NOT_FOUND, "no such identity has API keys".to_owned()))?;
    Ok(((*name).to_owned(), keys.file().to_owned()))
}

/// The kind of a change, its identity, the edit and its reason.
type RequestedKeyEdit = (&'static str, Option<String>, KeyEdit, Option<Reason>);

/// Edits the file, notes the change, and waits until it is in force.
async fn change(admin: &Admin, operator: &Operator, (action, identity, edit, reason): RequestedKeyEdit) -> Answered {
    let (identity, file) = file_of(&admin.live.load().policy, identity.as_deref())?;
    let (edit_keys, now) = (admin.edit_keys, system_now());
    let target = value!({ "identity": identity, "name": edit.name });
    let EditedKeys { secret, before, after } = spawn_blocking(move || edit_keys(&file, &edit, now)).await??;
    let [was, owner] = {
        let live = admin.live.load();
        let uses = live.policy.api_keys().find(|(name, _)| *name == identity).map(|(_, keys)| keys);
        [before, after].map(|owner| owner.map(|owner| ApiKeyOwnerBody::of(&identity, &owner, uses, now)))
    };
    let shown = |owner: &Option<ApiKeyOwnerBody>| serde_json::to_value(owner).unwrap_or_default();
    let (before, after) = (shown(&was), shown(&owner));
    let reason = reason.map(Into::into);
    let change = Audited { action, limit: None, target, before, after, reason, outcome: None };
    admin.record(operator, vec![change]).await;
    let not_in_force = match admin.reloads.order(ReloadTarget::Files).await {
        Ok(ReloadBody { outcome, .. }) if outcome == "applied" => None,
        Ok(reload) => Some(reload.reason.unwrap_or_else(|| "the configuration is invalid; see `weir check`".into())),
        Err(Refused(_, reason)) => Some(reason),
    };
    Ok(json(StatusCode::OK, &ChangedApiKeysBody { key: secret, owner, was, not_in_force }))
}

impl From<KeyEditError> for Refused {
    fn from(error: KeyEditError) -> Self {
        let status = match error {
            KeyEditError::Invalid(_) => StatusCode::BAD_REQUEST,
            KeyEditError::Absent(_) => StatusCode::NOT_FOUND,
            KeyEditError::Conflict(_) | KeyEditError::File(_) => StatusCode::CONFLICT,
        };
        Self(status, error.to_string())
    }
}
