//! `weir config`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::target::{ApiRequest, Target, text};
use crate::cli::output::{Exit, INVALID_CONFIGURATION, fail};
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
        /// Print the configuration in force as TOML that `weir check` accepts, without secrets.
        #[arg(long, conflicts_with_all = ["path", "no_defaults", "json"])]
        toml: bool,
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
    /// Show how a file differs from the configuration in force; exit code 3 if it is invalid.
    Diff {
        /// The file; without it, the file of the running Weir.
        file: Option<PathBuf>,
        #[command(flatten)]
        target: Target,
    },
    /// List the last ten configurations in force.
    Versions {
        #[command(flatten)]
        target: Target,
    },
    /// Put an earlier configuration in force; exit code 3 if there is none or it is invalid.
    ///
    /// The file of the configuration is not written. Its next change, SIGHUP, `weir config reload` or a restart puts the file
    /// in force.
    Rollback {
        /// The number of the configuration; by default the one that was in force before that of now.
        #[arg(long, value_name = "NUMBER")]
        to: Option<u64>,
        /// The reason, for the audit log.
        #[arg(long)]
        reason: Option<String>,
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

pub(in crate::cli) fn config(ConfigArgs { action }: ConfigArgs) -> Exit {
    let code = |is_valid: bool| if is_valid { ExitCode::SUCCESS } else { ExitCode::from(INVALID_CONFIGURATION) };
    match action {
        ConfigAction::Show { toml: true, target, .. } => target.print("/v1/config/toml"),
        ConfigAction::Show { path, no_defaults, target, .. } => {
            let defaults = no_defaults.then(|| "false".to_owned());
            let query = vec![("path", path), ("defaults", defaults)];
            target.run(ApiRequest::query(Method::GET, "/v1/config", query), show_settings)
        }
        ConfigAction::Check { file, target } => {
            let show = |checked: &Value| code(checked["valid"] == true);
            send_file("/v1/config/check", file.as_deref(), |request| target.run_with_code(request, show_check, show))
        }
        ConfigAction::Diff { file, target } => {
            let show = |compared: &Value| code(compared["valid"] == true);
            send_file("/v1/config/diff", file.as_deref(), |request| target.run_with_code(request, show_diff, show))
        }
        ConfigAction::Versions { target } => {
            target.run(ApiRequest::query(Method::GET, "/v1/config/versions", Vec::new()), show_versions)
        }
        ConfigAction::Rollback { to, reason, target } => {
            let request = ApiRequest::post("/v1/config/rollback", &json!({ "to": to, "reason": reason }));
            target.run_with_code(request, show_rollback, |made| code(made["outcome"] == "applied"))
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

/// Sends a configuration file, or asks about the file of the running Weir.
fn send_file(path: &'static str, file: Option<&Path>, send: impl FnOnce(ApiRequest) -> Exit) -> Exit {
    let (name, value, written) = match file {
        None => ("stored", "true".to_owned(), Ok(String::new())),
        Some(file) => ("name", file.display().to_string(), std::fs::read_to_string(file)),
    };
    let written = written.map_err(|error| fail(&format_args!("cannot read `{value}`: {error}")))?;
    send(ApiRequest::toml(path, (name, value), written))
}

/// A line for each kind of difference.
fn parts(compared: &Value) -> String {
    let line = |kind: &str| {
        let names: Vec<_> = compared[kind].as_array()?.iter().map(text).collect();
        (!names.is_empty()).then(|| format!("{kind}: {}", names.join(", ")))
    };
    ["appeared", "changed", "vanished"].into_iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn show_diff(compared: &Value) -> String {
    if compared["valid"] != true {
        return format!("{}\n\ninvalid", text(&compared["text"]));
    }
    let parts = parts(compared);
    if parts.is_empty() {
        return "no difference".to_owned();
    }
    let row = |one: &Value| ["path", "before", "after"].map(|name| text(&one[name])).to_vec();
    let rows: Vec<_> = compared["settings"].as_array().into_iter().flatten().map(row).collect();
    let more = if compared["more"] == true { "\nand more" } else { "" };
    format!("{parts}\n\n{}{more}", table(&["OPTION", "IN FORCE", "OTHER"], &rows))
}

fn show_versions(kept: &Value) -> String {
    let row = |one: &Value| {
        let in_force = if one["in_force"] == true { "yes" } else { "-" };
        vec![text(&one["number"]), text(&one["at"]), in_force.to_owned(), text(&one["limits"]), text(&one["revision"])]
    };
    let rows: Vec<_> = kept["versions"].as_array().into_iter().flatten().map(row).collect();
    let place = match kept["file"].as_str() {
        Some(file) => format!("kept in {file}"),
        None => "kept in memory: they end with the process; --state-dir names a folder".to_owned(),
    };
    format!("{}\n\n{place}", table(&["NUMBER", "SINCE", "IN FORCE", "LIMITS", "REVISION"], &rows))
}

fn show_rollback(made: &Value) -> String {
    let head = show_reload(made);
    if made["outcome"] != "applied" {
        return head;
    }
    format!(
        "{head}\n\n{}\nThe file stays as it is. Its next change, SIGHUP, a reload or a restart puts it in force.",
        parts(made)
    )
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
    let waiting: Vec<_> = config["restart"].as_array().into_iter().flatten().map(text).collect();
    let restart = match waiting[..] {
        [] => String::new(),
        _ => format!("\nchanges that wait for a restart: {}", waiting.join(", ")),
    };
    table(&["OPTION", "VALUE", "SOURCE"], &rows) + more + &restart
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_show_what_waits_for_a_restart() {
        let shown = |restart: &[&str]| show_settings(&json!({ "name": "a", "settings": [], "restart": restart }));
        assert_eq!(shown(&["server", "admin"]), shown(&[]) + "\nchanges that wait for a restart: server, admin");
    }
}
