//! Each recipe of docs/recipes, in front of an upstream, keeps its promise.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use weir::fleet::grpc::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::fleet::grpc::proto::weir::v1::CheckRequest;

use crate::adapted_rates;
use crate::adaptive::SlowService;
use crate::body_units;
use crate::limiter::{Caller, rate_limit};
use crate::support::{Answer, Cert, Client, H2Service, Upstream, Weir, connect_tls, over_h2, trusting};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Starts Weir with the configuration of a recipe, on ports of its own, in front of `upstream`. Units come back within
/// hours, however slow the machine is.
fn start(recipe: &str, upstream: &Upstream) -> Weir {
    start_in(tempfile::tempdir().unwrap(), recipe, upstream.address())
}

/// Starts Weir as [`start`] does, with the files in `folder`, in front of `service`.
fn start_in(folder: tempfile::TempDir, recipe: &str, service: SocketAddr) -> Weir {
    let mut config = config_of(recipe);
    config.get_mut("limit").into_iter().for_each(slow_down);
    start_as(folder, config, service)
}

/// Starts Weir as [`start`] does, with the rates of the recipe.
fn start_with_its_rates(recipe: &str, upstream: &Upstream) -> Weir {
    start_as(tempfile::tempdir().unwrap(), config_of(recipe), upstream.address())
}

/// The configuration of a recipe.
fn config_of(recipe: &str) -> toml::Table {
    let page = std::fs::read_to_string(format!("docs/recipes/{recipe}.md")).unwrap();
    let text = page.split_once("\n```toml\n").unwrap().1.split_once("\n```").unwrap().0;
    toml::from_str(text).unwrap()
}

/// Makes rates by the second or the minute rates by the hour. Buckets keep their sizes.
fn slow_down(value: &mut toml::Value) {
    match value {
        toml::Value::String(text) => {
            if let Some((count, per)) = text.split_once('/')
                && count.parse::<u64>().is_ok()
                && (per.ends_with('s') || per.ends_with("min"))
            {
                *text = format!("{count}/h");
            }
        }
        toml::Value::Array(items) => items.iter_mut().for_each(slow_down),
        toml::Value::Table(table) => table.iter_mut().for_each(|(_, value)| slow_down(value)),
        _ => {}
    }
}

/// Starts Weir with this configuration.
///
/// The test's own address is a trusted proxy, so that a request can name any client.
fn start_as(folder: tempfile::TempDir, mut config: toml::Table, service: SocketAddr) -> Weir {
    let mut set = |table: &str, option: &str, value: toml::Value| {
        let table = config.entry(table).or_insert_with(|| toml::Table::new().into());
        table.as_table_mut().unwrap().insert(option.to_owned(), value);
    };
    set("server", "listen", "127.0.0.1:0".into());
    set("admin", "listen", "127.0.0.1:0".into());
    set("log", "format", "json".into());
    set("log", "level", "trace".into());
    let mut trusted = trusted_proxies(&config);
    trusted.push("127.0.0.1".into());
    config["server"].as_table_mut().unwrap().insert("trusted_proxies".into(), trusted.into());
    if let Some(grpc) = config.get_mut("grpc") {
        grpc["listen"] = "127.0.0.1:0".into();
    }
    if let Some(snapshot) = config.get_mut("snapshot") {
        snapshot["path"] = "state".into();
    }
    let url = toml::Value::from(format!("http://{service}"));
    if let Some(upstream) = config.get_mut("upstream") {
        upstream["url"] = url.clone();
    }
    for (_, upstream) in config.get_mut("upstreams").and_then(toml::Value::as_table_mut).into_iter().flatten() {
        upstream["endpoints"] = vec![url.clone()].into();
    }
    std::fs::write(folder.path().join("weir.toml"), config.to_string()).unwrap();
    Weir::start_in_env(folder, &[("WEIR_JWT_SECRET", SECRET)])
}

fn trusted_proxies(config: &toml::Table) -> Vec<toml::Value> {
    let trusted = config["server"].get("trusted_proxies").and_then(toml::Value::as_array);
    trusted.cloned().unwrap_or_default()
}

/// The line of a header that names a client by its address.
fn from(address: &str) -> String {
    format!("X-Forwarded-For: {address}\r\n")
}

fn ask(client: &mut Client, path: &str, headers: &str) -> Answer {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).answer()
}

/// The statuses of `times` requests in a row.
fn statuses(client: &mut Client, path: &str, headers: &str, times: usize) -> Vec<u16> {
    (0..times).map(|_| ask(client, path, headers).status).collect()
}

/// The number of requests, of `times`, that pass before the first refusal; none passes after it.
fn passing(client: &mut Client, path: &str, headers: &str, times: usize) -> usize {
    let statuses = statuses(client, path, headers, times);
    let passed = statuses.iter().take_while(|status| **status == 200).count();
    assert!(statuses[passed..].iter().all(|status| *status == 429), "{path} {headers}: {statuses:?}");
    passed
}

#[test]
fn requests_beyond_the_limit_are_held_and_other_paths_pass() {
    let upstream = Upstream::start();
    let weir = start("hold-requests-per-path", &upstream);
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
    // With the rate of the recipe, the next request passes once a unit is back, which takes 600 ms.
    let weir = start_with_its_rates("hold-requests-per-path", &upstream);
    let began = Instant::now();
    assert_eq!(statuses(&mut Client::connect(weir.address()), "/a", "", 101), [200; 101]);
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
}

