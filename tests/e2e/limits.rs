//! Algorithms, rates, costs and overrides, as they are configured and as clients see them.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::ops::{refill, replace};
use crate::support::{Answer, Client, Upstream, Weir};

const HOUR_S: u64 = 3600;

fn limit(rest: &str) -> String {
    format!("[[limit]]\nname = \"l\"\n{rest}\n")
}

/// Starts a Weir with one limit for everybody.
fn start(rest: &str) -> (Upstream, Weir, Client) {
    start_by("[]", rest)
}

fn start_by(key: &str, rest: &str) -> (Upstream, Weir, Client) {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit(&format!("key = {key}\n{rest}")));
    let client = Client::connect(weir.address());
    (upstream, weir, client)
}

fn number(answer: &Answer, name: &str) -> Option<u64> {
    answer.header(name).map(|value| value.parse().unwrap())
}

/// Status, limit and remaining.
fn standing(answer: &Answer) -> (u16, Option<u64>, Option<u64>) {
    (answer.status, number(answer, "x-ratelimit-limit"), number(answer, "x-ratelimit-remaining"))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// No encoding of a path, and no spelling of a header, passes by a regular expression.
#[test]
fn regular_expressions_match_all_spellings() {
    let by = |matches: &str| limit(&format!("key = []\nrate = \"1/h\"\nmatch = {{ {matches} }}"));
    let upstream = Upstream::start();
    let agent = |value: &str| format!("User-Agent: {value}\r\n");
    for (matches, counted, others) in [
        (
            "path_regex = \"^/api/.*[.]csv$\"",
            vec![
                ("/api/a.csv", String::new()),
                ("/api//b%2Ecs%76?q=1", String::new()),
                ("/x/../%61pi/.csv", String::new()),
            ],
            vec![("/api/a.csv/", String::new()), ("/a?/api/a.csv", String::new())],
        ),
        (
            "header = { user-agent = { regex = \"(?i)^bot\" } }",
            vec![("/", agent("Bot/1")), ("/", agent(" \tbot")), ("/", agent("a") + &agent("BOT"))],
            vec![("/", agent("robot")), ("/", String::new())],
        ),
        ("ip = \"127.0.0.0/8\"", vec![("/", String::new()), ("/a", String::new())], vec![]),
        ("ip = \"192.0.2.0/24\"", vec![], vec![("/", String::new()), ("/", String::new())]),
    ] {
        let weir = Weir::start(&upstream, &by(matches));
        let status = |(target, fields): &(&str, String)| {
            let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            Client::connect(weir.address()).send(head).answer().status
        };
        let statuses: Vec<_> = counted.iter().map(status).collect();
        assert!(
            statuses.iter().enumerate().all(|(at, status)| *status == if at == 0 { 200 } else { 429 }),
            "{matches}"
        );
        assert!(others.iter().chain(&others).all(|request| status(request) == 200), "{matches}");
    }
}

/// Three requests pass and the fourth does not; says when that one may come back, and at which second all is new.
fn three_pass(rest: &str) -> (u64, u64) {
    let (upstream, _weir, mut client) = start(rest);
    let answers: Vec<_> = (0..4).map(|_| client.get("/")).collect();
    let standings: Vec<_> = answers.iter().map(standing).collect();
    let expected = [(200, 2), (200, 1), (200, 0), (429, 0)].map(|(status, left)| (status, Some(3), Some(left)));
    assert_eq!(standings, expected, "{rest}");
    assert_eq!(upstream.received_count(), 3, "{rest}");
    assert!(answers[..3].iter().all(|answer| answer.header("retry-after").is_none()), "{rest}");
    (number(&answers[3], "retry-after").unwrap(), number(&answers[3], "x-ratelimit-reset").unwrap())
}

#[test]
fn every_algorithm_lets_its_count_pass_and_no_more() {
    // What comes back evenly comes back every 20 minutes. The wall clock may move on between two looks at it.
    type Row = (&'static str, RangeInclusive<u64>, RangeInclusive<u64>);
    let rows: [Row; 8] = [
        ("rate = '3/h'", 1100..=1200, 3500..=3601),
        ("rate = '60/h'\nburst = 3", 20..=60, 140..=181),
        ("rate = '3/h'\nalgorithm = 'leaky_bucket'", 1100..=1200, 3500..=3601),
        ("rate = '3/h'\nalgorithm = 'fixed_window'\nalign = 'first'", 3500..=3600, 3500..=3601),
        ("rate = '3/h'\nalgorithm = 'sliding_log'", 3500..=3600, 3500..=3601),
        ("rate = '3/h'\nalgorithm = 'sub_window'\nsub_windows = 6", 2900..=3600, 2900..=3601),
        // The window may be new or nearly over; a third of it fades in a third of the next.
        ("rate = '3/h'\nalgorithm = 'sliding_window'", 1100..=4800, 3500..=7201),
        ("rate = ['3/h', '5/day']", 1100..=1200, 3500..=3601),
    ];
    for (rest, retry, reset) in rows {
        let (retry_s, reset_at) = three_pass(rest);
        let reset_s = reset_at.saturating_sub(now_s());
        assert!(retry.contains(&retry_s) && reset.contains(&reset_s), "{rest}: {retry_s} {reset_s}");
    }
}

#[test]
fn windows_of_the_calendar_end_at_midnight_where_they_are() {
    // A year, so that it hardly ever ends during the test. In Kolkata a day begins at 18:30 UTC, all the year.
    for (zone, midnight_s) in [("", 0), ("\ntime_zone = 'Asia/Kolkata'", 18 * HOUR_S + 1800)] {
        let (retry_s, reset_at) = three_pass(&format!("rate = '3/12month'\nalgorithm = 'fixed_window'{zone}"));
        assert_eq!(reset_at % (24 * HOUR_S), midnight_s, "{zone}");
        assert!((reset_at - now_s()).abs_diff(retry_s) <= 60, "{zone}: {reset_at} {retry_s}");
    }
}

#[test]
fn of_two_rates_both_bind() {
    let (_upstream, _weir, mut client) = start("rate = ['1/100ms', '3/h']");
    let mut admitted = 0;
    let refused = loop {
        let answer = client.get("/");
        match answer.status {
            200 => admitted += 1,
            // The first rate says a second at most, and describes itself.
            _ if number(&answer, "retry-after") == Some(1) => assert_eq!(standing(&answer), (429, Some(1), Some(0))),
            _ => break answer,
        }
    };
    assert_eq!((admitted, standing(&refused)), (3, (429, Some(3), Some(0))));
    assert!((1100..=1200).contains(&number(&refused, "retry-after").unwrap()), "{}", refused.head);
}

#[test]
fn the_ietf_fields_have_an_item_for_each_rate_of_each_stage() {
    let arrival = "[[limit]]\nname = 'm'\nkey = []\nstage = 'arrival'\nrate = '100/h'";
    let (_upstream, _weir, mut client) =
        start(&format!("rate = ['9/day', '5/h']\n{arrival}\n[headers]\nprofiles = ['ietf']"));
    let mut fields = || {
        let answer = client.get("/");
        ["ratelimit-policy", "ratelimit"].map(|name| answer.header(name).unwrap().to_owned())
    };
    let policy = r#""m";q=100;w=3600, "l/1";q=9;w=86400, "l/2";q=5;w=3600"#;
    assert_eq!(fields(), [policy, r#""l/2";r=4;t=720, "m";r=99;t=36, "l/1";r=8;t=9600"#]);
    let refused = (0..5).map(|_| fields()).last().unwrap();
    assert_eq!(refused[0], policy);
    assert!(refused[1].starts_with(r#""l/2";r=0;t=7"#) && refused[1].contains(r#""m";r=94"#), "{refused:?}");
    let problem: serde_json::Value = serde_json::from_slice(&client.get("/").body).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["l/2"]), "as the policy names it");
}

#[test]
fn a_table_a_header_or_a_parameter_sets_the_cost() {
    let table = "cost = { default = 2, paths = [{ path = '/search', units = 10 }, \
        { path = '/x/{id}', method = 'POST', units = 3 }, { method = 'DELETE', units = 50 }] }";
    let header = "cost = { header = 'X-Weight', max = 100, default = 7 }";
    let query = "cost = { query = 'n', max = 100 }";
    for (rest, rows) in [
        ("cost = 5", &[("GET", "/", "", 5)][..]),
        (
            table,
            &[
                ("GET", "/search?q=1", "", 10),
                ("GET", "/%73earch", "", 10),
                ("POST", "/x/7", "Content-Length: 0\r\n", 3),
                ("GET", "/x/7", "", 2),
                ("DELETE", "/x/7", "", 50),
                ("DELETE", "/search", "", 10),
                ("GET", "/search/", "", 2),
            ],
        ),
        (
            header,
            &[
                ("GET", "/", "x-weight: 42\r\n", 42),
                ("GET", "/", "x-weight: 0\r\n", 1),
                ("GET", "/", "x-weight: 99999999999999999999999\r\n", 100),
                ("GET", "/", "x-weight: -3\r\n", 1),
                ("GET", "/", "x-weight: -99999999999999999999999\r\n", 1),
                ("GET", "/", "x-weight: --3\r\n", 100),
                ("GET", "/", "x-weight: -\r\n", 100),
                ("GET", "/", "x-weight: +3\r\n", 100),
                ("GET", "/", "x-weight: 1.5\r\n", 100),
                ("GET", "/", "x-weight: 1_000\r\n", 100),
                ("GET", "/", "x-weight:\r\n", 7),
                ("GET", "/", "", 7),
            ],
        ),
        (
            query,
            &[
                ("GET", "/?a=1&n=30", "", 30),
                ("GET", "/?n=101", "", 100),
                ("GET", "/?n=", "", 1),
                ("GET", "/?n=1e1", "", 100),
                ("GET", "/?N=30", "", 30),
                ("GET", "/", "", 1),
            ],
        ),
    ] {
        let (_upstream, weir, mut client) = start(&format!("rate = '1000/day'\n{rest}"));
        for (method, target, more, units) in rows {
            refill(&weir, "l");
            let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{more}\r\n");
            let answer = client.send(&request).answer();
            assert_eq!(number(&answer, "x-ratelimit-remaining"), Some(1000 - units), "{rest}\n{request}");
        }
    }
}

#[test]
fn an_override_is_for_its_key() {
    let rest = "rate = '2/h'\nplans = { premium = '1000/h' }\n\
        overrides = { 'big' = '5/h', 'wide' = ['7/h', '50/day'], 'own' = 'unlimited' }\n\
        [plans]\nfrom = 'header:x-plan'";
    let (_upstream, _weir, mut client) = start_by("['header:x-shop']", rest);
    let mut ask =
        |shop: &str| standing(&client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Shop: {shop}\r\n\r\n")).answer());
    assert_eq!(ask("any"), (200, Some(2), Some(1)));
    assert_eq!(ask("any"), (200, Some(2), Some(0)));
    assert_eq!(ask("any"), (429, Some(2), Some(0)));
    assert_eq!(ask("big"), (200, Some(5), Some(4)));
    assert_eq!(ask("wide"), (200, Some(7), Some(6)));
    for _ in 0..9 {
        assert_eq!(ask("own"), (200, None, None));
    }
    assert_eq!(ask("premium"), (200, Some(2), Some(1)), "the name of a plan is no key");
    let bigs: Vec<_> = (0..5).map(|_| ask("big").0).collect();
    assert_eq!(bigs, [200, 200, 200, 200, 429]);
}

#[test]
fn an_override_of_several_parts_is_for_all_of_them() {
    let rest = "rate = '1/h'\noverrides = { '127.0.0.1|/b' = '9/h' }";
    let (_upstream, _weir, mut client) = start_by("['ip', 'path']", rest);
    let limits: Vec<_> = ["/a", "/b"].map(|path| standing(&client.get(path)).1).into();
    assert_eq!(limits, [Some(1), Some(9)]);
}

#[test]
fn a_leaky_bucket_that_holds_sends_on_evenly() {
    let (_upstream, weir, mut client) =
        start("rate = '1/3s'\nburst = 2\nalgorithm = 'leaky_bucket'\non_limit = 'hold'");
    let began = Instant::now();
    assert_eq!(client.get("/").status, 200);
    let mut held = Vec::new();
    for waiting in [1.0, 2.0] {
        let mut client = Client::connect(weir.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        weir.wait_for_metric("weir_held_requests{limit=\"l\"}", |held| held == waiting);
        held.push(client);
    }
    assert_eq!(client.get("/").status, 429, "two may queue");
    for (turn, client) in (1..).zip(&mut held) {
        assert_eq!(client.answer().status, 200);
        assert!(began.elapsed() >= Duration::from_secs(3) * turn, "{turn}: {:?}", began.elapsed());
    }
}

#[test]
fn a_reload_changes_numbers_without_a_refill_and_algorithms_with_a_fresh_start() {
    for (algorithm, other) in [("token_bucket", "sliding_log"), ("sliding_log", "fixed_window")] {
        let rest =
            |algorithm: &str, count: u32| limit(&format!("key = []\nrate = '{count}/12h'\nalgorithm = '{algorithm}'"));
        let upstream = Upstream::start();
        let weir = Weir::start(&upstream, &rest(algorithm, 20));
        let mut client = Client::connect(weir.address());
        let mut until_limit = |count: u64| {
            let mut last = None;
            weir.wait_until("the new limit", || {
                last = Some(client.get("/"));
                last.as_ref().is_some_and(|answer| number(answer, "x-ratelimit-limit") == Some(count))
            });
            standing(&last.unwrap())
        };
        assert_eq!(until_limit(20), (200, Some(20), Some(19)));
        replace(&weir.config_file(), &Weir::config(&upstream, "", &rest(algorithm, 1)));
        assert_eq!(until_limit(1), (429, Some(1), Some(0)), "{algorithm}: what is spent stays spent");
        replace(&weir.config_file(), &Weir::config(&upstream, "", &rest(other, 2)));
        assert_eq!(until_limit(2), (200, Some(2), Some(1)), "{other} begins anew");
    }
}

/// Two processes select the same keys. Others are counted, and their answers have no numbers of the limit.
#[test]
fn a_limit_is_enforced_for_a_part_of_its_keys() {
    let refused = || {
        let (_upstream, weir, mut client) = start_by("['query:shop']", "rate = '1/h'\nenforce = '25%'");
        let mut ask = |shop: u32| client.get(&format!("/?shop={shop}"));
        let mut refused = Vec::new();
        for shop in 0..40 {
            let (first, second) = (standing(&ask(shop)), standing(&ask(shop)));
            match second.0 {
                429 => refused.push(shop),
                _ => assert_eq!((first, second), ((200, None, None), (200, None, None)), "{shop}"),
            }
        }
        let shadow = "weir_limit_decisions_total{decision=\"shadow_refused\",limit=\"l\"}";
        weir.wait_for_metric(shadow, |shadow| shadow == 40.0 - refused.len() as f64);
        let out = (0..40).find(|shop| !refused.contains(shop)).unwrap();
        for (shop, mode, reason) in [
            (refused[0], "enforce", "refuses: the request takes 1, and 0 remain"),
            (out, "shadow", "would refuse, but `enforce` leaves this key out: the request takes 1, and 0 remain"),
        ] {
            let request = format!("GET /v1/keys?limit=l&key={shop} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let key = Client::connect(weir.admin()).send(request).answer().text();
            assert!(key.contains(&format!("\"mode\":\"{mode}\"")), "{key}");
            let request = format!("GET /v1/client?key=query:shop={shop} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let client = Client::connect(weir.admin()).send(request).answer().text();
            assert!(client.contains(&format!("\"passes\":{}", mode == "shadow")), "{client}");
            let body = format!(r#"{{"method":"GET","path":"/?shop={shop}","host":"a","ip":"192.0.2.1"}}"#);
            let head = format!("POST /v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
            let request = format!("{head}Content-Type: application/json\r\n\r\n{body}");
            let explained = Client::connect(weir.admin()).send(request).answer().text();
            assert!(explained.contains(reason) && explained.contains(&format!("\"mode\":\"{mode}\"")), "{explained}");
        }
        refused
    };
    let first = refused();
    assert!((4..=16).contains(&first.len()), "{first:?}");
    assert_eq!(refused(), first);
}
