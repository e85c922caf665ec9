//! The connections to other replicas: made with the process, run on the control runtime, ended by a takeover. Their number
//! decides the shares of limits.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::access::Map;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, spawn_blocking};

use super::error::AppError;
use super::stores;
use crate::base::time::Timestamp;
use crate::config::PeerSettings;
use crate::engine::gate::{NewestLive, StreamLedger};
use crate::engine::policy::{FleetSecret, Policy};
use crate::fleet::grpc::fleet::{self, FleetParts, Hub};
use crate::transport::net::{ListenAddress, Listener};
use crate::transport::proxy::{RunningConfig, SharedState};

/// The time in which other replicas must hear of the last charges.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// The time in which etcd must answer at the end.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(1);

/// The fleet of `peers`. `inherited` is the number of the process that this one takes over from.
pub(super) fn hub(
    shared: &SharedState,
    peers: PeerSettings,
    secret: &FleetSecret,
    inherited: Option<u64>,
) -> Result<Arc<Hub>, AppError> {
    let instance = inherited.map_or_else(draw_instance, Ok)?;
    shared.gate.share_bans(instance);
    let newest = Map::new(Arc::clone(&shared.running_config), |running: &RunningConfig| &*running.live);
    let ledger = StreamLedger::new(Arc::clone(&shared.gate), NewestLive::new(newest));
    let metrics = shared.metrics.show_fleet().map_err(AppError::system("register the metrics"))?;
    let parts = FleetParts {
        clock: shared.gate.clock(),
        ledger: Box::new(ledger),
        link: Arc::clone(shared.gate.link()),
        key: secret.proof_key(),
        metrics,
        instance,
    };
    Ok(Hub::new(parts, peers.settings))
}

fn draw_instance() -> Result<u64, AppError> {
    getrandom::u64().map_err(AppError::system("draw a random number"))
}

/// The fleet before its tasks run.
pub(super) struct Fleet {
    pub(super) hub: Arc<Hub>,
    pub(super) socket: Listener,
    pub(super) address: ListenAddress,
}

/// The running tasks of a fleet.
pub(super) struct RunningFleet {
    hub: Arc<Hub>,
    tasks: JoinHandle<()>,
    accepting: AbortHandle,
}

impl Fleet {
    /// Starts the tasks.
    pub(super) fn start(self) -> Result<RunningFleet, AppError> {
        let Self { hub, socket, address } = self;
        let Listener::Tcp(socket) = socket else {
            return Err(AppError::System("use fleet.listen", "it is no TCP socket".into()));
        };
        let accepting = fleet::accept(&hub, socket).map_err(AppError::system("use fleet.listen"))?;
        tracing::info!(%address, "serving other replicas");
        Ok(RunningFleet { tasks: tokio::spawn(fleet::run(Arc::clone(&hub))), accepting, hub })
    }
}

impl RunningFleet {
    /// Leaves the fleet, because a successor has taken this replica's place.
    pub(super) fn leave(&self) {
        self.accepting.abort();
        self.tasks.abort();
        self.hub.close();
    }

    /// Waits until the others know of all charges, if they answer in time, and ends the registration of this replica.
    pub(super) async fn end(&self) {
        fleet::flush(&self.hub, FLUSH_TIMEOUT).await;
        self.tasks.abort();
        fleet::unregister(&self.hub, UNREGISTER_TIMEOUT).await;
    }
}

/// The number of replicas as it changes.
pub(super) struct FleetSize(Option<watch::Receiver<Option<u64>>>);

impl FleetSize {
    /// The size of the fleet of `hub`. Without one it never changes.
    pub(super) fn of(hub: Option<&Arc<Hub>>) -> Self {
        let mut size = hub.map(|hub| hub.size());
        size.as_mut().map(watch::Receiver::mark_changed);
        Self(size)
    }

    /// `policy` with the shares of the present number.
    pub(super) fn apply(&self, policy: Policy) -> Policy {
        let replicas = self.0.as_ref().and_then(|size| *size.borrow());
        replicas.and_then(|replicas| policy.resized(replicas)).unwrap_or(policy)
    }

    /// Waits until the number is known and may be another one.
    pub(super) async fn changed(&mut self) -> u64 {
        if let Some(size) = &mut self.0 {
            while size.changed().await.is_ok() {
                if let Some(replicas) = *size.borrow_and_update() {
                    return replicas;
                }
            }
        }
        std::future::pending().await
    }
}

/// Shares the limits in force by `replicas`.
pub(super) async fn resize(shared: &SharedState, replicas: u64) {
    if replace(shared, |policy| policy.resized(replicas)).await {
        tracing::info!(replicas, "limits are shared by another number of replicas");
    }
}

/// Makes the steps of ramps that are due at `now` by the wall clock.
pub(super) async fn follow_ramps(shared: &SharedState, now: Timestamp) {
    if replace(shared, |policy| policy.ramped(now)).await {
        tracing::info!("a ramp has changed limits");
    }
}

/// Replaces the policy in force, unless `change` returns none. What is spent stays spent.
async fn replace(shared: &SharedState, change: impl FnOnce(&Policy) -> Option<Policy>) -> bool {
    let before = shared.running_config.load_full();
    let Some(policy) = change(&before.live.policy) else { return false };
    stores::set_replicas(&before.stores, policy.limits());
    warn_of_scarce_limits(&policy);
    follow(shared, policy);
    let next = shared.running_config.load_full();
    adopt_rules(shared, &before, &next).await;
    shared.reloads.send_replace(());
    true
}

/// Lets all keys adopt the rules of `next`, on another thread: a million keys with two rates take up to 250 ms, and the
/// control runtime also keeps the fleet together and serves operators. The caller waits, so that keys adopt rules in the
/// order in which these came in force.
pub(super) async fn adopt_rules(shared: &SharedState, before: &RunningConfig, next: &RunningConfig) {
    let (gate, [before, next]) = (Arc::clone(&shared.gate), [before, next].map(|running| Arc::clone(&running.live)));
    let adopted = spawn_blocking(move || gate.adopt_rules(&before, &next)).await;
    if let Err(error) = adopted {
        tracing::error!(%error, "some keys adopt new rules only at their next use");
    }
}

/// Puts a policy in force that differs from the one before in its numbers. Tasks need not hear of that.
pub(super) fn follow(shared: &SharedState, policy: Policy) {
    let before = shared.running_config.load_full();
    let live = shared.gate.replace(&before.live, policy, &before.stores);
    shared.running_config.store(Arc::new(before.with_live(live, &shared.metrics, &shared.ceiling)));
}

/// Warns of limits that the fleet may exceed, because each replica admits at least one unit.
pub(super) fn warn_of_scarce_limits(policy: &Policy) {
    for limit in policy.scarce_limits() {
        let replicas = policy.members();
        tracing::warn!(limit, replicas, "there are more replicas than units of this limit; each admits one unit");
    }
}
