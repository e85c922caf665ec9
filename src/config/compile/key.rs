//! `key`, or `share_by`, and `several` of a limit: the parts of a key.

use super::fair_share;
use super::identity::{BUILT_IN_PARTS, check_request_header};
use crate::config::reader::{Fault, Located, Problem, Table, did_you_mean, nearest};
use crate::config::schema::{own_value, words};
use crate::engine::policy::{BodyMember, KeyPart, Mode, PathPattern, Repeated, Stage};
use crate::engine::units::Pointer;

/// The error of a limit that is decided before bodies are read.
pub(super) const NO_BODY_ON_ARRIVAL: &str = "a limit of stage `arrival` cannot read bodies";

pub(super) fn key(
    table: &Table<'_>,
    identities: &[String],
    stage: Option<Stage>,
    (mode, is_partial): (Option<Mode>, bool),
    paths: Option<&[PathPattern]>,
) -> Option<Vec<KeyPart>> {
    let option = fair_share::key_option(table);
    let read_bytes = table.size("read_body").unwrap_or_default();
    let read = |text: &str| match text.strip_prefix("json:").map(Pointer::parse) {
        Some(pointer) => Ok(KeyPart::Json(Box::new(BodyMember { pointer: pointer?, read_bytes }))),
        None => part(text, identities).ok_or_else(|| unknown_part(text, identities)),
    };
    let parts = table.list_at(option, read)?;
    for part in &parts {
        if let KeyPart::Header(name, _) = part.get_ref()
            && let Err(fault) = check_request_header(table.context, name)
        {
            table.fault(option, part.span(), fault);
        }
        let what = match part.get_ref() {
            KeyPart::Route if paths.is_none() => "`route` is the matching pattern, so it needs `match.path`".to_owned(),
            KeyPart::Identity(_) if stage == Some(Stage::Arrival) => {
                "an identity is unknown at stage `arrival`".to_owned()
            }
            KeyPart::Json(_) if stage == Some(Stage::Arrival) => NO_BODY_ON_ARRIVAL.to_owned(),
            KeyPart::Parameter(name) => match paths.map(|all| all.iter().find(|path| !path.has_parameter(name))) {
                None => format!("`path:{name}` is a parameter of the matching pattern, so it needs `match.path`"),
                Some(None) => continue,
                Some(Some(path)) => format!("`{}` of `match.path` has no parameter `{{{name}}}`", path.as_str()),
            },
            _ => continue,
        };
        table.context.note(Problem::new(part.span(), format!("`limit.{option}`: {what}")).absence());
    }
    if table.items(option).is_empty() {
        table.fault_if_present("enforce", "needs a part in `key`: all requests have the same key");
    }
    let mut parts: Vec<_> = parts.into_iter().map(Located::into_inner).collect();
    let several = match table.choice("several", &words::SEVERAL)? {
        // Without a single value, the key may be one for which the mode is `shadow`, which refuses no request.
        Repeated::Reject if mode == Some(Mode::Shadow) || is_partial => Repeated::First,
        several => several,
    };
    let mut repeatable = parts.iter_mut().filter_map(KeyPart::several_mut).peekable();
    if repeatable.peek().is_none() {
        let help =
            "`several` applies to `header:NAME`, `query:NAME` and `cookie:NAME`; an identity has its own `several`";
        let fault = Fault::new("this key has no part that a request can repeat").help(help);
        table.fault_if_present("several", fault.absence());
    }
    repeatable.for_each(|part| *part = several);
    Some(parts)
}

/// Parses a part of a key. Of several values the first one counts.
pub(super) fn part(text: &str, identities: &[String]) -> Option<KeyPart> {
    if let Some((kind, name)) = text.split_once(':') {
        return match kind {
            _ if name.is_empty() => None,
            "header" => name.parse().ok().map(|name| KeyPart::Header(name, Repeated::First)),
            "query" => Some(KeyPart::Query(name.into(), Repeated::First)),
            "cookie" => Some(KeyPart::Cookie(name.into(), Repeated::First)),
            "path" => Some(KeyPart::Parameter(name.into())),
            "name" => Some(KeyPart::Named(name.into())),
            _ => None,
        };
    }
    if let Some(lengths) = text.strip_prefix("ip/") {
        return network(lengths);
    }
    match text {
        "ip" => Some(KeyPart::Ip),
        "path" => Some(KeyPart::Path),
        "uri" => Some(KeyPart::Uri),
        "route" => Some(KeyPart::Route),
        "host" => Some(KeyPart::Host),
        "method" => Some(KeyPart::Method),
        name => identities.iter().position(|identity| identity == name).map(KeyPart::Identity),
    }
}

/// Parses the lengths of `ip/24` and `ip/24/48`.
fn network(lengths: &str) -> Option<KeyPart> {
    let (v4, v6) = lengths.split_once('/').map_or((lengths, None), |(v4, v6)| (v4, Some(v6)));
    let length = |text: &str, max: u8| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        text.parse().ok().filter(|length| is_plain && *length <= max)
    };
    let v6 = match v6 {
        Some(text) => Some(length(text, 128)?),
        None => None,
    };
    Some(KeyPart::Network { v4: length(v4, 32)?, v6 })
}

fn unknown_part(text: &str, identities: &[String]) -> Fault {
    if text.starts_with("ip/") {
        let help = "`ip/24` counts IPv4 addresses by their first 24 bits, of 1 to 32; `ip/24/48` also IPv6 addresses \
                    by 48 bits, of 1 to 128";
        return Fault::new(format!("`{text}` is not a part of a key")).help(help);
    }
    let known = || BUILT_IN_PARTS.into_iter().chain(identities.iter().map(String::as_str));
    let suggestion = match text.split_once(':') {
        Some((kind, name)) => {
            nearest(kind, ["header", "query", "cookie", "json", "path", "name"]).map(|kind| format!("{kind}:{name}"))
        }
        None => own_value(text, known()).or_else(|| nearest(text, known())).map(str::to_owned),
    };
    let all = || {
        let named = known().collect::<Vec<_>>().join(", ");
        format!(
            "a key can have {named}, ip/24, path:NAME, header:NAME, query:NAME, cookie:NAME, json:POINTER, name:NAME, \
             or the NAME of `[identity.NAME]`"
        )
    };
    let suggestion = suggestion.filter(|suggestion| suggestion != text);
    let help = did_you_mean(suggestion.as_deref()).unwrap_or_else(all);
    Fault { absence: true, ..Fault::new(format!("`{text}` is not a part of a key")).help(help) }
}