#[test]
fn time_is_charged_and_the_service_charges_its_client() {
    let upstream = Upstream::start();
    let weir = start_with_its_rates("cpu-milliseconds", &upstream);
    let mut client = Client::connect(weir.address());
    let began = Instant::now();
    let answer = ask(&mut client, "/", "X-Client: a\r\n");
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("59999")));
    let charge = |units: u64| {
        let body = json!({ "limit": "cpu", "key": { "client": "a" }, "units": units }).to_string();
        let mut operator = Client::connect(weir.admin());
        let answer = operator
            .send(format!(
                "POST /v1/spend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .answer();
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_slice::<Value>(&answer.body).unwrap()
    };
    let balance = charge(160_000);
    assert_eq!(balance["remaining"], 0);
    // The burst was full except for the milliseconds of the first request. The rest is debt, paid at 1000 units a second.
    let debt = balance["debt"].as_u64().unwrap();
    let paid = u64::try_from(began.elapsed().as_millis()).unwrap();
    assert!((100_000 - paid..=100_001 + paid).contains(&debt), "{balance} after {paid} ms");
    let answer = ask(&mut client, "/", "X-Client: a\r\n");
    let retry_s: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(answer.status, 429);
    let took_s = began.elapsed().as_secs();
    assert!((98 - took_s..=102).contains(&retry_s), "{retry_s} after {took_s} s");
    assert_eq!(ask(&mut client, "/", "X-Client: b\r\n").status, 200);
    assert_eq!(ask(&mut client, "/", "").status, 401);
}

fn token(claims: &Value) -> String {
    let mut claims = claims.clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    claims["exp"] = json!(now + 600);
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    format!(
        "Authorization: Bearer {}\r\n",
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
    )
}

#[test]
fn the_marketplace_limits_by_address_then_by_seller_and_tariff() {
    let upstream = Upstream::start();
    let weir = start("marketplace-api", &upstream);
    let mut client = Client::connect(weir.address());
    let as_seller = |id: &str, ip: &str| format!("{}X-Forwarded-For: {ip}\r\n", token(&json!({ "sellerId": id })));
    // Three paths share one limit; each seller has a bucket of its own.
    let one = as_seller("1", "192.0.2.1");
    let paths = ["/api/report.csv", "/api/report.xls", "/api/report/7"];
    assert_eq!(paths.map(|path| ask(&mut client, path, &one).status), [200; 3]);
    let refused = ask(&mut client, paths[0], &one);
    let retry_s: u64 = refused.header("x-ratelimit-retry").unwrap().parse().unwrap();
    assert!(refused.status == 429 && (1000..=1200).contains(&retry_s), "{} {retry_s}", refused.status);
    assert_eq!(ask(&mut client, paths[0], &as_seller("2", "192.0.2.1")).status, 200);
    let pro = token(&json!({ "sellerId": "3", "tariff": "pro" })) + "X-Forwarded-For: 192.0.2.3\r\n";
    assert_eq!(ask(&mut client, paths[0], &pro).header("x-ratelimit-remaining"), Some("99"));
    // The outer limit also counts requests without a token, and bans an address that continues.
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
fn there_is_one_limit_of_each_algorithm() {
    let upstream = Upstream::start();
    let weir = start("one-limit-of-each-algorithm", &upstream);
    let mut client = Client::connect(weir.address());
    let user = |name: &str| format!("X-User: {name}\r\n");
    // A search costs ten units; a plan has more units.
    assert_eq!(passing(&mut client, "/search", &user("w"), 12), 10);
    let premium = user("w") + "X-Plan: premium\r\n";
    assert_eq!(ask(&mut client, "/search", &premium).status, 200);
    for (path, count) in [("/orders", 5), ("/pay", 2), ("/feed", 4)] {
        assert_eq!(passing(&mut client, path, &user("u"), count + 1), count, "{path}");
        assert_eq!(ask(&mut client, path, &user("v")).status, 200, "{path}");
    }
    assert_eq!(passing(&mut client, "/export", "X-Api-Key: k\r\n", 5), 3);
    // Delayed instead of refused: the seventh request is two units over the limit.
    assert_eq!(statuses(&mut client, "/slow", &user("s"), 5), [200; 5]);
    let began = Instant::now();
    assert_eq!(statuses(&mut client, "/slow", &user("s"), 2), [200; 2]);
    let took_ms = began.elapsed().as_millis();
    assert!(took_ms >= 250, "{took_ms} ms");
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
    let weir = start("several-windows", &upstream);
    let mut client = Client::connect(weir.address());
    // A window may end between two requests: then a few more pass.
    let passed = statuses(&mut client, "/", "X-Id: 1\r\n", 120).iter().filter(|status| **status == 200).count();
    assert!((100..=120).contains(&passed), "{passed}");
    let refused = ask(&mut client, "/", "X-Id: 1\r\n");
    if passed == 100 && refused.status == 429 {
        let retry_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=3600).contains(&retry_s), "{retry_s}");
    }
    assert_eq!(ask(&mut client, "/", "X-Id: 2\r\n").status, 200);
    assert_eq!(statuses(&mut client, "/", "X-Id: 1\r\nX-Role: admin\r\n", 20), [200; 20]);
}

#[test]
fn an_office_network_is_exempt() {
    let upstream = Upstream::start();
    let weir = start("exempt-an-office-network", &upstream);
    let mut client = Client::connect(weir.address());
    assert_eq!(passing(&mut client, "/", &from("203.0.113.7"), 102), 100);
    assert_eq!(statuses(&mut client, "/", &from("192.0.2.7"), 102), [200; 102]);
    assert_eq!(ask(&mut client, "/", &from("2001:db8:40::7")).header("x-ratelimit-limit"), None);
}

#[test]
fn a_login_form_is_protected() {
    let upstream = Upstream::answering(|request, stream| {
        let status = if request.header("x-password").as_deref() == Some("right") { "200 OK" } else { "401 No" };
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").is_ok()
    });
    let weir = start("protect-a-login-form", &upstream);
    let mut client = Client::connect(weir.address());
    let mut login = |target: &str, password: &str, ip: &str| {
        let fields = format!("Host: a\r\nContent-Length: 0\r\nX-Password: {password}\r\n{}", from(ip));
        client.send(format!("POST {target} HTTP/1.1\r\n{fields}\r\n")).answer().status
    };
    // Successful logins cost nothing.
    assert_eq!([(); 8].map(|()| login("/login", "right", "203.0.113.7")), [200; 8]);
    assert_eq!([(); 5].map(|()| login("/LOGIN/", "wrong", "203.0.113.7")), [401; 5]);
    assert_eq!([(); 10].map(|()| login("/login", "wrong", "203.0.113.7")), [429; 10]);
    assert_eq!(login("/login", "right", "203.0.113.7"), 403);
    assert_eq!(login("/login", "right", "203.0.113.8"), 200);
}

