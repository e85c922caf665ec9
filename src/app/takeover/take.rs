//! The new process: asks the one that runs for all it has, and says when it can do without.

use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::wire::{Channel, Heard, Joined, Message, PROTOCOL, Purpose, is_gone, unexpected};
use crate::gate::Delta;
use crate::limit::Key;
use crate::net::{Listen, Listener, SocketFile};
use crate::policy::Policy;
use crate::proxy::SharedState;
use crate::store::snapshot::{Restored, restore};
use crate::time::{Clock, Timestamp};

/// The process that was found at `server.takeover`.
pub(in crate::app) enum Previous {
    /// There is none.
    Nobody,
    /// It has ended and handed nothing over. If it was killed just now, the system may still be closing its sockets.
    Ended,
    /// It runs, and offers all it has.
    Running(Predecessor),
}

/// How often, and for how long, a process is looked for that accepts a connection and closes it without a word. That is
/// what a process does that is being killed.
const ATTEMPTS_MAX: usize = 1000;
const ATTEMPT_EVERY: Duration = Duration::from_millis(10);

/// The process that runs, while it is taken over from.
pub(in crate::app) struct Predecessor {
    channel: Channel,
    about: About,
    groups: Vec<Group>,
    taken: Vec<usize>,
    keys: Vec<(String, String)>,
    /// Whether it has ended in between.
    is_gone: bool,
    /// Whether it has sent the whole state.
    has_state: bool,
}

/// What is logged of it, once there are logs.
#[derive(Clone, Debug)]
struct About {
    pid: u32,
    version: String,
}

/// The sockets of one place.
struct Group {
    number: usize,
    purpose: Purpose,
    /// What the other's configuration calls the place: its port may be 0.
    configured: String,
    bound: Listen,
    has_file: bool,
    sockets: Vec<Listener>,
}

/// What is taken of a place.
pub(in crate::app) struct Given {
    /// At least one.
    pub(in crate::app) sockets: Vec<Listener>,
    /// Where they are bound.
    pub(in crate::app) place: Listen,
    /// If it is to be removed at the end; not [owned](SocketFile::own) yet.
    pub(in crate::app) file: Option<SocketFile>,
}

impl Predecessor {
    /// The process that listens at `path`, with its sockets. One that ends meanwhile is as good as none; one that runs and
    /// cannot be understood is an error.
    pub(in crate::app) fn meet(path: &Path) -> io::Result<Previous> {
        let mut found = Previous::Nobody;
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
        Err(io::Error::other("it closes every connection without a word"))
    }

