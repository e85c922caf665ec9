//! `/v1/bans`: lists bans, sets them and lifts them.
//!
//! A ban is in force when the answer arrives. If the file of bans cannot be written, the answer says so: a ban must not
//! wait for a disk.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};

use super::access::Operator;
use super::answer::{Answer, ProblemBody, Refused, json, problem};
use super::audit::Audited;
use super::body::{self, Json, Parameters};
use super::edits::parsed_length;
use super::key;
use super::keys::refused;
use super::state::Admin;
use super::times::rfc3339;
use crate::gate::{BanInForce, BanTarget, FoundKey, KeyName, LimitBans, Live, OperatorBan};
use crate::limit::Key;
use crate::policy::access::canonical;
use crate::time::{Timestamp, saturating_ns};

/// Most bans of operators.
const BANS_MAX: usize = 10_000;
/// Most bans by a limit that one answer lists.
const LISTED_MAX: usize = 1000;

/// A ban to set: of a key of a limit, or of addresses for all limits.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewBan)]
struct NewBanBody {
    /// The name of the limit.
    limit: Option<String>,
    /// The key: its parts by name, or its text as in `overrides`.
    #[schema(value_type = Option<Object>)]
    key: Option<Value>,
    /// The id of the key, in place of `key`.
    id: Option<String>,
    /// An address, or a network such as `192.0.2.0/24`, in place of `limit` and `key`.
    address: Option<String>,
    /// The length, such as `10min` or `24h`, or `forever`: the ban is for good until it is lifted.
    #[serde(rename = "for")]
    length: Option<String>,
    /// The reason, for the list of bans and the audit log.
    reason: Option<Box<str>>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LiftQuery {
    /// The name of the limit.
    limit: Option<String>,
    /// The key: its text as in `overrides`, or a JSON object with its parts by name.
    key: Option<String>,
    /// The id of the key, in place of `key`.
    id: Option<String>,
    /// The address or the network of the ban.
    address: Option<String>,
    /// The reason, for the audit log.
    reason: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BansQuery {
    /// The name of one limit; all bans by default.
    limit: Option<String>,
}

/// A ban.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Ban)]
pub struct BanBody {
    /// The name of the limit; `null` for all limits.
    pub limit: Option<String>,
    /// The parts of the key without secrets; `null` for addresses, or if only the id is known.
    pub key: Option<Value>,
    /// The id of the key; `null` for addresses, or if there is no such key.
    pub id: Option<String>,
    /// The address or the network; `null` for a key.
    pub address: Option<String>,
    /// The begin; `null` if the limit set the ban.
    pub since: Option<String>,
    /// The end; `null` for a ban for good.
    pub until: Option<String>,
    /// `operator`, or `limit` for a ban that the limit itself set.
    pub by: String,
    /// The name of the operator's token.
    pub token: Option<String>,
    /// The reason that the operator gave.
    pub reason: Option<String>,
    /// Why the ban does not apply; `null` if it does.
    pub left_out: Option<String>,
}

/// All bans.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Bans)]
pub struct BansBody {
    /// The bans of operators, then those that limits set.
    pub bans: Vec<BanBody>,
    /// Bans that limits set and that are not listed: at most 1000 of each limit are.
    pub more: usize,
}

/// A ban that was set or lifted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ChangedBan)]
pub struct ChangedBanBody {
    /// The ban now; `null` if it was lifted.
    pub ban: Option<BanBody>,
    /// The ban before; `null` if there was none.
    pub was: Option<BanBody>,
    /// Why the change ends with the process; `null` if it is on disk.
    pub not_kept: Option<String>,
}

/// The bans in force, and those that wait for their limit to come back.
#[utoipa::path(
    get,
    path = "/v1/bans",
    params(BansQuery),
    responses((status = 200, body = BansBody, description = "the bans of operators and of limits"))
)]
pub(super) async fn list(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<BansQuery>) -> Answer {
    let (live, now) = (admin.live.load(), admin.gate.clock().now());
    let is_asked = |limit: Option<&str>| asked.limit.as_deref().is_none_or(|asked| limit == Some(asked));
    let of_operators = admin.gate.operator_bans().iter().map(BanBody::of).collect::<Vec<_>>();
    let mut bans: Vec<_> = of_operators.into_iter().filter(|ban| is_asked(ban.limit.as_deref())).collect();
    let mut more = 0;
    for LimitBans { limit, longest, more: unlisted } in admin.gate.bans_by_limits(&live, LISTED_MAX, now) {
        if is_asked(Some(limit)) {
            more += unlisted;
            bans.extend(longest.into_iter().map(|(key, shown, ban_ns)| BanBody {
                limit: Some(limit.to_owned()),
                key: shown.map(|shown| Value::from(&*shown)),
                id: Some(key.id()),
                until: Some(rfc3339(now.saturating_add_ns(ban_ns))),
                by: "limit".to_owned(),
                ..BanBody::default()
            }));
        }
    }
    json(StatusCode::OK, &BansBody { bans, more })
}

