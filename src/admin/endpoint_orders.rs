//! `/v1/upstreams/drain`, `undrain` and `weight`: orders of operators about endpoints, and their ends.
//!
//! An order is in force when the answer arrives. It outlives reloads and takeovers, and ends with the process.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json as value};
use tokio::time::{MissedTickBehavior, interval};
use utoipa::ToSchema;

use super::access::Operator;
use super::answer::{Answered, Refused, json};
use super::audit::{self, Audited};
use super::body::{self, Json, Reason};
use super::edits::parsed_length;
use super::state::{Admin, Call};
use super::times::rfc3339;
use super::upstreams::{self, UpstreamBody};
use crate::base::time::saturating_ns;
use crate::transport::upstream::operate;
use crate::transport::upstream::orders::{EndpointOrder, OrderError};

/// The interval at which orders whose time is over are ended.
const END_EVERY: Duration = Duration::from_secs(1);

/// A drain of an endpoint.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Drain)]
struct DrainBody {
    /// The name of the upstream; `upstream` for `[upstream]`.
    upstream: Box<str>,
    /// The endpoint as configured, with or without its scheme, or one address of its name.
    endpoint: Box<str>,
    /// How long, such as `10min`; without it until `undrain`.
    #[serde(rename = "for")]
    length: Option<String>,
    /// Whether to drain it even if no other endpoint of the upstream is up.
    #[serde(default)]
    force: bool,
    /// The reason, for the state of the endpoint and the audit log.
    reason: Option<Reason>,
}

/// The end of a drain.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Undrain)]
struct UndrainBody {
    /// The name of the upstream.
    upstream: Box<str>,
    /// The endpoint, as for the drain.
    endpoint: Box<str>,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

/// A weight of an endpoint.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EndpointWeight)]
struct WeightBody {
    /// The name of the upstream.
    upstream: Box<str>,
    /// The endpoint, as for a drain.
    endpoint: Box<str>,
    /// A whole number from 1 to 65535, relative to the weights of the other endpoints; `null` for that of the DNS, or 1.
    weight: Option<u64>,
    /// How long, such as `10min`; without it until the next weight.
    #[serde(rename = "for")]
    length: Option<String>,
    /// The reason, for the audit log.
    reason: Option<Reason>,
}

/// Drains an endpoint: it gets no new request, active requests finish, and its checks go on.
#[utoipa::path(
    post,
    path = "/v1/upstreams/drain",
    request_body = DrainBody,
    responses(
        (status = 200, body = UpstreamBody, description = "the upstream with its endpoints"),
        (status = 409, description = "no other endpoint of the upstream is up"),
    )
)]
pub(super) async fn drain(Call(admin, operator): Call, Json(asked): Json) -> Answered {
    let DrainBody { upstream, endpoint, length, force, reason } = body::object(&asked)?;
    let order = order(&admin, &operator, (upstream, endpoint), (length, reason))?;
    give(&admin, &operator, order, force).await
}

/// Ends the drain of an endpoint.
#[utoipa::path(
    post,
    path = "/v1/upstreams/undrain",
    request_body = UndrainBody,
    responses((status = 200, body = UpstreamBody, description = "the upstream with its endpoints"))
)]
pub(super) async fn undrain(Call(admin, operator): Call, Json(asked): Json) -> Answered {
    let UndrainBody { upstream, endpoint, reason } = body::object(&asked)?;
    end(&admin, &operator, (&upstream, &endpoint, true), reason).await
}

/// Sets the weight of an endpoint.
#[utoipa::path(
    post,
    path = "/v1/upstreams/weight",
    request_body = WeightBody,
    responses(
        (status = 200, body = UpstreamBody, description = "the upstream with its endpoints"),
        (status = 409, description = "there are too many orders"),
    )
)]
pub(super) async fn weight(Call(admin, operator): Call, Json(asked): Json) -> Answered {
    let WeightBody { upstream, endpoint, weight, length, reason } = body::object(&asked)?;
    let Some(weight) = weight else { return end(&admin, &operator, (&upstream, &endpoint, false), reason).await };
    let order = order(&admin, &operator, (upstream, endpoint), (length, reason))?;
    if weight == 0 {
        let detail = "weight: expected at least 1; drain the endpoint so that it gets no requests";
        return Err(detail.to_owned().into());
    }
    let weight = u16::try_from(weight).map_err(|_| format!("weight: expected at most {}", u16::MAX))?;
    give(&admin, &operator, EndpointOrder { weight: Some(weight), ..order }, true).await
}

