//! Clients below their limits while a store is away for longer than its keys remember.

use std::time::{Duration, Instant};

use crate::ops::until;
use crate::support::{Etcd, Fleet, Link, Redis, Relay, Samples, Upstream, Weir};

const REPLICAS: usize = 3;

/// The timeout of all stores.
const TIMEOUT_MS: usize = 250;

/// 24 units in four seconds, under each algorithm.
const ALGORITHMS: [(&str, &str); 8] = [
    ("bucket", "rate = \"24/4s\""),
    ("leaky", "rate = \"24/4s\"\nalgorithm = \"leaky_bucket\""),
    ("calendar", "rate = \"24/4s\"\nalgorithm = \"fixed_window\""),
    ("first", "rate = \"24/4s\"\nalgorithm = \"fixed_window\"\nalign = \"first\""),
    ("sliding", "rate = \"24/4s\"\nalgorithm = \"sliding_window\""),
    ("parts", "rate = \"24/4s\"\nalgorithm = \"sub_window\""),
    ("two", "rate = [\"24/4s\", \"48/8s\"]"),
    ("log", "rate = \"24/4s\"\nalgorithm = \"sliding_log\""),
];

/// A limit for each path below its name.
fn limit((name, lines): &(&str, &str)) -> String {
    format!("[[limit]]\nname = \"{name}\"\nkey = [\"path\"]\nmatch = {{ path = \"/{name}/{{kind}}\" }}\n{lines}\n")
}

/// `[fleet]` with this strategy of limits without one, and these lines.
fn config(strategy: &str, rest: &str) -> String {
    format!(
        "[fleet]\nstrategy = \"{strategy}\"\nreplicas = {REPLICAS}\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\n{rest}\n"
    )
}

/// A limiter with these limits. It serves no requests.
fn limiter(limits: &str) -> Weir {
    let rest = config("local", &format!("[grpc]\nlisten = \"127.0.0.1:0\"\n{limits}"));
    Fleet::start_one(&Weir::config(&Upstream::start(), "", &rest))
}

#[test]
fn redis_stops() {
    let redis = Redis::start();
    let store = format!("redis = [\"{}\"]", redis.url());
    let set = |is_away| if is_away { redis.freeze() } else { redis.thaw() };
    clients_do_not_notice("redis", &store, &ALGORITHMS, set);
}

#[test]
fn redis_that_lends_stops() {
    let redis = Redis::start();
    let store = format!("redis = [\"{}\"]", redis.url());
    let set = |is_away| if is_away { redis.freeze() } else { redis.thaw() };
    clients_do_not_notice("lease", &store, &ALGORITHMS, set);
}

#[test]
fn etcd_is_away() {
    let etcd = Etcd::start();
    let relay = Relay::to(etcd.address());
    let store = format!("etcd = [\"http://{}\"]", relay.address());
    // A log cannot be lent.
    let (_, lent) = ALGORITHMS.split_last().unwrap();
    let set = |is_away| relay.set(if is_away { Link::Reset } else { Link::Clear });
    clients_do_not_notice("lease", &store, lent, set);
}

#[test]
fn a_limiter_stops() {
    let limits = ALGORITHMS.iter().map(limit).collect::<String>() + GREEDY;
    let limiter = limiter(&limits);
    let store = format!("service = \"http://{}\"", limiter.grpc());
    let set = |is_away| limiter.signal(if is_away { "STOP" } else { "CONT" });
    clients_do_not_notice("service", &store, &ALGORITHMS, set);
}

/// 30 units a second, and 60 at once.
const GREEDY: &str = "[[limit]]\nname = \"greedy\"\nkey = []\nmatch = { path = \"/greedy\" }\nrate = \"60/2s\"\n";

/// Two outages of one store, which `set` begins and ends: one under clients below their limits, and one under a greedy one.
fn clients_do_not_notice(strategy: &str, store: &str, algorithms: &[(&str, &str)], set: impl Fn(bool)) {
    let upstream = Upstream::start();
    let limits: String = algorithms.iter().map(limit).collect();
    let store = format!("[store.main]\n{store}\ntimeout = \"{TIMEOUT_MS}ms\"\n{limits}{GREEDY}");
    let fleet = Fleet::start(REPLICAS, &upstream, &config(strategy, &store));
    fleet.wait_for_stores(true);
    obedient_clients_pass((&fleet, &upstream), algorithms, &set);
    a_greedy_client_gets_the_limit(strategy, &fleet, &set);
}

