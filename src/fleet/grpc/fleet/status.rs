//! What operators see: metrics, log lines, and the view of the admin API.

use std::collections::BTreeSet;

use super::hub::{Hub, State};
use super::published::Published;
use super::roster::{Count, Target};
use super::settings::FleetSettings;
use crate::base::time::Timestamp;
use crate::engine::store::stream::PeerStatus;

/// The difference between two clocks from which on there is a warning, in nanoseconds.
const SKEW_NS_MAX: u64 = 1_000_000_000;

/// The fleet as one replica sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetView {
    /// The address at which others reach this replica, if it is known.
    pub address: Option<Box<str>>,
    /// The process, by the instant of its start in unix nanoseconds.
    pub epoch: u64,
    /// The replicas, this one included.
    pub replicas: u64,
    /// Whether this replica keeps to its share, because another one does not hear it.
    pub is_isolated: bool,
    /// Whether states of another replica are on the way.
    pub is_recovering: bool,
    /// All others, connected ones first.
    pub members: Vec<MemberView>,
}

impl FleetView {
    /// The view of a replica that has no connections to others.
    pub fn alone(replicas: u64, epoch: u64) -> Self {
        Self { address: None, epoch, replicas, is_isolated: false, is_recovering: false, members: Vec::new() }
    }
}

/// Another replica, or an address at which none has answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its address, as far as it is known.
    pub address: Box<str>,
    /// Its process; `None` if none has answered.
    pub epoch: Option<u64>,
    /// What this replica knows of it.
    pub status: Option<PeerStatus>,
    /// Milliseconds since its last message.
    pub silent_ms: Option<u64>,
    /// Milliseconds since the newest message of this replica that it is known to have.
    pub deaf_ms: Option<u64>,
}

impl Hub {
    /// Publishes the number of replicas, which may have changed.
    pub(super) fn note_size(&self, state: &mut State) {
        self.note_isolation(state);
        let replicas = state.is_listed.then(|| state.replicas(&self.settings.load()));
        self.size.send_if_modified(|known| std::mem::replace(known, replicas) != replicas);
    }

    /// Tells the requests how many replicas do not hear this one.
    pub(super) fn note_isolation(&self, state: &mut State) {
        let settings = self.settings.load();
        let now = self.clock.now();
        let replicas = state.replicas(&settings);
        let is_unknown = !state.is_listed && settings.named_replicas().is_none();
        let Presence { mut absent, gone, met } = state.presence(replicas, now);
        let Published { absent: before, replicas: replicas_before, grown_at, is_unknown_logged, .. } =
            &mut state.published;
        if replicas > std::mem::replace(replicas_before, replicas) {
            *grown_at = now;
        }
        if now.ns_since(*grown_at) < settings.timing.isolate_after_ns {
            absent = absent.min(*before);
        } else if is_unknown && !std::mem::replace(is_unknown_logged, true) {
            tracing::warn!(
                "the members are unknown, and `fleet.replicas` is not set; this replica admits whole limits"
            );
        }
        let unmet = replicas.saturating_sub(1 + absent + gone + met);
        self.link.set_absent(absent, (!is_unknown).then_some(unmet));
        if std::mem::replace(before, absent) != absent {
            self.metrics.isolated.set((absent > 0).into());
            if absent > 0 {
                tracing::warn!(replicas, absent, "replicas do not hear this one; it keeps to a part of each limit");
            } else {
                tracing::info!(replicas, "all other replicas hear this one again");
            }
        }
    }

    /// Notes that an attempt to reach `address` that began at `began` has failed, and whether it was refused.
    pub(super) fn failed(&self, address: &str, is_refusing: bool, began: Timestamp) {
        let mut state = self.state();
        state.roster.failed(address, is_refusing, began);
        self.note_size(&mut state);
    }

    /// Updates the metrics, and warns of clocks that differ.
    pub(super) fn publish(&self) {
        let settings = self.settings.load();
        let mut state = self.state();
        let replicas = state.replicas(&settings);
        self.metrics.replicas.set(i64::try_from(replicas).unwrap_or(i64::MAX));
        let (mut peers, mut skewed) = (BTreeSet::new(), BTreeSet::new());
        for MemberView { address, status, .. } in members(&state, self) {
            // Connected ones come first, and a replica may have an older process.
            if !peers.insert(address.clone()) {
                continue;
            }
            let Some(status) = status else {
                self.metrics.peer(&address, false, 0, None, None);
                continue;
            };
            self.metrics.peer(&address, status.is_connected, status.lag, status.last_received, status.ahead_ns);
            if let Some(ahead_ns) = status.ahead_ns.filter(|ahead_ns| ahead_ns.unsigned_abs() > SKEW_NS_MAX) {
                if !state.published.skewed.contains(&address) {
                    let ahead_ms = ahead_ns / 1_000_000;
                    tracing::warn!(peer = %address, ahead_ms, "the clock of a replica differs; calendar windows differ too");
                }
                skewed.insert(address);
            }
        }
        state.published.peers.difference(&peers).for_each(|peer| self.metrics.remove_peer(peer));
        (state.published.peers, state.published.skewed) = (peers, skewed);
    }

