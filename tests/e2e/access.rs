//! Requests that are exempt or denied, and paths that need a plan.

use std::time::{SystemTime, UNIX_EPOCH};

use http::Request;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::ops::refill;
use crate::support::{Answer, Client, NEVER, Upstream, Weir, over_h2};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// One request an hour for each address, at both stages.
const LIMITS: &str = "[[limit]]\nname = \"outer\"\nstage = \"arrival\"\nkey = [\"ip\"]\nrate = \"1/h\"\n\
    [[limit]]\nname = \"inner\"\nkey = [\"ip\"]\nrate = \"1/h\"\n";
const SELLER: &str = "[identity.seller]\non_missing = \"reject\"\n[identity.seller.jwt]\nclaim = \"sellerId\"\n\
    algorithms = [\"HS256\"]\nkeys = [{ secret = { env = \"JWT_SECRET\" } }]\n";
const TRUSTED: &str = "trusted_proxies = [\"127.0.0.1\"]";
const DENIED: &str = "weir_problems_total{kind=\"access_refused\"}";
const REFUSED: &str = "weir_refused_requests_total{by=\"access\"}";

fn start(upstream: &Upstream, rest: &str) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), Weir::config(upstream, TRUSTED, rest)).unwrap();
    Weir::start_in_env(folder, &[("JWT_SECRET", SECRET)])
}

/// A token that expires in a minute.
fn token(mut claims: Value) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    claims["exp"] = json!(now + 60);
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(SECRET.as_bytes()).unwrap())
        .unwrap()
}

fn bearer(claims: Value) -> String {
    format!("Authorization: Bearer {}\r\n", token(claims))
}

fn from(ip: &str) -> String {
    format!("X-Forwarded-For: {ip}\r\n")
}

fn get(weir: &Weir, path: &str, headers: &str) -> Answer {
    Client::connect(weir.address()).send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).answer()
}

fn detail(answer: &Answer) -> String {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&problem["status"], &problem["title"]), (&json!(403), &json!("Forbidden")));
    problem["detail"].as_str().unwrap().to_owned()
}

/// `OPTIONS *` is for the server as a whole, so what is for all paths is for it.
#[test]
fn the_server_as_a_whole_has_all_paths() {
    let upstream = Upstream::start();
    let options = |weir: &Weir, fields: &str| {
        let head = format!("OPTIONS * HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        Client::connect(weir.address()).send(head).answer().status
    };
    let limit = "[[limit]]\nname = \"all\"\nmatch = { path = \"/{*rest}\" }\nkey = [\"ip\"]\nrate = \"1/day\"\n";
    let require =
        "[identity.k]\nheader = \"x-key\"\n[access]\nrequire = [{ path = \"/{*rest}\", identity = [\"k\"] }]\n";
    let weir = start(&upstream, &format!("{limit}{require}"));
    assert_eq!(["", "X-Key: a\r\n", "X-Key: a\r\n"].map(|fields| options(&weir, fields)), [401, 200, 429]);
    assert_eq!(upstream.received().last().unwrap().head.split(' ').nth(1), Some("*"));
    let weir = start(&upstream, &format!("{limit}[access]\ndeny = {{ path = [\"/{{*rest}}\"] }}\n"));
    assert_eq!(options(&weir, ""), 403);
}

#[test]
fn networks_and_paths_deny_or_exempt() {
    let access = "[access]\n\
        deny = { ip = [\"198.51.100.0/24\", \"2001:db8::/32\"], path = [\"/internal/{*rest}\"] }\n\
        allow = { ip = [\"198.51.100.7\", \"203.0.113.7\"], path = [\"/internal/health\"] }\n";
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("{LIMITS}{access}"));
    // Two requests of each: exempt and denied requests are never limited.
    for (ip, path, statuses, why) in [
        ("198.51.100.1", "/", [403, 403], "this address is refused"),
        ("198.51.100.1", "/internal/health", [403, 403], "this address is refused"),
        ("2001:db8::1", "/", [403, 403], "this address is refused"),
        ("::ffff:198.51.100.1", "/", [403, 403], "this address is refused"),
        ("198.51.100.7", "/", [200, 200], ""),
        ("203.0.113.7", "/", [200, 200], ""),
        ("203.0.113.7", "/internal/x", [403, 403], "this path is refused"),
        ("203.0.113.7", "/a/..//internal/%78", [403, 403], "this path is refused"),
        ("192.0.2.1", "/internal/health", [200, 200], ""),
        ("192.0.2.1", "/internal/x", [403, 403], "this path is refused"),
        ("192.0.2.1", "/", [200, 429], ""),
    ] {
        let answers = [(); 2].map(|()| get(&weir, path, &from(ip)));
        assert_eq!([answers[0].status, answers[1].status], statuses, "{ip} {path}");
        if statuses[0] == 403 {
            assert_eq!(detail(&answers[0]), why, "{ip} {path}");
        }
        let is_limited = statuses[1] == 429;
        assert_eq!(answers[0].header("x-ratelimit-limit").is_some(), is_limited, "{ip} {path}");
    }
    assert_eq!(upstream.received_count(), 7);
    assert_eq!((weir.metric(DENIED), weir.metric(REFUSED)), (14.0, 14.0));
    assert_eq!(weir.metric("weir_requests_total{verdict=\"refused\"}"), 15.0);
    assert_eq!(weir.metric("weir_refused_requests_total{by=\"limit\"}"), 1.0);
    for limit in ["inner", "outer"] {
        let admitted = format!("weir_limit_decisions_total{{decision=\"admitted\",limit=\"{limit}\"}}");
        assert_eq!(weir.metric(&admitted), 1.0, "{limit}");
    }
}

