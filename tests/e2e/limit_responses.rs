//! Responses of limits: their headers, their bodies, and gRPC statuses.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::{Answer, Client, Upstream, Weir};

fn limit(name: &str, rate: &str, rest: &str) -> String {
    format!("[[limit]]\nname = \"{name}\"\nkey = [\"ip\"]\nrate = \"{rate}\"\n{rest}\n")
}

/// Starts a Weir in front of `hello`.
fn start(rest: &str) -> (Upstream, Weir, Client) {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, rest);
    let client = Client::connect(weir.address());
    (upstream, weir, client)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn number(answer: &Answer, name: &str) -> Option<u64> {
    answer.header(name).map(|value| value.parse().unwrap())
}

fn problem(answer: &Answer) -> Value {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["status"], answer.status);
    assert!(problem["title"].is_string() && problem["detail"].is_string());
    problem
}

/// Of several limits that refuse, the one with the longest wait sets the status.
#[test]
fn limits_set_the_statuses_of_their_refusals() {
    let busy = limit("busy", "1/h", "status = 503\nban = { after = '2/h', for = '10min', status = 429 }");
    let paying = limit("paying", "1/min", "match = { path = '/paying' }\nstatus = 402");
    let held = limit("held", "1/h", "match = { path = '/held' }\nstatus = 420\non_limit = 'hold'");
    let (_upstream, weir, mut client) = start(&(busy + &paying + &held));
    let mut ask = |path: &str| {
        let answer = client.get(path);
        let kind = (answer.status >= 400).then(|| problem(&answer)["type"].as_str().unwrap().to_owned());
        (answer.status, kind.map(|kind| kind.rsplit_once('#').unwrap().1.to_owned()), number(&answer, "retry-after"))
    };
    assert_eq!(ask("/paying").0, 200);
    let (status, kind, retry_s) = ask("/paying");
    assert_eq!((status, kind.as_deref()), (503, Some("quota-exceeded")));
    assert!(retry_s > Some(3000), "{retry_s:?}");
    assert_eq!(ask("/held").0, 503);
    let (status, kind, retry_s) = ask("/");
    assert_eq!((status, kind.as_deref()), (429, Some("abnormal-usage-detected")));
    assert!(retry_s > Some(500), "{retry_s:?}");
    assert_eq!(weir.metric("weir_refused_requests_total{by=\"ban\"}"), 1.0);
}

#[test]
fn x_ratelimit_says_limit_remaining_and_when_it_is_full() {
    let (_upstream, _weir, mut client) = start(&limit("l", "6/h", "burst = 2"));
    let mut ask = || {
        let answer = client.get("/");
        let [limit, remaining, reset] =
            ["limit", "remaining", "reset"].map(|name| number(&answer, &format!("x-ratelimit-{name}")).unwrap());
        (answer.status, limit, remaining, reset - now_s().min(reset), number(&answer, "retry-after"))
    };
    let rows: Vec<_> = (0..3).map(|_| ask()).collect();
    // A unit comes back every 10 minutes; the wall clock may have moved on between answer and look.
    for (row, (status, remaining, reset)) in rows.iter().zip([(200, 1, 600), (200, 0, 1200), (429, 0, 1200)]) {
        assert_eq!((row.0, row.1, row.2), (status, 2, remaining));
        assert!((reset - 60..=reset + 1).contains(&row.3), "{row:?}");
    }
    assert_eq!([rows[0].4, rows[1].4], [None, None]);
    assert!(rows[2].4.is_some_and(|seconds| (540..=600).contains(&seconds)), "{rows:?}");
}

#[test]
fn retry_after_is_whole_and_at_least_one() {
    for (rate, expected) in [("1/100ms", 1..=1), ("10/13s", 2..=2), ("1/h", 3540..=3600)] {
        let (_upstream, _weir, mut client) = start(&limit("l", rate, "burst = 1"));
        // On a slow machine the first unit may be back before the second request.
        let mut seconds =
            (0..1000).map(|_| client.get("/")).filter_map(|answer| number(&answer, "retry-after")).inspect(|seconds| {
                assert!(*seconds > 0, "{rate}");
            });
        assert!(seconds.any(|seconds| expected.contains(&seconds)), "{rate}");
    }
}

