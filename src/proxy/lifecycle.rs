//! The lifecycle of a worker, and the points in it that connections wait for.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// Where a worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Accepting.
    Running,
    /// Leaving new connections where they are while another process is given all there is. Connections end as they do
    /// when draining. What follows is draining, or running again.
    HandingOver,
    /// Finishing what runs.
    Draining,
    /// Dropping what still runs.
    Stopped,
}

/// Waits until draining has begun. A worker that nobody controls any more drains too.
pub(super) async fn draining(stage: &mut watch::Receiver<Stage>) {
    let _ = stage.wait_for(|stage| *stage != Stage::Running).await;
}

/// How long a connection without a request stays open once draining has begun. A request that is on its way would meet
/// a closed connection, and its client could not know whether it was served; so it is answered, and told to close.
const LAST_CALL: Duration = Duration::from_secs(1);

/// Waits until no request is expected any more from a client that is silent.
pub(super) async fn last_call(stage: &mut watch::Receiver<Stage>) {
    loop {
        draining(stage).await;
        // Boxed, so that a connection takes the room only now.
        Box::pin(sleep(LAST_CALL)).await;
        if *stage.borrow() != Stage::Running {
            return;
        }
    }
}
