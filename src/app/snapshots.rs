//! Snapshots of the state of limits: one is read at the start, and written periodically and at the end.
//!
//! No error here stops a start or a request. Errors are logged and counted, and the next snapshot is tried.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::error::AppError;
use super::stoppable::StoppableTask;
use super::takeover::Previous;
use crate::base::time::{self, Clock, Timestamp};
use crate::config::Config;
use crate::engine::policy::{FleetSecret, Policy};
use crate::engine::store::snapshot::{
    Restored, RestoredLimit, Secret, Settings, Snapshot, SnapshotError, file, restore,
};
use crate::transport::proxy::SharedState;

/// Locked while a snapshot is written. The value is false once a successor writes the snapshots.
pub(super) type WriteLock = Arc<Mutex<bool>>;

/// The state of limits at the start.
pub(super) struct InitialState {
    /// The secret under which keys are hashed.
    pub(super) secret: Secret,
    /// The limits that have state.
    pub(super) limits: Vec<RestoredLimit>,
    /// Writes snapshots; none if the configuration has no `[snapshot]`.
    pub(super) snapshots: Option<SnapshotWriter>,
}

impl InitialState {
    /// Takes the state from the predecessor, or else from the snapshot on disk, or else begins without state. A fleet has
    /// one secret, so state under another secret is of no use to it.
    pub(super) fn of(config: &Config, previous: &mut Previous, clock: Clock) -> Result<Self, AppError> {
        let settings = config.snapshot.clone();
        let fleet_secret = config.fleet_secret.as_ref().map(FleetSecret::key_secret);
        let inherited = match previous {
            Previous::Running(predecessor) => {
                predecessor.take_state(clock, &config.policy, fleet_secret).map_err(AppError::TakeOver)?
            }
            Previous::None | Previous::Ended => None,
        };
        if let Some(Restored { secret, limits, .. }) = inherited {
            let snapshots = settings.map(|settings| SnapshotWriter::inherited(settings, secret));
            return Ok(Self { secret, limits, snapshots });
        }
        let secret = fleet_secret.map_or_else(draw_secret, Ok)?;
        let secrets = (secret, fleet_secret.is_some());
        let opened = settings.map(|settings| SnapshotWriter::open(settings, secrets, &config.policy, clock.now()));
        let (snapshots, limits) = opened.unzip();
        let secret = snapshots.as_ref().map_or(secret, |writer| writer.secret);
        Ok(Self { secret, limits: limits.unwrap_or_default(), snapshots })
    }
}

fn draw_secret() -> Result<Secret, AppError> {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret).map_err(AppError::system("draw a random secret"))?;
    Ok(secret)
}

/// Writes the snapshots of a process.
pub(super) struct SnapshotWriter {
    settings: Settings,
    /// The secret under which keys are hashed.
    secret: Secret,
    found: Found,
}

/// The result of reading the snapshot. It is logged later, when the log is open.
enum Found {
    Nothing,
    /// The state came from a predecessor, so no snapshot was read.
    Inherited,
    Restored {
        limits: usize,
        age: Duration,
    },
    Useless {
        error: SnapshotError,
        aside: io::Result<PathBuf>,
    },
}

impl SnapshotWriter {
    /// Reads the snapshot, if there is one, as of `now`. Its secret replaces `secret`, unless that is the one of a fleet.
    fn open(
        settings: Settings,
        (secret, is_of_fleet): (Secret, bool),
        policy: &Policy,
        now: Timestamp,
    ) -> (Self, Vec<RestoredLimit>) {
        let max_keys = |name: &str| policy.limits().iter().find(|limit| *limit.name == *name).map(|l| l.max_keys);
        let accept = |restored: Option<Restored>| match &restored {
            // Keys under another secret are of no use to the fleet.
            Some(restored) if is_of_fleet && restored.secret != secret => Err(SnapshotError::OtherSecret),
            _ => Ok(restored),
        };
        let (found, secret, limits) = match read(&settings.path, now, max_keys).and_then(accept) {
            Ok(None) => (Found::Nothing, secret, Vec::new()),
            Ok(Some(Restored { secret, age_ns, limits })) => {
                let found = Found::Restored { limits: limits.len(), age: Duration::from_nanos(age_ns) };
                (found, secret, limits)
            }
            Err(error) => {
                let found = Found::Useless { error, aside: file::set_aside(&settings.path) };
                (found, secret, Vec::new())
            }
        };
        (Self { settings, secret, found }, limits)
    }

    /// Continues the snapshots of a predecessor, with its secret.
    fn inherited(settings: Settings, secret: Secret) -> Self {
        Self { settings, secret, found: Found::Inherited }
    }

    /// Starts to write, until the returned handle is finished or a successor writes.
    pub(super) fn start(self, shared: Arc<SharedState>, write_lock: WriteLock) -> StoppableTask {
        let Self { settings, secret, found } = self;
        let path = settings.path.display().to_string();
        match found {
            Found::Nothing => tracing::info!(path, "no snapshot yet: limits begin anew"),
            Found::Inherited => tracing::info!(path, "limits continue from the predecessor"),
            Found::Restored { limits, age } => {
                shared.metrics.snapshots.restored.set(1);
                tracing::info!(path, limits, ?age, "limits continue from the snapshot");
            }
            Found::Useless { error, aside: Ok(aside) } => {
                let aside = aside.display();
                tracing::error!(path, %aside, "the snapshot {error}; it was set aside, and limits begin anew");
            }
            Found::Useless { error, aside: Err(why) } => {
                tracing::error!(path, %why, "the snapshot {error}, and cannot be set aside; limits begin anew");
            }
        }
        if let Err(error) = file::clear(&settings.path) {
            tracing::warn!(path, %error, "cannot look for what earlier processes left beside the snapshot");
        }
        StoppableTask::start(|stopped| write_periodically(settings, secret, shared, write_lock, stopped))
    }
}

async fn write_periodically(
    settings: Settings,
    secret: Secret,
    shared: Arc<SharedState>,
    write_lock: WriteLock,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut ticks = interval(settings.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_last = tokio::select! {
            _ = &mut stopped => true,
            _ = ticks.tick() => false,
        };
        let may_write = write_lock.lock().await;
        if !*may_write {
            return;
        }
        let (path, writer) = (settings.path.clone(), Arc::clone(&shared));
        let written = spawn_blocking(move || write(&path, &secret, &writer)).await;
        match written.map_err(io::Error::other).flatten() {
            Ok(bytes) => {
                shared.metrics.snapshots.written(bytes, time::system_now());
                tracing::debug!(bytes, "snapshot written");
            }
            Err(error) => {
                shared.metrics.snapshots.successful.set(0);
                let path = settings.path.display();
                tracing::error!(%path, %error, "the snapshot cannot be written; the last one stays");
            }
        }
        if is_last {
            return;
        }
    }
}

fn write(path: &Path, secret: &Secret, shared: &SharedState) -> io::Result<u64> {
    file::replace(path, |to| {
        let mut snapshot = Snapshot::begin(to, secret, shared.gate.clock().now(), time::system_now())?;
        shared.gate.save(&mut snapshot)?;
        snapshot.finish().map(drop)
    })
}

/// Reads the snapshot at `path`; none if there is no file.
fn read(
    path: &Path,
    now: Timestamp,
    max_keys: impl Fn(&str) -> Option<usize>,
) -> Result<Option<Restored>, SnapshotError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(metadata) if !metadata.is_file() => return Err(SnapshotError::Damaged("it is not a file")),
        Ok(_) => {}
    }
    restore(BufReader::new(File::open(path)?), now, max_keys).map(Some)
}
