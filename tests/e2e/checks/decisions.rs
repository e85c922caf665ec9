//! A described request meets the limits and lists that a forwarded one would meet.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;

use super::{Asked, GET, connect, detail, start};
use crate::admin_tap::Watcher;
use crate::support::{Client, Upstream, Weir};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn limits_apply_by_all_parts_of_a_request() {
    let limit = |name: &str, rest: &str| format!("[[limit]]\nname = \"{name}\"\nrate = \"1/h\"\n{rest}\n");
    let limits = [
        limit("path", "key = [\"ip\", \"path\"]\nmatch = { path = \"/a/{*rest}\" }"),
        limit("method", "key = [\"ip\"]\nmatch = { method = \"POST\" }"),
        limit("host", "key = []\nmatch = { host = \"b.test\" }"),
        limit("header", "key = [\"header:x-api-key\"]\nmatch = { path = \"/header\" }"),
        limit("query", "key = [\"query:k\"]\nmatch = { path = \"/query\" }"),
        limit("cookie", "key = [\"cookie:k\"]\nmatch = { path = \"/cookie\" }"),
        limit("arrival", "stage = \"arrival\"\nkey = [\"ip\"]\nmatch = { path = \"/arrival\" }"),
    ];
    let weir = start(&limits.concat());
    let mut client = connect(&weir);
    for (asked, status) in [
        (GET, 200),
        (GET, 200),
        (Asked { uri: "/a/b", ..GET }, 200),
        (Asked { uri: "/a/./b?c=d", ..GET }, 429),
        (Asked { uri: "/a/%62", ..GET }, 429),
        (Asked { uri: "/a/c", ..GET }, 200),
        (Asked { uri: "/a/b", client: "192.0.2.2", ..GET }, 200),
        // The last hop that is not trusted is the client.
        (Asked { uri: "/a/b", client: "6.6.6.6, 192.0.2.2", ..GET }, 429),
        (Asked { uri: "/a/b", client: "192.0.2.2, 127.0.0.1", ..GET }, 429),
        (Asked { method: "POST", ..GET }, 200),
        (Asked { method: "POST", ..GET }, 429),
        (Asked { host: "b.test", ..GET }, 200),
        (Asked { host: "B.TEST:8443", client: "192.0.2.3", ..GET }, 429),
        (Asked { uri: "/header", more: "X-Api-Key: a\r\n", ..GET }, 200),
        (Asked { uri: "/header", more: "X-Api-Key: a\r\n", client: "192.0.2.4", ..GET }, 429),
        (Asked { uri: "/header", more: "X-Api-Key: b\r\n", ..GET }, 200),
        (Asked { uri: "/header", more: "X-Api-Key: c\r\nX-Api-Key: d\r\n", ..GET }, 400),
        (Asked { uri: "/query?k=a", ..GET }, 200),
        (Asked { uri: "/query?k=a", ..GET }, 429),
        (Asked { uri: "/cookie", more: "Cookie: k=a\r\n", ..GET }, 200),
        (Asked { uri: "/cookie", more: "Cookie: k=a\r\n", ..GET }, 429),
        (Asked { uri: "/arrival", ..GET }, 200),
        (Asked { uri: "/arrival", ..GET }, 429),
        // A path that Weir would not forward.
        (Asked { uri: "/a%zz", ..GET }, 400),
        (Asked { uri: "/a%5cb", ..GET }, 400),
    ] {
        let answer = asked.ask(&mut client);
        assert_eq!(answer.status, status, "{} {} {} {}", asked.method, asked.uri, asked.client, answer.text());
    }
    assert_eq!(weir.metric("weir_requests_total{verdict=\"refused\"}"), 13.0);
    assert_eq!(weir.metric("weir_refused_requests_total{by=\"limit\"}"), 10.0);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"refused\",limit=\"path\"}"), 4.0);
    let line = weir.wait_for_line("\"path\":\"/arrival\",\"status\":429");
    for field in ["\"client\":\"192.0.2.1\"", "\"method\":\"GET\"", "\"host\":\"shop.test\"", "\"limit\":\"arrival\""] {
        assert!(line.contains(field), "{line}");
    }
}

