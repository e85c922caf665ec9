//! The difference between two configurations, as operators read it, and the text of one without its secrets.
//!
//! Not here: whether a configuration is valid (`compile`), and the options with their defaults (`effective`).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::ops::Range;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::compile::limit::{DEFAULT_LIMIT, is_none};
use super::effective::json;
use super::written::Written;
use crate::admin::{DifferenceBody, SettingDiffBody};

/// Most bytes of one name. A route has the name of its path, which a file may make long.
const NAME_BYTES_MAX: usize = 80;

/// Usual methods, which are no secrets.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// What a newer configuration has and an older one has not, by names such as `limit per-ip`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The names of the parts.
    pub parts: DifferenceBody,
    /// The limits of the older configuration, and of these the limits that vanished.
    pub limits: (usize, usize),
}

impl Difference {
    /// Whether more than half of the limits vanished, and not by other names for all of them.
    pub fn has_lost_most_limits(&self) -> bool {
        let (before, lost) = self.limits;
        let appeared = self.parts.appeared.iter().filter(|name| name.starts_with("limit ")).count();
        lost * 2 > before && appeared < lost
    }
}

impl Written {
    /// The parts of `newer` that this configuration has not, or has differently, and the reverse.
    pub fn difference(&self, newer: &Self) -> Difference {
        let mut found = Difference::default();
        if self.text() == newer.text() {
            return found;
        }
        let [(own, own_order), (new, new_order)] = [self, newer].map(Self::parts);
        for (name, part) in &own {
            match new.get(name) {
                None => found.parts.vanished.push(name.clone()),
                Some(other) if other != part => found.parts.changed.push(name.clone()),
                Some(_) => {}
            }
        }
        found.parts.appeared.extend(new.keys().filter(|name| !own.contains_key(*name)).cloned());
        let common = |order: Vec<String>, other: &BTreeMap<String, Value>| {
            order.into_iter().filter(|name| other.contains_key(name)).collect::<Vec<_>>()
        };
        if common(own_order, &new) != common(new_order, &own) {
            found.parts.changed.push("order of routes".to_owned());
        }
        let is_limit = |name: &&String| name.starts_with("limit ");
        let vanished = found.parts.vanished.iter().filter(is_limit).count();
        found.limits = (own.keys().filter(is_limit).count(), vanished);
        found
    }

    /// The parts by name, and the names of the routes in their order.
    fn parts(&self) -> (BTreeMap<String, Value>, Vec<String>) {
        let (document, _) = DeTable::parse_recoverable(self.text());
        let (mut parts, mut routes, mut counts) = (BTreeMap::new(), Vec::new(), BTreeMap::<String, u64>::new());
        let mut add = |mut name: String, value: Value| {
            name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            if *count > 1 {
                name = format!("{name} ({count})");
            }
            if name.starts_with("route ") {
                routes.push(name.clone());
            }
            parts.insert(name, value);
        };
        let document = document.get_ref();
        let mut entries: Vec<_> = document.iter().filter(|(key, _)| &**key.get_ref() != "limit").collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let default = DeTable::parse(DEFAULT_LIMIT).ok();
        let default = default.as_ref().filter(|_| is_none(document.get("limit")));
        let limits = default.map_or(document, |default| default.get_ref()).get_key_value("limit");
        for (key, value) in limits.into_iter().chain(entries) {
            match (&**key.get_ref(), value.get_ref()) {
                (kind @ ("limit" | "route"), DeValue::Array(items)) => {
                    for item in items {
                        let value = json(item, |_| false);
                        let own = if kind == "limit" { value["name"].as_str() } else { place_of(&value) };
                        add(format!("{kind} {}", own.unwrap_or("without a condition")), value);
                    }
                }
                (kind @ ("upstreams" | "identity" | "store"), DeValue::Table(tables)) => {
                    for (name, value) in tables {
                        add(format!("{} {}", kind.trim_end_matches('s'), name.get_ref()), json(value, |_| false));
                    }
                }
                (key, _) => add(key.to_owned(), json(value, |_| false)),
            }
        }
        (parts, routes)
    }

    /// The options that differ in `newer`, at most `count_max`, and whether there are more. Values that are secret in both
    /// show no difference.
    pub fn changes(&self, newer: &Self, count_max: usize) -> (Vec<SettingDiffBody>, bool) {
        let [own, mut new] = [self, newer].map(Self::own_settings);
        let mut all = Vec::new();
        for (path, before) in own {
            let after = new.remove(&path).unwrap_or_default();
            if after != before {
                all.push(SettingDiffBody { path, before, after });
            }
        }
        all.extend(new.into_iter().map(|(path, after)| SettingDiffBody { path, before: Value::Null, after }));
        all.sort_by(|one, other| one.path.cmp(&other.path));
        let has_more = all.len() > count_max;
        all.truncate(count_max);
        (all, has_more)
    }

    /// The text with a word in place of each secret. A check accepts it, as long as a secret is a string or a bare key:
    /// the sources of secrets, such as `{ env = "NAME" }`, stay.
    pub fn toml(&self) -> String {
        let mut secrets: Vec<Range<usize>> = self.secrets.to_vec();
        secrets.sort_by_key(|secret| secret.start);
        let (mut shown, mut end) = (String::new(), 0);
        for (number, secret) in secrets.into_iter().enumerate().filter(|(_, secret)| !secret.is_empty()) {
            let text = self.text();
            if secret.start < end || !text.is_char_boundary(secret.start) || !text.is_char_boundary(secret.end) {
                // It overlaps the one before.
                end = end.max(text.ceil_char_boundary(secret.end));
                continue;
            }
            shown.push_str(&text[end..secret.start]);
            let written = &text[secret.clone()];
            let quote = if written.starts_with(['"', '\'']) { "\"" } else { "" };
            // The text of a key has its parts with `|` between them. A part may have to be an address or a method.
            let parts = written.trim_matches(['"', '\'']).split('|').map(|part| {
                let is_public = part.parse::<IpAddr>().is_ok() || METHODS.contains(&part);
                if is_public { part.to_owned() } else { format!("hidden-{number}") }
            });
            let _ = write!(shown, "{quote}{}{quote}", parts.collect::<Vec<_>>().join("|")); // a string takes all
            end = secret.end;
        }
        shown.push_str(&self.text()[end..]);
        shown
    }
}

/// The path or the host of a route.
fn place_of(route: &Value) -> Option<&str> {
    ["path", "host"].iter().find_map(|key| {
        let value = &route["match"][key];
        value.as_str().or_else(|| value.as_array()?.first()?.as_str())
    })
}

/// Names in one line, at most `count_max`, and the number of the others; `None` without names.
pub fn listed(names: &[String], count_max: usize) -> Option<String> {
    let line = names[..names.len().min(count_max)].join(", ");
    match names.len().saturating_sub(count_max) {
        _ if names.is_empty() => None,
        0 => Some(line),
        more => Some(format!("{line} and {more} more")),
    }
}
