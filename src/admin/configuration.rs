//! `/v1/config`, `/v1/config/check`, `/v1/reload` and `/v1/reloads`: the configuration, as operators read, check and
//! reload it.
//!
//! Not here: how it is read and compiled (config), and the task that puts it in force (app).

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Answered, Refused, json};
use super::audit::Audited;
use super::body::{self, OptionalJson, Parameters, Reason, Toml};
use super::edits::shown_key;
use super::reloads::{CheckBody, ConfigBody, ConfigReader, ReloadBody, ReloadTarget, SETTINGS_MAX, SettingBody};
use super::state::{Admin, Call};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ConfigQuery {
    /// The start of the paths, in whole names, such as `limit.per-seller`; all options by default.
    path: Option<String>,
    /// `false` leaves options out that the configuration does not have; `true` by default.
    defaults: Option<bool>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CheckQuery {
    /// The name of the text in messages; `body` by default.
    pub(super) name: Option<String>,
    /// `true` reads the file of the configuration as it is now, in place of a body.
    pub(super) stored: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReloadRequest)]
struct ReloadRequest {
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

/// The configuration in force, with the source of each value and without secrets.
#[utoipa::path(
    get,
    path = "/v1/config",
    params(ConfigQuery),
    responses(
        (status = 200, body = ConfigBody, description = "the options; overrides set at run time are last"),
        (status = 404, description = "no option in force is below the path; only with defaults"),
    )
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<ConfigQuery>) -> Answered {
    let (reader, below) = (Arc::clone(&admin.configuration), asked.path.clone().unwrap_or_default());
    let (has_defaults, newest) = (asked.defaults.unwrap_or(true), admin.live.clone());
    let mut config = spawn_blocking(move || reader.settings(&newest.load().policy, &below, has_defaults)).await?;
    let live = admin.live.load();
    let below = asked.path.unwrap_or_default();
    if let Some(members) = live.policy.members() {
        show_replicas(&mut config, &below, members);
    }
    for one in admin.overrides.in_force.load().iter().filter(|one| one.rejection.is_none()) {
        let start = format!("limit.{}.overrides", one.limit);
        let is_wanted = format!("{start}.").starts_with(&format!("{below}.")) || below.is_empty();
        if is_wanted && config.settings.len() >= SETTINGS_MAX {
            config.more = true;
        } else if is_wanted {
            let key = match shown_key(&admin.gate, &live, &one.limit, &one.key) {
                Value::Object(parts) => parts.values().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
                _ => "***".to_owned(),
            };
            let (path, value) = (format!("{start}.{key}"), one.allowance.clone());
            config.settings.push(SettingBody {
                path,
                value,
                source: "override".to_owned(),
                line: None,
                variable: None,
            });
        }
    }
    if has_defaults && config.settings.is_empty() {
        let detail = format!("no option in force has a name that begins with `{below}`");
        return Err(Refused(StatusCode::NOT_FOUND, detail));
    }
    Ok(json(StatusCode::OK, &config))
}

/// Shows the number of members as that of the replicas that share limits.
fn show_replicas(config: &mut ConfigBody, below: &str, members: u64) {
    const PATH: &str = "fleet.replicas";
    config.settings.retain(|setting| setting.path != PATH);
    if ["", "fleet", PATH].contains(&below) {
        let (path, source) = (PATH.to_owned(), "members".to_owned());
        config.settings.push(SettingBody { path, value: members.into(), source, line: None, variable: None });
    }
}

/// Checks a configuration as `weir check` does. Charges nothing, and puts nothing in force. It reads the files and
/// variables that the text names, so a token that only reads is not enough.
#[utoipa::path(
    post,
    path = "/v1/config/check",
    params(CheckQuery),
    request_body(content = String, content_type = "application/toml", description = "the configuration as TOML"),
    responses(
        (status = 200, body = CheckBody, description = "the problems"),
        (status = 409, description = "with `stored`: the configuration has no file"),
    )
)]
pub(super) async fn check(
    State(admin): State<Arc<Admin>>,
    Parameters(asked): Parameters<CheckQuery>,
    Toml(text): Toml,
) -> Answered {
    read(asked, text, admin, |reader| reader.check_stored(), |reader, text, name| reader.check(text, name)).await
}

/// The answer of `of_stored` for the stored file, or of `of_text` for a text with its name.
pub(super) async fn read<T: Serialize + Send + 'static>(
    CheckQuery { name, stored }: CheckQuery,
    text: String,
    admin: Arc<Admin>,
    of_stored: fn(&dyn ConfigReader) -> Option<T>,
    of_text: fn(&dyn ConfigReader, &str, &str) -> T,
) -> Answered {
    let is_stored = stored == Some(true);
    if is_stored && !(text.is_empty() && name.is_none()) {
        return Err("stored: excludes a body and `name`".to_owned().into());
    }
    let (reader, name) = (Arc::clone(&admin.configuration), name.unwrap_or_else(|| "body".to_owned()));
    let read = move || if is_stored { of_stored(&*reader) } else { Some(of_text(&*reader, &text, &name)) };
    let detail = "the configuration has no file: each new version is checked when it comes";
    let read = spawn_blocking(read).await?.ok_or_else(|| Refused(StatusCode::CONFLICT, detail.to_owned()))?;
    Ok(json(StatusCode::OK, &read))
}

/// Reloads the configuration, as SIGHUP does.
#[utoipa::path(
    post,
    path = "/v1/reload",
    request_body(content = Option<ReloadRequest>, description = "a reason; the body may be absent"),
    responses(
        (status = 200, body = ReloadBody, description = "the outcome, also that the configuration is invalid"),
        (status = 409, description = "this Weir has no configuration that changes"),
    )
)]
pub(super) async fn reload(Call(admin, operator): Call, OptionalJson(body): OptionalJson) -> Answered {
    let ReloadRequest { reason } = body::object(&body)?;
    let made = admin.reloads.order(ReloadTarget::Newest).await?;
    let after = value!({ "outcome": made.outcome });
    let (target, before, reason) = (Value::from("configuration"), Value::Null, reason.map(Into::into));
    let change = Audited { action: "reload", limit: None, target, before, after, reason, outcome: None };
    admin.record(&operator, vec![change]).await;
    Ok(json(StatusCode::OK, &made))
}

/// The last 20 reloads.
#[utoipa::path(
    get,
    path = "/v1/reloads",
    responses((status = 200, body = [ReloadBody], description = "the newest first; empty if there was none"))
)]
pub(super) async fn reloads(State(admin): State<Arc<Admin>>) -> Answer {
    json(StatusCode::OK, &admin.reloads.last())
}
