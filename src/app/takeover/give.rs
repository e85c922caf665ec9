//! The predecessor: gives its sockets and state to a successor, and resumes if the handover fails.

use std::io::{self, BufWriter};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::{OwnedMutexGuard, watch};

use super::wire::{Channel, Message, PROTOCOL, Purpose, StateWriter, unexpected};
use crate::admin::BanFile;
use crate::app::config_reader::RunningText;
use crate::app::jwks::Jwks;
use crate::app::snapshots::WriteLock;
use crate::app::systemd;
use crate::base::time;
use crate::engine::gate::Delta;
use crate::engine::store::snapshot::{Secret, Snapshot};
use crate::transport::net::accept::FailedAccepts;
use crate::transport::net::{Lifecycle, ListenAddress, Listener, SocketFile};
use crate::transport::proxy::SharedState;
use crate::transport::upstream::orders::{self, EndpointOrder};
use crate::transport::upstream::{Directory, operate};

/// Handles of the sockets of one address.
pub(in crate::app) struct Offered {
    pub(in crate::app) purpose: Purpose,
    pub(in crate::app) configured: ListenAddress,
    pub(in crate::app) sockets: Vec<Listener>,
    pub(in crate::app) file: Option<Arc<SocketFile>>,
}

/// The parts of this process that a successor receives, and the means to pause it.
pub(in crate::app) struct Handover {
    /// The sockets; empty once they are handed over.
    pub(in crate::app) offered: Mutex<Arc<[Offered]>>,
    pub(in crate::app) shared: Arc<SharedState>,
    pub(in crate::app) secret: Secret,
    pub(in crate::app) jwks: Arc<Jwks>,
    pub(in crate::app) bans: Arc<BanFile>,
    pub(in crate::app) text: Arc<RunningText>,
    pub(in crate::app) stage: watch::Sender<Lifecycle>,
    pub(in crate::app) write_lock: WriteLock,
    pub(in crate::app) progress: watch::Sender<HandoverProgress>,
    /// The number under which other replicas know this one; `None` without connections to them.
    pub(in crate::app) instance: Option<u64>,
    /// Locked while a successor takes over: only one may at a time.
    pub(in crate::app) busy: tokio::sync::Mutex<()>,
}

/// The progress of the handover to a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::app) enum HandoverProgress {
    /// This process serves.
    Pending,
    /// The successor serves.
    HandedOver,
    /// All charges since the handover have been sent to the successor, or the successor has stopped reading.
    ChargesSent,
}

