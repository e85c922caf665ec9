//! Stored answers in place of refusals, and of failures of the service.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;

use crate::ops::until;
use crate::routes::{route, upstream as service};
use crate::support::{Answer, Client, Event, Received, Upstream, Weir, echo, over_h2};

/// Answers with a number, and with the fields in the query.
fn counting() -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(move |request, stream| {
        let (number, fields) = (count.fetch_add(1, Ordering::Relaxed), fields_in(request));
        let body = format!("{number}");
        let head = format!("HTTP/1.1 200 OK\r\n{fields}content-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).is_ok()
    })
}

/// The lines that the query names: `a:b;c:d`.
fn fields_in(request: &Received) -> String {
    let query = request.target().split_once('?').map_or("", |(_, query)| query).replace("%20", " ");
    query.split(';').filter(|line| !line.is_empty()).flat_map(|line| [line, "\r\n"]).collect()
}

/// A limit that refuses all but the first request for each path.
const ONCE: &str = "[[limit]]\nname = 'once'\nkey = ['path']\nrate = '1/h'\nstale = {}\n";

fn ask(client: &mut Client, target: &str, fields: &str) -> Answer {
    client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).answer()
}

/// `Cache-Status` without the number of seconds.
fn cache_status(value: Option<&str>) -> String {
    let value = value.unwrap_or("");
    match value.split_once("ttl=") {
        Some((before, rest)) => {
            format!("{before}ttl=N{}", rest.trim_start_matches(|byte: char| byte == '-' || byte.is_ascii_digit()))
        }
        None => value.to_owned(),
    }
}

/// Asks twice, with these fields in the requests. Returns the status of the second answer.
fn second(client: &mut Client, target: &str, [first, then]: [&str; 2]) -> u16 {
    let answer = ask(client, target, first);
    assert_eq!(answer.status, 200, "{target} {first}");
    ask(client, target, then).status
}

/// A refused request gets the last answer, with its age and the limit headers of now, over both protocols.
#[test]
fn a_refused_request_gets_the_stored_answer() {
    let upstream = counting();
    let limit =
        "[[limit]]\nname = 'two'\nkey = []\nrate = '2/h'\nstale = {}\n[headers]\nprofiles = ['x-ratelimit', 'ietf']\n";
    let weir = Weir::start(&upstream, limit);
    let mut client = Client::connect(weir.address());
    let target = "/a?etag:x;x-ratelimit-limit:77;ratelimit:old;retry-after:9;age:5;cache-status:near;x-other:1";
    assert_eq!([(); 2].map(|()| client.get(target).text()), ["0", "1"], "each answer replaces the one before");
    let stored = client.get(target);
    assert_eq!((stored.status, stored.text()), (200, "1".to_owned()), "{}", stored.head);
    let field = |name| stored.header(name);
    assert_eq!((field("x-ratelimit-limit"), field("x-ratelimit-remaining")), (Some("2"), Some("0")));
    assert!(field("ratelimit").is_some_and(|value| value.starts_with("\"two\";r=0")), "{}", stored.head);
    assert_eq!((field("retry-after"), field("etag"), field("x-other")), (None, Some("x"), Some("1")));
    let age: u64 = field("age").unwrap().parse().unwrap();
    assert!((5..60).contains(&age), "{}", stored.head);
    let lines: Vec<_> = stored.head.lines().filter(|line| line.to_lowercase().starts_with("cache-status")).collect();
    assert!(lines[0] == "cache-status: near" && lines[1].starts_with("cache-status: weir; hit; ttl=-"), "{lines:?}");
    assert!(lines[1].ends_with("; detail=refused"), "{lines:?}");
    let once = |name: &str| stored.head.to_lowercase().matches(&format!("\n{name}:")).count() == 1;
    assert!(["age", "date", "x-ratelimit-limit", "ratelimit", "content-length"].iter().all(|name| once(name)));

    let head = client.send(format!("HEAD {target} HTTP/1.1\r\nhost: weir.test\r\n\r\n")).head().unwrap();
    assert_eq!((head.status, head.header("content-length")), (200, Some("1")), "{}", head.head);
    let (over_http2, of_other_host) = over_h2(weir.address(), async |mut client, _| {
        let other = client.ask(Request::get(format!("http://other{target}"))).await.unwrap();
        (client.get(target).await.unwrap(), other.status)
    });
    assert_eq!(of_other_host, 429);
    assert_eq!((over_http2.status, &over_http2.body[..]), (200, &b"1"[..]));
    assert!(over_http2.header("age").is_some() && over_http2.header("x-ratelimit-limit") == Some("2"));
    assert_eq!(upstream.targets().len(), 2);
    assert_eq!(weir.metric("weir_stale_answers_total{cause=\"refused\",limit=\"two\"}"), 3.0);
    assert_eq!(weir.metric("weir_stale_stored_total{limit=\"two\"}"), 2.0);
    weir.wait_for_metric("weir_stale_stored{limit=\"two\"}", |count| count == 1.0);
    weir.wait_for_metric("weir_stale_bytes{limit=\"two\"}", |bytes| bytes > 600.0);
}

