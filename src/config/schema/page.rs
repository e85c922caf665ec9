//! The table of options in the reference: one row for each option, secret and repeated table.

use std::fmt::{self, Write as _};

use super::option::{self, PLACE};
use super::options::OPTIONS;
use super::{Bytes, Kind, Milliseconds, Opt};

/// Tables with options of another table: the table, and the other one. The reference describes these options once.
const ALIKE: &[(&str, &str)] = &[
    ("upstreams.NAME", "upstream"),
    ("route.match", "limit.match"),
    ("check.tls", "server.tls"),
    ("admin.tls", "server.tls"),
    ("fleet.strategy", "limit.strategy"),
    ("fleet.members.tls", "upstream.tls"),
    ("store.NAME.tls", "upstream.tls"),
    ("grpc.tls", "server.tls"),
    ("limit.plans.NAME", "limit"),
    ("limit.overrides.NAME", "limit"),
];

/// A Markdown table of all options.
pub fn options_markdown() -> String {
    let mut text = String::from("| Option | Type | Default | Purpose |\n|---|---|---|---|\n");
    let mut described = "";
    for option in &OPTIONS {
        // Writing to a string cannot fail.
        let _ = match alike(option) {
            Some((table, _)) if table == described => continue,
            Some((table, other)) => {
                described = table;
                writeln!(text, "| `{table}.*` | | | {} as in `{other}`. |", KeyNames(&keys(table)))
            }
            None => write_row(&mut text, option),
        };
    }
    text
}

/// The tables of [`ALIKE`] for an option that the other table has with the same type and default.
fn alike(option: &Opt) -> Option<(&'static str, &'static str)> {
    let same = |table: &str, other: &str| {
        let key = option.path.strip_prefix(table)?.strip_prefix('.')?;
        let path = format!("{other}.{key}");
        let is_alike = |one: &&Opt| one.kind == option.kind && one.default.is_like(option.default);
        OPTIONS.iter().find(|one| one.path == path).filter(is_alike)
    };
    ALIKE.iter().copied().find(|(table, other)| same(table, other).is_some())
}

/// The keys of a table that [`ALIKE`] describes.
fn keys(table: &str) -> Vec<&'static str> {
    let below = OPTIONS.iter().filter(|option| alike(option).is_some_and(|(alike, _)| alike == table));
    let mut keys: Vec<_> = below.filter_map(|option| super::key_below(option.path, table)).collect();
    keys.dedup();
    keys
}

/// Writes the row of an option; a secret from a variable or a file is one row.
fn write_row(text: &mut String, option: &Opt) -> fmt::Result {
    let Opt { path, kind, default, about } = option;
    let secret = path.strip_suffix(".env");
    let default = if *default == option::NONE { String::new() } else { format!("{default} ") };
    match (secret, path.strip_suffix(".file").and_then(|secret| super::find(&format!("{secret}.env")))) {
        (Some(secret), _) => writeln!(text, "| `{secret}` | secret | {default}| {about} |"),
        (None, Some(_)) => Ok(()),
        (None, None) => writeln!(text, "| `{path}` | {} | {default}| {about} |", Brief(*kind)),
    }
}

/// Keys between backticks, as the subject of a sentence.
struct KeyNames<'n>(&'n [&'static str]);

impl fmt::Display for KeyNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((last, others)) = self.0.split_last() else { return Ok(()) };
        match others {
            [] => write!(f, "`{last}` is"),
            _ => write!(f, "`{}` and `{last}` are", others.join("`, `")),
        }
    }
}

/// A type in few words.
struct Brief(Kind);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Text(PLACE) => f.write_str("address"),
            Kind::Text(what) => f.write_str(what),
            Kind::Some(PLACE) => f.write_str("list: address"),
            Kind::List(what) | Kind::Some(what) | Kind::Statuses(what) => write!(f, "list: {what}"),
            Kind::Rows(what) => write!(f, "list: {what}, or file"),
            Kind::Count(min, u64::MAX) => write!(f, "from {min}"),
            Kind::Count(min, max) => write!(f, "{min}–{max}"),
            Kind::CountOr(min, u64::MAX, word) => write!(f, "from {min}, or `{word}`"),
            Kind::CountOr(min, max, word) => write!(f, "{min}–{max}, or `{word}`"),
            Kind::CountOrTable(min) => write!(f, "from {min}, or table"),
            Kind::Size(min, max) => write!(f, "{}–{}", Bytes(min), Bytes(max)),
            Kind::SizeOr(min, max, word) => write!(f, "{}–{}, or `{word}`", Bytes(min), Bytes(max)),
            Kind::Switch => f.write_str("boolean"),
            Kind::DurationIn(min, max) => write!(f, "{}–{}", Milliseconds(min), Milliseconds(max)),
            Kind::TextOrTable(what) | Kind::ValueOrTable(what) => write!(f, "{what}, or table"),
            Kind::Map(what) => write!(f, "table: {what}"),
            Kind::Tables(what) => write!(f, "tables: {what}"),
            kind => write!(f, "{kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_in_one_line_each() {
        let rows = options_markdown();
        let secrets = OPTIONS.iter().filter(|option| option.path.strip_suffix(".env").is_some()).count();
        let repeated = OPTIONS.iter().filter(|option| alike(option).is_some()).count();
        assert_eq!(rows.lines().count(), OPTIONS.len() + 2 - secrets - repeated + ALIKE.len());
    }

    #[test]
    fn repeated_tables_name_their_options() {
        for (table, other) in ALIKE {
            assert!(!keys(table).is_empty(), "{table} has no option of {other}");
        }
        assert_eq!(keys("store.NAME.tls"), ["ca", "cert", "key"]);
    }

    #[test]
    fn rows_read_well() {
        let row = |path| {
            let start = format!("| `{path}` ");
            options_markdown().lines().find(|line| line.starts_with(&start)).map(str::to_owned).unwrap_or_default()
        };
        insta::assert_snapshot!(row("server.max_uri_bytes"), @r#"| `server.max_uri_bytes` | 16B–65534B | `"8KiB"` | Longest request target; else 414. |"#);
        insta::assert_snapshot!(row("timeouts.total"), @r#"| `timeouts.total` | duration or `off` | `"off"` | From the hand-over to the upstream to the end of the response. |"#);
        insta::assert_snapshot!(row("admin.token"), @"| `admin.token` | secret | | Token of operators; required if other machines can connect. |");
        insta::assert_snapshot!(row("store.NAME.tls.*"), @"| `store.NAME.tls.*` | | | `ca`, `cert` and `key` are as in `upstream.tls`. |");
        insta::assert_snapshot!(row("upstream.url"), @r#"| `upstream.url` | `http://host[:port]`, `https://host[:port]` or `unix:/path` | required without `[upstreams]`, `[check]` and `[grpc]` | The address of the service, if there is one service at one address. |"#);
    }
}