#[test]
fn a_refusal_names_what_it_violates() {
    let (_upstream, _weir, mut client) =
        start(&(limit("a", "1/h", "") + &limit("b", "1/min", "") + &limit("c", "9/s", "")));
    client.get("/");
    let answer = client.get("/");
    assert_eq!(answer.status, 429);
    let problem = problem(&answer);
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(problem["violated-policies"], serde_json::json!(["a", "b"]));
    assert!((3540..=3600).contains(&number(&answer, "retry-after").unwrap()), "{}", answer.head);
}

#[test]
fn the_ietf_fields_are_lists_of_one_policy() {
    let (_upstream, _weir, mut client) =
        start(&format!("{}[headers]\nprofiles = [\"ietf\"]", limit("reports", "2/h", "")));
    let fields =
        |answer: &Answer| ["ratelimit-policy", "ratelimit"].map(|name| answer.header(name).unwrap().to_owned());
    let policy = "\"reports\";q=2;w=3600".to_owned();
    let answer = client.get("/");
    assert_eq!(fields(&answer), [policy.clone(), "\"reports\";r=1;t=1800".to_owned()]);
    assert_eq!(answer.header("x-ratelimit-limit"), None);
    client.get("/");
    let answer = client.get("/");
    let retry_s = number(&answer, "retry-after").unwrap();
    assert!(answer.status == 429 && (1740..=1800).contains(&retry_s), "{}", answer.head);
    assert_eq!(fields(&answer), [policy, format!("\"reports\";r=0;t={retry_s}")]);
}

#[test]
fn the_profile_github_has_the_fields_of_its_api() {
    let (_upstream, _weir, mut client) = start(&format!("{}[headers]\nprofiles = [\"github\"]", limit("l", "2/h", "")));
    for (status, remaining, used) in [(200, 1, 1), (200, 0, 2), (429, 0, 2)] {
        let answer = client.get("/");
        let shown = ["limit", "remaining", "used"].map(|name| number(&answer, &format!("x-ratelimit-{name}")));
        assert_eq!((answer.status, shown), (status, [Some(2), Some(remaining), Some(used)]));
        assert_eq!(answer.header("x-ratelimit-resource"), Some("l"));
        assert!(number(&answer, "x-ratelimit-reset").is_some_and(|at| at > 1_700_000_000));
    }
}

/// A browser gets the body, and a program the problem document; gRPC stays as it is.
#[test]
fn refusals_have_the_body_of_the_limit() {
    let body = "body = { text = \"<p>{limit}: wait {retry_after} s, {other}</p>\" }\nstatus = 503";
    let (_upstream, weir, mut client) = start(&limit("l", "1/h", body));
    assert_eq!(client.get("/").status, 200);
    let ask = |method: &str, fields: &str| {
        let head = format!("{method} /<b> HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{fields}\r\n");
        Client::connect(weir.address()).send(head).answer()
    };
    let page = ask("GET", "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n");
    let retry = page.header("retry-after").unwrap().to_owned();
    assert_eq!((page.status, page.header("content-type")), (503, Some("text/html; charset=utf-8")));
    assert_eq!(page.text(), format!("<p>l: wait {retry} s, {{other}}</p>"));
    assert_eq!(number(&page, "x-ratelimit-remaining"), Some(0));
    for fields in ["", "Accept: */*\r\n", "Accept: application/json, text/html;q=0.9\r\n"] {
        let answer = ask("GET", fields);
        assert_eq!((answer.status, answer.header("content-type")), (503, Some("application/problem+json")), "{fields}");
    }
    let answer = ask("POST", "Content-Type: application/grpc\r\nAccept: text/html\r\n");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/grpc")));
}

/// A body in a file is read again; another type than HTML is for all clients.
#[test]
fn refusals_have_the_body_of_a_file() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("busy.json");
    std::fs::write(&file, "{\"retry\":{retry_after}}").unwrap();
    let body = format!("body = {{ file = \"{}\", content_type = \"application/json\" }}", file.display());
    let weir = Weir::start(&upstream, &limit("l", "1/h", &body));
    let mut client = Client::connect(weir.address());
    assert_eq!(client.get("/").status, 200);
    let answer = client.get("/");
    let retry = answer.header("retry-after").unwrap().to_owned();
    assert_eq!(
        (answer.header("content-type"), answer.text()),
        (Some("application/json"), format!("{{\"retry\":{retry}}}"))
    );
    std::fs::write(&file, "busy").unwrap();
    weir.wait_until("the new body", || Client::connect(weir.address()).get("/").text() == "busy");
}