#[test]
fn several_paths_share_one_limit() {
    let upstream = Upstream::start();
    let weir = start("one-limit-for-several-paths", &upstream);
    let mut client = Client::connect(weir.address());
    for (path, remaining) in [("/api/report.csv", "9"), ("/api/report.xls", "8"), ("/api/report/7", "7")] {
        assert_eq!(ask(&mut client, path, "").header("x-ratelimit-remaining"), Some(remaining), "{path}");
    }
    assert_eq!(ask(&mut client, "/other", "").header("x-ratelimit-remaining"), None);
}

#[test]
fn sellers_have_plans() {
    let upstream = Upstream::start();
    let weir = start("plans-per-seller", &upstream);
    let mut client = Client::connect(weir.address());
    for (claims, burst) in [
        (json!({ "sub": "1" }), Some("20")),
        (json!({ "sub": "2", "plan": "pro" }), Some("200")),
        (json!({ "sub": "3", "plan": "internal" }), None),
        (json!({ "sub": "4", "plan": "15/h" }), Some("30")),
        (json!({ "sub": "5", "plan": 5 }), Some("10")),
        (json!({ "sub": "6", "plan": "9999/h" }), Some("2000")),
        (json!({ "sub": "4711", "plan": "pro" }), Some("50")),
    ] {
        let answer = ask(&mut client, "/", &token(&claims));
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, burst), "{claims}");
    }
    assert_eq!(ask(&mut client, "/", "").status, 401);
}

#[test]
fn api_keys_have_plans_and_are_rotated() {
    let (upstream, folder) = (Upstream::start(), tempfile::tempdir().unwrap());
    let file = folder.path().join("keys.toml");
    let key = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.arg("apikeys").args(arguments).arg("--file").arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    let first = key(&["new", "--name", "ACME", "--plan", "premium", "--expires", "90d"]);
    let usual = key(&["new", "--name", "other"]);
    let weir = start_in(folder, "api-keys", upstream.address());
    let mut client = Client::connect(weir.address());
    let mut remaining = |key: &str| {
        let answer = ask(&mut client, "/", &format!("X-API-Key: {key}\r\n"));
        (answer.status, answer.header("x-ratelimit-remaining").map(str::to_owned))
    };
    assert_eq!(remaining(&first), (200, Some("199".to_owned())));
    assert_eq!(remaining(&usual), (200, Some("19".to_owned())));
    let second = key(&["rotate", "--name", "ACME", "--overlap", "24h"]);
    weir.wait_for_line("API keys changed");
    // Both keys are of one owner.
    assert_eq!(remaining(&first), (200, Some("198".to_owned())));
    assert_eq!(remaining(&second), (200, Some("197".to_owned())));
    key(&["revoke", "--name", "ACME"]);
    weir.wait_for_lines("API keys changed", 2);
    for key in [&first, &second, "invented"] {
        assert_eq!(remaining(key), (401, None));
    }
}

