//! The context of a request in all its phases, for every protocol.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};

use tokio::time::Instant;

use super::access_record::AccessRecord;
use super::admission::RequestState;
use super::answer::ResponseForm;
use super::date::Date;
use super::error;
use super::request_id;
use super::running_config::WorkerConfig;
use super::settings::Settings;
use super::trace_context::{self, Parent};
use super::worker::Worker;
use crate::base::fields::Fields;
use crate::base::telemetry::SpanContext;
use crate::base::time;
use crate::transport::http1::HeadFault;
use crate::transport::net::peer::Peer;
use crate::transport::respond::{LocalReply, OwnLimitsReply, ProblemKind, ReplyId, StoredReply};
use crate::transport::upstream::{Endpoints, Exchange, ExchangeError};

/// A request that is not forwarded: answered by Weir, or abandoned by its client.
pub(super) enum NotForwarded<'v> {
    Reply(Box<LocalReply<'v>>),
    /// It gets a stored answer.
    Stored(Box<StoredReply<'v>>),
    /// Its client sees its limits.
    OwnLimits(Box<OwnLimitsReply>),
    Abandoned,
}

impl<'v> From<LocalReply<'v>> for NotForwarded<'v> {
    fn from(answer: LocalReply<'v>) -> Self {
        Self::Reply(Box::new(answer))
    }
}

/// The context of a request.
pub(super) struct RequestContext<'v> {
    pub(super) worker: &'v Worker,
    pub(super) config: &'v WorkerConfig,
    pub(super) peer: &'v Peer,
    pub(super) began: Instant,
    /// It waited for a limit.
    pub(super) waited: Cell<bool>,
    /// It waited for a store.
    pub(super) queried: Cell<bool>,
    /// Weir waited for its body before it decided.
    pub(super) was_read_ahead: Cell<bool>,
    /// It waited for a connection.
    pub(super) was_queued: Cell<bool>,
    /// It waited for the upstream.
    pub(super) was_sent: Cell<bool>,
    /// Its id; none until it is known, and if requests have none.
    id: OnceCell<Box<str>>,
    /// Its place in a trace, if traces are exported.
    pub(super) trace: Cell<Option<SpanContext>>,
}

impl<'v> RequestContext<'v> {
    /// The context of a request that began at `began`.
    pub(super) fn new(worker: &'v Worker, config: &'v WorkerConfig, peer: &'v Peer, began: Instant) -> Self {
        let [waited, queried, was_read_ahead, was_queued, was_sent] = [const { Cell::new(false) }; 5];
        let (id, trace) = (OnceCell::new(), Cell::new(None));
        Self { worker, config, peer, began, waited, queried, was_read_ahead, was_queued, was_sent, id, trace }
    }

    /// Finds or makes the id of the request and its place in a trace, as far as they are wanted.
    #[inline]
    pub(super) fn trace(&self, fields: Fields<'_>, record: &mut AccessRecord<'_>) {
        let settings = &self.config.running.settings;
        if settings.request_id || record.is_observed() {
            self.trace_as(fields, settings, record);
        }
    }

    #[inline(never)]
    fn trace_as(&self, fields: Fields<'_>, settings: &Settings, record: &mut AccessRecord<'_>) {
        let is_trusted = self.config.running.live.policy.client_ip.is_trusted(self.peer.ip);
        if settings.request_id {
            if let Some(id) = request_id::accepted(fields).filter(|_| is_trusted) {
                let _ = self.id.set(id.into()); // it is not known yet
            }
            record.set_id(self.id().unwrap_or_default());
        }
        let parent = Parent::of(fields);
        if let Some(traces) = &settings.traces {
            let context = trace_context::context(parent, is_trusted, traces.sample);
            self.trace.set(Some(context));
            record.traced(context);
        } else if let Some(parent) = parent {
            record.in_trace(parent.trace);
        }
    }

    /// The id of the request, which is made if it has none yet; none if requests have no ids.
    pub(super) fn id(&self) -> Option<&str> {
        let made = || request_id::made(self.worker.shared.gate.clock().at(self.began));
        self.config.running.settings.request_id.then(|| &**self.id.get_or_init(made))
    }

