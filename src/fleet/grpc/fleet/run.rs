//! The tasks of a fleet: one ticks, one follows the members, one looks after the connections, one accepts.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::dial::keep_connected;
use super::handshake::{NONCE_BYTES, hello};
use super::hub::Hub;
use super::settings::{MemberSource, Members};
use super::{listen, members, registry};
use crate::fleet::grpc::proto::weir::v1::Hello;
use crate::transport::net::tls::PeerTls;

/// The time between two looks at the members.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The time between two looks at what peers lack, during a shutdown.
const FLUSH_EVERY: Duration = Duration::from_millis(5);

/// Accepts connections until the handle is aborted.
///
/// # Errors
/// If the runtime refuses the socket.
pub fn accept(hub: &Arc<Hub>, listener: std::net::TcpListener) -> io::Result<AbortHandle> {
    let listener = TcpListener::from_std(listener)?;
    Ok(tokio::spawn(listen::accept(Arc::clone(hub), listener)).abort_handle())
}

/// Takes part in the fleet until dropped.
pub async fn run(hub: Arc<Hub>) {
    let ticking = tick(&hub);
    let looking = look(&hub);
    tokio::select! {
        () = ticking => {}
        () = looking => {}
    }
}

/// Waits until all connected replicas know of all charges, for at most `most`.
pub async fn flush(hub: &Hub, most: Duration) {
    let flushed = async {
        hub.tick();
        while hub.lag() > 0 {
            sleep(FLUSH_EVERY).await;
        }
    };
    let _ = timeout(most, flushed).await;
}

/// Ends the registration of this replica, so that it does not count until its lease ends, unless a successor has it. The
/// tasks of the fleet must have ended. Waits for at most `most`.
pub async fn unregister(hub: &Hub, most: Duration) {
    let members = hub.settings.load().members.clone();
    let MemberSource::Etcd(etcd) = members else { return };
    if hub.state().is_closed {
        return;
    }
    let ended = timeout(most, registry::unregister(&etcd)).await;
    if let Err(reason) = ended.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
        tracing::warn!(reason, "this replica counts as a member until its lease in etcd ends");
    }
}

/// Ticks when it is time, or when charges are urgent.
async fn tick(hub: &Hub) {
    loop {
        let at = hub.clock.instant(hub.state().replica.tick_at());
        tokio::select! {
            () = sleep_until(at) => {
                hub.tick();
                hub.note_isolation(&mut hub.state());
            }
            () = hub.link.urgent() => hub.state().replica.hurry(),
        }
    }
}

/// Follows the members, and keeps a task for each.
async fn look(hub: &Arc<Hub>) {
    let (mut reloads, mut looks) = (hub.reloads.subscribe(), interval(LOOK_EVERY));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (sender, mut listed) = watch::channel(Members::default());
    let mut source = hub.settings.load().members.clone();
    let mut following = JoinSet::from_iter([members::follow(source.clone(), sender.clone())]);
    let mut calling: BTreeMap<Box<str>, JoinSet<()>> = BTreeMap::new();
    loop {
        tokio::select! {
            _ = listed.changed() => hub.list(&listed.borrow_and_update()),
            _ = reloads.changed() => {
                let settings = hub.settings.load_full();
                if settings.members != source {
                    source.clone_from(&settings.members);
                    following = JoinSet::from_iter([members::follow(source.clone(), sender.clone())]);
                }
                hub.list(&listed.borrow());
            }
            _ = looks.tick() => {
                hub.expire();
                hub.publish();
            }
        }
        let wanted = hub.callable();
        calling.retain(|address, _| wanted.contains(address));
        for address in wanted {
            let task = || JoinSet::from_iter([keep_connected(Arc::clone(hub), address.clone())]);
            calling.entry(address.clone()).or_insert_with(task);
        }
        let _ = &following; // it ends on drop
    }
}

impl Hub {
    /// Replaces the list of members.
    fn list(&self, members: &Members) {
        let settings = self.settings.load();
        let mut state = self.state();
        state.roster.list(members, settings.advertise.as_deref(), self.clock.now());
        if !state.is_listed && !members.is_empty() {
            state.is_listed = true;
            state.published.grown_at = self.clock.now();
        }
        self.note_size(&mut state);
    }

    /// Waits until the TLS of connections is another one than `tls`.
    pub(super) async fn has_other_tls(&self, tls: Option<&PeerTls>) {
        let mut reloads = self.reloads.subscribe();
        while self.settings.load().tls.as_ref() == tls {
            // The hub has the sender, so there is always one.
            let _ = reloads.changed().await;
        }
    }

    /// The replicas, this one included, whenever their number changes; `None` until the members are known.
    pub fn size(&self) -> watch::Receiver<Option<u64>> {
        self.size.subscribe()
    }

    /// A hello for a new connection.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn hello(&self) -> Result<Hello, getrandom::Error> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        Ok(hello(self.own, self.settings.load().advertise.as_deref(), nonce))
    }
}
