//! Algorithms, rates, costs, plans and overrides: what is wrong, and what the rest becomes.

use super::{UPSTREAM, brief, bucket, compile, said};
use crate::engine::limit::windows::WINDOWS_MAX;
use crate::engine::limit::{Algorithm, Allowance, Calendar, Quota, Rate, Unit};
use crate::engine::limit::{concurrency, fixed_window, sliding_log, sub_window};
use crate::engine::policy::{Allowed, Cost, CostSource, HoldRule, Limit, OnLimit, Variant};
use crate::engine::units::{Pointer, Weight};

const MIN_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MIN_NS;
const DAY_NS: u64 = 24 * HOUR_NS;

/// The configuration of a limit that is right but for `rest`.
fn text_of(rest: &str) -> String {
    format!("[[limit]]\nname = \"a\"\nkey = [\"ip\"]\n{rest}\n{}", source(rest))
}

fn brief_of(rest: &str) -> String {
    brief(&text_of(rest))
}

/// Where plans are, if `rest` has any.
fn source(rest: &str) -> &'static str {
    if rest.contains("plan") { "[plans]\nfrom = \"header:x-plan\"\n" } else { "" }
}

/// The limit that `rest` makes.
fn limit(rest: &str) -> Limit {
    limit_by("[\"ip\"]", rest)
}

fn limit_by(key: &str, rest: &str) -> Limit {
    let text = format!("[[limit]]\nname = \"a\"\nkey = {key}\n{rest}\n{}{UPSTREAM}", source(rest));
    let config = compile(&text).unwrap_or_else(|problems| panic!("{text}\n{problems}"));
    config.policy.limits()[0].clone()
}

fn usual(rest: &str) -> Algorithm {
    limit(rest).allowed.usual
}

fn rate(count: u64, period_ns: u64) -> Rate {
    Rate { count, period_ns }
}

fn calendar(count: u64, unit: Unit, every: u32, zone: &str) -> Algorithm {
    let calendar = Calendar::new(unit, every, zone).unwrap();
    Algorithm::FixedWindow(fixed_window::Rule::in_calendar(count, calendar).unwrap())
}

#[test]
fn rates_of_tokens_need_one_rate_that_this_process_counts() {
    for (rest, problem) in [
        ("rate = '9/s'\nmax_plan_rate = 7", "expected"),
        ("rate = '9/s'\nmax_plan_rate = 'fast'", "`fast` is not a rate"),
        ("rate = '9/s'\nmax_plan_rate = '8/s'", "is less than the rate, `9/s`"),
        ("rate = '9/s'\nmax_plan_rate = '99999999/s'", "is more than this limit can count"),
        ("rate = ['9/s', '90/min']\nmax_plan_rate = '99/s'", "needs a limit with one rate"),
        ("max = 9\nalgorithm = 'concurrency'\nmax_plan_rate = '99/s'", "needs a limit with one rate"),
        ("rate = '9/day'\nalgorithm = 'fixed_window'\nmax_plan_rate = '9/month'", "cannot be compared with `9/day`"),
        ("rate = '9/s'\nmax_plan_rate = '99/s'\ncandidate = { rate = '8/s' }", "does not go with `max_plan_rate`"),
        ("rate = '9/s'\nmax_plan_rate = '99/s'\nstage = 'arrival'", "is unknown at stage `arrival`"),
        (
            "rate = '9/s'\nmax_plan_rate = '99/s'\nstrategy = 'redis'\n[store.a]\nredis = 'redis://127.0.0.1:1'\n[fleet]\nstrategy = 'local'\nreplicas = 2\nsecret = { env = 'WEIR_FLEET_SECRET' }",
            "does not know the rates of tokens",
        ),
    ] {
        let said = said(&text_of(rest));
        assert!(said.contains(problem) && said.contains("max_plan_rate"), "{rest}\n{said}");
    }
}

