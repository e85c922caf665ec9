//! `GET /v1/client`: what all limits know of one client, named by its identities or its address.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answered, Refused, json};
use super::bans::BanBody;
use super::body::Parameters;
use super::followed::{self, Followed, FollowedClients};
use super::keys::{self, KeyBody};
use super::page::verdict::{self, KeyVerdict};
use super::state::Admin;
use super::tap::decision_json;
use super::times::rfc3339;
use crate::base::telemetry::{RequestRecord, TapFilter};
use crate::base::time::Timestamp;
use crate::engine::gate::{BanTarget, ClientKeys, FoundKey, KeyError, KeyName, Live};
use crate::engine::policy::KeyPart;
use crate::engine::policy::access::AccessRule;
use crate::engine::policy::client_ip::unmap;

/// The most keys of a limit of which the client names only a part.
const KEYS_MAX: usize = 20;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ClientQuery {
    /// The client: an identity, `ip` or another part of keys, as in `seller=777`; or a JSON object of several of them.
    key: String,
    /// The plan by whose numbers limits decide.
    plan: Option<String>,
}

/// What limits know of a client.
#[derive(Serialize, ToSchema)]
#[schema(as = Client)]
pub(super) struct ClientBody {
    /// What happens to the client, in one sentence.
    pub(super) verdict: String,
    /// Whether its requests pass.
    pub(super) passes: bool,
    /// `deny` or `allow`: what `[access]` says about the identities and the address; `null` for nothing.
    pub(super) access: Option<String>,
    /// The bans of operators that have the address.
    pub(super) bans: Vec<BanBody>,
    /// The limits whose keys have a part of the client, and those with one budget for all requests.
    pub(super) limits: Vec<ClientLimitBody>,
    /// The names of the limits with other keys.
    pub(super) other_limits: Vec<String>,
    /// The last requests; `null` if all taps are open, or no part of the client selects requests.
    pub(super) decisions: Option<DecisionsBody>,
}

/// The keys of a client in one limit.
#[derive(Serialize, ToSchema)]
#[schema(as = ClientLimit)]
pub(super) struct ClientLimitBody {
    /// The name of the limit.
    pub(super) limit: String,
    /// The parts of its key that the client does not name.
    pub(super) missing: Vec<String>,
    /// The key of the client. If parts are missing: the keys with the others, as far as their names are known, at most 20.
    pub(super) keys: Vec<ClientKeyBody>,
}

/// A key of a client.
#[derive(Serialize, ToSchema)]
#[schema(as = ClientKey)]
pub(super) struct ClientKeyBody {
    /// Which rate refuses its requests, and until when, in one sentence.
    pub(super) verdict: String,
    /// Whether its requests pass.
    pub(super) passes: bool,
    /// The end of the override or plan that was set at run time; `null` if it has none.
    pub(super) override_until: Option<String>,
    /// The state.
    pub(super) key: KeyBody,
}

/// The last requests of a client since the first look. Weir keeps the last 50 until nobody looks for half a minute.
#[derive(Serialize, ToSchema)]
#[schema(as = Decisions)]
pub(super) struct DecisionsBody {
    /// The first look.
    pub(super) since: String,
    /// Requests that ended since.
    pub(super) count: u64,
    /// The requests as in an event of `/v1/tap`, the newest first.
    #[schema(value_type = Vec<Object>)]
    pub(super) requests: Vec<Value>,
}

/// What all limits know of one client: its keys, bans, overrides, plan and last requests.
#[utoipa::path(
    get,
    path = "/v1/client",
    params(ClientQuery),
    responses((status = 200, body = ClientBody, description = "the client"))
)]
pub(super) async fn client(
    State(admin): State<Arc<Admin>>,
    Extension(followed_clients): Extension<Arc<FollowedClients>>,
    Parameters(asked): Parameters<ClientQuery>,
) -> Answered {
    let (mut body, filter) = shown(&admin, &asked.key, asked.plan.as_deref()).await?;
    let followed = filter.and_then(|filter| followed::look(&admin, &followed_clients, &filter));
    body.decisions = followed.map(DecisionsBody::of);
    Ok(json(StatusCode::OK, &body))
}

