//! What a service manager that speaks systemd's protocols passes on, and is told.
//!
//! Sockets come as `LISTEN_FDS` says, and go to the places of the configuration that they are bound to. Without such a
//! manager nothing here does anything.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;
use sd_notify::NotifyState;
use socket2::SockRef;

use crate::net::{Listen, Listener};

/// Sockets that came with the process and have not been taken.
#[derive(Debug, Default)]
pub(super) struct Passed(Vec<(Listen, Listener)>);

impl Passed {
    /// Those of this process; to be asked for before it has threads.
    pub(super) fn of_process() -> io::Result<Self> {
        // The crate would also take what was meant for a parent that did not clear its environment.
        let is_ours = |pid: String| pid.parse() == Ok(std::process::id());
        if !std::env::var("LISTEN_PID").is_ok_and(is_ours) {
            return Ok(Self::default());
        }
        let mut all = ListenFd::from_env();
        (0..all.len()).map(|index| place_and_socket(&mut all, index)).collect::<io::Result<Vec<_>>>().map(Self)
    }

    /// The one that is bound to `place`.
    pub(super) fn take(&mut self, place: &Listen) -> Option<Listener> {
        let index = self.0.iter().position(|(bound, _)| bound == place)?;
        Some(self.0.swap_remove(index).1)
    }

    /// The place of one that nobody has taken.
    pub(super) fn left(&self) -> Option<&Listen> {
        self.0.first().map(|(place, _)| place)
    }
}

fn place_and_socket(all: &mut ListenFd, index: usize) -> io::Result<(Listen, Listener)> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let passed = match all.take_unix_listener(index) {
        Ok(socket) => unix(socket.ok_or_else(gone)?)?,
        Err(_) => tcp(all.take_tcp_listener(index)?.ok_or_else(gone)?)?,
    };
    Ok(passed)
}

fn tcp(socket: TcpListener) -> io::Result<(Listen, Listener)> {
    check(&SockRef::from(&socket))?;
    Ok((Listen::Tcp(socket.local_addr()?), Listener::Tcp(socket)))
}

fn unix(socket: UnixListener) -> io::Result<(Listen, Listener)> {
    check(&SockRef::from(&socket))?;
    let address = socket.local_addr()?;
    let path = address.as_pathname().ok_or_else(|| io::Error::other("a Unix socket without a file"))?;
    Ok((Listen::Unix(path.to_owned()), Listener::Unix(socket)))
}

fn check(socket: &SockRef<'_>) -> io::Result<()> {
    if !socket.is_listener()? {
        return Err(io::Error::other("a socket that does not listen, as with Accept=yes"));
    }
    socket.set_nonblocking(true)
}

/// Requests are accepted, under the newest configuration that is valid.
pub(super) fn tell_ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is read again; ready is to follow.
pub(super) fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot tell the service manager the time"),
    }
}

/// This process is the service from now on. Only the one that was is believed.
pub(super) fn tell_main(pid: u32) {
    tell(&[NotifyState::MainPid(pid)]);
}

/// The end has begun.
pub(super) fn tell_stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}
