//! Real proxies ask Weir, with the configurations of the recipes.

use std::time::{Duration, Instant};

use super::{Asked, GET, config, connect, stranger};
use crate::support::{Answer, Client, Fleet, Front, Redis, Upstream, Weir, free_port};

/// The first block of a recipe in this language.
fn block(recipe: &str, language: &str) -> String {
    let page = std::fs::read_to_string(format!("docs/recipes/{recipe}.md")).unwrap();
    let (_, rest) = page.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("\n```").unwrap().0.to_owned()
}

/// The configuration of a recipe on ports of its own, with more tables.
fn configured(recipe: &str, tables: &str) -> String {
    let text = block(recipe, "toml");
    let limits = &text[text.find("[[limit]]").unwrap()..];
    let headers = text.lines().find(|line| line.starts_with("headers = ")).unwrap_or("");
    assert!(text.contains("[check]") && !text.contains("upstream"), "{text}");
    config(headers, &format!("{limits}\n{tables}"))
}

/// Starts Weir with the configuration of a recipe.
fn weir(recipe: &str) -> Weir {
    Weir::start_as(&configured(recipe, ""))
}

fn get(client: &mut Client, path: &str) -> Answer {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: shop.test\r\n\r\n")).answer()
}

/// The limit headers of an answer: the limit, the remaining units, and whether there is a reset.
fn standing(answer: &Answer) -> (Option<&str>, Option<&str>, bool) {
    let [limit, remaining, reset] =
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"].map(|name| answer.header(name));
    (limit, remaining, reset.is_some_and(|reset| reset.parse::<u64>().is_ok()))
}

/// Ten requests pass and reach the service; the others are 429 with the headers of Weir, and do not reach it.
fn ten_pass(front: &Front, upstream: &Upstream) {
    let mut client = Client::connect(front.address());
    for left in (0..10).rev() {
        let answer = get(&mut client, "/a?b=c");
        let left = left.to_string();
        assert_eq!((answer.status, standing(&answer)), (200, (Some("10"), Some(&*left), true)), "{}", answer.head);
    }
    let refused = get(&mut client, "/a?b=c");
    assert_eq!((refused.status, standing(&refused)), (429, (Some("10"), Some("0"), true)), "{}", refused.head);
    let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=6).contains(&retry), "{retry}");
    assert_eq!(upstream.received_count(), 10);
    // Another client, another bucket; a denied path is no 429.
    let mut other = stranger(front.address());
    assert_eq!(get(&mut other, "/a").status, 200);
    // What a client says about itself is not believed.
    let forged = "X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Uri: /free\r\nX-Forwarded-Method: PUT\r\n\
        X-Forwarded-Host: free.test\r\nX-Original-URI: /free\r\nX-Original-Method: PUT\r\nX-Original-Host: free.test\r\n";
    let answer = client.send(format!("GET /a HTTP/1.1\r\nHost: shop.test\r\n{forged}\r\n")).answer();
    assert_eq!(answer.status, 429, "{}", answer.head);
    let body = "POST /a HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(other.send(body).answer().status, 200);
    assert!(upstream.received().last().unwrap().head.starts_with("POST /a "));
}

/// The time after which the proxies of the tests ask another Weir. On a machine that is busy with other tests, a decision
/// can take more than the 80 ms of the recipes.
const PATIENCE: Duration = Duration::from_secs(2);

/// `text` with timeouts of `PATIENCE`.
fn patient(text: &str) -> String {
    text.replace("80ms", "2s")
        .replace("timeout check 200ms", "timeout check 2s")
        .replace("timeout = 1000", "timeout = 10000")
}

/// `text` with one line for each Weir in place of the line of `server`, whose address becomes `address` of the Weir.
fn line_for_each(text: &str, weirs: &[&Weir], address: impl Fn(&Weir) -> String) -> String {
    let line = text.lines().find(|line| line.contains("server") && line.contains("127.0.0.1:8082")).unwrap();
    let of = |(index, weir): (usize, &&Weir)| {
        line.replace("127.0.0.1:8082", &address(weir)).replace("weir1", &format!("weir{index}"))
    };
    text.replacen(line, &weirs.iter().enumerate().map(of).collect::<Vec<_>>().join("\n"), 1)
}

fn nginx(upstream: &Upstream, weirs: &[&Weir]) -> Front {
    let text = line_for_each(&block("limits-for-nginx", "nginx"), weirs, |weir| weir.checks().to_string());
    let text = text.replace("127.0.0.1:9000", &upstream.address().to_string());
    let text = patient(&text).replace("listen 80;", "listen 127.0.0.1:$PORT;");
    assert!(text.contains("$PORT") && text.contains("auth_request "), "{text}");
    Front::nginx(&text)
}

