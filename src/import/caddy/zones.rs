//! Zones of the module `rate_limit`: sliding windows of events.

use super::lines::CaddyLine;
use crate::import::draft::{Draft, quoted};
use crate::import::limit::Limit;
use crate::import::rates;
use crate::import::report::Kind;

/// Placeholders, and the parts of keys that they are. A name follows those that end with a dot.
const PARTS: [(&str, &str); 21] = [
    ("remote_host", "ip"),
    ("client_ip", "ip"),
    ("http.request.remote.host", "ip"),
    ("http.vars.client_ip", "ip"),
    ("host", "host"),
    ("http.request.host", "host"),
    ("method", "method"),
    ("http.request.method", "method"),
    ("path", "path"),
    ("http.request.uri.path", "path"),
    ("http.request.orig_uri.path", "path"),
    ("uri", "uri"),
    ("http.request.uri", "uri"),
    ("http.request.orig_uri", "uri"),
    ("header.", "header:"),
    ("http.request.header.", "header:"),
    ("query.", "query:"),
    ("http.request.uri.query.", "query:"),
    ("cookie.", "cookie:"),
    ("http.request.cookie.", "cookie:"),
    ("http.auth.user.id", ""),
];

/// A zone, and the conditions of its block `match`.
pub(super) struct CaddyZone<'d> {
    pub(super) limit: Limit,
    pub(super) conditions: Vec<&'d CaddyLine>,
}

/// The zones of a directive `rate_limit`.
pub(super) fn zones<'d>(rate_limit: &'d CaddyLine, draft: &mut Draft) -> Vec<CaddyZone<'d>> {
    let mut zones = Vec::new();
    for option in &rate_limit.block {
        match option.name() {
            "zone" => zones.extend(zone(option, draft)),
            "distributed" => option.left_out("set `[store]` and `strategy` by hand", draft),
            "jitter" => option.left_out("set `jitter` of the limits by hand", draft),
            "log_key" | "sweep_interval" | "storage" => {
                draft.note(Kind::NotNeeded, option.place, "it changes no decision of one process");
            }
            _ => option.left_out("`weir import` does not know this option", draft),
        }
    }
    let is_matcher = |word: &String| word.starts_with(['/', '@']) || word == "*";
    let arguments = rate_limit.arguments();
    let has_others = arguments.len() > usize::from(arguments.first().is_some_and(is_matcher));
    if has_others || !rate_limit.block.iter().any(|option| option.name() == "zone") {
        rate_limit.left_out("Weir has limits for zones of `mholt/caddy-ratelimit` only", draft);
    }
    if zones.len() > 1 {
        draft.differs(
            rate_limit.place,
            "Caddy charges earlier zones also if a later one refuses; Weir charges all or none",
        );
    }
    zones
}

fn zone<'d>(zone: &'d CaddyLine, draft: &mut Draft) -> Option<CaddyZone<'d>> {
    let (mut key, mut events, mut window_us, mut conditions) = (Some(Vec::new()), None, None, Vec::new());
    for option in &zone.block {
        match option.name() {
            "key" => key = parts(option.word(1)),
            "events" => events = option.word(1).parse::<u64>().ok(),
            "window" => window_us = window(option.word(1)),
            "match" => conditions.extend(&option.block),
            "ipv4_prefix" | "ipv6_prefix" => option.left_out("write the part `ip/24/48` of the key by hand", draft),
            _ => option.left_out("`weir import` does not know this option", draft),
        }
    }
    let Some(key) = key else {
        zone.left_out("Weir has no part of a key for a placeholder of `key`", draft);
        return None;
    };
    let (Some(events @ 1..), Some(window_us)) = (events, window_us) else {
        zone.left_out("it needs a number of `events`, and a `window`", draft);
        return None;
    };
    let rule = vec![("algorithm", quoted("sliding_log")), ("rate", quoted(&rates::rate(events, window_us)))];
    let name = if zone.word(1).is_empty() { "zone" } else { zone.word(1) };
    let limit = Limit { name: name.to_owned(), places: vec![zone.place], key, rule, ..Limit::default() };
    Some(CaddyZone { limit, conditions })
}

/// The microseconds of a window; Caddy knows days, too.
fn window(text: &str) -> Option<u64> {
    match text.strip_suffix('d') {
        Some(days) => days.parse::<u64>().ok()?.checked_mul(86_400_000_000).filter(|us| *us > 0),
        None => rates::duration_us(text),
    }
}

/// The parts of a key, without the text between its placeholders; `None` if Weir has no such part.
fn parts(key: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    for piece in key.split('{').skip(1) {
        let name = piece.split('}').next()?;
        let of = |(placeholder, part): (&str, &str)| {
            let rest = name.strip_prefix(placeholder)?;
            let name = if part == "header:" { rest.to_ascii_lowercase() } else { rest.to_owned() };
            (rest.is_empty() != placeholder.ends_with('.')).then(|| format!("{part}{name}"))
        };
        let part = PARTS.into_iter().find_map(of).filter(|part| !part.is_empty())?;
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    Some(parts)
}
