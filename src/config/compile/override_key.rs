//! The text of a key that an override is for.
//!
//! `gate` turns texts into keys. This module checks that it can.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use super::matching;
use crate::config::reader::{Fault, Problem, Table, did_you_mean, nearest};
use crate::engine::limit::Key;
use crate::engine::policy::client_ip::Prefixes;
use crate::engine::policy::{HostPattern, Identity, KeyPart, KeySecret, PathPattern, key_of_marked_id, path};

/// How the keys of a limit are made.
pub(super) struct Keyed<'k> {
    /// The parts of the key; `None` if one has an error.
    pub(super) parts: Option<&'k [KeyPart]>,
    /// The values of `route`.
    pub(super) routes: &'k [PathPattern],
    pub(super) prefixes: Prefixes,
    /// All identities; empty if one has an error.
    pub(super) identities: &'k [Identity],
    pub(super) paths: path::PathRules,
}

impl Keyed<'_> {
    /// The key of a text under a fixed secret. Two texts have one key under this secret if they have one under any.
    pub(super) fn key_of(&self, text: &str) -> Option<Key> {
        KeySecret::new([0; 16]).key_of_text(self.parts?, text, self.prefixes, self.identities)
    }
}

/// Notes texts that no key of this limit has, and repeated keys.
pub(super) fn check_all(table: &Table<'_>, keyed: &Keyed<'_>) {
    let named = table.entries();
    if keyed.parts.is_none_or(|parts| parts.iter().any(may_be_secret)) {
        for (text, _) in &named {
            table.context.hide(text.span());
        }
    }
    let mut known: HashMap<Key, Range<usize>> = HashMap::new();
    for (text, _) in named {
        if let Err(fault) = check_text(text.get_ref(), keyed, true) {
            table.fault("NAME", text.span(), fault);
            if keyed.parts.is_some_and(<[_]>::is_empty) {
                return;
            }
            continue;
        }
        let Some(key) = keyed.key_of(text.get_ref()) else { continue };
        match known.get(&key) {
            Some(other) => note_same_key(table, text.span(), other.clone()),
            None => _ = known.insert(key, text.span()),
        }
    }
}

/// Notes that the key at `span` repeats the key at `first`.
pub(super) fn note_same_key(table: &Table<'_>, span: Range<usize>, first: Range<usize>) {
    let title = format!("`{}`: this key occurs twice", table.path_of("NAME"));
    table.context.note(Problem::new(span, title).also(first, "first here"));
}

/// Whether a value of this part may be a credential.
fn may_be_secret(part: &KeyPart) -> bool {
    matches!(
        part,
        KeyPart::Uri
            | KeyPart::Header(..)
            | KeyPart::Query(..)
            | KeyPart::Cookie(..)
            | KeyPart::Json(_)
            | KeyPart::Identity(_)
    )
}

/// Describes the error of a text. The message repeats the text only if it cannot be a secret. A text that was set at run
/// time may be a secret, because the key of the limit may have had other parts then.
pub(super) fn check_text(text: &str, keyed: &Keyed<'_>, is_shown: bool) -> Result<(), Fault> {
    let Some(parts) = keyed.parts else { return Ok(()) };
    if parts.is_empty() {
        let fault = Fault::new("with `key = []` all requests share one key, so there is no key to override");
        return Err(fault.help("write the numbers in the limit itself"));
    }
    if key_of_marked_id(text).is_some() {
        return Ok(());
    }
    if let [part] = parts {
        return check_part(text, part, keyed).map_err(|fault| if is_shown { fault } else { unrepeated(part) });
    }
    let texts: Vec<_> = text.split('|').collect();
    if texts.len() != parts.len() {
        let what = format!("this has {} parts, and the key of this limit has {}", texts.len(), parts.len());
        return Err((what, "the parts are joined by `|`, in the order of `key`").into());
    }
    let is_shown = is_shown && !parts.iter().any(may_be_secret);
    for (index, (text, part)) in texts.iter().zip(parts).enumerate() {
        check_part(text, part, keyed).map_err(|fault| {
            // A secret may be in the wrong part, so no part is repeated.
            let hidden = || Fault::new(format!("no request can have this part {} of its key", index + 1));
            if is_shown { fault } else { hidden() }
        })?;
    }
    Ok(())
}