    fn ask(stream: UnixStream) -> io::Result<Self> {
        let mut channel = Channel::new(stream)?;
        channel.say(&Message::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() })?;
        let Message::Hello { protocol, version } = channel.hear_message()? else { return Err(unexpected()) };
        if protocol != PROTOCOL {
            return Err(io::Error::other(format!("it is version {version}, and speaks of this in another way")));
        }
        let about = About { pid: channel.peer()?, version };
        let (mut groups, mut keys) = (Vec::new(), Vec::new());
        loop {
            match channel.hear()? {
                Heard::Message(Message::Socket { group, purpose, configured, has_file }, Some(socket)) => {
                    let (bound, socket) = Listener::from_fd(socket)?;
                    add(
                        &mut groups,
                        Group { number: group, purpose, configured, bound, has_file, sockets: vec![socket] },
                    );
                }
                Heard::Message(Message::Keys { url, jwks }, _) => keys.push((url, jwks)),
                Heard::Message(Message::Prepare, _) => break,
                Heard::Message(Message::Refused { why, .. }, _) => return Err(io::Error::other(why)),
                _ => return Err(unexpected()),
            }
        }
        Ok(Self { channel, about, groups, taken: Vec::new(), keys, is_gone: false, has_state: false })
    }

    /// The sockets of `place`, if there are any; their file gets `mode`. A place whose port is chosen by the system is
    /// that of the other that is written so too.
    pub(in crate::app) fn take(&mut self, purpose: Purpose, place: &Listen, mode: u32) -> io::Result<Option<Given>> {
        let is_it = |group: &Group| {
            group.bound == *place || (group.purpose == purpose && group.configured == place.to_string())
        };
        let Some(index) = self.groups.iter().position(is_it) else { return Ok(None) };
        let Group { number, bound, has_file, sockets, .. } = self.groups.remove(index);
        let file = match &bound {
            Listen::Unix(path) if has_file => match SocketFile::inherited(path, mode) {
                Ok(file) => Some(file),
                // The other has ended since, and removed it. The place is bound anew.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            },
            _ => None,
        };
        self.taken.push(number);
        Ok(Some(Given { sockets, place: bound, file }))
    }

    /// Keys that it has fetched, by their URLs.
    pub(in crate::app) fn keys(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.keys)
    }

    /// Says that nothing but the state is wanting, and takes it. None if the other ended before it had sent all.
    pub(in crate::app) fn take_state(&mut self, clock: Clock, policy: &Policy) -> io::Result<Option<Restored>> {
        match self.try_take_state(clock.now(), policy) {
            Ok(restored) => Ok(Some(restored)),
            Err(error) if is_gone(&error) => {
                self.is_gone = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn try_take_state(&mut self, now: Timestamp, policy: &Policy) -> io::Result<Restored> {
        let max_keys = |name: &str| policy.limits().iter().find(|limit| *limit.name == *name).map(|l| l.max_keys);
        self.channel.say(&Message::Prepared { groups: self.taken.clone() })?;
        let mut pieces = Joined::new(&mut self.channel);
        let restored = restore(BufReader::new(&mut pieces), now, max_keys);
        let failed = pieces.failed();
        let restored =
            restored.map_err(|error| failed.unwrap_or_else(|| io::Error::other(format!("its state {error}"))))?;
        self.has_state = true;
        // If it ends from here on, there is nobody but this process, which has everything.
        let yours = self.channel.say(&Message::Taken).and_then(|()| self.channel.hear_message());
        match yours {
            Ok(Message::Yours) => {}
            Err(error) if is_gone(&error) => self.is_gone = true,
            Ok(_) => return Err(unexpected()),
            Err(error) => return Err(error),
        }
        Ok(restored)
    }

    /// Whether it has ended before this process accepts.
    pub(in crate::app) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Says that requests are accepted here, and charges from then on what the other still does.
    pub(in crate::app) fn serving(mut self, shared: Arc<SharedState>) {
        let About { pid, version } = &self.about;
        if self.is_gone || self.channel.say(&Message::Serving).is_err() {
            let has_state = self.has_state;
            return tracing::warn!(
                pid,
                version,
                has_state,
                "the process that was taken over from has ended before its time; without its state, limits go on from \
                 the snapshot, or begin anew"
            );
        }
        tracing::info!(pid, version, "took over");
        if let Err(error) = self.channel.wait_forever() {
            return tracing::error!(%error, "charges of the process that was taken over from are not known here");
        }
        let listen = move || {
            let mut charges = 0_u64;
            while let Ok(Heard::Message(Message::Charged { limit, key: (first, second), plan, units }, _)) =
                self.channel.hear()
            {
                let key = Key { first, second };
                let told = Delta { limit: limit.into(), key, plan: plan.map(Into::into), units };
                shared.gate.apply_delta(&shared.current.load().live, &told);
                charges += 1;
            }
            tracing::info!(pid = self.about.pid, charges, "the process that was taken over from has ended");
        };
        if let Err(error) = thread::Builder::new().name("weir-takeover".to_owned()).spawn(listen) {
            tracing::error!(%error, "charges of the process that was taken over from are not known here");
        }
    }
}

fn add(groups: &mut Vec<Group>, one: Group) {
    match groups.iter_mut().find(|group| group.number == one.number) {
        Some(group) => group.sockets.extend(one.sockets),
        None => groups.push(one),
    }
}
