//! `[log]` and `[trace]`: the format, the level and the access log, and the collector of traces.

use std::path::PathBuf;

use super::urls::collector;
use super::warnings::of_appended;
use super::written_files::file_to_write;
use crate::base::telemetry::{AccessSettings, COMBINED, LineFormat, LogSettings, Template};
use crate::config::reader::{Fault, Table, did_you_mean, nearest, whole};
use crate::config::schema::words;
use crate::transport::proxy::settings::TraceSettings;

pub(super) fn log(table: &Table<'_>) -> Option<LogSettings> {
    whole!(LogSettings {
        format: table.choice("format", &words::LOG_FORMATS),
        level: table.choice("level", &words::LOG_LEVELS),
        access: whole!(AccessSettings {
            requests: table.choice("access", &words::ACCESS_LOGS),
            sample: table.count("access_sample"),
        }),
        access_format: table.parsed("access_format", line_format),
        access_file: table.optional("access_file", |_| access_file(table)),
    })
}

pub(super) fn trace(table: &Table<'_>) -> Option<TraceSettings> {
    whole!(TraceSettings {
        endpoint: table.parsed("endpoint", collector),
        service_name: table.text("service_name").map(Into::into),
        sample: table.count("sample"),
    })
}

/// The file of access lines.
fn access_file(table: &Table<'_>) -> Option<PathBuf> {
    let file = file_to_write(table, "access_file")?;
    of_appended(table, "access_file", file.span(), file.get_ref());
    if !table.has("access") {
        let help = "add `access = \"all\"` or `access = \"refused\"`; `access = \"off\"` says that this is intended";
        let what = "nothing is written to this file, because there is no `log.access`";
        table.warn("access_file", file.span(), "unused_access_file", (what, help));
    }
    Some(file.into_inner())
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
            let usual = "write `json`, `text`, `combined`, or a template such as `{client} {status} {path}`";
            let help = did_you_mean(nearest(text, FORMATS)).unwrap_or_else(|| usual.to_owned());
            return Err((format!("`{text}` is no format"), help).into());
        }
    };
    let template = Template::parse(template).map_err(|unknown| match unknown {
        Some(name) => {
            let all = || format!("there are {}", Template::names().collect::<Vec<_>>().join(", "));
            let help = did_you_mean(nearest(name, Template::names())).unwrap_or_else(all);
            Fault::new(format!("there is no field `{name}`")).help(help)
        }
        None => Fault::new("not a template").help(
            "the names of fields stand in braces, `{{` and `}}` are braces, and a line has no control characters",
        ),
    })?;
    Ok(Some(LineFormat::Template(template)))
}