/// Bans a key of a limit, or addresses for all limits. A ban of the same clients is replaced.
#[utoipa::path(
    post,
    path = "/v1/bans",
    request_body = NewBanBody,
    responses(
        (status = 200, body = ChangedBanBody, description = "the ban, and the one before"),
        (status = 400, body = ProblemBody, description = "the ban is not possible"),
        (status = 404, body = ProblemBody, description = "the limit does not exist"),
    )
)]
pub(super) async fn set(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
    Json(asked): Json,
) -> Answer {
    let now = admin.gate.clock().now();
    // Bound apart, so that no policy is kept alive while the file is written.
    let ban = read(&admin, &admin.live.load(), &asked);
    match ban {
        Ok((found, NewBan { length_ns, reason })) => {
            change(&admin, &operator, found, (true, length_ns, reason), now).await
        }
        Err((status, detail)) => problem(status, detail),
    }
}

/// Lifts a ban. A key that its limit has banned begins anew, too.
#[utoipa::path(
    delete,
    path = "/v1/bans",
    params(LiftQuery),
    responses(
        (status = 200, body = ChangedBanBody, description = "the ban that was lifted"),
        (status = 404, body = ProblemBody, description = "there is no such ban"),
    )
)]
pub(super) async fn lift(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
    Parameters(asked): Parameters<LiftQuery>,
) -> Answer {
    let now = admin.gate.clock().now();
    let LiftQuery { limit, key, id, address, reason } = asked;
    let name = key.as_deref().map(key::name_of_text).transpose().map_err(|detail| (StatusCode::BAD_REQUEST, detail));
    let found = name.and_then(|name| banned(&admin, &admin.live.load(), limit, (name, id), address));
    match found {
        Ok(found) => change(&admin, &operator, found, (false, None, reason.map(Into::into)), now).await,
        Err((status, detail)) => problem(status, detail),
    }
}

/// The clients of a ban, with their key if they have one.
type Banned = (BanTarget, Option<FoundKey>);

/// A ban to set.
struct NewBan {
    /// Nanoseconds; `None` for a ban for good.
    length_ns: Option<u64>,
    reason: Option<Box<str>>,
}

/// Reads a ban to set, and its clients.
fn read(admin: &Admin, live: &Live, asked: &Value) -> Result<(Banned, NewBan), Refused> {
    let bad = |detail: String| (StatusCode::BAD_REQUEST, detail);
    let NewBanBody { limit, key, id, address, length, reason } = body::object(asked).map_err(bad)?;
    let name = key.map(key::name_of_json).transpose().map_err(bad)?;
    let found = banned(admin, live, limit, (name, id), address)?;
    let length_ns = match length.as_deref() {
        Some("forever") => None,
        Some(text) => {
            Some(saturating_ns(parsed_length(text).map_err(|detail| bad(format!("{detail}, or `forever`")))?))
        }
        None => return Err(bad("for: a ban has a length such as `10min` or `24h`, or is `forever`".to_owned())),
    };
    Ok((found, NewBan { length_ns, reason }))
}

/// The clients that a request names.
fn banned(
    admin: &Admin,
    live: &Live,
    limit: Option<String>,
    (key, id): (Option<KeyName>, Option<String>),
    address: Option<String>,
) -> Result<Banned, Refused> {
    let bad = |detail: &str| (StatusCode::BAD_REQUEST, detail.to_owned());
    match (limit, key, id, address) {
        (None, None, None, Some(address)) => {
            let network = address.parse().or_else(|_| address.parse::<IpAddr>().map(IpNet::from));
            let network = canonical(network.map_err(|_| bad("address: expected an address or a network"))?).trunc();
            if network.prefix_len() == 0 {
                return Err(bad("address: this network has every client"));
            }
            Ok((BanTarget::Network(network), None))
        }
        (Some(limit), key, id, None) => {
            let name = match (key, id) {
                (Some(_), Some(_)) => return Err(bad("id: excludes `key`")),
                (None, Some(id)) => key::name_of_id(&id).map_err(|detail| bad(&detail))?,
                (key, None) => key.unwrap_or_else(|| KeyName::Parts(Vec::new())),
            };
            let found = admin.gate.find_key(live, &limit, &name).map_err(|error| refused(live, &error))?;
            let target = match &found.texts {
                Some(texts) => BanTarget::Key(limit.into(), texts.clone()),
                None => BanTarget::Hash(limit.into(), found.key),
            };
            Ok((target, Some(found)))
        }
        _ => Err(bad("expected `limit` with `key` or `id`, or `address`")),
    }
}

/// Whether a ban is of these clients.
fn is_of(one: &BanInForce, (target, found): &Banned) -> bool {
    let limit = |target: &BanTarget| match target {
        BanTarget::Key(limit, _) | BanTarget::Hash(limit, _) => Some(limit.clone()),
        BanTarget::Network(_) => None,
    };
    let is_same_key = found.as_ref().is_some_and(|found| one.key == Some(found.key));
    one.ban.target == *target || (is_same_key && limit(&one.ban.target) == limit(target))
}

