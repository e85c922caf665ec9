//! The table of options in the reference: one row for each option, secret and repeated table.

use std::fmt::{self, Write as _};

use super::pages::Page;
use weir::config::{Kind, Opt, Preset, options};

#[test]
fn every_option_is_there() {
    let expected = options_markdown();
    let page = Page::read("docs/reference/options.md");
    let found = super::between(&page, "<!-- options -->\n", "<!-- /options -->");
    assert!(found == expected, "put this between the markers of {}:\n{expected}", page.path);
}

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

/// The type of an address of a listener.
const PLACE: &str = "address and port, or `unix:` and a path";

/// A Markdown table of all options.
fn options_markdown() -> String {
    let mut text = String::from("| Option | Type | Default | Purpose |\n|---|---|---|---|\n");
    let mut described = "";
    for option in options() {
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
    let is_described = |&(table, other): &(&str, &str)| {
        let key = option.path.strip_prefix(table).and_then(|key| key.strip_prefix('.'));
        key.and_then(|key| find(&format!("{other}.{key}"))).is_some_and(|one| is_like(one, option))
    };
    ALIKE.iter().copied().find(is_described)
}

/// Whether both options have the same type, and the same default or none because they are required.
fn is_like(one: &Opt, other: &Opt) -> bool {
    let are_required = is_required(one.default) && is_required(other.default);
    one.kind.to_string() == other.kind.to_string() && (one.default == other.default || are_required)
}

fn find(path: &str) -> Option<&'static Opt> {
    options().iter().find(|option| option.path == path)
}

/// Whether the option is required, always or with a condition.
fn is_required(default: Preset) -> bool {
    matches!(default, Preset::Required) || matches!(default, Preset::Unset(words) if words.starts_with("required"))
}

/// The keys of a table that [`ALIKE`] describes.
fn keys(table: &str) -> Vec<&'static str> {
    let below = options().iter().filter(|option| alike(option).is_some_and(|(alike, _)| alike == table));
    let mut keys: Vec<_> = below.filter_map(|option| option.path[table.len() + 1..].split('.').next()).collect();
    keys.dedup();
    keys
}

/// Writes the row of an option; a secret from a variable or a file is one row.
fn write_row(text: &mut String, option: &Opt) -> fmt::Result {
    let Opt { path, kind, default, about } = option;
    let secret = path.strip_suffix(".env");
    let default = if *default == Preset::Unset("none") { String::new() } else { format!("{default} ") };
    match (secret, path.strip_suffix(".file").and_then(|secret| find(&format!("{secret}.env")))) {
        (Some(secret), _) => writeln!(text, "| `{secret}` | secret | {default}| {about} |"),
        (None, Some(_)) => Ok(()),
        (None, None) => writeln!(text, "| `{path}` | {} | {default}| {about} |", brief(*kind)),
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
fn brief(kind: Kind) -> String {
    match kind {
        Kind::Text(PLACE) => "address".into(),
        Kind::Text(what) => what.into(),
        Kind::Some(PLACE) => "list: address".into(),
        Kind::List(what) | Kind::Some(what) | Kind::Statuses(what) => format!("list: {what}"),
        Kind::Rows(what) => format!("list: {what}, or file"),
        Kind::Switch => "boolean".into(),
        Kind::TextOrTable(what) | Kind::ValueOrTable(what) => format!("{what}, or table"),
        Kind::Map(what) => format!("table: {what}"),
        Kind::Tables(what) => format!("tables: {what}"),
        kind => brief_range(&kind.to_string()),
    }
}

/// `1–9` for a type such as `whole number from 1 to 9`; other types as they are.
fn brief_range(kind: &str) -> String {
    match kind.split_once(" from ") {
        Some((_, range)) if range.contains(" to ") => range.replacen(" to ", "–", 1),
        Some((_, range)) => format!("from {range}"),
        None => kind.to_owned(),
    }
}

#[test]
fn options_are_in_one_line_each() {
    let rows = options_markdown();
    let secrets = options().iter().filter(|option| option.path.strip_suffix(".env").is_some()).count();
    let repeated = options().iter().filter(|option| alike(option).is_some()).count();
    assert_eq!(rows.lines().count(), options().len() + 2 - secrets - repeated + ALIKE.len());
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
