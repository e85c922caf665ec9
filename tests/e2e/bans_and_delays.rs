//! Bans, delays, and keys beyond `max_keys`.

use std::time::{Duration, Instant};

use crate::support::{Answer, Client, Upstream, Weir};

fn retry_after(answer: &Answer) -> (u16, Option<u64>) {
    (answer.status, answer.header("retry-after").map(|value| value.parse().unwrap()))
}

#[test]
fn who_is_refused_too_often_is_banned() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"header:x-key\"]\nrate = \"1/h\"\n\
                 ban = { after = \"2/h\", for = \"10min\" }\n";
    let weir = Weir::start(&upstream, &format!("{limit}[log]\nformat = \"json\"\naccess = \"refused\"\n"));
    let mut client = Client::connect(weir.address());
    let mut ask = |key: &str, rest: &str| {
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\nContent-Length: 0\r\n{rest}\r\n")).answer()
    };
    let statuses: Vec<_> = (0..3).map(|_| ask("k", "").status).collect();
    assert_eq!(statuses, [200, 429, 429]);

    let banned = ask("k", "");
    let (status, seconds) = retry_after(&banned);
    assert!(status == 403 && seconds.is_some_and(|seconds| (500..=600).contains(&seconds)), "{}", banned.head);
    let problem: serde_json::Value = serde_json::from_slice(&banned.body).unwrap();
    assert_eq!(banned.header("content-type"), Some("application/problem+json"));
    assert_eq!((&problem["status"], &problem["title"]), (&403.into(), &"Abnormal usage detected".into()));
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.starts_with("banned by l; retry after ")));
    let call = ask("k", "Content-Type: application/grpc\r\n");
    assert_eq!((call.status, call.header("grpc-status")), (200, Some("7")));

    assert_eq!(ask("other", "").status, 200);
    assert_eq!(weir.metric("weir_bans_total{limit=\"l\"}"), 1.0);
    assert_eq!(weir.metric("weir_banned_keys{limit=\"l\"}"), 1.0);
    assert_eq!(weir.metric("weir_requests_total{verdict=\"refused\"}"), 4.0);
    for (by, decision) in [("limit", "refused"), ("ban", "banned")] {
        assert_eq!(weir.metric(&format!("weir_refused_requests_total{{by=\"{by}\"}}")), 2.0);
        let decided = format!("weir_limit_decisions_total{{decision=\"{decision}\",limit=\"l\"}}");
        assert_eq!(weir.metric(&decided), 2.0);
    }
    assert_eq!(upstream.targets().len(), 2);
    let top: serde_json::Value = {
        let head = "GET /v1/top HTTP/1.1\r\nHost: localhost\r\n\r\n";
        serde_json::from_slice(&Client::connect(weir.admin()).send(head).answer().body).unwrap()
    };
    // A refusal that finds the counts in use is only counted as missed.
    let [total, missed] = ["total", "missed"].map(|name| top["limits"][0][name].as_u64().unwrap());
    assert_eq!((total + missed, top["limits"][0]["keys"][0]["count"].as_u64()), (4, Some(total)), "{top}");
    let verdicts = || {
        let lines = weir.lines().into_iter().filter(|line| line.contains("\"request\"")).collect::<Vec<_>>();
        ["limit", "ban"].map(|by| {
            let refused = format!("\"verdict\":\"refused\",\"refused_by\":\"{by}\"");
            lines.iter().filter(|line| line.contains(&refused)).count()
        })
    };
    weir.wait_until("a line for each", || verdicts() == [2, 2]);
    let line = weir.wait_for_line("a limit has banned a key");
    assert!(line.contains("\"limit\":\"l\"") && line.contains("\"key\":"), "{line}");
}

/// Each ban has a line when it begins and one when it ends, with the same id.
#[test]
fn bans_of_limits_are_in_the_log() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"1/h\"\nban = { after = \"1/h\", for = \"1s\" }\n";
    let weir = Weir::start(&upstream, limit);
    let statuses: Vec<_> = (0..2).map(|_| Client::connect(weir.address()).get("/").status).collect();
    assert_eq!(statuses, [200, 429]);
    let ids = ["a limit has banned a key", "the ban of a key by its limit has ended"].map(|words| {
        let line: serde_json::Value = serde_json::from_str(&weir.wait_for_line(words)).unwrap();
        assert_eq!((&line["limit"], &line["key"]), (&"l".into(), &"127.0.0.1".into()), "{line}");
        line["id"].clone()
    });
    assert_eq!(ids[0], ids[1]);
}

/// The lines of one key are in the order of its bans, also if one begins soon after another.
#[test]
fn lines_of_bans_are_in_their_order() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"1/h\"\nban = { after = \"1/h\", for = \"1s\" }\n";
    let weir = Weir::start(&upstream, limit);
    let mut client = Client::connect(weir.address());
    let bans = || {
        let is_end = |line: &String| line.contains("the ban of a key by its limit has ended");
        let lines = weir.lines().into_iter().filter(|line| is_end(line) || line.contains("a limit has banned a key"));
        lines.map(|line| is_end(&line)).collect::<Vec<_>>()
    };
    weir.wait_until("three bans", || {
        let status = client.get("/").status;
        assert!([200, 403, 429].contains(&status), "{status}");
        bans().len() >= 5
    });
    assert_eq!(bans()[..5], [false, true, false, true, false]);
}

