//! Every option there is: its path, type, default and purpose.
//!
//! This one table says which keys exist, what they default to and what numbers they allow; the reader looks
//! all of that up here, and the documentation is rendered from it. What values mean is not here.

use std::fmt::{self, Write as _};

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Its place: tables and key, joined by dots. `NAME` stands for a name that the user chooses.
    pub path: &'static str,
    /// What it can be.
    pub kind: Kind,
    /// What it is when it is absent.
    pub default: Preset,
    /// What it is for, in a sentence.
    pub about: &'static str,
}

/// What an option can be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A string.
    Text(&'static str),
    /// A list of strings, or a single one.
    List(&'static str),
    /// The same, not empty.
    Some(&'static str),
    /// A whole number in a range, both ends included.
    Count(u64, u64),
    /// Bytes in a range, both ends included.
    Size(u64, u64),
    /// `true` or `false`.
    Switch,
    /// A duration above zero.
    Duration,
    /// A duration, also zero.
    DurationOrZero,
    /// A duration above zero, or this word.
    DurationOr(&'static str),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Names and strings.
    Map(&'static str),
    /// A list of tables, not empty.
    Tables(&'static str),
}

/// What an option is when it is absent.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    /// An error.
    Required,
    /// Not a constant; in words.
    Unset(&'static str),
    /// The same as this TOML.
    Toml(&'static str),
}

use Kind::{Count, Duration, DurationOr, DurationOrZero, List, Map, OneOf, Size, Switch, Tables, Text};
use Preset::{Required, Toml, Unset};

const fn opt(path: &'static str, kind: Kind, default: Preset, about: &'static str) -> Opt {
    Opt { path, kind, default, about }
}

const NONE: Preset = Unset("none");
const ADDRESSES: Kind = Kind::Some("address and port");

#[rustfmt::skip]
const OPTIONS: &[Opt] = &[
    opt("server.listen", ADDRESSES, Toml("\"127.0.0.1:8080\""),
        "Where clients connect."),
    opt("server.workers", Count(1, 1024), Unset("one per CPU"),
        "Threads that serve connections."),
    opt("server.trusted_proxies", List("address or network"), Toml("[]"),
        "Peers whose `X-Forwarded-For` is believed."),
    opt("server.ipv6_prefix", Count(1, 128), Toml("64"),
        "Leading bits of an IPv6 address that count as one client."),
    opt("server.max_connections", Count(1, 10_000_000), Toml("10000"),
        "Connections open at once; more are closed unserved."),
    opt("server.shutdown_grace", Duration, Toml("\"30s\""),
        "How long running requests may go on after a signal to stop."),
    opt("server.forwarded", Switch, Toml("false"),
        "Send `Forwarded` (RFC 7239) beside `X-Forwarded-*`."),
    opt("server.max_head_bytes", Size(1024, 1 << 20), Toml("\"32KiB\""),
        "Longest request head; longer is 431."),
    opt("server.max_headers", Count(1, 10_000), Toml("100"),
        "Most request headers; more is 431."),
    // The http crate takes no target of 2^16 - 1 bytes or more.
    opt("server.max_uri_bytes", Size(16, 65_534), Toml("\"8KiB\""),
        "Longest request target; longer is 414."),
    opt("server.max_h2_streams", Count(1, 100_000), Toml("128"),
        "HTTP/2 streams open at once on a connection."),

    opt("timeouts.request_head", Duration, Toml("\"10s\""),
        "From the first byte of a request to the end of its head; past it, 408."),
    opt("timeouts.keep_alive", Duration, Toml("\"75s\""),
        "Between two requests on a connection; past it, and before twice that, the connection is closed."),
    opt("timeouts.connect", Duration, Toml("\"5s\""),
        "To connect to the upstream; past it, 504."),
    opt("timeouts.response_head", Duration, Toml("\"60s\""),
        "From the last progress of the request to the head of the response; past it, 504."),
    opt("timeouts.body_idle", Duration, Toml("\"60s\""),
        "Between two pieces of a body, in either direction."),
    opt("timeouts.total", DurationOr("off"), Toml("\"off\""),
        "From the hand-over to the upstream to the end of the response."),

    opt("upstream.url", Text("`http://host` or `http://host:port`"), Required,
        "The service behind Weir."),
    opt("upstream.host", OneOf(&["preserve", "upstream"]), Toml("\"preserve\""),
        "Which `Host` the upstream sees: the client's or that of `url`."),
    opt("upstream.max_idle", Count(0, 100_000), Toml("64"),
        "Idle connections that each worker keeps."),
    opt("upstream.idle_timeout", Duration, Toml("\"30s\""),
        "How long a connection is kept idle."),

    opt("admin.listen", Text("address and port, or `off`"), Toml("\"127.0.0.1:9901\""),
        "Where metrics and health are served."),

    opt("headers.profiles", List("`x-ratelimit`, `ietf` or `wildberries`"), Toml("[\"x-ratelimit\"]"),
        "Which limit headers clients get."),
    opt("headers.free_preflights", Switch, Toml("true"),
        "CORS preflights are charged by no limit but those of the arrival stage."),

    opt("hold.max_waiting", Count(1, 10_000_000), Toml("10000"),
        "Requests held or delayed at once, over all limits."),
    opt("hold.max_waiting_bytes", Size(1, 1 << 40), Toml("\"64MiB\""),
        "Bytes of their heads."),

    opt("tokens.max_cached", Count(1, 100_000_000), Toml("10000"),
        "Verified tokens that are remembered."),

    opt("log.format", OneOf(&["auto", "text", "json"]), Toml("\"auto\""),
        "How a log line is written; `auto` is text on a terminal and JSON elsewhere."),
    opt("log.level", OneOf(&["error", "warn", "info", "debug", "trace"]), Toml("\"info\""),
        "The least severe level that is written; access lines are always."),
    opt("log.access", OneOf(&["off", "all", "refused"]), Toml("\"off\""),
        "Which requests get a line; `refused` are those that were not forwarded."),

    opt("identity.NAME.header", Text("header name"), NONE,
        "The header whose value is the identity; this or `jwt`."),
    opt("identity.NAME.on_missing", OneOf(&["reject", "anonymous", "ip"]), Toml("\"reject\""),
        "Without it: 401, one bucket for all, or a bucket per address."),
    opt("identity.NAME.jwt.claim", Text("claim name"), Required,
        "The claim that is the identity."),
    opt("identity.NAME.jwt.algorithms", Kind::Some("`HS256`, `RS256`, `ES256` or `EdDSA`"), Required,
        "Signatures that are accepted."),
    opt("identity.NAME.jwt.keys", Tables("one of `jwks`, `pem` and `secret` each"), Required,
        "Keys that are trusted."),
    opt("identity.NAME.jwt.keys.jwks", Text("file"), NONE,
        "A JSON Web Key Set."),
    opt("identity.NAME.jwt.keys.pem", Text("file"), NONE,
        "A public key in PEM."),
    opt("identity.NAME.jwt.keys.secret.env", Text("name"), NONE,
        "The environment variable that holds the secret of HS256; this or `file`."),
    opt("identity.NAME.jwt.keys.secret.file", Text("file"), NONE,
        "The file that holds the secret; one newline at its end is not part of it."),
    opt("identity.NAME.jwt.header", Text("header name"), Toml("\"authorization\""),
        "The header that carries the token, in `authorization` after `Bearer`."),
    opt("identity.NAME.jwt.issuer", Text("`iss`"), NONE,
        "The issuer that a token must name."),
    opt("identity.NAME.jwt.audience", Text("`aud`"), NONE,
        "The audience that a token must name."),
    opt("identity.NAME.jwt.require_exp", Switch, Toml("true"),
        "Refuse tokens that never expire."),
    opt("identity.NAME.jwt.leeway", DurationOrZero, Toml("\"0s\""),
        "How far the issuer's clock may be off."),

    opt("limit.name", Text("1 to 64 of `A-Z a-z 0-9 _ -`"), Required,
        "Its name in headers, metrics and logs; unique."),
    opt("limit.stage", OneOf(&["arrival", "identified"]), Toml("\"identified\""),
        "When it is decided: before identity is verified, or after."),
    opt("limit.mode", OneOf(&["enforce", "shadow", "off"]), Toml("\"enforce\""),
        "Refuse, only count, or do nothing."),
    opt("limit.match.path", Kind::Some("path pattern"), Unset("all"),
        "Paths it sees: literal, `{name}` for one segment, `{*rest}` for the rest."),
    opt("limit.match.host", Kind::Some("host or `*.host`"), Unset("all"),
        "Hosts it sees."),
    opt("limit.match.method", Kind::Some("method"), Unset("all"),
        "Methods it sees."),
    opt("limit.match.header", Map("header names, and values or `*`"), Unset("all"),
        "Headers that a request must have."),
    opt("limit.except.ip", Kind::Some("address or network"), NONE,
        "Clients it does not see."),
    opt("limit.key", List("part of a key"), Required,
        "Whose budget: `ip`, `path`, `route`, `host`, `method`, an identity, `header:NAME`, `query:NAME`, \
         `cookie:NAME`; `[]` for one budget shared by all."),
    opt("limit.rate", Text("rate"), Required,
        "COUNT `/` [N] UNIT, with UNIT `ms`, `s`, `min`, `h`, `day` or `week`."),
    opt("limit.burst", Count(1, u64::MAX), Unset("COUNT of `rate`"),
        "Units that may be spent at once."),
    opt("limit.cost", Count(1, u64::MAX), Toml("1"),
        "Units that a request takes; at most `burst`."),
    opt("limit.on_limit", OneOf(&["reject", "hold", "delay"]), Toml("\"reject\""),
        "Beyond the limit: 429, wait, or pass later."),
    opt("limit.hold.max_wait", DurationOr("forever"), Toml("\"forever\""),
        "Longest wait; what would wait longer is 429 at once."),
    opt("limit.hold.max_waiting", Count(1, 10_000_000), Toml("1000"),
        "Requests waiting, or delayed, on one key."),
    opt("limit.delay.step", Duration, Toml("\"100ms\""),
        "How much later a request passes for each unit over the limit."),
    opt("limit.delay.max", Duration, Toml("\"5s\""),
        "Longest delay."),
    opt("limit.ban.after", Text("rate"), Required,
        "Refusals by this limit within a time that ban a key from it."),
    opt("limit.ban.for", Duration, Required,
        "How long everything of the key is refused with 403; each further ban is twice as long."),
    opt("limit.ban.for_max", Duration, Unset("`24h`, or `for` if that is longer"),
        "Longest ban; who has not been banned for as long begins anew."),
    opt("limit.max_keys", Count(1, 1 << 32), Toml("1000000"),
        "Keys that are remembered exactly."),
    opt("limit.on_full", OneOf(&["sketch", "shared", "reject", "allow"]), Unset("`sketch` if it can be, else `shared`"),
        "New keys at `max_keys`: counted in fixed memory, sharing buckets, refused, or let through uncounted."),
];

/// Keys of other versions, by table, so that they are not taken for misspellings.
const NOT_YET: &[(&str, &[&str])] = &[
    ("", &["upstreams", "route", "tls", "store", "access", "plan", "ban"]),
    ("server", &["tls", "proxy_protocol"]),
    ("limit", &["plans", "algorithm", "settle", "max"]),
];

/// Every option there is, in the order of documentation.
pub fn options() -> &'static [Opt] {
    OPTIONS
}

/// The option at a path.
pub(super) fn find(path: &str) -> Option<&'static Opt> {
    OPTIONS.iter().find(|option| option.path == path)
}

/// The keys that the table at `path` can have; `""` is the whole file.
pub(super) fn keys_of(path: &str) -> Vec<&'static str> {
    let mut keys: Vec<_> = OPTIONS.iter().filter_map(|option| key_below(option.path, path)).collect();
    keys.dedup();
    keys
}

fn key_below(option: &'static str, path: &str) -> Option<&'static str> {
    let rest = if path.is_empty() { option } else { option.strip_prefix(path)?.strip_prefix('.')? };
    rest.split('.').next()
}

/// Whether a later version may know this key.
pub(super) fn is_not_yet(path: &str, key: &str) -> bool {
    NOT_YET.iter().any(|(table, keys)| *table == path && keys.contains(&key))
}

/// The tables that have a key of this name, if it is not a table itself.
pub(super) fn tables_with(key: &str) -> Vec<&'static str> {
    let split = OPTIONS.iter().filter_map(|option| option.path.rsplit_once('.'));
    split.filter(|(_, name)| *name == key).map(|(table, _)| table).collect()
}

/// A Markdown table of every option.
pub fn options_markdown() -> String {
    let mut text = String::from("| Option | Type | Default | Purpose |\n|---|---|---|---|\n");
    for Opt { path, kind, default, about } in OPTIONS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{path}` | {kind} | {default} | {about} |");
    }
    text
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(what) => write!(f, "string ({what})"),
            Self::List(what) => write!(f, "list of strings ({what})"),
            Self::Some(what) => write!(f, "non-empty list of strings ({what})"),
            Self::Count(min, u64::MAX) => write!(f, "whole number from {min}"),
            Self::Count(min, max) => write!(f, "whole number from {min} to {max}"),
            Self::Size(min, max) => write!(f, "size from {} to {}", Bytes(*min), Bytes(*max)),
            Self::Switch => f.write_str("true or false"),
            Self::Duration => f.write_str("duration"),
            Self::DurationOrZero => f.write_str("duration or zero"),
            Self::DurationOr(word) => write!(f, "duration or `{word}`"),
            Self::OneOf(words) => write!(f, "`{}`", words.join("`, `")),
            Self::Map(what) => write!(f, "table ({what})"),
            Self::Tables(what) => write!(f, "non-empty list of tables ({what})"),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required => f.write_str("required"),
            Self::Unset(words) => f.write_str(words),
            Self::Toml(text) => write!(f, "`{text}`"),
        }
    }
}

/// Bytes in the largest unit that divides them.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 >= 1 << shift && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_unique_and_in_one_line() {
        for (index, option) in OPTIONS.iter().enumerate() {
            assert!(OPTIONS[..index].iter().all(|other| other.path != option.path), "{} twice", option.path);
            assert!(option.about.ends_with('.') && !option.about.contains(['\n', '|']), "{}", option.about);
        }
        assert_eq!(options_markdown().lines().count(), OPTIONS.len() + 2);
    }

    #[test]
    fn what_is_not_yet_known_is_not_known() {
        for (table, keys) in NOT_YET {
            assert!(keys.iter().all(|key| !keys_of(table).contains(key)));
        }
    }

    #[test]
    fn rows_read_well() {
        let row = |path| {
            let start = format!("| `{path}` ");
            options_markdown().lines().find(|line| line.starts_with(&start)).map(str::to_owned).unwrap_or_default()
        };
        insta::assert_snapshot!(row("server.max_uri_bytes"), @r#"| `server.max_uri_bytes` | size from 16B to 65534B | `"8KiB"` | Longest request target; longer is 414. |"#);
        insta::assert_snapshot!(row("timeouts.total"), @r#"| `timeouts.total` | duration or `off` | `"off"` | From the hand-over to the upstream to the end of the response. |"#);
        insta::assert_snapshot!(row("limit.burst"), @r#"| `limit.burst` | whole number from 1 | COUNT of `rate` | Units that may be spent at once. |"#);
        insta::assert_snapshot!(row("upstream.url"), @r#"| `upstream.url` | string (`http://host` or `http://host:port`) | required | The service behind Weir. |"#);
    }
}