#[test]
fn refusals_redirect() {
    for (status, url) in [(302, "https://a.test/busy?from=weir"), (303, "/busy"), (307, "http://b.test")] {
        let redirect = format!("redirect = {{ url = \"{url}\", status = {status} }}");
        let (_upstream, weir, mut client) = start(&limit("l", "1/h", &redirect));
        assert_eq!(client.get("/").status, 200);
        let answer = client.get("/");
        assert_eq!((answer.status, answer.header("location")), (status, Some(url)));
        assert!(answer.header("retry-after").is_some());
        assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"refused\",limit=\"l\"}"), 1.0);
    }
}

#[test]
fn the_profile_x_ratelimit_retry_has_remaining_or_the_rest() {
    let (_upstream, _weir, mut client) =
        start(&format!("{}[headers]\nprofiles = [\"x-ratelimit-retry\"]", limit("l", "2/h", "")));
    let mut ask = || {
        let answer = client.get("/");
        ["remaining", "retry", "limit", "reset"].map(|name| number(&answer, &format!("x-ratelimit-{name}")))
    };
    assert_eq!(ask(), [Some(1), None, None, None]);
    assert_eq!(ask(), [Some(0), None, None, None]);
    let [remaining, retry_s, limit, reset_s] = ask();
    assert_eq!((remaining, limit), (None, Some(2)));
    assert!((1740..=1800).contains(&retry_s.unwrap()) && (3540..=3600).contains(&reset_s.unwrap()));
}

#[test]
fn the_tightest_limit_is_reported_and_replaces_what_the_upstream_says() {
    let upstream = Upstream::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-ratelimit-remaining: 777\r\nx-ratelimit-limit: 999\r\n";
        write!(stream, "{head}x-ratelimit-limit: 998\r\n\r\n").is_ok()
    });
    // Of 10 it leaves 9, of 3 two: the smaller part counts, also across the stages.
    for (a, b) in [("", ""), ("stage = \"arrival\"", ""), ("", "stage = \"arrival\"")] {
        let weir = Weir::start(&upstream, &(limit("wide", "10/h", a) + &limit("tight", "3/h", b)));
        let answer = Client::connect(weir.address()).get("/");
        let values = ["limit", "remaining"].map(|name| number(&answer, &format!("x-ratelimit-{name}")));
        assert_eq!(values, [Some(3), Some(2)]);
        assert_eq!(answer.head.matches("x-ratelimit-limit").count(), 1, "{}", answer.head);
    }
}

#[test]
fn one_refusal_charges_no_limit() {
    let strict = limit("strict", "1/h", "match = { path = [\"/strict\"] }");
    let (_upstream, weir, mut client) = start(&(limit("wide", "10/h", "") + &strict));
    assert_eq!(client.get("/strict").status, 200);
    for _ in 0..5 {
        assert_eq!(client.get("/strict").status, 429);
    }
    assert_eq!(number(&client.get("/"), "x-ratelimit-remaining"), Some(8));
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"refused\",limit=\"wide\"}"), 0.0);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"refused\",limit=\"strict\"}"), 5.0);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"admitted\",limit=\"wide\"}"), 2.0);
}

#[test]
fn a_shadow_counts_and_never_refuses() {
    let (upstream, weir, mut client) = start(&(limit("dark", "1/h", "mode = \"shadow\"") + &limit("l", "100/h", "")));
    for left in [99, 98, 97] {
        let answer = client.get("/");
        assert_eq!((answer.status, number(&answer, "x-ratelimit-remaining")), (200, Some(left)));
    }
    assert_eq!(upstream.received_count(), 3);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"shadow_refused\",limit=\"dark\"}"), 2.0);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"admitted\",limit=\"dark\"}"), 1.0);
}

