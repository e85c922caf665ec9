//! `match` of limits and routes: paths, hosts, methods, headers and addresses of clients.

use std::collections::HashSet;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use toml::Spanned;
use toml::de::DeValue;

use super::identity::request_header;
use crate::config::reader::{Fault, Located, Table, did_you_mean, nearest, units};
use crate::engine::policy::path::PathRules;
use crate::engine::policy::{
    BodyMember, HeaderTest, HostPattern, Match, MemberTest, Networks, PathPattern, PatternError, TextRegex, compared,
    host,
};
use crate::engine::units::Pointer;

/// Compiles a `match` table. Notes and leaves out invalid entries; the configuration is invalid then.
pub(super) fn matches(table: &Table<'_>) -> Match {
    let methods = table.list_at("method", method).unwrap_or_default();
    for method in methods.iter().filter(|method| !is_of_an_rfc(method.get_ref())) {
        let help = did_you_mean(nearest(method.get_ref().as_str(), METHODS.split(' ')));
        let fault = (format!("no RFC names the method `{}`", method.get_ref()), help);
        table.warn("method", method.span(), "unknown_method", fault);
    }
    Match {
        paths: table.list("path", |text| path_pattern(table, text)).unwrap_or_default(),
        path_regexes: table.list("path_regex", |text| path_regex(table, text)).unwrap_or_default(),
        hosts: table.list("host", host).unwrap_or_default(),
        methods: methods.into_iter().map(Located::into_inner).collect(),
        headers: headers(table),
        json: Vec::new(),
        networks: networks(table),
    }
}

/// Compiles the conditions for members of bodies, of which at most `read_bytes` are read.
pub(super) fn members(table: &Table<'_>, read_bytes: u64) -> Vec<(BodyMember, MemberTest)> {
    let mut members: Vec<(BodyMember, MemberTest)> = Vec::new();
    for (name, value) in table.table("json").entries() {
        let test = member_test(table, value);
        match Pointer::parse(name.get_ref()) {
            Err(fault) => table.fault("json", name.span(), fault),
            Ok(pointer) => members.extend(test.map(|test| (BodyMember { pointer, read_bytes }, test))),
        }
    }
    members
}

fn member_test<'a>(table: &Table<'a>, value: &'a Spanned<DeValue<'a>>) -> Option<MemberTest> {
    let texts = |texts: Vec<&str>| {
        let texts = texts.into_iter().map(|text| Box::from(compared(text.as_bytes())));
        MemberTest::OneOf(Arc::new(texts.collect()))
    };
    let test = match value.get_ref() {
        DeValue::Boolean(expected) => return Some(MemberTest::Is(*expected)),
        DeValue::String(text) if text == "*" => return Some(MemberTest::Present),
        DeValue::String(text) => Some(texts(vec![text])),
        DeValue::Array(items) => {
            let all = items.iter().map(|item| item.get_ref().as_str()).collect::<Option<Vec<_>>>();
            all.filter(|all| !all.is_empty()).map(texts)
        }
        DeValue::Table(_) => {
            table.hide_all(value);
            let any_text = |text: &str| Ok(Box::from(compared(text.as_bytes())));
            return listed_or_regex(table, "json", value, any_text, MemberTest::OneOf, MemberTest::Matches);
        }
        _ => None,
    };
    // The value may be a credential.
    table.hide_all(value);
    if test.is_none() {
        table.fault("json", value.span(), "expected a string, a list of strings, `true`, `false`, or a table");
    }
    test
}

/// The networks of `ip`. Without a row in its files, all clients would match.
fn networks(table: &Table<'_>) -> Networks {
    let networks: Networks = table.list("ip", units::network).into_iter().flatten().collect();
    if networks.is_empty() && table.items("ip").iter().any(|item| item.get_ref().is_table()) {
        table.fault_if_present("ip", "the file has no row, so every client would match");
    }
    networks
}

/// Compiles the paths of an `except` table.
pub(super) fn except_paths(table: &Table<'_>) -> Vec<PathPattern> {
    let paths = table.list_at("path", |text| path_pattern(table, text)).unwrap_or_default();
    for path in paths.iter().filter(|path| path.get_ref().matches_all()) {
        table.fault("path", path.span(), "this is every path, so nothing is left");
    }
    paths.into_iter().map(Located::into_inner).collect()
}

/// Adds HEAD to GET, because a service answers both alike (RFC 9110, section 9.3.2).
pub(super) fn cover_head(methods: &mut Vec<Method>) {
    if methods.contains(&Method::GET) && !methods.contains(&Method::HEAD) {
        methods.push(Method::HEAD);
    }
}

/// The methods of the registry of IANA (RFC 9110, section 16.1).
const METHODS: &str = "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY \
    MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PUT \
    QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL";

fn is_of_an_rfc(method: &Method) -> bool {
    METHODS.split(' ').any(|known| known == method.as_str())
}

