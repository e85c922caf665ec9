//! The open connections of the admin listener. Their number is bounded. At the bound, a new connection ends the
//! connection with the longest idle time, so that probes and scrapers can always connect.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::AbortHandle;

/// Most open connections, if there are enough descriptors. Scrapers and probes need few.
pub const CONNECTIONS_MAX: usize = 64;

/// The open connections, in the order in which they were accepted.
#[derive(Debug)]
pub(super) struct Connections {
    max: usize,
    open: VecDeque<(Arc<Activity>, AbortHandle)>,
    requests: Arc<AtomicU64>,
}

/// The time of the last request of a connection, as a number of requests.
#[derive(Debug)]
pub(super) struct Activity {
    /// Counts the requests of all connections.
    requests: Arc<AtomicU64>,
    /// The count at the last request of this connection.
    last: AtomicU64,
    /// Open streams of events.
    streams: AtomicU64,
}

/// A stream of events on a connection, which lives on until the stream ends.
#[derive(Debug)]
pub(super) struct Streaming(Arc<Activity>);

impl Activity {
    /// Records the begin or the end of a request.
    pub(super) fn touch(&self) {
        self.last.store(self.requests.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether a stream of events is open.
    pub(super) fn is_streaming(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0
    }
}

impl Streaming {
    /// Begins a stream.
    pub(super) fn new(activity: Arc<Activity>) -> Self {
        activity.streams.fetch_add(1, Ordering::Relaxed);
        Self(activity)
    }

    /// Records that the stream goes on.
    pub(super) fn touch(&self) {
        self.0.touch();
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// With its listener, each connection ends: a request on it would be for a process that no longer serves.
impl Drop for Connections {
    fn drop(&mut self) {
        self.open.iter().for_each(|(_, connection)| connection.abort());
    }
}

impl Connections {
    /// No connections yet, and at most `max` of them.
    pub(super) fn new(max: usize) -> Self {
        Self { max, open: VecDeque::new(), requests: Arc::default() }
    }

    /// The activity of a new connection.
    pub(super) fn activity(&self) -> Arc<Activity> {
        let activity =
            Activity { requests: Arc::clone(&self.requests), last: AtomicU64::new(0), streams: AtomicU64::new(0) };
        activity.touch();
        Arc::new(activity)
    }

    /// Adds a connection. At the bound it ends another connection. Returns whether it ended one.
    pub(super) fn add(&mut self, activity: Arc<Activity>, connection: AbortHandle) -> bool {
        self.open.retain(|(_, connection)| !connection.is_finished());
        let longest_idle =
            || self.open.iter().enumerate().min_by_key(|(_, (activity, _))| activity.last.load(Ordering::Relaxed));
        let ended = if self.open.len() < self.max { None } else { longest_idle().map(|(index, _)| index) };
        if let Some((_, connection)) = ended.and_then(|index| self.open.remove(index)) {
            connection.abort();
        }
        self.open.push_back((activity, connection));
        ended.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn at_the_bound_the_longest_idle_connection_ends() {
        const MAX: usize = 11;
        let (mut connections, mut open) = (Connections::new(MAX), Vec::new());
        for _ in 0..MAX {
            let (activity, connection) = (connections.activity(), tokio::spawn(pending::<()>()));
            assert!(!connections.add(Arc::clone(&activity), connection.abort_handle()));
            open.push((activity, connection));
        }
        // The first two have a request each; the third was accepted before all others.
        open[0].0.touch();
        open[1].0.touch();
        for expected in [2, 3] {
            let connection = tokio::spawn(pending::<()>());
            assert!(connections.add(connections.activity(), connection.abort_handle()));
            tokio::task::yield_now().await;
            let ended: Vec<_> = (0..open.len()).filter(|index| open[*index].1.is_finished()).collect();
            assert_eq!(ended.last(), Some(&expected));
        }
        // A connection that ended by itself frees its capacity.
        open[10].1.abort();
        tokio::task::yield_now().await;
        assert!(!connections.add(connections.activity(), tokio::spawn(pending::<()>()).abort_handle()));
        assert!(!open[0].1.is_finished());
    }
}
