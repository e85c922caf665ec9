//! Accepts the connections of a listener as long as its worker runs.
//!
//! Not here: a connection after it was accepted.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::lifecycle::{Lifecycle, wait_for};
use super::listener::{BACKLOG, LOCAL_PEER, Listener};
use super::socket::Socket;
use crate::base::time;

/// Pause between attempts to accept after an error, such as a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Least time between two log lines about that.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// The failed attempts of one listener to accept.
#[derive(Debug, Default)]
pub(crate) struct FailedAccepts {
    logged_at: Option<Instant>,
}

impl FailedAccepts {
    /// Logs `message` with `error`, unless a line was logged within the last second, and pauses. Does neither if the
    /// client closed before the connection was accepted.
    pub(crate) async fn pause(&mut self, error: &io::Error, message: &'static str) {
        if error.kind() == io::ErrorKind::ConnectionAborted {
            return;
        }
        if self.may_log() {
            tracing::error!(%error, "{message}");
        }
        sleep(ACCEPT_PAUSE).await;
    }

    fn may_log(&mut self) -> bool {
        let now = time::instant_now();
        let is_due = self.logged_at.is_none_or(|at| now.saturating_duration_since(at) >= LOG_EVERY);
        if is_due {
            self.logged_at = Some(now);
        }
        is_due
    }
}

/// A [`Listener`] on the runtime of a worker.
pub(crate) enum AsyncListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsyncListener {
    /// The listener on the current runtime.
    pub(crate) fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(listener) => TcpListener::from_std(listener).map(Self::Tcp),
            Listener::Unix(listener) => UnixListener::from_std(listener).map(Self::Unix),
        }
    }

    /// Waits for a connection. Returns its peer, too, which is [`LOCAL_PEER`] for a Unix socket.
    pub(crate) async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Socket, SocketAddr)>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(cx).map_ok(|(socket, peer)| (Socket::Tcp(socket), peer)),
            Self::Unix(listener) => listener.poll_accept(cx).map_ok(|(socket, _)| (Socket::Unix(socket), LOCAL_PEER)),
        }
    }

    /// Calls `serve` with each connection and its peer until the worker drains. Then it takes the connections that the
    /// kernel has completed, unless a successor has the listener.
    pub(crate) async fn serve_each(
        self,
        mut lifecycle: watch::Receiver<Lifecycle>,
        mut serve: impl FnMut(Socket, SocketAddr),
    ) {
        let (mut was_handed_over, mut failed) = (false, FailedAccepts::default());
        loop {
            let accepted = tokio::select! {
                biased;
                now = wait_for(&mut lifecycle, |lifecycle| lifecycle != Lifecycle::Running) => {
                    was_handed_over |= now == Lifecycle::HandingOver;
                    let next = wait_for(&mut lifecycle, |lifecycle| lifecycle != Lifecycle::HandingOver).await;
                    if next == Lifecycle::Running {
                        was_handed_over = false;
                        continue;
                    }
                    break;
                }
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => serve(socket, peer),
                Err(error) => failed.pause(&error, "cannot accept connections").await,
            }
        }
        if !was_handed_over {
            // The kernel would reset connections that wait to be accepted.
            for _ in 0..BACKLOG {
                let Poll::Ready(Ok((socket, peer))) = poll_fn(|cx| Poll::Ready(self.poll_accept(cx))).await else {
                    return;
                };
                serve(socket, peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_are_logged_once_a_second() {
        let (mut failed, error) = (FailedAccepts::default(), io::Error::from_raw_os_error(24));
        let mut logged = Vec::new();
        for attempt in 0..50 {
            // As `pause` does, which then logs nothing more.
            if failed.may_log() {
                logged.push(attempt);
            }
            failed.pause(&error, "cannot accept").await;
        }
        assert_eq!(logged, [0, 20, 40]);
        let began = time::instant_now();
        failed.pause(&io::ErrorKind::ConnectionAborted.into(), "cannot accept").await;
        assert_eq!(time::instant_now(), began);
    }
}