/// A client never gets the answer to another one: each credential has stored answers of its own.
#[test]
fn stored_answers_stay_with_their_client() {
    let upstream = counting();
    let identity = "[identity.key]\nheader = 'x-api-key'\non_missing = 'anonymous'\n";
    let weir = Weir::start(&upstream, &format!("{identity}{ONCE}"));
    let mut client = Client::connect(weir.address());
    let (one, other) = ("authorization: Basic a\r\n", "authorization: Basic b\r\n");
    for (number, (first, then, expected)) in [
        ("", "", 200),
        (one, one, 200),
        (one, other, 429),
        (one, "", 429),
        ("", one, 429),
        ("cookie: a=1\r\n", "cookie: a=2\r\n", 429),
        ("cookie: a=1\r\n", "cookie: a=1\r\ncookie: b=1\r\n", 429),
        ("x-api-key: a\r\n", "x-api-key: b\r\n", 429),
        ("x-api-key: a\r\n", "", 429),
        ("x-api-key: a\r\n", "x-api-key: a\r\n", 200),
        ("x-forwarded-proto: https\r\n", "", 429),
        ("x-auth-token: a\r\n", "x-auth-token: b\r\n", 429), // of which only the service knows
        ("x-auth-token: a\r\n", "", 429),
        ("sec-api-key: a\r\n", "sec-api-key: b\r\n", 429),
        ("baggage: user=a\r\n", "baggage: user=b\r\n", 429),
        ("sec-fetch-mode: cors\r\n", "sec-fetch-mode: navigate\r\n", 200),
        // The service does not get a field that Connection lists.
        ("x-a: 1\r\nconnection: x-a\r\n", "x-a: 1\r\n", 429),
        ("connection: keep-alive, x-none\r\n", "", 200),
        ("x-auth-token: a\r\n", "X-Request-Id: 7\r\nx-auth-token: a\r\nUser-Agent: b\r\n", 200),
    ]
    .into_iter()
    .enumerate()
    {
        let status = second(&mut client, &format!("/{number}"), [first, then]);
        assert_eq!(status, expected, "{first:?} {then:?}");
    }
    // A field that an identity is read from tells clients apart, whatever its name is.
    let named = "[identity.user]\nheader = 'sec-fetch-user'\non_missing = 'anonymous'\n";
    let weir_of_field = Weir::start(&upstream, &format!("{named}{ONCE}"));
    let mut of_field = Client::connect(weir_of_field.address());
    assert_eq!(second(&mut of_field, "/", ["sec-fetch-user: a\r\n", "sec-fetch-user: b\r\n"]), 429);
    // Only the client itself gets a private answer.
    for (number, (first, then, expected)) in [("", "", 429), (one, one, 200), (one, other, 429)].into_iter().enumerate()
    {
        let status = second(&mut client, &format!("/private{number}?cache-control:private"), [first, then]);
        assert_eq!(status, expected, "{first:?} {then:?}");
    }
    // The key of the limit is a part of the identity.
    let weir = Weir::start(&upstream, "[[limit]]\nname = 'l'\nkey = ['header:x-user']\nrate = '1/h'\nstale = {}\n");
    let mut client = Client::connect(weir.address());
    let users =
        ["x-user: a\r\n", "x-user: b\r\n"].map(|user| [user, user].map(|user| ask(&mut client, "/", user).text()));
    assert!(users.iter().all(|[first, then]| first == then) && users[0][0] != users[1][0], "{users:?}");
}

