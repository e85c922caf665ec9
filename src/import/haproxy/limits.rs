//! Stick tables, trackers and the rules that refuse by them.
//!
//! A tracker counts the request before a later rule looks at the counter, also if that rule refuses it.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::conditions::{Acls, Counter, Test};
use super::lines::ConfigLine;
use crate::import::draft::{Draft, SourceLine, quoted};
use crate::import::limit::{Limit, Match};
use crate::import::path::Path;
use crate::import::report::OPEN;

/// A `stick-table`: its place, and the period of each counter that has one.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) place: SourceLine,
    stores: BTreeMap<String, String>,
}

/// All tables by the names of their sections.
pub(super) type Tables = BTreeMap<String, Table>;

/// A rule in the order in which `HAProxy` evaluates them, with the ACLs of its section.
pub(super) struct Rule<'l, 'a> {
    pub(super) line: &'l ConfigLine,
    pub(super) acls: &'a Acls<'l>,
    /// The section, which is the default table.
    pub(super) section: &'l str,
}

/// A `track-sc` rule.
struct Tracker {
    at: usize,
    place: SourceLine,
    number: String,
    table: String,
    parts: Vec<String>,
    headers: Vec<(String, String)>,
    tests: Vec<Test>,
    /// Whether it counts connections, not requests.
    is_of_connections: bool,
}

/// What the rules of a frontend depend on.
struct Around<'a> {
    trackers: &'a [Tracker],
    tables: &'a Tables,
    /// The last rule that refuses requests. Trackers before it count these.
    last_refusal: Option<usize>,
    /// Networks that a rule exempts from the later rules of its section and phase.
    exempt: Vec<([&'a str; 2], usize, Vec<IpNet>)>,
}

/// The limits of a frontend.
#[derive(Default)]
pub(super) struct Limits {
    pub(super) limits: Vec<Limit>,
    /// `server.max_connections_per_ip`.
    pub(super) connections: Vec<(Vec<SourceLine>, u64)>,
}

/// Reads a `stick-table`.
pub(super) fn table(line: &ConfigLine) -> Table {
    let store = line.words.iter().skip_while(|word| *word != "store").nth(1).map_or("", String::as_str);
    // Commas separate counters; none of them has two arguments.
    let counters = store.split(',').map(|counter| {
        let (name, period) = counter.split_once('(').unwrap_or((counter, ""));
        (name.to_owned(), period.trim_end_matches(')').to_owned())
    });
    Table { place: line.place, stores: counters.collect() }
}

/// Translates the rules of a frontend.
pub(super) fn limits(rules: &[Rule<'_, '_>], tables: &Tables, draft: &mut Draft) -> Limits {
    let trackers: Vec<_> = rules.iter().enumerate().filter_map(|(at, rule)| tracker(at, rule, draft)).collect();
    let mut limits = Limits::default();
    let last_refusal = rules.iter().rposition(|rule| refusal(rule.line).is_some());
    let mut around = Around { trackers: &trackers, tables, last_refusal, exempt: Vec::new() };
    for (at, rule) in rules.iter().enumerate() {
        if tracker_number(rule.line).is_some() {
            continue;
        }
        let place = rule.line.place;
        if ["allow", "accept"].iter().any(|action| rule.line.words.iter().take(3).any(|word| word == action)) {
            match rule.acls.of(rule.line).as_deref() {
                Ok([tests]) if let [Test::From(networks)] = &tests[..] => {
                    around.exempt.push((phase(rule), at, networks.clone()));
                }
                _ => draft.left_out(place, "Weir exempts only networks from limits"),
            }
            continue;
        }
        let Some(refusal) = refusal(rule.line) else {
            draft.left_out(place, "Weir has no such action");
            continue;
        };
        let alternatives = match rule.acls.of(rule.line) {
            Ok(alternatives) => alternatives,
            Err(reason) => {
                draft.left_out(place, reason);
                continue;
            }
        };
        let count = limits.limits.len() + limits.connections.len();
        for tests in alternatives {
            if let Err(reason) = limit(at, rule, &tests, &around, &mut limits, draft) {
                draft.left_out(place, reason);
            }
        }
        if let Some(difference) = refusal.filter(|_| limits.limits.len() + limits.connections.len() > count) {
            draft.differs(place, difference);
        }
    }
    let used = |tracker: &Tracker| limits.limits.iter().any(|limit| limit.places.contains(&tracker.place));
    let connections = |tracker: &Tracker| limits.connections.iter().any(|(places, _)| places.contains(&tracker.place));
    for tracker in trackers.iter().filter(|tracker| !used(tracker) && !connections(tracker)) {
        draft.left_out(tracker.place, "no translated rule uses its counters");
    }
    limits
}

/// The section and the phase of a rule, which its `allow` or `accept` ends.
fn phase<'l>(rule: &Rule<'l, '_>) -> [&'l str; 2] {
    [rule.section, rule.line.word(usize::from(rule.line.word(0) == "tcp-request"))]
}

