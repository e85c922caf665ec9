//! The overrides of a fleet in etcd: one key has the text of the file, and each replica has a copy as its file, or in
//! memory.
//!
//! A change edits the text in etcd by compare-and-swap, so no change of another replica is lost. The task that reloads
//! writes each new text to the file, and installs it as after an edit by hand.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use super::overrides_copy::OverridesCopy;
use super::terms::{Accepted, Terms};
use crate::base::split_mix::random;
use crate::base::time::instant_now;
use crate::config::{self, Changed, ConfigInForce, OverridesInForce};
use crate::engine::policy::overrides::{EndedOverride, OverrideEdit, OverrideError};
use crate::engine::store::snapshot::file;
use crate::fleet::etcd::{Entry, FollowAttempts, KeyRange, PutError, Session};
use crate::fleet::grpc::fleet::settings::EtcdMembers;

/// The time for attempts to change the text while other replicas change it.
const ATTEMPTS_MAX: Duration = Duration::from_secs(10);
/// The bound on the random pause before the second attempt, which doubles up to the longest one.
const PAUSE_MS_FIRST: u64 = 50;
const PAUSE_MS_LONGEST: u64 = 800;

/// A configuration with changed overrides, as [`Changed`] has it.
pub(super) struct ChangedConfig {
    pub(super) accepted: Box<Accepted>,
    text: String,
    pub(super) before: Vec<Option<Value>>,
    pub(super) ended: Vec<EndedOverride>,
    copy_to: Option<PathBuf>,
}

/// Follows the overrides of the fleet until dropped.
pub(super) struct FleetOverrides {
    etcd: Arc<EtcdMembers>,
    copy: OverridesCopy,
    /// It ends on drop.
    _task: JoinSet<()>,
}

impl FleetOverrides {
    pub(super) fn start(etcd: Arc<EtcdMembers>) -> Self {
        let (sender, texts) = watch::channel(Arc::from(""));
        let task = JoinSet::from_iter([follow(Arc::clone(&etcd), sender)]);
        Self { copy: OverridesCopy::new(key(&etcd), texts), etcd, _task: task }
    }

    /// Whether the overrides are in this etcd.
    pub(super) fn is_in(&self, etcd: &Arc<EtcdMembers>) -> bool {
        self.etcd == *etcd
    }

    /// The copy of this replica.
    pub(super) fn copy(&mut self) -> &mut OverridesCopy {
        &mut self.copy
    }

    /// Makes edits in etcd and in the copy of this replica, under the configuration in force. If etcd has no overrides yet,
    /// the text of the copy is edited.
    pub(super) async fn change(
        &mut self,
        in_force: ConfigInForce,
        edits: Vec<OverrideEdit>,
        terms: Terms,
    ) -> Result<ChangedConfig, OverrideError> {
        let key = key(&self.etcd);
        let range = KeyRange::Key(key.clone());
        let opened = Session::open_and_get(&self.etcd.servers, 0, &range).await;
        let (session, mut found) = opened.map_err(OverrideError::Fleet)?;
        let edits: Arc<[OverrideEdit]> = edits.into();
        let (until, mut pause_ms_max) = (instant_now() + ATTEMPTS_MAX, PAUSE_MS_FIRST);
        loop {
            let entry = found.entries.into_iter().next();
            let revision = entry.as_ref().map_or(0, |entry| entry.revision);
            let base = entry.and_then(text);
            let (in_force, edits, terms) = (in_force.clone(), Arc::clone(&edits), terms.clone());
            let (known, key_of_known) = (base.clone(), key.clone());
            let compile = move || {
                if known.as_ref().is_some_and(|known| OverridesInForce::check(&key_of_known, known).is_err()) {
                    return Err(invalid(&key_of_known));
                }
                compile_change(&in_force, &edits, known.as_deref(), &terms)
            };
            let compiled = spawn_blocking(compile).await.map_err(|error| OverrideError::Write(error.to_string()))?;
            let changed = compiled?;
            let before = changed.before.clone();
            let is_new = base.as_deref() != Some(&*changed.text);
            let is_put = !is_new
                || match session.put_if(&key, changed.text.clone().into_bytes(), revision).await {
                    Ok(is_put) => is_put,
                    Err(PutError::Refused(reason)) => return Err(OverrideError::Fleet(reason)),
                    Err(PutError::Unanswered(_)) if self.has(&changed.text).await => true,
                    Err(PutError::Unanswered(reason)) => return Err(OverrideError::Unanswered { before, reason }),
                };
            if is_put {
                let written = spawn_blocking(move || write(changed)).await.map_err(io::Error::other).flatten();
                if written.is_ok() {
                    self.copy.attempted(None);
                }
                return written.map_err(|error| OverrideError::OnlyFleet { before, reason: error.to_string() });
            }
            if instant_now() >= until {
                return Err(OverrideError::Fleet("other replicas change them at the same time".to_owned()));
            }
            sleep(Duration::from_millis(random() % pause_ms_max)).await;
            pause_ms_max = (pause_ms_max * 2).min(PAUSE_MS_LONGEST);
            found = session.get(&range).await.map_err(OverrideError::Fleet)?;
        }
    }