#[test]
fn only_trusted_proxies_set_the_address() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &format!("{NEVER}[access]\ndeny = {{ ip = \"127.0.0.0/8\" }}"));
    assert_eq!(get(&weir, "/", &from("192.0.2.1")).status, 403);
}

#[test]
fn identities_deny_or_exempt() {
    let access = "[access]\ndeny = { identity = { seller = [\"13\"] }, path = \"/closed\" }\n\
        allow = { identity = { seller = [\"7\"] }, ip = \"203.0.113.7\" }\n";
    let inner = "[[limit]]\nname = \"inner\"\nkey = [\"ip\"]\nrate = \"1/h\"\n";
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("{SELLER}{inner}{access}"));
    let seller = |id: i64| bearer(json!({ "sellerId": id }));
    let rows = [
        ("192.0.2.1", "/", seller(13), [403, 403]),
        // The denial precedes the permission of the address.
        ("203.0.113.7", "/", seller(13), [403, 403]),
        ("192.0.2.2", "/", seller(7), [200, 200]),
        ("192.0.2.2", "/closed", seller(7), [403, 403]),
        ("192.0.2.3", "/", seller(8), [200, 429]),
        ("203.0.113.7", "/", seller(8), [200, 200]),
        // A request without a token is on no list, whatever `on_missing` is.
        ("192.0.2.4", "/", String::new(), [200, 429]),
        ("192.0.2.5", "/", "Authorization: Basic dTpw\r\n".to_owned(), [200, 429]),
        // An invalid token is refused wherever a token is read.
        ("192.0.2.6", "/", "Authorization: Bearer x\r\n".to_owned(), [401, 401]),
    ];
    for (ip, path, headers, statuses) in &rows {
        let found = [(); 2].map(|()| get(&weir, path, &format!("{}{headers}", from(ip))).status);
        assert_eq!(found, *statuses, "{ip} {path} {headers}");
    }
    assert_eq!(detail(&get(&weir, "/", &seller(13))), "this seller is refused");
    assert_eq!((weir.metric(DENIED), weir.metric("weir_problems_total{kind=\"unidentified\"}")), (7.0, 2.0));
}