    /// Names the request in a response of Weir. A refusal of a limit is kept under this id, or else under one of its own.
    pub(super) fn name(&self, own: &mut LocalReply<'_>, record: &mut AccessRecord<'_>) {
        let id = self.id();
        if let Some(id) = id {
            own.set_id(ReplyId::Request, id);
            record.set_id(id);
        }
        if let Some((receipt, retry_after_s)) = own.take_receipt() {
            let made;
            let id = if let Some(id) = id {
                id
            } else {
                made = request_id::short();
                let made = str::from_utf8(&made).unwrap_or_default();
                own.set_id(ReplyId::Refusal, made);
                made
            };
            self.worker.shared.gate.keep_refusal(id, receipt, retry_after_s);
        }
    }

    /// Names the request in a stored answer.
    pub(super) fn name_stored(&self, stored: &mut StoredReply<'_>, record: &mut AccessRecord<'_>) {
        record.stale(stored.cause());
        if let Some(id) = self.id() {
            stored.set_id(id);
            record.set_id(id);
        }
    }

    /// Measures the head of a response that arrived at `arrived`.
    pub(super) fn measure(&self, exchange: &Exchange, arrived: Instant, was_held: bool) {
        if !was_held && !self.was_queued.get() && !self.was_read_ahead.get() {
            let overhead = exchange.handed_over().saturating_duration_since(self.began);
            self.worker.shared.metrics.overhead.observe(overhead);
        }
        exchange.record_arrival(arrived);
    }

    /// The response to a request whose exchange with an endpoint of `upstream`, if any, failed.
    pub(super) fn failed(
        &self,
        failure: &ExchangeError,
        (upstream, endpoint): (&Endpoints, Option<&str>),
        state: &mut RequestState<'_, 'v>,
    ) -> NotForwarded<'v> {
        let RequestState { form, record, admission } = state;
        let (kind, detail) = error::exchange_error(failure, (upstream.label(), endpoint), &self.worker.problems);
        self.count(kind);
        if kind.is_upstream() {
            admission.identified.failed(kind.status(), record.for_gate());
        }
        self.was_sent.set(true);
        let budgets = admission.budgets(self.config.running.settings.profiles);
        LocalReply::new(kind, detail, form.is_grpc).standing(admission.standing(), budgets).into()
    }

    /// The response to a refused head.
    pub(super) fn refuse(&self, fault: HeadFault) -> NotForwarded<'v> {
        self.counted(error::head_fault(fault))
    }

    /// The response to a request that is not parsed far enough to know whether it is gRPC.
    pub(super) fn problem(&self, kind: ProblemKind, detail: impl Into<Cow<'static, str>>) -> NotForwarded<'v> {
        self.problem_to(ResponseForm::unreadable(), kind, detail)
    }

    /// The response to a request with this form.
    pub(super) fn problem_to(
        &self,
        form: ResponseForm,
        kind: ProblemKind,
        detail: impl Into<Cow<'static, str>>,
    ) -> NotForwarded<'v> {
        self.counted(LocalReply::new(kind, detail, form.is_grpc))
    }

    /// Counts the problem that this response reports.
    pub(super) fn counted(&self, reply: LocalReply<'v>) -> NotForwarded<'v> {
        self.count(reply.kind());
        reply.into()
    }

    pub(super) fn count(&self, kind: ProblemKind) {
        self.worker.shared.metrics.problems.with_label_values(&[kind.label()]).inc();
    }

    /// Whether it waited for a limit or a store, so that time has passed since it began.
    pub(super) fn has_waited(&self) -> bool {
        self.waited.get() || self.queried.get()
    }

    /// The Date of an answer that begins at `at`.
    pub(super) fn date(&self, at: Instant) -> &'v Date {
        let Worker { shared, date, .. } = self.worker;
        date.set(shared.gate.clock().at(at));
        date
    }

    /// An instant near now, for a response of Weir and deadlines after it. It reads no clock if the request did not wait.
    pub(super) fn lately(&self) -> Instant {
        if self.has_waited() || self.was_sent.get() { time::instant_now() } else { self.began }
    }
}