/// A client that asks for much more than its limit gets no more for an outage, and no less.
fn a_greedy_client_gets_the_limit(strategy: &str, fleet: &Fleet, set: impl Fn(bool)) {
    let gets_the_limit = || {
        let (begin, mut back) = (Instant::now(), Instant::now());
        let answers = fleet.during(6, Duration::from_millis(72), &["/greedy"], || {
            for (is_away, seconds) in [(false, 3), (true, 5), (false, 4)] {
                set(is_away);
                back = Instant::now();
                std::thread::park_timeout(Duration::from_secs(seconds));
            }
        });
        answers.assert_only(&[200, 429]);
        let share = |passed: usize, allowed: f64| passed as f64 / allowed;
        let all = share(answers.passed(), 60.0 + 30.0 * begin.elapsed().as_secs_f64());
        let after = share(answers.between(back, back + Duration::from_secs(3)).passed(), 90.0);
        println!("{strategy}: admitted / allowed {all:.3}, in the 3 s after the return {after:.3}");
        // In any span, replicas that borrow may spend the units of half a second more.
        (0.9..=1.02).contains(&all) && (0.8..=1.17).contains(&after)
    };
    // Clients that stand still ask for less, and spend it afterwards. Processes that stand still may admit more. The bucket
    // is full after two seconds.
    let is_exact = (0..3).any(|turn| {
        std::thread::sleep(Duration::from_secs(2 * turn.min(1)));
        gets_the_limit()
    });
    assert!(is_exact, "{strategy}");
}

/// A proxy accepts connections to a server that is gone, and ends them.
#[test]
fn a_server_behind_a_proxy_is_gone() {
    let (limiter, etcd) = (limiter(&limit(&BUSY)), Etcd::start());
    let stores =
        [("service", limiter.grpc(), "service = \"http://@\""), ("lease", etcd.address(), "etcd = [\"http://@\"]")];
    for (strategy, server, lines) in stores {
        let (relay, upstream) = (Relay::to(server), Upstream::start());
        let store = lines.replace('@', &relay.address().to_string());
        let store = format!("[store.main]\n{store}\n{}", limit(&BUSY));
        let fleet = Fleet::start(1, &upstream, &config(strategy, &store));
        fleet.wait_for_stores(true);
        relay.set(Link::Ended);
        fleet.wait_for_stores(false);
        fleet.weirs[0].wait_for_line("a node of a store does not answer");
        assert!(fleet.metric("weir_fleet_bound_ratio{limit=\"bucket\"}") > 1.0, "{strategy}");
        relay.set(Link::Clear);
        fleet.wait_for_stores(true);
        fleet.weirs[0].wait_for_line("a node of a store answers again");
    }
}

/// Requests that wait for their units pass at the rate of the limit, with a store, without it and once it is back.
#[test]
fn held_requests_keep_the_rate() {
    const HOLD: &str = "[[limit]]\nname = \"held\"\nkey = []\nrate = \"40/4s\"\nburst = 10\non_limit = \"hold\"\n\
                        hold = { max_wait = \"10s\" }\n";
    let share = |strategy: &str| {
        let (redis, upstream) = (Redis::start(), Upstream::start());
        let store = format!("[store.main]\nredis = [\"{}\"]\ntimeout = \"{TIMEOUT_MS}ms\"\n{HOLD}", redis.url());
        let fleet = Fleet::start(REPLICAS, &upstream, &config(strategy, &store));
        fleet.wait_for_stores(true);
        let begin = Instant::now();
        let answers = fleet.during(12, Duration::ZERO, &["/"], || {
            for is_away in [false, true, false] {
                if is_away {
                    redis.freeze();
                } else {
                    redis.thaw();
                }
                std::thread::park_timeout(Duration::from_secs(4));
            }
        });
        // Those that still wait pass, too.
        let allowed = 10.0 + 10.0 * begin.elapsed().as_secs_f64();
        let passed = answers.passed() as f64;
        println!("{strategy}: {passed} of {allowed:.0}, longest {:.1?}", answers.percentile(100));
        answers.assert_only(&[200]);
        passed / allowed
    };
    // Processes that stand still have more outages than these, but not each time.
    for strategy in ["redis", "lease"] {
        assert!((0..3).any(|_| (0.9..=1.02).contains(&share(strategy))), "{strategy}");
    }
}

/// Units that the fleet may admit beyond what a limit allows while connections flap: of a hundred.
const OVER_PERCENT: usize = 2;

/// The seconds of flapping, and the units of a second.
const FLAPPING_S: usize = 12;
const UNITS: usize = 40;

#[test]
fn connections_to_redis_flap() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let store = format!("redis = [\"{}\"]", relay.url());
    flapping_connections_admit_no_more(|| over_flapping_connections("redis", &store, &relay));
}

#[test]
fn connections_to_a_limiter_flap() {
    let limiter = limiter(&limit(&BUSY));
    let relay = Relay::to(limiter.grpc());
    let store = format!("service = \"http://{}\"", relay.address());
    flapping_connections_admit_no_more(|| over_flapping_connections("service", &store, &relay));
}

/// A bucket that fills within a second.
const BUSY: (&str, &str) = ("bucket", "rate = \"40/s\"");

