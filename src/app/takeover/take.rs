//! The successor: takes sockets and state from the predecessor.

use std::convert::Infallible;
use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::wire::{Channel, Message, PROTOCOL, Purpose, Received, StateReader, is_gone, unexpected};
use crate::base::time::{Clock, Timestamp};
use crate::engine::gate::Delta;
use crate::engine::limit::Key;
use crate::engine::policy::Policy;
use crate::engine::store::snapshot::{Restored, Secret, restore};
use crate::transport::net::{ListenAddress, Listener, SocketFile, has_only_v6};
use crate::transport::proxy::SharedState;
use crate::transport::upstream::orders::EndpointOrder;

/// The process behind the socket `server.takeover`.
pub(in crate::app) enum Previous {
    /// No process.
    None,
    /// A process that ended without a handover. If it was just killed, the system may still be closing its sockets.
    Ended,
    /// A running process, which offers its sockets and state.
    Running(Predecessor),
}

/// Attempts to connect to the predecessor, and the pause between them. A process that is being killed accepts a
/// connection and closes it without a message. Nothing reports its end: the peer of the connection is the process that
/// created the socket, and that may be an earlier one.
const ATTEMPTS_MAX: usize = 1000;
const ATTEMPT_EVERY: Duration = Duration::from_millis(10);

/// The running predecessor, during a takeover.
pub(in crate::app) struct Predecessor {
    channel: Channel,
    peer: Peer,
    /// The number under which other replicas know it.
    instance: Option<u64>,
    /// The text of its overrides, if they are in memory.
    overrides: Option<Box<str>>,
    /// The orders of operators about its endpoints.
    orders: Vec<EndpointOrder>,
    groups: Vec<Group>,
    taken: Vec<usize>,
    keys: Vec<(String, String)>,
    /// Whether the predecessor has ended.
    is_gone: bool,
    /// Whether the predecessor has sent the whole state.
    has_state: bool,
    /// Whether its keys are under another secret, so that its state is of no use.
    has_other_secret: bool,
}

/// The identification of the predecessor in the log.
#[derive(Clone, Debug)]
struct Peer {
    pid: u32,
    version: String,
}

/// The sockets of one address.
struct Group {
    number: usize,
    purpose: Purpose,
    /// The address in the configuration of the predecessor; its port may be 0.
    configured: String,
    bound: ListenAddress,
    has_file: bool,
    sockets: Vec<Listener>,
}

/// Listening sockets of one address, bound by another process.
pub(in crate::app) struct InheritedSockets {
    /// At least one.
    pub(in crate::app) sockets: Vec<Listener>,
    /// The bound address.
    pub(in crate::app) address: ListenAddress,
    /// The file of a Unix socket; not [owned](SocketFile::own) yet.
    pub(in crate::app) file: Option<SocketFile>,
}

impl Predecessor {
    /// Connects to the process that listens at `path`, and receives its sockets. The end of that process is no error.
    ///
    /// # Errors
    /// The process refuses, or uses another version of the protocol.
    pub(in crate::app) fn meet(path: &Path) -> io::Result<Previous> {
        let mut found = Previous::None;
        for _ in 0..ATTEMPTS_MAX {
            let stream = match UnixStream::connect(path) {
                Ok(stream) => stream,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(Previous::Ended),
                Err(error) => return Err(error),
            };
            match Self::ask(stream) {
                Err(error) if is_gone(&error) => found = Previous::Ended,
                asked => return asked.map(Previous::Running),
            }
            thread::sleep(ATTEMPT_EVERY);
        }
        Err(io::Error::other("it closes every connection without a message"))
    }