#[test]
fn tokens_and_money_are_limited() {
    let (upstream, folder) = (body_units::models(), tempfile::tempdir().unwrap());
    let file = folder.path().join("keys.toml");
    let key = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.args(["apikeys", "new"]).args(arguments).arg("--file").arg(&file).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    let (paid, free) = (key(&["--name", "ACME", "--plan", "paid"]), key(&["--name", "other"]));
    let weir = start_in(folder, "limit-language-model-tokens", upstream.address());
    let remaining = |limit: &str, name: &str| {
        let answer = weir.ask_admin("GET", &format!("/v1/keys?limit={limit}&key={name}&plan=paid"), &Value::Null);
        serde_json::from_slice::<Value>(&answer.body).unwrap()["remaining"].as_u64().unwrap()
    };
    let mut client = Client::connect(weir.address());
    assert_eq!(ask(&mut client, "/chat", &format!("X-API-Key: {paid}\r\n")).status, 200);
    // 17 tokens of input, 1,000 of the cache, and 100 of output.
    weir.wait_until("the money is charged", || remaining("money", "ACME") == 200_000_000 - (43 + 250 + 1000));
    assert!(remaining("tokens", "ACME") >= 1_000_000 - (17 + 100 + 100));
    // A stream without numbers keeps its reservation: what the body names, and a token for each four bytes of it.
    let body = r#"{"max_tokens":13000,"model":"model-1-mini"}"#;
    let head = format!("POST /html HTTP/1.1\r\nHost: a\r\nX-API-Key: {free}\r\nContent-Length: {}", body.len());
    assert_eq!(client.send(format!("{head}\r\n\r\n{body}")).answer().status, 200);
    // Without a body it is the default, so three empty the free tier.
    let statuses: Vec<_> =
        (0..4).map(|_| ask(&mut client, "/html", &format!("X-API-Key: {free}\r\n")).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    let mut ask_long = |model: &str, prompt: usize| {
        let body = format!(r#"{{"model":"{model}","max_tokens":1,"prompt":"{}"}}"#, "a".repeat(prompt));
        let head = format!("POST /html HTTP/1.1\r\nHost: a\r\nX-API-Key: {paid}\r\nContent-Length: {}", body.len());
        client.send(format!("{head}\r\n\r\n{body}")).answer().status
    };
    assert_eq!(ask_long("model-1-mini", 1_000_000), 200);
    let mut ask_for = |model: &str| ask_long(model, 1);
    assert_eq!(ask_for("model-2"), 400);
    // A model has its own budget, of which a part may come back meanwhile.
    let passed = (0..30).filter(|_| ask_for("model-1") == 200).count();
    assert!((20..30).contains(&passed), "{passed}");
    assert_eq!([ask_for("model-1-large"), ask_for("model-1-mini")], [200, 200]);
    assert_eq!(ask_long("model-1-mini", 1 << 20), 400);
}

#[test]
fn only_the_chat_may_change_to_websocket() {
    let upstream = Upstream::start();
    let weir = start("websocket-service", &upstream);
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (path, forwarded) in [("/chat", Some("websocket")), ("/", None)] {
        assert_eq!(ask(&mut Client::connect(weir.address()), path, upgrade).status, 200);
        assert_eq!(upstream.received().last().unwrap().header("upgrade").as_deref(), forwarded, "{path}");
    }
    let mut client = Client::connect(weir.address());
    assert_eq!(passing(&mut client, "/chat", "", 12), 9);
}

#[test]
fn uploads_are_limited_by_bytes() {
    let upstream = Upstream::start();
    let weir = start("limit-uploads-by-bytes", &upstream);
    let upload = |framing: &str, body: &str| {
        let head = format!("POST /uploads/a HTTP/1.1\r\nHost: a\r\n{framing}\r\n");
        Client::connect(weir.address()).send(format!("{head}\r\n{body}")).answer()
    };
    let sized = upload("Content-Length: 1000000", &"x".repeat(1_000_000));
    let remaining: u64 = sized.header("x-ratelimit-remaining").unwrap().parse().unwrap();
    assert_eq!((sized.status, remaining), (200, 20_971_520 - 1_000_000));
    // A body without a length costs as much as the largest one; then there is less than that.
    assert_eq!(upload("Transfer-Encoding: chunked", "1\r\nx\r\n0\r\n\r\n").status, 200);
    assert_eq!(upload("Transfer-Encoding: chunked", "1\r\nx\r\n0\r\n\r\n").status, 429);
    assert_eq!(upload("Content-Length: 1000000", &"x".repeat(1_000_000)).status, 200);
    assert_eq!(upload("Content-Length: 10485761", "").status, 413);
}

#[test]
fn downloads_are_limited_by_bytes() {
    const LEN: u64 = 30_000_000;
    let upstream = Upstream::answering(|_, stream| {
        let body = vec![b'x'; LEN as usize];
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {LEN}\r\n\r\n").is_ok() && stream.write_all(&body).is_ok()
    });
    let weir = start("limit-downloads-by-bytes", &upstream);
    let mut client = Client::connect(weir.address());
    assert_eq!(ask(&mut client, "/files/a", "").body.len() as u64, LEN);
    let refused = ask(&mut client, "/files/a", "");
    let retry_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    // The debt of 9 MB, paid at 29,127 bytes a second.
    assert!(refused.status == 429 && (200..=311).contains(&retry_s), "{} {retry_s}", refused.status);
}

#[test]
fn a_client_behind_a_load_balancer_keeps_its_bucket() {
    let upstream = Upstream::start();
    let weir = start("behind-a-load-balancer", &upstream);
    let mut client = Client::connect(weir.address());
    // What the client itself wrote stands to the left of its address.
    let forged = |n: usize| from(&format!("198.51.100.{n}, 203.0.113.7, 10.0.0.3"));
    let statuses: Vec<u16> = (0..60).map(|n| ask(&mut client, "/", &forged(n)).status).collect();
    assert!(statuses[..20].iter().all(|status| *status == 200) && statuses.contains(&429), "{statuses:?}");
    assert_eq!(ask(&mut client, "/", &from("203.0.113.8, 10.0.0.3")).status, 200);
}

#[test]
fn encoded_slashes_stay_in_their_segment() {
    let upstream = Upstream::start();
    let weir = start("encoded-slashes", &upstream);
    let mut client = Client::connect(weir.address());
    let path = "/api/v4/projects/group%2Fname/issues";
    let answer = ask(&mut client, path, "");
    assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, Some("10")));
    assert_eq!(upstream.targets(), [path]);
}

#[test]
fn a_greedy_client_is_slowed_down() {
    let upstream = Upstream::start();
    let weir = start("slow-clients-down", &upstream);
    let mut client = Client::connect(weir.address());
    assert_eq!(statuses(&mut client, "/", "", 5), [200; 5]);
    let began = Instant::now();
    assert_eq!(statuses(&mut client, "/", "", 2), [200; 2]);
    let took_ms = began.elapsed().as_millis();
    assert!(took_ms >= 250, "{took_ms} ms");
}

#[test]
fn a_limit_is_tried_in_shadow_mode() {
    let upstream = Upstream::start();
    let weir = start("try-a-limit-first", &upstream);
    let mut client = Client::connect(weir.address());
    assert_eq!(statuses(&mut client, "/api/v1/a", "", 5), [200; 5]);
    let refused = "weir_limit_decisions_total{decision=\"shadow_refused\",limit=\"v1-retirement\"}";
    weir.wait_for_metric(refused, |refused| refused == 2.0);
}

#[test]
fn other_numbers_are_measured_beside_a_limit() {
    let upstream = Upstream::start();
    let weir = start("try-other-numbers", &upstream);
    let mut client = Client::connect(weir.address());
    assert_eq!(statuses(&mut client, "/", "", 5), [200, 200, 200, 200, 429]);
    let decisions =
        |limit, decision| format!("weir_limit_decisions_total{{decision=\"{decision}\",limit=\"{limit}\"}}");
    weir.wait_for_metric(&decisions("per-ip.candidate", "shadow_refused"), |refused| refused == 3.0);
    weir.wait_for_metric(&decisions("per-ip", "refused"), |refused| refused == 1.0);
}

