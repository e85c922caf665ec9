//! `[[limit]]`: which requests, whose budget, how much, and what happens beyond it.
//!
//! What a limit decides is not here; `policy` and `limit` check what is theirs, and this says where it stands.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use http::{HeaderValue, Method};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::compile_allowed::{self, Keyed};
use super::compile_beyond::{self, Beyond, Word};
use super::compile_cost;
use super::compile_identity::{BUILT_IN_PARTS, check_request_header, request_header, several};
use super::compile_rule::Scheme;
use super::compile_warnings::of_everyone;
use super::diagnostics::{Problem, did_you_mean, nearest};
use super::reader::{Located, Table};
use super::units::{self, Fault};
use super::{compile_settle, compile_snapshot};
use crate::policy::key::KeyPart;
use crate::policy::path::Rules;
use crate::policy::{HeaderTest, HostPattern, Limit, Match, Mode, PathPattern, PatternError, Repeated, Stage};

/// What a configuration without any limit gets: every path waits for its 100 requests a minute.
pub const DEFAULT_LIMIT: &str = r#"[[limit]]
name = "per-path"
key = ["path"]
rate = "100/min"
on_limit = "hold"
hold = { max_wait = "forever", max_waiting = 1000 }
"#;

/// All limits if none has a problem. `identities` are the names that keys may use; `ipv6_prefix` is what of an
/// address counts.
pub(super) fn limits(root: &Table<'_>, identities: &[String], ipv6_prefix: u8) -> Option<Vec<Limit>> {
    if is_none(root.get("limit")) {
        let document = DeTable::parse(DEFAULT_LIMIT).ok()?;
        return written(&Table::root(root.context, document.get_ref()), &[], ipv6_prefix);
    }
    written(root, identities, ipv6_prefix)
}

/// Whether this value of `limit` leaves it to the default: there is none, or an empty list.
pub(super) fn is_none(limit: Option<&Spanned<DeValue<'_>>>) -> bool {
    limit.is_none_or(|limits| limits.get_ref().as_array().is_some_and(|limits| limits.is_empty()))
}

fn written(root: &Table<'_>, identities: &[String], ipv6_prefix: u8) -> Option<Vec<Limit>> {
    let mut names = Names::new();
    let around = Around { identities, ipv6_prefix, has_snapshot: root.has("snapshot"), has_plans: root.has("plans") };
    let read = |table: &Table<'_>| limit(table, &around, &mut names);
    let limits: Vec<_> = root.tables("limit").iter().map(read).collect();
    limits.into_iter().collect()
}

/// What a limit goes by beside itself.
struct Around<'a> {
    /// Names that keys may use.
    identities: &'a [String],
    /// What of an address counts.
    ipv6_prefix: u8,
    has_snapshot: bool,
    /// Whether anything says which plan a request has.
    has_plans: bool,
}

/// Where each name was first given.
type Names = HashMap<String, Range<usize>>;

fn limit(table: &Table<'_>, around: &Around<'_>, names: &mut Names) -> Option<Limit> {
    let &Around { identities, ipv6_prefix, has_snapshot, has_plans } = around;
    let name = name(table, names);
    let stage = table.choice("stage", &[("arrival", Stage::Arrival), ("identified", Stage::Identified)]);
    let mode = table.choice("mode", &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)]);
    let match_table = table.table("match");
    let mut matches = matches(&match_table);
    cover_head(&mut matches.methods);
    let except_table = table.table("except");
    let except = except_table.list("ip", units::network).unwrap_or_default();
    of_everyone(&except_table, "ip", &except, "exempts_everyone", "this limit applies to no request");
    let key = key(table, identities, stage, mode, match_table.has("path"));
    let beyond = compile_beyond::word(table);
    let scheme = Scheme::of(table, beyond.map(|word| word == Word::Hold));
    // Texts of keys are held against all parts or none.
    let written = table.get("key").map_or(0, |value| value.get_ref().as_array().map_or(1, |items| items.len()));
    let parts = key.as_deref().filter(|parts| parts.len() == written);
    let keyed = Keyed { parts, routes: &matches.paths, ipv6_prefix, paths: table.context.paths.get() };
    let compile_allowed::Compiled { allowed, held } = compile_allowed::compile(table, &scheme, &keyed);
    check_plans(table, stage, has_plans);
    let cost = compile_cost::compile(table, &held);
    let queue = allowed.as_ref().filter(|_| scheme.shapes()).map(|allowed| allowed.usual.capacity());
    let beyond = compile_beyond::beyond(table, beyond, queue);
    let after = compile_settle::after(table, stage);
    if stage == Some(Stage::Arrival) && allowed.as_ref().is_some_and(|allowed| allowed.usual.is_released()) {
        let span = table.get("algorithm").map_or(table.span(), Spanned::span);
        let what = "charges of stage `arrival` stay, so nothing would ever leave";
        table.fault("algorithm", span, Fault::new(what));
    }
    let max_keys = table.count("max_keys");
    let (beyond, allowed) = (beyond?, allowed?);
    let on_full = beyond.on_full(table, &allowed);
    let Beyond { on_limit, ban, .. } = beyond;
    let persist = compile_snapshot::persist(table, &allowed, ban.as_ref(), has_snapshot);
    Some(Limit {
        name: name?.into(),
        stage: stage?,
        mode: mode?,
        matches,
        except: except.into_iter().map(Located::into_inner).collect(),
        key: key?,
        allowed,
        cost: cost?,
        after: after?,
        on_limit,
        ban,
        max_keys: max_keys?.into_inner(),
        on_full,
        persist,
        is_listed: false,
    })
}

