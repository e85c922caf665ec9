//! The configuration as the admin API reads it, and the records of reloads.

use arc_swap::ArcSwap;

use super::versions::{Version, Versions};
use crate::admin::{
    CheckBody, ConfigBody, ConfigReader, DiffBody, DifferenceBody, FindingBody, ReloadBody, ReloadTarget, SETTINGS_MAX,
    VersionBody, VersionsBody,
};
use crate::config::{
    self, Config, Diagnostics, Difference, InForce, Origin, OverridesInForce, SettingFilter, Written, listed,
};
use crate::engine::policy::Policy;
use crate::transport::proxy::SharedState;

/// The texts in force, and the place of the configuration.
#[derive(Debug)]
pub(super) struct RunningText {
    pub(super) written: ArcSwap<Written>,
    pub(in crate::app) overrides: ArcSwap<OverridesInForce>,
    /// `None` for a configuration that does not change.
    origin: Option<Origin>,
    /// The tables of which changes are in force only after a restart.
    pub(super) restart: ArcSwap<Vec<&'static str>>,
    /// The bound on client connections.
    max_connections: usize,
    /// The last configurations in force.
    pub(super) versions: Versions,
}

impl RunningText {
    pub(super) fn new(config: &Config, origin: Option<Origin>, max_connections: usize, versions: Versions) -> Self {
        let written = ArcSwap::from_pointee(config.written.clone());
        let overrides = ArcSwap::from_pointee(config.run_time.kept.clone());
        Self { written, overrides, origin, restart: ArcSwap::default(), max_connections, versions }
    }
}

impl ConfigReader for RunningText {
    fn settings(&self, policy: &Policy, below: &str, has_defaults: bool) -> ConfigBody {
        let written = self.written.load();
        let filter = SettingFilter { below, has_defaults, count_max: SETTINGS_MAX };
        let (settings, more) = written.settings(filter, InForce { policy, max_connections: self.max_connections });
        let restart = self.restart.load().iter().map(|table| (*table).to_owned()).collect();
        ConfigBody { name: written.name().to_owned(), settings, more, restart }
    }

    fn check(&self, text: &str, name: &str) -> CheckBody {
        check_body(config::compile_at(text, name, self.origin.as_ref(), &self.overrides.load()))
    }

    fn check_stored(&self) -> Option<CheckBody> {
        let origin = self.origin.as_ref().filter(|origin| matches!(origin, Origin::File(_)))?;
        Some(check_body(config::load_after(origin, Some(&self.overrides.load()))))
    }

    fn diff(&self, text: &str, name: &str) -> DiffBody {
        self.diff_body(config::compile_at(text, name, self.origin.as_ref(), &self.overrides.load()))
    }

    fn diff_stored(&self) -> Option<DiffBody> {
        let origin = self.origin.as_ref().filter(|origin| matches!(origin, Origin::File(_)))?;
        Some(self.diff_body(config::load_after(origin, Some(&self.overrides.load()))))
    }

    fn toml(&self) -> String {
        let written = self.written.load();
        format!(
            "# The configuration in force, from {}. Relative paths begin at its folder.\n{}",
            written.name(),
            written.toml()
        )
    }

    fn versions(&self) -> VersionsBody {
        let body = |(version, in_force): (Version, bool)| {
            let Version { number, at, revision, limits, .. } = version;
            VersionBody { number, at, revision, limits, in_force }
        };
        VersionsBody { file: self.versions.file(), versions: self.versions.list().into_iter().map(body).collect() }
    }
}

impl RunningText {
    /// How a compiled configuration differs from the one in force.
    fn diff_body(&self, compiled: Result<Config, Diagnostics>) -> DiffBody {
        let config = match compiled {
            Ok(config) => config,
            Err(diagnostics) => {
                let (problems, _) = diagnostics.findings();
                let (parts, text) = (DifferenceBody::default(), printed(&[diagnostics]));
                return DiffBody { valid: false, parts, settings: Vec::new(), more: false, problems, text };
            }
        };
        let written = self.written.load();
        let (settings, more) = written.changes(&config.written, SETTINGS_MAX);
        DiffBody {
            valid: true,
            parts: capped(written.difference(&config.written)),
            settings,
            more,
            problems: Vec::new(),
            text: String::new(),
        }
    }
}

/// Most names of one list in an answer.
const NAMES_MAX: usize = 100;

fn capped(Difference { mut parts, .. }: Difference) -> DifferenceBody {
    for names in [&mut parts.appeared, &mut parts.changed, &mut parts.vanished] {
        names.truncate(NAMES_MAX);
    }
    parts
}

/// Most names of one list in a line of the log.
const LOGGED_MAX: usize = 10;