    fn ask(stream: UnixStream) -> io::Result<Self> {
        let mut channel = Channel::new(stream)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (instance, overrides, orders) = (None, None, Vec::new());
        channel.send(&Message::Hello { protocol: PROTOCOL, version, instance, overrides, orders })?;
        let Message::Hello { protocol, version, instance, overrides, orders } = channel.receive_message()? else {
            return Err(unexpected());
        };
        if protocol != PROTOCOL {
            return Err(io::Error::other(format!("its version {version} has another takeover protocol")));
        }
        let peer = Peer { pid: channel.peer()?, version };
        let (mut groups, mut keys) = (Vec::new(), Vec::new());
        loop {
            match channel.receive()? {
                Received::Message(Message::Socket { group, purpose, configured, has_file }, Some(socket)) => {
                    let (bound, socket) = Listener::from_fd(socket)?;
                    add(
                        &mut groups,
                        Group { number: group, purpose, configured, bound, has_file, sockets: vec![socket] },
                    );
                }
                Received::Message(Message::Keys { url, jwks }, _) => keys.push((url, jwks)),
                Received::Message(Message::Prepare, _) => break,
                Received::Message(Message::Refused { why, .. }, _) => return Err(io::Error::other(why)),
                _ => return Err(unexpected()),
            }
        }
        Ok(Self {
            channel,
            peer,
            instance,
            overrides,
            orders,
            groups,
            taken: Vec::new(),
            keys,
            is_gone: false,
            has_state: false,
            has_other_secret: false,
        })
    }

    /// Takes the sockets of `place`, if the predecessor has any; their file gets `mode`. A configured port of 0 matches
    /// a configured port of 0.
    pub(in crate::app) fn take(
        &mut self,
        purpose: Purpose,
        place: &ListenAddress,
        mode: u32,
    ) -> io::Result<Option<InheritedSockets>> {
        let is_it = |group: &Group| {
            group.bound == *place || (group.purpose == purpose && group.configured == place.to_string())
        };
        let Some(index) = self.groups.iter().position(is_it) else { return Ok(None) };
        let Group { number, bound, has_file, sockets, .. } = self.groups.remove(index);
        let file = match &bound {
            ListenAddress::Unix(path) if has_file => match SocketFile::inherited(path, mode) {
                Ok(file) => Some(file),
                // The predecessor has ended and removed the file. The caller binds the address again.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            },
            _ => None,
        };
        self.taken.push(number);
        Ok(Some(InheritedSockets { sockets, address: bound, file }))
    }

    /// Whether the predecessor's sockets of `place`, if it has any, leave the port of IPv4 to others.
    pub(in crate::app) fn has_only_v6(&self, place: &ListenAddress) -> Option<bool> {
        let group = self.groups.iter().find(|group| group.bound == *place)?;
        let Listener::Tcp(socket) = group.sockets.first()? else { return None };
        Some(has_only_v6(socket))
    }

    /// The number under which other replicas know the predecessor.
    pub(in crate::app) fn instance(&self) -> Option<u64> {
        self.instance
    }

    /// The orders of operators about the predecessor's endpoints.
    pub(in crate::app) fn orders(&mut self) -> Vec<EndpointOrder> {
        std::mem::take(&mut self.orders)
    }

    /// The text of the predecessor's overrides, if they are in its memory.
    pub(in crate::app) fn overrides(&mut self) -> Option<Box<str>> {
        self.overrides.take()
    }

    /// The key sets that the predecessor has fetched, each with its URL.
    pub(in crate::app) fn keys(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.keys)
    }

