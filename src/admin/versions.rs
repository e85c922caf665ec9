//! `/v1/config/toml`, `/v1/config/diff`, `/v1/config/versions` and `/v1/config/rollback`: the text of the configuration
//! in force, how another one differs from it, and the return to an earlier one.
//!
//! Not here: how configurations are compared and kept (app).

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json as value};
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

use super::answer::{Answer, Answered, json, of_kind};
use super::audit::Audited;
use super::body::{self, OptionalJson, Parameters, Reason, Toml};
use super::configuration::{CheckQuery, read};
use super::reloads::{DiffBody, ReloadBody, ReloadTarget, VersionsBody};
use super::state::{Admin, Call};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RollbackRequest)]
struct RollbackRequest {
    /// The number of the configuration; by default the one that was in force before that of now.
    to: Option<u64>,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

/// The text of the configuration in force, without secrets: a check accepts it.
#[utoipa::path(
    get,
    path = "/v1/config/toml",
    responses((status = 200, body = String, content_type = "application/toml", description = "the text"))
)]
pub(super) async fn toml(State(admin): State<Arc<Admin>>) -> Answered {
    let reader = Arc::clone(&admin.configuration);
    let mut answer = of_kind(StatusCode::OK, "application/toml", spawn_blocking(move || reader.toml()).await?);
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// How a configuration differs from the one in force. Puts nothing in force. It reads the files and variables that the text
/// names, so a token that only reads is not enough.
#[utoipa::path(
    post,
    path = "/v1/config/diff",
    params(CheckQuery),
    request_body(content = String, content_type = "application/toml", description = "the configuration as TOML"),
    responses(
        (status = 200, body = DiffBody, description = "the parts and options that differ, or the errors"),
        (status = 409, description = "with `stored`: the configuration has no file"),
    )
)]
pub(super) async fn diff(
    State(admin): State<Arc<Admin>>,
    Parameters(asked): Parameters<CheckQuery>,
    Toml(text): Toml,
) -> Answered {
    read(asked, text, admin, |reader| reader.diff_stored(), |reader, text, name| reader.diff(text, name)).await
}

/// The last ten configurations in force.
#[utoipa::path(
    get,
    path = "/v1/config/versions",
    responses((status = 200, body = VersionsBody, description = "the newest first"))
)]
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Answer {
    json(StatusCode::OK, &admin.configuration.versions())
}

/// Puts an earlier configuration in force. The file stays as it is; its next change, SIGHUP or a reload puts it in force.
#[utoipa::path(
    post,
    path = "/v1/config/rollback",
    request_body(content = Option<RollbackRequest>, description = "a number and a reason; the body may be absent"),
    responses(
        (status = 200, body = ReloadBody, description = "the outcome, also that there is no such configuration"),
        (status = 409, description = "this Weir has no configuration that changes"),
    )
)]
pub(super) async fn rollback(Call(admin, operator): Call, OptionalJson(body): OptionalJson) -> Answered {
    let RollbackRequest { to, reason } = body::object(&body)?;
    let in_force = || {
        let versions = admin.configuration.versions().versions;
        versions.iter().find(|one| one.in_force).map(|one| value!({ "number": one.number, "at": one.at }))
    };
    let before = in_force().unwrap_or_default();
    let made = admin.reloads.order(ReloadTarget::Earlier(to)).await?;
    let after = value!({ "outcome": made.outcome, "in_force": in_force() });
    let (target, reason) = (Value::from("configuration"), reason.map(Into::into));
    let change = Audited { action: "rollback", limit: None, target, before, after, reason, outcome: None };
    admin.record(&operator, vec![change]).await;
    Ok(json(StatusCode::OK, &made))
}
