//! Returns to an earlier configuration. The file of the configuration is not written, and stays as it is.
//!
//! The earlier configuration is in force until the file changes, an operator asks for a reload, or the process ends; of a
//! remote one, also after a start while its source is down.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::Reloader;
use crate::admin::rfc3339;
use crate::app::config_reader::{ReloadCause, ReloadOutcome, log_findings, log_reloaded};
use crate::app::remote::ConfigFeed;
use crate::base::time::system_now;
use crate::config::Origin;

impl Reloader {
    /// Puts the configuration `number` in force again, or the one that was in force before.
    pub(super) async fn return_to(&mut self, number: Option<u64>) -> ReloadOutcome {
        let text = Arc::clone(&self.followers.operators.text);
        let version = match text.versions.earlier(number) {
            Ok(version) => version,
            Err(reason) => return ReloadOutcome::Refused(reason),
        };
        let origin = self.feed.earlier(version.text.into(), &version.at);
        match self.load(origin.clone()).await {
            Ok(Ok((read, Ok(accepted)))) => {
                self.note_tried(read);
                let (warnings, difference) = (accepted.config.warnings.clone(), accepted.difference.clone());
                let restart = self.install(*accepted).await;
                self.shared.metrics.reloaded(system_now());
                self.earlier = Some(origin.clone());
                let number = version.number;
                let _ = spawn_blocking(move || text.versions.returned_to(number)).await;
                log_reloaded(&self.shared, version.revision.as_deref(), &difference);
                tracing::warn!(
                    number,
                    since = version.at,
                    "an earlier configuration is in force, until the newest one changes or is reloaded"
                );
                self.feed.returned(
                    &self.shared.metrics,
                    system_now(),
                    (&origin, version.revision.as_deref()),
                    &restart,
                );
                log_findings(&warnings);
                ReloadOutcome::Applied { restart, warnings, difference }
            }
            Ok(Ok((_, Err(reason)))) | Err(reason) => ReloadOutcome::Refused(reason),
            Ok(Err(diagnostics)) => ReloadOutcome::Invalid(diagnostics),
        }
    }

    /// The configuration to load for `cause`, and whether it is the newest one. After a return, a changed key or
    /// certificate does not put that in force. A file that Weir has changed itself never does.
    pub(super) async fn wanted(&self, cause: ReloadCause) -> Result<(Origin, bool), String> {
        if cause == ReloadCause::OwnFile {
            return Ok((self.text_in_force(), false));
        }
        if let (Some(earlier), ReloadCause::File) = (&self.earlier, cause) {
            let tried = self.tried.clone();
            let is_file = matches!(self.feed, ConfigFeed::File { .. });
            let has_changed = is_file && spawn_blocking(move || tried.has_first_changed()).await.unwrap_or(true);
            if !has_changed {
                return Ok((earlier.clone(), false));
            }
        }
        Ok((self.feed.newest()?, true))
    }

    /// The text in force, whatever its file has now.
    fn text_in_force(&self) -> Origin {
        match self.origin_in_force() {
            Origin::File(file) => {
                let text = Arc::clone(self.followers.operators.text.written.load().text());
                Origin::Earlier { text, name: file.display().to_string().into(), file }
            }
            origin => origin,
        }
    }

    /// The configuration in force, for changes of overrides.
    pub(in crate::app) fn origin_in_force(&self) -> Origin {
        self.earlier.clone().unwrap_or_else(|| self.feed.in_force())
    }

    /// Keeps the configuration in force, so that an operator can return to it.
    pub(super) async fn keep_version(&self) {
        let text = Arc::clone(&self.followers.operators.text);
        let (at, revision) = (rfc3339(system_now()), self.feed.revision_in_force().map(str::to_owned));
        let limits = self.shared.running_config.load().live.policy.limits().len();
        let keep = move || {
            let written = text.written.load_full();
            text.versions.put_in_force(written.text(), at, revision.as_deref(), limits);
        };
        let _ = spawn_blocking(keep).await;
    }
}