/// What RFC 9111 does not allow is neither stored nor used.
#[test]
fn only_cacheable_answers_are_stored() {
    let upstream = counting();
    let weir = Weir::start(&upstream, ONCE);
    let mut client = Client::connect(weir.address());
    for (number, (answer, [first, then], expected)) in [
        ("cache-control:public,max-age=0", ["", ""], 200),
        ("cache-control:no-store", ["", ""], 429),
        ("cache-control:max-age=60;Cache-Control:NO-STORE", ["", ""], 429),
        ("cache-control:Private", ["", ""], 429),
        ("cache-control:no-cache", ["", ""], 429),
        ("cache-control:max-age=0,%20must-revalidate", ["", ""], 429),
        ("cache-control:max-age=60,%20must-revalidate", ["", ""], 200),
        ("cache-control:s-maxage=0", ["", ""], 429),
        ("cache-control:s-maxage=60", ["", ""], 200),
        ("set-cookie:a=b", ["", ""], 429),
        ("set-cookie:a=b;cache-control:public", ["", ""], 429),
        ("vary:accept-language", ["accept-language: de\r\n", "accept-language: en\r\n"], 429),
        ("vary:Accept-Language", ["accept-language: de\r\n", "Accept-Language: de\r\n"], 200),
        ("vary:*", ["", ""], 429),
        ("vary:x-forwarded-for", ["", ""], 429),
        ("", ["cache-control: no-store\r\n", ""], 429),
        ("", ["", "cache-control: No-Store\r\n"], 429),
        ("", ["", "cache-control: no-cache\r\n"], 429),
        ("", ["", "pragma: no-cache\r\n"], 429),
        ("age:100", ["", "cache-control: max-age=10\r\n"], 429),
        ("age:100", ["", "cache-control: max-stale=10\r\n"], 429),
        ("", ["", "cache-control: only-if-cached\r\n"], 200),
        ("", ["range: bytes=0-0\r\n", ""], 429),
        ("", ["", "range: bytes=0-0\r\n"], 429),
        ("", ["", "if-match: \"a\"\r\n"], 429),
        ("age:99999999999999999999", ["", ""], 200),
        ("expires:0", ["", ""], 200),
    ]
    .into_iter()
    .enumerate()
    {
        let status = second(&mut client, &format!("/{number}?{answer}"), [first, then]);
        assert_eq!(status, expected, "{answer} {first:?} {then:?}");
    }
    assert_eq!(second(&mut client, "/query?x-a:1", ["", ""]), 200);
    assert_eq!(client.get("/query?x-a:2").status, 429, "another query");
}

