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

mod compile_allowed;
mod compile_cost;
mod compile_rule;

mod context;
mod options;
mod reader;
mod schema;
mod sources;
mod units;
mod values;

mod diagnostics;
mod redact;
mod syntax;

#[cfg(test)]
mod tests;

use std::path::Path;

use toml::de::DeTable;

pub use compile_limit::DEFAULT_LIMIT;
pub use diagnostics::Diagnostics;
pub use schema::{Kind, Opt, Preset, options, options_markdown};
pub use sources::Sources;

use crate::{admin, gate, policy, proxy, store, telemetry};
use context::Context;
use diagnostics::Problem;

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
    let name = path.display().to_string();
    let read = context::read_file(path);
    let mut sources = Sources::default();
    sources.add(path, read.as_deref().ok());
    let whole = |title| Diagnostics::new(&name, String::new(), vec![Problem::whole(title)]).read_from(sources.clone());
    let bytes = read.map_err(whole)?;
    let not_utf8 = |error: std::string::FromUtf8Error| {
        let at = error.utf8_error().valid_up_to();
        whole(format!("`{name}` is not UTF-8, from byte {at} on"))
    };
    let text = String::from_utf8(bytes).map_err(not_utf8)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    compile_from(sources.clone(), &text, &name, dir, &|name| std::env::var(name).ok())
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
    compile_from(Sources::default(), text, name, dir, env)
}

/// The same, with `sources` read already.
fn compile_from(
    sources: Sources,
    text: &str,
    name: &str,
    dir: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, Diagnostics> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let context = Context::new(dir, env);
    context.sources.replace(sources);

    let config = compile::config(&context, document.get_ref());

    let mut problems = syntax::merge(text, &errors, context.problems.take());
    match config {
        Some(config) if problems.is_empty() => return Ok(Config { sources: context.sources.take(), ..config }),
        // Whatever yields nothing says why; should it ever not, an empty list must not pass for success.
        _ if problems.is_empty() => problems.push(Problem::new(0..0, "this configuration cannot be compiled")),
        _ => {}
    }
    let mut secrets = context.secrets.take();
    secrets.extend(redact::userinfos(text));
    secrets.extend(redact::private_keys(text));
    secrets.extend(redact::words_of_identities(text, errors.is_empty()));
    if !errors.is_empty() {
        // What the parser dropped has not been read, so nobody has said what of it is secret.
        secrets.extend(redact::after_secrets(text));
    }
    Err(Diagnostics::new(name, redact::strike_out(text, &secrets), problems).read_from(context.sources.take()))
}
