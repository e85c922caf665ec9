//! `server.takeover`: the socket for a successor.

use std::path::PathBuf;

use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};

/// Compiles the path of the socket; the inner option is `None` without `takeover`.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
pub(super) fn takeover(server: &Table<'_>) -> Option<Option<Located<PathBuf>>> {
    if !server.has("takeover") {
        return Some(None);
    }
    server.parsed("takeover", |text| path(server, text)).map(Some)
}

fn path(server: &Table<'_>, text: &str) -> Result<PathBuf, Fault> {
    if let Some(path) = text.strip_prefix("unix:") {
        let help = format!("it is always a Unix socket; write {path:?}");
        return Err(Fault::new("is a path, without `unix:`").help(Some(help)));
    }
    if text.is_empty() || text.ends_with('/') || text.contains('\0') {
        let help = "write it like \"/run/weir/takeover.sock\"".to_owned();
        return Err(Fault::new(format!("`{text}` names no file")).help(Some(help)));
    }
    units::socket_path(server.context.path(text))
}
