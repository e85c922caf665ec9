//! The open connections of operators. Their number is bounded; at the bound the one that has been silent for longest makes
//! way, so that probes and scrapers always have room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::AbortHandle;

/// Connections served at once; scrapers and probes need few.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// The open connections, in the order in which they were accepted.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: VecDeque<(Arc<Activity>, AbortHandle)>,
    requests: Arc<AtomicU64>,
}

/// When a connection had its last request.
#[derive(Debug)]
pub(super) struct Activity {
    /// Requests on all connections so far.
    requests: Arc<AtomicU64>,
    /// The number of its last request.
    last: AtomicU64,
}

impl Activity {
    /// A request begins or has been answered.
    pub(super) fn touch(&self) {
        self.last.store(self.requests.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Connections {
    /// The activity of a new connection.
    pub(super) fn activity(&self) -> Arc<Activity> {
        let activity = Activity { requests: Arc::clone(&self.requests), last: AtomicU64::new(0) };
        activity.touch();
        Arc::new(activity)
    }

    /// Adds a connection. At the bound ends another one, and says so.
    pub(super) fn add(&mut self, activity: Arc<Activity>, connection: AbortHandle) -> bool {
        self.open.retain(|(_, connection)| !connection.is_finished());
        let silent =
            || self.open.iter().enumerate().min_by_key(|(_, (activity, _))| activity.last.load(Ordering::Relaxed));
        let ended = if self.open.len() < CONNECTIONS_MAX { None } else { silent().map(|(index, _)| index) };
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
    async fn the_one_that_is_silent_for_longest_makes_way() {
        let mut connections = Connections::default();
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
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
        // One that ended by itself gives its place back.
        open[10].1.abort();
        tokio::task::yield_now().await;
        assert!(!connections.add(connections.activity(), tokio::spawn(pending::<()>()).abort_handle()));
        assert!(!open[0].1.is_finished());
    }
}
