//! Where connections come in: sockets bound before anything runs, or had from another process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::AppError;
use super::systemd::Passed;
use super::takeover::{Given, Offered, Predecessor, Previous, Purpose};
use crate::config::Config;
use crate::net;
use crate::net::{Listen, Listener, SocketFile};

/// Sockets that need not be bound.
pub(super) struct Inherited {
    passed: Passed,
    pub(super) previous: Previous,
}

impl Inherited {
    /// Those that came with the process, and of the process that it takes over from.
    pub(super) fn find(config: &Config) -> Result<Self, AppError> {
        let passed = Passed::of_process().map_err(AppError::system("take the sockets that were passed"))?;
        let previous = match &config.fixed.takeover {
            Some(path) => Predecessor::meet(path).map_err(AppError::TakeOver)?,
            None => Previous::Nobody,
        };
        Ok(Self { passed, previous })
    }

    fn take(&mut self, purpose: Purpose, place: &Listen, mode: u32) -> io::Result<Option<Given>> {
        if let Previous::Running(predecessor) = &mut self.previous
            && let Some(given) = predecessor.take(purpose, place, mode)?
        {
            return Ok(Some(given));
        }
        let passed = self.passed.take(place);
        Ok(passed.map(|socket| Given { sockets: vec![socket], place: place.clone(), file: None }))
    }

    /// That none was passed for nothing.
    pub(super) fn check_used(&self) -> Result<(), AppError> {
        let Some(place) = self.passed.left() else { return Ok(()) };
        let what = format!("neither server.listen nor admin.listen has {place}");
        Err(AppError::System("use a socket that was passed", what.into()))
    }
}

/// The sockets of one place.
pub(super) struct Bound {
    purpose: Purpose,
    /// As the configuration has it.
    configured: Listen,
    /// With the port that was chosen.
    pub(super) place: Listen,
    /// Of the file, if it is a Unix socket.
    mode: u32,
    /// At least one.
    sockets: Vec<Listener>,
    /// To be kept for as long as Weir runs.
    file: Option<Arc<SocketFile>>,
}

impl Bound {
    fn new(
        purpose: Purpose,
        place: &Listen,
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
        configured: &Listen,
        mode: u32,
        workers: usize,
        inherited: &mut Inherited,
    ) -> io::Result<Self> {
        let Given { sockets, place, file } = match (inherited.take(purpose, configured, mode)?, configured) {
            (Some(given), _) => given,
            (None, Listen::Tcp(address)) => {
                let sockets = net::bind(*address, workers)?;
                let bound = sockets.first().map_or(Ok(*address), std::net::TcpListener::local_addr)?;
                let sockets = sockets.into_iter().map(Listener::Tcp).collect();
                Given { sockets, place: Listen::Tcp(bound), file: None }
            }
            (None, Listen::Unix(path)) => {
                let (socket, file) = net::bind_unix(path, mode)?;
                Given { sockets: vec![Listener::Unix(socket)], place: configured.clone(), file: Some(file) }
            }
        };
        Ok(Self { purpose, configured: configured.clone(), place, mode, sockets, file: file.map(Arc::new) })
    }

    /// Binds a Unix socket anew if the process that it came from has removed its file at its end.
    fn mend(&mut self) -> Result<(), AppError> {
        let is_lost = self.file.as_ref().is_some_and(|file| !file.is_unchanged());
        if let (Listen::Unix(path), true) = (&self.place, is_lost) {
            let bound = net::bind_unix(path, self.mode);
            let (socket, file) = bound.map_err(|error| AppError::Listen(self.place.clone(), error))?;
            (self.sockets, self.file) = (vec![Listener::Unix(socket)], Some(Arc::new(file)));
        }
        Ok(())
    }

    /// A handle of one of its sockets.
    fn handle(&self) -> io::Result<Listener> {
        self.sockets.first().ok_or(io::ErrorKind::NotFound)?.try_clone()
    }