    /// Whether the next server of etcd has this text. Without it, the text may still arrive, or have been changed again.
    async fn has(&self, text: &str) -> bool {
        let found = Session::open_and_get(&self.etcd.servers, 1, &KeyRange::Key(key(&self.etcd))).await;
        let value = found.ok().and_then(|(_, found)| found.entries.into_iter().next()?.value);
        value.is_some_and(|value| value == text.as_bytes())
    }
}

/// Waits for the next overrides of the fleet.
pub(super) async fn next_text(overrides: &mut Option<FleetOverrides>) -> Arc<str> {
    match overrides {
        Some(overrides) => overrides.copy().next().await,
        None => std::future::pending().await,
    }
}

/// Compiles a configuration with edited overrides, and then writes their file, if they have one.
pub(super) fn write_change(
    in_force: &ConfigInForce,
    edits: &[OverrideEdit],
    terms: &Terms,
) -> Result<ChangedConfig, OverrideError> {
    let changed = compile_change(in_force, edits, None, terms)?;
    write(changed).map_err(|error| OverrideError::Write(error.to_string()))
}

/// The configuration with edited overrides.
fn compile_change(
    in_force: &ConfigInForce,
    edits: &[OverrideEdit],
    base: Option<&str>,
    terms: &Terms,
) -> Result<ChangedConfig, OverrideError> {
    let Changed { config, text, before, ended, copy_to } = config::change(in_force, edits, base)?;
    let accepted = terms.accept(config).map_err(OverrideError::InvalidOnDisk)?;
    Ok(ChangedConfig { accepted, text, before, ended, copy_to })
}

/// Writes the text to the file of overrides, if they have one.
fn write(changed: ChangedConfig) -> io::Result<ChangedConfig> {
    if let Some(path) = changed.accepted.config.run_time.kept.place.file() {
        if let Some(copy) = &changed.copy_to {
            std::fs::copy(path, copy)?;
            let (file, copy) = (path.display(), copy.display());
            tracing::warn!(%file, %copy, "the file of overrides was invalid; Weir keeps a copy and replaces it");
        }
        file::replace(path, |to| to.write_all(changed.text.as_bytes()))?;
    }
    Ok(changed)
}

/// The key of the text.
fn key(etcd: &EtcdMembers) -> String {
    format!("{}/overrides/text", etcd.prefix)
}

/// The error of a change while the text of `key` is not TOML.
fn invalid(key: &str) -> OverrideError {
    OverrideError::InvalidOnDisk(format!("the overrides of the fleet in the key `{key}` of etcd are not valid TOML"))
}

/// The text of a key; `None` if the key was removed, or if its text is not UTF-8. A replica that was disconnected cannot
/// tell a removed key from a key that was never set, so a removal changes nothing at any replica.
fn text(entry: Entry) -> Option<String> {
    let Some(text) = entry.value else {
        tracing::warn!("the overrides of the fleet were removed from etcd; those in force stay");
        return None;
    };
    let text = String::from_utf8(text);
    text.map_err(|_| tracing::error!("the overrides of the fleet in etcd are not UTF-8")).ok()
}

/// Sends each text until dropped.
async fn follow(etcd: Arc<EtcdMembers>, texts: watch::Sender<Arc<str>>) {
    let failure = "the overrides of the fleet cannot be followed; those in force stay";
    let mut attempts = FollowAttempts::new(failure);
    loop {
        let Err(reason) = follow_once(&etcd, &texts, &mut attempts).await;
        attempts.failed(reason).await;
    }
}

/// Sends each text over one connection.
async fn follow_once(
    etcd: &EtcdMembers,
    texts: &watch::Sender<Arc<str>>,
    attempts: &mut FollowAttempts,
) -> Result<Infallible, String> {
    let (key, session) = (KeyRange::Key(key(etcd)), Session::open(&etcd.servers, attempts.number()).await?);
    let found = session.get(&key).await?;
    let mut watch = session.watch(&key, found.revision + 1).await?;
    attempts.succeeded();
    let mut newest = found.entries.into_iter().next();
    loop {
        if let Some(text) = newest.and_then(text) {
            texts.send_replace(text.into());
        }
        newest = watch.changes().await?.pop();
    }
}
