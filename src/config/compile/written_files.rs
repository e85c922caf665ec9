//! The files that Weir writes: each is a file of its own, and none is the configuration.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::DeValue;

use crate::config::files::{is_same, resolved, sibling};
use crate::config::reader::{Located, Problem, Table};

/// The options that name one, and the ending of the file beside the configuration that is the default.
const OPTIONS: [(&str, &str, Option<&str>); 5] = [
    ("snapshot", "path", None),
    ("admin", "overrides", Some("overrides.toml")),
    ("admin", "bans", Some("bans.jsonl")),
    ("admin", "audit", None),
    ("log", "access_file", None),
];

/// The path of a file that Weir writes, if the option names one.
pub(super) fn file_to_write(table: &Table<'_>, key: &str) -> Option<Located<PathBuf>> {
    let path = table.text_at(key)?;
    let context = table.context;
    let file = context.path(path.get_ref());
    if path.get_ref().ends_with('/') {
        table.fault(key, path.span(), "is a folder; name a file in it");
    } else if context.own.is_some_and(|own| is_same(own, &file)) {
        let help = "Weir writes this file, and would overwrite the configuration";
        table.fault(key, path.span(), ("is the configuration file", help));
    }
    Some(Spanned::new(path.span(), file))
}

/// Notes options that name the same file. Identities may share their keys, and all options a device.
pub(super) fn check(root: &Table<'_>) {
    let context = root.context;
    let mut known: HashMap<PathBuf, (String, Option<Range<usize>>)> = HashMap::new();
    let mut add = |name: String, file: PathBuf, span: Option<Range<usize>>| {
        if file.exists() && !file.is_file() {
            return;
        }
        let (other, other_span) = known.entry(resolved(&file)).or_insert_with(|| (name.clone(), span.clone()));
        let are_keys = [&*other, &name].iter().all(|name| name.starts_with("identity."));
        let Some(at) = span.clone().or_else(|| other_span.clone()).filter(|_| *other != name && !are_keys) else {
            return;
        };
        let problem = Problem::new(at, format!("`{other}` and `{name}` are the same file"));
        let also = span.and(other_span.clone());
        context.note(also.into_iter().fold(problem, |problem, also| problem.also(also, "here")));
    };
    for (table, key, default) in OPTIONS {
        let value = root.get(table).and_then(|table| table.get_ref().get(key));
        let default = context.own.zip(default).map(|(own, ending)| sibling(own, ending));
        let named = value.and_then(|value| Some((text_of(value)?, value.span())));
        match (named, default) {
            (Some(("off" | "memory", _)), _) if key == "overrides" => {}
            (Some((path, span)), _) => add(format!("{table}.{key}"), context.path(path), Some(span)),
            (None, Some(file)) if value.is_none() => add(format!("{table}.{key}"), file, None),
            (None, _) => {}
        }
    }
    let identities = root.get("identity").and_then(|identities| identities.get_ref().as_table());
    for (name, identity) in identities.into_iter().flatten() {
        let file = identity.get_ref().get("api_keys").and_then(|keys| keys.get_ref().get("file"));
        if let Some((file, path)) = file.and_then(|file| Some((file, text_of(file)?))) {
            add(format!("identity.{}.api_keys.file", name.get_ref()), context.path(path), Some(file.span()));
        }
    }
}

fn text_of<'v>(value: &'v Spanned<DeValue<'_>>) -> Option<&'v str> {
    value.get_ref().as_str().filter(|text| !text.is_empty())
}
