//! Clients that obey the fields of answers, in virtual time: none of them is ever refused.

use std::sync::Arc;

use http::Method;
use tokio::time::advance;

use super::{UPSTREAM, compile};
use crate::base::fields::FieldBuf;
use crate::base::telemetry::Metrics;
use crate::base::time::Clock;
use crate::engine::gate::{Gate, Pass, Standing, Step};
use crate::engine::limit::Retry;
use crate::engine::policy::{Facts, Stage};
use crate::transport::respond::{Disposition, LocalReply, Profiles, Reply, limit_headers};

const NS_PER_S: u64 = 1_000_000_000;
const PROFILES: Profiles = Profiles { x_ratelimit: true, ietf: true, ..Profiles::NONE };

/// Units that every request takes from every limit, and the limits.
const ROWS: [(u64, &str); 34] = [
    (1, "rate = '10/10s'"),
    (1, "rate = '10/10s'\nburst = 50"),
    (1, "rate = '10/10s'\nburst = 3"),
    (1, "rate = '2/h'"),
    (1, "rate = '7/min'\nburst = 1"),
    (1, "rate = '100/s'\nburst = 1"),
    (1, "rate = '100/s'\nburst = 150"),
    (1, "rate = '3/s'"),
    (1, "rate = '3/s'\nburst = 100"),
    (1, "rate = '10/1500ms'"),
    (3, "rate = '100/min'\nburst = 20\ncost = 3"),
    (1, "algorithm = 'leaky_bucket'\nrate = '10/10s'\nburst = 4"),
    (1, "algorithm = 'fixed_window'\nalign = 'first'\nrate = '10/10s'"),
    (3, "algorithm = 'fixed_window'\nalign = 'first'\nrate = '10/10s'\ncost = 3"),
    (1, "algorithm = 'fixed_window'\nalign = 'first'\nrate = '3/100ms'"),
    (1, "algorithm = 'fixed_window'\nrate = '10/min'"),
    (1, "algorithm = 'fixed_window'\nrate = '20/day'\ntime_zone = 'Europe/Berlin'"),
    (1, "algorithm = 'fixed_window'\nrate = '7/week'\ntime_zone = 'America/Sao_Paulo'"),
    (1, "algorithm = 'fixed_window'\nrate = '5/month'\ntime_zone = 'Europe/Berlin'"),
    (1, "algorithm = 'sliding_log'\nrate = '10/10s'"),
    (3, "algorithm = 'sliding_log'\nrate = '20/10s'\ncost = 3"),
    (1, "algorithm = 'sliding_window'\nrate = '10/10s'"),
    (1, "algorithm = 'sliding_window'\nrate = '1/10s'"),
    (3, "algorithm = 'sliding_window'\nrate = '20/10s'\ncost = 3"),
    (1, "algorithm = 'sub_window'\nsub_windows = 6\nrate = '10/min'"),
    (3, "algorithm = 'sub_window'\nsub_windows = 6\nrate = '10/min'\ncost = 3"),
    (1, "rate = ['5/min', '1000/day']"),
    (1, "rate = ['2/s', '100/h']"),
    (1, "algorithm = 'fixed_window'\nrate = ['3/day', '20/month']"),
    (1, "algorithm = 'sliding_window'\nrate = ['3/s', '20/min']"),
    (1, "rate = '1/s'\n[[limit]]\nname = 'm'\nkey = []\nrate = '20/h'"),
    (1, "rate = '9/s'\n[[limit]]\nname = 'm'\nkey = []\nrate = '20/h'\nalgorithm = 'sliding_log'"),
    (1, "rate = '5/min'\n[[limit]]\nname = 'm'\nkey = []\nrate = '1/s'\nstage = 'arrival'"),
    (1, "rate = '1/s'\n[[limit]]\nname = 'm'\nkey = []\nrate = ['5/min', '30/h']\nstage = 'arrival'"),
];

/// One of a limit that counts requests in flight beside one of time, which no pace can be told of.
const IN_FLIGHT: &str = "rate = '20/h'\n[[limit]]\nname = 'm'\nkey = []\nalgorithm = 'concurrency'\nmax = 1";

/// What an answer says, as a client reads it.
#[derive(Debug, Default)]
struct Told {
    is_refused: bool,
    retry_after_s: Option<u64>,
    /// X-RateLimit-Limit, -Remaining and -Reset.
    x: [Option<u64>; 3],
    /// Names and parameters.
    policies: Vec<Item>,
    limits: Vec<Item>,
    text: String,
}

