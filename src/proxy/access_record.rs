//! The access record of a request: its metrics, its log line and its event for taps, written once at its end.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use super::worker::SharedState;
use crate::gate::{Cause, LimitKey, Refusal};
use crate::telemetry::{AccessLine, AccessLog, BANNED, Outcome, TappedKey, TappedRequest};
use crate::time;
use crate::upstream::{Checkout, ExchangeError};

/// The record of a request in progress. The outcome is `Refused` unless another one is set.
pub(super) struct AccessRecord<'m> {
    shared: &'m SharedState,
    pub(super) outcome: Outcome,
    /// The fields of the log line, if it may be logged or a tap is open.
    fields: Option<Box<LogFields>>,
}

/// The fields of the log line.
struct LogFields {
    log: AccessLog,
    /// Whether a tap was open when the request began.
    is_tapped: bool,
    began: Instant,
    client: IpAddr,
    method: String,
    host: String,
    path: String,
    status: u16,
    limit: String,
    is_banned: bool,
    /// The keys of the request, if it is tapped.
    keys: Vec<TappedKey>,
    held: Duration,
    /// Start of the current wait, if it waits.
    hold_began: Option<Instant>,
}

/// The status in the log of a request whose client left; nginx logs this value, too.
const CLIENT_CLOSED_REQUEST: u16 = 499;

impl<'m> AccessRecord<'m> {
    pub(super) fn new(shared: &'m SharedState, log: AccessLog, began: Instant, peer: IpAddr) -> Self {
        let is_tapped = shared.taps.is_on();
        let fields = (is_tapped || log != AccessLog::Off).then(|| {
            Box::new(LogFields {
                log,
                is_tapped,
                began,
                client: peer,
                method: String::new(),
                host: String::new(),
                path: String::new(),
                status: CLIENT_CLOSED_REQUEST,
                limit: String::new(),
                is_banned: false,
                keys: Vec::new(),
                held: Duration::ZERO,
                hold_began: None,
            })
        });
        Self { shared, outcome: Outcome::Refused, fields }
    }

    /// Sets the method and the path as sent.
    pub(super) fn requested(&mut self, method: &Method, path: &str) {
        if let Some(fields) = &mut self.fields {
            method.as_str().clone_into(&mut fields.method);
            path.clone_into(&mut fields.path);
        }
    }

    /// Sets the client, the host and the normalised path.
    pub(super) fn identified(&mut self, client: IpAddr, host: &str, path: &str) {
        if let Some(fields) = &mut self.fields {
            fields.client = client;
            host.clone_into(&mut fields.host);
            path.clone_into(&mut fields.path);
        }
    }

    /// Begins a wait for `limit`.
    pub(super) fn hold_started(&mut self, limit: &str) {
        self.limited(limit);
        if let Some(fields) = &mut self.fields {
            fields.hold_began = Some(time::instant_now());
        }
    }

    /// Ends the wait.
    pub(super) fn hold_ended(&mut self) {
        if let Some(fields) = &mut self.fields
            && let Some(since) = fields.hold_began.take()
        {
            fields.held += time::instant_now().saturating_duration_since(since);
        }
    }

    /// Waits for a connection to the upstream. If the client leaves meanwhile, the request is abandoned. If the queue
    /// for connections is full, it is refused.
    pub(super) async fn connected(
        &mut self,
        checkout: impl Future<Output = Result<Checkout, impl Into<ExchangeError>>>,
    ) -> Result<Checkout, ExchangeError> {
        let forwarded = std::mem::replace(&mut self.outcome, Outcome::Abandoned);
        let connected = checkout.await.map_err(Into::into);
        let is_refused = matches!(connected, Err(ExchangeError::Busy));
        self.outcome = if is_refused { Outcome::Refused } else { forwarded };
        connected
    }

    /// Sets the limit that holds or rejects it.
    pub(super) fn limited(&mut self, limit: &str) {
        if let Some(fields) = &mut self.fields {
            limit.clone_into(&mut fields.limit);
        }
    }

    /// Sets the refusal of a limit.
    pub(super) fn rejected(&mut self, refusal: &Refusal<'_>) {
        self.outcome = Outcome::Rejected;
        self.limited(refusal.violated.first().unwrap_or(&""));
        if let Some(fields) = &mut self.fields {
            fields.is_banned = refusal.cause == Cause::Banned;
        }
    }

    /// Whether a tap may want the keys of the request.
    pub(super) fn is_tapped(&self) -> bool {
        self.fields.as_ref().is_some_and(|fields| fields.is_tapped)
    }

    /// Adds the keys of the request in the limits of one stage.
    pub(super) fn keyed(&mut self, keys: Vec<LimitKey<'_>>) {
        if let Some(fields) = &mut self.fields {
            fields.keys.extend(keys.into_iter().map(TappedKey::from));
        }
    }

    /// Sets the status of the response.
    pub(super) fn answered(&mut self, status: u16) {
        if let Some(fields) = &mut self.fields {
            fields.status = status;
        }
    }
}

impl Drop for AccessRecord<'_> {
    fn drop(&mut self) {
        self.shared.metrics.count(self.outcome);
        self.hold_ended();
        let Some(fields) = self.fields.take() else { return };
        let verdict = if fields.is_banned { BANNED } else { self.outcome.label() };
        let duration = time::instant_now().saturating_duration_since(fields.began);
        let was_forwarded = matches!(self.outcome, Outcome::Forwarded | Outcome::Held);
        if fields.log == AccessLog::All || fields.log == AccessLog::Refused && !was_forwarded {
            fields.access_line(verdict, duration).write();
        }
        if fields.is_tapped {
            self.shared.taps.publish(fields.tapped(verdict, duration));
        }
    }
}

impl LogFields {
    fn access_line(&self, verdict: &'static str, duration: Duration) -> AccessLine<'_> {
        AccessLine {
            client: self.client,
            method: &self.method,
            host: &self.host,
            path: &self.path,
            status: self.status,
            verdict,
            limit: &self.limit,
            duration,
            held: self.held,
        }
    }

    #[cold]
    fn tapped(self, verdict: &'static str, duration: Duration) -> TappedRequest {
        let Self { client, method, host, path, status, limit, keys, held, .. } = self;
        let at = time::system_now();
        TappedRequest { at, client, method, host, path, status, verdict, limit, keys, duration, held }
    }
}
