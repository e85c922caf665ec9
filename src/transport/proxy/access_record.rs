//! The access record of a request: its metrics, once its response begins; its log line and its event for taps, written
//! once at its end.

use std::cell::RefCell;
use std::future::Future;
use std::net::IpAddr;

use http::Method;
use tokio::time::Instant;

use super::request::HttpVersion;
use super::running_config::RunningConfig;
use super::worker::SharedState;
use crate::base::fields::Fields;
use crate::base::split_mix::random;
use crate::base::telemetry::{
    AccessLog, AccessSettings, Outcome, RefusedBy, RequestRecord, SpanContext, Text, TracedRequest,
    access_log_names_gate, log_request,
};
use crate::base::time;
use crate::engine::gate::{Bill, Refusal};
use crate::engine::policy::StaleCause;
use crate::transport::net::peer::Peer;
use crate::transport::respond::{ProblemKind, Reply};
use crate::transport::upstream::{Checkout, Endpoints, Exchange, ExchangeError};

/// The record of a request in progress. It is refused unless another outcome is set.
#[derive(Debug)]
pub(super) struct AccessRecord<'m> {
    shared: &'m SharedState,
    pub(super) outcome: Outcome,
    is_counted: bool,
    /// None if the request is not logged and no tap is open.
    observed: Option<Box<Observed>>,
}

/// A request that may be logged, or seen by a tap.
#[derive(Debug)]
struct Observed {
    log: AccessSettings,
    /// Whether a tap was open when the request began.
    is_tapped: bool,
    began: Instant,
    /// Start of the current wait, if it waits.
    hold_began: Option<Instant>,
    /// Start of its last wait.
    last_hold: Option<Instant>,
    /// When its upstream connection got it.
    sent_at: Option<Instant>,
    /// Its place in a trace that is recorded.
    trace: Option<SpanContext>,
    /// The status of the service's answer.
    answer: Option<u16>,
    record: RequestRecord,
}

/// The status in the log of a request whose client left; nginx logs this value, too.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Answers from this status on are logged, whatever the sample is.
const SERVER_ERROR: u16 = 500;

/// The most records that a thread keeps for later requests.
const SPARE_MAX: usize = 64;

thread_local! {
    /// Records of earlier requests, with their memory.
    #[expect(clippy::vec_box, reason = "a request takes the box, and gives it back")]
    static SPARE: RefCell<Vec<Box<Observed>>> = const { RefCell::new(Vec::new()) };
}

impl<'m> AccessRecord<'m> {
    pub(super) fn new(shared: &'m SharedState, running: &RunningConfig, began: Instant, peer: &Peer) -> Self {
        let (log, is_tapped) = (running.access_log, shared.taps.is_on());
        let observed = (is_tapped || running.records_requests).then(|| Observed::new(log, is_tapped, began, peer));
        Self { shared, outcome: Outcome::Refused(RefusedBy::Other), is_counted: false, observed }
    }

    /// Moves the record out. What is left records nothing.
    pub(super) fn take(&mut self) -> Self {
        let is_counted = std::mem::replace(&mut self.is_counted, true);
        Self { shared: self.shared, outcome: self.outcome, is_counted, observed: self.observed.take() }
    }

    /// Whether the request may be logged, tapped or traced.
    pub(super) fn is_observed(&self) -> bool {
        self.observed.is_some()
    }

    /// Sets its id.
    pub(super) fn set_id(&mut self, id: &str) {
        if let Some(observed) = &mut self.observed {
            observed.record.set(Text::RequestId, id);
        }
    }

    /// Sets its place in a trace.
    pub(super) fn traced(&mut self, context: SpanContext) {
        self.in_trace(context.trace);
        if let Some(observed) = &mut self.observed {
            observed.trace = Some(context).filter(|context| context.is_sampled);
        }
    }

    /// Sets the trace.
    pub(super) fn in_trace(&mut self, trace: u128) {
        if let Some(observed) = &mut self.observed {
            observed.record.set(Text::TraceId, &format!("{trace:032x}"));
        }
    }

    /// Sets what the head says: the method, the path as sent, and fields for the log.
    pub(super) fn requested(&mut self, method: &Method, path: &str, fields: Fields<'_>) {
        if let Some(Observed { record, .. }) = self.observed.as_deref_mut() {
            record.set(Text::Method, method.as_str());
            record.set(Text::Path, path);
            if let Some(agent) = fields.first("user-agent") {
                record.set_bytes(Text::UserAgent, agent);
            }
            if let Some(referer) = fields.first("referer") {
                record.set_referer(referer);
            }
        }
    }

    /// Sets the version of the request.
    pub(super) fn spoken(&mut self, version: HttpVersion) {
        if let Some(observed) = &mut self.observed {
            observed.record.protocol = version.name();
        }
    }