/// Unsafe requests to other URLs leave stored answers alone, but for the few that share a place with them.
#[test]
fn changes_elsewhere_leave_stored_answers() {
    let upstream = counting();
    let weir = Weir::start(&upstream, ONCE);
    let mut client = Client::connect(weir.address());
    for number in 0..20 {
        assert_eq!(ask(&mut client, &format!("/{number}"), "").status, 200);
    }
    for number in 0..500 {
        let head = format!("POST /other/{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.send(head).answer().status, 200);
    }
    let kept = (0..20).filter(|number| ask(&mut client, &format!("/{number}"), "").status == 200).count();
    assert!(kept >= 17, "{kept} of 20");
}

/// An answer that breaks off, or whose end is not known, is not stored.
#[test]
fn a_partial_answer_is_never_stored() {
    let upstream = Upstream::answering(|request, stream| {
        let answer = match request.target() {
            "/length" => "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
            "/chunk" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "/end" => "HTTP/1.1 200 OK\r\n\r\nabc",
            "/part" => "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-2/9\r\ncontent-length: 3\r\n\r\nabc",
            _ => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nx-a: 1\r\n\r\n",
        };
        let _ = stream.write_all(answer.as_bytes());
        false
    });
    let weir = Weir::start(&upstream, ONCE);
    for target in ["/length", "/chunk", "/end", "/part"] {
        let mut client = Client::connect(weir.address());
        client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"));
        assert!(String::from_utf8(client.rest()).unwrap().contains("abc"), "{target}");
        assert_eq!(ask(&mut Client::connect(weir.address()), target, "").status, 429, "{target}");
    }
    let mut client = Client::connect(weir.address());
    let answers = [(); 2].map(|()| ask(&mut client, "/whole", ""));
    assert_eq!(
        answers.each_ref().map(|answer| (answer.status, answer.text())),
        [(); 2].map(|()| (200, "abcde".into()))
    );
    assert_eq!(answers[1].header("content-length"), Some("5"));
    assert_eq!(weir.metric("weir_stale_stored_total{limit=\"once\"}"), 1.0);
}

/// A client that leaves ends the recording.
#[test]
fn an_answer_whose_client_leaves_is_not_stored() {
    let (gone, left) = (Arc::new(Event::default()), Arc::new(Event::default()));
    let (wait, end) = (Arc::clone(&gone), Arc::clone(&left));
    let upstream = Upstream::answering(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc");
        wait.wait();
        let _ = stream.write_all(b"def");
        end.set();
        true
    });
    let weir = Weir::start(&upstream, ONCE);
    let mut client = Client::connect(weir.address());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    drop(client);
    let endpoint =
        format!("weir_endpoint_connections{{endpoint=\"http://{}\",upstream=\"upstream\"}}", upstream.address());
    weir.wait_for_metric(&endpoint, |open| open == 0.0);
    gone.set();
    left.wait();
    assert_eq!(ask(&mut Client::connect(weir.address()), "/", "").status, 429);
}

/// Memory has a bound: the answers that were used least recently make room, and a large body is not stored at all.
#[test]
fn the_memory_of_stored_answers_is_bounded() {
    const MAX: usize = 64 * 1024;
    let upstream = Upstream::answering(|request, stream| {
        let len: usize = request.target().rsplit('/').next().unwrap().parse().unwrap();
        let body = vec![b'x'; len];
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body).is_ok()
    });
    let weir = Weir::start(
        &upstream,
        "[[limit]]\nname = 'once'\nkey = ['path']\nrate = '1/h'\nstale = { max_bytes = '64KiB' }\n",
    );
    let mut client = Client::connect(weir.address());
    let mut status = |target: &str| ask(&mut client, target, "").status;
    for number in 0..20 {
        assert_eq!(status(&format!("/{number}/4000")), 200);
        assert_eq!(status("/0/4000"), 200, "it is used again and again");
    }
    let kept = (0..20).filter(|number| status(&format!("/{number}/4000")) == 200).count();
    assert!((8..=14).contains(&kept), "{kept}");
    assert_eq!(status("/1/4000"), 429, "evicted");
    assert_eq!([(); 2].map(|()| status("/large/8192")), [200, 200], "an eighth");
    assert_eq!([(); 2].map(|()| status("/large/8193")), [200, 429], "more than an eighth");
    let evicted = weir.metric("weir_stale_evicted_total{limit=\"once\",reason=\"size\"}");
    assert!(evicted >= 6.0, "{evicted}");
    let bytes = weir.wait_for_metric("weir_stale_bytes{limit=\"once\"}", |bytes| bytes > 0.0);
    assert!(bytes <= MAX as f64, "{bytes}");
}

/// An answer is not used after its time.
#[test]
fn old_answers_are_not_used() {
    let upstream = counting();
    let limit = "[[limit]]\nname = 'once'\nkey = ['path']\nrate = '1/h'\nstale = { max_age = '3s' }\n";
    let weir = Weir::start(&upstream, limit);
    let mut client = Client::connect(weir.address());
    assert_eq!(second(&mut client, "/", ["", ""]), 200);
    weir.wait_for_metric("weir_stale_evicted_total{limit=\"once\",reason=\"age\"}", |count| count == 1.0);
    assert_eq!(ask(&mut client, "/", "").status, 429);
    weir.wait_for_metric("weir_stale_bytes{limit=\"once\"}", |bytes| bytes == 0.0);
}

