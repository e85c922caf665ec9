//! Draining: stops accepting, finishes running requests, and refuses waiting requests after the grace period.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::AppError;
use super::systemd;
use super::takeover::HandoverProgress;
use crate::transport::net::Lifecycle;
use crate::transport::proxy::SharedState;

/// The parts that draining needs.
pub(super) struct Drain {
    pub(super) shared: Arc<SharedState>,
    pub(super) ready: Arc<AtomicBool>,
    pub(super) stage: watch::Sender<Lifecycle>,
    /// The error of a worker that could not start; closes when the last one has ended.
    pub(super) endings: mpsc::Receiver<io::Error>,
    pub(super) grace: Duration,
    pub(super) stops: StopSignals,
    /// Changes when a successor has taken over.
    pub(super) progress: watch::Receiver<HandoverProgress>,
    /// Closes when the predecessor has ended; `None` without one.
    pub(super) predecessor: Option<oneshot::Receiver<Infallible>>,
}

/// The time in which refusals of waiting requests must be written. There is more while a second brings some of them, as
/// on a busy machine.
pub(super) const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

impl Drain {
    /// Waits for SIGTERM, SIGINT or SIGQUIT, or until a successor has taken over, and then drains. A further signal ends the grace
    /// period. If a successor has taken over, it hears of the charges of a predecessor that still drains.
    ///
    /// Calls `on_end` when draining begins.
    pub(super) async fn run(mut self, on_end: impl FnOnce()) -> Result<(), AppError> {
        let is_signalled = tokio::select! {
            () = self.stops.next() => true,
            () = handed_over(&mut self.progress) => false,
            failed = self.endings.recv() => {
                let error = failed.unwrap_or_else(|| io::Error::other("no worker is left"));
                return Err(AppError::system("run the workers")(error));
            }
        };
        tracing::info!(grace = ?self.grace, waiting = self.shared.gate.waiting(), "draining");
        if is_signalled {
            systemd::notify_stopping();
        }
        self.ready.store(false, Ordering::Release);
        // Both change in one step, as they do when a handover pauses and resumes.
        self.stage.send_modify(|stage| {
            self.shared.draining.store(true, Ordering::Release);
            *stage = Lifecycle::Draining;
        });
        on_end();
        let predecessor = self.predecessor.take().filter(|_| !is_signalled);
        let all_ended = async {
            self.endings.recv().await;
            if let Some(predecessor) = predecessor {
                let _ = predecessor.await;
            }
        };
        let is_done = tokio::select! {
            ended = timeout(self.grace, all_ended) => ended.is_ok(),
            () = self.stops.next() => false,
        };
        if !is_done {
            tracing::warn!(waiting = self.shared.gate.waiting(), "the grace period is over");
            self.shared.gate.close();
            let mut waiting = usize::MAX;
            while timeout(REFUSAL_TIMEOUT, self.endings.recv()).await.is_err() {
                let left = self.shared.gate.waiting();
                if left == 0 || left >= waiting {
                    break;
                }
                waiting = left;
            }
            self.stage.send_replace(Lifecycle::Stopped);
            let _ = timeout(REFUSAL_TIMEOUT, self.endings.recv()).await;
        }
        tracing::info!("stopped");
        Ok(())
    }
}

async fn handed_over(progress: &mut watch::Receiver<HandoverProgress>) {
    if progress.wait_for(|progress| *progress >= HandoverProgress::HandedOver).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Receives SIGTERM, SIGINT and SIGQUIT from its creation on.
pub(super) struct StopSignals {
    term: Signal,
    int: Signal,
    quit: Signal,
}

impl StopSignals {
    pub(super) fn new() -> io::Result<Self> {
        let [term, int, quit] = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
        Ok(Self { term: term?, int: int?, quit: quit? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}