/// Describes the error of an invalid part without its text.
fn unrepeated(part: &KeyPart) -> Fault {
    let (what, help) = match part {
        KeyPart::Ip | KeyPart::Network { .. } => ("this is not an address", Some(ONE_ADDRESS)),
        KeyPart::Path | KeyPart::Uri => ("no request can have this path", Some(NORMAL_PATHS)),
        KeyPart::Parameter(_) => ("no path can have this part", Some(NORMAL_PATHS)),
        KeyPart::Route => ("this is not one of `match.path`", None),
        KeyPart::Host => ("this is not a host", Some("an override applies to one host; write it in lower case")),
        KeyPart::Method => ("this is not a method", Some("methods are in upper case")),
        KeyPart::Identity(_)
        | KeyPart::Header(..)
        | KeyPart::Query(..)
        | KeyPart::Cookie(..)
        | KeyPart::Json(_)
        | KeyPart::Named(_) => ("no request can have this key", None),
    };
    Fault::new(what).help(help.map(str::to_owned))
}

/// The help for the text of a path.
const NORMAL_PATHS: &str = "Weir normalises paths before limits count them";

/// The help for the text of an address.
const ONE_ADDRESS: &str = "an override applies to one address, as in \"192.0.2.7\"";

/// Checks that a request can have this part of a key.
pub(super) fn check_part(text: &str, part: &KeyPart, keyed: &Keyed<'_>) -> Result<(), Fault> {
    let routes = keyed.routes;
    match part {
        KeyPart::Ip | KeyPart::Network { .. } => {
            let prefixes = part.prefixes(keyed.prefixes);
            if prefixes.parse(text).is_some() {
                return Ok(());
            }
            let address = text.split_once('/').and_then(|(address, _)| address.parse::<IpAddr>().ok());
            let help = address.map_or_else(
                || ONE_ADDRESS.to_owned(),
                |ip| format!("this part of the key counts this address as `{}`", prefixes.shown(ip)),
            );
            let what = if address.is_some() { "a network that this key counts as one" } else { "an address" };
            Err((format!("`{text}` is not {what}"), help).into())
        }
        KeyPart::Path => check_path(text, keyed.paths.matched(text)),
        KeyPart::Uri => check_path(text, keyed.paths.matched_uri(text)),
        KeyPart::Parameter(_) => match keyed.paths.matched_part(text) {
            Some(normal) if *normal == *text => Ok(()),
            Some(normal) => {
                Err((format!("no path has the part `{text}`: {NORMAL_PATHS}"), did_you_mean(Some(&normal))).into())
            }
            None => Err(format!("no path can have the part `{text}`").into()),
        },
        KeyPart::Route if !routes.iter().any(|route| route.as_str() == text) => {
            let help = did_you_mean(nearest(text, routes.iter().map(PathPattern::as_str)));
            Err((format!("`{text}` is not one of `match.path`"), help).into())
        }
        KeyPart::Host => {
            match matching::host(text)? {
                HostPattern::Exact(host) if *host == *text => Ok(()),
                HostPattern::Exact(host) => Err(Fault::new(format!("a host is written in lower case, not `{text}`"))
                    .help(did_you_mean(Some(&host)))),
                HostPattern::Below(_) => Err("an override applies to one host".into()),
            }
        }
        KeyPart::Method => matching::method(text).map(drop),
        _ => Ok(()),
    }
}

/// Checks that a request can have this path.
fn check_path(text: &str, normal: Result<String, path::PathError>) -> Result<(), Fault> {
    match normal {
        Ok(normal) if *normal == *text => Ok(()),
        Ok(normal) => {
            let what = format!("no path is `{text}`: {NORMAL_PATHS}");
            Err((what, did_you_mean(Some(&normal))).into())
        }
        Err(_) => Err(format!("no path can be `{text}`").into()),
    }
}