#[test]
fn a_tap_shows_checks_as_the_requests_that_they_describe() {
    let weir = start("[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"1/day\"\n");
    let mut tap = Watcher::open(&weir, "?limit=l&client=192.0.2.1");
    let mut client = connect(&weir);
    for (status, verdict, limit) in [(200, "forwarded", json!(null)), (429, "refused", json!("l"))] {
        assert_eq!(Asked { uri: "/a", ..GET }.ask(&mut client).status, status);
        let seen = tap.next();
        let of = |name: &str| seen[name].clone();
        let expected = [json!("/a"), json!("shop.test"), json!(status), json!(verdict), limit];
        assert_eq!(["path", "host", "status", "verdict", "limit"].map(of), expected);
        assert_eq!((&seen["keys"][0]["limit"], &seen["keys"][0]["key"]), (&json!("l"), &json!("192.0.2.1")));
    }
}

#[test]
fn answers_have_the_limit_headers_and_the_wanted_status() {
    let weir = start(
        "[headers]\nprofiles = [\"x-ratelimit\", \"ietf\"]\n[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"2/h\"\n",
    );
    let mut client = connect(&weir);
    let allowed = GET.ask(&mut client);
    assert_eq!((allowed.status, allowed.header("x-ratelimit-limit")), (200, Some("2")));
    assert_eq!((allowed.header("x-ratelimit-remaining"), allowed.header("retry-after")), (Some("1"), None));
    assert_eq!(allowed.header("ratelimit"), Some("\"l\";r=1;t=1800"));
    assert_eq!((allowed.header("content-length"), allowed.header("content-type")), (Some("0"), None));
    GET.ask(&mut client);
    for (target, status) in
        [("/auth", 429), ("/auth?refuse=403", 403), ("/auth?refuse=401", 401), ("/auth?refuse=599", 599)]
    {
        let refused = client.send(GET.bytes(target)).answer();
        assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (status, Some("0")), "{}", refused.head);
        let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1790..=1800).contains(&retry), "{retry}");
        assert!(detail(&refused).starts_with("beyond l; retry after"), "{}", refused.text());
        assert!(refused.text().contains("\"violated-policies\":[\"l\"]"), "{}", refused.text());
    }
    // A request that costs nothing is not refused, so the status is for refusals only.
    let other = Asked { client: "192.0.2.9", ..GET };
    assert_eq!(client.send(other.bytes("/auth?refuse=403")).answer().status, 200);
    let origin = Asked { more: "Origin: https://a.test\r\n", ..GET };
    assert!(origin.ask(&mut client).header("access-control-expose-headers").is_some());
    // Every method asks, and HEAD gets no body.
    for method in ["POST", "HEAD", "DELETE", "OPTIONS"] {
        client.send(GET.bytes("/auth").replacen("GET", method, 1));
        let status = if method == "HEAD" { client.head().unwrap().status } else { client.answer().status };
        assert_eq!(status, 429, "{method}");
    }
}

