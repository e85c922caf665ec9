//! The export of traces: OTLP over HTTP with protobuf, on the control runtime.
//!
//! A collector that is slow or away costs spans, which are counted, and never a request: workers only put sampled requests
//! into a bounded queue. There is no second try.

mod messages;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Uri};
use prost::Message;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use self::messages::{ExportRequest, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans};
use super::fetch::{Trust, send};
use super::stoppable::StoppableTask;
use crate::base::telemetry::TracedRequest;
use crate::transport::proxy::SharedState;
use crate::transport::proxy::settings::TraceSettings;

/// Most requests of one export.
const BATCH_MAX: usize = 512;
/// The time in which requests are collected.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time of one export.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time of the last one.
const LAST_TIMEOUT: Duration = Duration::from_millis(500);
/// The bound on the length of an answer, which is not read.
const ANSWER_BYTES_MAX: usize = 1 << 16;

type Queue = Receiver<Box<TracedRequest>>;

/// Exports sampled requests until it is stopped; then those that still wait.
async fn export(shared: Arc<SharedState>, mut queue: Queue, mut stopped: oneshot::Receiver<()>) {
    let reloads = shared.reloads.subscribe();
    let mut exporter = Exporter { shared, reloads, trust: Trust::default(), is_failing: false };
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            taken = queue.recv_many(&mut batch, BATCH_MAX) => if taken == 0 { return },
        }
        if batch.len() < BATCH_MAX {
            tokio::select! {
                _ = &mut stopped => break,
                () = sleep(PAUSE) => take_waiting(&mut queue, &mut batch),
            }
        }
        exporter.send(&mut batch, TIMEOUT).await;
    }
    take_waiting(&mut queue, &mut batch);
    if !batch.is_empty() {
        exporter.send(&mut batch, LAST_TIMEOUT).await;
    }
}

/// Adds requests that wait, up to [`BATCH_MAX`].
#[expect(clippy::vec_box, reason = "the boxes come from the queue")]
fn take_waiting(queue: &mut Queue, batch: &mut Vec<Box<TracedRequest>>) {
    while batch.len() < BATCH_MAX
        && let Ok(request) = queue.try_recv()
    {
        batch.push(request);
    }
}

/// Sends batches to the collector.
pub(super) struct Exporter {
    shared: Arc<SharedState>,
    reloads: watch::Receiver<()>,
    /// Of the last reload.
    trust: Trust,
    /// The last export failed, which was logged.
    is_failing: bool,
}

impl Exporter {
    /// Starts the export. None if it runs already.
    pub(super) fn start(shared: &Arc<SharedState>) -> Option<StoppableTask> {
        let (queue, shared) = (shared.spans.receiver()?, Arc::clone(shared));
        Some(StoppableTask::start(|stopped| export(shared, queue, stopped)))
    }

    /// Sends what still waits, and ends.
    pub(super) async fn finish(task: Option<StoppableTask>) {
        if let Some(task) = task {
            let _ = timeout(2 * LAST_TIMEOUT, task.finish()).await;
        }
    }

    /// Sends all of `batch`, and clears it.
    #[expect(clippy::vec_box, reason = "the boxes come from the queue")]
    async fn send(&mut self, batch: &mut Vec<Box<TracedRequest>>, within: Duration) {
        let metrics = &self.shared.spans.metrics;
        let settings = self.shared.running_config.load().settings.traces.clone();
        let count = batch.len() as u64;
        let Some(settings) = settings else {
            // A reload has switched traces off.
            batch.clear();
            return metrics.dropped.inc_by(count);
        };
        if self.reloads.borrow_and_update().has_changed() {
            self.trust = Trust::default();
        }
        let body = encode(&settings, batch);
        batch.clear();
        let sent = timeout(within, deliver(&settings.endpoint, &self.trust, body)).await;
        match sent.unwrap_or_else(|_| Err("the collector does not answer in time".to_owned())) {
            Ok(()) => {
                metrics.exported.inc_by(count);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector takes traces again");
                }
            }
            Err(error) => {
                metrics.dropped.inc_by(count);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(error, "traces are lost: the collector does not take them");
                }
            }
        }
    }
}

async fn deliver(endpoint: &Uri, trust: &Trust, body: Vec<u8>) -> Result<(), String> {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))]);
    let request = (Method::POST, headers, body.into());
    let answer = send(endpoint, trust.tls_for(endpoint)?, request, ANSWER_BYTES_MAX).await?;
    if answer.status().is_success() { Ok(()) } else { Err(format!("the status of the answer is {}", answer.status())) }
}

fn encode(settings: &TraceSettings, batch: &[Box<TracedRequest>]) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let attributes =
        vec![KeyValue::text("service.name", &*settings.service_name), KeyValue::text("service.version", version)];
    let scope = Scope { name: "weir".to_owned(), version: version.to_owned() };
    let spans = batch.iter().flat_map(|request| spans::spans(request)).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    let of_resource = ResourceSpans { resource: Some(Resource { attributes }), scope_spans };
    ExportRequest { resource_spans: vec![of_resource] }.encode_to_vec()
}
