//! The access record of a request: its metrics and its log line, written once at its end.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use crate::gate::{Cause, Refusal};
use crate::telemetry::{AccessLine, AccessLog, Metrics, Outcome};
use crate::time;
use crate::upstream::{Checkout, ExchangeError};

/// The record of a request in progress. The outcome is `Refused` unless another one is set.
pub(super) struct AccessRecord<'m> {
    metrics: &'m Metrics,
    pub(super) outcome: Outcome,
    /// The fields of the log line, if it may be logged.
    fields: Option<Box<LogFields>>,
}

/// The fields of the log line.
struct LogFields {
    refused_only: bool,
    began: Instant,
    client: IpAddr,
    method: String,
    host: String,
    path: String,
    status: u16,
    limit: String,
    is_banned: bool,
    held: Duration,
    /// Start of the current wait, if it waits.
    hold_began: Option<Instant>,
}

/// The status in the log of a request whose client left; nginx logs this value, too.
const CLIENT_CLOSED_REQUEST: u16 = 499;

impl<'m> AccessRecord<'m> {
    pub(super) fn new(metrics: &'m Metrics, log: AccessLog, began: Instant, peer: IpAddr) -> Self {
        let fields = (log != AccessLog::Off).then(|| {
            Box::new(LogFields {
                refused_only: log == AccessLog::Refused,
                began,
                client: peer,
                method: String::new(),
                host: String::new(),
                path: String::new(),
                status: CLIENT_CLOSED_REQUEST,
                limit: String::new(),
                is_banned: false,
                held: Duration::ZERO,
                hold_began: None,
            })
        });
        Self { metrics, outcome: Outcome::Refused, fields }
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

    /// Sets the status of the response.
    pub(super) fn answered(&mut self, status: u16) {
        if let Some(fields) = &mut self.fields {
            fields.status = status;
        }
    }
}

impl Drop for AccessRecord<'_> {
    fn drop(&mut self) {
        self.metrics.count(self.outcome);
        self.hold_ended();
        let Some(fields) = &self.fields else { return };
        let was_forwarded = matches!(self.outcome, Outcome::Forwarded | Outcome::Held);
        if fields.refused_only && was_forwarded {
            return;
        }
        let access = AccessLine {
            client: fields.client,
            method: &fields.method,
            host: &fields.host,
            path: &fields.path,
            status: fields.status,
            verdict: if fields.is_banned { "banned" } else { self.outcome.label() },
            limit: &fields.limit,
            duration: time::instant_now().saturating_duration_since(fields.began),
            held: fields.held,
        };
        access.write();
    }
}
