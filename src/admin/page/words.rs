//! Numbers, times and rules as operators read them.

use std::time::Duration;

use serde_json::Value;

use crate::admin::explain::in_words;
use crate::admin::times::rfc3339;
use crate::base::time::Timestamp;
use crate::engine::limit::Algorithm;
use crate::engine::policy::{
    Allowed, BodyMember, HeaderTest, HostPattern, Limit, Match, MemberTest, Networks, OnLimit, Policy, TextRegex,
    Variant,
};

/// A number with a narrow space between groups of three digits.
pub(super) fn number(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::with_capacity(digits.len() + 8);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

/// A whole number with a narrow space between groups of three digits.
#[expect(clippy::cast_precision_loss)] // a number for the eye
pub(super) fn count(count: u64) -> String {
    number(count as f64)
}

/// The rate of `count` in so many seconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss)] // a number for the eye
pub(super) fn per_second(count: u64, seconds: f64) -> f32 {
    (count as f64 / seconds) as f32
}

/// The time of day in UTC of an instant in Unix seconds.
pub(super) fn clock(at_s: u64) -> String {
    let text = rfc3339(Timestamp::from_ns(at_s.saturating_mul(1_000_000_000)));
    text.get(11..19).unwrap_or_default().to_owned()
}

/// A day and a time in UTC, such as `2027-01-31 18:00`.
pub(super) fn day(at_s: u64) -> String {
    let text = rfc3339(Timestamp::from_ns(at_s.saturating_mul(1_000_000_000)));
    text.get(..16).unwrap_or_default().replace('T', " ")
}

/// A duration in its largest units, such as `1m 30s`. `none` stands for no duration.
pub(super) fn wait(ms: Option<u64>, none: &str) -> String {
    // Milliseconds of a long time mean nothing to the eye.
    let shown = |ms: u64| Duration::from_millis(if ms < 10_000 { ms } else { ms.div_ceil(1000) * 1000 });
    ms.map_or_else(|| none.to_owned(), |ms| humantime::format_duration(shown(ms)).to_string())
}

/// An instant of RFC 3339 in UTC, without fractions of a second.
pub(super) fn instant(text: &str) -> String {
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    let time = time.split(['.', 'Z']).next().unwrap_or_default();
    if time.is_empty() { date.to_owned() } else { format!("{date} {time} UTC") }
}

/// A rate per second, or per minute if it is small.
pub(super) fn rate(rate: f32) -> String {
    match rate {
        0.0 => "0/s".to_owned(),
        rate if rate < 0.95 => format!("{:.0}/min", (rate * 60.0).max(1.0)),
        rate if rate < 9.95 => format!("{rate:.1}/s"),
        rate => format!("{}/s", number(rate.into())),
    }
}

/// A measured time: with its fractions up to a second, and then as [`wait`].
pub(super) fn duration(duration: Duration) -> String {
    match u64::try_from(duration.as_millis()) {
        Ok(ms) if ms < 1000 => microseconds(duration.as_secs_f32() * 1e6),
        ms => wait(ms.ok(), "–"),
    }
}

/// A text with a capital at its begin, if it begins with a word and not with a name such as `ip:`.
pub(super) fn sentence(mut text: String) -> String {
    let word = text.split(' ').next().unwrap_or_default();
    if word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        text.get_mut(..1).map(str::make_ascii_uppercase);
    }
    text
}

/// Microseconds, from a thousand on as milliseconds.
pub(super) fn microseconds(us: f32) -> String {
    if us < 1000.0 { format!("{us:.0} µs") } else { format!("{:.1} ms", us / 1000.0) }
}

/// A part of 1 as percent; a dash if it is unknown.
pub(super) fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "–".to_owned(), |part| format!("{:.0} %", part * 100.0))
}

/// A value of JSON: an object as its names and values, null as a dash.
pub(super) fn value(json: &Value) -> String {
    let all = |texts: Vec<String>| texts.join(", ");
    match json {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(pairs) if pairs.is_empty() => "all requests".to_owned(),
        Value::Object(pairs) => all(pairs.iter().map(|(name, inner)| format!("{name} {}", value(inner))).collect()),
        Value::Array(items) => all(items.iter().map(value).collect()),
        other => other.to_string(),
    }
}

/// The requests to which a limit applies, a line for each condition but the paths.
pub(super) fn conditions(limit: &Limit) -> Vec<String> {
    let networks = networks(&limit.except.networks);
    let paths: Vec<_> = limit.except.paths.iter().map(|path| path.as_str().to_owned()).collect();
    requests(&limit.matches).into_iter().chain(list("except", &networks)).chain(list("except", &paths)).collect()
}

/// The first networks, and how many there are beside them: a file may list many.
fn networks(all: &Networks) -> Vec<String> {
    const SHOWN: usize = 20;
    let more = all.iter().len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| format!("{more} more"));
    all.iter().take(SHOWN).map(ToString::to_string).chain(more).collect()
}

