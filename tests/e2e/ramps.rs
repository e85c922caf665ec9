//! Limits whose numbers follow the wall clock.

use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::ops::replace;
use crate::support::{Answer, Client, Fleet, Redis, Upstream, Weir, library, over_h2};

/// A time of the wall clock, in seconds from now, as RFC 3339.
fn at(offset_s: i64) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let then = UNIX_EPOCH + Duration::from_secs(now_s.saturating_add_signed(offset_s));
    humantime::format_rfc3339_seconds(then).to_string()
}

/// Asks until the answer has this status.
fn until(client: &mut Client, target: &str, status: u16) -> Answer {
    let began = Instant::now();
    loop {
        let answer = client.get(target);
        if answer.status == status {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{}", answer.head);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// On the way to zero answers name the end and the successor; at zero they are 410, also for a request that waits.
#[test]
fn an_old_version_is_retired() {
    let upstream = Upstream::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nDeprecation: @1\r\nSunset: never\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(head.as_bytes()).is_ok()
    });
    let (from, to) = (at(-2), at(8));
    let ramp = format!("{{ from = '{from}', to = '{to}', to_rate = '0/s', successor = '/v2/a' }}");
    let weir = Weir::start(
        &upstream,
        &format!(
            "[[limit]]\nname = 'old'\nmatch = {{ path = '/v1/{{*rest}}' }}\nkey = []\nrate = '1000/s'\nramp = {ramp}
             [[limit]]\nname = 'slow'\nmatch = {{ path = '/slow' }}\nkey = []\nrate = '1/h'\non_limit = 'hold'\nramp = {ramp}"
        ),
    );
    let mut client = Client::connect(weir.address());
    let answer = client.get("/v1/a");
    let fields = ["deprecation", "sunset", "link"].map(|name| answer.header(name).map(ToOwned::to_owned));
    let [Some(deprecation), Some(sunset), Some(link)] = &fields else { panic!("{}", answer.head) };
    assert_eq!(answer.status, 200);
    let begin = humantime::parse_rfc3339(&from).unwrap().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(*deprecation, format!("@{begin}"));
    assert_eq!(httpdate::parse_http_date(sunset).unwrap(), humantime::parse_rfc3339(&to).unwrap());
    assert_eq!(link, "</v2/a>; rel=\"successor-version\"");
    let limit: u64 = answer.header("x-ratelimit-limit").unwrap().parse().unwrap();
    assert!((1..1000).contains(&limit), "{limit}");
    assert!(["deprecation: ", "sunset: "].iter().all(|name| answer.head.to_lowercase().matches(name).count() == 1));
    assert_eq!(client.get("/v2/a").header("sunset"), Some("never"), "that of the service");
    let ask = "GET /limit?name=old HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let page = Client::connect(weir.admin()).send(ask).answer().text();
    let range = [&from, &to].map(|at| at[..16].replace('T', " ")).join(" to ");
    assert!(page.contains(&format!("Ramp, {range} UTC. part of the numbers: now ")), "{page}");

    assert_eq!(client.get("/slow").status, 200);
    let mut waiting = Client::connect(weir.address());
    waiting.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    let gone = until(&mut client, "/v1/a", 410);
    assert!(SystemTime::now() >= humantime::parse_rfc3339(&to).unwrap());
    assert_eq!(["deprecation", "sunset", "link"].map(|name| gone.header(name).map(ToOwned::to_owned)), fields);
    assert!(gone.header("retry-after").is_none());
    assert_eq!(gone.header("x-ratelimit-remaining"), Some("0"));
    let problem: serde_json::Value = serde_json::from_slice(&gone.body).unwrap();
    assert_eq!((&problem["status"], &problem["title"]), (&410.into(), &"Gone".into()));
    assert_eq!(problem["detail"], "a ramp has lowered the limit to zero: old");
    assert_eq!(waiting.answer().status, 410, "a request that waits");
    assert_eq!(client.get("/v2/a").status, 200);
    let over_http2 = over_h2(weir.address(), async |mut client, _| client.get("/v1/a").await.unwrap());
    assert_eq!((over_http2.status, over_http2.header("link")), (410, Some(&**link)));
}

/// The clock is set to a time after the ramp, and back.
#[test]
fn a_clock_that_is_set_is_followed() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let ramp = format!("{{ from = '{}', to = '{}', to_rate = '0/s' }}", at(3600), at(7200));
    let limit = format!("[[limit]]\nname = 'old'\nkey = []\nrate = '1000/s'\nramp = {ramp}");
    std::fs::write(folder.path().join("weir.toml"), Weir::config(&upstream, "", &limit)).unwrap();
    let (clock, library) = (folder.path().join("clock"), library("faketime/libfaketimeMT.so.1"));
    std::fs::write(&clock, "+0").unwrap();
    let variables = [
        ("LD_PRELOAD", library.to_str().unwrap()),
        ("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let weir = Weir::start_in_env(folder, &variables);
    let mut client = Client::connect(weir.address());
    assert_eq!(client.get("/").status, 200);
    for (ahead, status) in [("+10800", 410), ("+0", 200)] {
        replace(&clock, ahead);
        until(&mut client, "/", status);
        weir.wait_for_line("the clock of the system was set");
        if ahead == "+10800" {
            weir.signal("HUP");
            weir.wait_for_line("\"reloaded\"");
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
            assert!(weir.metric("weir_config_last_reload_timestamp_seconds") > now_s + 10_000.0);
        }
    }
}

/// A process that is stopped, or busy with a reload, at the time of a step makes it afterwards.
#[test]
fn a_step_is_not_missed() {
    let (from, to) = (at(-60), at(10));
    let ramp = format!("{{ from = '{from}', to = '{to}', step = '1min', to_rate = '0/s' }}");
    let limit = format!("[[limit]]\nname = 'old'\nkey = []\nrate = '1000/s'\nramp = {ramp}");
    let weir = Weir::start(&Upstream::start(), &limit);
    weir.signal("STOP");
    let step = humantime::parse_rfc3339(&to).unwrap();
    assert!(SystemTime::now() < step, "stopped after the step");
    let last_look = step + Duration::from_secs(6);
    std::thread::sleep(last_look.duration_since(SystemTime::now()).unwrap_or_default());
    weir.signal("CONT");
    until(&mut Client::connect(weir.address()), "/", 410);
}

/// Replicas that share limits over Redis reach zero together, also with units that they have borrowed. A restart does not
/// begin the ramp anew.
#[test]
fn replicas_reach_zero_together() {
    let (upstream, redis) = (Upstream::start(), Redis::start());
    let (from, to) = (at(-1), at(9));
    let limit = |strategy: &str| {
        format!(
            "[[limit]]\nname = '{strategy}'\nmatch = {{ path = '/{strategy}' }}\nkey = []\nrate = '100000/h'
             strategy = '{strategy}'
             ramp = {{ from = '{from}', to = '{to}', to_rate = '0/s', at_zero = 'limited' }}\n"
        )
    };
    let strategies = ["local", "split", "redis", "lease"];
    let config = format!(
        "[fleet]\nreplicas = 2\nstrategy = 'local'\nsecret = {{ env = 'WEIR_FLEET_SECRET' }}\n[store.s]\nredis = ['{}']\n{}",
        redis.url(),
        strategies.map(limit).concat()
    );
    let fleet = Fleet::start(2, &upstream, &config);
    let mut clients: Vec<_> = fleet.weirs.iter().map(|weir| Client::connect(weir.address())).collect();
    for strategy in strategies {
        let target = format!("/{strategy}");
        assert!(clients.iter_mut().all(|client| client.get(&target).status == 200), "{strategy}");
    }
    for client in &mut clients {
        until(client, "/local", 429);
        assert!(SystemTime::now() >= humantime::parse_rfc3339(&to).unwrap());
        for strategy in strategies {
            let refused = client.get(&format!("/{strategy}"));
            assert_eq!((refused.status, refused.header("retry-after")), (429, None), "{strategy}");
            assert!(refused.text().contains("lowered the limit to zero: "), "{}", refused.text());
        }
    }
    let restarted = Fleet::start_one(&Weir::config(&upstream, "", &config));
    assert_eq!(Client::connect(restarted.address()).get("/redis").status, 429);
}

/// A replica whose clock is an hour ahead is at the end of the ramp; the fleet admits what the highest rule does.
#[test]
fn replicas_with_other_clocks_follow_the_highest_rule_at_most() {
    let (upstream, redis) = (Upstream::start(), Redis::start());
    let config = format!(
        "[fleet]\nreplicas = 2\nstrategy = 'local'\nsecret = {{ env = 'WEIR_FLEET_SECRET' }}\n[store.s]\nredis = ['{}']\ntimeout = '5s'
         [[limit]]\nname = 'old'\nkey = []\nrate = '100/day'\nalgorithm = 'fixed_window'\nalign = 'first'
         strategy = 'redis'\nramp = {{ from = '{}', to = '{}', to_rate = '0/s', step = '10min' }}",
        redis.url(),
        at(-5),
        at(1800),
    );
    let fleet = Fleet::with_clocks(&Weir::config(&upstream, "", &config), &["+0", "+3600"]);
    fleet.wait_for_stores(true);
    let mut clients: Vec<_> = fleet.weirs.iter().map(|weir| Client::connect(weir.address())).collect();
    let mut answers = |client: usize| (0..110).filter(|_| clients[client].get("/").status == 200).count();
    assert_eq!([answers(1), answers(0), answers(1)], [0, 100, 0]);
}
