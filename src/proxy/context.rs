//! The context of a request in all its phases, for every protocol.

use std::borrow::Cow;
use std::cell::Cell;

use tokio::time::Instant;

use super::admission::Admission;
use super::error;
use super::running_config::WorkerConfig;
use super::worker::Worker;
use crate::http1::HeadFault;
use crate::net::peer::Peer;
use crate::respond::{LocalReply, ProblemKind};
use crate::time;
use crate::upstream::ExchangeError;

/// A request that is not forwarded: answered by Weir, or abandoned by its client.
pub(super) enum NotForwarded<'v> {
    Reply(Box<LocalReply<'v>>),
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
    /// It waited for a connection.
    pub(super) was_queued: Cell<bool>,
    /// It waited for the upstream.
    pub(super) was_sent: Cell<bool>,
}

impl<'v> RequestContext<'v> {
    /// The context of a request that began at `began`.
    pub(super) fn new(worker: &'v Worker, config: &'v WorkerConfig, peer: &'v Peer, began: Instant) -> Self {
        let [waited, queried, was_queued, was_sent] = [const { Cell::new(false) }; 4];
        Self { worker, config, peer, began, waited, queried, was_queued, was_sent }
    }

    /// Measures the head of a response that arrived at `arrived`.
    pub(super) fn measure(&self, handed_over: Instant, arrived: Instant, was_held: bool) {
        let metrics = &self.worker.shared.metrics;
        if !was_held && !self.was_queued.get() {
            metrics.overhead.observe(handed_over.saturating_duration_since(self.began));
        }
        metrics.upstream_duration.observe(arrived.saturating_duration_since(handed_over));
    }

    /// The response to a request whose exchange failed.
    pub(super) fn failed(&self, failure: &ExchangeError, admission: &Admission<'v>, is_grpc: bool) -> NotForwarded<'v> {
        let (kind, detail) = error::exchange_error(failure, &self.worker.problems);
        self.count(kind);
        self.was_sent.set(true);
        let budgets = admission.budgets(self.config.running.settings.profiles);
        LocalReply::new(kind, detail, is_grpc).standing(admission.standing(), budgets).into()
    }

    /// The response to a refused head.
    pub(super) fn refuse(&self, fault: HeadFault) -> NotForwarded<'v> {
        let (kind, detail) = error::head_fault(fault);
        self.problem(kind, detail)
    }

    /// The response to a request that is not parsed far enough to know whether it is gRPC.
    pub(super) fn problem(&self, kind: ProblemKind, detail: impl Into<Cow<'static, str>>) -> NotForwarded<'v> {
        self.count(kind);
        LocalReply::new(kind, detail, false).into()
    }

    pub(super) fn count(&self, kind: ProblemKind) {
        self.worker.shared.metrics.problems.with_label_values(&[kind.label()]).inc();
    }

    /// Whether it waited for a limit or a store, so that time has passed since it began.
    pub(super) fn has_waited(&self) -> bool {
        self.waited.get() || self.queried.get()
    }

    /// An instant near now, for deadlines after a response of Weir. It reads no clock if the request did not wait.
    pub(super) fn lately(&self) -> Instant {
        if self.has_waited() || self.was_sent.get() { time::instant_now() } else { self.began }
    }
}
