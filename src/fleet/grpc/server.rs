//! The state of the limiter service, shared by all workers: it answers checks in terms of the protocols.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use arc_swap::ArcSwap;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tonic_health::server::HealthReporter;

use super::askers::Askers;
use super::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use super::proto::weir::v1::limiter_server::LimiterServer;
use super::settings::{ServiceListener, ServiceSettings};
use crate::base::telemetry::{CheckMetrics, Metrics, Taps};
use crate::engine::gate::{ChargeError, Gate, Live, NamedCharge, NewestLive};
use crate::engine::policy::descriptors::{DescriptorRule, Entry, MappedLimit};
use crate::fleet::stores::service::proto::charges_server::ChargesServer;

/// Connections that may open at once whatever the number of open ones is. Strangers without a certificate get no further.
pub const OPENING_MIN: usize = 64;

/// Connections that may open at once. Each new one looks at all of them.
const OPENING_MAX: usize = 1024;

/// Ends when newer connections take the place of one that is not open yet.
pub(super) type Displaced = oneshot::Receiver<Infallible>;

/// The limiter service of a process.
#[derive(Debug)]
pub struct Server {
    pub(super) gate: Arc<Gate>,
    pub(super) live: NewestLive,
    pub(super) metrics: Arc<Metrics>,
    pub(super) taps: Arc<Taps>,
    /// The counters of both services.
    pub(super) checks: CheckMetrics,
    pub(super) settings: ArcSwap<RunningSettings>,
    pub(super) health: HealthReporter,
    pub(super) askers: Askers,
    /// Whether there is `fleet.secret`, without which no other Weir can join.
    pub(super) has_fleet_secret: bool,
    listener: ServiceListener,
    open: AtomicUsize,
    /// The connections that are not open yet, the oldest first. Locked for a moment for each new one.
    opening: Mutex<VecDeque<oneshot::Sender<Infallible>>>,
}

/// The settings in force.
pub(super) struct RunningSettings {
    pub(super) settings: ServiceSettings,
    /// TLS that agrees on HTTP/2 only; none for plain TCP.
    pub(super) tls: Option<TlsAcceptor>,
}

impl fmt::Debug for RunningSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl RunningSettings {
    fn new(settings: ServiceSettings) -> Self {
        let tls = settings.tls.as_ref().map(|tls| TlsAcceptor::from(tls.h2_config()));
        Self { settings, tls }
    }
}

/// The names of the services whose health callers may ask for; the empty name is the whole process.
const SERVICES: [&str; 4] =
    ["", LimiterServer::<()>::NAME, RateLimitServiceServer::<()>::NAME, ChargesServer::<()>::NAME];

impl Server {
    /// A service without connections.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(
        gate: Arc<Gate>,
        live: NewestLive,
        metrics: Arc<Metrics>,
        taps: Arc<Taps>,
        (listener, settings): (ServiceListener, ServiceSettings),
        has_fleet_secret: bool,
    ) -> Result<Self, getrandom::Error> {
        Ok(Self {
            askers: Askers::new(random_process()?),
            gate,
            live,
            checks: metrics.checks.clone(),
            metrics,
            taps,
            settings: ArcSwap::from_pointee(RunningSettings::new(settings)),
            health: HealthReporter::new(),
            has_fleet_secret,
            listener,
            open: AtomicUsize::new(0),
            opening: Mutex::default(),
        })
    }

    /// Replaces the settings. They stay until a restart if `listener` has another address or differs in whether there is
    /// TLS: the new ones fit that address, which may need no certificates of callers.
    pub fn reload(&self, listener: &ServiceListener, settings: ServiceSettings) {
        if (&listener.listen, listener.has_tls) != (&self.listener.listen, self.listener.has_tls) {
            return;
        }
        let before = self.settings.load();
        let mut new = RunningSettings::new(settings);
        if new.settings.tls == before.settings.tls {
            new.tls.clone_from(&before.tls); // so that callers can resume their sessions
        }
        self.settings.store(Arc::new(new));
    }

    /// Begins to open a connection; none if there are too many open ones. It may take the place of the oldest that is not
    /// open yet.
    pub(super) fn begin_opening(&self) -> Option<Displaced> {
        let free = self.listener.max_connections.saturating_sub(self.open.load(Ordering::Relaxed));
        if free == 0 {
            self.checks.connections_refused.inc();
            return None;
        }
        let (place, displaced) = oneshot::channel();
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        opening.retain(|place| !place.is_closed());
        while opening.len() >= free.clamp(OPENING_MIN, OPENING_MAX) && opening.pop_front().is_some() {
            self.checks.connections_refused.inc();
        }
        opening.push_back(place);
        Some(displaced)
    }

    /// Tells callers whether the services serve.
    pub(super) async fn set_serving(&self, is_serving: bool) {
        use tonic_health::ServingStatus::{NotServing, Serving};
        for name in SERVICES {
            self.health.set_service_status(name, if is_serving { Serving } else { NotServing }).await;
        }
    }

    /// The error that a caller gets for one of a service. A message that cannot be decoded is INTERNAL for tonic, which
    /// callers such as Envoy would count as a failure of Weir.
    pub(super) fn error(&self, error: Status) -> Status {
        match error.code() {
            Code::Internal => {
                self.checks.invalid.inc();
                Status::invalid_argument(error.message())
            }
            Code::OutOfRange => {
                self.checks.invalid.inc(); // longer than `max_message_bytes`
                error
            }
            _ => error,
        }
    }

    /// The charges of `units` that `rule` makes for a descriptor with these entries. `plan` is that of the caller, if
    /// the rule names none.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if a value cannot be part of a key.
    pub(super) fn charges(
        &self,
        live: &Live,
        rule: &DescriptorRule,
        entries: &[Entry<'_>],
        plan: Option<&str>,
        units: u64,
    ) -> Result<Vec<NamedCharge>, Status> {
        let named = rule.plan.as_ref().map(|plan| plan.text(entries));
        let plan = named.or_else(|| plan.map(str::to_owned));
        let charge = |mapped: &MappedLimit| {
            let parts = mapped.parts.iter().map(|part| part.text(entries));
            self.gate.charge_of_parts(live, mapped.limit, parts, plan.clone(), units)
        };
        rule.limits.iter().map(charge).collect::<Result<_, ChargeError>>().map_err(|error| {
            self.checks.invalid.inc();
            Status::invalid_argument(error.to_string())
        })
    }
}

/// A number for this process that a stranger cannot guess: without it, nothing is charged or corrected. Never 0.
fn random_process() -> Result<u64, getrandom::Error> {
    getrandom::u64().map(|number| number.max(1))
}

/// An open connection, counted until it is dropped.
pub(super) struct OpenConnection(Arc<Server>);

impl OpenConnection {
    /// Counts a connection.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn new(server: &Arc<Server>) -> io::Result<Self> {
        if server.open.fetch_add(1, Ordering::Relaxed) >= server.listener.max_connections {
            server.open.fetch_sub(1, Ordering::Relaxed);
            server.checks.connections_refused.inc();
            return Err(io::Error::other("there are too many connections"));
        }
        server.checks.connections.inc();
        Ok(Self(Arc::clone(server)))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.checks.connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn processes_of_one_instant_have_different_numbers() {
        assert_ne!(random_process().unwrap(), random_process().unwrap());
    }
}