#[test]
fn what_is_off_or_excepted_is_not_limited() {
    for rest in ["mode = \"off\"", "except = { ip = [\"127.0.0.0/8\"] }"] {
        let (_upstream, weir, mut client) = start(&limit("l", "1/h", rest));
        for _ in 0..3 {
            let answer = client.get("/");
            assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None));
        }
        assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"admitted\",limit=\"l\"}"), 0.0);
    }
    let (_upstream, _weir, mut client) = start(&limit("l", "1/h", "except = { ip = [\"192.0.2.0/24\"] }"));
    assert_eq!([client.get("/").status, client.get("/").status], [200, 429]);
}

#[test]
fn a_cost_takes_that_many_units() {
    let (_upstream, _weir, mut client) = start(&limit("l", "10/h", "cost = 4"));
    let rows =
        [(); 3].map(|()| client.get("/")).map(|answer| (answer.status, number(&answer, "x-ratelimit-remaining")));
    assert_eq!(rows, [(200, Some(6)), (200, Some(2)), (429, Some(2))]);
}

#[test]
fn grpc_is_told_in_its_own_words() {
    let (_upstream, _weir, mut client) = start(&limit("l", "1/h", ""));
    let mut call = |kind: &str| {
        let head = format!("POST /p.S/M HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nTE: trailers\r\n");
        client.send(format!("{head}Content-Length: 5\r\n\r\n\0\0\0\0\0")).answer()
    };
    call("application/grpc");
    for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
        let answer = call(kind);
        assert_eq!((answer.status, answer.header("grpc-status"), answer.body.len()), (200, Some("8"), 0));
        assert_eq!(answer.header("content-type"), Some("application/grpc"));
        let retry_s = number(&answer, "retry-after").unwrap();
        assert!((3540..=3600).contains(&retry_s), "{}", answer.head);
        assert_eq!(answer.header("grpc-message"), Some(&*format!("beyond l; retry after {retry_s} s")));
    }
    assert_eq!(call("application/grpc-web").status, 429);
}

#[test]
fn an_error_is_a_problem_or_a_grpc_status() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit("l", "9/h", ""));
    upstream.stop();
    let mut client = Client::connect(weir.address());
    let answer = client.get("/");
    assert_eq!((answer.status, problem(&answer)["type"].as_str()), (502, Some("about:blank")));
    let head = "POST /p.S/M HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    let answer = client.send(head).answer();
    assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("14")));
    for (target, status) in [("/%zz", 400), ("/a%00b", 400)] {
        let answer = client.get(target);
        assert_eq!((answer.status, problem(&answer)["status"].as_u64()), (status, Some(status.into())));
    }
    for (target, host, closes) in [("/%zz", "a", None), ("/p.S/M", "a/b", Some("close"))] {
        let head = format!("POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/grpc\r\n");
        let mut client = Client::connect(weir.address());
        let answer = client.send(format!("{head}TE: trailers\r\nContent-Length: 0\r\n\r\n")).answer();
        assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("13")), "{}", answer.head);
        assert_eq!(answer.header("connection"), closes);
    }
    let answer = client.send("GET /\0 HTTP/1.1\r\n\r\n").answer();
    problem(&answer);
    assert_eq!((answer.status, answer.header("connection")), (400, Some("close")));
    assert_eq!(weir.metric("weir_problems_total{kind=\"bad_gateway\"}"), 2.0);
    assert_eq!(weir.metric("weir_problems_total{kind=\"bad_path\"}"), 3.0);
    assert_eq!(weir.metric("weir_panics_total"), 0.0);
}

/// A part of the wait, at random, is added for each client, in all fields and also for gRPC clients.
#[test]
fn clients_are_asked_to_return_apart() {
    let (_upstream, _weir, mut client) = start(&limit("l", "1/h", "jitter = '20%'"));
    client.get("/");
    let waits: BTreeSet<_> = (0..20)
        .map(|_| {
            let answer = client.get("/");
            let retry_s = number(&answer, "retry-after").unwrap();
            assert!((3500..=4321).contains(&retry_s), "{}", answer.head);
            assert_eq!(problem(&answer)["detail"], format!("beyond l; retry after {retry_s} s"));
            retry_s
        })
        .collect();
    assert!(waits.len() > 10, "{waits:?}");
    let head = "POST /p.S/M HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    let answer = client.send(head).answer();
    let [retry_s, pushback_ms] = ["retry-after", "grpc-retry-pushback-ms"].map(|name| number(&answer, name).unwrap());
    assert!(pushback_ms > 3_500_000 && pushback_ms.abs_diff(retry_s * 1000) <= 2000, "{}", answer.head);
}