/// The difference of an action that refuses a request, if there is one; `None` for other actions.
#[allow(clippy::option_option)]
fn refusal(line: &ConfigLine) -> Option<Option<&'static str>> {
    let start = usize::from(line.word(0) == "tcp-request") + 1;
    let status = line.words.iter().skip_while(|word| *word != "status" && *word != "deny_status").nth(1);
    let status = status.map_or("", String::as_str);
    match line.word(start) {
        "deny" | "return" if status == "429" => Some(None),
        "deny" => Some(Some("Weir refuses requests with 429")),
        "return" if status.starts_with(['4', '5']) => Some(Some("Weir refuses requests with 429")),
        "reject" | "silent-drop" => Some(Some("Weir answers 429 in place of closing the connection")),
        "tarpit" => Some(Some("Weir refuses requests with 429 at once")),
        _ => None,
    }
}

fn tracker_number(line: &ConfigLine) -> Option<&str> {
    line.words.iter().take(3).find_map(|word| word.strip_prefix("track-sc"))
}

fn tracker(at: usize, rule: &Rule<'_, '_>, draft: &mut Draft) -> Option<Tracker> {
    let (line, place) = (rule.line, rule.line.place);
    let number = tracker_number(line)?;
    let after = line.words.iter().position(|word| word.starts_with("track-sc"))? + 1;
    let alternatives = rule.acls.of(line);
    let (parts, headers, difference) = match key(line.word(after)) {
        Ok(key) => key,
        Err(reason) => {
            draft.left_out(place, reason);
            return None;
        }
    };
    let tests = match alternatives.as_deref() {
        Ok([tests]) if conditions(tests).is_ok() => tests.clone(),
        _ => {
            draft.left_out(place, "Weir has no such condition of a limit");
            return None;
        }
    };
    if let Some(difference) = difference {
        draft.differs(place, difference);
    }
    let table = line.words.iter().skip_while(|word| *word != "table").nth(1);
    Some(Tracker {
        at,
        place,
        number: number.to_owned(),
        table: table.map_or(rule.section, String::as_str).to_owned(),
        parts,
        headers,
        tests,
        is_of_connections: line.word(0) == "tcp-request" && line.word(1) != "content",
    })
}

