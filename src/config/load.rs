//! Reads a configuration from a file or a text.

use std::path::Path;

use toml::de::DeTable;

use super::compile::Config;
use super::diagnostics::{Diagnostics, Problem};
use super::files::read_file;
use super::overrides::{self, Main};
use super::reader::syntax;
use super::sources::Sources;

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
    let read = read_file(path);
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
