//! TOML to validated runtime values.
//!
//! A configuration compiles whole or not at all, and everything that is wrong with it is said at once. Nothing
//! here watches files, logs or decides about requests.

mod compile;
mod compile_access;
mod compile_admin;
mod compile_beyond;
mod compile_identity;
mod compile_limit;
mod compile_route;
mod compile_settle;
mod compile_snapshot;
mod compile_takeover;
mod compile_tls;
mod compile_upstream;
mod compile_warnings;

mod compile_allowed;
mod compile_cost;
mod compile_rule;

mod context;
mod options;
mod reader;
mod schema;
mod sources;
mod time_units;
mod units;
mod values;

mod diagnostics;
mod overrides;
mod redact;
mod syntax;

#[cfg(test)]
mod tests;

use std::path::Path;

use toml::de::DeTable;

pub use compile_limit::DEFAULT_LIMIT;
pub use diagnostics::{Diagnostics, Finding, Severity};
pub use overrides::{Changed, RunTime, change};
pub use schema::{Kind, Opt, Preset, options, options_markdown};
pub use sources::Sources;

use crate::{admin, gate, policy, proxy, store, telemetry};
use diagnostics::Problem;
use overrides::Main;

/// A configuration, compiled.
#[derive(Debug)]
pub struct Config {
    /// Fixed at start.
    pub fixed: proxy::settings::Fixed,
    /// The data path.
    pub proxy: proxy::settings::Settings,
    /// What is decided.
    pub policy: policy::Policy,
    /// How much may wait.
    pub hold: gate::HoldCaps,
    /// Verified tokens remembered.
    pub max_tokens: usize,
    /// Where operators are answered, if they are; fixed at start.
    pub admin_listen: Option<proxy::Listen>,
    /// What they may do.
    pub admin: admin::Settings,
    /// What its clients are met with.
    pub admin_tls: Option<proxy::tls::Tls>,
    /// Where the state of limits is kept, fixed at start.
    pub snapshot: Option<store::snapshot::Settings>,
    /// Overrides set at run time.
    pub run_time: RunTime,
    /// Parts that are valid and probably not meant.
    pub warnings: Diagnostics,
    /// Logs; only the access log changes on reload.
    pub log: telemetry::LogSettings,
    /// Files it was read from: itself, keys, secrets. A change of any is a reason to reload.
    pub sources: Sources,
}

/// Reads and compiles the file at `path`, with the environment of this process.
///
/// # Errors
/// Everything that is wrong with it, also that it cannot be read.
pub fn load(path: &Path) -> Result<Config, Diagnostics> {
    load_from(path, None)
}

/// The same as if `overrides` were what `admin.overrides` names.
///
/// # Errors
/// As those of [`load`].
pub fn load_with(path: &Path, overrides: &str) -> Result<Config, Diagnostics> {
    load_from(path, Some(overrides))
}

fn load_from(path: &Path, overrides: Option<&str>) -> Result<Config, Diagnostics> {
    let name = path.display().to_string();
    let read = context::read_file(path);
    let mut sources = Sources::default();
    sources.add(path, read.as_deref().ok());
    let whole = |title| Diagnostics::new(&name, String::new(), vec![Problem::whole(title)]).read_from(sources.clone());
    let bytes = read.map_err(whole)?;
    let text = syntax::text(bytes).map_err(|what| whole(format!("`{name}` {what}")))?;
    let (document, errors) = DeTable::parse_recoverable(&text);
    let (dir, env) = (path.parent().unwrap_or(Path::new("")), |name: &str| std::env::var(name).ok());
    let (text, document, errors, name) = (&*text, document.get_ref(), &*errors, &*name);
    overrides::compile(Main { text, document, errors, name, dir, env: &env, own: Some(path), sources }, overrides)
}

/// Compiles `text`, which is shown as `name` in messages. Files in it are relative to `dir`.
///
/// # Errors
/// Everything that is wrong with it, in the order of its text.
pub fn compile(
    text: &str,
    name: &str,
    dir: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, Diagnostics> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let (document, sources) = (document.get_ref(), Sources::default());
    overrides::compile(Main { text, document, errors: &errors, name, dir, env, own: None, sources }, None)
}
