//! `[log]`: the format, the level and the access log.

use std::path::PathBuf;

use crate::base::telemetry::{AccessLog, AccessSettings, COMBINED, LineFormat, LogFormat, LogSettings, Template};
use crate::config::diagnostics::{did_you_mean, nearest};
use crate::config::files::unwritable_file;
use crate::config::reader::Table;
use crate::config::reader::units::Fault;

pub(super) fn log(table: &Table<'_>) -> Option<LogSettings> {
    let formats = [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
    let levels = [
        ("error", tracing::Level::ERROR),
        ("warn", tracing::Level::WARN),
        ("info", tracing::Level::INFO),
        ("debug", tracing::Level::DEBUG),
        ("trace", tracing::Level::TRACE),
    ];
    let accesses = [("off", AccessLog::Off), ("all", AccessLog::All), ("refused", AccessLog::Refused)];
    let format = table.choice("format", &formats);
    let level = table.choice("level", &levels);
    let requests = table.choice("access", &accesses);
    let access_format = table.parsed("access_format", line_format);
    let access_file = if table.has("access_file") { access_file(table).map(Some) } else { Some(None) };
    let sample = table.count("access_sample");
    let access = AccessSettings { requests: requests?, sample: sample?.into_inner() };
    let access_format = access_format?.into_inner();
    Some(LogSettings { format: format?, level: level?, access, access_format, access_file: access_file? })
}

/// The file of access lines.
fn access_file(table: &Table<'_>) -> Option<PathBuf> {
    let path = table.text("access_file")?;
    let file = table.context.path(path.get_ref());
    if let Some(what) = unwritable_file(&file) {
        table.warn("access_file", path.span(), "folder", Fault::new(what));
    }
    if !table.has("access") {
        let help = "add `access = \"all\"` or `access = \"refused\"`; `access = \"off\"` says that this is intended";
        let fault = Fault::new("nothing is written to this file, because there is no `log.access`");
        table.warn("access_file", path.span(), "unused_access_file", fault.help(Some(help.to_owned())));
    }
    Some(file)
}

/// The format of access lines; `None` for `auto`.
fn line_format(text: &str) -> Result<Option<LineFormat>, Fault> {
    const FORMATS: [&str; 4] = ["auto", "json", "text", "combined"];
    let template = match text {
        "auto" => return Ok(None),
        "json" => return Ok(Some(LineFormat::Json)),
        "text" => return Ok(Some(LineFormat::Text)),
        "combined" => COMBINED,
        template if template.contains('{') => template,
        _ => {
            let help = did_you_mean(nearest(text, FORMATS));
            let usual =
                || "write `json`, `text`, `combined`, or a template such as `{client} {status} {path}`".to_owned();
            return Err(Fault::new(format!("`{text}` is no format")).help(Some(help.unwrap_or_else(usual))));
        }
    };
    let template = Template::parse(template).map_err(|unknown| match unknown {
        Some(name) => {
            let all = || format!("there are {}", Template::names().collect::<Vec<_>>().join(", "));
            let help = did_you_mean(nearest(name, Template::names())).unwrap_or_else(all);
            Fault::new(format!("there is no field `{name}`")).help(Some(help))
        }
        None => Fault::new("not a template").help(Some(
            "the names of fields stand in braces, `{{` and `}}` are braces, and a line has no control characters"
                .to_owned(),
        )),
    })?;
    Ok(Some(LineFormat::Template(template)))
}