    /// Sets the client, the host and the normalised path.
    pub(super) fn identified(&mut self, client: IpAddr, host: &str, path: &str) {
        if let Some(Observed { record, .. }) = self.observed.as_deref_mut() {
            record.client = client;
            record.set(Text::Host, host);
            // Most paths are sent in their normal form.
            if record.text(Text::Path) != path {
                record.set(Text::Path, path);
            }
        }
    }

    /// Sets the first pattern of the route, and the upstream.
    pub(super) fn routed(&mut self, route: Option<&str>, upstream: &Endpoints) {
        if let Some(Observed { record, .. }) = self.observed.as_deref_mut() {
            if let Some(route) = route {
                record.set(Text::Route, route);
            }
            record.set(Text::Upstream, upstream.label());
        }
    }

    /// Begins a wait for `limit`.
    pub(super) fn hold_started(&mut self, limit: &str) {
        self.limited(limit);
        if let Some(observed) = &mut self.observed {
            observed.hold_began = Some(time::instant_now());
            observed.last_hold = observed.hold_began;
        }
    }

    /// Ends the wait.
    pub(super) fn hold_ended(&mut self) {
        if let Some(observed) = &mut self.observed
            && let Some(since) = observed.hold_began.take()
        {
            observed.record.held += time::instant_now().saturating_duration_since(since);
        }
    }

    /// Waits for a connection to the upstream. If the client leaves meanwhile, the request is abandoned. If the client has
    /// too many requests, or the queue for connections is full, it is refused.
    pub(super) async fn connected(
        &mut self,
        checkout: impl Future<Output = Result<Checkout, impl Into<ExchangeError>>>,
    ) -> Result<Checkout, ExchangeError> {
        use ExchangeError as E;
        let forwarded = std::mem::replace(&mut self.outcome, Outcome::Abandoned);
        let connected = checkout.await.map_err(Into::into);
        let is_refused = matches!(connected, Err(E::TooMany | E::Busy | E::Drained));
        self.outcome = if is_refused { Outcome::Refused(RefusedBy::Other) } else { forwarded };
        connected
    }

    /// Sets the endpoint that gets the request.
    pub(super) fn sent(&mut self, exchange: &Exchange) {
        if let Some(observed) = &mut self.observed {
            observed.sent_at = Some(exchange.handed_over());
            observed.record.set(Text::Endpoint, exchange.endpoint().unwrap_or_default());
        }
    }

    /// Sets the limit that holds or refuses it.
    pub(super) fn limited(&mut self, limit: &str) {
        if let Some(observed) = &mut self.observed {
            observed.record.set(Text::Limit, limit);
        }
    }

    /// Sets why the request gets a stored answer. Its service has failed by now, if it got the request.
    pub(super) fn stale(&mut self, cause: StaleCause) {
        if let Some(observed) = &mut self.observed {
            observed.end_upstream(time::instant_now());
            observed.record.set(Text::Stale, cause.label());
        }
    }

    /// Sets the refusal of a limit.
    pub(super) fn refused(&mut self, refusal: &Refusal<'_>) {
        self.outcome = Outcome::Refused(ProblemKind::from(refusal.cause).refused_by());
        self.limited(refusal.violated.first().unwrap_or(&""));
    }

    /// The record to which the gate adds keys, identities and plan, if a line or a tap has them.
    pub(super) fn for_gate(&mut self) -> Option<&mut RequestRecord> {
        let observed = self.observed.as_deref_mut()?;
        let is_wanted = observed.is_tapped || observed.trace.is_some() || observed.names_gate();
        is_wanted.then_some(&mut observed.record)
    }

    /// Sets the status of a response of Weir, the length of its body, and the reason if it refuses the request.
    pub(super) fn replied(&mut self, own: &impl Reply, bytes_out: usize) {
        if let (Outcome::Refused(_), Some(by)) = (self.outcome, own.refused_by()) {
            self.outcome = Outcome::Refused(by);
        }
        self.shared.metrics.answered(own.status().as_u16());
        if let Some(Observed { record, .. }) = self.observed.as_deref_mut() {
            (record.status, record.bytes_out) = (own.status().as_u16(), bytes_out as u64);
        }
    }

    /// Sets the status of a stored answer, and the bytes of its body that were sent.
    pub(super) fn replied_stored(&mut self, bytes_out: u64) {
        const OK: u16 = 200;
        self.shared.metrics.answered(OK);
        if let Some(Observed { record, .. }) = self.observed.as_deref_mut() {
            (record.status, record.bytes_out) = (OK, bytes_out);
        }
    }