/// What replicas admit without the store is charged later, so it does not add up. Processes that stand still charge it too
/// late, but not each time.
fn flapping_connections_admit_no_more(mut percent: impl FnMut() -> usize) {
    assert!((0..3).any(|_| percent() <= 100 + OVER_PERCENT));
}

/// Each fifth piece that a relay would pass on resets its connection, under twice the load that the limit allows. Returns
/// what passes, as a percentage of what the limit allows.
fn over_flapping_connections(strategy: &str, store: &str, relay: &Relay) -> usize {
    relay.set(Link::Clear);
    let upstream = Upstream::start();
    let store = format!("[store.main]\n{store}\ntimeout = \"{TIMEOUT_MS}ms\"\n{}", limit(&BUSY));
    let fleet = Fleet::start(REPLICAS, &upstream, &config(strategy, &store));
    fleet.wait_for_stores(true);
    let clients = 4;
    let pace = Duration::from_secs(clients as u64) / u32::try_from(2 * UNITS).unwrap();
    let (mut passed, mut begin, mut end) = (0, Instant::now(), Instant::now());
    let answers = fleet.during(clients, pace, &["/bucket/busy"], || {
        // The burst is spent first. A bucket that refuses is empty.
        std::thread::sleep(Duration::from_secs(2));
        let refused = || fleet.metric("weir_limit_decisions_total{decision=\"refused\",limit=\"bucket\"}");
        let before = refused();
        until("a refusal", || refused() > before);
        relay.set(Link::Flapping(20));
        let spent = upstream.received_count();
        begin = Instant::now();
        std::thread::sleep(Duration::from_secs(FLAPPING_S as u64));
        (passed, end) = (upstream.received_count() - spent, Instant::now());
    });
    let allowed = UNITS * usize::try_from((end - begin).as_millis()).unwrap() / 1000;
    // On a busy machine, clients ask for less than is allowed, but for more than if each request waited for the timeout.
    let asked = answers.between(begin, end).0.len();
    eprintln!("{strategy}: {passed} of {allowed}, {asked} asked, {} without the store", fleet.metric(FALLBACKS));
    answers.assert_only(&[200, 429]);
    assert!(relay.accepted() > 10 * FLAPPING_S as u64, "{strategy}: {} connections", relay.accepted());
    assert!(passed * 100 >= allowed.min(asked) * 60, "{strategy}: {passed} of {allowed}, {asked} asked");
    assert!(asked > clients * FLAPPING_S * 1000 / TIMEOUT_MS, "{strategy}: {asked} asked");
    (passed * 100).div_ceil(allowed)
}

const FALLBACKS: &str = "weir_fallback_decisions_total{limit=\"bucket\"}";

/// Nothing is refused before, during or after an outage, of keys that are busy all the time, and of keys that are idle at
/// its end. `set` begins and ends the outage.
fn obedient_clients_pass((fleet, upstream): (&Fleet, &Upstream), algorithms: &[(&str, &str)], set: impl Fn(bool)) {
    let of = |kind: &str| algorithms.iter().map(|(name, _)| format!("/{name}/{kind}")).collect::<Vec<_>>();
    let (busy, mut all) = (of("busy"), of("idle"));
    all.extend(of("busy"));
    let check = |phase: &str, answers: &Samples| {
        let refused = |(name, _): &(&str, &str)| {
            let series = format!("weir_limit_decisions_total{{decision=\"refused\",limit=\"{name}\"}}");
            (name.to_string(), fleet.metric(&series))
        };
        let refused = || algorithms.iter().map(refused).collect::<Vec<_>>();
        assert_eq!(answers.passed(), answers.0.len(), "{phase}: {:?}", refused());
        assert!(answers.0.len() > algorithms.len(), "{phase}");
    };
    check("before", &paced((fleet, upstream), &all, Duration::from_secs(1)));
    set(true);
    check("begin", &paced((fleet, upstream), &all, Duration::from_secs(5)));
    check("idle", &paced((fleet, upstream), &busy, Duration::from_secs(5)));
    set(false);
    fleet.wait_for_stores(true);
    check("after", &paced((fleet, upstream), &all, Duration::from_secs(4)));
}

/// Sends at most 4.5 requests a second for each target: three quarters of its limit. One client asks all replicas in turn, so
/// that each gets the same share however slow the machine is: the number of targets is no multiple of theirs. At the
/// begin of a phase a replica may get a request more than its part.
fn paced((fleet, upstream): (&Fleet, &Upstream), targets: &[String], time: Duration) -> Samples {
    let (begin, pace) = (Instant::now(), Duration::from_micros(222_222) / u32::try_from(targets.len()).unwrap());
    let before = upstream.received_count();
    fleet.during(1, pace, targets, || {
        while let Some(left) = time.checked_sub(begin.elapsed()) {
            std::thread::park_timeout(left);
        }
        // A busy machine takes longer.
        until("each target is asked", || upstream.received_count() > before + targets.len());
    })
}