#[test]
fn an_old_version_is_retired_day_by_day() {
    let config = config_of("retire-an-old-version");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, config.to_string()).unwrap();
    for (at, rule, decision) in [
        ("2026-12-31T22:59:59Z", "600/min, token bucket", "admitted"),
        ("2027-01-01T23:00:00Z", "x0.967742 of 600/min, token bucket", "admitted"),
        ("2027-01-30T23:00:00Z", "x0.032258 of 600/min, token bucket", "admitted"),
        ("2027-01-31T23:00:00Z", "x0 of 600/min, token bucket", "refused: a ramp has lowered the limit to zero (v1)"),
    ] {
        let mut explain = Command::new(env!("CARGO_BIN_EXE_weir"));
        explain.args(["explain", "--path", "/api/v1/a", "--at", at, "--config"]).arg(&file);
        let said = String::from_utf8(explain.output().unwrap().stdout).unwrap();
        assert!(said.contains(&format!("rule: {rule}, by limit")), "{at}: {said}");
        assert!(said.contains(&format!("decision: {decision}")), "{at}: {said}");
    }
    let check = Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg(&file).output().unwrap();
    let schedule = String::from_utf8(check.stdout).unwrap();
    for row in [
        "v1    2026-12-31T23:00:00.000Z  600/min, token bucket",
        "v1    2027-01-11T23:00:00.000Z  x0.645161 of 600/min, token bucket",
        "v1    19 more",
        "v1    2027-01-31T23:00:00.000Z  x0 of 600/min, token bucket",
    ] {
        assert!(schedule.contains(row), "{row}: {schedule}");
    }
}

#[test]
fn an_exhausted_catalogue_is_answered_from_stored_answers() {
    let upstream = Upstream::start();
    let weir = start("answer-from-stored-answers", &upstream);
    let mut client = Client::connect(weir.address());
    let (path, [one, other, third]) = ("/catalogue/a", ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(from));
    assert_eq!(statuses(&mut client, path, &one, 60), [200; 60]);
    let stored = ask(&mut client, path, &one);
    assert_eq!((stored.status, stored.text()), (200, "hello".to_owned()), "{}", stored.head);
    assert!(stored.header("age").is_some());
    assert!(stored.header("cache-status").is_some_and(|status| status.starts_with("weir; hit")), "{}", stored.head);
    assert_eq!(ask(&mut client, "/catalogue/b", &one).status, 429);
    assert_eq!(statuses(&mut client, path, &other, 2), [200; 2]);
    upstream.stop();
    let statuses = [&other, &third].map(|client_of| ask(&mut client, path, client_of).status);
    assert_eq!(statuses, [200, 502]);
}

#[test]
fn a_customer_gets_other_numbers_at_run_time() {
    let upstream = Upstream::start();
    let weir = start("change-limits-at-run-time", &upstream);
    let mut client = Client::connect(weir.address());
    let mut burst = || {
        let answer = ask(&mut client, "/", "X-Customer: acme\r\n");
        answer.header("x-ratelimit-limit").unwrap().to_owned()
    };
    assert_eq!(burst(), "100");
    let page = std::fs::read_to_string("docs/recipes/change-limits-at-run-time.md").unwrap();
    let body = page.split_once("-d '").unwrap().1.split_once('\'').unwrap().0;
    assert_eq!(post(&weir, "/v1/overrides", body).status, 200);
    assert_eq!(burst(), "500");
}