    /// Counts the request: its response has begun, with this status, at `arrived`.
    pub(super) fn begun(&mut self, status: u16, arrived: Instant) {
        self.count();
        self.shared.metrics.answered(status);
        self.answered(status, arrived);
        if let Some(observed) = &mut self.observed {
            observed.record.status = status;
        }
    }

    /// Notes that the service answered with this status at `arrived`.
    pub(super) fn answered(&mut self, status: u16, arrived: Instant) {
        if let Some(observed) = &mut self.observed {
            observed.answer = Some(status);
            observed.end_upstream(arrived);
        }
    }

    /// Sets the bytes of both bodies.
    pub(super) fn transferred(&mut self, bytes_in: u64, bytes_out: u64) {
        if let Some(Observed { record, .. }) = self.observed.as_deref_mut() {
            (record.bytes_in, record.bytes_out) = (bytes_in, bytes_out);
        }
    }

    /// Settles the charges of a relayed response; `exchange` counts no longer as a request in progress.
    pub(super) fn settle(&mut self, exchange: &mut Exchange, bill: &mut Option<Bill>) {
        if let Some(limit) = exchange.cut_by() {
            self.limited(limit);
        }
        exchange.release_active();
        if let Some(mut bill) = bill.take() {
            bill.end(exchange.body_bytes(), exchange.take_meter(), self.for_gate());
        }
    }

    /// A client that leaves during a wait has its charges back.
    fn forget_costs_of_wait(&mut self) {
        if let Some(observed) = self.observed.as_deref_mut().filter(|observed| observed.hold_began.is_some()) {
            observed.record.uncharged();
        }
    }

    fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.shared.metrics.count(self.outcome);
        }
    }
}

impl Drop for AccessRecord<'_> {
    fn drop(&mut self) {
        self.count();
        self.forget_costs_of_wait();
        self.hold_ended();
        if let Some(observed) = self.observed.take() {
            observed.publish(self.shared, self.outcome);
        }
    }
}

impl Observed {
    fn new(log: AccessSettings, is_tapped: bool, began: Instant, peer: &Peer) -> Box<Self> {
        let mut observed = SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            let record = RequestRecord::default();
            let (hold_began, last_hold, sent_at, trace) = (None, None, None, None);
            Box::new(Self { log, is_tapped, began, hold_began, last_hold, sent_at, trace, answer: None, record })
        });
        (observed.log, observed.is_tapped, observed.began) = (log, is_tapped, began);
        observed.record.client = peer.ip;
        observed.record.tls = peer.tls_version;
        observed.record.status = CLIENT_CLOSED_REQUEST;
        observed
    }

    fn end_upstream(&mut self, at: Instant) {
        if let (Some(sent_at), None) = (self.sent_at, self.record.upstream_time) {
            self.record.upstream_time = Some(at.saturating_duration_since(sent_at));
        }
    }

    /// Whether a line of the log has keys, identities or the plan.
    fn names_gate(&self) -> bool {
        self.log.requests != AccessLog::Off && access_log_names_gate()
    }

    fn publish(mut self: Box<Self>, shared: &SharedState, outcome: Outcome) {
        let now = time::instant_now();
        self.end_upstream(now);
        let of_upstream = self.record.upstream_time;
        self.record.upstream_time = of_upstream.filter(|_| self.answer.is_some());
        self.record.outcome = outcome;
        self.record.duration = now.saturating_duration_since(self.began);
        let is_logged = self.is_logged(outcome);
        if is_logged || self.is_tapped || self.trace.is_some() {
            self.record.at = time::system_now();
        }
        if is_logged {
            log_request(&self.record);
        }
        if self.is_tapped {
            shared.taps.publish(self.record.clone());
        }
        if let Some(context) = self.trace {
            let after = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(self.began));
            let (held_after, sent_after, answer) = (after(self.last_hold), after(self.sent_at), self.answer);
            let record = self.record.clone();
            shared.spans.publish(TracedRequest { context, record, held_after, sent_after, of_upstream, answer });
        }
        self.recycle();
    }

    fn is_logged(&self, outcome: Outcome) -> bool {
        let was_forwarded = matches!(outcome, Outcome::Forwarded | Outcome::Held);
        match self.log.requests {
            AccessLog::Off => false,
            AccessLog::Refused => !was_forwarded,
            AccessLog::All => {
                let is_usual = was_forwarded && self.record.status < SERVER_ERROR;
                !is_usual || self.log.sample <= 1 || random().is_multiple_of(self.log.sample)
            }
        }
    }

    /// Keeps the memory for a later request.
    fn recycle(mut self: Box<Self>) {
        (self.hold_began, self.last_hold, self.sent_at) = (None, None, None);
        (self.trace, self.answer) = (None, None);
        if self.record.renew() {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(self);
                }
            });
        }
    }
}