/// A change by another method ends the stored answer, whether the limit applies to it or not, which service gets it, and
/// however the client writes the host.
#[test]
fn an_unsafe_request_ends_the_stored_answer() {
    let [reader, writer] = [(); 2].map(|()| {
        Upstream::answering(|request, stream| {
            let status = if request.target().starts_with("/bad") { "500 Broken" } else { "200 OK" };
            let status = if request.head.starts_with("GET") { "200 OK" } else { status };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
            stream.write_all(answer.as_bytes()).is_ok()
        })
    });
    let upstreams = [("reader", &reader), ("writer", &writer)].map(|(name, answering)| service(name, &[answering], ""));
    let route = "[[route]]\nmatch = { method = 'PUT' }\nupstream = 'writer'\nrewrite = { add = '/w' }\n\
                 [[route]]\nupstream = 'reader'\n";
    let limit = "[[limit]]\nname = 'once'\nkey = ['path']\nmatch = { method = 'GET' }\nrate = '1/h'\nstale = {}\n";
    let weir = Weir::start_as(&Weir::text(&format!("{}{route}{limit}", upstreams.concat())));
    let mut client = Client::connect(weir.address());
    for (target, changed, host, expected) in [
        ("/a", "POST /a", "a", 429),
        ("/bad", "POST /bad", "a", 200),
        ("/b", "PUT /b", "a", 429),
        ("/c", "POST /c", "A", 429),
        ("/d", "POST /d", "a:80", 429),
        ("/e", "PUT /e", "A.:", 429),
        ("/f", "POST /f", "b", 200),
        ("/g", "POST /g?x", "a", 200),
    ] {
        assert_eq!(second(&mut client, target, ["", ""]), 200);
        client.send(format!("{changed} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n\r\n")).answer();
        assert_eq!(ask(&mut client, target, "").status, expected, "{changed} {host}");
    }
}

/// Routes may make different requests of one URL.
#[test]
fn a_stored_answer_is_of_one_path_at_the_service() {
    let upstream = Upstream::answering(echo);
    let rewrite = "rewrite = { add = '/beta' }\n";
    let routes = route("header = { user-agent = 'beta' }", "a", rewrite) + "[[route]]\nupstream = 'a'\n";
    let limit = "[[limit]]\nname = 'two'\nkey = []\nrate = '2/h'\nstale = {}\n";
    let weir = Weir::start_as(&Weir::text(&format!("{}{routes}{limit}", service("a", &[&upstream], ""))));
    let mut client = Client::connect(weir.address());
    let (plain, beta) = ("", "user-agent: beta\r\n");
    let mut text = |fields: &str| ask(&mut client, "/x", fields).text();
    for (fields, expected) in [(plain, "/x"), (beta, "/beta/x"), (plain, "/x"), (beta, "/beta/x")] {
        assert_eq!(text(fields), expected);
    }
}

