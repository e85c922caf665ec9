//! Where requests come in: sockets bound before anything runs.

use crate::config::Config;
use crate::proxy::{self, Listen, Listener, SocketFile};

use super::AppError;
use super::systemd::Passed;

/// All sockets, for each worker one for each place.
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
            let failed = |error| AppError::Listen(place.clone(), error);
            if let Some(socket) = passed.take(place) {
                listeners.places.push(place.clone());
                let shared = (0..workers).map(|_| socket.try_clone()).collect::<Result<Vec<_>, _>>();
                listeners.share(shared.map_err(failed)?.into_iter());
                continue;
            }
            match place {
                Listen::Tcp(address) => {
                    let sockets = proxy::bind(*address, workers).map_err(failed)?;
                    if let Some(first) = sockets.first() {
                        listeners.places.push(Listen::Tcp(first.local_addr().map_err(failed)?));
                    }
                    listeners.share(sockets.into_iter().map(Listener::Tcp));
                }
                Listen::Unix(path) => {
                    let (sockets, file) = proxy::bind_unix(path, config.fixed.unix_mode, workers).map_err(failed)?;
                    listeners.places.push(place.clone());
                    listeners.files.push(file);
                    listeners.share(sockets.into_iter().map(Listener::Unix));
                }
            }
        }
        Ok(listeners)
    }

    /// Gives one to each worker.
    fn share(&mut self, sockets: impl Iterator<Item = Listener>) {
        for (listeners, socket) in self.by_worker.iter_mut().zip(sockets) {
            listeners.push(socket);
        }
    }
}