#[test]
fn arrival_limits_charge_allowed_identities() {
    let access = "[identity.key]\nheader = \"x-key\"\n[access]\nallow = { identity = { key = \"k\" } }\n";
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("{LIMITS}{access}"));
    let statuses = [(); 2].map(|()| get(&weir, "/", "X-Key: k\r\n").status);
    assert_eq!(statuses, [200, 429]);
    let admitted =
        |limit: &str| weir.metric(&format!("weir_limit_decisions_total{{decision=\"admitted\",limit=\"{limit}\"}}"));
    assert_eq!([admitted("outer"), admitted("inner")], [1.0, 0.0]);
}

#[test]
fn a_request_held_at_arrival_can_be_denied_later() {
    let access = "[identity.key]\nheader = \"x-key\"\n[access]\ndeny = { identity = { key = \"k\" } }\n";
    let outer = "[[limit]]\nname = \"outer\"\nstage = \"arrival\"\nkey = []\nrate = \"1/h\"\non_limit = \"hold\"\n";
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("{outer}{access}"));
    assert_eq!(get(&weir, "/", "").status, 200);
    let mut waiting = Client::connect(weir.address());
    waiting.send("GET / HTTP/1.1\r\nHost: a\r\nX-Key: k\r\n\r\n");
    weir.wait_for_metric("weir_held_requests{limit=\"outer\"}", |held| held == 1.0);
    refill(&weir, "outer");
    assert_eq!(waiting.answer().status, 403);
    let held = weir.metric("weir_limit_decisions_total{decision=\"held\",limit=\"outer\"}");
    let abandoned = weir.metric("weir_requests_total{verdict=\"abandoned\"}");
    assert_eq!((held, weir.metric(REFUSED), abandoned), (1.0, 1.0, 0.0));
}

#[test]
fn paths_that_need_a_plan() {
    let access = "[access]\nallow = { ip = \"203.0.113.7\" }\n\
        require = [{ path = \"/pro/{*rest}\", plan = [\"premium\", \"internal\"] }, { path = \"/pro/x\", plan = \"internal\" }]\n\
        [plans]\nfrom = \"seller.plan\"\n";
    let with = |plan: Value| bearer(json!({ "sellerId": "1", "plan": plan }));
    for (on_missing, without) in [("reject", 401), ("anonymous", 403), ("ip", 403)] {
        let upstream = Upstream::start();
        let identity = SELLER.replace("reject", on_missing);
        let weir = start(&upstream, &format!("{identity}{NEVER}{access}"));
        for (path, headers, status) in [
            ("/", String::new(), 200),
            ("/", "Authorization: Bearer x\r\n".to_owned(), 200),
            ("/pro/a", String::new(), without),
            ("/pro/a", from("203.0.113.7"), without),
            ("/pro/a", "Authorization: Bearer x\r\n".to_owned(), 401),
            ("/pro/a", with(json!("premium")), 200),
            // From the cache.
            ("/pro/a", with(json!("premium")), 200),
            ("/pro/a", with(json!("internal")), 200),
            ("/pro/a", with(json!("free")), 403),
            ("/pro/a", with(json!(["premium"])), 403),
            ("/pro/a", with(json!(null)), 403),
            ("/pro/a", bearer(json!({ "sellerId": "1" })), 403),
            ("/pro/x", with(json!("premium")), 403),
            ("/pro/x", with(json!("internal")), 200),
        ] {
            assert_eq!(get(&weir, path, &headers).status, status, "{on_missing} {path} {headers}");
        }
        let answer = get(&weir, "/pro/a", &with(json!("free")));
        assert_eq!(detail(&answer), "this path needs the plan premium or internal");
        // A browser sends no credentials with a preflight.
        let preflight =
            "OPTIONS /pro/a HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nAccess-Control-Request-Method: PUT\r\n\r\n";
        assert_eq!(Client::connect(weir.address()).send(preflight).answer().status, 200);
    }
}

#[test]
fn a_plan_in_a_header_of_a_proxy_is_trusted() {
    let access = "[access]\nrequire = [{ path = \"/pro\", plan = \"premium\" }]\n[plans]\nfrom = \"header:x-plan\"\n";
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("{NEVER}{access}"));
    for (headers, status) in [
        ("", 403),
        ("X-Plan: premium\r\n", 200),
        ("X-Plan: Premium\r\n", 403),
        ("X-Plan: premium\r\nX-Plan: premium\r\n", 403),
        ("X-Plan: free\r\n", 403),
    ] {
        assert_eq!(get(&weir, "/pro", headers).status, status, "{headers}");
    }
}