fn post(weir: &Weir, target: &str, body: &str) -> Answer {
    let head = "Host: localhost\r\nContent-Type: application/json";
    let request = format!("POST {target} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    Client::connect(weir.admin()).send(request).answer()
}

#[test]
fn a_quota_counts_the_day() {
    let upstream = Upstream::start();
    let weir = start("daily-quota", &upstream);
    let answer = ask(&mut Client::connect(weir.address()), "/", "");
    assert_eq!(answer.header("x-ratelimit-limit"), Some("1000"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("999"));
}

#[test]
fn requests_in_flight_are_limited() {
    // Answers nothing before the test ends.
    let upstream = Upstream::serving(|mut peer| while peer.head().is_some() {});
    let weir = start("limit-requests-in-flight", &upstream);
    let send = |ip: &str| {
        let mut client = Client::connect(weir.address());
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", from(ip)));
        client
    };
    let in_flight: Vec<_> = (0..10).map(|_| send("203.0.113.7")).collect();
    upstream.wait_until(|upstream| upstream.received_count() == 10);
    assert_eq!(send("203.0.113.7").answer().status, 429);
    let _other = send("203.0.113.8");
    upstream.wait_until(|upstream| upstream.received_count() == 11);
    drop(in_flight);
}

#[test]
fn a_slow_service_is_not_flooded() {
    let (service, upstream) = SlowService::start();
    let weir = start("protect-a-slow-service", &upstream);
    let bound = "weir_limit_bound{limit=\"capacity\"}";
    let answered = SlowService::under_load(&weir, || {
        weir.wait_for_metric("weir_held_requests{limit=\"capacity\"}", |held| held >= 5.0);
        std::thread::sleep(Duration::from_secs(2)); // some load
    });
    assert!(answered > 100, "{answered}");
    let (most, bound) = (service.most.load(Ordering::Relaxed), weir.metric(bound));
    assert!(most < 24, "the clients at once: {most}");
    assert!((10.0..20.0).contains(&bound), "{bound}");
    let refused = weir.metric("weir_limit_decisions_total{decision=\"refused\",limit=\"capacity\"}");
    assert!(refused == 0.0, "{refused}");
}

#[test]
fn a_limit_is_lowered_while_its_service_is_slow() {
    let (ms, upstream) = adapted_rates::service();
    let weir = start_with_its_rates("lower-a-limit-while-a-service-is-slow", &upstream);
    let part = adapted_rates::part_of("api");
    ms.store(400, Ordering::Relaxed);
    SlowService::under_load(&weir, || {
        adapted_rates::wait_for(&weir, &part, |part| part < 0.8);
        ms.store(1, Ordering::Relaxed);
        let low = weir.metric(&part);
        adapted_rates::wait_for(&weir, &part, |part| part > low + 0.03);
    });
}

#[test]
fn addresses_and_paths_are_blocked() {
    let upstream = Upstream::start();
    let weir = start("block-addresses", &upstream);
    let mut client = Client::connect(weir.address());
    for (path, ip, status) in [
        ("/", "198.51.100.7", 403),
        ("/", "198.51.100.9", 200),
        ("/Internal/keys/", "203.0.113.7", 403),
        ("/internal/health", "203.0.113.7", 200),
        ("/", "203.0.113.7", 200),
    ] {
        assert_eq!(ask(&mut client, path, &from(ip)).status, status, "{path} {ip}");
    }
}

#[test]
fn expensive_endpoints_cost_more() {
    let upstream = Upstream::start();
    let weir = start("weights-per-endpoint", &upstream);
    let mut client = Client::connect(weir.address());
    assert_eq!(ask(&mut client, "/", "").header("x-ratelimit-remaining"), Some("99"));
    assert_eq!(ask(&mut client, "/search", "").header("x-ratelimit-remaining"), Some("89"));
    let export = "POST /export/7 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.send(export).answer().header("x-ratelimit-remaining"), Some("39"));
}

#[test]
fn hosts_are_routed_and_limited() {
    let upstream = Upstream::start();
    let weir = start("several-services", &upstream);
    let mut client = Client::connect(weir.address());
    for (host, status, burst) in
        [("api.example.com", 200, Some("10")), ("www.example.com", 200, Some("50")), ("b.example.com", 404, None)]
    {
        let answer = client.send(format!("GET /v1/users HTTP/1.1\r\nHost: {host}\r\n\r\n")).answer();
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (status, burst), "{host}");
    }
    assert_eq!(upstream.targets(), ["/api/users", "/v1/users"]);
}

#[test]
fn tenants_have_a_limit_each() {
    let upstream = Upstream::start();
    let weir = start("limit-per-tenant", &upstream);
    let mut client = Client::connect(weir.address());
    // The limit by address has the smaller part left after some requests, so each request has its own address.
    for (tenant, ip, burst) in [("a", "203.0.113.1", "50"), ("big", "203.0.113.2", "50")] {
        let head = format!("GET / HTTP/1.1\r\nHost: {tenant}.example.com\r\n{}\r\n", from(ip));
        assert_eq!(client.send(head).answer().header("x-ratelimit-limit"), Some(burst));
    }
    let mut left = |path: &str, ip: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{}\r\n", from(ip));
        client.send(head).answer().header("x-ratelimit-remaining").unwrap().to_owned()
    };
    // Their addresses have 50 requests each, so the tenant's 100 are the smaller part after 60.
    for at in 0..60 {
        left(["/t/a/x", "/t/%61/y"][at % 2], &format!("198.51.100.{at}"));
    }
    assert_eq!([left("/t/a/", "203.0.113.3"), left("/t/b/", "203.0.113.4")], ["39", "49"]);
    let explained = |host: &str| {
        let body = json!({ "method": "GET", "path": "/", "host": host, "ip": "203.0.113.7" }).to_string();
        let answer = post(&weir, "/v1/explain", &body);
        serde_json::from_slice::<Value>(&answer.body).unwrap()["limits"][0]["budget"]["rule"].to_string()
    };
    assert_eq!(explained("a.example.com"), "\"100/h, burst 200, token bucket\"");
    assert_eq!(explained("big.example.com"), "\"500/h, burst 1000, token bucket\"");
}

#[test]
fn a_budget_is_shared_fairly() {
    let upstream = Upstream::start();
    let weir = start("share-a-budget-fairly", &upstream);
    let mut client = Client::connect(weir.address());
    let mut sell = |seller: &str, count| statuses(&mut client, "/", &token(&json!({ "sub": seller })), count);
    let admitted = |statuses: &[u16]| statuses.iter().filter(|status| **status == 200).count();
    let flood = sell("flood", 300);
    assert!(admitted(&flood) >= 90 && flood.contains(&429), "{flood:?}");
    // A tenth of the burst is left.
    assert_eq!(admitted(&sell("modest", 5)), 5);
}

#[test]
fn a_flood_is_refused_before_its_tokens_are_verified() {
    let upstream = Upstream::start();
    let weir = start("stop-floods", &upstream);
    let mut client = Client::connect(weir.address());
    let statuses = statuses(&mut client, "/", &from("203.0.113.7"), 300);
    assert!([401, 429, 403].iter().all(|status| statuses.contains(status)), "{statuses:?}");
    let user = token(&json!({ "sub": "1" }));
    assert_eq!(ask(&mut client, "/", &format!("{user}{}", from("203.0.113.7"))).status, 403);
    assert_eq!(ask(&mut client, "/", &format!("{user}{}", from("203.0.113.8"))).status, 200);
}

#[test]
fn the_limits_of_nginx_are_replaced() {
    let upstream = Upstream::start();
    let weir = start("replace-nginx-limit-req", &upstream);
    let mut client = Client::connect(weir.address());
    let statuses = statuses(&mut client, "/api/a", "", 60);
    assert!(statuses[..21].iter().all(|status| *status == 200) && statuses.contains(&429), "{statuses:?}");
    assert_eq!(ask(&mut client, "/other", "").header("x-ratelimit-limit"), None);
}

#[test]
fn the_stick_tables_of_haproxy_are_replaced() {
    let upstream = Upstream::start();
    let weir = start("replace-haproxy-stick-tables", &upstream);
    let mut client = Client::connect(weir.address());
    let statuses = statuses(&mut client, "/", "", 130);
    assert!(statuses[..100].iter().all(|status| *status == 200) && statuses.contains(&429), "{statuses:?}");
}

#[test]
fn the_local_limits_of_envoy_are_replaced() {
    let upstream = Upstream::start();
    let weir = start("replace-envoy-rate-limits", &upstream);
    let mut client = Client::connect(weir.address());
    assert_eq!(passing(&mut client, "/", "X-Api-Key: a\r\n", 22), 20);
    let answer = ask(&mut client, "/", "X-Api-Key: b\r\n");
    assert!(answer.status == 200 && answer.header("ratelimit").is_some(), "{}", answer.head);
}