/// With `stale_on`, failures of the service count, too; the request that failed is given back.
#[test]
fn failures_of_the_service_are_answered_from_the_store() {
    let upstream = Upstream::answering(|request, stream| {
        let status = request.header("referer").unwrap_or_else(|| "200 OK".into());
        stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").as_bytes()).is_ok()
    });
    let limit = "[[limit]]\nname = 'l'\nkey = []\nrate = '1000/h'\nstale = {}\n";
    let on = |causes: &str| format!("{limit}stale_on = [{causes}]\n");
    let weir = Weir::start(&upstream, &on("'upstream_429', 'upstream_error'"));
    let only_refused = Weir::start(&upstream, limit);
    let mut client = Client::connect(weir.address());
    for (status, expected, detail) in [
        ("429 Slow", 200, "fwd=stale; fwd-status=429; ttl=N; detail=upstream_429"),
        ("502 Bad", 200, "fwd=stale; fwd-status=502; ttl=N; detail=upstream_error"),
        ("503 Busy", 200, "fwd=stale; fwd-status=503; ttl=N; detail=upstream_error"),
        ("504 Late", 200, "fwd=stale; fwd-status=504; ttl=N; detail=upstream_error"),
        ("500 Broken", 500, ""),
        ("404 None", 404, ""),
    ] {
        // A field that tells no client from another.
        let failing = format!("referer: {status}\r\n");
        let ask_both = |client: &mut Client| {
            assert_eq!(ask(client, "/", "").status, 200);
            ask(client, "/", &failing)
        };
        let answer = ask_both(&mut client);
        assert_eq!(answer.status, expected, "{status}: {}", answer.head);
        assert_eq!(
            cache_status(answer.header("cache-status")),
            if detail.is_empty() { String::new() } else { format!("weir; {detail}") }
        );
        let status: u16 = status[..3].parse().unwrap();
        assert_eq!(ask_both(&mut Client::connect(only_refused.address())).status, status, "the default is `refused`");
    }
    let remaining = |answer: &Answer| answer.header("x-ratelimit-remaining").unwrap().parse::<u64>().unwrap();
    let before = remaining(&ask(&mut client, "/", ""));
    upstream.stop();
    let answer = ask(&mut client, "/", "");
    assert_eq!((answer.status, answer.text()), (200, "ok".into()), "{}", answer.head);
    assert_eq!(cache_status(answer.header("cache-status")), "weir; fwd=stale; ttl=N; detail=upstream_error");
    assert!(remaining(&answer) >= before, "nothing is charged");
    assert_eq!(ask(&mut client, "/unknown", "").status, 502);
    let over_http2 =
        over_h2(weir.address(), async |mut client, _| client.ask(Request::get("http://a/")).await.unwrap());
    let of_both = [over_http2.header("cache-status"), answer.header("cache-status")].map(cache_status);
    assert!(over_http2.status == 200 && of_both[0] == of_both[1], "{of_both:?}");
    assert!(weir.metric("weir_problems_total{kind=\"bad_gateway\"}") >= 2.0, "failures are counted all the same");
}

/// A request that access lists, identities or bans refuse never gets a stored answer.
#[test]
fn only_limits_are_answered_from_the_store() {
    let upstream = counting();
    let config = "[access]\ndeny = { path = '/denied' }\n[identity.user]\nheader = 'x-user'\non_missing = 'reject'\n[[limit]]\nname = 'l'\nkey = ['user']\nrate = '1/h'\nstale = {}\nban = { after = '3/min', for = '1h' }\n";
    let weir = Weir::start(&upstream, config);
    let mut client = Client::connect(weir.address());
    let user = "x-user: a\r\n";
    assert_eq!(second(&mut client, "/", [user, user]), 200);
    assert_eq!(ask(&mut client, "/", "").status, 401);
    assert_eq!(ask(&mut client, "/denied", user).status, 403);
    let statuses: Vec<_> = (0..8).map(|_| ask(&mut client, "/", user).status).collect();
    assert_eq!((statuses[0], statuses[7]), (200, 403), "{statuses:?}");
}

/// A limit without stored answers that refuses, too, decides. Limits in shadow mode have no part in it.
#[test]
fn every_limit_that_refuses_must_have_stored_answers() {
    let upstream = counting();
    let limits =
        |mode: &str| format!("{ONCE}[[limit]]\nname = 'other'\nkey = ['path']\nrate = '1/h'\nmode = '{mode}'\n");
    for (limits, expected) in [
        (limits("enforce"), 429),
        (limits("shadow"), 200),
        (limits("off"), 200),
        (format!("{ONCE}[[limit]]\nname = 'all'\nkey = []\nrate = '1/h'\nstage = 'arrival'\n"), 429),
        (format!("{ONCE}mode = 'shadow'\nstale_on = ['refused', 'upstream_error']\n"), 502),
    ] {
        let upstream = if expected == 502 { Upstream::start() } else { counting() };
        let weir = Weir::start(&upstream, &limits);
        let mut client = Client::connect(weir.address());
        assert_eq!(ask(&mut client, "/", "").status, 200);
        if expected == 502 {
            upstream.stop();
        }
        assert_eq!(ask(&mut client, "/", "").status, expected, "{limits}");
    }
    drop(upstream);
}

