//! The connections to other replicas: made with the process, run on the control runtime, ended by a takeover.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::access::Map;
use tokio::task::{AbortHandle, JoinHandle};

use super::error::AppError;
use crate::config::PeerSettings;
use crate::gate::{NewestLive, StreamLedger};
use crate::grpc::fleet::{self, FleetParts, Hub};
use crate::net::{ListenAddress, Listener};
use crate::policy::FleetSecret;
use crate::proxy::{RunningConfig, SharedState};

/// The time in which other replicas must hear of the last charges.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

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
    let mut instance = [0; 8];
    getrandom::fill(&mut instance).map_err(AppError::system("draw a random number"))?;
    Ok(u64::from_ne_bytes(instance))
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

    /// Waits until the others know of all charges, if they answer in time.
    pub(super) async fn flush(&self) {
        fleet::flush(&self.hub, FLUSH_TIMEOUT).await;
    }
}