/// Plans that nobody could ever have would leave all to the limit's own numbers.
fn check_plans(table: &Table<'_>, stage: Option<Stage>, has_plans: bool) {
    let Some(plans) = table.get("plans") else { return };
    let fault = match stage {
        Some(Stage::Arrival) => Fault::new("the plan of a request is not yet known at stage `arrival`"),
        _ if has_plans => return,
        _ => {
            let help = "say where it is, as in `[plans] from = \"seller.plan\"`";
            Fault { absence: true, ..Fault::new("without `[plans]` no request has a plan").help(Some(help.to_owned())) }
        }
    };
    table.fault("plans", plans.span(), fault);
}

fn name(table: &Table<'_>, names: &mut Names) -> Option<String> {
    let name = table.parsed("name", |text| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if (1..=64).contains(&text.len()) && text.bytes().all(is_plain) {
            return Ok(text.to_owned());
        }
        Err(Fault::new(format!("`{text}` is not 1 to 64 of `A-Z a-z 0-9 _ -`")))
    })?;
    match names.entry(name.get_ref().clone()) {
        Entry::Occupied(other) => table.note_twice("name", name.get_ref(), name.span(), other.get().clone()),
        Entry::Vacant(new) => _ = new.insert(name.span()),
    }
    Some(name.into_inner())
}

/// A service answers HEAD wherever it answers GET (RFC 9110, section 9.3.2), so a limit of GET is one of HEAD too.
fn cover_head(methods: &mut Vec<Method>) {
    if methods.contains(&Method::GET) && !methods.contains(&Method::HEAD) {
        methods.push(Method::HEAD);
    }
}

/// What could not be read is noted and left out: nothing is compiled then.
pub(super) fn matches(table: &Table<'_>) -> Match {
    fn values<T>(list: Option<Vec<Located<T>>>) -> Vec<T> {
        list.into_iter().flatten().map(Located::into_inner).collect()
    }
    Match {
        paths: values(table.list("path", |text| path_pattern(table, text))),
        hosts: values(table.list("host", host)),
        methods: values(table.list("method", method)),
        headers: headers(table),
    }
}

/// A pattern of paths as they are matched, which `table` has somewhere.
pub(super) fn path_pattern(table: &Table<'_>, text: &str) -> Result<PathPattern, Fault> {
    folded_pattern(text, table.context.paths.get())
}

/// A pattern of paths that are folded by `rules`.
pub(super) fn folded_pattern(text: &str, rules: Rules) -> Result<PathPattern, Fault> {
    PathPattern::parse(text).and_then(|pattern| pattern.folded(rules)).map_err(|error| {
        let suggestion = PathPattern::suggestion(text);
        let what = match &error {
            PatternError::NotNormal(_) if suggestion.is_some() => format!("`{text}`: {}", PatternError::Braces),
            error => format!("`{text}`: {error}"),
        };
        let mean = did_you_mean(suggestion.as_deref());
        let help = match error {
            PatternError::Foreign(mark) => {
                let itself = format!("the character itself is written `{}`", mark.escape());
                Some(mean.map_or(itself.clone(), |mean| format!("{mean} {itself}")))
            }
            _ => mean,
        };
        Fault::new(what).help(help)
    })
}

pub(super) fn host(text: &str) -> Result<HostPattern, Fault> {
    let lower = text.to_ascii_lowercase();
    let below = lower.strip_prefix("*.");
    let name = below.unwrap_or(&lower);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_name = name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_plain));
    let is_ipv6 = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok());
    if !(is_name || is_ipv6 && below.is_none()) {
        let help = "a host is written without a port, in ASCII; `*.` at its start stands for any host below it";
        return Err(Fault::new(format!("`{text}` is not a host")).help(Some(help.to_owned())));
    }
    Ok(below.map_or_else(
        || HostPattern::Exact(lower.as_str().into()),
        |name| HostPattern::Below(format!(".{name}").into()),
    ))
}