/// The burst, the interval and the text of each plan.
#[test]
fn plans_are_rates() {
    let rules = "rate = '100/min'\nburst = 50\nmax_plan_rate = '1000/min'\nplans = { big = '7/s', 250 = '9/s' }";
    let Limit { allowed, .. } = limit(rules);
    let of = |plan: &str| {
        let variant = allowed.plan(plan);
        let rule = allowed.rule(variant).unwrap();
        let written = allowed.written(variant).and_then(|rule| rule.text(None)).unwrap_or_default();
        (rule.capacity(), MIN_NS / rule.interval_ns(), written)
    };
    let usual = "100/min, burst 50, token bucket";
    for (plan, burst, per_minute, part) in [
        ("200/min", 100, 200, "x2"),
        ("200", 100, 200, "x2"),
        ("12000 / 1h", 100, 200, "x2"),
        ("1/min", 1, 1, "x0.01"),
        ("1000/min", 500, 1000, "x10"),
        ("1001/min", 500, 1000, "x10"),
        ("4294967295/s", 500, 1000, "x10"),
    ] {
        assert_eq!(of(plan), (burst, per_minute, format!("{part} of {usual}")), "{plan}");
    }
    for plan in ["", "premium", "0", "0/min", "-1", "1/month", "2.5", "9/parsec", &"9".repeat(40), "x2"] {
        assert_eq!(of(plan), (50, 100, usual.to_owned()), "{plan}");
    }
    let named = ["big", "250"].map(|plan| of(plan).0);
    assert_eq!(named, [7, 9]);
    // Each plan has a rule of its own, up to 1024.
    let made: Vec<_> = (101..=1200).map(|count| of(&format!("{count}/2min")).2 != usual).collect();
    assert_eq!(made.iter().filter(|made| **made).count(), 1024 - 7, "beside those above");
    assert!(made[..1000].iter().all(|made| *made));
    // A copy may have another usual rule, so it has no rules yet.
    assert_eq!(of("1200/2min").2, usual);
    assert_ne!(allowed.clone().plan("1200/2min"), Variant::Usual);
}

#[test]
fn every_algorithm_can_be_chosen() {
    let quota = |burst| Quota::new(rate(100, MIN_NS), burst).unwrap();
    let leaky = |burst, shapes| Algorithm::LeakyBucket(quota(burst).shaping(shapes));
    let per_minute = rate(100, MIN_NS);
    let first = Algorithm::FixedWindow(fixed_window::Rule::from_first(per_minute).unwrap());
    let sub = |n| Algorithm::SubWindow(sub_window::Rule::new(per_minute, n).unwrap());
    for (text, rule) in [
        ("rate = '100/min'", bucket(100, MIN_NS, 100)),
        ("rate = ['100/min']", bucket(100, MIN_NS, 100)),
        ("rate = '100/min'\nburst = 5\nalgorithm = 'token_bucket'", bucket(100, MIN_NS, 5)),
        ("rate = '100/min'\nalgorithm = 'leaky_bucket'", leaky(100, false)),
        ("rate = '100/min'\nburst = 7\nalgorithm = 'leaky_bucket'\non_limit = 'hold'", leaky(7, true)),
        ("rate = '100/min'\nalgorithm = 'fixed_window'", calendar(100, Unit::Minute, 1, "UTC")),
        ("rate = '9/3month'\nalgorithm = 'fixed_window'", calendar(9, Unit::Month, 3, "UTC")),
        (
            "rate = '9/day'\nalgorithm = 'fixed_window'\ntime_zone = 'Europe/Berlin'",
            calendar(9, Unit::Day, 1, "Europe/Berlin"),
        ),
        ("rate = '100/min'\nalgorithm = 'fixed_window'\nalign = 'first'", first),
        (
            "rate = '100/min'\nalgorithm = 'sliding_log'",
            Algorithm::SlidingLog(sliding_log::Rule::new(per_minute).unwrap()),
        ),
        (
            "rate = '100/min'\nalgorithm = 'sliding_window'",
            Algorithm::SlidingWindow(Allowance::new(per_minute).unwrap()),
        ),
        ("rate = '100/min'\nalgorithm = 'sub_window'", sub(10)),
        ("rate = '100/min'\nalgorithm = 'sub_window'\nsub_windows = 60", sub(60)),
        ("max = 3\nalgorithm = 'concurrency'", Algorithm::Concurrency(concurrency::Rule::new(3).unwrap())),
        (
            "rate = ['100/min', '1000/h']",
            Algorithm::Several([bucket(100, MIN_NS, 100), bucket(1000, HOUR_NS, 1000)].into()),
        ),
        (
            "rate = ['9/h', '99/month']\nalgorithm = 'fixed_window'",
            Algorithm::Several([calendar(9, Unit::Hour, 1, "UTC"), calendar(99, Unit::Month, 1, "UTC")].into()),
        ),
    ] {
        assert_eq!(usual(text), rule, "{text}");
    }
}

#[test]
fn a_leaky_bucket_queues_as_many_as_its_burst() {
    let hold = |rest: &str| match limit(&format!("rate = '9/s'\non_limit = 'hold'\n{rest}")).on_limit {
        OnLimit::Hold(HoldRule { max_waiting, .. }) => max_waiting,
        other => panic!("{other:?}"),
    };
    assert_eq!(hold("algorithm = 'leaky_bucket'"), 9);
    assert_eq!(hold("algorithm = 'leaky_bucket'\nburst = 25"), 25);
    assert_eq!(hold("algorithm = 'leaky_bucket'\nburst = 25\nhold = { max_waiting = 3 }"), 3);
    assert_eq!(hold("burst = 25"), 1000);
}

