//! What all phases of a request go by, whichever protocol it came by.

use std::borrow::Cow;
use std::cell::Cell;

use tokio::time::Instant;

use super::error;
use super::passed::Passed;
use super::view::View;
use super::worker::Worker;
use crate::http1::HeadFault;
use crate::net::peer::Peer;
use crate::respond::{Answer, ProblemKind};
use crate::time;
use crate::upstream::ExchangeError;

/// A request that is not forwarded: with an answer, or without because nobody is left to read it.
pub(super) enum Stop<'v> {
    Answer(Box<Answer<'v>>),
    Abandoned,
}

impl<'v> From<Answer<'v>> for Stop<'v> {
    fn from(answer: Answer<'v>) -> Self {
        Self::Answer(Box::new(answer))
    }
}

/// What all phases of a request go by.
pub(super) struct Life<'v> {
    pub(super) worker: &'v Worker,
    pub(super) view: &'v View,
    pub(super) peer: &'v Peer,
    pub(super) began: Instant,
    /// It had to wait for a limit.
    pub(super) waited: Cell<bool>,
    /// It had to wait for a connection.
    pub(super) was_queued: Cell<bool>,
    /// It had to wait for the upstream.
    pub(super) was_sent: Cell<bool>,
}

impl<'v> Life<'v> {
    /// That of a request which has just come.
    pub(super) fn new(worker: &'v Worker, view: &'v View, peer: &'v Peer, began: Instant) -> Self {
        let [waited, was_queued, was_sent] = [const { Cell::new(false) }; 3];
        Self { worker, view, peer, began, waited, was_queued, was_sent }
    }

    /// The head of a response has come.
    pub(super) fn measure(&self, handed_over: Instant, arrived: Instant, was_held: bool) {
        let metrics = &self.worker.shared.metrics;
        if !was_held && !self.was_queued.get() {
            metrics.overhead.observe(handed_over.saturating_duration_since(self.began));
        }
        metrics.upstream_duration.observe(arrived.saturating_duration_since(handed_over));
    }

    /// There is no response.
    pub(super) fn failed(&self, failure: &ExchangeError, passed: &Passed<'v>, is_grpc: bool) -> Stop<'v> {
        let (kind, detail) = error::exchange_error(failure, &self.worker.problems);
        self.count(kind);
        self.was_sent.set(true);
        let budgets = passed.budgets(self.view.current.settings.profiles);
        Answer::new(kind, detail, is_grpc).standing(passed.standing(), budgets).into()
    }

    /// An answer to a head that is refused.
    pub(super) fn refuse(&self, fault: HeadFault) -> Stop<'v> {
        let (kind, detail) = error::head_fault(fault);
        self.stop(kind, detail)
    }

    /// An answer to someone of whom nothing is known yet, not even that they speak gRPC.
    pub(super) fn stop(&self, kind: ProblemKind, detail: impl Into<Cow<'static, str>>) -> Stop<'v> {
        self.count(kind);
        Answer::new(kind, detail, false).into()
    }

    pub(super) fn count(&self, kind: ProblemKind) {
        self.worker.shared.metrics.problems.with_label_values(&[kind.label()]).inc();
    }

    /// About now, for deadlines that begin with an answer of our own. Most are made as soon as they are asked for.
    pub(super) fn lately(&self) -> Instant {
        if self.waited.get() || self.was_sent.get() { time::instant_now() } else { self.began }
    }
}
