//! Listening sockets: bound before anything runs, or inherited from systemd or a predecessor.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::error::AppError;
use super::systemd::ActivatedSockets;
use super::takeover::{InheritedSockets, Offered, Predecessor, Previous, Purpose};
use crate::config::Config;
use crate::transport::net;
use crate::transport::net::{ListenAddress, Listener, SocketFile};
use crate::transport::proxy::ListenerKind;

/// Sockets that need not be bound, because another process has bound them.
pub(super) struct Inherited {
    activated: ActivatedSockets,
    pub(super) previous: Previous,
    /// Addresses of IPv6 whose sockets leave the port of IPv4 to others.
    only_v6: Vec<ListenAddress>,
}

impl Inherited {
    /// The sockets of systemd, and those of the process that this one takes over from.
    pub(super) fn find(config: &Config) -> Result<Self, AppError> {
        let activated =
            ActivatedSockets::of_process().map_err(AppError::system("take the sockets that were passed"))?;
        let previous = match &config.fixed.takeover {
            Some(path) => Predecessor::meet(path).map_err(AppError::TakeOver)?,
            None => Previous::None,
        };
        Ok(Self { activated, previous, only_v6: Vec::new() })
    }

    fn take(&mut self, purpose: Purpose, place: &ListenAddress, mode: u32) -> io::Result<Option<InheritedSockets>> {
        if let Previous::Running(predecessor) = &mut self.previous
            && let Some(given) = predecessor.take(purpose, place, mode)?
        {
            return Ok(Some(given));
        }
        let activated = self.activated.take(place);
        Ok(activated.map(|socket| InheritedSockets { sockets: vec![socket], address: place.clone(), file: None }))
    }

    /// The addresses to bind for `places`. The kernel does not change whether bound sockets of `[::]` have IPv4, too.
    fn adapted(&self, places: &[ListenAddress]) -> Vec<ListenAddress> {
        let mut adapted = places.to_vec();
        for place in places {
            let Some(port) = place.port_of_all_v6() else { continue };
            let bound = match &self.previous {
                Previous::Running(predecessor) => predecessor.has_only_v6(place),
                _ => None,
            };
            match bound {
                Some(false) => adapted.retain(|other| !other.is_v4(port)),
                Some(true) if !self.only_v6.contains(place) => {
                    adapted.push(ListenAddress::Tcp((Ipv4Addr::UNSPECIFIED, port).into()));
                }
                _ => {}
            }
        }
        adapted
    }

    /// Errs if a socket of systemd is for no address that `is_wanted`.
    fn check(&self, is_wanted: impl Fn(&ListenAddress) -> bool) -> Result<(), AppError> {
        let Some(place) = self.activated.places().find(|place| !is_wanted(place)) else { return Ok(()) };
        let what = format!("no listener of the configuration has {place}");
        Err(AppError::System("use a socket that was passed", what.into()))
    }
}

/// The sockets of one address.
pub(super) struct Bound {
    purpose: Purpose,
    /// The address as it is configured.
    configured: ListenAddress,
    /// The address with the port that the system chose.
    pub(super) address: ListenAddress,
    /// The mode of the file, for a Unix socket.
    mode: u32,
    /// At least one.
    sockets: Vec<Listener>,
    /// Kept as long as Weir runs.
    file: Option<Arc<SocketFile>>,
}