#[test]
fn options_of_other_algorithms() {
    insta::assert_snapshot!(brief_of(r#"rate = "5/s"
algorithm = "sliding-windw""#), @r#"
    5:13 «"sliding-windw"» `limit.algorithm`: `sliding-windw` is not one of `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_log`, `sliding_window`, `sub_window`, `concurrency`
      = did you mean `sliding_window`?
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/s"
max = 3
align = "first"
time_zone = "UTC"
sub_windows = 5"#), @r#"
    5:7 «3» `limit.max` belongs to `concurrency`, not to `token_bucket`
      = it goes with `algorithm = "concurrency"`
    6:9 «"first"» `limit.align` belongs to `fixed_window`, not to `token_bucket`
      = it goes with `algorithm = "fixed_window"`
    7:13 «"UTC"» `limit.time_zone` belongs to `fixed_window`, not to `token_bucket`
      = it goes with `algorithm = "fixed_window"`
    8:15 «5» `limit.sub_windows` belongs to `sub_window`, not to `token_bucket`
      = it goes with `algorithm = "sub_window"`
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/s"
burst = 3
algorithm = "sliding_log""#), @r"
    5:9 «3» `limit.burst` belongs to `token_bucket` and `leaky_bucket`, not to `sliding_log`
      = remove it: the burst is the COUNT of `rate`
    ");
    insta::assert_snapshot!(brief_of(r#"rate = "5/s"
burst = 3
settle = { by = "elapsed_ms" }
algorithm = "concurrency""#), @r#"
    1:1 «[[limit]]» `limit.max` is missing
      = expected whole number from 1, or `auto`. Units in flight at once; with `auto` as many as the service answers without a queue.
    4:8 «"5/s"» `limit.rate`: does not apply to `concurrency`
      = use `max`, the number of units that may be in flight
    5:9 «3» `limit.burst` belongs to `token_bucket` and `leaky_bucket`, not to `concurrency`
      = remove it: `max` limits the units in flight
    6:10 «{ by = "elapsed_ms" }» `limit.settle`: does not apply to `concurrency`
      = a unit in flight comes back as it was taken, when its request ends
    "#);
    insta::assert_snapshot!(brief_of(r#"algorithm = "fixed_window"
align = "frist"
plans = { a = { max = 3 } }"#), @r#"
    1:1 «[[limit]]» `limit.rate` is missing
      = expected rate, or list of 1 to 4 rates. COUNT `/` [N] UNIT, with UNIT `ms`, `s`, `min`, `h`, `day`, `week`, or `month` in calendar windows; of several rates all must admit. `concurrency` has `max` instead.
    5:9 «"frist"» `limit.align`: `frist` is not one of `calendar`, `first`
      = did you mean `first`?
    6:15 «{ max = 3 }» `limit.plans.NAME.rate` is missing
      = expected rate, or list of 1 to 4 rates. As `limit.rate`.
    6:23 «3» `limit.plans.NAME.max` belongs to `concurrency`, not to `fixed_window`
      = it goes with `algorithm = "concurrency"`
    "#);
    // What an unknown algorithm needs nobody knows.
    insta::assert_snapshot!(brief_of(r#"algorithm = "concurency"
max = 0
cost = "two""#), @r#"
    4:13 «"concurency"» `limit.algorithm`: `concurency` is not one of `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_log`, `sliding_window`, `sub_window`, `concurrency`
      = did you mean `concurrency`?
    5:7 «0» `limit.max`: expected whole number from 1, or `auto`
    6:8 «"two"» `limit.cost`: expected whole number from 1, or table [this is a string]
    "#);
}

#[test]
fn rates_that_cannot_be() {
    insta::assert_snapshot!(brief_of(r#"rate = []"#), @"4:8 «[]» `limit.rate`: must not be empty");
    insta::assert_snapshot!(brief_of(r#"rate = ["5/s", "5/s", "6/mn", 7]
burst = 3"#), @r#"
    4:16 «"5/s"» `limit.rate`: `5/s` occurs twice [also 4:9 «"5/s"» first here]
    4:23 «"6/mn"» `limit.rate`: unknown unit `mn`; units are ms, s, min, h, day, week, month
      = did you mean `min`?
    4:31 «7» `limit.rate`: expected rate, or list of 1 to 4 rates [this is an integer]
      = write `"7/s"`
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = ["1/s", "2/min", "3/h", "4/day", "5/week"]
burst = 3"#), @r#"
    4:41 «"5/week"» `limit.rate`: a limit has at most 4 rates
    5:9 «3» `limit.burst`: does not apply to several rates
      = the burst of each rate is its COUNT; for another burst, write one `[[limit]]` for each rate
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "1000/month""#), @r#"
    4:8 «"1000/month"» `limit.rate`: a month has no fixed length
      = only `algorithm = "fixed_window"` with `align = "calendar"` can count months; otherwise write `30day`
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = ["5/36h", "5/13month"]
algorithm = "fixed_window"
time_zone = "Europe/Berln""#), @r#"
    4:9 «"5/36h"» `limit.rate`: a window of the calendar is longer than a day (for units up to the hour) or a year
      = `align = "first"` accepts any length, but no months
    4:18 «"5/13month"» `limit.rate`: a window of the calendar is longer than a day (for units up to the hour) or a year
      = `align = "first"` accepts any length, but no months
    6:13 «"Europe/Berln"» `limit.time_zone`: `Europe/Berln` is no time zone of the IANA database
      = did you mean `Europe/Berlin`?
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/month"
algorithm = "fixed_window"
align = "first"
time_zone = "Mars""#), @r#"
    4:8 «"5/month"» `limit.rate`: a month has no fixed length
      = only `algorithm = "fixed_window"` with `align = "calendar"` can count months; otherwise write `30day`
    7:13 «"Mars"» `limit.time_zone`: `Mars` is no time zone of the IANA database
      = write it like "Europe/Berlin"
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = ["2000000/day", "5/99999week"]
algorithm = "sliding_log""#), @r#"
    4:9 «"2000000/day"» `limit.rate`: `sliding_log` counts at most 1000000: it remembers each
      = `sliding_window` accepts any number
    4:24 «"5/99999week"» `limit.rate`: the period `99999week` is too long
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/s"
algorithm = "sub_window"
sub_windows = 5000"#), @"6:15 «5000» `limit.sub_windows`: expected whole number from 1 to 1024");
    assert_eq!(WINDOWS_MAX, 4, "the snapshots and docs/guide/limits.md say so");
}

#[test]
fn costs_become_what_they_say() {
    let cost = |text: &str| limit(&format!("rate = '100/min'\ncost = {text}")).cost;
    assert!(matches!(cost("5"), Cost::Units(5)));
    let Cost::Table { lines, default } = cost(
        "{ default = 2, paths = [{ path = '/a/{id}', method = ['POST', 'PUT'], units = 9 }, { method = 'GET', units = 1 }] }",
    ) else {
        panic!("a table")
    };
    assert_eq!((default, lines.len()), (2, 2));
    assert_eq!((lines[0].paths[0].as_str(), lines[0].methods.len(), lines[0].units), ("/a/{id}", 2, 9));
    assert!(lines[1].paths.is_empty() && lines[1].methods == [http::Method::GET]);
    let Cost::FromRequest { by, max, default } = cost("{ header = 'X-Weight', max = 100, default = 7 }") else {
        panic!("said")
    };
    assert_eq!((by, max, default), (CostSource::Header("x-weight".parse().unwrap()), 100, 7));
    let Cost::FromRequest { by, max, default } = cost("{ query = 'n', max = 50 }") else { panic!("said") };
    assert_eq!((by, max, default), (CostSource::Query("n".into()), 50, 1));
    let Cost::FromBody(cost) =
        cost("{ json = '/n', max = 50, estimate = 'bytes/4', beyond = 'refuse' }\nread_body = '1KiB'")
    else {
        panic!("from the body")
    };
    assert_eq!((cost.max, cost.default, cost.bytes_per_unit), (50, 1, Some(4)));
    assert_eq!((cost.read_bytes, cost.refuses_longer), (1024, true));
    let Cost::FromBody(cost) =
        self::limit("rate = '9/s'\ncost = { units = { '/n' = 2.5, '/m' = '1/3' }, max = 9 }").cost
    else {
        panic!("from the body")
    };
    let term = |pointer, weight| (Pointer::parse(pointer).unwrap(), Weight::parse(weight).unwrap());
    assert!(cost.numbers.contains(&term("/n", "2.5")) && cost.numbers.contains(&term("/m", "1/3")));
}

#[test]
fn costs_that_cannot_be() {
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
cost = "5""#), @r#"5:8 «"5"» `limit.cost`: expected whole number from 1, or table [this is a string]"#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
cost = { default = 6, paths = [{ path = "/a", units = 7 }, { path = "b", units = 0 }] }"#), @r#"
    5:20 «6» `limit.cost.default`: a cost of 6 can never pass: the burst is 5
    5:55 «7» `limit.cost.paths.units`: a cost of 7 can never pass: the burst is 5
    5:69 «"b"» `limit.cost.paths.path`: `b`: a path pattern begins with `/`
      = did you mean `/b`?
    5:82 «0» `limit.cost.paths.units`: expected whole number from 1
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
cost = { paths = [{ units = 1 }, { path = "/a" }, { path = "/a", units = 1, cost = 2 }, { path = "/a", method = "get", units = 2 }, 5] }"#), @r#"
    5:19 «{ units = 1 }» `limit.cost.paths`: an entry needs `path` or `method`
      = `default` is the cost of all other requests
    5:34 «{ path = "/a" }» `limit.cost.paths.units` is missing
      = expected whole number from 1. Units that such a request takes.
    5:77 «cost» unknown key `cost` in `[limit.cost.paths]`
      = did you mean `limit.cost`?
    5:113 «"get"» `limit.cost.paths.method`: `get` never matches: methods are in upper case
      = did you mean `GET`?
    5:133 «5» `limit.cost.paths`: expected table [this is an integer]
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
cost = { paths = [{ path = ["/a", "/b"], units = 1 }, { path = "/b", method = "GET", units = 2 }], max = 3 }"#), @r#"
    5:55 «{ path = "/b", method = "GET", units = 2 }» `limit.cost.paths`: this entry is never used [also 5:19 «{ path = ["/a", "/b"], units = 1 }» this entry matches all of its requests]
    5:106 «3» `limit.cost.max`: belongs to `header`, `query`, `json` and `units`
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
cost = { header = "x y", max = 6 }"#), @r#"
    5:19 «"x y"» `limit.cost.header`: `x y` is not a header name
    5:32 «6» `limit.cost.max`: a cost of 6 can never pass: the burst is 5
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
cost = { header = "x-weight", query = "n" }"#), @r#"
    5:39 «"n"» `limit.cost` has both `header` and `query`
      = choose one of `paths`, `header`, `query`, `json` and `units`
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
cost = { query = "" }"#), @r#"
    5:8 «{ query = "" }» `limit.cost.max` is missing
      = expected whole number from 1. Most units that one request can name.
    5:18 «""» `limit.cost.query`: must not be empty
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
cost = { default = 2 }"#), @r"
    5:8 «{ default = 2 }» `limit.cost` has none of `paths`, `header`, `query`, `json` and `units`
      = write a constant cost as `cost = 5`
    ");
    for (text, expected) in [
        ("cost = { json = 'n', max = 5 }", "`limit.cost.json`: expected a JSON pointer, such as `/usage/total_tokens`"),
        ("cost = { json = '/n' }", "`limit.cost.max` is missing"),
        ("cost = { json = '/n', max = 6 }", "`limit.cost.max`: a cost of 6 can never pass"),
        ("cost = { json = '/n', query = 'n', max = 5 }", "`limit.cost` has both `query` and `json`"),
        (
            "cost = { json = '/n', max = 5, estimate = 'bytes/0' }",
            "`limit.cost.estimate`: expected the bytes of a unit",
        ),
        ("cost = { json = '/n', max = 5, beyond = 'less' }", "`limit.cost.beyond`: "),
        ("cost = { json = '/n', max = 5 }\nread_body = '2MiB'", "`limit.read_body`: "),
        (
            "cost = { json = '/n', max = 5 }\nstage = 'arrival'",
            "`limit.cost`: a limit of stage `arrival` cannot read bodies",
        ),
        ("cost = { units = { '/n' = 1, 'm' = 1 }, max = 5 }", "`limit.cost.units`: expected a JSON pointer"),
        ("cost = { units = { '/n' = -1 }, max = 5 }", "`limit.cost.units`: expected a number from 0 to 1000000000"),
        ("cost = { units = {}, max = 5 }", "`limit.cost.units`: must not be empty"),
        ("cost = { units = { '/n' = 1 }, json = '/n', max = 5 }", "`limit.cost` has both `json` and `units`"),
        (
            "cost = { units = { '/n' = 1 }, max = 5 }\nstage = 'arrival'",
            "`limit.cost`: a limit of stage `arrival` cannot read bodies",
        ),
        (
            "cost = { query = 'n', max = 5, beyond = 'max' }",
            "`limit.cost.beyond`: is valid only with `cost.json` or `cost.units`",
        ),
        ("cost = 5\nread_body = '1KiB'", "`limit.read_body`: has an effect only if the limit reads bodies"),
    ] {
        let said = said(&text_of(&format!("rate = '5/min'\n{text}")));
        assert!(!expected.contains("read_body") || said.matches("error: ").count() == 1, "{said}");
        assert!(said.contains(&format!("error: {expected}")), "{text}: {said}");
    }
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
cost = { paths = [] }"#), @"5:18 «[]» `limit.cost.paths`: must not be empty");
    insta::assert_snapshot!(brief_of(r#"rate = ["50/min", "7/h"]
cost = 8
plans = { free = "6/min", staff = "unlimited" }
overrides = { "192.0.2.7" = { rate = "9/min", burst = 2 } }"#), @r#"
    5:8 «8» `limit.cost`: a cost of 8 can never pass: the smallest count is 7
    5:8 «8» `limit.cost`: a cost of 8 can never pass: the burst of plan `free` is 6
    5:8 «8» `limit.cost`: a cost of 8 can never pass: the burst of an override is 2 [also 7:15 «"192.0.2.7"» this override]
    "#);
    insta::assert_snapshot!(brief_of(r#"algorithm = "concurrency"
max = 2
cost = { header = "x-weight", max = 3 }
plans = { free = { max = 1 } }"#), @r"
    6:37 «3» `limit.cost.max`: a cost of 3 can never pass: the `max` is 2
    6:37 «3» `limit.cost.max`: a cost of 3 can never pass: the `max` of plan `free` is 1
    ");
    insta::assert_snapshot!(brief_of(r#"algorithm = "fixed_window"
rate = "2/day"
cost = 3"#), @"6:8 «3» `limit.cost`: a cost of 3 can never pass: the count is 2");
}

#[test]
fn plans_and_overrides_become_rules() {
    let limit = limit_by(
        "['ip', 'method']",
        "rate = '100/min'\nplans = { premium = '1000/min', staff = 'unlimited', big = { rate = '1/s', burst = 500 } }\n\
         overrides = { '192.0.2.7|GET' = '5/min', '::1|PUT' = 'unlimited' }",
    );
    let Allowed { usual, plans, overrides, .. } = limit.allowed;
    assert_eq!(usual, bucket(100, MIN_NS, 100));
    let expected =
        [("premium", Some(bucket(1000, MIN_NS, 1000))), ("staff", None), ("big", Some(bucket(1, MIN_NS / 60, 500)))];
    assert_eq!(plans, expected.map(|(name, rule)| (name.into(), rule)));
    let expected = [("192.0.2.7|GET", Some(bucket(5, MIN_NS, 5))), ("::1|PUT", None)];
    assert_eq!(overrides, expected.map(|(name, rule)| (name.into(), rule)));
}

/// Operators read a rule as it is written, and not as it is computed.
#[test]
fn rules_keep_their_texts() {
    let allowed = limit_by(
        "['ip']",
        "rate = '5/15min'\nplans = { premium = '1000/min', staff = 'unlimited', big = { rate = '1/s', burst = 500 } }\n\
         overrides = { '192.0.2.7' = '7/min', '192.0.2.8' = { plan = 'big' }, '192.0.2.9' = 'unlimited' }",
    )
    .allowed;
    for (variant, expected) in [
        (Variant::Usual, Some("5/15min, token bucket")),
        (Variant::Plan(0), Some("1000/min, token bucket")),
        (Variant::Plan(1), None),
        (Variant::Plan(2), Some("1/s, burst 500, token bucket")),
        (Variant::Plan(9), None),
        (Variant::Override(0), Some("7/min, token bucket")),
        (Variant::Override(1), Some("1/s, burst 500, token bucket")),
        (Variant::Override(2), None),
    ] {
        let text = allowed.written(variant).and_then(|written| written.text(None));
        assert_eq!(text.as_deref(), expected, "{variant:?}");
    }
    let several = limit("rate = ['5/15min', '100/day']").allowed.written.usual;
    assert_eq!(several.text(None).as_deref(), Some("5/15min and 100/day, token bucket"));
    assert_eq!(several.text(Some(1)).as_deref(), Some("100/day, token bucket"));
    for (rest, expected) in [
        ("algorithm = 'concurrency'\nmax = 20", "max 20, concurrency"),
        ("algorithm = 'sliding_window'\nrate = '90/h'", "90/h, sliding window"),
        ("rate = '50/s'\nburst = 100", "50/s, burst 100, token bucket"),
    ] {
        assert_eq!(limit(rest).allowed.written.usual.text(None).as_deref(), Some(expected));
    }
}

#[test]
fn where_one_rule_has_several_windows_all_are_of_that_kind() {
    let several = |rules: &[Algorithm]| Algorithm::Several(rules.into());
    let (minute, day) = (bucket(10, MIN_NS, 10), bucket(99, DAY_NS, 99));
    let allowed = limit("rate = '10/min'\nplans = { premium = ['10/min', '99/day'], staff = 'unlimited' }").allowed;
    assert_eq!(allowed.usual, several(std::slice::from_ref(&minute)));
    assert_eq!(allowed.plans[0].1, Some(several(&[minute.clone(), day.clone()])));
    assert_eq!(allowed.plans[1].1, None);
    let allowed = limit("rate = ['10/min', '99/day']\noverrides = { '192.0.2.7' = { rate = '10/min' } }").allowed;
    assert_eq!(allowed.usual, several(&[minute.clone(), day]));
    assert_eq!(allowed.overrides[0].1, Some(several(&[minute])));
}

#[test]
fn plans_and_overrides_that_cannot_be() {
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
plans = { a = "unlimitd", b = ["5/min", "unlimited"], c = 5, d = {}, e = { burst = 5, rte = "5/s" }, f = [], g = "9999999999/s" }"#), @r#"
    5:15 «"unlimitd"» `limit.plans.NAME`: `unlimitd` is not a rate
      = did you mean `unlimited`?
    5:41 «"unlimited"» `limit.plans.NAME`: `unlimited` cannot be in a list
    5:59 «5» `limit.plans.NAME`: expected rate, list of rates, factor, table, or `unlimited` [this is an integer]
      = write `"5/s"`
    5:66 «{}» `limit.plans.NAME.rate` is missing
      = expected rate, or list of 1 to 4 rates. As `limit.rate`.
    5:74 «{ burst = 5, rte = "5/s" }» `limit.plans.NAME.rate` is missing
      = expected rate, or list of 1 to 4 rates. As `limit.rate`.
    5:87 «rte» unknown key `rte` in `[limit.plans.NAME]`
      = did you mean `rate`?
    5:106 «[]» `limit.plans.NAME`: must not be empty
    5:114 «"9999999999/s"» `limit.plans.NAME`: is faster than 10000000 a second
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
plans = "unlimited"
overrides = ["192.0.2.7"]"#), @r#"
    5:9 «"unlimited"» `limit.plans`: expected table [this is a string]
    6:13 «["192.0.2.7"]» `limit.overrides`: expected table [this is a list]
    "#);
    insta::assert_snapshot!(brief_of(r#"algorithm = "concurrency"
max = 5
plans = { a = "5/s", b = { rate = "5/s" }, c = { max = 0 }, d = 7 }"#), @r#"
    6:15 «"5/s"» `limit.plans.NAME`: `concurrency` has no rate
      = write it like `{ max = 100 }`
    6:26 «{ rate = "5/s" }» `limit.plans.NAME.max` is missing
      = expected whole number from 1. As `limit.max`.
    6:35 «"5/s"» `limit.plans.NAME.rate`: does not apply to `concurrency`
      = use `max`, the number of units that may be in flight
    6:56 «0» `limit.plans.NAME.max`: expected whole number from 1
    6:65 «7» `limit.plans.NAME`: expected rate, list of rates, factor, table, or `unlimited` [this is an integer]
      = write `"7/s"`
    "#);
    insta::assert_snapshot!(brief_of(r#"algorithm = "sliding_window"
rate = "5/s"
plans = { a = { rate = "5/s", burst = 9 } }"#), @r"
    6:39 «9» `limit.plans.NAME.burst` belongs to `token_bucket` and `leaky_bucket`, not to `sliding_window`
      = remove it: the burst is the COUNT of `rate`
    ");
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
overrides = { "192.0.2.300" = "5/s", "192.0.2.0/24" = "5/s", "192.0.2.7|GET" = "5/s" }"#), @r#"
    5:15 «"192.0.2.300"» `limit.overrides.NAME`: `192.0.2.300` is not an address
      = an override applies to one address, as in "192.0.2.7"
    5:38 «"192.0.2.0/24"» `limit.overrides.NAME`: `192.0.2.0/24` is not a network that this key counts as one
      = this part of the key counts this address as `192.0.2.0`
    5:62 «"192.0.2.7|GET"» `limit.overrides.NAME`: `192.0.2.7|GET` is not an address
      = an override applies to one address, as in "192.0.2.7"
    "#);
    insta::assert_snapshot!(brief_of(r#"rate = "5/min"
overrides = { "::1" = "5/s", "0:0::2" = "5/s", "192.0.2.7" = "5/s", "::ffff:192.0.2.7" = "6/s" }"#), @r#"
    5:30 «"0:0::2"» `limit.overrides.NAME`: this key occurs twice [also 5:15 «"::1"» first here]
    5:69 «"::ffff:192.0.2.7"» `limit.overrides.NAME`: this key occurs twice [also 5:48 «"192.0.2.7"» first here]
    "#);
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = []
rate = "5/min"
overrides = { x = "5/s" }"#), @r"
    5:15 «x» `limit.overrides.NAME`: with `key = []` all requests share one key, so there is no key to override
      = write the numbers in the limit itself
    ");
    insta::assert_snapshot!(brief(r#"[[limit]]
name = "a"
key = ["path", "route", "host", "method"]
match = { path = "/shops/{id}" }
rate = "5/min"
[limit.overrides]
"/shops/7|/shops/{id}|shop.test|GET" = "6/min"
"/shops/7|/shops/{id}" = "6/min"
"/shops//7|/shops/{id}|shop.test|GET" = "6/min"
"shops|/shops/{id}|shop.test|GET" = "6/min"
"/shops/7|/shop/{id}|shop.test|GET" = "6/min"
"/shops/7|/shops/{id}|Shop.test|GET" = "6/min"
"/shops/7|/shops/{id}|*.test|GET" = "6/min"
"/shops/7|/shops/{id}|shop.test:80|GET" = "6/min"
"/shops/7|/shops/{id}|shop.test|get" = "6/min""#), @r#"
    8:1 «"/shops/7|/shops/{id}"» `limit.overrides.NAME`: this has 2 parts, and the key of this limit has 4
      = the parts are joined by `|`, in the order of `key`
    9:1 «"/shops//7|/shops/{id}|shop.test|GET"» `limit.overrides.NAME`: no path is `/shops//7`: Weir normalises paths before limits count them
      = did you mean `/shops/7`?
    10:1 «"shops|/shops/{id}|shop.test|GET"» `limit.overrides.NAME`: no path can be `shops`
    11:1 «"/shops/7|/shop/{id}|shop.test|GET"» `limit.overrides.NAME`: `/shop/{id}` is not one of `match.path`
      = did you mean `/shops/{id}`?
    12:1 «"/shops/7|/shops/{id}|Shop.test|GET"» `limit.overrides.NAME`: a host is written in lower case, not `Shop.test`
      = did you mean `shop.test`?
    13:1 «"/shops/7|/shops/{id}|*.test|GET"» `limit.overrides.NAME`: an override applies to one host
    14:1 «"/shops/7|/shops/{id}|shop.test:80|GET"» `limit.overrides.NAME`: `shop.test:80` is not a host
      = write a host in ASCII, without a port; `*.` at its start matches every subdomain
    15:1 «"/shops/7|/shops/{id}|shop.test|get"» `limit.overrides.NAME`: `get` never matches: methods are in upper case
      = did you mean `GET`?
    "#);
}

#[test]
fn plans_that_nobody_can_have() {
    let brief_of = |more: &str| {
        brief(&format!("[[limit]]\nname = \"a\"\nkey = []\nrate = \"1/s\"\nplans = {{ b = \"2/s\" }}\n{more}"))
    };
    insta::assert_snapshot!(brief_of("stage = \"arrival\"\n[plans]\nfrom = \"header:x-plan\""), @r#"5:9 «{ b = "2/s" }» `limit.plans`: the plan of a request is unknown at stage `arrival`"#);
}

#[test]
fn there_is_a_bound_on_exceptions() {
    let plans = |count: usize| {
        let plans = (0..count).map(|plan| format!("p{plan} = 'unlimited'")).collect::<Vec<_>>().join("\n");
        let limit = format!("[[limit]]\nname = 'a'\nkey = []\nrate = '1/s'\n[limit.plans]\n{plans}\n");
        compile(&format!("{UPSTREAM}{limit}{}", source(&limit)))
    };
    assert_eq!(plans(65_536).unwrap().policy.limits()[0].allowed.plans.len(), 65_536);
    let problems = plans(65_537).unwrap_err();
    assert_eq!(problems.iter().collect::<Vec<_>>(), ["a limit has at most 65536 plans"]);
}

#[test]
fn texts_of_keys_that_may_be_credentials_are_not_shown() {
    for key in [r#"["header:x-api-key"]"#, r#"["api_key", "ip"]"#, r#"["ip", "cookie:s"]"#, r#"["query:k", "path"]"#] {
        for text in ["hunter2", "hunter2|hunter2", "hunter2|hunter2|hunter2", "/|hunter2", "hunter2|/"] {
            for rule in ["five", "[]", "5", "{ rate = '1/s', x = 2 }"] {
                said(&format!(
                    "[[limit]]\nname = 'a'\nkey = {key}\nrate = '1/s'\noverrides = {{ '{text}' = {rule} }}\n\
                     [identity.api_key]\nheader = 'x-api-key'"
                ));
            }
        }
    }
    said("[[limit]]\nname = 'a'\nkey = ['headr:x']\nrate = '1/s'\noverrides = { 'hunter2' = 5 }");
}

#[test]
fn an_override_assigns_a_plan() {
    let text = "rate = '10/s'\nplans = { pro = { rate = '9/s', burst = 30 }, free = 'unlimited' }\n\
                overrides = { '192.0.2.1' = { plan = 'pro' }, '192.0.2.2' = { plan = 'free' }, '192.0.2.3' = '7/s' }";
    let allowed = limit(text).allowed;
    let rules: Vec<_> = allowed.overrides.iter().map(|(_, rule)| rule.clone()).collect();
    assert_eq!(rules, [allowed.plans[0].1.clone(), None, Some(bucket(7, MIN_NS / 60, 7))]);
    let plans: Vec<_> = (0..3).map(|place| allowed.assigned(Variant::Override(place))).collect();
    assert_eq!(plans, [Some("pro"), Some("free"), None]);
    for (overrides, problem) in [
        ("{ plan = 'gold' }", "the limit has no plan of this name"),
        ("{ plan = 7 }", "`limit.overrides.NAME.plan`: expected string"),
        ("{ plan = 'pro', burst = 3 }", "`limit.overrides.NAME.burst`: does not go with `plan`"),
    ] {
        let text = format!("plans = {{ pro = '9/s' }}\noverrides = {{ '192.0.2.1' = {overrides} }}");
        let said = said(&format!("[[limit]]\nname = 'a'\nkey = ['ip']\nrate = '1/s'\n{text}\n"));
        assert!(said.contains(problem) && said.matches("error: ").count() == 1, "{said}");
    }
}
