//! Starts a successor on SIGUSR2: the program at the path of this program, which may be a newer version.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::HandoverProgress;
use crate::app::systemd;

/// Receives SIGUSR2, and starts successors.
pub(in crate::app) struct Successors {
    signals: Signal,
    /// The command line of this process.
    command: Vec<OsString>,
    /// Whether there is a socket for successors.
    can_take_over: bool,
    progress: watch::Receiver<HandoverProgress>,
}

impl Successors {
    pub(in crate::app) fn new(
        command: Vec<OsString>,
        can_take_over: bool,
        progress: watch::Receiver<HandoverProgress>,
    ) -> io::Result<Self> {
        Ok(Self { signals: signal(SignalKind::user_defined2())?, command, can_take_over, progress })
    }

    /// Starts a successor for each signal, until one has taken over.
    pub(in crate::app) async fn run(mut self) {
        while self.signals.recv().await.is_some() {
            if *self.progress.borrow() != HandoverProgress::Pending {
                continue;
            }
            if !self.can_take_over {
                tracing::error!("SIGUSR2 asks for a successor, but `server.takeover` is not set");
                continue;
            }
            systemd::notify_reloading();
            match self.start() {
                Ok(child) => tracing::info!(pid = child, "a successor was started"),
                Err(error) => {
                    tracing::error!(%error, "a successor cannot be started");
                    systemd::notify_ready();
                }
            }
        }
    }

    fn start(&self) -> io::Result<u32> {
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::NotFound)?;
        let child = Command::new(program).args(arguments).stdin(Stdio::null()).spawn()?;
        let (pid, progress) = (child.id(), self.progress.clone());
        thread::Builder::new().name("weir-successor".to_owned()).spawn(move || watch_over(child, &progress))?;
        Ok(pid)
    }
}

/// Logs the end of a successor that did not take over. A successor that took over outlives this process.
fn watch_over(mut child: Child, progress: &watch::Receiver<HandoverProgress>) {
    let pid = child.id();
    let status = child.wait();
    if *progress.borrow() == HandoverProgress::Pending {
        match status {
            Ok(status) => tracing::error!(pid, %status, "the successor did not take over; this process continues"),
            Err(error) => tracing::error!(pid, %error, "the successor cannot be watched; this process continues"),
        }
        systemd::notify_ready();
    }
}