/// A plan that an override assigns opens a path, whatever the limit of the override is for; a header
/// without an identity opens it only if a trusted proxy sent it.
#[test]
fn a_required_plan_is_assigned_or_proven() {
    let config = "[identity.partner]\nheader = \"x-partner\"\non_missing = \"ip\"\n\
        [identity.seller]\non_missing = \"ip\"\n[identity.seller.jwt]\nclaim = \"sellerId\"\n\
        algorithms = [\"HS256\"]\nkeys = [{ secret = { env = \"JWT_SECRET\" } }]\n\
        [plans]\nfrom = \"header:x-plan\"\n[access]\nrequire = [{ path = \"/pro\", plan = \"gold\" }]\n\
        [[limit]]\nname = \"sellers\"\nkey = [\"seller\"]\nrate = \"9/h\"\nmode = \"off\"\nmatch = { path = \"/other\" }\n\
        plans = { gold = \"unlimited\", iron = \"1/h\" }\n\
        overrides = { 7 = { plan = \"gold\" }, 8 = { plan = \"iron\" }, 9 = \"99/h\" }\n\
        [[limit]]\nname = \"partners\"\nkey = [\"partner\"]\nrate = \"999/h\"\nplans = { gold = \"999/h\" }\n\
        overrides = { acme = { plan = \"gold\" } }\n\
        [[limit]]\nname = \"queries\"\nkey = [\"query:k\"]\nrate = \"999/h\"\nplans = { gold = \"999/h\" }\n\
        overrides = { acme = { plan = \"gold\" } }\n";
    let upstream = Upstream::start();
    let weir = start(&upstream, config);
    let seller = |id: u32| bearer(json!({ "sellerId": id }));
    for (target, headers, direct, proxied) in [
        ("/pro", seller(7), 200, 200),
        ("/pro", seller(8) + "X-Plan: gold\r\n", 403, 403),
        ("/pro", seller(9), 403, 403),
        ("/pro", seller(9) + "X-Plan: gold\r\n", 403, 200),
        ("/pro", "X-Plan: gold\r\n".to_owned(), 403, 200),
        ("/pro", "X-Partner: acme\r\n".to_owned(), 200, 200),
        ("/pro", "X-Partner: other\r\nX-Plan: gold\r\n".to_owned(), 403, 200),
        ("/pro", "X-Partner: other\r\n".to_owned(), 403, 403),
        ("/pro?k=acme", String::new(), 403, 403),
        ("/pro", "Authorization: Bearer wrong\r\n".to_owned(), 403, 403),
        ("/free", String::new(), 200, 200),
    ] {
        // Only the first address is a trusted proxy.
        for (ip, status) in [([127, 0, 0, 2], direct), ([127, 0, 0, 1], proxied)] {
            let mut client = Client::connect_from(ip.into(), weir.address());
            let answer = client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).answer();
            assert_eq!(answer.status, status, "{target} {headers} {ip:?}");
        }
    }
    // An operator assigns a plan at run time.
    let assign = json!({ "limit": "sellers", "key": { "seller": "9" }, "plan": "gold" });
    assert_eq!(weir.ask_admin("POST", "/v1/plans", &assign).status, 200);
    weir.wait_until("the plan opens the path", || get(&weir, "/pro", &seller(9)).status == 200);
}

#[test]
fn denials_in_grpc() {
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("{NEVER}[access]\ndeny = {{ path = \"/p.S/{{method}}\" }}"));
    let head = "POST /p.S/M HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    let answer = Client::connect(weir.address()).send(head).answer();
    assert_eq!((answer.status, answer.header("grpc-status"), answer.body.len()), (200, Some("7"), 0));
    assert_eq!(answer.header("grpc-message"), Some("this path is refused"));
    assert_eq!(weir.metric(DENIED), 1.0);
}

