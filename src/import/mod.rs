//! Translates the limits of other proxies into a configuration of Weir.
//!
//! A format reads its file into a `Draft`: blocks of TOML with the lines that they come from, and findings about all lines
//! that it does not translate exactly. The compiler of the configuration has the last word about each block. A new format is
//! one module, and one row of [`FORMATS`]. Not here: the command line.

mod caddy;
mod envoy;
mod haproxy;
mod ingress;
mod kong;
mod nginx;
mod ratelimit;
mod traefik;

mod limit;
mod path;
mod rates;
mod regions;
mod services;
mod yaml;

mod draft;
mod report;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use report::{Finding, ImportError, Imported, Kind};

use draft::Draft;

/// A format of another proxy.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name on the command line.
    pub name: &'static str,
    translate: fn(&Path, &mut Draft) -> Result<(), ImportError>,
}

/// All formats.
pub const FORMATS: [Format; 8] = [
    Format { name: "caddy", translate: caddy::translate },
    Format { name: "envoy", translate: envoy::translate },
    Format { name: "haproxy", translate: haproxy::translate },
    Format { name: "ingress", translate: ingress::translate },
    Format { name: "kong", translate: kong::translate },
    Format { name: "nginx", translate: nginx::translate },
    Format { name: "ratelimit", translate: ratelimit::translate },
    Format { name: "traefik", translate: traefik::translate },
];

/// Translates the configuration in `file` and the files that it includes. The result names the file of API keys `keys`,
/// by default `keys.toml`.
///
/// # Errors
/// The file cannot be read, or is not of this format.
pub fn import(format: Format, file: &Path, keys: Option<&Path>) -> Result<Imported, ImportError> {
    let mut draft = Draft::default();
    draft.read(file).map_err(|error| ImportError(format!("{}: {error}", file.display())))?;
    draft.keys_file = keys.map(name_in_config);
    translate(format, file, draft)
}

/// A file as a configuration in any folder can name it: a mere name is that of a file beside it.
fn name_in_config(file: &Path) -> PathBuf {
    let is_name = file.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    if is_name { file.to_owned() } else { std::path::absolute(file).unwrap_or_else(|_| file.to_owned()) }
}

/// Translates the first file of the draft, whose path is `file`.
fn translate(format: Format, file: &Path, mut draft: Draft) -> Result<Imported, ImportError> {
    (format.translate)(file, &mut draft)?;
    draft.finish(format.name)
}
