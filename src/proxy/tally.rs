//! What is counted and logged of one request, once, however it ends.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use crate::gate::{Cause, Refusal};
use crate::telemetry::{AccessLine, AccessLog, Metrics, Outcome};
use crate::time;
use crate::upstream::{Checkout, ExchangeError};

/// A request in progress, refused unless something else becomes of it.
pub(super) struct Tally<'m> {
    metrics: &'m Metrics,
    pub(super) outcome: Outcome,
    /// If it may be logged.
    line: Option<Box<Line>>,
}

/// What the access log says.
struct Line {
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
    /// While it waits, and if it is waiting when it ends.
    waits_since: Option<Instant>,
}

/// The status in the log of a request whose client left; as nginx has it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

impl<'m> Tally<'m> {
    pub(super) fn new(metrics: &'m Metrics, log: AccessLog, began: Instant, peer: IpAddr) -> Self {
        let line = (log != AccessLog::Off).then(|| {
            Box::new(Line {
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
                waits_since: None,
            })
        });
        Self { metrics, outcome: Outcome::Refused, line }
    }

    /// What is asked for, as sent.
    pub(super) fn asked(&mut self, method: &Method, path: &str) {
        if let Some(line) = &mut self.line {
            method.as_str().clone_into(&mut line.method);
            path.clone_into(&mut line.path);
        }
    }

    /// Who asks for what, once that is known.
    pub(super) fn identified(&mut self, client: IpAddr, host: &str, path: &str) {
        if let Some(line) = &mut self.line {
            line.client = client;
            host.clone_into(&mut line.host);
            path.clone_into(&mut line.path);
        }
    }

    /// A limit makes it wait from now on.
    pub(super) fn waits(&mut self, limit: &str) {
        self.limited(limit);
        if let Some(line) = &mut self.line {
            line.waits_since = Some(time::instant_now());
        }
    }

    /// It waits no longer.
    pub(super) fn waited(&mut self) {
        if let Some(line) = &mut self.line
            && let Some(since) = line.waits_since.take()
        {
            line.held += time::instant_now().saturating_duration_since(since);
        }
    }

    /// Waits for a connection to the upstream. A client that leaves meanwhile has abandoned its request; one that finds
    /// no room in the queue for connections is refused.
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

    /// A limit holds it, or refuses it.
    pub(super) fn limited(&mut self, limit: &str) {
        if let Some(line) = &mut self.line {
            limit.clone_into(&mut line.limit);
        }
    }

    /// A limit refuses it.
    pub(super) fn rejected(&mut self, refusal: &Refusal<'_>) {
        self.outcome = Outcome::Rejected;
        self.limited(refusal.violated.first().unwrap_or(&""));
        if let Some(line) = &mut self.line {
            line.is_banned = refusal.cause == Cause::Banned;
        }
    }

    /// The answer is ready.
    pub(super) fn answered(&mut self, status: u16) {
        if let Some(line) = &mut self.line {
            line.status = status;
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.metrics.count(self.outcome);
        self.waited();
        let Some(line) = &self.line else { return };
        let was_forwarded = matches!(self.outcome, Outcome::Forwarded | Outcome::Held);
        if line.refused_only && was_forwarded {
            return;
        }
        let access = AccessLine {
            client: line.client,
            method: &line.method,
            host: &line.host,
            path: &line.path,
            status: line.status,
            verdict: if line.is_banned { "banned" } else { self.outcome.label() },
            limit: &line.limit,
            duration: time::instant_now().saturating_duration_since(line.began),
            held: line.held,
        };
        access.write();
    }
}
