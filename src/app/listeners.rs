//! Where connections come in: sockets bound before anything runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::{io, iter};

use super::AppError;
use super::systemd::Passed;
use crate::config::Config;
use crate::proxy::{self, Listen, Listener, SocketFile};

/// All sockets for requests, for each worker one for each place.
pub(super) struct Listeners {
    pub(super) by_worker: Vec<Vec<Listener>>,
    /// The places, with the ports that were chosen.
    pub(super) places: Vec<Listen>,
    /// To be kept for as long as Weir runs.
    pub(super) files: Vec<SocketFile>,
}

impl Listeners {
    /// All that `config` asks for, or none. What was `passed` is not bound again.
    pub(super) fn bind(config: &Config, passed: &mut Passed) -> Result<Self, AppError> {
        let workers = config.fixed.workers;
        let by_worker = (0..workers).map(|_| Vec::new()).collect();
        let mut listeners = Self { by_worker, places: Vec::new(), files: Vec::new() };
        for place in &config.fixed.listen {
            let Bound { sockets, place, file } = bind(place, config.fixed.unix_mode, workers, passed)?;
            for (listeners, socket) in listeners.by_worker.iter_mut().zip(sockets) {
                listeners.push(socket);
            }
            listeners.places.push(place);
            listeners.files.extend(file);
        }
        Ok(listeners)
    }
}

/// The socket that operators are answered on.
pub(super) struct AdminListener {
    pub(super) socket: Listener,
    /// With the port that was chosen.
    pub(super) place: Listen,
    pub(super) file: Option<SocketFile>,
}

impl AdminListener {
    /// The one that `config` asks for, if it does.
    pub(super) fn bind(config: &Config, passed: &mut Passed) -> Result<Option<Self>, AppError> {
        let Some(place) = &config.admin_listen else { return Ok(None) };
        let Bound { mut sockets, place, file } = bind(place, config.fixed.unix_mode, 1, passed)?;
        Ok(sockets.pop().map(|socket| Self { socket, place, file }))
    }

    /// The address by which it may be asked; of a Unix socket that of this host.
    pub(super) fn address(&self) -> SocketAddr {
        match self.place {
            Listen::Tcp(address) => address,
            Listen::Unix(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }
}

/// As many sockets as workers, on one place.
struct Bound {
    sockets: Vec<Listener>,
    place: Listen,
    file: Option<SocketFile>,
}

fn bind(place: &Listen, unix_mode: u32, workers: usize, passed: &mut Passed) -> Result<Bound, AppError> {
    try_bind(place, unix_mode, workers, passed).map_err(|error| AppError::Listen(place.clone(), error))
}

fn try_bind(place: &Listen, unix_mode: u32, workers: usize, passed: &mut Passed) -> io::Result<Bound> {
    if let Some(socket) = passed.take(place) {
        let more = iter::repeat_with(|| socket.try_clone()).take(workers - 1).collect::<io::Result<Vec<_>>>()?;
        let sockets = more.into_iter().chain([socket]).collect();
        return Ok(Bound { sockets, place: place.clone(), file: None });
    }
    match place {
        Listen::Tcp(address) => {
            let sockets = proxy::bind(*address, workers)?;
            let bound = sockets.first().map_or(Ok(*address), std::net::TcpListener::local_addr)?;
            let sockets = sockets.into_iter().map(Listener::Tcp).collect();
            Ok(Bound { sockets, place: Listen::Tcp(bound), file: None })
        }
        Listen::Unix(path) => {
            let (sockets, file) = proxy::bind_unix(path, unix_mode, workers)?;
            let sockets = sockets.into_iter().map(Listener::Unix).collect();
            Ok(Bound { sockets, place: place.clone(), file: Some(file) })
        }
    }
}
