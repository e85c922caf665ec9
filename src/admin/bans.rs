//! `GET /v1/bans`: lists bans.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, json};
use super::body::Parameters;
use super::state::Admin;
use super::times::rfc3339;
use crate::base::time::Timestamp;
use crate::engine::gate::{BanInForce, BanTarget, FoundKey, LimitBans, OperatorBan};
use crate::engine::limit::Key;

/// Most bans by a limit that one answer lists.
const LISTED_MAX: usize = 1000;

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

/// The clients of a ban, with their key if they have one.
pub(super) type Banned = (BanTarget, Option<FoundKey>);

impl BanBody {
    /// A ban of an operator.
    pub(super) fn of(one: &BanInForce) -> Self {
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
    pub(super) fn of_limit((target, found): &Banned, ban_ns: u64, now: Timestamp) -> Self {
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
