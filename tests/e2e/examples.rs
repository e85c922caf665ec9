//! The configurations in config/examples/, each in front of an upstream, do what the systems promise that they replace.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::support::{Answer, Client, Upstream, Weir};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A Weir with this example, on ports of its own, that believes what the test says of addresses.
fn start(name: &str, upstream: &Upstream) -> Weir {
    let text = std::fs::read_to_string(format!("config/examples/{name}.toml")).unwrap();
    let text = text
        .replace("listen = \"127.0.0.1:8080\"", "listen = \"127.0.0.1:0\"\ntrusted_proxies = [\"127.0.0.1\"]")
        .replace("127.0.0.1:9000", &upstream.address().to_string())
        .replace("listen = \"127.0.0.1:9901\"", "listen = \"127.0.0.1:0\"");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), format!("{text}\n[log]\nformat = \"json\"\n")).unwrap();
    Weir::start_in_env(folder, &[("WEIR_JWT_SECRET", SECRET)])
}

fn ask(client: &mut Client, path: &str, headers: &str) -> Answer {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).answer()
}

/// The statuses of so many requests in a row.
fn statuses(client: &mut Client, path: &str, headers: &str, times: usize) -> Vec<u16> {
    (0..times).map(|_| ask(client, path, headers).status).collect()
}

/// How many of so many requests pass before the first that is refused; none passes after it.
fn passing(client: &mut Client, path: &str, headers: &str, times: usize) -> usize {
    let statuses = statuses(client, path, headers, times);
    let passed = statuses.iter().take_while(|status| **status == 200).count();
    assert!(statuses[passed..].iter().all(|status| *status == 429), "{path} {headers}: {statuses:?}");
    passed
}

#[test]
fn the_rate_service_holds_what_is_beyond_and_lets_other_resources_pass() {
    let upstream = Upstream::start();
    let weir = start("rate-service", &upstream);
    let mut client = Client::connect(weir.address());
    assert_eq!(statuses(&mut client, "/a", "", 100), [200; 100]);
    let mut blocked = Client::connect(weir.address());
    blocked.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let held = "weir_held_requests{limit=\"per-minute\"}";
    weir.wait_for_metric(held, |held| held == 1.0);
    assert_eq!(ask(&mut client, "/b", "").status, 200);
    drop(blocked);
    weir.wait_for_metric(held, |held| held == 0.0);
    assert!(weir.metric("weir_overhead_seconds_count") >= 101.0);
    // The next one comes as soon as a unit is back, which takes 600 ms.
    let began = Instant::now();
    assert_eq!(ask(&mut client, "/a", "").status, 200);
    assert!(began.elapsed().as_millis() < 1000, "{:?}", began.elapsed());
}

