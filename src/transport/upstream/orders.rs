//! Orders of operators about endpoints, set at run time: drains and weights.
//!
//! An order is about an endpoint as configured, with all addresses of its name, or about one of these addresses. It
//! outlives reloads that keep its endpoint. Only the control runtime reads orders; requests read their effect in the state
//! of the endpoint. Not here: how they are given and ended (`operate`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::base::time::{Clock, Timestamp};

/// An order about an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndpointOrder {
    /// The name of the upstream in metrics.
    pub(crate) upstream: Box<str>,
    /// An endpoint as configured, or one address of its name.
    pub(crate) endpoint: Box<str>,
    /// The weight; none for a drain.
    pub(crate) weight: Option<u16>,
    /// When the order was given.
    pub(crate) since: Timestamp,
    /// When it ends by itself; none if it does not.
    pub(crate) until: Option<Timestamp>,
    /// The name of the operator's token.
    pub(crate) token: Option<Box<str>>,
    /// The reason that the operator gave.
    pub(crate) reason: Option<Box<str>>,
}

/// Why an order is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrderError {
    /// There is no such upstream. These exist.
    #[error("there is no such upstream; there are {}", .0.join(", "))]
    UnknownUpstream(Vec<String>),
    /// The upstream has no such endpoint. It has these.
    #[error("the upstream has no such endpoint; it has {}", .0.join(", "))]
    UnknownEndpoint(Vec<String>),
    /// There is no such order to end.
    #[error("no such order was given about this endpoint")]
    NoOrder,
    /// No endpoint of the upstream would be left.
    #[error("no endpoint of the upstream would be left, and clients would get 503; `force` drains it all the same")]
    LastEndpoint,
    /// All other endpoints of the upstream are out.
    #[error("the other endpoints of the upstream are out; `force` drains this one all the same")]
    OthersOut,
    /// The upstream has [`ORDERS_MAX`] orders.
    #[error("there are {ORDERS_MAX} orders about this upstream already")]
    TooMany,
}

/// Most orders about the endpoints of one upstream.
const ORDERS_MAX: usize = 1000;

/// The orders about the endpoints of one upstream: at most one drain and one weight of each endpoint.
#[derive(Debug, Default)]
pub(crate) struct Orders(Mutex<Vec<EndpointOrder>>);

impl EndpointOrder {
    /// Whether both are drains, or both weights, of the same endpoint.
    fn is_like(&self, other: &Self) -> bool {
        self.endpoint == other.endpoint && self.is_drain() == other.is_drain()
    }

    /// Whether it is a drain.
    pub(super) fn is_drain(&self) -> bool {
        self.weight.is_none()
    }
}

impl Orders {
    fn locked(&self) -> MutexGuard<'_, Vec<EndpointOrder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All orders.
    pub(super) fn all(&self) -> Vec<EndpointOrder> {
        self.locked().clone()
    }

    /// The orders about an endpoint with these names, in the order of the names.
    pub(super) fn about(&self, names: impl Iterator<Item = String>) -> Vec<EndpointOrder> {
        let all = self.locked();
        names.flat_map(|name| all.iter().filter(move |order| *order.endpoint == *name).cloned()).collect()
    }

    /// Adds an order in place of the one like it, and returns that. Errs if there are too many.
    pub(super) fn add(&self, order: EndpointOrder) -> Result<Option<EndpointOrder>, OrderError> {
        let mut all = self.locked();
        let before = all.iter().position(|known| known.is_like(&order)).map(|index| all.remove(index));
        if all.len() >= ORDERS_MAX {
            return Err(OrderError::TooMany);
        }
        all.push(order);
        Ok(before)
    }

    /// Removes the orders for which `ends` is true, and returns them.
    pub(super) fn remove(&self, ends: impl Fn(&EndpointOrder) -> bool) -> Vec<EndpointOrder> {
        self.locked().extract_if(.., |order| ends(order)).collect()
    }
}

/// The orders, which have instants by `clock`, with dates of the system's clock.
pub(crate) fn dated(mut orders: Vec<EndpointOrder>, clock: Clock) -> Vec<EndpointOrder> {
    let set_ns = clock.set_since_start();
    for order in &mut orders {
        (order.since, order.until) = (order.since.moved(set_ns), order.until.map(|until| until.moved(set_ns)));
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::system_now;

    #[test]
    fn a_successor_gets_dates() {
        const HOUR_NS: u64 = 3600 * 1_000_000_000;
        let date = system_now();
        for started in [date.saturating_sub_ns(3 * HOUR_NS), date.saturating_add_ns(6 * HOUR_NS), date] {
            let clock = Clock::start_at(started);
            let since = clock.now();
            let (upstream, endpoint, until) = ("a".into(), "b".into(), Some(since.saturating_add_ns(2 * HOUR_NS)));
            let order = EndpointOrder { upstream, endpoint, weight: None, since, until, token: None, reason: None };
            let sent = dated(vec![order.clone()], clock);
            let left_ns = sent[0].until.map(|until| until.ns_since(system_now()));
            assert_eq!(left_ns.map(|ns| ns.div_ceil(60 * 1_000_000_000)), Some(120), "{started:?}");
            assert_eq!(sent[0].until.map(|until| until.ns_since(sent[0].since)), Some(2 * HOUR_NS), "{started:?}");
            assert_eq!(sent == [order], started == date, "{started:?}");
        }
    }
}
