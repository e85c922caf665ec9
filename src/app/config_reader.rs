//! The configuration as the admin API reads it, and the records of reloads.

use arc_swap::ArcSwap;

use crate::admin::{CheckBody, ConfigBody, ConfigReader, FindingBody, ReloadBody, SETTINGS_MAX, SettingBody};
use crate::config::{
    self, Config, Diagnostics, Finding, InForce, Origin, OverridesInForce, Setting, SettingFilter, SettingSource,
    Severity, Written,
};
use crate::policy::Policy;

/// The texts in force, and the place of the configuration.
#[derive(Debug)]
pub(super) struct RunningText {
    pub(super) written: ArcSwap<Written>,
    pub(in crate::app) overrides: ArcSwap<OverridesInForce>,
    /// `None` for a configuration that does not change.
    origin: Option<Origin>,
    /// The bound on client connections.
    max_connections: usize,
}

impl RunningText {
    pub(super) fn new(config: &Config, origin: Option<Origin>, max_connections: usize) -> Self {
        let written = ArcSwap::from_pointee(config.written.clone());
        let overrides = ArcSwap::from_pointee(config.run_time.kept.clone());
        Self { written, overrides, origin, max_connections }
    }
}

impl ConfigReader for RunningText {
    fn settings(&self, policy: &Policy, below: &str, has_defaults: bool) -> ConfigBody {
        let written = self.written.load();
        let filter = SettingFilter { below, has_defaults, count_max: SETTINGS_MAX };
        let (found, more) = written.settings(filter, InForce { policy, max_connections: self.max_connections });
        let body = |Setting { path, value, source }: Setting| {
            let (source, line, variable) = match source {
                SettingSource::File(line) => ("file", Some(line), None),
                SettingSource::Environment(variable, line) => ("environment", Some(line), Some(variable)),
                SettingSource::Default => ("default", None, None),
            };
            SettingBody { path, value, source: source.to_owned(), line, variable }
        };
        ConfigBody { name: written.name().to_owned(), settings: found.into_iter().map(body).collect(), more }
    }

    fn check(&self, text: &str, name: &str) -> CheckBody {
        check_body(config::compile_at(text, name, self.origin.as_ref(), &self.overrides.load()))
    }

    fn check_stored(&self) -> Option<CheckBody> {
        let origin = self.origin.as_ref().filter(|origin| matches!(origin, Origin::File(_)))?;
        Some(check_body(config::load_after(origin, Some(&self.overrides.load()))))
    }
}

/// The result of a compilation.
fn check_body(compiled: Result<Config, Diagnostics>) -> CheckBody {
    let (limits, found) = match compiled {
        Ok(config) => {
            (Some(config.policy.limits().len()), vec![config.warnings, config.run_time.problems.unwrap_or_default()])
        }
        Err(diagnostics) => (None, vec![diagnostics]),
    };
    let (mut problems, mut more) = (Vec::new(), 0);
    for diagnostics in &found {
        let (others, more_of_others) = findings(diagnostics);
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
    /// A new version of a remote configuration.
    Version,
    /// A request of an operator.
    Request,
}

impl ReloadCause {
    /// Whether the configuration is read although no file has changed.
    pub(super) fn is_forced(self) -> bool {
        self != Self::File
    }

    fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::File => "file",
            Self::Version => "version",
            Self::Request => "request",
        }
    }
}

/// The outcome of a reload.
pub(super) enum ReloadOutcome {
    /// The configuration is in force, except these tables.
    Applied(Vec<&'static str>, Diagnostics),
    /// It cannot be used, for this reason.
    Refused(String),
    /// It cannot be compiled.
    Invalid(Diagnostics),
}

/// The record of a reload.
pub(super) fn record(at: String, cause: ReloadCause, outcome: ReloadOutcome, revision: Option<&str>) -> ReloadBody {
    let (name, reason, restart, diagnostics) = match outcome {
        ReloadOutcome::Applied(restart, warnings) => ("applied", None, restart, warnings),
        ReloadOutcome::Refused(reason) => ("refused", Some(reason), Vec::new(), Diagnostics::default()),
        ReloadOutcome::Invalid(diagnostics) => ("invalid", None, Vec::new(), diagnostics),
    };
    let (problems, more) = findings(&diagnostics);
    ReloadBody {
        at,
        cause: cause.name().to_owned(),
        outcome: name.to_owned(),
        reason,
        revision: revision.map(str::to_owned),
        restart: restart.into_iter().map(str::to_owned).collect(),
        problems,
        more,
        text: printed(&[diagnostics]),
    }
}

/// The first problems, and the number of the others.
fn findings(diagnostics: &Diagnostics) -> (Vec<FindingBody>, usize) {
    let (found, more) = diagnostics.findings();
    let body = |Finding { severity, code, title, help, file, at }: Finding<'_>| {
        let (line, column) = at.unzip();
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        FindingBody {
            severity: severity.to_owned(),
            code: code.to_owned(),
            title: title.to_owned(),
            help: help.map(str::to_owned),
            file: file.to_owned(),
            line,
            column,
        }
    };
    (found.into_iter().map(body).collect(), more)
}
