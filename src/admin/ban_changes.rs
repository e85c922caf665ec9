//! `POST` and `DELETE /v1/bans`, `DELETE /v1/bans/all`: sets and lifts bans.
//!
//! A ban is in force when the answer arrives. If the file of bans cannot be written, the answer says so: a ban must not
//! wait for a disk.

use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};

use super::access::Operator;
use super::answer::{Answered, Refused, json};
use super::audit::Audited;
use super::bans::{BanBody, Banned};
use super::body::{self, Json, NO_NETWORK, Parameters, Reason};
use super::edits::parsed_length;
use super::key::{self, KeyNameBody};
use super::keys::{refused, unknown_limit};
use super::state::{Admin, Call};
use crate::base::time::{Timestamp, saturating_ns};
use crate::engine::gate::{BanInForce, BanTarget, KeyName, Live, OperatorBan};

/// Most bans of operators.
const BANS_MAX: usize = 10_000;

/// Most bytes of a key. Replicas send 1024 bans in one message of 8 MiB at most.
const KEY_BYTES_MAX: usize = 4096;

/// A ban to set: of a key of a limit, or of addresses for all limits.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewBan)]
struct NewBanBody {
    /// The name of the limit.
    limit: Option<String>,
    /// The key: its parts by name, or its text as in `overrides`.
    key: Option<KeyNameBody>,
    /// The id of the key, in place of `key`.
    id: Option<String>,
    /// An address, or a network such as `192.0.2.0/24`, in place of `limit` and `key`.
    address: Option<String>,
    /// The length, such as `10min` or `24h`, or `forever`: the ban is for good until it is lifted.
    #[serde(rename = "for")]
    length: Option<String>,
    /// The reason, for the list of bans and the audit log.
    reason: Option<Reason>,
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
    reason: Option<Reason>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LiftAllQuery {
    /// The name of the limit whose bans end: those of operators and its own.
    limit: Option<String>,
    /// The network, in place of `limit`: all bans of addresses within it end.
    address: Option<String>,
    /// The reason, for the audit log.
    reason: Option<Reason>,
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

/// Bans that were lifted together.
#[derive(Serialize, ToSchema)]
#[schema(as = LiftedBans)]
struct LiftedBansBody {
    /// Lifted bans of operators.
    by_operators: usize,
    /// Lifted bans that the limit set.
    by_limit: usize,
    /// Why the change ends with the process; `null` if it is on disk.
    not_kept: Option<String>,
}

/// Bans a key of a limit, or addresses for all limits. A ban of the same clients is replaced.
#[utoipa::path(
    post,
    path = "/v1/bans",
    request_body = NewBanBody,
    responses(
        (status = 200, body = ChangedBanBody, description = "the ban, and the one before"),
        (status = 409, description = "there are 10,000 bans already"),
    )
)]
pub(super) async fn set(Call(admin, operator): Call, Json(asked): Json) -> Answered {
    let now = admin.gate.clock().now();
    // Bound apart, so that no policy is kept alive while the file is written.
    let (found, NewBan { length_ns, reason }) = read(&admin, &admin.live.load(), &asked)?;
    change(&admin, &operator, found, (true, length_ns, reason), now).await
}

/// Lifts a ban. A key that its limit has banned begins anew, too.
#[utoipa::path(
    delete,
    path = "/v1/bans",
    params(LiftQuery),
    responses((status = 200, body = ChangedBanBody, description = "the ban that was lifted"))
)]
pub(super) async fn lift(Call(admin, operator): Call, Parameters(asked): Parameters<LiftQuery>) -> Answered {
    let now = admin.gate.clock().now();
    let LiftQuery { limit, key, id, address, reason } = asked;
    let name = key.as_deref().map(key::name_of_text).transpose()?;
    let found = banned(&admin, &admin.live.load(), limit, (name, id), address)?;
    change(&admin, &operator, found, (false, None, reason.map(Into::into)), now).await
}

/// A ban to set.
struct NewBan {
    /// Nanoseconds; `None` for a ban for good.
    length_ns: Option<u64>,
    reason: Option<Box<str>>,
}

