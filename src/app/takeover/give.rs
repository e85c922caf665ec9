//! The process that runs: gives all it has to the one that asks, and goes on if nothing comes of it.

use std::io::{self, BufWriter};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::{OwnedMutexGuard, watch};

use super::wire::{Channel, Message, PROTOCOL, Pieces, Purpose, unexpected};
use crate::app::jwks::Jwks;
use crate::app::keep::Writes;
use crate::app::systemd;
use crate::gate::Delta;
use crate::net::{Listen, Listener, SocketFile};
use crate::proxy::{Lifecycle, SharedState};
use crate::store::snapshot::{Secret, Snapshot};
use crate::time;

/// The sockets of one place, of which there are others in use.
pub(in crate::app) struct Offered {
    pub(in crate::app) purpose: Purpose,
    pub(in crate::app) configured: Listen,
    pub(in crate::app) sockets: Vec<Listener>,
    pub(in crate::app) file: Option<Arc<SocketFile>>,
}

/// All that is given.
pub(in crate::app) struct Estate {
    /// None once there is nothing to give any more.
    pub(in crate::app) offered: Mutex<Arc<[Offered]>>,
    pub(in crate::app) shared: Arc<SharedState>,
    pub(in crate::app) secret: Secret,
    pub(in crate::app) jwks: Arc<Jwks>,
    pub(in crate::app) stage: watch::Sender<Lifecycle>,
    pub(in crate::app) writes: Writes,
    pub(in crate::app) handed: watch::Sender<Handed>,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::app) enum Handed {
    /// It is this process that serves.
    Not,
    /// Another serves.
    Over,
    /// It has also been told of all that was charged here since, as far as it listens.
    Told,
}

/// Gives to one at a time.
pub(in crate::app) struct Giver {
    estate: Estate,
    is_busy: AtomicBool,
}

impl Giver {
    pub(in crate::app) fn new(estate: Estate) -> Arc<Self> {
        Arc::new(Self { estate, is_busy: AtomicBool::new(false) })
    }

    /// Lets go of the sockets: nobody is to connect to them any more, and wait for nothing.
    pub(in crate::app) fn close(&self) {
        self.estate.close();
    }