/// The parts of a key, headers that it needs, and a difference.
type KeyParts = (Vec<String>, Vec<(String, String)>, Option<&'static str>);

fn key(expression: &str) -> Result<KeyParts, String> {
    let parts = |parts: &[&str]| Ok((parts.iter().map(|part| (*part).to_owned()).collect(), Vec::new(), None));
    if let Some(lengths) = expression.strip_prefix("src,ipmask(").and_then(|rest| rest.strip_suffix(')')) {
        return parts(&[&format!("ip/{}", lengths.replace(',', "/"))]);
    }
    let (name, argument) = expression.split_once('(').unwrap_or((expression, ""));
    let argument = argument.strip_suffix(')').unwrap_or(argument);
    // Names of headers have no case, those of parameters and cookies do.
    let argument = if name.contains("hdr") { argument.to_ascii_lowercase() } else { argument.to_owned() };
    let is_whole = !expression.contains("),") && expression.contains('(') == expression.ends_with(')');
    match name {
        _ if !is_whole || argument.contains(',') => {}
        "src" if argument.is_empty() => return parts(&["ip"]),
        "path" => return parts(&["path"]),
        "method" => return parts(&["method"]),
        "base" => return parts(&["host", "path"]),
        "base32+src" => return parts(&["host", "path", "ip"]),
        "int" | "str" => return parts(&[]),
        "hdr" | "req.hdr" if argument == "host" => return parts(&["host"]),
        "hdr" | "req.hdr" | "fhdr" | "req.fhdr" if argument == "x-forwarded-for" => {
            return Err("set `server.trusted_proxies`, and use the part `ip`".to_owned());
        }
        "hdr" | "req.hdr" | "fhdr" | "req.fhdr" => {
            return Ok((vec![format!("header:{argument}")], vec![(argument, "*".to_owned())], None));
        }
        "url_param" | "urlp" | "cook" | "req.cook" => {
            let kind = if name.starts_with("url") { "query" } else { "cookie" };
            let difference = "requests without this value share one budget";
            return Ok((vec![format!("{kind}:{argument}")], Vec::new(), Some(difference)));
        }
        _ => {}
    }
    Err(format!("Weir has no part of a key for `{expression}`"))
}

/// The requests for which tests without counters hold, and the networks for which they do not.
pub(super) fn conditions(tests: &[Test]) -> Result<(Match, Vec<String>, Vec<String>), String> {
    let (mut matches, mut except, mut differences) = (Match::default(), Vec::new(), Vec::new());
    for test in tests {
        let twice = || Err("its condition has two tests of one kind".to_owned());
        match test {
            Test::Paths(paths) if paths.iter().any(Path::is_all) => {}
            Test::Paths(paths) if matches.paths.is_empty() => {
                matches.paths = paths.iter().flat_map(Path::patterns).collect();
                differences.extend(paths.iter().filter_map(Path::difference));
            }
            Test::Methods(methods) if matches.methods.is_empty() => matches.methods.clone_from(methods),
            Test::Hosts(hosts) if matches.hosts.is_empty() => matches.hosts.clone_from(hosts),
            Test::Paths(_) | Test::Methods(_) | Test::Hosts(_) => return twice(),
            Test::NotFrom(networks) => except.extend(networks.iter().map(ToString::to_string)),
            Test::From(_) => return Err("Weir cannot limit only some networks".to_owned()),
            Test::Other(text) => return Err(format!("Weir has no condition `{text}`")),
            Test::Above { .. } => return Err("its condition has several counters".to_owned()),
        }
    }
    Ok((matches, except, differences))
}

/// Adds the limit of one alternative of a rule.
fn limit(
    at: usize,
    rule: &Rule<'_, '_>,
    tests: &[Test],
    around: &Around<'_>,
    limits: &mut Limits,
    draft: &mut Draft,
) -> Result<(), String> {
    let is_counter = |test: &&Test| matches!(test, Test::Above { .. });
    let (counters, others): (Vec<&Test>, Vec<&Test>) = tests.iter().partition(is_counter);
    let (counter, number) = match &counters[..] {
        [Test::Above { counter, number }] => (counter, number),
        [] => return Err(OPEN.to_owned()),
        _ => return Err("its condition has several counters".to_owned()),
    };
    let tracker = find(at, rule, counter, around.trackers)?;
    let all = tests_of_limit(rule, &others, tracker, around)?;
    let (mut matches, except_ips, differences) = conditions(&all)?;
    matches.headers.clone_from(&tracker.headers);
    let max = number.saturating_add(u64::from(at < tracker.at));
    let table = around.tables.get(&tracker.table);
    let mut places = vec![tracker.place, rule.line.place];
    places.extend(table.map(|table| table.place));
    places.sort();
    let table = table.filter(|table| table.stores.contains_key(&counter.name));
    let Some(table) = table else { return Err(format!("the table has no counter `{}`", counter.name)) };
    let algorithm = match counter.name.as_str() {
        "conn_cur" | "http_req_rate" if max == 0 => return Err("it refuses all requests".to_owned()),
        "conn_cur" if tracker.is_of_connections => {
            if tracker.parts != ["ip"] || all.iter().any(|test| !matches!(test, Test::Above { .. })) {
                return Err("Weir bounds connections of addresses only".to_owned());
            }
            limits.connections.push((places, max));
            return Ok(());
        }
        "conn_cur" => vec![("algorithm", quoted("concurrency")), ("max", max.to_string())],
        "http_req_rate" => {
            if around.last_refusal > Some(tracker.at) {
                let what = "HAProxy counts refused requests too, so a client that goes on stays refused; Weir does not";
                draft.differs(rule.line.place, what);
            }
            let period = period(&table.stores[&counter.name]).ok_or("the period of its rate is unknown")?;
            vec![("algorithm", quoted("sliding_window")), ("rate", quoted(&format!("{max}/{period}")))]
        }
        name => return Err(reason(name).to_owned()),
    };
    for difference in differences {
        draft.differs(tracker.place, difference);
    }
    limits.limits.push(Limit {
        name: tracker.table.clone(),
        places,
        at_arrival: counter.name == "http_req_rate",
        matches,
        except_ips,
        key: tracker.parts.clone(),
        rule: algorithm,
        ..Limit::default()
    });
    Ok(())
}

/// The tests for the requests of a limit: those of its tracker and `others` of its rule, without exempt networks.
fn tests_of_limit(
    rule: &Rule<'_, '_>,
    others: &[&Test],
    tracker: &Tracker,
    around: &Around<'_>,
) -> Result<Vec<Test>, String> {
    let mut all = tracker.tests.clone();
    for (_, exempt_at, networks) in around.exempt.iter().filter(|(exempt, ..)| *exempt == phase(rule)) {
        if tracker.parts != ["ip"] && tracker.at < *exempt_at {
            return Err("HAProxy also counts requests of networks that an earlier rule exempts".to_owned());
        }
        all.push(Test::NotFrom(networks.clone()));
    }
    for test in others {
        match test {
            test if tracker.tests.contains(test) => {}
            Test::NotFrom(_) if tracker.parts == ["ip"] => all.push((*test).clone()),
            _ => {
                return Err("HAProxy counts more requests than it refuses; Weir counts what a limit matches".to_owned());
            }
        }
    }
    Ok(all)
}

/// The tracker that a counter is of.
fn find<'t>(at: usize, rule: &Rule<'_, '_>, counter: &Counter, trackers: &'t [Tracker]) -> Result<&'t Tracker, String> {
    let found = if let Some(number) = &counter.tracker {
        trackers.iter().find(|tracker| tracker.number == *number && tracker.at < at)
    } else {
        let table = counter.table.as_deref().unwrap_or(rule.section);
        trackers.iter().find(|tracker| tracker.table == table && tracker.parts == ["ip"])
    };
    let is_its = |tracker: &&Tracker| counter.table.as_ref().is_none_or(|table| *table == tracker.table);
    found.filter(is_its).ok_or_else(|| "no translated rule counts for it".to_owned())
}

/// The reason why Weir has no limit by a counter.
fn reason(counter: &str) -> &'static str {
    match counter {
        "http_err_rate" | "http_err_cnt" | "http_fail_rate" => {
            "with `count` Weir would also refuse clients without errors that send many requests at once"
        }
        "conn_rate" | "sess_rate" => "Weir has no rate of connections",
        name if name.starts_with("gpc") || name.starts_with("gpt") => {
            "Weir has no general counters; see `ban` for clients that go on"
        }
        name if name.starts_with("bytes_") => "Weir counts bytes with `settle`, after an answer",
        name if name.ends_with("_cnt") => "Weir has no count without a period",
        _ => "Weir has no such counter",
    }
}

/// A period of `HAProxy` as that of a rate of Weir.
fn period(text: &str) -> Option<String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[at..] {
        "" | "ms" => "ms",
        "s" => "s",
        "m" => "min",
        "h" => "h",
        "d" => "day",
        _ => return None,
    };
    let number = &text[..at];
    let is_one = number == "1";
    (!number.is_empty()).then(|| if is_one { unit.to_owned() } else { format!("{number}{unit}") })
}