/// A ban and a lack of capacity have problem types of their own.
#[test]
fn problem_types_say_why() {
    let (_upstream, _weir, mut client) = start(&limit("l", "1/h", "ban = { after = '1/h', for = '1h' }"));
    let kind = |answer: &Answer| problem(answer)["type"].as_str().unwrap().rsplit_once('#').unwrap().1.to_owned();
    client.get("/");
    let answers = [0; 2].map(|_| client.get("/"));
    assert_eq!(answers.each_ref().map(|answer| answer.status), [429, 403]);
    assert_eq!(answers.each_ref().map(kind), ["quota-exceeded", "abnormal-usage-detected"]);
    assert_eq!(problem(&answers[1])["violated-policies"], serde_json::json!(["l"]));

    let upstream = Upstream::answering(|_, stream| {
        std::thread::sleep(Duration::from_secs(2));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_ok()
    });
    let config =
        Weir::config(&upstream, "", "").replace("[upstream]\n", "[upstream]\nmax_connections = 1\nmax_queued = 1\n");
    let weir = Weir::start_as(&config);
    let mut clients = [0; 3].map(|_| Client::connect(weir.address()));
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let busy = clients.iter_mut().map(Client::answer).find(|answer| answer.status == 503).unwrap();
    assert_eq!((kind(&busy), problem(&busy).get("violated-policies")), ("temporary-reduced-capacity".to_owned(), None));
}

#[test]
fn head_is_refused_without_a_body() {
    let (_upstream, _weir, mut client) = start(&limit("l", "1/h", ""));
    client.get("/");
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.head().unwrap();
    assert_eq!(answer.status, 429);
    assert!(number(&answer, "content-length").unwrap() > 0);
    assert_eq!(problem(&client.get("/"))["violated-policies"][0], "l");
}

#[test]
fn browsers_ask_for_free_and_may_read_the_answers() {
    let (upstream, _weir, mut client) = start(&limit("l", "1/h", ""));
    let preflight = "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nAccess-Control-Request-Method: PUT\r\n\r\n";
    for _ in 0..3 {
        assert_eq!(client.send(preflight).answer().status, 200);
    }
    assert_eq!(upstream.received_count(), 3);
    let with_origin = "GET / HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n";
    for status in [200, 429] {
        let answer = client.send(with_origin).answer();
        let exposed = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After";
        assert_eq!((answer.status, answer.header("access-control-expose-headers")), (status, Some(exposed)));
    }
    assert_eq!(client.get("/").header("access-control-expose-headers"), None);
    // An OPTIONS that is no preflight is a request like any other.
    assert_eq!(client.send("OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n").answer().status, 429);
    // So is one with credentials or a body.
    let head = preflight.trim_end();
    for more in ["Cookie: a=b\r\n\r\n", "Authorization: Basic YTpi\r\n\r\n", "Content-Length: 1\r\n\r\na"] {
        assert_eq!(client.send(format!("{head}\r\n{more}")).answer().status, 429, "{more}");
    }
    let options = limit("l", "1/h", "match.method = [\"OPTIONS\"]");
    let (_upstream, _weir, mut client) = start(&options);
    assert_eq!([client.send(preflight).answer().status, client.send(preflight).answer().status], [200, 429]);

    // Beyond the rate that is free, a preflight is one too.
    let rate = "[headers]\nfree_preflights = \"2/h\"\n";
    let (_upstream, weir, mut client) = start(&(limit("l", "1/h", "") + rate));
    for status in [200, 200, 200, 429] {
        assert_eq!(client.send(preflight).answer().status, status);
    }
    let counted = |verdict| weir.metric(&format!("weir_preflights_total{{verdict=\"{verdict}\"}}"));
    assert_eq!((counted("free"), counted("charged")), (2.0, 2.0));

    for rest in [limit("l", "1/h", "stage = \"arrival\""), limit("l", "1/h", "") + "[headers]\nfree_preflights = false"]
    {
        let (_upstream, _weir, mut client) = start(&rest);
        assert_eq!([client.send(preflight).answer().status, client.send(preflight).answer().status], [200, 429]);
    }
}
