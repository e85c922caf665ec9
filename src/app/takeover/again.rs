//! On SIGUSR2, starts the program that is now where this one was, so that it takes over.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::Handed;
use crate::app::systemd;

/// SIGUSR2, from when this is made on.
pub(in crate::app) struct Successors {
    asked: Signal,
    /// The command line of this process.
    command: Vec<OsString>,
    /// Whether one could take over: there is a socket for it.
    can_take_over: bool,
    handed: watch::Receiver<Handed>,
}

impl Successors {
    pub(in crate::app) fn new(
        command: Vec<OsString>,
        can_take_over: bool,
        handed: watch::Receiver<Handed>,
    ) -> io::Result<Self> {
        Ok(Self { asked: signal(SignalKind::user_defined2())?, command, can_take_over, handed })
    }

    /// Starts one whenever it is asked to.
    pub(in crate::app) async fn run(mut self) {
        while self.asked.recv().await.is_some() {
            if *self.handed.borrow() != Handed::Not {
                continue;
            }
            if !self.can_take_over {
                tracing::error!("SIGUSR2 asks for a successor, but without `server.takeover` none can take over");
                continue;
            }
            systemd::tell_reloading();
            match self.start() {
                Ok(child) => tracing::info!(pid = child, "a successor was started"),
                Err(error) => {
                    tracing::error!(%error, "a successor cannot be started");
                    systemd::tell_ready();
                }
            }
        }
    }

    fn start(&self) -> io::Result<u32> {
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::NotFound)?;
        let child = Command::new(program).args(arguments).stdin(Stdio::null()).spawn()?;
        let (pid, handed) = (child.id(), self.handed.clone());
        thread::Builder::new().name("weir-successor".to_owned()).spawn(move || watch_over(child, &handed))?;
        Ok(pid)
    }
}

/// Says what became of a successor that ended; one that took over outlives this process.
fn watch_over(mut child: Child, handed: &watch::Receiver<Handed>) {
    let pid = child.id();
    let status = child.wait();
    if *handed.borrow() == Handed::Not {
        match status {
            Ok(status) => tracing::error!(pid, %status, "the successor did not take over; this process goes on"),
            Err(error) => tracing::error!(pid, %error, "the successor is out of sight; this process goes on"),
        }
        systemd::tell_ready();
    }
}