impl Bound {
    fn new(
        purpose: Purpose,
        place: &ListenAddress,
        mode: u32,
        workers: usize,
        inherited: &mut Inherited,
    ) -> Result<Self, AppError> {
        let mut attempts = if matches!(inherited.previous, Previous::Ended) { BIND_ATTEMPTS_MAX } else { 1 };
        loop {
            attempts -= 1;
            match Self::try_new(purpose, place, mode, workers, inherited) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => thread::sleep(BIND_EVERY),
                bound => return bound.map_err(|error| AppError::Listen(place.clone(), error)),
            }
        }
    }

    fn try_new(
        purpose: Purpose,
        configured: &ListenAddress,
        mode: u32,
        workers: usize,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let InheritedSockets { sockets, address, file } = match (inherited.take(purpose, configured, mode)?, configured)
        {
            (Some(given), _) => given,
            (None, ListenAddress::Tcp(address)) => {
                let sockets = net::bind(*address, inherited.only_v6.contains(configured), workers)?;
                let bound = sockets.first().map_or(Ok(*address), std::net::TcpListener::local_addr)?;
                let sockets = sockets.into_iter().map(Listener::Tcp).collect();
                InheritedSockets { sockets, address: ListenAddress::Tcp(bound), file: None }
            }
            (None, ListenAddress::Unix(path)) => {
                let (socket, file) = net::bind_unix(path, mode)?;
                InheritedSockets {
                    sockets: vec![Listener::Unix(socket)],
                    address: configured.clone(),
                    file: Some(file),
                }
            }
        };
        Ok(Self { purpose, configured: configured.clone(), address, mode, sockets, file: file.map(Arc::new) })
    }

    /// Binds a Unix socket again if its predecessor has removed the file.
    fn mend(&mut self) -> Result<(), AppError> {
        let is_lost = self.file.as_ref().is_some_and(|file| !file.is_unchanged());
        if let (ListenAddress::Unix(path), true) = (&self.address, is_lost) {
            let bound = net::bind_unix(path, self.mode);
            let (socket, file) = bound.map_err(|error| AppError::Listen(self.address.clone(), error))?;
            (self.sockets, self.file) = (vec![Listener::Unix(socket)], Some(Arc::new(file)));
        }
        Ok(())
    }

    /// A handle of one socket.
    fn handle(&self) -> io::Result<Listener> {
        self.sockets.first().ok_or(io::ErrorKind::NotFound)?.try_clone()
    }

    /// The address for the `Host` check; for a Unix socket, the loopback address.
    pub(super) fn socket_address(&self) -> SocketAddr {
        match self.address {
            ListenAddress::Tcp(address) => address,
            ListenAddress::Unix(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    /// Handles of all sockets, for a successor.
    fn offer(&self) -> io::Result<Offered> {
        let sockets = self.sockets.iter().map(Listener::try_clone).collect::<io::Result<Vec<_>>>()?;
        let (purpose, configured, file) = (self.purpose, self.configured.clone(), self.file.clone());
        Ok(Offered { purpose, configured, sockets, file })
    }

    /// Binds one more socket for each worker without one, if the sockets have `SO_REUSEPORT`. Otherwise workers share
    /// sockets.
    fn grow(&mut self, workers: usize) {
        let more = workers.saturating_sub(self.sockets.len());
        if let (Some(Listener::Tcp(first)), ListenAddress::Tcp(address)) = (self.sockets.first(), &self.address)
            && SockRef::from(first).reuse_port().unwrap_or(false)
            && let Ok(sockets) = net::bind_additional(first, *address, more)
        {
            self.sockets.extend(sockets.into_iter().map(Listener::Tcp));
        }
    }
}

/// All listening sockets.
pub(super) struct Listeners {
    pub(super) requests: Vec<Bound>,
    /// For requests over TLS, if `requests` have none.
    tls_requests: Vec<Bound>,
    /// The listener for checks.
    pub(super) checks: Option<Bound>,
    /// The limiter service.
    pub(super) grpc: Option<Bound>,
    /// For other replicas.
    pub(super) fleet: Option<Bound>,
    /// The admin listener.
    pub(super) operators: Option<Bound>,
    /// The socket for successors.
    takeover: Option<Bound>,
}

/// Attempts to bind an address after its process was killed: the kernel closes the sockets one by one. There is no
/// event for an address that becomes free, so Weir tries again.
const BIND_ATTEMPTS_MAX: usize = 500;
const BIND_EVERY: Duration = Duration::from_millis(10);

/// Only the owner may take over.
const TAKEOVER_MODE: u32 = 0o600;

impl Listeners {
    /// Binds the sockets of `config` that are not inherited.
    pub(super) fn bind(config: &Config, inherited: &mut Inherited) -> Result<Self, AppError> {
        let (workers, mode) = (config.fixed.workers, config.fixed.unix_mode);
        let checks = config.check_listener.as_ref().map(|listener| &listener.listen);
        let grpc = config.grpc.as_ref().map(|grpc| &grpc.listener.listen);
        let fleet = config.peers.as_ref().map(|peers| &peers.listen);
        let operators = config.admin.listen.as_ref();
        let takeover = config.fixed.takeover.as_deref().map(|path: &Path| ListenAddress::Unix(path.to_owned()));
        // First, because a socket for no listener may have the port of one.
        let beside = || checks.into_iter().chain(grpc).chain(fleet).chain(operators).chain(&takeover);
        let places = || config.fixed.listen.iter().chain(&config.fixed.tls_listen).chain(beside());
        inherited.check(|place| places().any(|own| own == place))?;
        let leaves_v4 = |port| places().any(|own| own.is_v4(port));
        let only_v6 = places().filter(|place| place.port_of_all_v6().is_some_and(leaves_v4));
        inherited.only_v6 = only_v6.cloned().collect();
        let mut all = |places: &[ListenAddress]| {
            let places = inherited.adapted(places);
            let bound = places.iter().map(|place| Bound::new(Purpose::Requests, place, mode, workers, inherited));
            bound.collect::<Result<_, _>>()
        };
        let (requests, tls_requests) = (all(&config.fixed.listen)?, all(&config.fixed.tls_listen)?);
        let checks = checks.map(|place| Bound::new(Purpose::Checks, place, mode, workers, inherited)).transpose()?;
        let grpc = grpc.map(|place| Bound::new(Purpose::Grpc, place, mode, workers, inherited)).transpose()?;
        let fleet = fleet.map(|place| Bound::new(Purpose::Fleet, place, mode, 1, inherited)).transpose()?;
        let operators = operators.map(|place| Bound::new(Purpose::Operators, place, mode, 1, inherited)).transpose()?;
        let takeover =
            takeover.map(|place| Bound::new(Purpose::Takeover, &place, TAKEOVER_MODE, 1, inherited)).transpose()?;
        inherited.check(|_| false)?;
        Ok(Self { requests, tls_requests, checks, grpc, fleet, operators, takeover })
    }

    /// Binds removed Unix sockets again, after the end of the predecessor.
    pub(super) fn mend(&mut self) -> Result<(), AppError> {
        let Self { requests, tls_requests, checks, grpc, fleet, operators, takeover } = self;
        let beside = grpc.iter_mut().chain(fleet).chain(operators).chain(takeover);
        requests.iter_mut().chain(tls_requests).chain(checks).chain(beside).try_for_each(Bound::mend)
    }

    /// The addresses for requests, with the ports that the system chose.
    pub(super) fn places(&self) -> Vec<ListenAddress> {
        self.requests.iter().chain(&self.tls_requests).map(|bound| bound.address.clone()).collect()
    }

    /// Shares the sockets out. Errs only if there are too few file descriptors.
    pub(super) fn open(mut self, workers: usize) -> io::Result<Open> {
        let Self { requests, tls_requests, checks, grpc, fleet, operators, takeover } = &mut self;
        requests
            .iter_mut()
            .chain(&mut *tls_requests)
            .chain(&mut *checks)
            .chain(&mut *grpc)
            .for_each(|bound| bound.grow(workers));
        let beside = || grpc.iter().chain(&*fleet).chain(&*operators).chain(&*takeover);
        let all = || requests.iter().chain(&*tls_requests).chain(&*checks).chain(beside());
        let offered = match &*takeover {
            Some(_) => all().map(Bound::offer).collect::<io::Result<_>>()?,
            None => Arc::default(),
        };
        let files: Vec<_> = all().filter_map(|bound| bound.file.clone()).collect();
        for file in &files {
            file.take_ownership();
        }
        let requests = requests.iter().map(|bound| (ListenerKind::Requests, bound));
        let requests = requests.chain(tls_requests.iter().map(|bound| (ListenerKind::TlsRequests, bound)));
        let by_worker = share_out(requests.chain(checks.iter().map(|bound| (ListenerKind::Checks, bound))), workers)?;
        let grpc = share_out(grpc.iter().map(|bound| ((), bound)), workers)?;
        let grpc = grpc.into_iter().map(|sockets| sockets.into_iter().map(|((), socket)| socket).collect()).collect();
        let fleet = fleet.as_ref().map(Bound::handle).transpose()?;
        let operators = operators.as_ref().map(Bound::handle).transpose()?;
        let takeover = takeover.as_ref().map(Bound::handle).transpose()?;
        Ok(Open { by_worker, grpc, fleet, operators, takeover, offered, files })
    }
}

/// Handles of all sockets of `bounds` for each worker, with their kind.
fn share_out<'b, K: Copy>(
    bounds: impl Iterator<Item = (K, &'b Bound)>,
    workers: usize,
) -> io::Result<Vec<Vec<(K, Listener)>>> {
    let mut by_worker: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for (kind, bound) in bounds {
        let sockets = bound.sockets.len();
        for (index, socket) in bound.sockets.iter().cycle().take(sockets.max(workers)).enumerate() {
            if let Some(worker) = by_worker.get_mut(index % workers) {
                worker.push((kind, socket.try_clone()?));
            }
        }
    }
    Ok(by_worker)
}

/// All sockets by their use.
pub(super) struct Open {
    /// The sockets of each worker. After a predecessor with more workers, some workers have several sockets: closing a
    /// socket would lose the connections in its backlog.
    pub(super) by_worker: Vec<Vec<(ListenerKind, Listener)>>,
    /// The sockets of the limiter service, for each worker.
    pub(super) grpc: Vec<Vec<Listener>>,
    /// For other replicas.
    pub(super) fleet: Option<Listener>,
    /// The admin listener.
    pub(super) operators: Option<Listener>,
    /// The socket for successors.
    pub(super) takeover: Option<Listener>,
    /// The sockets that a successor may inherit.
    pub(super) offered: Arc<[Offered]>,
    /// The files of Unix sockets, kept as long as Weir runs.
    pub(super) files: Vec<Arc<SocketFile>>,
}