#[test]
fn denials_over_http2() {
    let access = "[access]\ndeny = { path = \"/internal/{*rest}\", identity = { seller = \"13\" } }\n\
        allow = { path = \"/free\" }\nrequire = [{ path = \"/pro\", plan = \"premium\" }]\n[plans]\nfrom = \"seller.plan\"\n";
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("{SELLER}{LIMITS}{access}"));
    over_h2(weir.address(), async |mut client, _socket| {
        for (path, claims, ip, statuses) in [
            ("/internal/x", json!({ "sellerId": 1 }), "192.0.2.1", [403, 403]),
            ("/free", json!({ "sellerId": 1 }), "192.0.2.1", [200, 200]),
            ("/free", json!({ "sellerId": 13 }), "192.0.2.1", [403, 403]),
            ("/pro", json!({ "sellerId": 1, "plan": "premium" }), "192.0.2.2", [200, 429]),
            ("/pro", json!({ "sellerId": 1, "plan": "free" }), "192.0.2.3", [403, 429]),
        ] {
            let authorization = format!("Bearer {}", token(claims));
            for status in statuses {
                let head = Request::get(format!("http://weir.test{path}"));
                let head = head.header("authorization", &authorization).header("x-forwarded-for", ip);
                let answer = client.ask(head).await.unwrap();
                assert_eq!(answer.status, status, "{path} {ip}");
                let is_problem = answer.header("content-type") == Some("application/problem+json");
                assert_eq!(is_problem, status != 200, "{path} {ip}");
            }
        }
        let grpc = Request::post("http://weir.test/internal/x").header("content-type", "application/grpc");
        let answer = client.ask(grpc).await.unwrap();
        assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("7")));
    });
}

#[test]
fn a_denial_keeps_the_connection_and_a_reload_changes_the_lists() {
    let upstream = Upstream::start();
    let access = |path: &str| format!("{NEVER}[access]\ndeny = {{ path = \"{path}\" }}");
    let weir = start(&upstream, &access("/a"));
    let mut client = Client::connect(weir.address());
    assert_eq!([client.get("/a").status, client.get("/b").status, client.get("/a").status], [403, 200, 403]);
    std::fs::write(weir.config_file(), Weir::config(&upstream, TRUSTED, &access("/b"))).unwrap();
    weir.wait_until("the new list", || client.get("/b").status == 403);
    assert_eq!(client.get("/a").status, 200);
}

#[test]
fn files_of_networks_are_read_again_when_they_change() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blocked.txt");
    std::fs::write(&file, "198.51.100.0/24 # spam\n").unwrap();
    let access = format!("{NEVER}[access]\ndeny = {{ ip = {{ file = \"blocked.txt\" }} }}");
    std::fs::write(folder.path().join("weir.toml"), Weir::config(&upstream, TRUSTED, &access)).unwrap();
    let weir = Weir::start_in(folder);
    let status = |ip: &str| get(&weir, "/", &from(ip)).status;
    assert_eq!([status("198.51.100.9"), status("203.0.113.9")], [403, 200]);
    std::fs::write(&file, "203.0.113.0/24\n").unwrap();
    weir.wait_until("the new list", || status("203.0.113.9") == 403);
    assert_eq!(status("198.51.100.9"), 200);
    // A wrong row changes nothing.
    std::fs::write(&file, "198.51.100.0/24\nspam\n").unwrap();
    assert!(weir.wait_for_line("neither an address nor a network").contains("line 2"));
    assert_eq!([status("198.51.100.9"), status("203.0.113.9")], [200, 403]);
}

#[test]
fn ten_thousand_networks() {
    let networks: Vec<_> =
        (0..10_000_u32).map(|n| format!("\"{}/24\"", std::net::Ipv4Addr::from_bits(0x0B00_0000 | n << 9))).collect();
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("{NEVER}[access]\ndeny = {{ ip = [{}] }}", networks.join(", ")));
    for (ip, status) in [("11.0.0.255", 403), ("11.0.1.0", 200), ("11.78.30.1", 403), ("11.78.32.1", 200)] {
        assert_eq!(get(&weir, "/", &from(ip)).status, status, "{ip}");
    }
}