/// A drain that an operator orders now.
fn order(
    admin: &Admin,
    operator: &Operator,
    (upstream, endpoint): (Box<str>, Box<str>),
    (length, reason): (Option<String>, Option<Reason>),
) -> Result<EndpointOrder, String> {
    let since = admin.gate.clock().now();
    let length = length.map(|text| parsed_length("for", &text)).transpose()?;
    let until = length.map(|length| since.saturating_add_ns(saturating_ns(length)));
    let (token, reason) = (operator.token.clone(), reason.map(Into::into));
    Ok(EndpointOrder { upstream, endpoint, weight: None, since, until, token, reason })
}

/// Puts an order in force.
async fn give(admin: &Admin, operator: &Operator, order: EndpointOrder, is_forced: bool) -> Answered {
    let in_force = admin.upstreams.in_force();
    let (order, before) = operate::give((&in_force.settings, &in_force.states), order, is_forced)?;
    let change = audited(&order, before.as_ref(), Some(&order), order.reason.clone());
    admin.record(operator, vec![change]).await;
    answer(admin, &order.upstream)
}

/// Ends an order: the drain or the weight of an endpoint.
async fn end(
    admin: &Admin,
    operator: &Operator,
    (upstream, endpoint, is_drain): (&str, &str, bool),
    reason: Option<Reason>,
) -> Answered {
    let order = operate::end(&admin.upstreams.in_force().states, upstream, endpoint, is_drain)?;
    let change = audited(&order, Some(&order), None, reason.map(Into::into));
    admin.record(operator, vec![change]).await;
    answer(admin, upstream)
}

/// The upstream after a change.
fn answer(admin: &Admin, upstream: &str) -> Answered {
    let found = upstreams::all(admin).into_iter().find(|one| one.upstream == upstream);
    Ok(json(StatusCode::OK, &found.ok_or(OrderError::UnknownUpstream(Vec::new()))?))
}

impl From<OrderError> for Refused {
    fn from(error: OrderError) -> Self {
        let status = match &error {
            OrderError::UnknownUpstream(_) | OrderError::UnknownEndpoint(_) | OrderError::NoOrder => {
                StatusCode::NOT_FOUND
            }
            OrderError::LastEndpoint | OrderError::OthersOut | OrderError::TooMany => StatusCode::CONFLICT,
        };
        Self(status, error.to_string())
    }
}

/// The line of the audit log about an order.
fn audited(
    order: &EndpointOrder,
    before: Option<&EndpointOrder>,
    after: Option<&EndpointOrder>,
    reason: Option<Box<str>>,
) -> Audited {
    let state = |order: Option<&EndpointOrder>| {
        order.map_or(Value::Null, |order| match (order.weight, order.until.map(rfc3339)) {
            (None, None) => value!("drained"),
            (None, Some(ends)) => value!({ "drained": true, "ends": ends }),
            (Some(weight), None) => value!({ "weight": weight }),
            (Some(weight), Some(ends)) => value!({ "weight": weight, "ends": ends }),
        })
    };
    Audited {
        action: match (order.weight, after) {
            (Some(_), _) => "weight",
            (None, Some(_)) => "drain",
            (None, None) => "undrain",
        },
        limit: None,
        target: value!({ "upstream": order.upstream, "endpoint": order.endpoint }),
        before: state(before),
        after: state(after),
        reason: reason.map(Into::into),
        outcome: None,
    }
}

/// Ends orders whose time is over, until dropped.
pub async fn end_orders(admin: Admin) {
    let mut ticks = interval(END_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = admin.gate.clock().now();
        for order in operate::end_over(&admin.upstreams.in_force().states, now) {
            record_end(&admin, &order).await;
        }
    }
}

async fn record_end(admin: &Admin, order: &EndpointOrder) {
    let change = audited(order, Some(order), None, Some("its time is over".into()));
    audit::record((&admin.access.load_full(), &admin.audit), None, vec![change]).await;
}