/// The parts of a client by name.
///
/// # Errors
/// The text is neither `NAME=TEXT` nor a JSON object, or `ip` is no address.
fn parts_of(text: &str) -> Result<Vec<(String, String)>, String> {
    let named = match serde_json::from_str(text) {
        Ok(Value::Object(parts)) if !parts.is_empty() => super::key::texts(parts)?,
        _ => match text.split_once('=') {
            Some((name, value)) => vec![(name.to_owned(), value.to_owned())],
            None => {
                return Err("key: expected a name and a text, as in `seller=777`, or a JSON object".to_owned());
            }
        },
    };
    if let Some((name, _)) = named.iter().find(|(_, text)| text.is_empty()) {
        return Err(format!("key: `{name}` is empty, so no request has it"));
    }
    match named.iter().find(|(name, text)| name == "ip" && text.parse::<IpAddr>().is_err()) {
        Some((_, text)) => Err(format!("key: `{text}` is not an address")),
        None => Ok(named),
    }
}

/// The client `text` without its requests, and the filter that selects them.
pub(super) async fn shown(
    admin: &Admin,
    text: &str,
    plan: Option<&str>,
) -> Result<(ClientBody, Option<TapFilter>), Refused> {
    let named = parts_of(text)?;
    let stored = |live: &Live| {
        let of_limits = admin.gate.keys_of_client(live, &named, KEYS_MAX).unwrap_or_default();
        let found = of_limits.iter().flat_map(|of| &of.keys);
        found.filter_map(|found| admin.gate.stored_key(live, found, plan)).collect()
    };
    admin.hear_stores(stored).await;
    let (live, now) = (admin.live.load(), admin.gate.clock().now());
    let of_limits = admin.gate.keys_of_client(&live, &named, KEYS_MAX);
    let of_limits = of_limits.map_err(|error| unknown_part(&live, &error))?;
    let address = named.iter().find(|(name, _)| name == "ip").and_then(|(_, text)| text.parse::<IpAddr>().ok());
    let address = address.map(unmap);
    let bans = admin.gate.operator_bans();
    let bans = bans.iter().filter(|one| match &one.ban.target {
        BanTarget::Network(network) => address.is_some_and(|address| network.contains(&address)),
        BanTarget::Key(..) | BanTarget::Hash(..) => false,
    });
    let mut body = ClientBody {
        verdict: String::new(),
        passes: false,
        access: admin.gate.access_of_client(&live, &named).map(|rule| match rule {
            AccessRule::Deny => "deny".to_owned(),
            AccessRule::Allow => "allow".to_owned(),
        }),
        bans: bans.map(BanBody::of).collect(),
        limits: Vec::new(),
        other_limits: Vec::new(),
        decisions: None,
    };
    let names = of_limits.iter().map(|of| &of.limit.name).collect::<Vec<_>>();
    let others = live.policy.limits().iter().filter(|limit| !names.contains(&&limit.name));
    body.other_limits = others.map(|limit| limit.name.to_string()).collect();
    let filter = filter_of(&of_limits, address);
    for ClientKeys { limit, missing, keys } in of_limits {
        let key = |found: &FoundKey| key_body(admin, &live, (&limit.name, found), plan, now);
        let keys = keys.iter().map(key).collect::<Result<_, _>>()?;
        body.limits.push(ClientLimitBody { limit: limit.name.to_string(), missing, keys });
    }
    (body.passes, body.verdict) = sentence(&body);
    Ok((body, filter))
}

/// Says which parts of keys there are.
fn unknown_part(live: &Live, error: &KeyError) -> String {
    let KeyError::UnknownPart(part) = error else { return error.to_string() };
    let names: Vec<_> = part_names(live).iter().map(|name| format!("`{name}`")).collect();
    format!("key: no limit counts by `{part}`; limits count by {}", names.join(", "))
}