#[test]
fn a_ban_at_arrival_comes_before_identity() {
    let upstream = Upstream::start();
    let limits = "[identity.api_key]\nheader = \"x-api-key\"\n\
                  [[limit]]\nname = \"guard\"\nstage = \"arrival\"\nkey = [\"ip\"]\nrate = \"2/h\"\n\
                  ban = { after = \"1/h\", for = \"1h\" }\n\
                  [[limit]]\nname = \"l\"\nkey = [\"api_key\"]\nrate = \"100/h\"\n";
    let weir = Weir::start(&upstream, limits);
    let mut client = Client::connect(weir.address());
    let statuses: Vec<_> = (0..5).map(|_| client.get("/").status).collect();
    assert_eq!(statuses, [401, 401, 429, 403, 403]);
}

/// Everyone shares one unit an hour; beyond it requests are late.
const DELAYING: &str = "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/h\"\non_limit = \"delay\"\n";

#[test]
fn beyond_a_limit_that_delays_requests_pass_later() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &format!("{DELAYING}delay = {{ step = \"100ms\", max = \"250ms\" }}\n"));
    let mut client = Client::connect(weir.address());
    for delay_ms in [0, 100, 200, 250, 250] {
        let earliest = Instant::now();
        let answer = client.get("/");
        let took = earliest.elapsed();
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("0")));
        let delay = Duration::from_millis(delay_ms);
        assert!(took >= delay, "{took:?} for {delay:?}");
    }
    assert_eq!(upstream.targets().len(), 5);
    assert_eq!(weir.metric("weir_requests_total{verdict=\"held\"}"), 4.0);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"held\",limit=\"l\"}"), 4.0);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"admitted\",limit=\"l\"}"), 5.0);
    assert_eq!(weir.metric("weir_hold_duration_seconds_count{limit=\"l\"}"), 4.0);
    assert_eq!(weir.metric("weir_held_requests{limit=\"l\"}"), 0.0);
}

#[test]
fn the_delayed_take_room_and_leave_it() {
    let upstream = Upstream::start();
    let delay = "delay = { step = \"5min\", max = \"10min\" }\nhold = { max_waiting = 1 }\n";
    let weir = Weir::start(&upstream, &format!("{DELAYING}{delay}"));
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);
    let mut delayed = Client::connect(weir.address());
    delayed.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    let held = "weir_held_requests{limit=\"l\"}";
    weir.wait_for_metric(held, |held| held == 1.0);
    assert_eq!(retry_after(&Client::connect(weir.address()).get("/no-room")), (429, Some(600)));
    assert_eq!(weir.metric("weir_hold_overflow_total"), 1.0);

    // Its turn would come in five minutes.
    drop(delayed);
    weir.wait_for_metric(held, |held| held == 0.0);
    weir.wait_for_metric("weir_requests_total{verdict=\"abandoned\"}", |count| count == 1.0);
    assert_eq!(upstream.targets(), ["/"]);
}

#[test]
fn at_the_end_the_delayed_are_told_to_come_back() {
    let upstream = Upstream::start();
    let limit = format!("{DELAYING}delay = {{ step = \"1min\", max = \"1min\" }}\n");
    let weir = Weir::start_with(&upstream, "shutdown_grace = \"200ms\"", &limit);
    Client::connect(weir.address()).get("/");
    let mut delayed = Client::connect(weir.address());
    delayed.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.wait_for_metric("weir_held_requests{limit=\"l\"}", |held| held == 1.0);
    weir.signal("TERM");
    let (status, seconds) = retry_after(&delayed.answer());
    assert!(status == 503 && seconds.is_some_and(|seconds| (1..=60).contains(&seconds)), "{status} {seconds:?}");
    assert_eq!(weir.wait(), Some(0));
}

/// Three keys are remembered; what are the others told? Each asks twice, and the last one goes on.
fn with_more_keys_than_may_be(on_full: &str) -> (Vec<u16>, Answer, f64) {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"header:x-key\"]\nrate = \"3/h\"\nmax_keys = 3\n";
    let weir = Weir::start(&upstream, &format!("{limit}{on_full}\n"));
    let mut client = Client::connect(weir.address());
    let mut ask = |key: usize| client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n")).answer();
    let mut statuses: Vec<u16> = (0..50).flat_map(|key| [ask(key).status, ask(key).status]).skip(94).collect();
    statuses.extend([ask(49).status, ask(49).status, ask(0).status, ask(0).status]);
    let last = ask(49);
    assert_eq!(weir.metric("weir_keys{limit=\"l\"}"), 3.0);
    (statuses, last, weir.metric("weir_overflow_decisions_total{limit=\"l\"}"))
}

#[test]
fn keys_beyond_the_bound_are_dealt_with_as_configured() {
    // 97 requests were about keys without room. Keys 47, 48 and 49, the last goes on, then the first, which is
    // remembered.
    let counted = vec![200, 200, 200, 200, 200, 200, 200, 429, 200, 429];
    let (statuses, last, decisions) = with_more_keys_than_may_be("");
    assert_eq!((statuses, last.status, decisions), (counted, 429, 97.0));
    let (statuses, last, decisions) = with_more_keys_than_may_be("on_full = \"reject\"");
    assert_eq!((&statuses[..8], &statuses[8..], decisions), (&[429; 8][..], &[200, 429][..], 97.0));
    assert_eq!(retry_after(&last), (429, Some(1)));
    let (statuses, last, decisions) = with_more_keys_than_may_be("on_full = \"allow\"");
    assert_eq!((&statuses[..8], &statuses[8..], decisions), (&[200; 8][..], &[200, 429][..], 97.0));
    assert_eq!((last.status, last.header("x-ratelimit-remaining")), (200, Some("3")));
    let (_, last, _) = with_more_keys_than_may_be("on_full = \"shared\"");
    assert_eq!(last.status, 429);
}