impl Handover {
    /// Serves `server.takeover` until dropped, one successor at a time.
    pub(in crate::app) async fn run(self: Arc<Self>, listener: tokio::net::UnixListener) {
        let mut failed = FailedAccepts::default();
        loop {
            match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => self.answer(stream),
                Err(error) => failed.pause(&error, "cannot accept a successor").await,
            }
        }
    }

    /// Answers on a thread of its own, because the state may be large and the successor slow.
    fn answer(self: &Arc<Self>, stream: UnixStream) {
        let handover = Arc::clone(self);
        let spawned = thread::Builder::new().name("weir-takeover".to_owned()).spawn(move || {
            let conversed = Channel::new(stream).map(|mut channel| (handover.converse(&mut channel), channel));
            match conversed {
                Ok((Ok(()), _)) => {}
                Ok((Err(error), channel)) => handover.refuse(channel, &error),
                Err(error) => tracing::error!(%error, "a takeover failed; this process continues"),
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "cannot answer a successor");
        }
    }

    fn converse(&self, channel: &mut Channel) -> io::Result<()> {
        let Ok(_busy) = self.busy.try_lock() else {
            // Closing a socket with unread data discards the answer, so the message is read first.
            channel.receive_message()?;
            return Err(io::Error::other("another process is taking over already"));
        };
        self.give(channel)
    }

    fn offered(&self) -> Arc<[Offered]> {
        Arc::clone(&self.offered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Drops the handles of the sockets, so that no client connects to a socket that no worker serves.
    pub(in crate::app) fn close(&self) {
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
    }

    fn is_ending(&self) -> bool {
        !matches!(*self.stage.borrow(), Lifecycle::Running | Lifecycle::HandingOver)
    }

    /// Sends the reason of a refusal. If this process is ending, or if the reason cannot be sent, the connection stays
    /// open: for the successor, the end of the connection is the end of this process.
    fn refuse(&self, mut channel: Channel, error: &io::Error) {
        let is_ending = self.is_ending();
        if is_ending {
            tracing::info!(%error, "a successor waits for the end of this process");
        } else {
            tracing::error!(%error, "a takeover failed; this process continues");
        }
        let sent = channel.send(&Message::Refused { why: error.to_string(), is_ending });
        if is_ending || sent.is_err() {
            channel.wait_for_end();
        }
    }

    fn give(&self, channel: &mut Channel) -> io::Result<()> {
        let Message::Hello { protocol, version, .. } = channel.receive_message()? else { return Err(unexpected()) };
        let pid = channel.peer()?;
        tracing::info!(pid, version, "a successor asks to take over");
        let (version_here, instance) = (env!("CARGO_PKG_VERSION").to_owned(), self.instance);
        let sent = self.orders_of_operators();
        let (overrides, orders) = sent.clone();
        let orders = orders::dated(orders, self.shared.gate.clock());
        channel.send(&Message::Hello { protocol: PROTOCOL, version: version_here, instance, overrides, orders })?;
        if protocol != PROTOCOL {
            return Err(io::Error::other(format!("version {version} has another takeover protocol")));
        }
        // These handles stay open until the outcome is known, even if `self` drops its own.
        let offered = self.offered();
        if self.is_ending() {
            return Err(shutting_down());
        }
        self.give_sockets(channel, &offered)?;
        let Message::Prepared { groups } = channel.receive_message()? else { return Err(unexpected()) };
        let began = time::instant_now();
        let mut paused = self.pause()?;
        // The successor reads the file of bans after the state. A later change would not be in force there.
        let _changing = self.bans.hold_changes();
        self.give_state(channel)?;
        let Message::Taken = channel.receive_message()? else { return Err(unexpected()) };
        paused.has_new_main = true;
        systemd::notify_main(pid);
        paused.leave_files(groups.iter().filter_map(|group| offered.get(*group)));
        channel.send(&Message::Yours)?;
        // The successor has everything now, and sends `Serving` before it serves. Without that message in time, this
        // process resumes, and refuses a later `Serving`.
        let Message::Serving = channel.receive_message()? else { return Err(unexpected()) };
        if self.orders_of_operators() != sent {
            return Err(io::Error::other("an operator has changed overrides or endpoints meanwhile; try again"));
        }
        channel.send(&Message::Committed)?;
        let deltas = paused.commit();
        let paused_for = time::instant_now().saturating_duration_since(began);
        tracing::info!(pid, ?paused_for, "handed over");
        self.close();
        drop(offered);
        self.progress.send_replace(HandoverProgress::HandedOver);
        send_deltas(channel, &deltas);
        self.progress.send_replace(HandoverProgress::ChargesSent);
        Ok(())
    }

    /// The overrides in memory, and the drains and weights of endpoints.
    fn orders_of_operators(&self) -> (Option<Box<str>>, Vec<EndpointOrder>) {
        let overrides = self.text.overrides.load().text_in_memory().map(Into::into);
        (overrides, operate::all(&self.shared.in_force().states))
    }

    fn give_sockets(&self, channel: &mut Channel, all: &[Offered]) -> io::Result<()> {
        for (group, offered) in all.iter().enumerate() {
            let has_file = offered.file.as_ref().is_some_and(|file| file.is_unchanged());
            let (purpose, configured) = (offered.purpose, offered.configured.to_string());
            let about = Message::Socket { group, purpose, configured, has_file };
            for socket in &offered.sockets {
                channel.send_with_socket(&about, socket.as_fd())?;
            }
        }
        for (url, jwks) in self.jwks.fetched() {
            channel.send(&Message::Keys { url, jwks })?;
        }
        channel.send(&Message::Prepare)
    }

    /// Stops accepting connections and writing snapshots until the outcome is known.
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
        let write_guard = Arc::clone(&self.write_lock).blocking_lock_owned();
        let deltas = Some(self.shared.gate.subscribe_deltas());
        Ok(Paused { handover: self, write_guard, deltas, left: Vec::new(), has_new_main: false })
    }

    fn give_state(&self, channel: &mut Channel) -> io::Result<()> {
        let gate = &self.shared.gate;
        let to = BufWriter::with_capacity(BUFFER_BYTES, StateWriter(channel));
        let mut snapshot = Snapshot::begin(to, &self.secret, gate.clock().now(), time::system_now())?;
        gate.save_all(&mut snapshot)?;
        drop(snapshot.finish()?);
        channel.send(&Message::StateEnd)
    }
}

fn shutting_down() -> io::Error {
    io::Error::other("it is shutting down")
}

const BUFFER_BYTES: usize = 256 << 10;

/// A pause of this process. Without a [commit](Paused::commit), the process resumes on drop.
struct Paused<'e> {
    handover: &'e Handover,
    write_guard: OwnedMutexGuard<bool>,
    deltas: Option<Receiver<Delta>>,
    /// Files of Unix sockets that the successor owns.
    left: Vec<Arc<SocketFile>>,
    /// Whether systemd was notified of the successor.
    has_new_main: bool,
}

impl Paused<'_> {
    /// Disowns the files of these sockets, so that the end of this process does not remove them.
    fn leave_files<'o>(&mut self, offered: impl Iterator<Item = &'o Offered>) {
        self.left.extend(offered.filter_map(|offered| offered.file.clone()));
        self.left.iter().for_each(|file| file.disown());
    }

    /// Makes the pause final. Returns the channel of the charges that this process still makes.
    fn commit(mut self) -> Receiver<Delta> {
        *self.write_guard = false;
        self.deltas.take().unwrap_or_else(|| self.handover.shared.gate.subscribe_deltas())
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if self.deltas.is_none() {
            return;
        }
        self.left.iter().for_each(|file| file.take_ownership());
        self.handover.shared.gate.unsubscribe_deltas();
        let draining = &self.handover.shared.draining;
        self.handover.stage.send_if_modified(|stage| {
            let was_paused = *stage == Lifecycle::HandingOver;
            if was_paused {
                *stage = Lifecycle::Running;
                draining.store(false, Ordering::Release);
            }
            was_paused
        });
        if self.has_new_main {
            systemd::notify_main(std::process::id());
        }
    }
}

/// Sends the charges of this process to the successor, until the last request has ended.
fn send_deltas(channel: &mut Channel, deltas: &Receiver<Delta>) {
    for Delta { limit, key, plan, units } in deltas {
        let key = (key.first, key.second);
        let charged = Message::Charged { limit: limit.into(), key, plan: plan.map(Into::into), units };
        if let Err(error) = channel.send(&charged) {
            return tracing::warn!(%error, "the successor does not receive the last charges of this process");
        }
    }
}
