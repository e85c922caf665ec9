//! The lifecycle of the workers, which listeners and connections follow.

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

/// Waits for a lifecycle state with `is_it`, and returns it. Without a controller it returns `Stopped`.
pub(crate) async fn wait_for(
    lifecycle: &mut watch::Receiver<Lifecycle>,
    is_it: impl Fn(Lifecycle) -> bool,
) -> Lifecycle {
    lifecycle.wait_for(|lifecycle| is_it(*lifecycle)).await.map_or(Lifecycle::Stopped, |lifecycle| *lifecycle)
}

/// Waits until draining begins. A worker without a controller drains, too.
pub(crate) async fn draining(lifecycle: &mut watch::Receiver<Lifecycle>) {
    wait_for(lifecycle, |lifecycle| lifecycle != Lifecycle::Running).await;
}

/// Time that an idle connection stays open after draining began. A request in flight would meet a closed connection,
/// and its client could not know whether it was served. So it is answered, with `Connection: close`.
const IDLE_DRAIN: Duration = Duration::from_secs(1);

/// Waits until an idle connection may be closed.
pub(crate) async fn idle_drained(lifecycle: &mut watch::Receiver<Lifecycle>) {
    loop {
        draining(lifecycle).await;
        // Boxed, so that a connection needs the memory only now.
        Box::pin(sleep(IDLE_DRAIN)).await;
        if *lifecycle.borrow() != Lifecycle::Running {
            return;
        }
    }
}