#[test]
fn the_middlewares_of_traefik_are_replaced() {
    let upstream = Upstream::start();
    let weir = start("replace-traefik-ratelimit", &upstream);
    let mut client = Client::connect(weir.address());
    assert_eq!(passing(&mut client, "/", &from("203.0.113.7, 10.0.0.3"), 52), 50);
    assert_eq!(ask(&mut client, "/", &from("203.0.113.8, 10.0.0.3")).status, 200);
    // All clients of a host share its requests in flight. The service answers nothing before the test ends.
    let silent = Upstream::serving(|mut peer| while peer.head().is_some() {});
    let weir = start("replace-traefik-ratelimit", &silent);
    let send = |host: &str, last: usize| {
        let mut client = Client::connect(weir.address());
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n{}\r\n", from(&format!("203.0.113.{last}"))));
        client
    };
    let in_flight: Vec<_> = (0..10).map(|last| send("a", last)).collect();
    silent.wait_until(|upstream| upstream.received_count() == 10);
    assert_eq!(send("a", 10).answer().status, 429);
    let _other = send("b", 11);
    silent.wait_until(|upstream| upstream.received_count() == 11);
    drop(in_flight);
}

#[test]
fn the_plugins_of_kong_are_replaced() {
    let upstream = Upstream::start();
    let weir = start("replace-kong-rate-limiting", &upstream);
    let mut client = Client::connect(weir.address());
    // A window of the calendar may end between two requests: then more requests pass.
    let passed = statuses(&mut client, "/", "X-Consumer: a\r\n", 120).iter().filter(|status| **status == 200).count();
    assert!((100..=120).contains(&passed), "{passed}");
    assert_eq!(ask(&mut client, "/", "X-Consumer: b\r\n").status, 200);
    let large = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388609\r\n\r\n";
    assert_eq!(client.send(large).answer().status, 413);
}

#[test]
fn methods_of_a_grpc_service_are_limited() {
    // The head of a stream comes with its first message, here after two of the minutes of the recipe. A minute, the usual
    // bound, takes 2 seconds.
    let service = H2Service::start(async |call| {
        if call.head.uri.path() == "/shop.Feed/Subscribe" {
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
        call.say("hello");
    });
    let mut config = config_of("grpc-service");
    let minute = toml::Value::from("1min");
    for option in ["response_head", "body_idle"] {
        let timeouts = config["timeouts"].as_table_mut().unwrap();
        let minutes = timeouts.get(option).unwrap_or(&minute).as_str().unwrap().strip_suffix("min").unwrap();
        let scaled = format!("{}s", minutes.parse::<u32>().unwrap() * 2);
        timeouts.insert(option.to_owned(), scaled.into());
    }
    config.get_mut("limit").into_iter().for_each(slow_down);
    let weir = start_as(tempfile::tempdir().unwrap(), config, service.address());
    over_h2(weir.address(), async |mut client, _| {
        let call = |method: &str| {
            let head = http::Request::post(format!("http://weir.test/shop.{method}"));
            head.header("content-type", "application/grpc").header("te", "trailers")
        };
        let late = client.ask(call("Feed/Subscribe")).await.unwrap();
        assert_eq!((late.status, late.header("grpc-status")), (200, None));
        let first = client.ask(call("Orders/List")).await.unwrap();
        assert_eq!((first.status, first.header("x-ratelimit-limit")), (200, Some("50")));
        let mut refused = None;
        for _ in 0..200 {
            let answer = client.ask(call("Orders/List")).await.unwrap();
            if answer.header("grpc-status").is_some() {
                refused = Some(answer);
                break;
            }
        }
        let refused = refused.expect("a refusal");
        assert_eq!((refused.status, refused.header("grpc-status")), (200, Some("8")));
        assert!(refused.header("grpc-retry-pushback-ms").is_some());
        // Each method has a bucket of its own.
        assert_eq!(client.ask(call("Orders/Get")).await.unwrap().header("x-ratelimit-remaining"), Some("49"));
    });
}

#[test]
fn clients_are_limited_by_their_certificates() {
    let upstream = Upstream::start();
    let (shop, devices) = (Cert::of_hosts(&["a.test"]), Cert::authority());
    let folder = tempfile::tempdir().unwrap();
    shop.write(folder.path(), "shop");
    devices.write(folder.path(), "devices");
    let weir = start_in(folder, "client-certificates", upstream.address());
    let connect = |own: Option<&Cert>| {
        let config = trusting(&[&shop], rustls::ALL_VERSIONS, &[], own);
        connect_tls(weir.address(), &config, "a.test")
    };
    for device in ["one", "two"] {
        let mut client = connect(Some(&devices.client(device, &[], &[]))).unwrap();
        let answer = client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").answer();
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("9")), "{device}");
    }
    // The refusal may arrive after the client has completed its handshake.
    let unknown = connect(None).and_then(|mut client| {
        client.stream().write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")?;
        Ok(client.try_answer())
    });
    assert!(!matches!(unknown, Ok(Some(_))));
}

