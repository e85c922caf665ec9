//! The lifecycle of the workers, and the events in it that connections wait for.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// The state of all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Accepting connections.
    Running,
    /// Not accepting, while a successor receives the listeners. Connections end as while draining. Draining follows, or
    /// running again.
    HandingOver,
    /// Finishing the open requests.
    Draining,
    /// Dropping the open requests.
    Stopped,
}

/// Waits until draining begins. A worker without a controller drains, too.
pub(super) async fn draining(lifecycle: &mut watch::Receiver<Lifecycle>) {
    let _ = lifecycle.wait_for(|lifecycle| *lifecycle != Lifecycle::Running).await;
}

/// Time that an idle connection stays open after draining began. A request in flight would meet a closed connection,
/// and its client could not know whether it was served. So it is answered, with `Connection: close`.
const IDLE_DRAIN: Duration = Duration::from_secs(1);

/// Waits until an idle connection may be closed.
pub(super) async fn idle_drained(lifecycle: &mut watch::Receiver<Lifecycle>) {
    loop {
        draining(lifecycle).await;
        // Boxed, so that a connection needs the memory only now.
        Box::pin(sleep(IDLE_DRAIN)).await;
        if *lifecycle.borrow() != Lifecycle::Running {
            return;
        }
    }
}