fn list(name: &str, all: &[String]) -> Option<String> {
    (!all.is_empty()).then(|| format!("{name} {}", all.join(", ")))
}

/// A line for each condition but the paths.
pub fn requests(matches: &Match) -> Vec<String> {
    let host = |host: &HostPattern| match host {
        HostPattern::Exact(name) => name.to_string(),
        HostPattern::Below(domain) => format!("*{domain}"),
    };
    let header = |(name, test): &(http::HeaderName, HeaderTest)| match test {
        HeaderTest::Present => name.to_string(),
        // The value may be a credential.
        HeaderTest::Is(_) => format!("{name}: (a fixed value)"),
        HeaderTest::OneOf(values) => format!("{name}: ({} values)", values.len()),
        HeaderTest::Matches(_) => format!("{name}: (a regular expression)"),
    };
    // The values may be personal data.
    let member = |(member, test): &(BodyMember, MemberTest)| match test {
        MemberTest::Present => member.pointer.to_string(),
        MemberTest::Is(value) => format!("{}: {value}", member.pointer),
        MemberTest::OneOf(values) => format!("{}: ({} values)", member.pointer, values.len()),
        MemberTest::Matches(_) => format!("{}: (a regular expression)", member.pointer),
    };
    let regex = |regex: &TextRegex| regex.as_str().to_owned();
    [
        list("path matches", &matches.path_regexes.iter().map(regex).collect::<Vec<_>>()),
        list("method", &matches.methods.iter().map(ToString::to_string).collect::<Vec<_>>()),
        list("host", &matches.hosts.iter().map(host).collect::<Vec<_>>()),
        list("client", &networks(&matches.networks)),
        list("header", &matches.headers.iter().map(header).collect::<Vec<_>>()),
        list("body", &matches.json.iter().map(member).collect::<Vec<_>>()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The names of the parts of a limit's key.
pub fn key_parts(policy: &Policy, limit: &Limit) -> String {
    let names: Vec<_> = limit.key.iter().map(|part| policy.part_name(part).into_owned()).collect();
    if names.is_empty() { "one for all requests".to_owned() } else { names.join(", ") }
}

/// The mode of a limit, and the part of its keys to which it applies.
pub fn mode(limit: &Limit) -> String {
    if limit.is_partly_enforced() {
        return format!("enforce for {} % of the keys", limit.enforced_percent);
    }
    limit.mode.word().to_owned()
}

/// The action for requests that a limit does not admit.
pub fn on_limit(action: &OnLimit) -> &'static str {
    match action {
        OnLimit::Reject => "reject",
        OnLimit::Hold(_) => "hold",
        OnLimit::Delay(_) => "delay",
    }
}

/// The rule of a variant as it is written, with a bound that follows its service.
pub fn rule(allowed: &Allowed, variant: Variant) -> String {
    let Some(rule) = allowed.rule(variant) else { return "unlimited".to_owned() };
    let text = in_words(allowed.written(variant), None, rule);
    match rule {
        Algorithm::Concurrency(rule) if rule.bound().is_some() => format!("{text}, now {}", rule.max()),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short() {
        for (value, text) in
            [(0.0, "0"), (999.4, "999"), (1000.0, "1\u{202f}000"), (12_345_678.0, "12\u{202f}345\u{202f}678")]
        {
            assert_eq!(number(value), text);
        }
        assert_eq!((wait(Some(90_500), ""), wait(Some(1500), "")), ("1m 31s".to_owned(), "1s 500ms".to_owned()));
        assert_eq!(instant("2026-11-22T02:13:07.120Z"), "2026-11-22 02:13:07 UTC");
        assert_eq!(instant("for good"), "for good");
        let json = serde_json::json!({ "remaining": 3, "ban": { "until": null }, "rates": ["1/s", "9/h"] });
        assert_eq!(value(&json), "ban until –, rates 1/s, 9/h, remaining 3");
        for (per_second, text) in [
            (0.0, "0/s"),
            (0.017, "1/min"),
            (0.25, "15/min"),
            (0.949, "57/min"),
            (9.94, "9.9/s"),
            (1234.5, "1\u{202f}234/s"),
        ] {
            assert_eq!(rate(per_second), text);
        }
        let took = [0, 340, 12_345, 1_500_000].map(|us| duration(Duration::from_micros(us)));
        assert_eq!(took, ["0 µs", "340 µs", "12.3 ms", "1s 500ms"]);
        assert_eq!((microseconds(40.2), microseconds(1234.0)), ("40 µs".to_owned(), "1.2 ms".to_owned()));
        assert_eq!(["the end", "ip: no"].map(|text| sentence(text.to_owned())), ["The end", "ip: no"]);
        assert_eq!((percent(Some(0.256)), percent(None)), ("26 %".to_owned(), "–".to_owned()));
    }
}
