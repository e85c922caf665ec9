//! Keeps the state of limits in a file: read at the start, written every so often and at the end.
//!
//! Nothing here stops a start or a request. What goes wrong is logged, counted, and tried again.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use super::AppError;
use super::takeover::Previous;
use crate::config::Config;
use crate::policy::Policy;
use crate::proxy::SharedState;
use crate::store::snapshot::{Restored, RestoredLimit, Secret, Settings, Snapshot, SnapshotError, file, restore};
use crate::time::{self, Clock, Timestamp};

/// Locked while a snapshot is written; false once that is the business of another process.
pub(super) type Writes = Arc<Mutex<bool>>;

/// What limits begin with.
pub(super) struct Beginning {
    /// What keys are hashed under.
    pub(super) secret: Secret,
    /// The limits of which something is known.
    pub(super) limits: Vec<RestoredLimit>,
    /// If state is kept.
    pub(super) keeper: Option<Keeper>,
}

impl Beginning {
    /// With what the process that is taken over from gives, or with what is on disk, or with nothing.
    pub(super) fn of(config: &Config, previous: &mut Previous, clock: Clock) -> Result<Self, AppError> {
        let settings = config.snapshot.clone();
        let handed = match previous {
            Previous::Running(predecessor) => {
                predecessor.take_state(clock, &config.policy).map_err(AppError::TakeOver)?
            }
            Previous::Nobody | Previous::Ended => None,
        };
        if let Some(Restored { secret, limits, .. }) = handed {
            let keeper = settings.map(|settings| Keeper::handed(settings, secret));
            return Ok(Self { secret, limits, keeper });
        }
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(AppError::system("draw a random secret"))?;
        let opened = settings.map(|settings| Keeper::open(settings, secret, &config.policy, clock.now()));
        let (keeper, limits) = opened.unzip();
        let secret = keeper.as_ref().map_or(secret, Keeper::secret);
        Ok(Self { secret, limits: limits.unwrap_or_default(), keeper })
    }
}

/// Where the state is kept, and what was found there.
pub(super) struct Keeper {
    settings: Settings,
    secret: Secret,
    found: Found,
}

/// What was found at the start. It is logged later: there are no logs yet.
enum Found {
    Nothing,
    /// Another process was taken over from, so that nothing was read.
    Handed,
    Restored {
        limits: usize,
        age: Duration,
    },
    Useless {
        error: SnapshotError,
        aside: io::Result<PathBuf>,
    },
}

impl Keeper {
    /// Reads what is there, as it is at `now`. Without it, keys are hashed under `secret`.
    pub(super) fn open(
        settings: Settings,
        secret: Secret,
        policy: &Policy,
        now: Timestamp,
    ) -> (Self, Vec<RestoredLimit>) {
        let max_keys = |name: &str| policy.limits().iter().find(|limit| *limit.name == *name).map(|l| l.max_keys);
        let (found, secret, limits) = match read(&settings.path, now, max_keys) {
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

    /// Goes on where another process has been, under its secret.
    pub(super) fn handed(settings: Settings, secret: Secret) -> Self {
        Self { settings, secret, found: Found::Handed }
    }

    /// What keys are hashed under.
    pub(super) fn secret(&self) -> Secret {
        self.secret
    }

    /// Writes from now on, until it is told to stop, or another process is to.
    pub(super) fn start(self, shared: Arc<SharedState>, writes: Writes) -> Keeping {
        let Self { settings, secret, found } = self;
        let path = settings.path.display().to_string();
        match found {
            Found::Nothing => tracing::info!(path, "no snapshot yet: limits begin anew"),
            Found::Handed => tracing::info!(path, "limits go on from the process that was taken over from"),
            Found::Restored { limits, age } => {
                shared.metrics.snapshot_restored.set(1);
                tracing::info!(path, limits, ?age, "limits go on from the snapshot");
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
        let (stop, stopped) = oneshot::channel();
        Keeping { stop, task: tokio::spawn(keep(settings, secret, shared, writes, stopped)) }
    }
}

/// What is kept is being written.
pub(super) struct Keeping {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Keeping {
    /// Writes for the last time. Nothing else is being written then.
    pub(super) async fn finish(self) {
        let _ = self.stop.send(());
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the last snapshot was not written");
        }
    }
}

async fn keep(
    settings: Settings,
    secret: Secret,
    shared: Arc<SharedState>,
    writes: Writes,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut ticks = interval(settings.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_last = tokio::select! {
            _ = &mut stopped => true,
            _ = ticks.tick() => false,
        };
        let may_write = writes.lock().await;
        if !*may_write {
            return;
        }
        let (path, writer) = (settings.path.clone(), Arc::clone(&shared));
        let written = spawn_blocking(move || write(&path, &secret, &writer)).await;
        match written.map_err(io::Error::other).flatten() {
            Ok(bytes) => {
                shared.metrics.snapshot_written(bytes, shared.gate.clock().now());
                tracing::debug!(bytes, "snapshot written");
            }
            Err(error) => {
                shared.metrics.snapshot_successful.set(0);
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

/// What is at `path`; none if nothing is.
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