#[test]
fn the_matrix_router_charges_time_and_the_service_charges_itself() {
    let upstream = Upstream::start();
    let weir = start("matrix-router", &upstream);
    let mut client = Client::connect(weir.address());
    let answer = ask(&mut client, "/", "X-Client: a\r\n");
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("59999")));
    let charge = |units: u64| {
        let body = json!({ "limit": "cpu", "key": { "client": "a" }, "units": units }).to_string();
        let mut operator = Client::connect(weir.admin());
        let answer = operator
            .send(format!(
                "POST /spend_ratelimiter_budget HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .answer();
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_slice::<Value>(&answer.body).unwrap()
    };
    let balance = charge(160_000);
    assert_eq!(balance["remaining"], 0);
    // The burst had been there but for what the first request took; the rest is owed, and paid at a thousand a second.
    let debt = balance["debt"].as_u64().unwrap();
    assert!((99_000..=101_000).contains(&debt), "{balance}");
    let answer = ask(&mut client, "/", "X-Client: a\r\n");
    let retry_s: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(answer.status, 429);
    assert!((95..=102).contains(&retry_s), "{retry_s}");
    assert_eq!(ask(&mut client, "/", "X-Client: b\r\n").status, 200);
    assert_eq!(ask(&mut client, "/", "").status, 401);
}

fn token(claims: &Value) -> String {
    let mut claims = claims.clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    claims["exp"] = json!(now + 600);
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    format!(
        "Authorization: Bearer {}\r\n",
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
    )
}

#[test]
fn the_seller_api_limits_by_address_then_by_seller_and_tariff() {
    let upstream = Upstream::start();
    let weir = start("seller-api", &upstream);
    let mut client = Client::connect(weir.address());
    let as_seller = |id: &str, ip: &str| format!("{}X-Forwarded-For: {ip}\r\n", token(&json!({ "sellerId": id })));
    // Three methods, one basket; each seller has its own.
    let one = as_seller("1", "192.0.2.1");
    let paths = ["/api/report.csv", "/api/report.xls", "/api/report/7"];
    assert_eq!(paths.map(|path| ask(&mut client, path, &one).status), [200; 3]);
    let refused = ask(&mut client, paths[0], &one);
    assert_eq!((refused.status, refused.header("x-ratelimit-retry")), (429, Some("1")));
    assert_eq!(ask(&mut client, paths[0], &as_seller("2", "192.0.2.1")).status, 200);
    let pro = token(&json!({ "sellerId": "3", "tariff": "pro" })) + "X-Forwarded-For: 192.0.2.3\r\n";
    assert_eq!(ask(&mut client, paths[0], &pro).header("x-ratelimit-remaining"), Some("99"));
    // Without a token: counted at the outer limit all the same, and banned for going on.
    assert_eq!(ask(&mut client, paths[0], "X-Forwarded-For: 192.0.2.9\r\n").status, 401);
    let flood = statuses(&mut client, "/content/a", "X-Forwarded-For: 192.0.2.9\r\n", 400);
    assert!(flood.contains(&429), "{flood:?}");
    let banned = ask(&mut client, paths[0], &as_seller("4", "192.0.2.9"));
    assert_eq!(banned.status, 403, "{flood:?}");
    assert!(banned.header("retry-after").is_some_and(|s| s.parse::<u64>().is_ok_and(|s| s > 500)), "{}", banned.head);
    assert_eq!(ask(&mut client, paths[0], &as_seller("4", "192.0.2.4")).status, 200);
    assert_eq!(ask(&mut client, paths[0], &as_seller("5", "198.51.100.9")).status, 403);
}

#[test]
fn the_course_has_one_limit_of_each_kind() {
    let upstream = Upstream::start();
    let weir = start("course", &upstream);
    let mut client = Client::connect(weir.address());
    let user = |name: &str| format!("X-User: {name}\r\n");
    // A search is worth ten, and a plan has more.
    assert_eq!(passing(&mut client, "/search", &user("w"), 12), 10);
    let premium = user("w") + "X-Plan: premium\r\n";
    assert_eq!(ask(&mut client, "/search", &premium).status, 200);
    for (path, count) in [("/orders", 5), ("/pay", 2), ("/feed", 4)] {
        assert_eq!(passing(&mut client, path, &user("u"), count + 1), count, "{path}");
        assert_eq!(ask(&mut client, path, &user("v")).status, 200, "{path}");
    }
    assert_eq!(passing(&mut client, "/export", "X-Api-Key: k\r\n", 5), 3);
    // Slower instead of refused: the seventh is two over.
    assert_eq!(statuses(&mut client, "/slow", &user("s"), 5), [200; 5]);
    let began = Instant::now();
    assert_eq!(statuses(&mut client, "/slow", &user("s"), 2), [200; 2]);
    let took_ms = began.elapsed().as_millis();
    assert!((250..2000).contains(&took_ms), "{took_ms} ms");
    // Lists.
    assert_eq!(ask(&mut client, "/internal/a", &user("x")).status, 403);
    assert_eq!(ask(&mut client, "/feed", "X-Forwarded-For: 198.51.100.9\r\n").status, 403);
    assert_eq!(statuses(&mut client, "/feed", "X-Forwarded-For: 203.0.113.7\r\n", 9), [200; 9]);
    let mut operator = Client::connect(weir.admin());
    let top = operator.send("GET /v1/top?limit=weighted HTTP/1.1\r\nHost: localhost\r\n\r\n").answer();
    assert!(top.status == 200 && top.text().contains("\"count\":2"), "{}", top.text());
}

#[test]
fn windows_of_the_wall_clock_and_several_rules_at_once() {
    let upstream = Upstream::start();
    let weir = start("windows", &upstream);
    let mut client = Client::connect(weir.address());
    // A window may end between two requests: then a few more pass.
    let passed = statuses(&mut client, "/", "X-Id: 1\r\n", 120).iter().filter(|status| **status == 200).count();
    assert!((100..=120).contains(&passed), "{passed}");
    let refused = ask(&mut client, "/", "X-Id: 1\r\n");
    if passed == 100 && refused.status == 429 {
        let retry_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&retry_s), "{retry_s}");
    }
    assert_eq!(ask(&mut client, "/", "X-Id: 2\r\n").status, 200);
    assert_eq!(statuses(&mut client, "/", "X-Id: 1\r\nX-Role: admin\r\n", 20), [200; 20]);
}
