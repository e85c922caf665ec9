//! How long an exchange may take, and how slow its client may be.

use std::time::Duration;

use tokio::time::Instant;

use crate::net::Timeouts;
use crate::net::pace::MinRate;

/// What a request goes by once it is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) response_head: Duration,
    pub(super) body_idle: Duration,
    pub(super) min_send: Option<MinRate>,
    pub(super) min_read: Option<MinRate>,
    pub(super) total_at: Option<Instant>,
}

impl Patience {
    /// That of a request which is handed over `now`.
    pub(super) fn of(timeouts: &Timeouts, now: Instant) -> Self {
        let &Timeouts { response_head, body_idle, min_send, min_read, total, .. } = timeouts;
        Self { response_head, body_idle, min_send, min_read, total_at: total.map(|total| now + total) }
    }

    /// When it ends that may last for `allowed` from `since` on.
    pub(super) fn end(&self, since: Instant, allowed: Duration) -> Instant {
        let at = since + allowed;
        self.total_at.map_or(at, |total_at| total_at.min(at))
    }

    /// How long the client may take for a piece of the response.
    pub(super) fn time_to_take(&self, bytes: usize) -> Duration {
        self.min_read.map_or(self.body_idle, |rate| rate.time_for(bytes).min(self.body_idle))
    }
}