#[derive(Debug)]
struct Item {
    name: String,
    parameters: Vec<(String, u64)>,
}

impl Item {
    fn get(&self, name: &str) -> Option<u64> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// A list of strings with whole numbers as parameters (RFC 9651); other parameters are comments.
fn list(text: &str) -> Vec<Item> {
    let item = |text: &str| {
        let (name, parameters) = text.trim().split_once(';').unwrap();
        let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap();
        let parameter = |text: &str| {
            let (key, value) = text.split_once('=').unwrap();
            Some((key.to_owned(), value.parse().ok()?))
        };
        Item { name: name.to_owned(), parameters: parameters.split(';').filter_map(parameter).collect() }
    };
    text.split(',').map(item).collect()
}

impl Told {
    fn read(head: Vec<u8>, is_refused: bool) -> Self {
        let text = String::from_utf8(head).unwrap();
        let mut told = Self { is_refused, ..Self::default() };
        for (name, value) in text.lines().map(|line| line.split_once(": ").unwrap()) {
            match name {
                "retry-after" => told.retry_after_s = Some(value.parse().unwrap()),
                "x-ratelimit-limit" => told.x[0] = Some(value.parse().unwrap()),
                "x-ratelimit-remaining" => told.x[1] = Some(value.parse().unwrap()),
                "x-ratelimit-reset" => told.x[2] = Some(value.parse().unwrap()),
                "ratelimit-policy" => told.policies = list(value),
                "ratelimit" => told.limits = list(value),
                _ => {}
            }
        }
        told.text = text;
        told
    }

    /// Nanoseconds between requests of so many units, by all policies.
    fn pace_ns(&self, cost: u64) -> u64 {
        let pace = |item: &Item| Some((item.get("w")? * NS_PER_S).div_ceil(item.get("q")? / cost));
        self.policies.iter().filter_map(pace).max().unwrap()
    }

