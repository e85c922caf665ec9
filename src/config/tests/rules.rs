//! Algorithms, rates, costs, plans and overrides: what is wrong, and what the rest becomes.

use super::{UPSTREAM, bucket, compile, said};
use crate::engine::limit::windows::WINDOWS_MAX;
use crate::engine::limit::{Algorithm, Allowance, Calendar, Quota, Rate, Unit};
use crate::engine::limit::{concurrency, fixed_window, leaky_bucket, sliding_log, sub_window};
use crate::engine::policy::{Allowed, Cost, CostSource, HoldRule, Limit, OnLimit, Variant};
use crate::engine::units::{Pointer, Weight};

const MIN_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MIN_NS;
const DAY_NS: u64 = 24 * HOUR_NS;

/// What is said about a limit that is right but for `rest`.
fn said_of(rest: &str) -> String {
    said(&format!("[[limit]]\nname = \"a\"\nkey = [\"ip\"]\n{rest}\n{}", source(rest)))
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
        let said = said_of(rest);
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
    let leaky = |burst, shapes| Algorithm::LeakyBucket(leaky_bucket::Rule { quota: quota(burst), shapes });
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
    insta::assert_snapshot!(said_of(r#"rate = "5/s"
algorithm = "sliding-windw""#), @r#"
    error: `limit.algorithm`: `sliding-windw` is not one of `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_log`, `sliding_window`, `sub_window`, `concurrency`
     --> weir.toml:5:13
      |
    5 | algorithm = "sliding-windw"
      |             ^^^^^^^^^^^^^^^
      |
      = help: did you mean `sliding_window`?
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/s"
max = 3
align = "first"
time_zone = "UTC"
sub_windows = 5"#), @r#"
    error: `limit.max` belongs to `concurrency`, not to `token_bucket`
     --> weir.toml:5:7
      |
    5 | max = 3
      |       ^
      |
      = help: it goes with `algorithm = "concurrency"`

    error: `limit.align` belongs to `fixed_window`, not to `token_bucket`
     --> weir.toml:6:9
      |
    6 | align = "first"
      |         ^^^^^^^
      |
      = help: it goes with `algorithm = "fixed_window"`

    error: `limit.time_zone` belongs to `fixed_window`, not to `token_bucket`
     --> weir.toml:7:13
      |
    7 | time_zone = "UTC"
      |             ^^^^^
      |
      = help: it goes with `algorithm = "fixed_window"`

    error: `limit.sub_windows` belongs to `sub_window`, not to `token_bucket`
     --> weir.toml:8:15
      |
    8 | sub_windows = 5
      |               ^
      |
      = help: it goes with `algorithm = "sub_window"`
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/s"
burst = 3
algorithm = "sliding_log""#), @r#"
    error: `limit.burst` belongs to `token_bucket` and `leaky_bucket`, not to `sliding_log`
     --> weir.toml:5:9
      |
    5 | burst = 3
      |         ^
      |
      = help: remove it: the burst is the COUNT of `rate`
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/s"
burst = 3
settle = { by = "elapsed_ms" }
algorithm = "concurrency""#), @r#"
    error: `limit.max` is missing
     --> weir.toml:1:1
      |
    1 | [[limit]]
      | ^^^^^^^^^
      |
      = help: expected whole number from 1, or `auto`. Units in flight at once; with `auto` as many as the service answers without a queue.

    error: `limit.rate`: does not apply to `concurrency`
     --> weir.toml:4:8
      |
    4 | rate = "5/s"
      |        ^^^^^
      |
      = help: use `max`, the number of units that may be in flight

    error: `limit.burst` belongs to `token_bucket` and `leaky_bucket`, not to `concurrency`
     --> weir.toml:5:9
      |
    5 | burst = 3
      |         ^
      |
      = help: remove it: `max` limits the units in flight

    error: `limit.settle`: does not apply to `concurrency`
     --> weir.toml:6:10
      |
    6 | settle = { by = "elapsed_ms" }
      |          ^^^^^^^^^^^^^^^^^^^^^
      |
      = help: a unit in flight comes back as it was taken, when its request ends
    "#);
    insta::assert_snapshot!(said_of(r#"algorithm = "fixed_window"
align = "frist"
plans = { a = { max = 3 } }"#), @r#"
    error: `limit.rate` is missing
     --> weir.toml:1:1
      |
    1 | [[limit]]
      | ^^^^^^^^^
      |
      = help: expected rate, or list of 1 to 4 rates. COUNT `/` [N] UNIT, with UNIT `ms`, `s`, `min`, `h`, `day`, `week`, or `month` in calendar windows; of several rates all must admit. `concurrency` has `max` instead.

    error: `limit.align`: `frist` is not one of `calendar`, `first`
     --> weir.toml:5:9
      |
    5 | align = "frist"
      |         ^^^^^^^
      |
      = help: did you mean `first`?

    error: `limit.plans.NAME.rate` is missing
     --> weir.toml:6:15
      |
    6 | plans = { a = { max = 3 } }
      |               ^^^^^^^^^^^
      |
      = help: expected rate, or list of 1 to 4 rates. As `limit.rate`.

    error: `limit.plans.NAME.max` belongs to `concurrency`, not to `fixed_window`
     --> weir.toml:6:23
      |
    6 | plans = { a = { max = 3 } }
      |                       ^
      |
      = help: it goes with `algorithm = "concurrency"`
    "#);
    // What an unknown algorithm needs nobody knows.
    insta::assert_snapshot!(said_of(r#"algorithm = "concurency"
max = 0
cost = "two""#), @r#"
    error: `limit.algorithm`: `concurency` is not one of `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_log`, `sliding_window`, `sub_window`, `concurrency`
     --> weir.toml:4:13
      |
    4 | algorithm = "concurency"
      |             ^^^^^^^^^^^^
      |
      = help: did you mean `concurrency`?

    error: `limit.max`: expected whole number from 1, or `auto`
     --> weir.toml:5:7
      |
    5 | max = 0
      |       ^

    error: `limit.cost`: expected whole number from 1, or table
     --> weir.toml:6:8
      |
    6 | cost = "two"
      |        ^^^^^ this is a string
    "#);
}

#[test]
fn rates_that_cannot_be() {
    insta::assert_snapshot!(said_of(r#"rate = []"#), @r#"
    error: `limit.rate`: must not be empty
     --> weir.toml:4:8
      |
    4 | rate = []
      |        ^^
    "#);
    insta::assert_snapshot!(said_of(r#"rate = ["5/s", "5/s", "6/mn", 7]
burst = 3"#), @r#"
    error: `limit.rate`: `5/s` occurs twice
     --> weir.toml:4:16
      |
    4 | rate = ["5/s", "5/s", "6/mn", 7]
      |         -----  ^^^^^
      |         |
      |         first here

    error: `limit.rate`: unknown unit `mn`; units are ms, s, min, h, day, week, month
     --> weir.toml:4:23
      |
    4 | rate = ["5/s", "5/s", "6/mn", 7]
      |                       ^^^^^^
      |
      = help: did you mean `min`?

    error: `limit.rate`: expected rate, or list of 1 to 4 rates
     --> weir.toml:4:31
      |
    4 | rate = ["5/s", "5/s", "6/mn", 7]
      |                               ^ this is an integer
      |
      = help: write `"7/s"`
    "#);
    insta::assert_snapshot!(said_of(r#"rate = ["1/s", "2/min", "3/h", "4/day", "5/week"]
burst = 3"#), @r#"
    error: `limit.rate`: a limit has at most 4 rates
     --> weir.toml:4:41
      |
    4 | rate = ["1/s", "2/min", "3/h", "4/day", "5/week"]
      |                                         ^^^^^^^^

    error: `limit.burst`: does not apply to several rates
     --> weir.toml:5:9
      |
    5 | burst = 3
      |         ^
      |
      = help: the burst of each rate is its COUNT; for another burst, write one `[[limit]]` for each rate
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "1000/month""#), @r#"
    error: `limit.rate`: a month has no fixed length
     --> weir.toml:4:8
      |
    4 | rate = "1000/month"
      |        ^^^^^^^^^^^^
      |
      = help: only `algorithm = "fixed_window"` with `align = "calendar"` can count months; otherwise write `30day`
    "#);
    insta::assert_snapshot!(said_of(r#"rate = ["5/36h", "5/13month"]
algorithm = "fixed_window"
time_zone = "Europe/Berln""#), @r#"
    error: `limit.rate`: a window of the calendar is longer than a day (for units up to the hour) or a year
     --> weir.toml:4:9
      |
    4 | rate = ["5/36h", "5/13month"]
      |         ^^^^^^^
      |
      = help: `align = "first"` accepts any length, but no months

    error: `limit.rate`: a window of the calendar is longer than a day (for units up to the hour) or a year
     --> weir.toml:4:18
      |
    4 | rate = ["5/36h", "5/13month"]
      |                  ^^^^^^^^^^^
      |
      = help: `align = "first"` accepts any length, but no months

    error: `limit.time_zone`: `Europe/Berln` is no time zone of the IANA database
     --> weir.toml:6:13
      |
    6 | time_zone = "Europe/Berln"
      |             ^^^^^^^^^^^^^^
      |
      = help: did you mean `Europe/Berlin`?
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/month"
algorithm = "fixed_window"
align = "first"
time_zone = "Mars""#), @r#"
    error: `limit.rate`: a month has no fixed length
     --> weir.toml:4:8
      |
    4 | rate = "5/month"
      |        ^^^^^^^^^
      |
      = help: only `algorithm = "fixed_window"` with `align = "calendar"` can count months; otherwise write `30day`

    error: `limit.time_zone`: `Mars` is no time zone of the IANA database
     --> weir.toml:7:13
      |
    7 | time_zone = "Mars"
      |             ^^^^^^
      |
      = help: write it like "Europe/Berlin"
    "#);
    insta::assert_snapshot!(said_of(r#"rate = ["2000000/day", "5/99999week"]
algorithm = "sliding_log""#), @r#"
    error: `limit.rate`: `sliding_log` counts at most 1000000: it remembers each
     --> weir.toml:4:9
      |
    4 | rate = ["2000000/day", "5/99999week"]
      |         ^^^^^^^^^^^^^
      |
      = help: `sliding_window` accepts any number

    error: `limit.rate`: the period `99999week` is too long
     --> weir.toml:4:24
      |
    4 | rate = ["2000000/day", "5/99999week"]
      |                        ^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/s"
algorithm = "sub_window"
sub_windows = 5000"#), @r#"
    error: `limit.sub_windows`: expected whole number from 1 to 1024
     --> weir.toml:6:15
      |
    6 | sub_windows = 5000
      |               ^^^^
    "#);
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
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
cost = "5""#), @r#"
    error: `limit.cost`: expected whole number from 1, or table
     --> weir.toml:5:8
      |
    5 | cost = "5"
      |        ^^^ this is a string
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
cost = { default = 6, paths = [{ path = "/a", units = 7 }, { path = "b", units = 0 }] }"#), @r#"
    error: `limit.cost.default`: a cost of 6 can never pass: the burst is 5
     --> weir.toml:5:20
      |
    5 | cost = { default = 6, paths = [{ path = "/a", units = 7 }, { path = "b", units = 0 }] }
      |                    ^

    error: `limit.cost.paths.units`: a cost of 7 can never pass: the burst is 5
     --> weir.toml:5:55
      |
    5 | cost = { default = 6, paths = [{ path = "/a", units = 7 }, { path = "b", units = 0 }] }
      |                                                       ^

    error: `limit.cost.paths.path`: `b`: a path pattern begins with `/`
     --> weir.toml:5:69
      |
    5 | cost = { default = 6, paths = [{ path = "/a", units = 7 }, { path = "b", units = 0 }] }
      |                                                                     ^^^
      |
      = help: did you mean `/b`?

    error: `limit.cost.paths.units`: expected whole number from 1
     --> weir.toml:5:82
      |
    5 | cost = { default = 6, paths = [{ path = "/a", units = 7 }, { path = "b", units = 0 }] }
      |                                                                                  ^
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
cost = { paths = [{ units = 1 }, { path = "/a" }, { path = "/a", units = 1, cost = 2 }, { path = "/a", method = "get", units = 2 }, 5] }"#), @r#"
    error: `limit.cost.paths`: an entry needs `path` or `method`
     --> weir.toml:5:19
      |
    5 | cost = { paths = [{ units = 1 }, { path = "/a" }, { path = "/a", units = 1, cost = 2 }, { path = "/a", method = "get", units = 2 }, 5] }
      |                   ^^^^^^^^^^^^^
      |
      = help: `default` is the cost of all other requests

    error: `limit.cost.paths.units` is missing
     --> weir.toml:5:34
      |
    5 | cost = { paths = [{ units = 1 }, { path = "/a" }, { path = "/a", units = 1, cost = 2 }, { path = "/a", method = "get", units = 2 }, 5] }
      |                                  ^^^^^^^^^^^^^^^
      |
      = help: expected whole number from 1. Units that such a request takes.

    error: unknown key `cost` in `[limit.cost.paths]`
     --> weir.toml:5:77
      |
    5 | cost = { paths = [{ units = 1 }, { path = "/a" }, { path = "/a", units = 1, cost = 2 }, { path = "/a", method = "get", units = 2 }, 5] }
      |                                                                             ^^^^
      |
      = help: did you mean `limit.cost`?

    error: `limit.cost.paths.method`: `get` never matches: methods are in upper case
     --> weir.toml:5:113
      |
    5 | cost = { paths = [{ units = 1 }, { path = "/a" }, { path = "/a", units = 1, cost = 2 }, { path = "/a", method = "get", units = 2 }, 5] }
      |                                                                                                                 ^^^^^
      |
      = help: did you mean `GET`?

    error: `limit.cost.paths`: expected table
     --> weir.toml:5:133
      |
    5 | cost = { paths = [{ units = 1 }, { path = "/a" }, { path = "/a", units = 1, cost = 2 }, { path = "/a", method = "get", units = 2 }, 5] }
      |                                                                                                                                     ^ this is an integer
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
cost = { paths = [{ path = ["/a", "/b"], units = 1 }, { path = "/b", method = "GET", units = 2 }], max = 3 }"#), @r#"
    error: `limit.cost.paths`: this entry is never used
     --> weir.toml:5:55
      |
    5 | cost = { paths = [{ path = ["/a", "/b"], units = 1 }, { path = "/b", method = "GET", units = 2 }], max = 3 }
      |                   ----------------------------------  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |                   |
      |                   this entry matches all of its requests

    error: `limit.cost.max`: belongs to `header`, `query`, `json` and `units`
     --> weir.toml:5:106
      |
    5 | cost = { paths = [{ path = ["/a", "/b"], units = 1 }, { path = "/b", method = "GET", units = 2 }], max = 3 }
      |                                                                                                          ^
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
cost = { header = "x y", max = 6 }"#), @r#"
    error: `limit.cost.header`: `x y` is not a header name
     --> weir.toml:5:19
      |
    5 | cost = { header = "x y", max = 6 }
      |                   ^^^^^

    error: `limit.cost.max`: a cost of 6 can never pass: the burst is 5
     --> weir.toml:5:32
      |
    5 | cost = { header = "x y", max = 6 }
      |                                ^
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
cost = { header = "x-weight", query = "n" }"#), @r#"
    error: `limit.cost` has both `header` and `query`
     --> weir.toml:5:39
      |
    5 | cost = { header = "x-weight", query = "n" }
      |                                       ^^^
      |
      = help: choose one of `paths`, `header`, `query`, `json` and `units`
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
cost = { query = "" }"#), @r#"
    error: `limit.cost.max` is missing
     --> weir.toml:5:8
      |
    5 | cost = { query = "" }
      |        ^^^^^^^^^^^^^^
      |
      = help: expected whole number from 1. Most units that one request can name.

    error: `limit.cost.query`: must not be empty
     --> weir.toml:5:18
      |
    5 | cost = { query = "" }
      |                  ^^
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
cost = { default = 2 }"#), @r#"
    error: `limit.cost` has none of `paths`, `header`, `query`, `json` and `units`
     --> weir.toml:5:8
      |
    5 | cost = { default = 2 }
      |        ^^^^^^^^^^^^^^^
      |
      = help: write a constant cost as `cost = 5`
    "#);
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
        let said = said_of(&format!("rate = '5/min'\n{text}"));
        assert!(said.contains(&format!("error: {expected}")), "{text}: {said}");
    }
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
cost = { paths = [] }"#), @r#"
    error: `limit.cost.paths`: must not be empty
     --> weir.toml:5:18
      |
    5 | cost = { paths = [] }
      |                  ^^
    "#);
    insta::assert_snapshot!(said_of(r#"rate = ["50/min", "7/h"]
cost = 8
plans = { free = "6/min", staff = "unlimited" }
overrides = { "192.0.2.7" = { rate = "9/min", burst = 2 } }"#), @r#"
    error: `limit.cost`: a cost of 8 can never pass: the smallest count is 7
     --> weir.toml:5:8
      |
    5 | cost = 8
      |        ^

    error: `limit.cost`: a cost of 8 can never pass: the burst of plan `free` is 6
     --> weir.toml:5:8
      |
    5 | cost = 8
      |        ^

    error: `limit.cost`: a cost of 8 can never pass: the burst of an override is 2
     --> weir.toml:5:8
      |
    5 | cost = 8
      |        ^
    6 | plans = { free = "6/min", staff = "unlimited" }
    7 | overrides = { "192.0.2.7" = { rate = "9/min", burst = 2 } }
      |               ----------- this override
    "#);
    insta::assert_snapshot!(said_of(r#"algorithm = "concurrency"
max = 2
cost = { header = "x-weight", max = 3 }
plans = { free = { max = 1 } }"#), @r#"
    error: `limit.cost.max`: a cost of 3 can never pass: the `max` is 2
     --> weir.toml:6:37
      |
    6 | cost = { header = "x-weight", max = 3 }
      |                                     ^

    error: `limit.cost.max`: a cost of 3 can never pass: the `max` of plan `free` is 1
     --> weir.toml:6:37
      |
    6 | cost = { header = "x-weight", max = 3 }
      |                                     ^
    "#);
    insta::assert_snapshot!(said_of(r#"algorithm = "fixed_window"
rate = "2/day"
cost = 3"#), @r#"
    error: `limit.cost`: a cost of 3 can never pass: the count is 2
     --> weir.toml:6:8
      |
    6 | cost = 3
      |        ^
    "#);
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
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
plans = { a = "unlimitd", b = ["5/min", "unlimited"], c = 5, d = {}, e = { burst = 5, rte = "5/s" }, f = [], g = "9999999999/s" }"#), @r#"
    error: `limit.plans.NAME`: `unlimitd` is not a rate
     --> weir.toml:5:15
      |
    5 | plans = { a = "unlimitd", b = ["5/min", "unlimited"], c = 5, d = {}, e = { burst = 5, rte = "5/s" }, f = [], g = "9999999999/s" }
      |               ^^^^^^^^^^
      |
      = help: did you mean `unlimited`?

    error: `limit.plans.NAME`: `unlimited` cannot be in a list
     --> weir.toml:5:41
      |
    5 | plans = { a = "unlimitd", b = ["5/min", "unlimited"], c = 5, d = {}, e = { burst = 5, rte = "5/s" }, f = [], g = "9999999999/s" }
      |                                         ^^^^^^^^^^^

    error: `limit.plans.NAME`: expected rate, list of rates, factor, table, or `unlimited`
     --> weir.toml:5:59
      |
    5 | plans = { a = "unlimitd", b = ["5/min", "unlimited"], c = 5, d = {}, e = { burst = 5, rte = "5/s" }, f = [], g = "9999999999/s" }
      |                                                           ^ this is an integer
      |
      = help: write `"5/s"`

    error: `limit.plans.NAME.rate` is missing
     --> weir.toml:5:66
      |
    5 | plans = { a = "unlimitd", b = ["5/min", "unlimited"], c = 5, d = {}, e = { burst = 5, rte = "5/s" }, f = [], g = "9999999999/s" }
      |                                                                  ^^
      |
      = help: expected rate, or list of 1 to 4 rates. As `limit.rate`.

    error: `limit.plans.NAME.rate` is missing
     --> weir.toml:5:74
      |
    5 | plans = { a = "unlimitd", b = ["5/min", "unlimited"], c = 5, d = {}, e = { burst = 5, rte = "5/s" }, f = [], g = "9999999999/s" }
      |                                                                          ^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: expected rate, or list of 1 to 4 rates. As `limit.rate`.

    error: unknown key `rte` in `[limit.plans.NAME]`
     --> weir.toml:5:87
      |
    5 | plans = { a = "unlimitd", b = ["5/min", "unlimited"], c = 5, d = {}, e = { burst = 5, rte = "5/s" }, f = [], g = "9999999999/s" }
      |                                                                                       ^^^
      |
      = help: did you mean `rate`?

    error: `limit.plans.NAME`: must not be empty
     --> weir.toml:5:106
      |
    5 | plans = { a = "unlimitd", b = ["5/min", "unlimited"], c = 5, d = {}, e = { burst = 5, rte = "5/s" }, f = [], g = "9999999999/s" }
      |                                                                                                          ^^

    error: `limit.plans.NAME`: is faster than 10000000 a second
     --> weir.toml:5:114
      |
    5 | plans = { a = "unlimitd", b = ["5/min", "unlimited"], c = 5, d = {}, e = { burst = 5, rte = "5/s" }, f = [], g = "9999999999/s" }
      |                                                                                                                  ^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
plans = "unlimited"
overrides = ["192.0.2.7"]"#), @r#"
    error: `limit.plans`: expected table
     --> weir.toml:5:9
      |
    5 | plans = "unlimited"
      |         ^^^^^^^^^^^ this is a string

    error: `limit.overrides`: expected table
     --> weir.toml:6:13
      |
    6 | overrides = ["192.0.2.7"]
      |             ^^^^^^^^^^^^^ this is a list
    "#);
    insta::assert_snapshot!(said_of(r#"algorithm = "concurrency"
max = 5
plans = { a = "5/s", b = { rate = "5/s" }, c = { max = 0 }, d = 7 }"#), @r#"
    error: `limit.plans.NAME`: `concurrency` has no rate
     --> weir.toml:6:15
      |
    6 | plans = { a = "5/s", b = { rate = "5/s" }, c = { max = 0 }, d = 7 }
      |               ^^^^^
      |
      = help: write it like `{ max = 100 }`

    error: `limit.plans.NAME.max` is missing
     --> weir.toml:6:26
      |
    6 | plans = { a = "5/s", b = { rate = "5/s" }, c = { max = 0 }, d = 7 }
      |                          ^^^^^^^^^^^^^^^^
      |
      = help: expected whole number from 1. As `limit.max`.

    error: `limit.plans.NAME.rate`: does not apply to `concurrency`
     --> weir.toml:6:35
      |
    6 | plans = { a = "5/s", b = { rate = "5/s" }, c = { max = 0 }, d = 7 }
      |                                   ^^^^^
      |
      = help: use `max`, the number of units that may be in flight

    error: `limit.plans.NAME.max`: expected whole number from 1
     --> weir.toml:6:56
      |
    6 | plans = { a = "5/s", b = { rate = "5/s" }, c = { max = 0 }, d = 7 }
      |                                                        ^

    error: `limit.plans.NAME`: expected rate, list of rates, factor, table, or `unlimited`
     --> weir.toml:6:65
      |
    6 | plans = { a = "5/s", b = { rate = "5/s" }, c = { max = 0 }, d = 7 }
      |                                                                 ^ this is an integer
      |
      = help: write `"7/s"`
    "#);
    insta::assert_snapshot!(said_of(r#"algorithm = "sliding_window"
rate = "5/s"
plans = { a = { rate = "5/s", burst = 9 } }"#), @r#"
    error: `limit.plans.NAME.burst` belongs to `token_bucket` and `leaky_bucket`, not to `sliding_window`
     --> weir.toml:6:39
      |
    6 | plans = { a = { rate = "5/s", burst = 9 } }
      |                                       ^
      |
      = help: remove it: the burst is the COUNT of `rate`
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
overrides = { "192.0.2.300" = "5/s", "192.0.2.0/24" = "5/s", "192.0.2.7|GET" = "5/s" }"#), @r#"
    error: `limit.overrides.NAME`: `192.0.2.300` is not an address
     --> weir.toml:5:15
      |
    5 | overrides = { "192.0.2.300" = "5/s", "192.0.2.0/24" = "5/s", "192.0.2.7|GET" = "5/s" }
      |               ^^^^^^^^^^^^^
      |
      = help: an override applies to one address, as in "192.0.2.7"

    error: `limit.overrides.NAME`: `192.0.2.0/24` is not a network that this key counts as one
     --> weir.toml:5:38
      |
    5 | overrides = { "192.0.2.300" = "5/s", "192.0.2.0/24" = "5/s", "192.0.2.7|GET" = "5/s" }
      |                                      ^^^^^^^^^^^^^^
      |
      = help: this part of the key counts this address as `192.0.2.0`

    error: `limit.overrides.NAME`: `192.0.2.7|GET` is not an address
     --> weir.toml:5:62
      |
    5 | overrides = { "192.0.2.300" = "5/s", "192.0.2.0/24" = "5/s", "192.0.2.7|GET" = "5/s" }
      |                                                              ^^^^^^^^^^^^^^^
      |
      = help: an override applies to one address, as in "192.0.2.7"
    "#);
    insta::assert_snapshot!(said_of(r#"rate = "5/min"
overrides = { "::1" = "5/s", "0:0::2" = "5/s", "192.0.2.7" = "5/s", "::ffff:192.0.2.7" = "6/s" }"#), @r#"
    error: `limit.overrides.NAME`: this key occurs twice
     --> weir.toml:5:30
      |
    5 | overrides = { "::1" = "5/s", "0:0::2" = "5/s", "192.0.2.7" = "5/s", "::ffff:192.0.2.7" = "6/s" }
      |               -----          ^^^^^^^^
      |               |
      |               first here

    error: `limit.overrides.NAME`: this key occurs twice
     --> weir.toml:5:69
      |
    5 | overrides = { "::1" = "5/s", "0:0::2" = "5/s", "192.0.2.7" = "5/s", "::ffff:192.0.2.7" = "6/s" }
      |                                                -----------          ^^^^^^^^^^^^^^^^^^
      |                                                |
      |                                                first here
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
name = "a"
key = []
rate = "5/min"
overrides = { x = "5/s" }"#), @r#"
    error: `limit.overrides.NAME`: with `key = []` all requests share one key, so there is no key to override
     --> weir.toml:5:15
      |
    5 | overrides = { x = "5/s" }
      |               ^
      |
      = help: write the numbers in the limit itself
    "#);
    insta::assert_snapshot!(said(r#"[[limit]]
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
    error: `limit.overrides.NAME`: this has 2 parts, and the key of this limit has 4
     --> weir.toml:8:1
      |
    8 | "/shops/7|/shops/{id}" = "6/min"
      | ^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: the parts are joined by `|`, in the order of `key`

    error: `limit.overrides.NAME`: no path is `/shops//7`: Weir normalises paths before limits count them
     --> weir.toml:9:1
      |
    9 | "/shops//7|/shops/{id}|shop.test|GET" = "6/min"
      | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: did you mean `/shops/7`?

    error: `limit.overrides.NAME`: no path can be `shops`
      --> weir.toml:10:1
       |
    10 | "shops|/shops/{id}|shop.test|GET" = "6/min"
       | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error: `limit.overrides.NAME`: `/shop/{id}` is not one of `match.path`
      --> weir.toml:11:1
       |
    11 | "/shops/7|/shop/{id}|shop.test|GET" = "6/min"
       | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
       |
       = help: did you mean `/shops/{id}`?

    error: `limit.overrides.NAME`: a host is written in lower case, not `Shop.test`
      --> weir.toml:12:1
       |
    12 | "/shops/7|/shops/{id}|Shop.test|GET" = "6/min"
       | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
       |
       = help: did you mean `shop.test`?

    error: `limit.overrides.NAME`: an override applies to one host
      --> weir.toml:13:1
       |
    13 | "/shops/7|/shops/{id}|*.test|GET" = "6/min"
       | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error: `limit.overrides.NAME`: `shop.test:80` is not a host
      --> weir.toml:14:1
       |
    14 | "/shops/7|/shops/{id}|shop.test:80|GET" = "6/min"
       | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
       |
       = help: write a host in ASCII, without a port; `*.` at its start matches every subdomain

    error: `limit.overrides.NAME`: `get` never matches: methods are in upper case
      --> weir.toml:15:1
       |
    15 | "/shops/7|/shops/{id}|shop.test|get" = "6/min"
       | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
       |
       = help: did you mean `GET`?
    "#);
}

#[test]
fn plans_that_nobody_can_have() {
    let said_of = |more: &str| {
        said(&format!("[[limit]]\nname = \"a\"\nkey = []\nrate = \"1/s\"\nplans = {{ b = \"2/s\" }}\n{more}"))
    };
    insta::assert_snapshot!(said_of("stage = \"arrival\"\n[plans]\nfrom = \"header:x-plan\""), @r#"
    error: `limit.plans`: the plan of a request is unknown at stage `arrival`
     --> weir.toml:5:9
      |
    5 | plans = { b = "2/s" }
      |         ^^^^^^^^^^^^^
    "#);
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
