//! Upstreams and endpoints as operators see them: the state of each endpoint with its reason and begin, and the figures
//! of its last minute.
//!
//! Not here: what makes an endpoint go in or out (`health`, `balance::ejection`), and the HTTP of operators (admin).

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::balance::ejection::{Eject, TrafficFraction};
use super::dns::address::Preference;
use super::observations::{Figures, Observed};
use super::orders::{EndpointOrder, Orders};
use super::settings::{Address, Upstream};
use super::state::{EndpointState, UpstreamState};
use crate::base::time::{self, Clock, Timestamp};

/// Whether an endpoint gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It gets its share.
    Up,
    /// Its health checks fail.
    Unhealthy,
    /// Requests to it failed in a row.
    Ejected,
    /// Its ejection is over, and its share grows again.
    Returning,
    /// No lookup of its name has returned an address yet.
    Unresolved,
    /// An operator drains it, and requests are still active.
    Draining,
    /// An operator drains it, and no request is active.
    Drained,
}

impl Condition {
    /// Its name in the API.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Unhealthy => "unhealthy",
            Self::Ejected => "ejected",
            Self::Returning => "returning",
            Self::Unresolved => "unresolved",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }
}

/// An upstream with its endpoints.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamStatus {
    /// Its name; that of its metrics if it has none.
    pub(crate) name: Box<str>,
    /// Requests that wait for a connection.
    pub(crate) queued: usize,
    /// Requests that were refused because the queue was full.
    pub(crate) queue_full: u64,
    /// Requests that were refused because they waited for too long.
    pub(crate) queue_timeout: u64,
    /// In the order of the configuration. Each address of a name is an endpoint.
    pub(crate) endpoints: Vec<EndpointStatus>,
}

/// An endpoint, or one address of its name.
#[derive(Clone, Debug)]
pub(crate) struct EndpointStatus {
    /// As configured.
    pub(crate) endpoint: String,
    /// The address that a lookup of its name returned.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) condition: Condition,
    /// The reason of the condition.
    pub(crate) why: Option<String>,
    /// When the condition began.
    pub(crate) since: Timestamp,
    /// When the condition ends by itself.
    pub(crate) until: Option<Timestamp>,
    pub(crate) preference: Preference,
    /// The orders of operators about it.
    pub(crate) orders: Vec<EndpointOrder>,
    /// Active requests.
    pub(crate) active: u64,
    /// Open connections.
    pub(crate) connections: usize,
    /// All figures so far.
    pub(crate) total: Figures,
    /// The figures of the last minute, and how long that is: the minute, or the time since the begin.
    pub(crate) last_minute: (Duration, Figures),
}

impl UpstreamStatus {
    /// The status of an upstream.
    pub(crate) fn of(settings: &Upstream, state: &UpstreamState, clock: Clock) -> Self {
        let metrics = &state.queue.metrics;
        Self {
            name: state.label().into(),
            queued: state.queue.waiting(),
            queue_full: metrics.queue_full.get(),
            queue_timeout: metrics.queue_timeout.get(),
            endpoints: state
                .endpoints
                .iter()
                .map(|one| EndpointStatus::of(one, settings.eject, &state.orders, clock))
                .collect(),
        }
    }

    /// Adds a sample to the last minute of each endpoint. To be called every five seconds.
    pub(crate) fn sample(states: &[UpstreamState]) {
        for state in states.iter().flat_map(|upstream| &upstream.endpoints) {
            state.observations.sample(state.cells());
        }
    }
}

impl EndpointStatus {
    fn of(state: &EndpointState, rule: Option<Eject>, orders: &Orders, clock: Clock) -> Self {
        let (now, observed) = (time::instant_now(), state.observations.observed());
        let total = Figures::of(state.cells());
        let last_minute = observed.samples.front().map(|(at, before)| (now - *at, total.since(before)));
        let (active, orders) = (state.cells().active(), orders.about(state.names()));
        let (mut condition, mut why, since, until) = condition(state, rule, &observed);
        let (mut since, mut until) = (clock.at(since), until.map(|until| clock.at(until)));
        if let Some(drain) = orders.iter().find(|order| order.weight.is_none()) {
            condition = if active > 0 { Condition::Draining } else { Condition::Drained };
            (why, since, until) = (drain.reason.clone().map(Into::into).or(why), drain.since, drain.until);
        }
        Self {
            endpoint: state.endpoint.to_string(),
            address: state.resolved,
            condition,
            why,
            since,
            until,
            preference: state.preference(),
            orders,
            active,
            connections: state.connections(),
            last_minute: last_minute.unwrap_or_else(|| (Duration::ZERO, total.since(&total))),
            total,
        }
    }
}

/// The condition of an endpoint, its reason, its begin, and its end if it is known.
fn condition(
    state: &EndpointState,
    rule: Option<Eject>,
    observed: &Observed,
) -> (Condition, Option<String>, Instant, Option<Instant>) {
    let (health_since, failure) = observed.health.clone();
    if !state.is_healthy() {
        return (Condition::Unhealthy, failure, health_since, None);
    }
    if matches!(state.endpoint.address, Address::Srv(_)) && state.resolved.is_none() {
        let why = "no lookup of its name has returned an address yet".to_owned();
        return (Condition::Unresolved, Some(why), health_since, None);
    }
    let ejection = observed.ejection.as_ref().zip(state.ejected_until(rule));
    let up_since = observed.undrained.max(health_since);
    let Some(((ejected_at, failure), (until, back))) = ejection else {
        return (Condition::Up, None, up_since, None);
    };
    match state.traffic(rule) {
        TrafficFraction::Nothing => {
            (Condition::Ejected, Some(format!("requests failed; the last one: {failure}")), *ejected_at, Some(until))
        }
        TrafficFraction::Of256(_) => {
            (Condition::Returning, Some("its share grows after an ejection".to_owned()), until, Some(back))
        }
        TrafficFraction::Full => (Condition::Up, None, back.max(up_since), None),
    }
}