fn haproxy(upstream: &Upstream, weirs: &[&Weir]) -> Front {
    let own = free_port().to_string();
    let lua = patient(&block("limits-for-haproxy", "lua")).replace("8083", &own);
    let address = |weir: &Weir| format!("{} check port {}", weir.checks(), weir.admin().port());
    let text = line_for_each(&block("limits-for-haproxy", "haproxy"), weirs, address).replace("8083", &own);
    let text = patient(&text).replace("bind :80\n", "bind 127.0.0.1:$PORT\n");
    let text = text.replace("127.0.0.1:9000", &upstream.address().to_string());
    assert!(text.contains("$PORT") && lua.contains("httpclient"), "{text}");
    Front::haproxy(&text, &lua)
}

/// Requests of a client, one after the other, which pass or are refused: the times, and how many passed.
fn requests(client: &mut Client, count: usize) -> (Vec<Duration>, u64) {
    let mut passed = 0;
    let request = |_| {
        let began = Instant::now();
        let answer = get(client, "/a");
        assert!([200, 429].contains(&answer.status), "{}", answer.head);
        passed += u64::from(answer.status == 200);
        began.elapsed()
    };
    let mut times: Vec<_> = (0..count).map(request).collect();
    times.sort();
    (times, passed)
}

/// Of three Weirs with one limit, one hangs and one is killed. No request fails, the limit holds, and the one that hangs is
/// soon left alone: otherwise a third of the requests would take `PATIENCE`.
#[test]
fn proxies_leave_a_weir_that_hangs() {
    const LIMIT: u64 = 300;
    for (recipe, start) in
        [("limits-for-nginx", nginx as fn(&Upstream, &[&Weir]) -> Front), ("limits-for-haproxy", haproxy)]
    {
        let (upstream, redis) = (Upstream::start(), Redis::start());
        let shared = format!(
            "[fleet]\nstrategy = \"redis\"\nreplicas = 3\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\n\
             [store.main]\nredis = [\"{}\"]\ntimeout = \"5s\"\n",
            redis.url()
        );
        let config = configured(recipe, &shared).replacen("10/min", &format!("{LIMIT}/day"), 1);
        let mut fleet = Fleet::of(3, &config);
        let front = start(&upstream, &fleet.weirs.iter().collect::<Vec<_>>());
        let mut client = Client::connect(front.address());
        let (_, before) = requests(&mut client, 20);
        fleet.weirs[0].signal("STOP");
        let (hanging, meanwhile) = requests(&mut client, 200);
        assert!(hanging[180] < PATIENCE, "{recipe}: {:?}", &hanging[150..]);
        drop(fleet.weirs.pop());
        let (killed, after) = requests(&mut client, 200);
        fleet.weirs[0].signal("CONT");
        let passed = before + meanwhile + after;
        println!("{recipe}: {passed} passed; 98 of 100 within {:?} and {:?}", hanging[195], killed[195]);
        assert!(passed * 100 <= LIMIT * 110 && passed * 100 >= LIMIT * 90, "{recipe}: {passed}");
    }
}

#[test]
fn nginx_asks_by_auth_request() {
    let upstream = Upstream::start();
    let weir = weir("limits-for-nginx");
    let front = nginx(&upstream, &[&weir]);
    ten_pass(&front, &upstream);
    let denied = get(&mut stranger(front.address()), "/internal/a");
    assert_eq!((denied.status, denied.header("retry-after")), (403, None), "{}", denied.head);
    // The host of a request without one is that of the server, so limits by host hold.
    let mut old = stranger(front.address());
    assert_eq!(old.send("GET /a HTTP/1.0\r\n\r\n").answer().status, 200);
    weir.wait_for_line("\"host\":\"shop.example\"");
    // A path that Weir does not accept is no reason to let it pass.
    let count = upstream.received_count();
    assert_eq!(get(&mut stranger(front.address()), "/a%5Cb").status, 500);
    assert_eq!(upstream.received_count(), count);
    let line = weir.wait_for_line("\"verdict\":\"refused\"");
    for field in ["\"client\":\"127.0.0.1\"", "\"host\":\"shop.test\"", "\"path\":\"/a\"", "\"status\":403"] {
        assert!(line.contains(field), "{line}");
    }
    drop(weir);
    // Without Weir nothing passes.
    assert_eq!(get(&mut stranger(front.address()), "/b").status, 500);
}