pub(super) fn method(text: &str) -> Result<Method, Fault> {
    let method = Method::from_bytes(text.as_bytes()).map_err(|_| Fault::new(format!("`{text}` is not a method")))?;
    // RFC 9110, section 9.1: methods are case-sensitive, so `get` would never match.
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        let fault = Fault::new(format!("`{text}` would never match: methods are in upper case"));
        return Err(fault.help(did_you_mean(Some(&text.to_ascii_uppercase()))));
    }
    Ok(method)
}

fn headers(table: &Table<'_>) -> Vec<(http::HeaderName, HeaderTest)> {
    let mut headers: Vec<(http::HeaderName, HeaderTest)> = Vec::new();
    for (name, value) in table.pairs("header") {
        let test = match value.get_ref().as_str() {
            "*" => Some(HeaderTest::Present),
            text => {
                // It may be a credential.
                table.context.hide(value.span());
                HeaderValue::from_str(text).map(HeaderTest::Is).ok()
            }
        };
        if test.is_none() {
            table.fault("header", value.span(), Fault::new("this cannot be the value of a header"));
        }
        match request_header(table.context, name.get_ref()) {
            Err(fault) => table.fault("header", name.span(), fault),
            Ok(header) if headers.iter().any(|(other, _)| *other == header) => {
                table.fault("header", name.span(), Fault::new(format!("`{header}` is there twice")));
            }
            Ok(header) => headers.extend(test.map(|test| (header, test))),
        }
    }
    headers
}

fn key(
    table: &Table<'_>,
    identities: &[String],
    stage: Option<Stage>,
    mode: Option<Mode>,
    has_path: bool,
) -> Option<Vec<KeyPart>> {
    let parts = table.list("key", |text| part(text, identities).ok_or_else(|| unknown_part(text, identities)))?;
    for part in &parts {
        if let KeyPart::Header(name, _) = part.get_ref()
            && let Err(fault) = check_request_header(table.context, name)
        {
            table.fault("key", part.span(), fault);
        }
        let what = match part.get_ref() {
            KeyPart::Route if !has_path => "`route` is the pattern that matched, so it needs `match.path`",
            KeyPart::Identity(_) if stage == Some(Stage::Arrival) => "an identity is not yet known at stage `arrival`",
            _ => continue,
        };
        table.context.note(Problem::new(part.span(), format!("`limit.key`: {what}")).absence());
    }
    let mut parts: Vec<_> = parts.into_iter().map(Located::into_inner).collect();
    let several = match several(table)? {
        // Nobody is refused by what is only tried.
        Repeated::Reject if mode == Some(Mode::Shadow) => Repeated::First,
        several => several,
    };
    let mut repeatable = parts.iter_mut().filter_map(KeyPart::several_mut).peekable();
    if let (Some(value), None) = (table.get("several"), repeatable.peek()) {
        let fault = Fault { absence: true, ..Fault::new("no part of this key can be there several times") };
        let help = "it is for `header:NAME`, `query:NAME` and `cookie:NAME`; an identity has its own `several`";
        table.fault("several", value.span(), fault.help(Some(help.to_owned())));
    }
    repeatable.for_each(|part| *part = several);
    Some(parts)
}

/// A part of a key; the first value counts of what is there several times.
pub(super) fn part(text: &str, identities: &[String]) -> Option<KeyPart> {
    if let Some((kind, name)) = text.split_once(':') {
        return match kind {
            _ if name.is_empty() => None,
            "header" => name.parse().ok().map(|name| KeyPart::Header(name, Repeated::First)),
            "query" => Some(KeyPart::Query(name.into(), Repeated::First)),
            "cookie" => Some(KeyPart::Cookie(name.into(), Repeated::First)),
            _ => None,
        };
    }
    match text {
        "ip" => Some(KeyPart::Ip),
        "path" => Some(KeyPart::Path),
        "route" => Some(KeyPart::Route),
        "host" => Some(KeyPart::Host),
        "method" => Some(KeyPart::Method),
        name => identities.iter().position(|identity| identity == name).map(KeyPart::Identity),
    }
}

fn unknown_part(text: &str, identities: &[String]) -> Fault {
    let suggestion = match text.split_once(':') {
        Some((kind, name)) => nearest(kind, ["header", "query", "cookie"]).map(|kind| format!("{kind}:{name}")),
        None => {
            nearest(text, BUILT_IN_PARTS.into_iter().chain(identities.iter().map(String::as_str))).map(str::to_owned)
        }
    };
    let all = || {
        let named: Vec<_> = BUILT_IN_PARTS.into_iter().chain(identities.iter().map(String::as_str)).collect();
        format!("a key can have {}, header:NAME, query:NAME, cookie:NAME", named.join(", "))
    };
    let suggestion = suggestion.filter(|suggestion| suggestion != text);
    let help = did_you_mean(suggestion.as_deref()).unwrap_or_else(all);
    Fault { absence: true, ..Fault::new(format!("`{text}` is no part of a key")).help(Some(help)) }
}