/// Parses a path pattern of `table`, folded like the paths of requests.
pub(super) fn path_pattern(table: &Table<'_>, text: &str) -> Result<PathPattern, Fault> {
    folded_pattern(text, table.context.paths.get())
}

/// Parses a path pattern, and folds it by `rules`.
pub(super) fn folded_pattern(text: &str, rules: PathRules) -> Result<PathPattern, Fault> {
    PathPattern::parse(text).and_then(|pattern| pattern.folded(rules)).map_err(|error| {
        let suggestion = PathPattern::suggestion(text);
        let what = match &error {
            PatternError::NotNormal(_) | PatternError::Query(_) if suggestion.is_some() => {
                format!("`{text}`: {}", PatternError::Braces)
            }
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
    let ip = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_ipv6 = ip.is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok());
    if !(is_name || is_ipv6 && below.is_none()) {
        let help = "write a host in ASCII, without a port; `*.` at its start matches every subdomain";
        return Err((format!("`{text}` is not a host"), help).into());
    }
    Ok(match below {
        Some(name) => HostPattern::Below(format!(".{name}").into()),
        None => HostPattern::Exact(host::host(&lower).into()),
    })
}

pub(super) fn method(text: &str) -> Result<Method, Fault> {
    let method = Method::from_bytes(text.as_bytes()).map_err(|_| Fault::new(format!("`{text}` is not a method")))?;
    // RFC 9110, section 9.1: methods are case-sensitive, so `get` would never match.
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        let help = did_you_mean(Some(&text.to_ascii_uppercase()));
        return Err((format!("`{text}` never matches: methods are in upper case"), help).into());
    }
    Ok(method)
}

fn headers(table: &Table<'_>) -> Vec<(HeaderName, HeaderTest)> {
    let mut headers: Vec<(HeaderName, HeaderTest)> = Vec::new();
    for (name, value) in table.table("header").entries() {
        let test = header_test(table, value);
        match request_header(table.context, name.get_ref()) {
            Err(fault) => table.fault("header", name.span(), fault),
            Ok(header) if headers.iter().any(|(other, _)| *other == header) => {
                table.fault("header", name.span(), format!("`{header}` occurs twice"));
            }
            Ok(header) => headers.extend(test.map(|test| (header, test))),
        }
    }
    headers
}

fn header_test<'a>(table: &Table<'a>, value: &'a Spanned<DeValue<'a>>) -> Option<HeaderTest> {
    if value.get_ref().as_str() == Some("*") {
        return Some(HeaderTest::Present);
    }
    // The value may be a credential.
    table.hide_all(value);
    let Some(text) = value.get_ref().as_str() else {
        let field_value = |text: &str| {
            let value = HeaderValue::from_str(text).map_err(|_| Fault::new("this is not a valid header value"))?;
            Ok(Box::from(compared(value.as_bytes())))
        };
        return listed_or_regex(table, "header", value, field_value, HeaderTest::OneOf, HeaderTest::Matches);
    };
    let test = HeaderValue::from_str(text).map(HeaderTest::Is).ok();
    if test.is_none() {
        table.fault("header", value.span(), "this is not a valid header value");
    }
    test
}

/// The values of a list.
type Listed = Arc<HashSet<Box<[u8]>>>;

/// Reads `{ regex = "..." }` or `{ file = "..." }` of the option `key`. `value_of` parses a row.
fn listed_or_regex<'a, T>(
    table: &Table<'a>,
    key: &str,
    value: &'a Spanned<DeValue<'a>>,
    value_of: impl Fn(&str) -> Result<Box<[u8]>, Fault>,
    listed: fn(Listed) -> T,
    matching: fn(TextRegex) -> T,
) -> Option<T> {
    let test = table.table(key).table_of("NAME", value);
    match (test.has("regex"), test.has("file")) {
        (true, false) => test.parsed("regex", |text| regex(text, false)).map(matching),
        (false, true) => listed_values(&test, value_of).map(listed),
        _ if test.is_broken() => None,
        _ => {
            table.fault(key, value.span(), "needs either `regex` or `file`");
            None
        }
    }
}

/// The values in the rows of `file`.
fn listed_values(test: &Table<'_>, value: impl Fn(&str) -> Result<Box<[u8]>, Fault>) -> Option<Listed> {
    let file = test.text_at("file")?;
    let rows = test.rows("file", &file.span(), file.get_ref(), value);
    if rows.is_empty() {
        test.fault("file", file.span(), "the file has no row, so no request would match");
    }
    Some(Arc::new(rows.into_iter().map(|(_, value)| value).collect()))
}

/// Parses a regular expression of the paths of requests, folded as they are.
fn path_regex(table: &Table<'_>, text: &str) -> Result<TextRegex, Fault> {
    if !text.is_ascii() {
        return Err("paths are in ASCII: `é` is `%C3%A9`".into());
    }
    regex(text, table.context.paths.get().fold.case)
}

fn regex(text: &str, ignores_case: bool) -> Result<TextRegex, Fault> {
    TextRegex::new(units::not_empty(text)?, ignores_case).map_err(|error| error.to_string().into())
}
