//! Gives and ends orders of operators about endpoints, on the control runtime.
//!
//! Not here: the HTTP of operators and the audit log (admin).

use std::collections::BTreeSet;

use super::balance::ejection::TrafficFraction;
use super::orders::{EndpointOrder, OrderError};
use super::settings::Upstream;
use super::state::{EndpointState, UpstreamState};
use crate::base::time::Timestamp;

impl UpstreamState {
    /// Whether a drain of the endpoints in `about` leaves endpoints that get requests.
    fn check_drain(&self, settings: &Upstream, about: impl Fn(&EndpointState) -> bool) -> Result<(), OrderError> {
        let mut rest = self.endpoints.iter().filter(|state| !state.is_draining() && !about(state)).peekable();
        if rest.peek().is_none() {
            return Err(OrderError::LastEndpoint);
        }
        let is_in = |state| EndpointState::traffic(state, settings.eject) != TrafficFraction::Nothing;
        if rest.any(|state| is_in(state)) { Ok(()) } else { Err(OrderError::OthersOut) }
    }
}

/// The upstream with this name, and the text that names its endpoint in orders. `endpoint` may lack the scheme.
fn find<'s>(
    states: &'s [UpstreamState],
    upstream: &str,
    endpoint: &str,
) -> Result<(usize, &'s UpstreamState, Box<str>), OrderError> {
    let found = states.iter().enumerate().find(|(_, state)| state.label() == upstream);
    let Some((index, state)) = found else {
        return Err(OrderError::UnknownUpstream(states.iter().map(|state| state.label().to_owned()).collect()));
    };
    let known = || state.endpoints.iter().flat_map(|state| state.names());
    let is_short = |name: &String| name.split_once("://").is_some_and(|(_, rest)| rest == endpoint);
    let name = known().find(|name| name == endpoint).or_else(|| known().find(is_short));
    let name = name.ok_or_else(|| {
        let all: BTreeSet<_> = known().collect();
        OrderError::UnknownEndpoint(all.into_iter().collect())
    })?;
    Ok((index, state, name.into()))
}

/// Gives an order in place of the one like it, and returns both. A drain that leaves no endpoint is refused unless it is
/// forced.
pub(crate) fn give(
    (settings, states): (&[Upstream], &[UpstreamState]),
    mut order: EndpointOrder,
    is_forced: bool,
) -> Result<(EndpointOrder, Option<EndpointOrder>), OrderError> {
    let (index, state, name) = find(states, &order.upstream, &order.endpoint)?;
    order.endpoint = name;
    if let Some(settings) = settings.get(index).filter(|_| order.is_drain() && !is_forced) {
        state.check_drain(settings, |state| state.names().any(|name| *name == *order.endpoint))?;
    }
    let before = state.orders.add(order.clone())?;
    state.obey();
    Ok((order, before))
}

/// Ends the drain or the weight of an endpoint, and returns the order.
pub(crate) fn end(
    states: &[UpstreamState],
    upstream: &str,
    endpoint: &str,
    is_drain: bool,
) -> Result<EndpointOrder, OrderError> {
    let (_, state, name) = find(states, upstream, endpoint)?;
    let ended = state.orders.remove(|order| order.endpoint == name && order.is_drain() == is_drain);
    let ended = ended.into_iter().next().ok_or(OrderError::NoOrder)?;
    state.obey();
    Ok(ended)
}

/// Ends the orders whose time is over at `now`, and returns them.
pub(crate) fn end_over(states: &[UpstreamState], now: Timestamp) -> Vec<EndpointOrder> {
    let mut over = Vec::new();
    for state in states {
        let ended = state.orders.remove(|order| order.until.is_some_and(|until| until <= now));
        if !ended.is_empty() {
            state.obey();
            over.extend(ended);
        }
    }
    over
}

/// All orders.
pub(crate) fn all(states: &[UpstreamState]) -> Vec<EndpointOrder> {
    states.iter().flat_map(|state| state.orders.all()).collect()
}

/// Takes over the orders of a predecessor about endpoints that exist.
pub(crate) fn inherit(states: &[UpstreamState], orders: Vec<EndpointOrder>) {
    for order in orders {
        if let Some(state) = states.iter().find(|state| *state.label() == *order.upstream) {
            // Its predecessor had the same bound.
            let _ = state.orders.add(order);
        }
    }
    for state in states {
        state.obey();
    }
}
