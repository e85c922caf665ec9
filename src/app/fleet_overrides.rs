//! The overrides of a fleet in etcd: one key has the text of the file, and each replica has a copy as its file, or in
//! memory.
//!
//! A change edits the text in etcd by compare-and-swap, so no change of another replica is lost. The task that reloads
//! writes each new text to the file, and installs it as after an edit by hand.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::sleep;

use super::installed::secret_mismatch;
use crate::config::{self, Changed, Config, Origin, OverridesInForce};
use crate::etcd::{Backoff, Entry, KeyRange, Session};
use crate::grpc::fleet::settings::EtcdMembers;
use crate::policy::FleetSecret;
use crate::policy::overrides::{OverrideEdit, OverrideError};
use crate::store::snapshot::file;

/// Attempts to change the text while other replicas change it.
const ATTEMPTS_MAX: usize = 5;

/// A configuration with changed overrides, and for each edit the allowance before it.
pub(super) type ChangedConfig = (Box<Config>, Vec<Option<Value>>);

/// Follows the overrides of the fleet until dropped.
pub(super) struct FleetOverrides {
    etcd: Arc<EtcdMembers>,
    texts: watch::Receiver<Arc<str>>,
    task: AbortHandle,
}

impl Drop for FleetOverrides {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FleetOverrides {
    pub(super) fn start(etcd: Arc<EtcdMembers>) -> Self {
        let (sender, texts) = watch::channel(Arc::from(""));
        let task = tokio::spawn(follow(Arc::clone(&etcd), sender)).abort_handle();
        Self { etcd, texts, task }
    }

    /// Whether the overrides are in this etcd.
    pub(super) fn is_in(&self, etcd: &Arc<EtcdMembers>) -> bool {
        self.etcd == *etcd
    }

    /// Waits for the next text.
    pub(super) async fn changed(&mut self) -> Arc<str> {
        match self.texts.changed().await {
            Ok(()) => Arc::clone(&self.texts.borrow_and_update()),
            Err(_) => std::future::pending().await,
        }
    }

    /// Makes edits in etcd and in the copy of this replica, which is `in_force`. If etcd has no overrides yet, the text of
    /// the copy is edited.
    pub(super) async fn change(
        &self,
        origin: Origin,
        edits: Vec<OverrideEdit>,
        fleet_secret: Option<FleetSecret>,
        in_force: OverridesInForce,
    ) -> Result<ChangedConfig, OverrideError> {
        let key = key(&self.etcd);
        let session = Session::open(&self.etcd.servers, 0).await.map_err(OverrideError::Fleet)?;
        let edits: Arc<[OverrideEdit]> = edits.into();
        for _ in 0..ATTEMPTS_MAX {
            let found = session.get(&KeyRange::Key(key.clone())).await.map_err(OverrideError::Fleet)?;
            let entry = found.entries.into_iter().next();
            let revision = entry.as_ref().map_or(0, |entry| entry.revision);
            let base = entry.and_then(text);
            let (origin, edits, secret) = (origin.clone(), Arc::clone(&edits), fleet_secret.clone());
            let kept = in_force.clone();
            let compile = move || compile_change((&origin, &kept), &edits, base.as_deref(), secret.as_ref());
            let changed = spawn_blocking(compile).await.map_err(|error| OverrideError::Write(error.to_string()))??;
            let put = session.put_if(&key, changed.text.clone().into_bytes(), revision).await;
            // Without an answer etcd may have made the change.
            if put.map_err(|_| OverrideError::Timeout)? {
                let written = spawn_blocking(move || write(changed)).await;
                return written.map_err(|error| OverrideError::Write(error.to_string()))?;
            }
        }
        Err(OverrideError::Fleet("other replicas change them at the same time".to_owned()))
    }
}

/// Compiles a configuration with edited overrides, and then writes their file, if they have one. The process began with
/// `fleet_secret`.
pub(super) fn write_change(
    at: (&Origin, &OverridesInForce),
    edits: &[OverrideEdit],
    fleet_secret: Option<&FleetSecret>,
) -> Result<ChangedConfig, OverrideError> {
    write(compile_change(at, edits, None, fleet_secret)?)
}

fn compile_change(
    (origin, in_force): (&Origin, &OverridesInForce),
    edits: &[OverrideEdit],
    base: Option<&str>,
    fleet_secret: Option<&FleetSecret>,
) -> Result<Changed, OverrideError> {
    let changed = config::change(origin, edits, base, in_force)?;
    match secret_mismatch(fleet_secret, &changed.config) {
        Some(reason) => Err(OverrideError::InvalidOnDisk(reason.to_owned())),
        None => Ok(changed),
    }
}

fn write(changed: Changed) -> Result<ChangedConfig, OverrideError> {
    let Changed { config, text, before } = changed;
    if let Some(path) = config.run_time.kept.place.file() {
        let written = file::replace(path, |to| to.write_all(text.as_bytes()));
        written.map_err(|error| OverrideError::Write(error.to_string()))?;
    }
    Ok((Box::new(config), before))
}

/// Writes `text` to the file at `path`, unless the file has it already. Returns whether it did.
pub(super) fn write_if_new(path: &Path, text: &str) -> io::Result<bool> {
    let known = match std::fs::read(path) {
        Ok(known) => known,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    if known == text.as_bytes() {
        return Ok(false);
    }
    file::replace(path, |to| to.write_all(text.as_bytes())).map(|_| true)
}

/// The key of the text.
fn key(etcd: &EtcdMembers) -> String {
    format!("{}/overrides/text", etcd.prefix)
}

/// The text of a key; `None` if it is not UTF-8.
fn text(entry: Entry) -> Option<String> {
    let text = String::from_utf8(entry.value.unwrap_or_default());
    text.map_err(|_| tracing::error!("the overrides of the fleet in etcd are not UTF-8")).ok()
}

/// Sends each text until dropped.
async fn follow(etcd: Arc<EtcdMembers>, texts: watch::Sender<Arc<str>>) {
    let (mut backoff, mut last_reason) = (Backoff::default(), None);
    for attempt in 0.. {
        let mut has_begun = false;
        let Err(reason) = follow_once(&etcd, attempt, &texts, &mut has_begun).await;
        if has_begun {
            (backoff, last_reason) = (Backoff::default(), None);
        }
        if last_reason.as_ref() != Some(&reason) {
            tracing::warn!(reason, "the overrides of the fleet cannot be followed; those in force stay");
            last_reason = Some(reason);
        }
        sleep(backoff.pause()).await;
    }
}

/// Sends each text over one connection.
async fn follow_once(
    etcd: &EtcdMembers,
    attempt: usize,
    texts: &watch::Sender<Arc<str>>,
    has_begun: &mut bool,
) -> Result<Infallible, String> {
    let (key, session) = (KeyRange::Key(key(etcd)), Session::open(&etcd.servers, attempt).await?);
    let found = session.get(&key).await?;
    let mut watch = session.watch(&key, found.revision + 1).await?;
    *has_begun = true;
    let mut newest = found.entries.into_iter().next();
    loop {
        if let Some(text) = newest.and_then(text) {
            texts.send_replace(text.into());
        }
        newest = watch.changes().await?.pop();
    }
}