/// The names of the parts of a client, as far as keys of limits have them. `ip` stands for all parts that count addresses.
pub(super) fn part_names(live: &Live) -> BTreeSet<String> {
    let parts = live.policy.limits().iter().flat_map(|limit| &limit.key);
    let name = |part: &KeyPart| match part {
        KeyPart::Network { .. } => "ip".to_owned(),
        part => live.policy.part_name(part).into_owned(),
    };
    parts.map(name).collect()
}

/// Selects the requests of the client: by its address, and by its keys that have another part; `None` if it has neither.
fn filter_of(of_limits: &[ClientKeys<'_>], address: Option<IpAddr>) -> Option<TapFilter> {
    let is_own = |of: &&ClientKeys<'_>| {
        let counts_addresses = |part: &KeyPart| matches!(part, KeyPart::Ip | KeyPart::Network { .. });
        of.missing.is_empty() && !of.limit.key.iter().all(counts_addresses)
    };
    let key = |of: &ClientKeys<'_>| {
        of.keys.first().map(|found| (of.limit.name.to_string(), [found.key.first, found.key.second]))
    };
    let keys: Vec<_> = of_limits.iter().filter(is_own).filter_map(key).collect();
    let client = address.map(IpNet::from);
    (client.is_some() || !keys.is_empty()).then(|| TapFilter { keys, client, ..TapFilter::default() })
}

fn key_body(
    admin: &Admin,
    live: &Live,
    (limit, found): (&str, &FoundKey),
    plan: Option<&str>,
    now: Timestamp,
) -> Result<ClientKeyBody, Refused> {
    let key = keys::state(admin, live, (limit, found), plan, now)?;
    let rule = live.policy.by_name(limit).ok_or_else(|| keys::unknown_limit(live))?.limit;
    let verdict = KeyVerdict::of(&key, &rule.on_limit, now);
    let until = || {
        let in_force = admin.overrides.in_force.load();
        let is_own = |text: &str| {
            admin.gate.find_key(live, limit, &KeyName::Text(text.to_owned())).is_ok_and(|own| own.key == found.key)
        };
        in_force.iter().find(|one| *one.limit == *limit && is_own(&one.key))?.until
    };
    let override_until = if key.from.ends_with("at run time") { until().map(rfc3339) } else { None };
    Ok(ClientKeyBody { passes: verdict.class == "good", verdict: verdict.text, override_until, key })
}

/// Whether the requests of a client pass, and why, in one sentence.
fn sentence(body: &ClientBody) -> (bool, String) {
    if let Some(ban) = body.bans.first() {
        let address = ban.address.as_deref().unwrap_or_default();
        return (false, verdict::of_ban(address, ban.until.as_deref()));
    }
    match body.access.as_deref() {
        Some("deny") => return (false, "[access] refuses each request with 403.".to_owned()),
        Some(_) => return (true, "[access] frees it from limits.".to_owned()),
        None => {}
    }
    let own = || body.limits.iter().filter(|limit| limit.missing.is_empty()).flat_map(|limit| &limit.keys);
    if let Some(refusing) = own().find(|key| !key.passes) {
        // The sentence about a ban names no limit.
        let limit = refusing.key.banned_until.as_ref().map(|_| format!("{}: ", refusing.key.limit));
        return (false, limit.unwrap_or_default() + &refusing.verdict);
    }
    let refuses = |limit: &&ClientLimitBody| limit.keys.iter().any(|key| !key.passes);
    let partly: Vec<_> = body.limits.iter().filter(refuses).map(|limit| &*limit.limit).collect();
    if !partly.is_empty() {
        return (false, format!("Refused in part, by {}: other requests pass.", partly.join(", ")));
    }
    match own().count() {
        0 => (true, "No limit counts by these parts alone.".to_owned()),
        1 => (true, "The limit admits it.".to_owned()),
        limits => (true, format!("All {limits} limits admit it.")),
    }
}

impl DecisionsBody {
    fn of(Followed { since, count, requests }: Followed) -> Self {
        let request =
            |request: &Arc<RequestRecord>| serde_json::from_slice(&decision_json(request)).unwrap_or_default();
        Self { since: rfc3339(since), count, requests: requests.iter().map(request).collect() }
    }
}
