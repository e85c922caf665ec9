//! A task of the control runtime that does its last work when the process stops.

use std::future::Future;

use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

/// A running task.
pub(super) struct StoppableTask {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl StoppableTask {
    /// Starts the task that `work` returns. It has to end soon after its receiver gets a message.
    pub(super) fn start<F>(work: impl FnOnce(oneshot::Receiver<()>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        Self { stop, task: tokio::spawn(work(stopped)) }
    }

    /// Lets the task do its last work, and waits for its end.
    pub(super) async fn finish(self) -> Result<(), JoinError> {
        let _ = self.stop.send(()); // the task may have ended
        self.task.await
    }
}
