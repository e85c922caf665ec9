//! What is stored and used again, in virtual time.

use std::sync::Arc;

use proptest::prelude::*;

use super::cache::{AnswerCache, Found};
use super::recording::{NewAnswer, Recording};
use super::rules::Reuse;
use crate::base::fields::FieldBuf;
use crate::base::telemetry::Metrics;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::policy::StaleRule;

/// `Sun, 06 Nov 1994 08:49:37 GMT`, at which all answers arrive.
const ARRIVAL_S: u64 = 784_111_777;
const DATE: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT";
const KEY: Key = Key { first: 1, second: 2 };
const RESOURCE: Key = Key { first: 3, second: 4 };

fn at(s: u64) -> Timestamp {
    Timestamp::from_ns((ARRIVAL_S + s) * 1_000_000_000)
}

fn cache(max_bytes: usize) -> Arc<AnswerCache> {
    let rule = StaleRule { max_age_ns: 600_000_000_000, max_bytes, causes: [true; 3] };
    AnswerCache::new(rule, Metrics::new("", "").unwrap().stale("a", ["", "", ""]))
}

/// Fields that are separated by `|`.
fn fields(lines: &str) -> FieldBuf {
    let lines = lines.split('|').filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// Stores an answer with this body. Returns whether it is stored.
fn store(cache: &Arc<AnswerCache>, key: Key, [answer, request]: [&str; 2], body: &[u8], now: Timestamp) -> bool {
    let (answer, request) = (fields(answer), fields(request));
    let new = NewAnswer { fields: answer, length: None, request: request.fields(), resource: RESOURCE, at: now };
    let Some(mut recording) = Recording::begin(new, &[(cache, key)], |name| name == "forwarded") else { return false };
    let is_recorded = body.chunks(1000).all(|piece| recording.push(piece));
    if is_recorded {
        recording.finish();
    }
    is_recorded
}

fn find(cache: &AnswerCache, key: Key, request: &str, now: Timestamp) -> Option<Found> {
    cache.find(key, fields(request).fields(), now)
}

/// Stores an answer with these fields, and finds it for the next request `after_s` seconds later. `expected` are its age and
/// remaining freshness in seconds.
fn check([answer, first, then]: [&str; 3], after_s: u64, expected: Option<(u64, i64)>) {
    let cache = cache(1 << 20);
    store(&cache, KEY, [answer, first], b"body", at(0));
    let found = find(&cache, KEY, then, at(after_s)).map(|Found { reuse: Reuse { age_s, ttl_s }, .. }| (age_s, ttl_s));
    assert_eq!(found, expected, "{answer} / {first} / {then} after {after_s} s");
    assert!(find(&cache, RESOURCE, then, at(0)).is_none(), "another key");
}

/// Each row: the fields of an answer, those of its request and of the next request, the seconds between both, and the
/// result.
#[test]
fn reuse_of_answers() {
    let auth = "authorization: Basic a";
    for (answer, first, then, after_s, expected) in [
        // Without a lifetime an answer is stale at once, and used all the same.
        ("", "", "", 5, Some((5, -5))),
        (DATE, "", "", 600, Some((600, -600))),
        (DATE, "", "", 601, None),
        ("cache-control: max-age=60", "", "", 20, Some((20, 40))),
        ("cache-control: MAX-AGE=60", "", "", 20, Some((20, 40))),
        ("cache-control: max-age=60", "", "", 90, Some((90, -30))),
        ("expires: Sun, 06 Nov 1994 08:50:37 GMT | date: Sun, 06 Nov 1994 08:49:37 GMT", "", "", 20, Some((20, 40))),
        ("expires: 0", "", "", 20, Some((20, -20))),
        ("pragma: no-cache", "", "", 0, None),
        // Its age when it arrived counts.
        ("age: 100 | cache-control: max-age=60", "", "", 5, Some((105, -45))),
        ("date: Sun, 06 Nov 1994 08:48:37 GMT", "", "", 5, Some((65, -65))),
        ("age: 18446744073709551615", "", "", 600, Some((1 << 31, -(1 << 31) - 600))),
        ("age: -1 | date: never", "", "", 5, Some((5, -5))),
        // RFC 9111, section 4.2.4.
        ("cache-control: max-age=60, must-revalidate", "", "", 59, Some((59, 1))),
        ("cache-control: max-age=60, must-revalidate", "", "", 60, None),
        ("cache-control: s-maxage=60", "", "", 59, Some((59, 1))),
        ("cache-control: s-maxage=60", "", "", 60, None),
        ("cache-control: s-maxage=60, max-age=600", "", "", 60, None),
        ("cache-control: max-age=60, proxy-revalidate", "", "", 0, None),
        ("cache-control: max-age=60, no-cache", "", "", 0, None),
        ("cache-control: max-age=60, no-cache=\"x-a\"", "", "", 0, None),
        ("cache-control: no-store", "", "", 0, None),
        ("cache-control: max-age=60 | cache-control: No-Store", "", "", 0, None),
        // Who asks.
        ("cache-control: private", "", "", 0, None),
        ("cache-control: PRIVATE", "", "", 0, None),
        ("cache-control: private=\"x-a\"", "", "", 0, None),
        ("cache-control: private", auth, auth, 0, Some((0, 0))),
        ("cache-control: private, s-maxage=60", auth, auth, 0, None),
        ("", auth, auth, 0, Some((0, 0))),
        ("set-cookie: a=b", auth, auth, 0, None),
        ("set-cookie: a=b | cache-control: public, immutable", "", "", 0, None),
        // What the next request says.
        ("", "", "cache-control: no-cache", 0, None),
        ("", "", "cache-control: NO-CACHE", 0, None),
        ("", "", "pragma: No-Cache", 0, None),
        ("", "", "cache-control: max-age=4", 5, None),
        ("", "", "cache-control: max-age=6", 5, Some((5, -5))),
        ("", "", "cache-control: max-stale=4", 5, None),
        ("", "", "cache-control: max-stale=6", 5, Some((5, -5))),
        ("", "", "cache-control: min-fresh=1", 5, None),
        ("cache-control: max-age=60", "", "cache-control: min-fresh=40", 20, Some((20, 40))),
        ("cache-control: max-age=60", "", "cache-control: min-fresh=41", 20, None),
        ("", "", "cache-control: only-if-cached", 5, Some((5, -5))),
        ("", "cache-control: no-store", "", 0, None),
    ] {
        check([answer, first, then], after_s, expected);
    }
}

#[test]
fn fields_that_select_an_answer() {
    let auth = "authorization: Basic a";
    for (answer, first, then, expected) in [
        ("vary: a", "a: 1", "a: 1", Some((0, 0))),
        ("vary: a", "a: 1", "A: 1", Some((0, 0))),
        ("vary: a", "a: 1", "a: 2", None),
        ("vary: a", "a: 1", "", None),
        ("vary: a", "", "a: 1", None),
        ("vary: a", "", "", Some((0, 0))),
        ("vary: a", "a: 1 | a: 2", "a: 1 | a: 3", None),
        ("vary: a", "a: 1 | a: 2", "a: 1, 2", Some((0, 0))),
        ("vary: b | vary: c, A", "a: 1", "a: 2", None),
        ("vary: *", "", "", None),
        ("vary: a, *", "", "", None),
        ("vary: a b", "", "", None),
        ("vary: forwarded", "", "", None),
        ("vary: authorization", auth, auth, Some((0, 0))),
        ("vary: ,", "a: 1", "a: 2", Some((0, 0))),
    ] {
        check([answer, first, then], 0, expected);
    }
}

#[test]
fn the_newest_of_equal_requests_is_kept() {
    let cache = cache(1 << 20);
    let body = |request: &str| find(&cache, KEY, request, at(0)).map(|found| found.answer.body().to_vec());
    for number in 0..20 {
        let request = format!("a: {number}");
        assert!(store(&cache, KEY, ["vary: a", &request], &[number, 1], at(0)));
        assert!(store(&cache, KEY, ["vary: a", &request], &[number, 2], at(0)));
        assert_eq!(body(&request), Some(vec![number, 2]));
    }
    let kept: Vec<_> = (0..20).filter(|number| body(&format!("a: {number}")).is_some()).collect();
    assert_eq!(kept, (12..20).collect::<Vec<u8>>(), "at most eight variants");
}

#[test]
fn a_change_ends_earlier_answers() {
    let cache = cache(1 << 20);
    assert!(store(&cache, KEY, ["", ""], b"a", at(0)));
    cache.change(Key { first: 7, second: 7 }, at(1));
    assert!(find(&cache, KEY, "", at(2)).is_some(), "another resource");
    cache.change(RESOURCE, at(1));
    assert!(find(&cache, KEY, "", at(2)).is_none());
    assert!(store(&cache, KEY, ["", ""], b"b", at(2)));
    assert_eq!(find(&cache, KEY, "", at(2)).map(|found| found.answer.body().to_vec()), Some(b"b".to_vec()));
}

#[test]
fn memory_is_given_back() {
    let cache = cache(1 << 16);
    let key = |number: u64| Key { first: number, second: 0 };
    assert!(!store(&cache, KEY, ["", ""], &[0; 8193], at(0)), "more than an eighth");
    assert_eq!(cache.bytes(), 0);
    assert!(store(&cache, key(0), ["", ""], &[0; 8192], at(0)));
    let first = find(&cache, key(0), "", at(0)).unwrap();
    for number in 1..100 {
        assert!(store(&cache, key(number), ["", ""], &[0; 5000], at(0)));
        assert!(cache.bytes() <= 1 << 16);
    }
    assert!(find(&cache, key(0), "", at(0)).is_none() && find(&cache, key(99), "", at(0)).is_some());
    assert_eq!(first.answer.body().len(), 8192, "a client still gets it");
    cache.sweep(at(600));
    assert!(find(&cache, key(99), "", at(600)).is_some());
    let held = cache.bytes();
    cache.sweep(at(601));
    assert!(cache.bytes() >= 8192 && cache.bytes() < held, "only what the client gets is left");
    drop(first);
    assert_eq!(cache.bytes(), 0);
}

/// Answers that are being recorded take a quarter together, so that slow clients do not evict all others.
#[test]
fn recordings_take_a_quarter() {
    let (cache, request) = (cache(1 << 20), fields(""));
    let begin = || {
        let (fields, length) = (fields(DATE), Some(100_000));
        let new = NewAnswer { fields, length, request: request.fields(), resource: RESOURCE, at: at(0) };
        Recording::begin(new, &[(&cache, KEY)], |_| false)
    };
    let recordings = [(); 4].map(|()| begin());
    assert_eq!(recordings.iter().flatten().count(), 2);
    drop(recordings);
    assert!(begin().is_some());
}

/// An answer that is too old is given back when a request finds it.
#[test]
fn an_old_answer_is_dropped_when_it_is_found() {
    let cache = cache(1 << 16);
    assert!(store(&cache, KEY, ["", ""], &[0; 1000], at(0)));
    assert!(find(&cache, KEY, "", at(600)).is_some() && cache.bytes() > 1000);
    assert!(find(&cache, KEY, "", at(601)).is_none());
    assert_eq!(cache.bytes(), 0);
}

/// Answers that clients still get leave no room for others.
#[test]
fn answers_in_use_count() {
    let cache = cache(1 << 16);
    let mut used = Vec::new();
    for number in 0..20 {
        let key = Key { first: number, second: 0 };
        store(&cache, key, ["", ""], &[0; 8000], at(0));
        used.extend(find(&cache, key, "", at(0)));
    }
    assert_eq!(used.len(), 7);
    assert!(!store(&cache, KEY, ["", ""], &[0; 8000], at(0)) && cache.bytes() <= 1 << 16);
    used.pop();
    assert!(store(&cache, KEY, ["", ""], &[0; 8000], at(0)));
}

#[test]
fn a_dropped_recording_stores_nothing() {
    let (cache, request) = (cache(1 << 16), FieldBuf::default());
    let request = request.fields();
    let new = NewAnswer { fields: fields(DATE), length: Some(100), request, resource: RESOURCE, at: at(0) };
    let mut recording = Recording::begin(new, &[(&cache, KEY)], |_| false).unwrap();
    assert!(recording.push(&[0; 50]) && cache.bytes() > 100);
    drop(recording);
    assert!(cache.bytes() == 0 && find(&cache, KEY, "", at(0)).is_none());
}

proptest! {
    /// No field of a service or a client makes it panic, and a private or secret answer is never shared.
    #[test]
    fn any_fields_are_judged(
        answer in prop::collection::vec(prop::sample::select(WORDS), 0..4),
        control in "[ -~]{0,30}",
        next in "[ -~]{0,30}",
        bytes in prop::collection::vec(any::<u8>(), 0..20),
        after_s in 0..1000_u64,
    ) {
        let cache = cache(1 << 20);
        let mut stored = fields(&answer.join(" | "));
        stored.push(b"cache-control", control.as_bytes());
        stored.push(b"age", &bytes);
        stored.push(b"vary", &bytes);
        let (request, mut then) = (FieldBuf::default(), FieldBuf::default());
        then.push(b"cache-control", next.as_bytes());
        then.push(b"cache-control", &bytes);
        let new = NewAnswer { fields: stored, length: Some(0), request: request.fields(), resource: RESOURCE, at: at(0) };
        let is_secret = answer.iter().any(|word| word.starts_with("set-cookie") || word.contains("rivate") || word.contains("tore"));
        if let Some(recording) = Recording::begin(new, &[(&cache, KEY)], |_| false) {
            prop_assert!(!is_secret, "{answer:?}");
            recording.finish();
        }
        let found = cache.find(KEY, then.fields(), at(after_s));
        prop_assert!(found.is_none_or(|found| found.reuse.age_s >= after_s));
    }
}

const WORDS: &[&str] = &[
    "set-cookie: a",
    "cache-control: Private",
    "cache-control: no-Store",
    "cache-control: max-age=60",
    "cache-control: max-age=18446744073709551616",
    "cache-control: max-age=18446744073709551615, max-stale",
    "cache-control: stale-if-error=99, max-age=\"5\"",
    "expires: Sun, 06 Nov 9999 08:49:37 GMT",
    "expires: Sun, 06 Nov 0001 08:49:37 GMT",
    "date: Sun, 06 Nov 9999 08:49:37 GMT",
    "date: Sun, 06 Nov 1000 08:49:37 GMT",
    "last-modified: Sun, 06 Nov 1994 08:49:37 GMT",
    "age: 9999999999999999999999",
    "pragma: x",
    "vary: a",
];
