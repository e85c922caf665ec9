//! `/v1/upstreams`: the services, with the state and the figures of each endpoint.
//!
//! Not here: the orders of operators about endpoints (`endpoint_orders`).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{Answer, json};
use super::state::Admin;
use super::times::rfc3339;
use crate::transport::upstream::orders::EndpointOrder;
use crate::transport::upstream::{EndpointStatus, Figures, UpstreamStatus};

/// All upstreams.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Upstreams)]
pub struct UpstreamsBody {
    /// In the order of the configuration.
    pub upstreams: Vec<UpstreamBody>,
}

/// An upstream with its endpoints.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Upstream)]
pub struct UpstreamBody {
    /// The name; `upstream` for `[upstream]`.
    pub upstream: String,
    /// Requests that wait for a connection now.
    pub queued: usize,
    /// Requests that were refused so far because the queue was full, or because they waited for too long.
    pub queue_refused: u64,
    /// In the order of the configuration. Each address of a name is an endpoint.
    pub endpoints: Vec<EndpointBody>,
}

/// An endpoint, or one address of its name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Endpoint)]
pub struct EndpointBody {
    /// As configured.
    pub endpoint: String,
    /// The address that a lookup of its name returned; `null` without a lookup.
    pub address: Option<String>,
    /// `up`, `unhealthy` by its checks, `ejected` after failed requests, `returning` after an ejection, `unresolved`,
    /// `draining` while requests are active, `drained`.
    pub state: String,
    /// The reason of the state.
    pub why: Option<String>,
    /// When the state began.
    pub since: String,
    /// When the state ends by itself; `null` if that is not known.
    pub until: Option<String>,
    /// Its weight: its part of the requests, relative to the weights of the other endpoints.
    pub weight: u16,
    /// The orders of operators about it.
    pub orders: Vec<OrderBody>,
    /// Active requests.
    pub active: u64,
    /// Open connections.
    pub connections: usize,
    /// Requests so far.
    pub requests: u64,
    /// Failed requests so far: no connection, no answer, or a status of 502, 503 or 504.
    pub errors: u64,
    /// The last minute.
    pub last_minute: MinuteBody,
}

/// An order of an operator about an endpoint.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EndpointOrder)]
pub struct OrderBody {
    /// The endpoint as configured, or one address of its name.
    pub endpoint: String,
    /// The weight; `null` for a drain.
    pub weight: Option<u16>,
    /// When it was given.
    pub since: String,
    /// When it ends by itself; `null` if it does not.
    pub until: Option<String>,
    /// The name of the operator's token.
    pub token: Option<String>,
    /// The reason that the operator gave.
    pub reason: Option<String>,
}

/// The figures of an endpoint in the last minute.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EndpointMinute)]
pub struct MinuteBody {
    /// The seconds that the figures cover: at most 60, fewer after the start.
    pub seconds: f64,
    /// Requests.
    pub requests: u64,
    /// Failed requests.
    pub errors: u64,
    /// The mean of the milliseconds from the start of forwarding to the response head; `null` without responses.
    pub mean_ms: Option<f64>,
    /// Their median, between the bounds of a histogram from 0.25 ms to 10 s.
    pub p50_ms: Option<f64>,
    /// Their 90th percentile.
    pub p90_ms: Option<f64>,
}

/// The upstreams with their endpoints.
#[utoipa::path(
    get,
    path = "/v1/upstreams",
    responses((status = 200, body = UpstreamsBody, description = "the state and the figures of each endpoint"))
)]
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Answer {
    json(StatusCode::OK, &UpstreamsBody { upstreams: all(&admin) })
}

/// All upstreams now.
pub(super) fn all(admin: &Admin) -> Vec<UpstreamBody> {
    let (in_force, clock) = (admin.upstreams.in_force(), admin.gate.clock());
    let all = in_force.settings.iter().zip(&in_force.states);
    all.map(|(settings, state)| UpstreamBody::of(UpstreamStatus::of(settings, state, clock))).collect()
}

impl OrderBody {
    fn of(order: EndpointOrder) -> Self {
        let EndpointOrder { endpoint, weight, since, until, token, reason, .. } = order;
        let (since, until) = (rfc3339(since), until.map(rfc3339));
        let [token, reason] = [token, reason].map(|text| text.map(Into::into));
        Self { endpoint: endpoint.into(), weight, since, until, token, reason }
    }
}

impl UpstreamBody {
    fn of(status: UpstreamStatus) -> Self {
        let UpstreamStatus { name, queued, queue_full, queue_timeout, endpoints } = status;
        let endpoints = endpoints.into_iter().map(EndpointBody::of).collect();
        Self { upstream: name.into(), queued, queue_refused: queue_full + queue_timeout, endpoints }
    }
}

impl EndpointBody {
    /// Whether it gets requests.
    pub(super) fn serves(&self) -> bool {
        ["up", "returning"].contains(&&*self.state)
    }

    /// The order that drains it.
    pub(super) fn drain(&self) -> Option<&OrderBody> {
        self.orders.iter().find(|order| order.weight.is_none())
    }

    fn of(status: EndpointStatus) -> Self {
        let EndpointStatus { endpoint, address, condition, why, since, until, preference, orders, active, .. } = status;
        Self {
            endpoint,
            address: address.map(|address| address.to_string()),
            state: condition.label().to_owned(),
            why,
            since: rfc3339(since),
            until: until.map(rfc3339),
            weight: preference.weight,
            orders: orders.into_iter().map(OrderBody::of).collect(),
            active,
            connections: status.connections,
            requests: status.total.requests,
            errors: status.total.errors,
            last_minute: MinuteBody::of(status.last_minute),
        }
    }
}

impl MinuteBody {
    fn of((covered, Figures { requests, errors, latency }): (Duration, Figures)) -> Self {
        let ms = |seconds: f64| (seconds * 1e6).round() / 1e3;
        Self {
            seconds: (covered.as_secs_f64() * 10.0).round() / 10.0,
            requests,
            errors,
            mean_ms: latency.mean().map(ms),
            p50_ms: latency.quantile(0.5).map(ms),
            p90_ms: latency.quantile(0.9).map(ms),
        }
    }
}
