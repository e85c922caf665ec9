//! How long the parts of an exchange may take, and how slow its client may be.

use std::time::Duration;

use tokio::time::Instant;

use crate::transport::net::Timeouts;
use crate::transport::net::pace::MinRate;

/// The timeouts of one request from the moment that it has a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    pub(crate) response_head: Duration,
    pub(crate) body_idle: Duration,
    pub(crate) min_send: Option<MinRate>,
    pub(crate) min_read: Option<MinRate>,
    pub(crate) total_at: Option<Instant>,
}

impl Deadlines {
    /// The deadlines of a request that gets its connection `now`.
    pub(crate) fn new(timeouts: &Timeouts, now: Instant) -> Self {
        let &Timeouts { response_head, body_idle, min_send, min_read, total, .. } = timeouts;
        Self { response_head, body_idle, min_send, min_read, total_at: total.map(|total| now + total) }
    }

    /// When a step ends that began at `since` and may take `allowed`: then, or when the whole exchange must end.
    pub(crate) fn end(&self, since: Instant, allowed: Duration) -> Instant {
        let at = since + allowed;
        self.total_at.map_or(at, |total_at| total_at.min(at))
    }
}
