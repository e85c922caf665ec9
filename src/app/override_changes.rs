//! Puts changed overrides in force, under the configuration in force. What is on disk beside them does not matter: a
//! configuration that waits there, or is invalid, must not prevent a change.
//!
//! Not here: the text in etcd and in the file (`fleet_overrides`), and what a configuration replaces (`reload`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::task::spawn_blocking;

use super::fleet_overrides::write_change;
use super::installed::Installed;
use super::operators::Operators;
use super::reload::Reloader;
use super::terms::Accepted;
use crate::admin::{Change, Changed, record_ended};
use crate::config::ConfigInForce;
use crate::engine::policy::overrides::{OverrideEdit, OverrideError};

impl Reloader {
    /// Makes the edits of a change. A change whose caller no longer waits is not made, because the caller could not learn
    /// of it.
    pub(super) async fn change(&mut self, change: Change) {
        let Change { edits, begin, answer } = change;
        if begin.send(()).is_err() {
            return;
        }
        let mut by_limit: BTreeMap<String, usize> = BTreeMap::new();
        for edit in &edits {
            *by_limit.entry(edit.limit.clone()).or_default() += 1;
        }
        let outcome = self.edit(edits).await.map(|before| {
            for (limit, changes) in by_limit {
                tracing::info!(limit, changes, "overrides set at run time");
            }
            Changed { before, not_kept: self.installed.reason_of_loss() }
        });
        if let Err(OverrideError::Write(reason) | OverrideError::OnlyFleet { reason, .. }) = &outcome {
            tracing::error!(error = reason, "overrides cannot be set here: their file cannot be written");
        }
        let _ = answer.send(outcome); // the caller may have left
    }

    /// Ends the overrides whose time is over. They no longer apply, also if they cannot be removed now.
    pub(super) async fn end_overrides(&mut self) {
        let is_first = !self.installed.has_ended;
        if is_first {
            // Neither a disk nor etcd delays the end.
            (self.installed.next_end, self.installed.has_ended) = (None, true);
            self.load_overrides("overrides have ended").await;
        }
        if let (Err(error), true) = (self.edit(Vec::new()).await, is_first) {
            tracing::error!(%error, "overrides that have ended cannot be removed yet; Weir tries again");
        }
    }

    /// Makes edits, and removes the overrides that have ended. Returns the allowance before each edit.
    async fn edit(&mut self, edits: Vec<OverrideEdit>) -> Result<Vec<Option<Value>>, OverrideError> {
        let (in_force, terms) = (self.in_force(), self.terms());
        let made = if let Some(fleet) = &mut self.fleet_overrides {
            fleet.change(in_force, edits, terms).await?
        } else {
            let made = spawn_blocking(move || write_change(&in_force, &edits, &terms)).await;
            made.unwrap_or_else(|error| Err(OverrideError::Write(error.to_string())))?
        };
        self.install_overrides(*made.accepted).await;
        if !made.ended.is_empty() {
            let Operators { access, audit, .. } = &*self.followers.operators;
            let running = self.shared.running_config.load_full();
            let at = (&*self.shared.gate, &*running.live);
            record_ended((&access.load_full(), audit), at, &made.ended).await;
        }
        Ok(made.before)
    }

    /// Puts overrides of the fleet in force.
    pub(super) async fn take_overrides(&mut self, text: Arc<str>) {
        let Some(fleet) = &mut self.fleet_overrides else { return };
        if fleet.copy().write(text, &mut self.installed.overrides).await {
            self.load_overrides("overrides of the fleet read").await;
        }
    }

    /// Puts overrides in force that were edited by hand beside a configuration that cannot be used.
    pub(super) async fn take_file_of_overrides(&mut self) {
        let Some(file) = self.installed.overrides.place.file().map(ToOwned::to_owned) else { return };
        if self.installed.sources.has_changed(&file) {
            self.load_overrides("overrides read, under the configuration in force").await;
        }
    }

    /// Writes overrides of the fleet that could not be written before.
    pub(super) async fn stop(mut self) {
        if let Some(fleet) = &mut self.fleet_overrides {
            fleet.copy().write_last(&mut self.installed.overrides).await;
        }
    }

    /// Puts the overrides on disk in force, and logs `done`.
    async fn load_overrides(&mut self, done: &str) {
        let (in_force, terms) = (self.in_force(), self.terms());
        match spawn_blocking(move || terms.load_in_force(&in_force)).await.map_err(|error| error.to_string()) {
            Ok(Ok((_, Ok(accepted)))) => {
                self.install_overrides(*accepted).await;
                tracing::info!("{done}");
            }
            Ok(Ok((_, Err(reason)))) | Err(reason) => drop(self.refuse(reason)),
            Ok(Err(diagnostics)) => tracing::error!("the overrides do not apply\n{diagnostics}"),
        }
    }

    async fn install_overrides(&mut self, accepted: Accepted) {
        self.install(accepted).await;
        // The other files were not read.
        if let Some(file) = self.installed.overrides.place.file() {
            self.tried.renew(file, &self.installed.sources);
        }
    }

    fn in_force(&self) -> ConfigInForce {
        let Installed { sources, overrides, .. } = &self.installed;
        ConfigInForce { origin: self.origin_in_force(), files: sources.clone(), overrides: overrides.clone() }
    }
}