#[test]
fn access_lists_identities_and_bans_decide_too() {
    let weir = start(&format!(
        "[access]\ndeny = {{ ip = \"198.51.100.0/24\", path = \"/secret\" }}\nallow = {{ ip = \"203.0.113.0/24\" }}\n\
         [identity.user.jwt]\nclaim = \"sub\"\nalgorithms = [\"HS256\"]\n\
         keys = [{{ secret = {{ file = \"{}\" }} }}]\n\
         [[limit]]\nname = \"user\"\nkey = [\"user\"]\nmatch = {{ path = \"/user\" }}\nrate = \"1/h\"\n\
         [[limit]]\nname = \"ban\"\nkey = [\"ip\"]\nmatch = {{ path = \"/ban\" }}\nrate = \"1/h\"\n\
         ban = {{ after = \"1/h\", for = \"1h\" }}\n",
        secret_file().display()
    ));
    let mut client = connect(&weir);
    let token = |sub: &str| {
        let claims = json!({ "sub": sub, "exp": 4_000_000_000_u64 });
        let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
        format!("Authorization: Bearer {token}\r\n")
    };
    let (alice, bob) = (token("alice"), token("bob"));
    for (asked, refuse, status, hint) in [
        (Asked { client: "198.51.100.7", ..GET }, "/auth", 403, None),
        (Asked { uri: "/secret", ..GET }, "/auth?refuse=401", 403, None),
        (Asked { uri: "/user", ..GET }, "/auth?refuse=403", 401, Some(("www-authenticate", "Bearer"))),
        (
            Asked { uri: "/user", more: "Authorization: Bearer x\r\n", ..GET },
            "/auth",
            401,
            Some(("www-authenticate", "Bearer error=\"invalid_token\"")),
        ),
        (Asked { uri: "/user", more: &alice, ..GET }, "/auth", 200, Some(("x-ratelimit-remaining", "0"))),
        (Asked { uri: "/user", more: &alice, ..GET }, "/auth", 429, Some(("x-ratelimit-remaining", "0"))),
        (Asked { uri: "/user", more: &bob, ..GET }, "/auth", 200, None),
        (Asked { uri: "/user", more: &alice, client: "203.0.113.1", ..GET }, "/auth", 200, None),
        (Asked { uri: "/ban", ..GET }, "/auth", 200, None),
        (Asked { uri: "/ban", ..GET }, "/auth", 429, None),
        (Asked { uri: "/ban", ..GET }, "/auth?refuse=401", 403, Some(("retry-after", "3600"))),
    ] {
        let answer = client.send(asked.bytes(refuse)).answer();
        assert_eq!(answer.status, status, "{} {}", asked.uri, answer.text());
        if let Some((name, value)) = hint {
            let seen = answer.header(name).unwrap_or_else(|| panic!("{}", answer.head));
            // Of an hour, some seconds may be gone.
            let is_so = seen == value || (name == "retry-after" && ("3590"..="3600").contains(&seen));
            assert!(is_so, "{}", answer.head);
        }
    }
    assert_eq!(weir.metric("weir_problems_total{kind=\"access_refused\"}"), 2.0);
}

/// A file with the secret of tokens, which outlives the test.
fn secret_file() -> std::path::PathBuf {
    let (mut file, path) = tempfile::NamedTempFile::new().unwrap().keep().unwrap();
    std::io::Write::write_all(&mut file, SECRET.as_bytes()).unwrap();
    path
}

#[test]
fn a_charge_stays_as_it_was_made() {
    let settled = "rate = \"1000/day\"\ncost = 100\nsettle = { by = \"elapsed_ms\" }";
    let counted = "rate = \"10/h\"\ncount = { status = [\"500\"] }";
    let in_flight = "algorithm = \"concurrency\"\nmax = 2";
    for (rest, remaining) in
        [(settled, ["900", "800", "700"]), (counted, ["9", "8", "7"]), (in_flight, ["1", "1", "1"])]
    {
        let weir = start(&format!("[[limit]]\nname = \"l\"\nkey = [\"ip\"]\n{rest}\n"));
        let mut client = connect(&weir);
        for left in remaining {
            let answer = GET.ask(&mut client);
            assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some(left)), "{rest}");
        }
    }
}

#[test]
fn a_bucket_is_shared_with_forwarded_requests() {
    let upstream = Upstream::start();
    let server = "trusted_proxies = [\"127.0.0.1\"]\n";
    let rest = "[check]\nlisten = \"127.0.0.1:0\"\n[[limit]]\nname = \"l\"\nkey = [\"ip\", \"path\", \"host\", \"method\"]\nrate = \"3/h\"\n";
    let weir = Weir::start_with(&upstream, server, rest);
    let (mut asking, mut client) = (connect(&weir), Client::connect(weir.address()));
    let mut forward =
        || client.send("GET /a HTTP/1.1\r\nHost: shop.test\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n").answer().status;
    let mut ask = || Asked { uri: "/a", ..GET }.ask(&mut asking).status;
    assert_eq!([ask(), forward(), ask(), forward(), ask()], [200, 200, 200, 429, 429]);
    assert_eq!(upstream.received_count(), 1);
}

/// A proxy may ask for another status than that of the limit.
#[test]
fn a_refusal_has_the_status_of_the_limit_unless_the_proxy_asks_for_one() {
    let weir = start("[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"1/h\"\nstatus = 420\n");
    let mut client = connect(&weir);
    for (target, status) in [("/auth", 200), ("/auth", 420), ("/auth?refuse=403", 403), ("/auth", 420)] {
        assert_eq!(client.send(GET.bytes(target)).answer().status, status, "{target}");
    }
}