    /// Seconds that a client waits by `RateLimit` before a request of so many units.
    fn reset_s(&self, cost: u64) -> Option<u64> {
        self.limits.iter().filter(|item| item.get("r").unwrap() < cost).filter_map(|item| item.get("t")).max()
    }
}

/// A Weir in front of nothing.
struct Server {
    gate: Gate,
    live: crate::engine::gate::Live,
    text: String,
}

impl Server {
    fn new(limit: &str) -> Self {
        let text = format!(
            "{UPSTREAM}[[limit]]\nname = 'l'\nkey = []\n{limit}\n[headers]\nprofiles = ['ietf', 'x-ratelimit']"
        );
        let config = compile(&text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        let gate = Gate::new(Clock::start(), [7; 16], Arc::new(Metrics::new("", "").unwrap()));
        let live = gate.install(config.policy, config.hold, 10);
        Self { gate, live, text }
    }

    /// A request, and what its answer says.
    fn ask(&self) -> Told {
        let fields = FieldBuf::default();
        let facts = Facts {
            method: &Method::GET,
            host: "h",
            path: "/",
            query: None,
            headers: fields.fields(),
            client_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            is_free_preflight: false,
            is_proxied: false,
            certificate: None,
            cost: None,
            body: None,
        };
        let admit = |stage| self.gate.admit(&self.live, stage, &facts, || 0, self.gate.clock().now()).unwrap();
        let (mut standing, mut budgets, mut head, mut passes) = (None, Vec::new(), Vec::new(), Vec::new());
        for stage in [Stage::Arrival, Stage::Identified] {
            let mut pass: Box<Pass<'_>> = match admit(stage) {
                Step::Pass(pass) => pass,
                Step::Refuse(refusal) => {
                    let refusal = refusal.charged_before(standing, budgets, |_| 0);
                    LocalReply::refusal(refusal, FieldBuf::default().fields(), false)
                        .write_headers(&mut head, PROFILES);
                    return Told::read(head, true);
                }
                other => panic!("{other:?}"),
            };
            pass.charged.commit(true);
            standing = Standing::tightest(standing, pass.standing);
            budgets.extend(pass.budgets());
            passes.push(pass);
        }
        limit_headers(&mut head, PROFILES, &standing.unwrap(), &budgets, Disposition::Forwarded);
        Told::read(head, false)
    }
}

async fn pass_ns(ns: u64) {
    advance(std::time::Duration::from_nanos(ns)).await;
}

/// Asks `many` times, and waits in between as long as `wait_ns` reads in the answer.
async fn never_refused(limit: &str, many: usize, wait_ns: impl Fn(&Server, &Told) -> u64) {
    let server = Server::new(limit);
    for number in 0..many {
        let told = server.ask();
        assert!(!told.is_refused, "request {number}\n{}\n{}", server.text, told.text);
        pass_ns(wait_ns(&server, &told)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_paced_by_its_policies_is_never_refused() {
    for (cost, limit) in ROWS {
        never_refused(limit, 200, |_, told| told.pace_ns(cost)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_spends_what_is_left_and_then_waits_for_more_is_never_refused() {
    for (cost, limit) in ROWS.into_iter().chain([(1, IN_FLIGHT)]) {
        // At once, or with a pause between requests that is no part of any window.
        for pause_ns in [0, 700_000_001, 3_300_000_000] {
            never_refused(limit, 150, |_, told| told.reset_s(cost).map_or(pause_ns, |s| s * NS_PER_S)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_the_reset_of_x_ratelimit_is_never_refused() {
    for (cost, limit) in ROWS.into_iter().chain([(1, IN_FLIGHT)]) {
        never_refused(limit, 100, |server, told| {
            let now_ns = server.gate.clock().now().as_ns();
            match told.x {
                [_, Some(left), Some(reset_s)] if left < cost => (reset_s * NS_PER_S).saturating_sub(now_ns),
                _ => 1,
            }
        })
        .await;
    }
}

/// Asks until it is refused, waits for `Retry-After`, and passes: no sooner, and no later.
#[tokio::test(start_paused = true)]
async fn a_refused_client_passes_after_the_wait_that_it_is_told() {
    // A refusal of the arrival stage cannot know what later limits would say.
    for (cost, limit) in ROWS.into_iter().filter(|(_, limit)| !limit.contains("arrival")) {
        let server = Server::new(limit);
        for _ in 0..40 {
            let told = loop {
                let told = server.ask();
                if told.is_refused {
                    break told;
                }
            };
            let about = format!("{}\n{}", server.text, told.text);
            let retry_s = told.retry_after_s.unwrap();
            let tightest = &told.limits[0];
            assert_eq!(
                (tightest.get("t"), tightest.get("r")),
                (Some(retry_s), told.x[1]),
                "one rate is told of: {about}"
            );
            assert!(told.limits.iter().all(|item| item.get("t") <= Some(retry_s)), "none is later: {about}");
            assert!(told.reset_s(cost) == Some(retry_s), "{about}");
            assert!(told.x[2].unwrap() >= server.gate.clock().now().as_secs() + retry_s - 1, "{about}");
            if retry_s > 1 {
                pass_ns((retry_s - 1) * NS_PER_S).await;
                assert!(server.ask().is_refused, "too long: {about}");
                pass_ns(NS_PER_S).await;
            } else {
                pass_ns(retry_s * NS_PER_S).await;
            }
            let told = server.ask();
            assert!(!told.is_refused, "too short: {about}\n{}", told.text);
        }
    }
}

/// What the IETF fields say after so many requests, the last of which may be refused.
fn fields(limit: &str, requests: usize) -> [String; 2] {
    let server = Server::new(limit);
    let told = (0..requests).map(|_| server.ask()).last().unwrap();
    ["ratelimit-policy: ", "ratelimit: "]
        .map(|name| told.text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_fields_are_lists_of_all_rates_and_limits() {
    let two = "rate = '2/h'\n[[limit]]\nname = 'm'\nkey = []\nrate = '9/s'\nstage = 'arrival'";
    for (limit, requests, policy, left) in [
        ("rate = '10/10s'", 1, r#""l";q=10;w=10"#, r#""l";r=9;t=1"#),
        ("rate = '10/10s'\nburst = 50", 1, r#""l";q=50;w=50"#, r#""l";r=49;t=1"#),
        ("rate = '10/10s'\nburst = 50", 51, r#""l";q=50;w=50"#, r#""l";r=0;t=1"#),
        ("rate = '2/h'", 3, r#""l";q=2;w=3600"#, r#""l";r=0;t=1800"#),
        ("rate = '7/min'", 1, r#""l";q=7;w=60"#, r#""l";r=6;t=9"#),
        ("rate = '100/s'\nburst = 1", 1, r#""l";q=100;w=1"#, r#""l";r=0;t=1"#),
        ("rate = '100/s'\nburst = 150", 1, r#""l";q=200;w=2"#, r#""l";r=149;t=1"#),
        ("rate = '20/min'\ncost = 15", 2, r#""l";q=20;w=60"#, r#""l";r=5;t=30"#),
        ("rate = '10/10s'\nalgorithm = 'sliding_window'", 1, r#""l";q=10;w=12"#, r#""l";r=9"#),
        ("algorithm = 'concurrency'\nmax = 5", 1, r#""l";q=5;qu="concurrent-requests""#, r#""l";r=4"#),
        (
            "rate = '20/min'\ncost = { header = 'content-length', max = 9, default = 9 }",
            1,
            r#""l";q=20;w=60;qu="content-bytes""#,
            r#""l";r=11;t=3"#,
        ),
        ("rate = '20/min'\nunit_name = 'tokens'", 1, r#""l";q=20;w=60;qu="tokens""#, r#""l";r=19;t=3"#),
        (
            "rate = '20/min'\nmax_debt = 9\nsettle = { by = 'response_bytes' }",
            1,
            r#""l";q=20;w=60;qu="content-bytes""#,
            r#""l";r=19;t=3"#,
        ),
        (
            "rate = ['5/min', '1000/day']",
            1,
            r#""l/1";q=5;w=60, "l/2";q=1000;w=86400"#,
            r#""l/1";r=4;t=12, "l/2";r=999;t=87"#,
        ),
        (
            "rate = ['5/min', '1000/day']",
            6,
            r#""l/1";q=5;w=60, "l/2";q=1000;w=86400"#,
            r#""l/1";r=0;t=12, "l/2";r=995"#,
        ),
        ("rate = ['9/s', '3/h']", 4, r#""l/1";q=9;w=1, "l/2";q=3;w=3600"#, r#""l/2";r=0;t=1200, "l/1";r=6;t=1"#),
        (two, 1, r#""m";q=9;w=1, "l";q=2;w=3600"#, r#""l";r=1;t=1800, "m";r=8;t=1"#),
        (two, 3, r#""m";q=9;w=1, "l";q=2;w=3600"#, r#""l";r=0;t=1800, "m";r=6;t=1"#),
    ] {
        let [found_policy, found_left] = fields(limit, requests);
        // When a sliding window gives units back depends on the date.
        let found_left = if limit.contains("sliding") { found_left.split(";t").next().unwrap() } else { &found_left };
        assert_eq!((&*found_policy, found_left), (policy, left), "{limit}, {requests} requests");
    }
}

/// What the arrival stage has charged stays charged, so its wait counts.
#[tokio::test(start_paused = true)]
async fn a_refusal_by_a_later_stage_knows_the_wait_of_the_arrival_stage() {
    let server = Server::new("rate = '1/5s'\n[[limit]]\nname = 'm'\nkey = []\nrate = '2/min'\nstage = 'arrival'");
    assert!(!server.ask().is_refused);
    let told = server.ask();
    assert_eq!((told.is_refused, told.retry_after_s, told.x[0]), (true, Some(30), Some(2)), "{}", told.text);
    assert_eq!(told.text.lines().last(), Some(r#"ratelimit: "m";r=0;t=30, "l";r=0;t=5"#));
    pass_ns(30 * NS_PER_S).await;
    assert!(!server.ask().is_refused);
}

/// Waits that are known go before those that end with another request.
#[tokio::test(start_paused = true)]
async fn of_two_limits_the_one_with_a_known_wait_is_told() {
    let server = Server::new(IN_FLIGHT);
    let told = (0..21).map(|_| server.ask()).last().unwrap();
    assert_eq!((told.is_refused, told.retry_after_s), (true, Some(180)));
    assert!(told.text.contains("x-ratelimit-limit: 20\r\nx-ratelimit-remaining: 0"), "{}", told.text);
    assert_eq!(told.limits.iter().map(|item| (&*item.name, item.get("t"))).next(), Some(("l", Some(180))));
    assert_eq!(Retry::ON_RELEASE.max(Retry::AfterNs(1)), Retry::ON_RELEASE, "which sorts after known ones");
}