#[test]
fn sellers_are_checked() {
    let upstream = Upstream::start();
    let weir = start("check-sellers", &upstream);
    let mut caller = Caller::of(&weir);
    let mut ask = |actor: &str, scope: &str, method: &str, plan: &str, cost| {
        let (actor, scope, method, plan) = (actor.into(), scope.into(), method.into(), plan.into());
        let answer = caller.check(CheckRequest { actor, scope, method, plan, cost: Some(cost) }).unwrap();
        (answer.allowed, answer.limit_name)
    };
    // The limit that refuses the second of two checks.
    let mut sellers = 0..1000;
    let mut refused = |scope: &str, methods: [&str; 2], plan: &str, cost| {
        let mut try_once = || {
            let seller = sellers.next().unwrap().to_string();
            let [first, second] = methods.map(|method| ask(&seller, scope, method, plan, cost));
            assert!(first.0, "{methods:?} {plan}");
            (!second.0).then_some(second.1)
        };
        (0..10).find_map(|_| try_once())
    };
    // Three methods share a basket. A seller with a tariff has a larger one.
    assert_eq!(refused("analytics", ["report.csv", "report.xls"], "", 3).as_deref(), Some("reports"));
    assert_eq!(refused("analytics", ["report.csv", "report.get"], "start", 10).as_deref(), Some("reports"));
    // Each other method has a budget of its own, and all methods of a seller have one together.
    assert_eq!(refused("content", ["cards", "cards"], "", 10).as_deref(), Some("methods"));
    assert_eq!(refused("content", ["cards", "prices"], "", 10), None);
    assert_eq!(refused("content", ["cards", "prices"], "pro", 100).as_deref(), Some("sellers"));
    // The old version.
    assert_eq!(ask("old", "v1", "cards", "", 100), (true, "v1".into()));
    assert_eq!(ask("old", "v1", "prices", "", 1), (false, "v1".into()));
}

#[test]
fn envoy_asks_about_addresses_and_writes() {
    let upstream = Upstream::start();
    let weir = start("envoy-rate-limit-service", &upstream);
    let ask = |words: &[&str]| {
        let descriptors: Vec<_> = words.iter().map(|words| (*words, None)).collect();
        rate_limit::told(&rate_limit::ask(&weir, 0, &descriptors).unwrap()).1
    };
    let (address, write) = ("remote_address=192.0.2.7", "path=/orders method=POST");
    assert_eq!(ask(&[address, write]), [(Code::Ok, 19), (Code::Ok, 1)]);
    assert_eq!(ask(&[address, "path=/orders method=PUT"]), [(Code::Ok, 18), (Code::Ok, 0)]);
    assert_eq!(ask(&[address, write]), [(Code::Ok, 18), (Code::OverLimit, 0)]);
    // Reads have the limit of the address only.
    assert_eq!(ask(&[address, "path=/orders method=GET"]), [(Code::Ok, 17), (Code::Ok, 0)]);
}

/// The blocks of a recipe in the language `sh`.
fn commands_of(recipe: &str) -> Vec<String> {
    let page = std::fs::read_to_string(format!("docs/recipes/{recipe}.md")).unwrap();
    let blocks = page.split("\n```sh\n").skip(1);
    blocks.map(|block| block.split_once("\n```").unwrap().0.to_owned()).collect()
}

#[test]
fn the_access_log_answers_questions() {
    let upstream = Upstream::start();
    let mut config = config_of("read-the-access-log");
    config["log"]["access_file"] = "access.log".into();
    config["log"]["access_sample"] = 1.into();
    config.get_mut("limit").into_iter().for_each(slow_down);
    let weir = start_as(tempfile::tempdir().unwrap(), config, upstream.address());
    let mut client = Client::connect(weir.address());
    let token = |seller: &str| {
        let claims = json!({ "sub": seller, "exp": 4_000_000_000_u64 });
        let token =
            jsonwebtoken::encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes()).unwrap());
        format!("Authorization: Bearer {}\r\n", token.unwrap())
    };
    let refused = |client: &mut Client, seller: &str, times: usize| {
        let statuses = statuses(client, "/a", &token(seller), times);
        statuses.iter().filter(|status| **status == 429).count()
    };
    assert_eq!((refused(&mut client, "777", 25), refused(&mut client, "4711", 22)), (5, 2));
    assert_eq!(ask(&mut client, "/a", "").status, 401);
    let log = weir.folder().join("access.log");
    let text = weir.wait_for("all lines", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        (text.lines().count() == 48).then_some(text)
    });
    let day = text.split('"').nth(3).unwrap()[..10].to_owned();
    let answers = commands_of("read-the-access-log").into_iter().map(|command| {
        let command = command.replace("/var/log/weir/access.log", log.to_str().unwrap());
        let command = command.replace("$(date -u -d yesterday +%F)", &day);
        let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    });
    let answers: Vec<_> = answers.collect();
    assert_eq!(answers[0], ["5 777", "2 4711", "1 (none)"]);
    let counts: Vec<_> =
        answers[1].iter().map(|line| line.split(' ').next().unwrap().parse::<u32>().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u32>(), 7, "{answers:?}");
    assert!(answers[1].iter().all(|line| line.contains(" per-seller ")), "{answers:?}");
    assert!(answers[2].is_empty(), "{answers:?}");
    let mut spent = answers[3].clone();
    spent.sort();
    assert_eq!(spent, ["20 per-seller 4711", "20 per-seller 777"]);
    assert!(answers[4].join("").contains("\"upstream_us\":"), "{answers:?}");
}

#[test]
fn background_work_is_shed_first() {
    let may_end = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
    let ends = std::sync::Arc::clone(&may_end);
    let upstream = Upstream::answering(move |request, stream| {
        crate::ops::until("requests may end", || ends.load(std::sync::atomic::Ordering::SeqCst));
        crate::support::echo(request, stream)
    });
    let mut config = config_of("shed-background-work");
    config["overload"]["in_flight"] = 8.into();
    config["overload"].as_table_mut().unwrap().remove("cpu"); // that of other tests
    let weir = start_as(tempfile::tempdir().unwrap(), config, upstream.address());
    let send = |path: &str, plan: &str| {
        let mut client = Client::connect(weir.address());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Plan: {plan}\r\n\r\n"));
        client
    };
    let mut waiting: Vec<_> = (0..9).map(|_| send("/a", "premium")).collect();
    weir.wait_for_metric("weir_overload_level", |level| level == 1.0);
    assert_eq!(
        [("/a", "free"), ("/a", ""), ("/export/1", "premium")].map(|(path, plan)| send(path, plan).answer().status),
        [503; 3]
    );
    waiting.push(send("/checkout/1", "free"));
    upstream.wait_until(|upstream| upstream.received_count() == 10);
    may_end.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(waiting.iter_mut().all(|client| client.answer().status == 200));
}
