//! `body` and `redirect` of a limit: its answer to refused requests.

use std::sync::Arc;

use http::{HeaderValue, StatusCode, Uri};

use crate::config::reader::{Fault, Located, Optional, Problem, Table};
use crate::engine::policy::RefusalAnswer;

/// The longest body, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The answer of a limit to refused requests; the inner option is `None` for a problem document.
pub(super) fn answer(table: &Table<'_>) -> Optional<Arc<RefusalAnswer>> {
    let (body_table, redirect_table) = (table.table("body"), table.table("redirect"));
    if body_table.is_present() && redirect_table.is_present() {
        let title = "`limit.redirect`: a redirect has no `body`; choose one";
        table.context.note(Problem::new(redirect_table.span(), title).also(body_table.span(), "and here"));
    }
    if redirect_table.is_present() {
        table.fault_if_present("status", "has no effect with `redirect`, which has a status of its own");
    }
    let name = table.get("name").and_then(|name| name.get_ref().as_str()).unwrap_or_default();
    let body = body_table.if_present(|table| body(table, name));
    let redirect = redirect_table.if_present(redirect);
    Some(body?.or(redirect?).map(Arc::new))
}

fn body(table: &Table<'_>, name: &str) -> Option<RefusalAnswer> {
    let content_type = table.parsed("content_type", |text| {
        let is_type = text.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty());
        if !is_type || HeaderValue::from_str(text).is_err() {
            return Err(Fault::new(format!("`{text}` is not a media type")).help("as in \"text/html\"".to_owned()));
        }
        Ok(text.to_owned())
    });
    let text = match (table.has("text"), table.has("file")) {
        (false, true) => table.parsed("file", |path| {
            let read = table.context.file(path).map_err(Fault::new)?;
            bounded(&String::from_utf8(read).map_err(|_| Fault::new(format!("`{path}` is not UTF-8")))?)
        }),
        (true, false) => table.parsed("text", bounded),
        _ => {
            let problem = Problem::new(table.span(), "`limit.body` needs either `text` or `file`");
            table.context.note(problem.absence());
            None
        }
    };
    let (content_type, text) = (content_type?, text?);
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let is_html = kind.eq_ignore_ascii_case("text/html");
    let text = text.replace("{limit}", name).into();
    Some(RefusalAnswer::Body { content_type: content_type.into(), text, is_html })
}

fn bounded(text: &str) -> Result<String, Fault> {
    match text.len() {
        0 => Err("must not be empty".into()),
        length if length > BODY_BYTES_MAX => Err("a body has at most 64KiB".into()),
        _ => Ok(text.to_owned()),
    }
}

fn redirect(table: &Table<'_>) -> Option<RefusalAnswer> {
    let url = table.parsed("url", |text| {
        let is_place = |uri: Uri| match uri.scheme_str() {
            Some("http" | "https") => uri.host().is_some(),
            None => text.starts_with('/') && !text.starts_with("//"),
            Some(_) => false,
        };
        if !text.parse().is_ok_and(is_place) {
            let help = "write `https://host/path`, or `/path` on the same host";
            return Err((format!("`{text}` is not a place for a redirect"), help).into());
        }
        Ok(text.into())
    });
    let status = table.count_at("status").and_then(|code: Located<u16>| {
        let status = Some(*code.get_ref()).filter(|code| [302, 303, 307].contains(code));
        if status.is_none() {
            table.fault("status", code.span(), "can be 302, 303 or 307");
        }
        StatusCode::from_u16(status?).ok()
    });
    Some(RefusalAnswer::Redirect { status: status?, url: url? })
}