/// Logs that a configuration is in force, and how it differs from the one before.
pub(super) fn log_reloaded(shared: &SharedState, revision: Option<&str>, difference: &Difference) {
    let limits = shared.running_config.load().live.policy.limits().len();
    let DifferenceBody { appeared, changed, vanished } = &difference.parts;
    let [appeared, changed, vanished] = [appeared, changed, vanished].map(|names| listed(names, LOGGED_MAX));
    tracing::info!(limits, revision, appeared, changed, vanished, "reloaded");
    if difference.has_lost_most_limits() {
        let (before, lost) = difference.limits;
        tracing::warn!(before, lost, "the new configuration has lost more than half of the limits");
    }
}

/// Logs each problem with file, line and column.
pub(super) fn log_findings(problems: &Diagnostics) {
    let (findings, more) = problems.findings();
    for FindingBody { severity, code, title, file, line, column, .. } in findings {
        match &*severity {
            "error" => tracing::error!(file, line, column, code, "{title}"),
            "warning" => tracing::warn!(file, line, column, code, "{title}"),
            _ => tracing::info!(file, line, column, code, "{title}"),
        }
    }
    if more > 0 {
        tracing::warn!(more, "more problems with the configuration");
    }
}

/// The result of a compilation.
pub fn check_body(compiled: Result<Config, Diagnostics>) -> CheckBody {
    let (limits, found) = match compiled {
        Ok(config) => {
            (Some(config.policy.limits().len()), vec![config.warnings, config.run_time.problems.unwrap_or_default()])
        }
        Err(diagnostics) => (None, vec![diagnostics]),
    };
    let (mut problems, mut more) = (Vec::new(), 0);
    for diagnostics in &found {
        let (others, more_of_others) = diagnostics.findings();
        problems.extend(others);
        more += more_of_others;
    }
    let shown = problems.len().min(PROBLEMS_MAX);
    more += problems.split_off(shown).len();
    CheckBody { valid: limits.is_some(), limits, problems, more, text: printed(&found) }
}

/// The problems as `weir check` prints them.
fn printed(found: &[Diagnostics]) -> String {
    let texts: Vec<_> = found.iter().filter(|found| !found.is_empty()).map(ToString::to_string).collect();
    let mut text = texts.join("\n\n");
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str("\n...");
    }
    text
}

/// Most problems of one answer.
const PROBLEMS_MAX: usize = 40;
/// Most bytes of the printed problems of one answer: an excerpt has whole lines, and lines have no bound.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The cause of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReloadCause {
    /// SIGHUP.
    Signal,
    /// A file may have changed.
    File,
    /// Weir has changed a file that the configuration in force names.
    OwnFile,
    /// A new version of a remote configuration.
    Version,
    /// A request of an operator.
    Request,
    /// An operator returns to this configuration, or to the one before that in force.
    Return(Option<u64>),
}

impl From<ReloadTarget> for ReloadCause {
    fn from(target: ReloadTarget) -> Self {
        match target {
            ReloadTarget::Newest => Self::Request,
            ReloadTarget::Files => Self::OwnFile,
            ReloadTarget::Earlier(number) => Self::Return(number),
        }
    }
}

impl ReloadCause {
    /// Whether the configuration is read although no file has changed.
    pub(super) fn is_forced(self) -> bool {
        self != Self::File
    }

    fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::File | Self::OwnFile => "file",
            Self::Version => "version",
            Self::Request => "request",
            Self::Return(_) => "rollback",
        }
    }
}

/// The outcome of a reload.
pub(super) enum ReloadOutcome {
    /// The configuration is in force, except the tables in `restart`.
    Applied { restart: Vec<&'static str>, warnings: Diagnostics, difference: Difference },
    /// It cannot be used, for this reason.
    Refused(String),
    /// It cannot be compiled.
    Invalid(Diagnostics),
}

/// The record of a reload.
pub(super) fn record(at: String, cause: ReloadCause, outcome: ReloadOutcome, revision: Option<&str>) -> ReloadBody {
    let mut parts = DifferenceBody::default();
    let (name, reason, restart, diagnostics) = match outcome {
        ReloadOutcome::Applied { restart, warnings, difference } => {
            parts = capped(difference);
            ("applied", None, restart, warnings)
        }
        ReloadOutcome::Refused(reason) => ("refused", Some(reason), Vec::new(), Diagnostics::default()),
        ReloadOutcome::Invalid(diagnostics) => ("invalid", None, Vec::new(), diagnostics),
    };
    let (problems, more) = diagnostics.findings();
    ReloadBody {
        at,
        cause: cause.name().to_owned(),
        outcome: name.to_owned(),
        reason,
        revision: revision.map(str::to_owned),
        restart: restart.into_iter().map(str::to_owned).collect(),
        parts,
        problems,
        more,
        text: printed(&[diagnostics]),
    }
}
