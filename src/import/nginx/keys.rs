//! Keys of zones: variables of nginx, also those of `geo` and `map`, as parts of a key of Weir.
//!
//! nginx does not limit a request whose key is empty. So a `geo` or `map` may exempt requests; here that becomes `except` or
//! `match` of a limit, or an error if Weir has no such condition.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::directives::Directive;
use super::others::note_all;
use crate::import::draft::Draft;

/// A key, with the requests that have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) parts: Vec<String>,
    /// Whether each server has a budget of its own.
    pub(super) is_by_server: bool,
    pub(super) except_ips: Vec<String>,
    pub(super) methods: Vec<String>,
    /// Headers without which a request has no key.
    pub(super) headers: Vec<(String, String)>,
    /// The differences between this key and that of nginx.
    pub(super) differences: Vec<String>,
}

/// The `geo` and `map` of each variable, by its name without `$`.
#[derive(Debug, Default)]
pub(super) struct Variables<'d>(BTreeMap<&'d str, &'d Directive>);

/// A text with variables of requests, by a condition.
enum Value {
    Text(String),
    ByNetwork(String, Vec<(IpNet, String)>),
    ByMethod(String, Vec<(String, String)>),
}

const ONLY_SOME: &str = "Weir cannot limit only the networks that it names";

impl<'d> Variables<'d> {
    /// Adds a `geo` or a `map`.
    pub(super) fn add(&mut self, directive: &'d Directive) {
        if let Some(name) = directive.words.last().and_then(|word| word.strip_prefix('$')) {
            self.0.insert(name, directive);
        }
    }

    /// Notes each `geo` and `map` that no zone of `http` uses.
    pub(super) fn note_unused(&self, http: &[&Directive], draft: &mut Draft) {
        let mut unused = self.0.clone();
        let mut texts: Vec<&Directive> = http.iter().filter(|one| one.name.ends_with("_zone")).copied().collect();
        while let Some(text) = texts.pop() {
            let names = text.words.iter().flat_map(|word| pieces(word)).filter_map(|piece| match piece {
                Piece::Variable(name) => Some(name),
                Piece::Text(_) => None,
            });
            let found: Vec<_> = names.filter_map(|name| unused.remove(name.as_str())).collect();
            texts.extend(text.directives().iter().chain(found));
        }
        for directive in unused.values() {
            note_all(directive, "no zone uses it, and Weir has no variables", draft);
        }
    }

    /// The key of a zone. Errs with the reason why Weir cannot have it.
    pub(super) fn key(&self, text: &str) -> Result<Key, String> {
        match self.value(text, 0)? {
            Value::Text(text) => key(&text),
            Value::ByNetwork(usual, networks) => by_network(&usual, networks),
            Value::ByMethod(usual, methods) => by_method(&usual, &methods),
        }
    }

    /// `text` with the values of `geo` and `map` in it.
    fn value(&self, text: &str, depth: usize) -> Result<Value, String> {
        let own = |piece: &Piece| matches!(piece, Piece::Variable(name) if self.0.contains_key(name.as_str()));
        let pieces = pieces(text);
        let Some(at) = pieces.iter().position(own) else { return Ok(Value::Text(text.to_owned())) };
        if pieces.iter().filter(|piece| own(piece)).count() > 1 || depth > 8 {
            return Err(format!("`{text}` depends on several `geo` or `map`"));
        }
        let around = |pieces: &[Piece]| pieces.iter().map(Piece::text).collect::<String>();
        let (before, after) = (around(&pieces[..at]), around(&pieces[at + 1..]));
        let Piece::Variable(name) = &pieces[at] else { return Ok(Value::Text(text.to_owned())) };
        let directive = self.0[name.as_str()];
        let whole = |inner: String| format!("{before}{inner}{after}");
        let value = if directive.name == "geo" { geo(directive)? } else { self.map(directive, depth)? };
        Ok(match value {
            Value::Text(text) => self.value(&whole(text), depth + 1)?,
            Value::ByNetwork(usual, networks) => {
                let networks = networks.into_iter().map(|(network, text)| (network, whole(text)));
                Value::ByNetwork(whole(usual), networks.collect())
            }
            Value::ByMethod(usual, methods) => {
                let methods = methods.into_iter().map(|(method, text)| (method, whole(text)));
                Value::ByMethod(whole(usual), methods.collect())
            }
        })
    }

    fn map(&self, map: &Directive, depth: usize) -> Result<Value, String> {
        let mut usual = String::new();
        let mut cases = Vec::new();
        for case in map.directives() {
            match case.name.as_str() {
                "default" => case.word(0).clone_into(&mut usual),
                "volatile" => {}
                "hostnames" => return Err("its `map` has `hostnames`".to_owned()),
                name if name.starts_with('~') => return Err("its `map` has a regular expression".to_owned()),
                name => cases.push((name.strip_prefix('\\').unwrap_or(name).to_owned(), case.word(0).to_owned())),
            }
        }
        if map.word(0) == "$request_method" {
            return Ok(Value::ByMethod(usual, cases));
        }
        // nginx compares without regard to case.
        let of = |text: &str| {
            let found = cases.iter().find(|(case, _)| case.eq_ignore_ascii_case(text));
            found.map_or_else(|| usual.clone(), |(_, value)| value.clone())
        };
        match self.value(map.word(0), depth + 1)? {
            Value::Text(text) if !text.contains('$') => Ok(Value::Text(of(&text))),
            Value::ByNetwork(usual, networks) if !usual.contains('$') => {
                let networks = networks.into_iter().map(|(network, text)| (network, of(&text)));
                Ok(Value::ByNetwork(of(&usual), networks.collect()))
            }
            _ => Err(format!("Weir has no such condition as a `map` of `{}`", map.word(0))),
        }
    }
}