/// A held request gets a stored answer once it is refused.
#[test]
fn a_held_request_is_answered_from_the_store_when_it_is_refused() {
    let upstream = counting();
    let limit =
        "[[limit]]\nname = 'l'\nkey = []\nrate = '1/h'\non_limit = 'hold'\nhold = { max_wait = '1s' }\nstale = {}\n";
    let weir = Weir::start(&upstream, limit);
    let mut client = Client::connect(weir.address());
    assert_eq!(second(&mut client, "/", ["", ""]), 200);
    assert_eq!(ask(&mut client, "/other", "").status, 429);
}

/// A reload keeps stored answers, unless their rule changes.
#[test]
fn a_reload_keeps_stored_answers() {
    let upstream = counting();
    let weir = Weir::start(&upstream, ONCE);
    let mut client = Client::connect(weir.address());
    assert_eq!(second(&mut client, "/", ["", ""]), 200);
    let config = std::fs::read_to_string(weir.config_file()).unwrap();
    for (stale, expected) in [("stale = {}\nmax_keys = 77", 200), ("stale = { max_age = '1h' }", 429)] {
        let reloads = || weir.lines().iter().filter(|line| line.contains("\"reloaded\"")).count();
        let before = reloads();
        std::fs::write(weir.config_file(), config.replace("stale = {}", stale)).unwrap();
        weir.signal("HUP");
        weir.wait_until("reloaded", || reloads() > before);
        assert_eq!(ask(&mut client, "/", "").status, expected, "{stale}");
    }
}

/// A line of the access log tells the cause.
#[test]
fn the_access_log_names_stored_answers() {
    let upstream = counting();
    let weir = Weir::start(&upstream, &format!("{ONCE}[log]\naccess = 'all'\nformat = 'json'\n"));
    let mut client = Client::connect(weir.address());
    assert_eq!(second(&mut client, "/", ["", ""]), 200);
    let line = weir.wait_for_line("\"stale\"");
    for part in
        ["\"stale\":\"refused\"", "\"status\":200", "\"verdict\":\"refused\"", "\"limit\":\"once\"", "\"bytes_out\":1"]
    {
        assert!(line.contains(part), "{line}");
    }
}

/// A large stored answer reaches a slow client whole, over both protocols.
#[test]
fn a_large_stored_answer_is_streamed() {
    const LEN: usize = 3 << 20;
    let upstream = Upstream::answering(|_, stream| {
        let body: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LEN}\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body).is_ok()
    });
    let weir = Weir::start(&upstream, ONCE);
    let answer = || ask(&mut Client::connect(weir.address()), "/", "");
    let first = answer();
    // The client has the last bytes before they are stored.
    until("the answer is stored", || answer().status == 200);
    let mut client = Client::connect(weir.address());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(100)); // the buffers of both sides fill
    let stored = client.answer();
    assert!(stored.header("age").is_some() && stored.body.len() == LEN && stored.body == first.body);
    let over_http2 =
        over_h2(weir.address(), async |mut client, _| client.ask(Request::get("http://a/")).await.unwrap());
    assert!(over_http2.header("age").is_some() && over_http2.body == first.body);
}

/// Bytes that are no text, and fields without end, change nothing.
#[test]
fn garbage_is_no_reason_to_store() {
    let heads: [&[u8]; 6] = [
        b"cache-control: no-store, x=\"\xff\"\r\n",
        b"vary: \xff\r\n",
        b"vary: a b\r\n",
        b"cache-control: ,,,=,\"no-store\r\n",
        b"set-cookie: \xff\r\n",
        b"cache-control: private=\"a\r\n",
    ];
    let upstream = Upstream::answering(move |request, stream| {
        let at: usize = request.target()[1..].parse().unwrap();
        let answer = [&b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"[..], heads[at], b"\r\nok"].concat();
        stream.write_all(&answer).is_ok()
    });
    let weir = Weir::start(&upstream, ONCE);
    let mut client = Client::connect(weir.address());
    for (at, head) in heads.iter().enumerate() {
        assert_eq!(second(&mut client, &format!("/{at}"), ["", ""]), 429, "{}", head.escape_ascii());
    }
}