    /// The address by which it may be asked; of a Unix socket that of this host.
    pub(super) fn address(&self) -> SocketAddr {
        match self.place {
            Listen::Tcp(address) => address,
            Listen::Unix(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    /// Handles of all, for another process.
    fn offer(&self) -> io::Result<Offered> {
        let sockets = self.sockets.iter().map(Listener::try_clone).collect::<io::Result<Vec<_>>>()?;
        let (purpose, configured, file) = (self.purpose, self.configured.clone(), self.file.clone());
        Ok(Offered { purpose, configured, sockets, file })
    }

    /// Binds as many more as workers lack, if they may be shared so; else workers share those that there are.
    fn grow(&mut self, workers: usize) {
        let more = workers.saturating_sub(self.sockets.len());
        if let (Some(Listener::Tcp(first)), Listen::Tcp(address)) = (self.sockets.first(), &self.place)
            && SockRef::from(first).reuse_port().unwrap_or(false)
            && let Ok(sockets) = net::bind_additional(*address, more)
        {
            self.sockets.extend(sockets.into_iter().map(Listener::Tcp));
        }
    }
}

/// All sockets there are.
pub(super) struct Listeners {
    pub(super) requests: Vec<Bound>,
    /// Where operators are answered, if they are.
    pub(super) operators: Option<Bound>,
    /// Where the next process asks for all this, if one may.
    takeover: Option<Bound>,
}

/// How long an address may stay taken after the process that had it was killed: the kernel closes its sockets one by one.
const BIND_ATTEMPTS_MAX: usize = 500;
const BIND_EVERY: Duration = Duration::from_millis(10);

/// Who may take over is its owner.
const TAKEOVER_MODE: u32 = 0o600;

impl Listeners {
    /// All that `config` asks for, or none. What is inherited is not bound again.
    pub(super) fn bind(config: &Config, inherited: &mut Inherited) -> Result<Self, AppError> {
        let (workers, mode) = (config.fixed.workers, config.fixed.unix_mode);
        let requests = config.fixed.listen.iter();
        let requests = requests
            .map(|place| Bound::new(Purpose::Requests, place, mode, workers, inherited))
            .collect::<Result<_, _>>()?;
        let operators = config.admin.listen.as_ref();
        let operators = operators.map(|place| Bound::new(Purpose::Operators, place, mode, 1, inherited)).transpose()?;
        let takeover = config.fixed.takeover.as_deref().map(|path: &Path| Listen::Unix(path.to_owned()));
        let takeover =
            takeover.map(|place| Bound::new(Purpose::Takeover, &place, TAKEOVER_MODE, 1, inherited)).transpose()?;
        inherited.check_used()?;
        Ok(Self { requests, operators, takeover })
    }

    /// After the end of the process that these came from.
    pub(super) fn mend(&mut self) -> Result<(), AppError> {
        self.requests.iter_mut().chain(&mut self.operators).chain(&mut self.takeover).try_for_each(Bound::mend)
    }

    /// Places for requests, with the ports that were chosen.
    pub(super) fn places(&self) -> Vec<Listen> {
        self.requests.iter().map(|bound| bound.place.clone()).collect()
    }

    /// Hands them out. Nothing can fail here but for want of descriptors.
    pub(super) fn open(mut self, workers: usize) -> io::Result<Open> {
        self.requests.iter_mut().for_each(|bound| bound.grow(workers));
        let all = || self.requests.iter().chain(&self.operators).chain(&self.takeover);
        let offered = match &self.takeover {
            Some(_) => all().map(Bound::offer).collect::<io::Result<_>>()?,
            None => Arc::default(),
        };
        let files: Vec<_> = all().filter_map(|bound| bound.file.clone()).collect();
        for file in &files {
            file.take_ownership();
        }
        let mut by_worker: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
        for bound in &self.requests {
            let sockets = bound.sockets.len();
            for (index, socket) in bound.sockets.iter().cycle().take(sockets.max(workers)).enumerate() {
                if let Some(worker) = by_worker.get_mut(index % workers) {
                    worker.push(socket.try_clone()?);
                }
            }
        }
        let operators = self.operators.as_ref().map(Bound::handle).transpose()?;
        let takeover = self.takeover.as_ref().map(Bound::handle).transpose()?;
        Ok(Open { by_worker, operators, takeover, offered, files })
    }
}

/// All sockets, each where it is used.
pub(super) struct Open {
    /// For each worker those on which it accepts. If there are more than workers, as after a process with more of them,
    /// some workers have several: what waits in a socket that is closed is lost.
    pub(super) by_worker: Vec<Vec<Listener>>,
    /// Where operators are answered.
    pub(super) operators: Option<Listener>,
    /// Where another process asks.
    pub(super) takeover: Option<Listener>,
    /// What it may have.
    pub(super) offered: Arc<[Offered]>,
    /// Of Unix sockets; to be kept for as long as Weir runs.
    pub(super) files: Vec<Arc<SocketFile>>,
}