/// Sets a ban of `length`, or lifts the ban of these clients.
async fn change(
    admin: &Admin,
    operator: &Operator,
    banned: Banned,
    (sets, length, reason): (bool, Option<u64>, Option<Box<str>>),
    now: Timestamp,
) -> Answer {
    let _changing = admin.bans.changing.lock().await;
    let all = admin.gate.operator_bans();
    let was = all.iter().find(|one| is_of(one, &banned));
    if sets && was.is_none() && all.len() >= BANS_MAX {
        return problem(StatusCode::CONFLICT, format!("there are {BANS_MAX} bans already"));
    }
    let ban_until = was.map(|one| one.ban.until);
    let was = was.map(BanBody::of);
    let (ban, was) = {
        let live = admin.live.load();
        let until = if sets { length.map(|ns| now.saturating_add_ns(ns)) } else { ban_until.flatten() };
        if sets || ban_until.is_some() {
            let (target, token, reason) = (banned.0.clone(), operator.token.clone(), reason.clone());
            let (since, replica, is_lifted) = (now, 0, !sets);
            let replaced_until = None;
            let ban = OperatorBan { target, until, since, replica, is_lifted, replaced_until, reason, token };
            admin.gate.change_operator_ban(&live, ban, now);
        }
        let pardoned = banned.1.as_ref().filter(|_| !sets).and_then(|found| admin.gate.pardon(&live, found, now));
        let of_limit = || pardoned.map(|ban_ns| BanBody::of_limit(&banned, ban_ns, now));
        let ban = admin.gate.operator_bans().iter().find(|one| sets && is_of(one, &banned)).map(BanBody::of);
        (ban, was.or_else(of_limit))
    };
    if !sets && was.is_none() {
        return problem(StatusCode::NOT_FOUND, "there is no such ban");
    }
    let (bans_file, bans) = (Arc::clone(&admin.bans), admin.gate.all_operator_bans());
    let written = spawn_blocking(move || bans_file.write(&bans)).await;
    let not_kept = written.unwrap_or_else(|error| Err(error.to_string())).err();
    if let Some(reason) = &not_kept {
        tracing::warn!(reason, "a change of bans ends with the process");
    }
    let shown = ban.as_ref().or(was.as_ref()).cloned().unwrap_or_default();
    let target = shown
        .address
        .clone()
        .map_or_else(|| shown.key.clone().unwrap_or_else(|| value!({ "id": shown.id })), Value::from);
    tracing::info!(limit = shown.limit, %target, until = shown.until, reason = reason.as_deref(), "{}", if sets { "a ban begins" } else { "a ban was lifted" });
    let until = |ban: &Option<BanBody>| ban.as_ref().map_or(Value::Null, |ban| value!({ "until": ban.until }));
    let change = Audited {
        action: if sets { "ban" } else { "lift_ban" },
        limit: shown.limit,
        target,
        before: until(&was),
        after: until(&ban),
        reason: reason.map(Into::into),
        outcome: None,
    };
    admin.record(operator, now, vec![change]).await;
    json(StatusCode::OK, &ChangedBanBody { ban, was, not_kept })
}

impl BanBody {
    /// A ban of an operator.
    fn of(one: &BanInForce) -> Self {
        let BanInForce { ban: OperatorBan { target, until, since, reason, token, .. }, key, shown, rejection } =
            one.clone();
        let (limit, address) = match target {
            BanTarget::Network(network) => (None, Some(shown_network(network))),
            BanTarget::Key(limit, _) | BanTarget::Hash(limit, _) => (Some(limit.into()), None),
        };
        Self {
            limit,
            key: shown.map(parts),
            id: key.map(Key::id),
            address,
            since: Some(rfc3339(since)),
            until: until.map(rfc3339),
            by: "operator".to_owned(),
            token: token.map(Into::into),
            reason: reason.map(Into::into),
            left_out: rejection,
        }
    }

    /// A ban that a limit set.
    fn of_limit((target, found): &Banned, ban_ns: u64, now: Timestamp) -> Self {
        let limit = match target {
            BanTarget::Key(limit, _) | BanTarget::Hash(limit, _) => Some(limit.to_string()),
            BanTarget::Network(_) => None,
        };
        Self {
            limit,
            key: found.as_ref().and_then(|found| found.shown.clone()).map(parts),
            id: found.as_ref().map(|found| found.key.id()),
            until: Some(rfc3339(now.saturating_add_ns(ban_ns))),
            by: "limit".to_owned(),
            ..Self::default()
        }
    }
}

/// The parts of a key by name.
fn parts(shown: Vec<(String, String)>) -> Value {
    shown.into_iter().map(|(name, text)| (name, Value::String(text))).collect()
}

/// A network of one address without its length.
fn shown_network(network: IpNet) -> String {
    if network.prefix_len() == network.max_prefix_len() { network.addr().to_string() } else { network.to_string() }
}
