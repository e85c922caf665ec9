//! What an exchange reports: outcomes to its endpoint; its endpoint, its bytes and its latency to the record of the request.

use tokio::time::Instant;

use super::Exchange;
use crate::base::telemetry::EndpointResult;
use crate::transport::upstream::exchange::outcome::{self, ExchangeError, ResponseEvent};

impl Exchange {
    /// Counts no longer as a request in progress. The stream may end later.
    pub(crate) fn release_active(&mut self) {
        if let Some(handle) = &mut self.handle {
            handle.active = None;
        }
    }

    /// Bytes of memory in which more of the response waits or may wait.
    pub(crate) fn memory(&self) -> usize {
        self.transport.memory()
    }

    /// The endpoint that has the request; none once the connection has been given back.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        self.handle.as_ref().map(|handle| &*handle.pool.state.label)
    }

    /// Bytes of the request body that were taken from the client.
    pub(crate) fn bytes_in(&self) -> u64 {
        self.upload.taken(self.request)
    }

    /// Records the outcome at the endpoint.
    pub(super) fn record(&self, event: &Result<ResponseEvent, ExchangeError>) {
        let status = self.head.as_ref().map_or(0, |head| head.status);
        let Some(handle) = &self.handle else { return };
        match outcome::reached(event, status, self.was_idle) {
            Some(reached) => self.upstream.record(&handle.pool, reached, || outcome::failure(event, status)),
            // An idle connection that ends ejects no endpoint, but the client gets 502.
            None if matches!(event, Err(ExchangeError::Broken(_))) => {
                handle.pool.state.cells().count(EndpointResult::Failed);
            }
            None => {}
        }
    }

    /// Records at the endpoint and its upstream that the response head has arrived.
    pub(crate) fn record_arrival(&self, arrived: Instant) {
        let latency = arrived.saturating_duration_since(self.handed_over);
        let (Some(handle), Some(head)) = (&self.handle, &self.head) else { return };
        handle.pool.state.cells().latency.observe(latency);
        self.upstream.queue().metrics.cells.answered(head.status, latency);
    }

    /// Records a 101 at the endpoint: whether it agrees to the protocol that the request asked for.
    pub(crate) fn record_switch(&self, is_agreed: bool) {
        let Some(handle) = &self.handle else { return };
        let reached = if is_agreed { EndpointResult::Answered } else { EndpointResult::Failed };
        self.upstream.record(&handle.pool, reached, outcome::other_protocol);
    }
}
