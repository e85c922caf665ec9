//! systemd's protocols: socket activation (`LISTEN_FDS`) and state notification (`NOTIFY_SOCKET`).
//!
//! An activated socket serves the address of the configuration that it is bound to. Without systemd this file does
//! nothing.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;
use sd_notify::NotifyState;
use socket2::SockRef;

use crate::transport::net::{ListenAddress, Listener};

/// Sockets that systemd passed to the process, and that are not used yet.
#[derive(Debug, Default)]
pub(super) struct ActivatedSockets(Vec<(ListenAddress, Listener)>);

impl ActivatedSockets {
    /// Takes the sockets of this process. Call it before the first thread starts.
    pub(super) fn of_process() -> io::Result<Self> {
        // The crate does not check the process id, so it would take the sockets of a parent process.
        let is_ours = |pid: String| pid.parse() == Ok(std::process::id());
        if !std::env::var("LISTEN_PID").is_ok_and(is_ours) {
            return Ok(Self::default());
        }
        let mut all = ListenFd::from_env();
        (0..all.len()).map(|index| address_and_socket(&mut all, index)).collect::<io::Result<Vec<_>>>().map(Self)
    }

    /// Takes the socket that is bound to `place`.
    pub(super) fn take(&mut self, place: &ListenAddress) -> Option<Listener> {
        let index = self.0.iter().position(|(bound, _)| bound == place)?;
        Some(self.0.swap_remove(index).1)
    }

    /// The addresses of the sockets that are not used yet.
    pub(super) fn places(&self) -> impl Iterator<Item = &ListenAddress> {
        self.0.iter().map(|(place, _)| place)
    }
}

fn address_and_socket(all: &mut ListenFd, index: usize) -> io::Result<(ListenAddress, Listener)> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let socket = match all.take_unix_listener(index) {
        Ok(socket) => unix(socket.ok_or_else(gone)?)?,
        Err(_) => tcp(all.take_tcp_listener(index)?.ok_or_else(gone)?)?,
    };
    Ok(socket)
}

fn tcp(socket: TcpListener) -> io::Result<(ListenAddress, Listener)> {
    check(&SockRef::from(&socket))?;
    Ok((ListenAddress::Tcp(socket.local_addr()?), Listener::Tcp(socket)))
}

fn unix(socket: UnixListener) -> io::Result<(ListenAddress, Listener)> {
    check(&SockRef::from(&socket))?;
    let address = socket.local_addr()?;
    let path = address.as_pathname().ok_or_else(|| io::Error::other("a Unix socket without a file"))?;
    Ok((ListenAddress::Unix(path.to_owned()), Listener::Unix(socket)))
}

fn check(socket: &SockRef<'_>) -> io::Result<()> {
    if !socket.is_listener()? {
        return Err(io::Error::other("a socket that does not listen, as with Accept=yes"));
    }
    socket.set_nonblocking(true)
}

/// Says that requests are accepted.
pub(super) fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// Says that the configuration is being read; [`notify_ready`] follows.
pub(super) fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot tell the service manager the time"),
    }
}

/// Says that the process `pid` is the service from now on. systemd believes only the present main process.
pub(super) fn notify_main(pid: u32) {
    notify(&[NotifyState::MainPid(pid)]);
}

/// Says that the process is stopping.
pub(super) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}
