//! `weir import`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::output::{Exit, INVALID_CONFIGURATION, complain, fail, failed, say};
use crate::base::time::system_now;
use crate::config::api_keys;
use crate::import::{self, FORMATS};

/// The file to translate.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The proxy.
    #[arg(value_parser = PossibleValuesParser::new(FORMATS.map(|format| format.name)))]
    format: String,
    /// Its configuration, or a part of it.
    file: PathBuf,
    /// The file for the report; by default standard error.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The file for the API keys of Kong's consumers: only digests, as `weir apikeys` writes them. Without keys
    /// it is not written. A mere name is that of a file beside the configuration.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

pub(super) fn import(args: &ImportArgs) -> Exit {
    let Some(format) = FORMATS.into_iter().find(|format| format.name == args.format) else {
        return Err(fail(&format_args!("there is no format `{}`", args.format)));
    };
    let imported = import::import(format, &args.file, args.keys.as_deref()).map_err(failed)?;
    match &args.keys {
        _ if imported.api_keys.is_empty() => {}
        Some(file) => api_keys::create(file, &imported.api_keys, system_now()).map_err(failed)?,
        None => _ = complain(&"weir: `--keys keys.toml` writes the digests of the consumers' API keys to a file", 0),
    }
    let said = say(&imported.config.trim_end());
    let report = imported.findings.iter().fold(String::new(), |report, finding| report + &finding.to_string() + "\n");
    match &args.report {
        Some(file) => {
            fs::write(file, report).map_err(|error| fail(&format_args!("{}: {error}", file.display())))?;
        }
        None if report.is_empty() => {}
        None => _ = complain(&report.trim_end(), 0),
    }
    if imported.is_exact() { said } else { said.map(|_| ExitCode::from(INVALID_CONFIGURATION)) }
}
