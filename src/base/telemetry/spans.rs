//! Sampled requests on their way to the exporter of traces.
//!
//! A request that finds the queue full is dropped and counted, so no request waits for a collector. Not here: the place of
//! a request in its trace (proxy), and the export (app).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::IntCounter;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::factory::MetricFactory;
use super::request::RequestRecord;

/// Most requests that wait for the exporter.
const QUEUED_MAX: usize = 4096;

/// The place of a request in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The id of the trace.
    pub trace: u128,
    /// The span that sent the request; 0 if the trace begins with it.
    pub parent: u64,
    /// The span of the request.
    pub server: u64,
    /// The span of the request to its service.
    pub client: u64,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

/// A sampled request that has ended.
#[derive(Clone, Debug)]
pub struct TracedRequest {
    /// Its place in the trace.
    pub context: SpanContext,
    /// The request.
    pub record: RequestRecord,
    /// The time from its head to the begin of its last wait for a limit, if there was one.
    pub held_after: Option<Duration>,
    /// The time from its head until its upstream connection got it, if one did.
    pub sent_after: Option<Duration>,
    /// The time from then until the answer's head, or the failure.
    pub of_upstream: Option<Duration>,
    /// The status of the service's answer, if it answered.
    pub answer: Option<u16>,
}

/// The metrics of traces.
#[derive(Clone, Debug)]
pub struct SpanMetrics {
    /// Requests whose spans a collector took.
    pub exported: IntCounter,
    /// Requests whose spans were lost.
    pub dropped: IntCounter,
}

impl SpanMetrics {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, prometheus::Error> {
        let exported = "Requests whose spans the collector took.";
        let dropped = "Requests whose spans were lost, because the collector is slow or away.";
        Ok(Self {
            exported: make.counter("weir_traced_requests_exported_total", exported)?,
            dropped: make.counter("weir_traced_requests_dropped_total", dropped)?,
        })
    }
}

/// The queue to the exporter.
#[derive(Debug)]
pub struct Spans {
    queue: Sender<Box<TracedRequest>>,
    /// None once the exporter runs.
    receiver: Mutex<Option<Receiver<Box<TracedRequest>>>>,
    /// The metrics.
    pub metrics: SpanMetrics,
}

impl Spans {
    /// An empty queue.
    pub fn new(metrics: SpanMetrics) -> Self {
        let (queue, receiver) = channel(QUEUED_MAX);
        Self { queue, receiver: Mutex::new(Some(receiver)), metrics }
    }

    /// Gives a request to the exporter.
    pub fn publish(&self, request: TracedRequest) {
        if self.queue.try_send(Box::new(request)).is_err() {
            self.metrics.dropped.inc();
        }
    }

    /// The end of the queue for the exporter; none at a second call.
    pub fn receiver(&self) -> Option<Receiver<Box<TracedRequest>>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    #[test]
    fn a_full_queue_drops_requests_and_counts_them() {
        let spans = Spans::new(SpanMetrics::new(&MetricFactory { registry: Registry::new() }).unwrap());
        let context = SpanContext { trace: 1, parent: 0, server: 2, client: 3, is_sampled: true };
        let record = RequestRecord::default();
        let request =
            TracedRequest { context, record, held_after: None, sent_after: None, of_upstream: None, answer: None };
        for _ in 0..QUEUED_MAX + 3 {
            spans.publish(request.clone());
        }
        assert_eq!(spans.metrics.dropped.get(), 3);
        assert!(spans.receiver().is_some() && spans.receiver().is_none());
    }
}