/// Reads a ban to set, and its clients.
fn read(admin: &Admin, live: &Live, asked: &Value) -> Result<(Banned, NewBan), Refused> {
    let NewBanBody { limit, key, id, address, length, reason } = body::object(asked)?;
    let name = key.map(key::name_of_body).transpose()?;
    let found = banned(admin, live, limit, (name, id), address)?;
    let length_ns = match length.as_deref() {
        Some("forever") => None,
        Some(text) => {
            Some(saturating_ns(parsed_length("for", text).map_err(|detail| format!("{detail}, or `forever`"))?))
        }
        None => {
            return Err("for: a ban has a length such as `10min` or `24h`, or is `forever`".to_owned().into());
        }
    };
    Ok((found, NewBan { length_ns, reason: reason.map(Into::into) }))
}

/// The clients that a request names.
fn banned(
    admin: &Admin,
    live: &Live,
    limit: Option<String>,
    (key, id): (Option<KeyName>, Option<String>),
    address: Option<String>,
) -> Result<Banned, Refused> {
    let bad = |detail: &str| Refused::from(detail.to_owned());
    match (limit, key, id, address) {
        (None, None, None, Some(address)) => {
            let network = body::network(&address).ok_or_else(|| format!("address: {NO_NETWORK}"))?;
            if network.prefix_len() == 0 {
                return Err(bad("address: this network has every client"));
            }
            Ok((BanTarget::Network(network), None))
        }
        (Some(limit), key, id, None) => {
            let name = match (key, id) {
                (Some(_), Some(_)) => return Err(bad("id: excludes `key`")),
                (None, Some(id)) => key::name_of_id(&id)?,
                (key, None) => key.unwrap_or_else(|| KeyName::Parts(Vec::new())),
            };
            let found = admin.gate.find_key(live, &limit, &name).map_err(|error| refused(live, &error))?;
            if found.texts.iter().flatten().map(String::len).sum::<usize>() > KEY_BYTES_MAX {
                return Err(format!("key: expected at most {KEY_BYTES_MAX} bytes, or an `id`").into());
            }
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
) -> Answered {
    let _changing = admin.bans.changing.lock().await;
    let all = admin.gate.operator_bans();
    let was = all.iter().find(|one| is_of(one, &banned));
    if sets && was.is_none() && all.len() >= BANS_MAX {
        return Err(Refused(StatusCode::CONFLICT, format!("there are {BANS_MAX} bans already")));
    }
    let ban_until = was.map(|one| one.ban.until);
    let was = was.map(BanBody::of);
    let (ban, was) = {
        let live = admin.live.load();
        let until = if sets { length.map(|ns| now.saturating_add_ns(ns)) } else { ban_until.flatten() };
        if sets || ban_until.is_some() {
            let ban = changed((banned.0.clone(), until, !sets), operator, reason.clone(), now);
            admin.gate.change_operator_bans(&live, [ban], now);
        }
        let pardoned = banned.1.as_ref().filter(|_| !sets).and_then(|found| admin.gate.pardon(&live, found, now));
        let of_limit = || pardoned.map(|ban_ns| BanBody::of_limit(&banned, ban_ns, now));
        let ban = admin.gate.operator_bans().iter().find(|one| sets && is_of(one, &banned)).map(BanBody::of);
        (ban, was.or_else(of_limit))
    };
    if !sets && was.is_none() {
        return Err(Refused(StatusCode::NOT_FOUND, no_such_ban(&all, &banned.0)));
    }
    let not_kept = store(admin, Some(&banned.0).filter(|_| sets)).await;
    let shown = ban.as_ref().or(was.as_ref()).cloned().unwrap_or_default();
    let target = shown
        .address
        .clone()
        .map_or_else(|| shown.key.clone().unwrap_or_else(|| value!({ "id": shown.id })), Value::from);
    tracing::info!(limit = shown.limit, %target, until = shown.until, reason = reason.as_deref(), "{}", if sets { "a ban begins" } else { "a ban was lifted" });
    let until = |ban: &Option<BanBody>| ban.as_ref().map_or(Value::Null, |ban| value!({ "until": ban.until }));
    let (action, limit, reason) = (if sets { "ban" } else { "lift_ban" }, shown.limit, reason.map(Into::into));
    let (before, after) = (until(&was), until(&ban));
    let change = Audited { action, limit, target, before, after, reason, outcome: None };
    admin.record(operator, vec![change]).await;
    Ok(json(StatusCode::OK, &ChangedBanBody { ban, was, not_kept }))
}

/// Says that there is no ban of `target`, and how many bans are within it if it is a network.
fn no_such_ban(all: &[BanInForce], target: &BanTarget) -> String {
    let within = |one: &&BanInForce| match (&one.ban.target, target) {
        (BanTarget::Network(banned), BanTarget::Network(network)) => network.contains(banned),
        _ => false,
    };
    match all.iter().filter(within).count() {
        0 => "there is no such ban".to_owned(),
        bans => format!(
            "there is no such ban; {bans} bans are within this network, and `/v1/bans/all` or `--all` lifts them"
        ),
    }
}

/// A ban that an operator sets or lifts now.
fn changed(
    (target, until, is_lifted): (BanTarget, Option<Timestamp>, bool),
    operator: &Operator,
    reason: Option<Box<str>>,
    now: Timestamp,
) -> OperatorBan {
    let (since, replica, replaced_until, token) = (now, 0, None, operator.token.clone());
    OperatorBan { target, until, since, replica, is_lifted, replaced_until, reason, token }
}

/// Writes all bans to their file, also a new one of the target `set`. Returns why a change ends with the process; `None` if
/// it does not.
async fn store(admin: &Admin, set: Option<&BanTarget>) -> Option<String> {
    let (file, bans, set_ns) =
        (Arc::clone(&admin.bans), admin.gate.all_operator_bans(), admin.gate.clock().set_since_start());
    let written = spawn_blocking(move || file.write(&bans, set_ns)).await;
    let not_written = written.unwrap_or_else(|error| Err(error.to_string())).err();
    let not_kept = not_written.or_else(|| admin.bans.reason_of_end(set?));
    if let Some(reason) = &not_kept {
        tracing::warn!(reason, "a change of bans ends with the process");
    }
    not_kept
}

/// Lifts all bans of a limit, or all bans of addresses within a network.
#[utoipa::path(
    delete,
    path = "/v1/bans/all",
    params(LiftAllQuery),
    responses((status = 200, body = LiftedBansBody, description = "the number of bans that were lifted"))
)]
pub(super) async fn lift_all(Call(admin, operator): Call, Parameters(asked): Parameters<LiftAllQuery>) -> Answered {
    let now = admin.gate.clock().now();
    let LiftAllQuery { limit, address, reason } = asked;
    let network = match (&limit, address.as_deref().map(body::network)) {
        (Some(_), None) => None,
        (None, Some(Some(network))) => Some(network),
        (None, Some(None)) => return Err(format!("address: {NO_NETWORK}").into()),
        _ => return Err("expected `limit` or `address`".to_owned().into()),
    };
    let _changing = admin.bans.changing.lock().await;
    let is_asked = |target: &BanTarget| match target {
        BanTarget::Key(of, _) | BanTarget::Hash(of, _) => limit.as_deref() == Some(&**of),
        BanTarget::Network(banned) => network.is_some_and(|network| network.contains(banned)),
    };
    let (by_operators, by_limit) = {
        let live = admin.live.load();
        let bans = admin.gate.operator_bans().into_iter().map(|one| one.ban).filter(|ban| is_asked(&ban.target));
        let lifted = |ban: OperatorBan| changed((ban.target, ban.until, true), &operator, None, now);
        let lifted: Vec<_> = bans.map(lifted).collect();
        let by_operators = lifted.len();
        admin.gate.change_operator_bans(&live, lifted, now);
        let by_limit = limit.as_deref().map(|limit| admin.gate.pardon_all(&live, limit, now));
        if by_limit == Some(None) && by_operators == 0 {
            return Err(unknown_limit(&live));
        }
        (by_operators, by_limit.flatten().unwrap_or_default())
    };
    let not_kept = if by_operators > 0 { store(&admin, None).await } else { None };
    let count = |by_operators, by_limit| value!({ "by_operators": by_operators, "by_limit": by_limit });
    let target = value!({ "all": address.map_or(value!(true), Value::from) });
    let (before, after, reason) = (count(by_operators, by_limit), count(0, 0), reason.map(Into::into));
    let change = Audited { action: "lift_bans", limit, target, before, after, reason, outcome: None };
    admin.record(&operator, vec![change]).await;
    Ok(json(StatusCode::OK, &LiftedBansBody { by_operators, by_limit, not_kept }))
}
