//! Finds the file of keys in a configuration that is not compiled: who edits keys need not have the secrets and the
//! certificates that the configuration names.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::config::files::read_file;
use crate::config::reader::syntax;

/// The identity and the file of keys that the configuration at `path` has for `identity`, or for its only one with API keys.
///
/// # Errors
/// Why there is no such file, or which identities have one.
pub fn locate(path: &Path, identity: Option<&str>) -> Result<(String, PathBuf), String> {
    let text = syntax::text(read_file(path)?).map_err(|what| format!("`{}` {what}", path.display()))?;
    let config = text.parse::<Table>();
    let config = config.map_err(|_| format!("`{}` is not valid TOML; `weir check` shows why", path.display()))?;
    let identities = config.get("identity").and_then(Value::as_table).into_iter().flatten();
    let file = |identity: &Value| Some(identity.get("api_keys")?.get("file")?.as_str()?.to_owned());
    let found: Vec<_> = identities.filter_map(|(name, identity)| Some((name, file(identity)?))).collect();
    let chosen = match (identity, &found[..]) {
        (Some(wanted), _) => found.iter().find(|(name, _)| *name == wanted),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    chosen.map(|(name, file)| ((*name).clone(), folder.join(file))).ok_or_else(|| {
        let names = found.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let shown = path.display();
        match (identity, names.is_empty()) {
            (_, true) => format!("no identity in `{shown}` has `api_keys` with a file"),
            (Some(wanted), false) => {
                format!("`{wanted}` has no `api_keys` in `{shown}`; identities with API keys: {names}")
            }
            (None, false) => format!("several identities in `{shown}` have API keys: {names}; choose one"),
        }
    })
}