    /// The batches that connected replicas lack.
    pub(super) fn lag(&self) -> u64 {
        let state = self.state();
        let statuses = state.processes.values().filter_map(|known| state.replica.status(known.peer));
        statuses.filter(|status| status.is_connected).map(|status| status.lag).sum()
    }

    /// The addresses that this replica connects to.
    pub(super) fn callable(&self) -> BTreeSet<Box<str>> {
        let settings = self.settings.load();
        let own = settings.advertise.as_deref();
        self.state().roster.addresses().filter(|address| own != Some(address)).map(Into::into).collect()
    }

    /// The fleet now.
    pub fn view(&self) -> FleetView {
        let settings = self.settings.load();
        let state = self.state();
        FleetView {
            address: settings.advertise.clone(),
            epoch: self.own.epoch,
            replicas: state.replicas(&settings),
            is_isolated: state.published.absent > 0,
            is_recovering: state.replica.is_recovering(),
            members: members(&state, self),
        }
    }
}

/// Numbers of other replicas.
struct Presence {
    /// Those that do not hear this one.
    absent: u64,
    /// Those that are gone, so that nothing needs to reach them.
    gone: u64,
    /// Those that are connected, and hear this one.
    met: u64,
}

impl State {
    /// The replicas, this one included, at most `max_replicas`. Before the members are known, those of the configuration
    /// count too.
    pub(super) fn replicas(&self, settings: &FleetSettings) -> u64 {
        let configured = settings.named_replicas().filter(|_| !self.is_listed).unwrap_or(1);
        self.count().replicas.max(configured).min(settings.max_replicas as u64)
    }

    /// The replicas, each once, whichever addresses lead to it.
    fn count(&self) -> Count {
        let instances = self.processes.keys().map(|process| process.instance).collect();
        self.roster.count(&instances, &self.connected())
    }

    /// How many of `replicas` hear this one. One whose address refuses connections is gone, unless a peer still reaches it,
    /// or this replica is heard by no other.
    fn presence(&mut self, replicas: u64, now: Timestamp) -> Presence {
        let unknown_max = self.count().unknown;
        let Self { replica, processes, roster, .. } = self;
        let hearing = processes.iter().filter(|(_, known)| replica.reaches(known.peer, now));
        let hearing: BTreeSet<u64> = hearing.map(|(process, _)| process.instance).collect();
        let (mut refusing, mut unknown) = (BTreeSet::new(), 0);
        for target in roster.refusing() {
            match target {
                Target::Instance(instance) if !hearing.contains(&instance) => _ = refusing.insert(instance),
                Target::Unknown => unknown += 1,
                Target::Instance(_) | Target::Itself => {}
            }
        }
        let gone = refusing.iter().filter(|instance| replica.is_refused_by_all(**instance, now)).count() as u64;
        let gone = gone + unknown.min(unknown_max);
        replica.set_refusing(refusing.into_iter().collect());
        let absent = replicas.saturating_sub(1 + hearing.len() as u64);
        let gone = if hearing.is_empty() { 0 } else { gone.min(absent) };
        let met = self.connected().intersection(&hearing).count() as u64;
        Presence { absent: absent - gone, gone, met }
    }
}

/// All other processes, connected ones first, and then the addresses at which none has answered.
fn members(state: &State, hub: &Hub) -> Vec<MemberView> {
    let now = hub.clock.now();
    let process = |(process, known): (&super::handshake::ProcessId, &super::hub::KnownProcess)| {
        let status = state.replica.status(known.peer);
        let silent_ms = status.and_then(|status| status.last_received).map(|at| now.ns_since(at) / 1_000_000);
        let address = state.roster.address_of(process.instance).unwrap_or(&known.address).into();
        let deaf_ms = status.map(|status| now.ns_since(status.confirmed) / 1_000_000);
        MemberView { address, epoch: Some(process.epoch), status, silent_ms, deaf_ms }
    };
    let mut all: Vec<_> = state.processes.iter().map(process).collect();
    all.sort_by_key(|member| !member.status.is_some_and(|status| status.is_connected));
    let unknown = state.roster.unknown();
    all.extend(unknown.map(|address| MemberView {
        address: address.into(),
        epoch: None,
        status: None,
        silent_ms: None,
        deaf_ms: None,
    }));
    all
}
