//! `GET /v1/top`: for each limit, the keys with the most refused or held requests, and the networks of their clients.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answered, json};
use super::body::Parameters;
use super::keys::unknown_limit;
use super::state::Admin;
use crate::engine::gate::{HALF_LIFE_NS, TOP_KEYS, TopKeys};
use crate::engine::limit::top::TopKey;

/// The default number of keys.
const KEYS_DEFAULT: usize = 20;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TopQuery {
    /// The name of one limit; all limits by default.
    limit: Option<String>,
    /// The number of keys of each limit, and of networks, from 1 to 512; 20 by default.
    n: Option<usize>,
}

/// The keys with the most refused or held requests.
#[derive(Serialize, ToSchema)]
#[schema(as = Top)]
pub(super) struct TopBody {
    /// The limits in the order of the configuration.
    limits: Vec<LimitTop>,
    /// The addresses that operators banned, with their requests.
    banned_addresses: Vec<CountedKey>,
    /// The networks whose clients limits and bans refused or held most: IPv4 by /24, IPv6 by /48.
    networks: Vec<CountedKey>,
    /// Seconds in which all counts are halved.
    half_life_s: u64,
}

/// The keys of one limit with the most refused or held requests.
#[derive(Serialize, ToSchema)]
struct LimitTop {
    /// The name of the limit.
    limit: Box<str>,
    /// Requests that were counted.
    total: u64,
    /// Requests that were not counted, because another thread was counting.
    missed: u64,
    /// Those with the most requests of the last minute first, then the most frequent.
    keys: Vec<CountedKey>,
}

/// A key with its refused or held requests: at least `count - error`, at most `count`.
#[derive(Serialize, ToSchema)]
struct CountedKey {
    /// The parts of the key without secrets, with `|` between them.
    key: Box<str>,
    /// An upper bound on the requests.
    count: u64,
    /// The largest error of `count`.
    error: u64,
    /// A lower bound on the requests of the last 50 to 60 seconds.
    last_minute: u64,
}

/// The keys with the most refused or held requests.
#[utoipa::path(
    get,
    path = "/v1/top",
    params(TopQuery),
    responses(
        (status = 200, body = TopBody, description = "the keys of each limit"),
        (status = 404, description = "the limit does not exist"),
    )
)]
pub(super) async fn top(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<TopQuery>) -> Answered {
    let n = asked.n.unwrap_or(KEYS_DEFAULT);
    if !(1..=TOP_KEYS).contains(&n) {
        return Err(format!("n: expected a whole number from 1 to {TOP_KEYS}").into());
    }
    let live = admin.live.load();
    let tops = admin.gate.top(&live, asked.limit.as_deref(), n);
    if asked.limit.is_some() && tops.is_empty() {
        return Err(unknown_limit(&live));
    }
    let limits = tops.into_iter().map(LimitTop::from).collect();
    let [banned_addresses, networks] =
        [admin.gate.top_banned(n), admin.gate.top_networks(n)].map(|top| LimitTop::from(top).keys);
    let half_life_s = HALF_LIFE_NS / 1_000_000_000;
    Ok(json(StatusCode::OK, &TopBody { limits, banned_addresses, networks, half_life_s }))
}

impl From<TopKeys> for LimitTop {
    fn from(TopKeys { limit, total, missed, keys }: TopKeys) -> Self {
        let counted =
            |TopKey { text: key, count, error, recent: last_minute, .. }| CountedKey { key, count, error, last_minute };
        Self { limit, total, missed, keys: keys.into_iter().map(counted).collect() }
    }
}