/// A pause of all replicas is an outage of a second, not of ten.
#[test]
fn nginx_asks_again_after_a_pause_of_all() {
    let upstream = Upstream::start();
    let weirs = [weir("limits-for-nginx"), weir("limits-for-nginx")];
    let front = nginx(&upstream, &[&weirs[0], &weirs[1]]);
    for weir in &weirs {
        weir.signal("STOP");
    }
    assert_eq!(get(&mut stranger(front.address()), "/b").status, 500);
    for weir in &weirs {
        weir.signal("CONT");
    }
    let began = Instant::now();
    weirs[0].wait_until("a check", || get(&mut stranger(front.address()), "/b").status == 200);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn caddy_asks_by_forward_auth() {
    let upstream = Upstream::start();
    let weir = weir("limits-for-caddy");
    let text = block("limits-for-caddy", "caddyfile");
    let text = text.replace("127.0.0.1:8082", &weir.checks().to_string());
    let text = text.replace("127.0.0.1:9000", &upstream.address().to_string());
    let text = text.replace("shop.example {", "http://:$PORT {");
    assert!(text.contains("$PORT") && text.contains("forward_auth "), "{text}");
    let front = Front::caddy(&text);
    ten_pass(&front, &upstream);
    let denied = get(&mut stranger(front.address()), "/internal/a");
    assert_eq!((denied.status, denied.header("retry-after")), (403, None), "{}", denied.head);
    // The query of a client is not that of the check.
    assert_eq!(get(&mut Client::connect(front.address()), "/a?refuse=503").status, 429);
    let line = weir.wait_for_line("\"verdict\":\"refused\"");
    for field in ["\"client\":\"127.0.0.1\"", "\"host\":\"shop.test\"", "\"path\":\"/a\"", "\"status\":429"] {
        assert!(line.contains(field), "{line}");
    }
    // A preflight is free, so its check has no headers of limits.
    let preflight = "OPTIONS /a HTTP/1.1\r\nHost: shop.test\r\nOrigin: https://a.test\r\n\
                     Access-Control-Request-Method: GET\r\n\r\n";
    let free = stranger(front.address()).send(preflight).answer();
    assert_eq!((free.status, free.header("x-ratelimit-limit")), (200, None), "{}", free.head);
}

#[test]
fn haproxy_asks_by_a_lua_action() {
    let upstream = Upstream::start();
    let weir = weir("limits-for-haproxy");
    let front = haproxy(&upstream, &[&weir]);
    ten_pass(&front, &upstream);
    let denied = get(&mut stranger(front.address()), "/internal/a");
    assert_eq!((denied.status, denied.header("retry-after")), (403, None), "{}", denied.head);
    for (target, path) in [("GET http://shop.test", "/"), ("OPTIONS *", "*")] {
        let mut other = stranger(front.address());
        let answer = other.send(format!("{target} HTTP/1.1\r\nHost: shop.test\r\n\r\n")).answer();
        assert_eq!(answer.status, 200, "{target}: {}", answer.head);
        weir.wait_for_line(&format!("\"path\":\"{path}\""));
    }
    let line = weir.wait_for_line("\"verdict\":\"refused\"");
    for field in ["\"client\":\"127.0.0.1\"", "\"host\":\"shop.test\"", "\"path\":\"/a\"", "\"status\":429"] {
        assert!(line.contains(field), "{line}");
    }
    let count = upstream.received_count();
    assert_eq!(get(&mut stranger(front.address()), "/a%5Cb").status, 400);
    drop(weir);
    // Without Weir nothing passes.
    assert_eq!(get(&mut stranger(front.address()), "/b").status, 503);
    assert_eq!(upstream.received_count(), count);
}

/// Traefik is in no distribution, so this sends the headers that it documents.
#[test]
fn the_limits_for_traefik() {
    let weir = weir("limits-for-traefik");
    let mut client = connect(&weir);
    let asked = Asked { uri: "/a?b=c", more: "X-Forwarded-Port: 443\r\nX-Forwarded-Server: traefik\r\n", ..GET };
    let statuses: Vec<_> = (0..11).map(|_| asked.ask(&mut client).status).collect();
    assert_eq!((&statuses[..10], statuses[10]), (&[200; 10][..], 429));
    assert_eq!(Asked { uri: "/internal/a", client: "192.0.2.2", ..GET }.ask(&mut client).status, 403);
}
