//! `[[limit]]`: which requests, whose budget, how much, and what happens beyond it.
//!
//! What a limit decides is not here; `policy` and `limit` check what is theirs, and this says where it stands.

use http::{HeaderValue, Method};
use toml::de::{DeTable, DeValue};

use super::compile_beyond::{self, Beyond};
use super::compile_identity::{BUILT_IN_PARTS, header_name};
use super::diagnostics::{Problem, did_you_mean, nearest};
use super::reader::{Located, Table};
use super::units::{self, Fault};
use crate::limit::{Algorithm, Quota, QuotaError, Rate};
use crate::policy::key::KeyPart;
use crate::policy::{Allowed, Cost, HeaderTest, HostPattern, Limit, Match, Mode, PathPattern, Stage};

/// What a configuration without any limit gets: every path waits for its 100 requests a minute.
pub const DEFAULT_LIMIT: &str = r#"[[limit]]
name = "per-path"
key = ["path"]
rate = "100/min"
on_limit = "hold"
hold = { max_wait = "forever", max_waiting = 1000 }
"#;

/// All limits if none has a problem. `identities` are the names that keys may use.
pub(super) fn limits(root: &Table<'_>, identities: &[String]) -> Option<Vec<Limit>> {
    let is_empty =
        |value: &toml::Spanned<DeValue<'_>>| value.get_ref().as_array().is_some_and(|items| items.is_empty());
    if root.get("limit").is_none_or(is_empty) {
        let document = DeTable::parse(DEFAULT_LIMIT).ok()?;
        return written(&Table::root(root.context, document.get_ref()), &[]);
    }
    written(root, identities)
}

fn written(root: &Table<'_>, identities: &[String]) -> Option<Vec<Limit>> {
    let mut names: Vec<Located<String>> = Vec::new();
    let limits: Vec<_> = root.tables("limit").iter().map(|table| limit(table, identities, &mut names)).collect();
    limits.into_iter().collect()
}

fn limit(table: &Table<'_>, identities: &[String], names: &mut Vec<Located<String>>) -> Option<Limit> {
    let name = name(table, names);
    let stage = table.choice("stage", &[("arrival", Stage::Arrival), ("identified", Stage::Identified)]);
    let mode = table.choice("mode", &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)]);
    let match_table = table.table("match");
    let matches = matches(&match_table);
    let except = table.table("except").list("ip", units::network).unwrap_or_default();
    let key = key(table, identities, stage, match_table.has("path"));
    let quota = quota(table);
    let cost = cost(table, quota);
    let beyond = compile_beyond::beyond(table);
    let max_keys = table.count("max_keys");
    let beyond = beyond?;
    let allowed = Allowed::to_all(Algorithm::TokenBucket(quota?));
    let on_full = beyond.on_full(table, &allowed);
    let Beyond { on_limit, ban, .. } = beyond;
    Some(Limit {
        name: name?.into(),
        stage: stage?,
        mode: mode?,
        matches,
        except: except.into_iter().map(Located::into_inner).collect(),
        key: key?,
        allowed,
        cost: Cost::Units(cost?),
        after: None,
        on_limit,
        ban,
        max_keys: max_keys?.into_inner(),
        on_full,
    })
}

fn name(table: &Table<'_>, names: &mut Vec<Located<String>>) -> Option<String> {
    let name = table.parsed("name", |text| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if (1..=64).contains(&text.len()) && text.bytes().all(is_plain) {
            return Ok(text.to_owned());
        }
        Err(Fault::new(format!("`{text}` is not 1 to 64 of `A-Z a-z 0-9 _ -`")))
    })?;
    match names.iter().find(|other| *other == &name) {
        Some(other) => table.note_twice("name", name.get_ref(), name.span(), other.span()),
        None => names.push(name.clone()),
    }
    Some(name.into_inner())
}

/// What could not be read is noted and left out: the limit is not compiled then.
fn matches(table: &Table<'_>) -> Match {
    fn values<T>(list: Option<Vec<Located<T>>>) -> Vec<T> {
        list.into_iter().flatten().map(Located::into_inner).collect()
    }
    Match {
        paths: values(
            table.list("path", |text| {
                PathPattern::parse(text).map_err(|error| Fault::new(format!("`{text}`: {error}")))
            }),
        ),
        hosts: values(table.list("host", host)),
        methods: values(table.list("method", method)),
        headers: headers(table),
    }
}

fn host(text: &str) -> Result<HostPattern, Fault> {
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

fn method(text: &str) -> Result<Method, Fault> {
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
        match header_name(name.get_ref()) {
            Err(fault) => table.fault("header", name.span(), fault),
            Ok(header) if headers.iter().any(|(other, _)| *other == header) => {
                table.fault("header", name.span(), Fault::new(format!("`{header}` is there twice")));
            }
            Ok(header) => headers.extend(test.map(|test| (header, test))),
        }
    }
    headers
}

fn key(table: &Table<'_>, identities: &[String], stage: Option<Stage>, has_path: bool) -> Option<Vec<KeyPart>> {
    let parts = table.list("key", |text| part(text, identities).ok_or_else(|| unknown_part(text, identities)))?;
    for part in &parts {
        let what = match part.get_ref() {
            KeyPart::Route if !has_path => "`route` is the pattern that matched, so it needs `match.path`",
            KeyPart::Identity(_) if stage == Some(Stage::Arrival) => "an identity is not yet known at stage `arrival`",
            _ => continue,
        };
        table.context.note(Problem::new(part.span(), format!("`limit.key`: {what}")).absence());
    }
    Some(parts.into_iter().map(Located::into_inner).collect())
}

fn part(text: &str, identities: &[String]) -> Option<KeyPart> {
    if let Some((kind, name)) = text.split_once(':') {
        return match kind {
            _ if name.is_empty() => None,
            "header" => name.parse().ok().map(KeyPart::Header),
            "query" => Some(KeyPart::Query(name.into())),
            "cookie" => Some(KeyPart::Cookie(name.into())),
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

fn quota(table: &Table<'_>) -> Option<Quota> {
    let burst = table.count("burst");
    if let Some(value) = table.get("rate").filter(|value| value.get_ref().as_array().is_some()) {
        let what = "several rates in one limit are not supported in this version";
        let help = Some("write one `[[limit]]` for each".into());
        table.fault("rate", value.span(), Fault::new(what).help(help));
        return None;
    }
    let rate: Located<Rate> = table.parsed("rate", units::rate)?;
    let count = rate.get_ref().count;
    let burst = match burst {
        None if table.has("burst") => return None,
        None => Located::new(rate.span(), count),
        Some(burst) => burst,
    };
    let quota = Quota::new(*rate.get_ref(), *burst.get_ref());
    if let Err(error) = quota {
        let (option, span) = match error {
            QuotaError::TooLong if table.has("burst") => ("burst", burst.span()),
            _ => ("rate", rate.span()),
        };
        table.fault(option, span, Fault::new(error.to_string()));
    }
    quota.ok()
}

fn cost(table: &Table<'_>, quota: Option<Quota>) -> Option<u64> {
    let cost = table.count("cost")?;
    if let Some(burst) = quota.map(|quota| quota.burst()).filter(|burst| cost.get_ref() > burst) {
        let what = format!("a cost of {} can never pass: the burst is {burst}", cost.get_ref());
        table.fault("cost", cost.span(), Fault::new(what));
    }
    Some(cost.into_inner())
}
