//! `weir config`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::target::{ApiRequest, Target, text};
use crate::cli::output::{INVALID_CONFIGURATION, fail};
use crate::cli::table::table;

#[derive(Debug, Args)]
pub(in crate::cli) struct ConfigArgs {
    #[command(subcommand)]
    action: ConfigAction,
}

#[derive(Debug, Subcommand)]
enum ConfigAction {
    /// Show the options in force, each with its source.
    Show {
        /// The start of the names of options, such as `limit.per-seller`.
        path: Option<String>,
        /// Leave options out that the configuration does not have.
        #[arg(long)]
        no_defaults: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Check a file as the running Weir would read it; exit code 3 if it is invalid.
    Check {
        /// The file; without it, the file of the running Weir.
        file: Option<PathBuf>,
        #[command(flatten)]
        target: Target,
    },
    /// Reload the configuration; exit code 3 if it is invalid.
    Reload {
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// List the last 20 reloads.
    History {
        #[command(flatten)]
        target: Target,
    },
}

pub(in crate::cli) fn config(ConfigArgs { action }: ConfigArgs) -> ExitCode {
    let code = |is_valid: bool| if is_valid { ExitCode::SUCCESS } else { ExitCode::from(INVALID_CONFIGURATION) };
    match action {
        ConfigAction::Show { path, no_defaults, target } => {
            let defaults = no_defaults.then(|| "false".to_owned());
            let query = vec![("path", path), ("defaults", defaults)];
            target.run(ApiRequest::query(Method::GET, "/v1/config", query), show_settings)
        }
        ConfigAction::Check { file, target } => {
            let (name, value, written) = match &file {
                None => ("stored", "true".to_owned(), Ok(String::new())),
                Some(file) => ("name", file.display().to_string(), std::fs::read_to_string(file)),
            };
            let request = match written {
                Ok(written) => ApiRequest::toml("/v1/config/check", (name, value), written),
                Err(error) => return fail(&format_args!("cannot read `{value}`: {error}")),
            };
            target.run_with_code(request, show_check, |checked| code(checked["valid"] == true))
        }
        ConfigAction::Reload { reason, target } => {
            let request = ApiRequest::post("/v1/reload", &json!({ "reason": reason }));
            target.run_with_code(request, show_reload, |made| code(made["outcome"] == "applied"))
        }
        ConfigAction::History { target } => {
            target.run(ApiRequest::query(Method::GET, "/v1/reloads", Vec::new()), show_history)
        }
    }
}

fn show_settings(config: &Value) -> String {
    let row = |one: &Value| {
        let place = match (&one["line"], &one["variable"]) {
            (Value::Null, _) => text(&one["source"]),
            (line, Value::Null) => format!("{}:{}", text(&config["name"]), text(line)),
            (line, variable) => format!("{}:{}, variable {}", text(&config["name"]), text(line), text(variable)),
        };
        vec![text(&one["path"]), text(&one["value"]), place]
    };
    let rows: Vec<_> = config["settings"].as_array().into_iter().flatten().map(row).collect();
    let more = if config["more"] == true { "\nand more; name the start of their paths" } else { "" };
    table(&["OPTION", "VALUE", "SOURCE"], &rows) + more
}

fn show_check(checked: &Value) -> String {
    let result = match &checked["limits"] {
        Value::Null => "invalid".to_owned(),
        limits => format!("valid; limits: {}", text(limits)),
    };
    match checked["text"].as_str() {
        None | Some("") => result,
        Some(problems) => format!("{problems}\n\n{result}"),
    }
}

fn show_reload(made: &Value) -> String {
    let head = show_history(&Value::Array(vec![made.clone()]));
    match made["text"].as_str() {
        None | Some("") => head,
        Some(problems) => format!("{head}\n\n{problems}"),
    }
}

fn show_history(reloads: &Value) -> String {
    let row = |one: &Value| {
        let problems = one["problems"].as_array().map_or(0, Vec::len) as u64 + one["more"].as_u64().unwrap_or(0);
        let restart: Vec<_> = one["restart"].as_array().into_iter().flatten().map(text).collect();
        vec![
            text(&one["at"]),
            text(&one["cause"]),
            text(&one["outcome"]),
            text(&one["revision"]),
            problems.to_string(),
            if restart.is_empty() { "-".to_owned() } else { restart.join(" ") },
            text(&one["reason"]),
        ]
    };
    let rows: Vec<_> = reloads.as_array().into_iter().flatten().map(row).collect();
    table(&["AT", "CAUSE", "OUTCOME", "REVISION", "PROBLEMS", "NEEDS RESTART", "REASON"], &rows)
}