    /// Answers whoever asks, until it is dropped.
    pub(in crate::app) async fn run(self: Arc<Self>, listener: tokio::net::UnixListener) {
        loop {
            match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => self.answer(stream),
                Err(error) => {
                    tracing::error!(%error, "cannot accept a process that would take over");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// On a thread of its own: a table may be large, and the other slow.
    fn answer(self: &Arc<Self>, stream: UnixStream) {
        let giver = Arc::clone(self);
        let spawned = thread::Builder::new().name("weir-takeover".to_owned()).spawn(move || {
            let conversed = Channel::new(stream).map(|mut channel| (giver.converse(&mut channel), channel));
            match conversed {
                Ok((Ok(()), _)) => {}
                Ok((Err(error), channel)) => giver.estate.refuse(channel, &error),
                Err(error) => tracing::error!(%error, "another process did not take over; this one goes on"),
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "cannot answer a process that would take over");
        }
    }

    fn converse(&self, channel: &mut Channel) -> io::Result<()> {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            // Read first: what lies unread when this end closes would destroy the answer.
            channel.hear_message()?;
            return Err(io::Error::other("another process is taking over already"));
        }
        let _busy = Busy(&self.is_busy);
        self.estate.give(channel)
    }
}

const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Somebody is being answered.
struct Busy<'g>(&'g AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Estate {
    fn offered(&self) -> Arc<[Offered]> {
        Arc::clone(&self.offered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn close(&self) {
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
    }

    fn is_ending(&self) -> bool {
        !matches!(*self.stage.borrow(), Lifecycle::Running | Lifecycle::HandingOver)
    }

    /// Says why nothing is given. The connection stays open if this process is about to end, or if the other cannot be told:
    /// its end would be taken for the end of this process.
    fn refuse(&self, mut channel: Channel, error: &io::Error) {
        let is_ending = self.is_ending();
        if is_ending {
            tracing::info!(%error, "another process waits for the end of this one");
        } else {
            tracing::error!(%error, "another process did not take over; this one goes on");
        }
        let said = channel.say(&Message::Refused { why: error.to_string(), is_ending });
        if is_ending || said.is_err() {
            channel.wait_for_end();
        }
    }

    fn give(&self, channel: &mut Channel) -> io::Result<()> {
        let Message::Hello { protocol, version } = channel.hear_message()? else { return Err(unexpected()) };
        let pid = channel.peer()?;
        tracing::info!(pid, version, "another process asks to take over");
        channel.say(&Message::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() })?;
        if protocol != PROTOCOL {
            return Err(io::Error::other(format!("version {version} speaks of this in another way")));
        }
        // Kept until it is known what comes of this, whatever becomes of those in `self`.
        let offered = self.offered();
        if self.is_ending() {
            return Err(shutting_down());
        }
        self.give_sockets(channel, &offered)?;
        let Message::Prepared { groups } = channel.hear_message()? else { return Err(unexpected()) };
        let began = time::instant_now();
        let mut paused = self.pause()?;
        self.give_state(channel)?;
        let Message::Taken = channel.hear_message()? else { return Err(unexpected()) };
        paused.has_new_main = true;
        systemd::tell_main(pid);
        paused.leave_files(groups.iter().filter_map(|group| offered.get(*group)));
        channel.say(&Message::Yours)?;
        // It has everything now. Only if it ends does this process go on.
        channel.wait_forever()?;
        let Message::Serving = channel.hear_message()? else { return Err(unexpected()) };
        let told = paused.commit();
        let paused_for = time::instant_now().saturating_duration_since(began);
        tracing::info!(pid, ?paused_for, "handed over");
        self.close();
        drop(offered);
        self.handed.send_replace(Handed::Over);
        tell(channel, &told);
        self.handed.send_replace(Handed::Told);
        Ok(())
    }

    fn give_sockets(&self, channel: &mut Channel, all: &[Offered]) -> io::Result<()> {
        for (group, offered) in all.iter().enumerate() {
            let has_file = offered.file.as_ref().is_some_and(|file| file.is_unchanged());
            let (purpose, configured) = (offered.purpose, offered.configured.to_string());
            let about = Message::Socket { group, purpose, configured, has_file };
            for socket in &offered.sockets {
                channel.give(&about, socket.as_fd())?;
            }
        }
        for (url, jwks) in self.jwks.known() {
            channel.say(&Message::Keys { url, jwks })?;
        }
        channel.say(&Message::Prepare)
    }

    /// Begins no more connections, and writes no more snapshots, until it is known what comes of this.
    fn pause(&self) -> io::Result<Paused<'_>> {
        let draining = &self.shared.draining;
        let is_paused = self.stage.send_if_modified(|stage| {
            let was_running = *stage == Lifecycle::Running;
            if was_running {
                *stage = Lifecycle::HandingOver;
                draining.store(true, Ordering::Release);
            }
            was_running
        });
        if !is_paused {
            return Err(shutting_down());
        }
        let writes = Arc::clone(&self.writes).blocking_lock_owned();
        let told = Some(self.shared.gate.subscribe_deltas());
        Ok(Paused { estate: self, writes, told, left: Vec::new(), has_new_main: false })
    }

    fn give_state(&self, channel: &mut Channel) -> io::Result<()> {
        let gate = &self.shared.gate;
        let to = BufWriter::with_capacity(BUFFER_BYTES, Pieces(channel));
        let mut snapshot = Snapshot::begin(to, &self.secret, gate.clock().now(), time::system_now())?;
        gate.save_all(&mut snapshot)?;
        drop(snapshot.finish()?);
        channel.say(&Message::StateEnd)
    }
}

fn shutting_down() -> io::Error {
    io::Error::other("it is shutting down")
}

const BUFFER_BYTES: usize = 256 << 10;

/// What was stopped, and goes on when this is dropped.
struct Paused<'e> {
    estate: &'e Estate,
    writes: OwnedMutexGuard<bool>,
    told: Option<Receiver<Delta>>,
    /// Files of Unix sockets that are the other's.
    left: Vec<Arc<SocketFile>>,
    /// Whether the service manager was told of another process.
    has_new_main: bool,
}

impl Paused<'_> {
    /// The files of these sockets are the other's now: the end of this process must not remove them.
    fn leave_files<'o>(&mut self, offered: impl Iterator<Item = &'o Offered>) {
        self.left.extend(offered.filter_map(|offered| offered.file.clone()));
        self.left.iter().for_each(|file| file.disown());
    }

    /// It does not go on. Gives what is charged from now on.
    fn commit(mut self) -> Receiver<Delta> {
        *self.writes = false;
        self.told.take().unwrap_or_else(|| self.estate.shared.gate.subscribe_deltas())
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if self.told.is_none() {
            return;
        }
        self.left.iter().for_each(|file| file.take_ownership());
        self.estate.shared.gate.unsubscribe_deltas();
        let draining = &self.estate.shared.draining;
        self.estate.stage.send_if_modified(|stage| {
            let was_paused = *stage == Lifecycle::HandingOver;
            if was_paused {
                *stage = Lifecycle::Running;
                draining.store(false, Ordering::Release);
            }
            was_paused
        });
        if self.has_new_main {
            systemd::tell_main(std::process::id());
        }
    }
}

/// Tells the other what is charged here, until nothing is any more.
fn tell(channel: &mut Channel, told: &Receiver<Delta>) {
    for Delta { limit, key, plan, units } in told {
        let key = (key.first, key.second);
        let charged = Message::Charged { limit: limit.into(), key, plan: plan.map(Into::into), units };
        if let Err(error) = channel.say(&charged) {
            return tracing::warn!(%error, "the process that took over does not hear of what is still charged here");
        }
    }
}