    /// Asks for the state, and reads it. Returns `None` if the predecessor ended before the end of the state. State
    /// under another secret than `fleet_secret` is left out.
    pub(in crate::app) fn take_state(
        &mut self,
        clock: Clock,
        policy: &Policy,
        fleet_secret: Option<Secret>,
    ) -> io::Result<Option<Restored>> {
        match self.try_take_state(clock.now(), policy) {
            Ok(restored) => {
                let Some(secret) = fleet_secret.filter(|secret| *secret != restored.secret) else {
                    return Ok(Some(restored));
                };
                self.has_other_secret = true;
                Ok(Some(Restored { secret, limits: Vec::new(), ..restored }))
            }
            Err(error) if is_gone(&error) => {
                self.is_gone = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn try_take_state(&mut self, now: Timestamp, policy: &Policy) -> io::Result<Restored> {
        let max_keys = |name: &str| policy.limits().iter().find(|limit| *limit.name == *name).map(|l| l.max_keys);
        self.channel.send(&Message::Prepared { groups: self.taken.clone() })?;
        let mut pieces = StateReader::new(&mut self.channel);
        let restored = restore(BufReader::new(&mut pieces), now, max_keys);
        let failed = pieces.failed();
        let restored =
            restored.map_err(|error| failed.unwrap_or_else(|| io::Error::other(format!("its state {error}"))))?;
        self.has_state = true;
        // From here on, this process needs nothing more from the predecessor.
        let yours = self.channel.send(&Message::Taken).and_then(|()| self.channel.receive_message());
        match yours {
            Ok(Message::Yours) => {}
            Err(error) if is_gone(&error) => self.is_gone = true,
            Ok(_) => return Err(unexpected()),
            Err(error) => return Err(error),
        }
        Ok(restored)
    }

    /// Whether the predecessor has ended.
    pub(in crate::app) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Asks whether this process may accept connections. The predecessor answers at once, or refuses because it has
    /// resumed. If the predecessor has ended, this process may accept.
    ///
    /// # Errors
    /// The predecessor refuses, or does not answer in time.
    pub(in crate::app) fn confirm(&mut self) -> io::Result<()> {
        if self.is_gone {
            return Ok(());
        }
        match self.channel.send(&Message::Serving).and_then(|()| self.channel.receive_message()) {
            Ok(Message::Committed) => Ok(()),
            Err(error) if is_gone(&error) => {
                self.is_gone = true;
                Ok(())
            }
            Ok(_) => Err(unexpected()),
            Err(error) => Err(error),
        }
    }

    /// Applies the charges that the predecessor still makes, until it ends. The returned channel closes then.
    pub(in crate::app) fn serving(mut self, shared: Arc<SharedState>) -> oneshot::Receiver<Infallible> {
        let (ended, ending) = oneshot::channel();
        let Peer { pid, version } = &self.peer;
        if self.is_gone {
            let has_state = self.has_state;
            tracing::warn!(
                pid,
                version,
                has_state,
                "the predecessor ended during the takeover; without its state, limits continue from the snapshot or \
                 begin anew"
            );
            return ending;
        }
        tracing::info!(pid, version, "took over");
        if self.has_other_secret {
            tracing::warn!(pid, "the predecessor has keys under another secret than `fleet.secret`; limits begin anew");
        }
        if let Err(error) = self.channel.clear_timeout() {
            tracing::error!(%error, "the last charges of the predecessor cannot be received");
            return ending;
        }
        let listen = move || {
            let _ended = ended; // dropped when the thread ends, even by a panic
            let mut charges = 0_u64;
            while let Ok(Received::Message(Message::Charged { limit, key: (first, second), plan, units }, _)) =
                self.channel.receive()
            {
                if self.has_other_secret {
                    continue;
                }
                let key = Key { first, second };
                let delta = Delta { limit: limit.into(), key, plan: plan.map(Into::into), units };
                shared.gate.apply_delta(&shared.running_config.load().live, &delta);
                charges += 1;
            }
            tracing::info!(pid = self.peer.pid, charges, "the predecessor has ended");
        };
        if let Err(error) = thread::Builder::new().name("weir-takeover".to_owned()).spawn(listen) {
            tracing::error!(%error, "the last charges of the predecessor cannot be received");
        }
        ending
    }
}

fn add(groups: &mut Vec<Group>, one: Group) {
    match groups.iter_mut().find(|group| group.number == one.number) {
        Some(group) => group.sockets.extend(one.sockets),
        None => groups.push(one),
    }
}
