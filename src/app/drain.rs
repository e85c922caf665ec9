//! The end: stop accepting, finish what runs, refuse who still waits, leave.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::systemd;
use super::takeover::Handed;
use crate::proxy::{Lifecycle, SharedState};

/// What it takes to stop.
pub(super) struct Drain {
    pub(super) shared: Arc<SharedState>,
    pub(super) ready: Arc<AtomicBool>,
    pub(super) stage: watch::Sender<Lifecycle>,
    /// Closes when the last worker has ended.
    pub(super) endings: mpsc::Receiver<()>,
    pub(super) grace: Duration,
    pub(super) stops: Stops,
    /// Changes when another process has taken over.
    pub(super) handed: watch::Receiver<Handed>,
}

/// How long refusals to those who still waited have to be written.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

impl Drain {
    /// Waits for SIGTERM or SIGINT, or until another process has taken over, and then drains; a further signal cuts that
    /// short.
    ///
    /// `on_end` is called once it begins.
    pub(super) async fn run(mut self, on_end: impl FnOnce()) -> io::Result<()> {
        let is_asked = tokio::select! {
            () = self.stops.next() => true,
            () = handed_over(&mut self.handed) => false,
            _ = self.endings.recv() => {
                tracing::error!("no worker is left");
                return Err(io::Error::other("no worker is left"));
            }
        };
        tracing::info!(grace = ?self.grace, waiting = self.shared.gate.waiting(), "draining");
        if is_asked {
            systemd::tell_stopping();
        }
        self.ready.store(false, Ordering::Release);
        // Together: what pauses and goes on does so in one step too.
        self.stage.send_modify(|stage| {
            self.shared.draining.store(true, Ordering::Release);
            *stage = Lifecycle::Draining;
        });
        on_end();
        let is_done = tokio::select! {
            ended = timeout(self.grace, self.endings.recv()) => ended.is_ok(),
            () = self.stops.next() => false,
        };
        if !is_done {
            tracing::warn!(waiting = self.shared.gate.waiting(), "the grace period is over");
            self.shared.gate.close();
            let _ = timeout(LAST_WORDS, self.endings.recv()).await;
            self.stage.send_replace(Lifecycle::Stopped);
            let _ = timeout(LAST_WORDS, self.endings.recv()).await;
        }
        tracing::info!("stopped");
        Ok(())
    }
}

async fn handed_over(handed: &mut watch::Receiver<Handed>) {
    if handed.wait_for(|handed| *handed >= Handed::Over).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// SIGTERM and SIGINT, from when this is made on.
pub(super) struct Stops {
    term: Signal,
    int: Signal,
}

impl Stops {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