fn geo(geo: &Directive) -> Result<Value, String> {
    if geo.words.len() > 1 && !matches!(geo.word(0), "$remote_addr" | "$binary_remote_addr") {
        return Err(format!("its `geo` is not about the address of the client but about `{}`", geo.word(0)));
    }
    let (mut usual, mut networks) = (String::new(), BTreeMap::new());
    for line in geo.directives() {
        let value = line.word(0).to_owned();
        match line.name.as_str() {
            "default" => usual = value,
            "delete" => _ = line.word(0).parse::<IpNet>().map(|network| networks.remove(&network.trunc())),
            "proxy" | "proxy_recursive" | "ranges" => return Err(format!("its `geo` has `{}`", line.name)),
            name => match name.parse::<IpNet>().or_else(|_| name.parse().map(|ip: std::net::IpAddr| ip.into())) {
                Ok(network) => _ = networks.insert(network.trunc(), value),
                Err(_) => return Err(format!("`{name}` in its `geo` is no network")),
            },
        }
    }
    Ok(Value::ByNetwork(usual, networks.into_iter().collect()))
}

fn by_network(usual: &str, networks: Vec<(IpNet, String)>) -> Result<Key, String> {
    if usual.is_empty() {
        return Err(ONLY_SOME.to_owned());
    }
    let mut except_ips = Vec::new();
    // The networks around the next one, which their order puts before it.
    let mut outer: Vec<(IpNet, String)> = Vec::new();
    for (network, text) in networks {
        while outer.pop_if(|(outer, _)| !outer.contains(&network)).is_some() {}
        let is_exempt = outer.last().is_some_and(|(_, text)| text.is_empty());
        match text.as_str() {
            "" => except_ips.push(network.to_string()),
            text if text != usual => return Err("it has other keys for some networks".to_owned()),
            _ if is_exempt => return Err("it limits a part of a network without limits".to_owned()),
            _ => {}
        }
        outer.push((network, text));
    }
    Ok(Key { except_ips, ..key(usual)? })
}

fn by_method(usual: &str, methods: &[(String, String)]) -> Result<Key, String> {
    let limited: Vec<_> = methods.iter().filter(|(_, text)| !text.is_empty()).collect();
    let Some((_, text)) = limited.first().filter(|_| usual.is_empty()) else {
        return Err("Weir cannot exempt methods from a limit".to_owned());
    };
    if limited.iter().any(|(_, other)| other != text) {
        return Err("it has other keys for some methods".to_owned());
    }
    let mut key = key(text)?;
    key.methods = limited.iter().map(|(method, _)| method.to_ascii_uppercase()).collect();
    Ok(key)
}

/// The key of a text without `geo` and `map`.
fn key(text: &str) -> Result<Key, String> {
    let mut key = Key::default();
    // Whether a request always has this key.
    let mut is_sure = false;
    for piece in pieces(text) {
        let name = match piece {
            Piece::Text(_) => {
                is_sure = true;
                continue;
            }
            Piece::Variable(name) => name,
        };
        let of = |start: &str| name.strip_prefix(start).filter(|rest| !rest.is_empty());
        let (part, always) = match name.as_str() {
            "binary_remote_addr" | "remote_addr" => ("ip".to_owned(), true),
            "host" => ("host".to_owned(), true),
            "uri" | "document_uri" => ("path".to_owned(), true),
            "request_method" => ("method".to_owned(), true),
            "request_uri" => {
                key.differences.push("the part `uri` has the normalised path".to_owned());
                ("uri".to_owned(), true)
            }
            "http_host" => {
                key.differences.push("the part `host` is without the port and in lower case".to_owned());
                ("host".to_owned(), true)
            }
            "server_name" => {
                (key.is_by_server, is_sure) = (true, true);
                continue;
            }
            _ => match (of("http_"), of("arg_"), of("cookie_")) {
                (Some(header), ..) => (format!("header:{}", header.replace('_', "-").to_ascii_lowercase()), false),
                (_, Some(query), _) => (format!("query:{query}"), false),
                (.., Some(cookie)) => (format!("cookie:{cookie}"), false),
                _ => return Err(format!("Weir has no part of a key for `${name}`")),
            },
        };
        is_sure |= always;
        if !key.parts.contains(&part) {
            key.parts.push(part);
        }
    }
    if !is_sure {
        match &key.parts[..] {
            [] => return Err("an empty key limits nothing".to_owned()),
            [part] if let Some(header) = part.strip_prefix("header:") => {
                key.headers.push((header.to_owned(), "*".to_owned()));
            }
            _ => key.differences.push("requests without the values of the key share one budget".to_owned()),
        }
    }
    Ok(key)
}

enum Piece {
    Text(String),
    Variable(String),
}

impl Piece {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Variable(name) => format!("${{{name}}}"),
        }
    }
}

/// Splits a text at `$name` and `${name}`.
fn pieces(text: &str) -> Vec<Piece> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let at = rest.find('$').unwrap_or(rest.len());
        if at > 0 {
            pieces.push(Piece::Text(rest[..at].to_owned()));
        }
        rest = &rest[at..];
        let Some(after) = rest.strip_prefix('$') else { continue };
        let (name, next) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(found) => found,
            None => after.split_at(after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len())),
        };
        pieces.push(if name.is_empty() { Piece::Text("$".to_owned()) } else { Piece::Variable(name.to_owned()) });
        rest = next;
    }
    pieces
}
