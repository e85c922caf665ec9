//! What clients see of their own limits.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::support::{Answer, Client, Fleet, Redis, Upstream, Weir, over_h2};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const PATH: &str = "/.well-known/ratelimit";
const CLIENT_API: &str = "\n[client_api]\npath = \"/.well-known/ratelimit\"\nrate = \"100/min\"\n";

const LIMITS: &str = r#"
[identity.seller]
jwt = { claim = "sellerId", algorithms = ["HS256"], keys = [{ secret = { file = "secret" } }] }
on_missing = "ip"

[identity.team]
header = "x-team"
on_missing = "anonymous"

[[limit]]
name = "sellers"
match = { path = "/api/{*rest}" }
key = ["seller"]
rate = ["2/h", "10/day"]

[[limit]]
name = "addresses"
stage = "arrival"
key = ["ip"]
rate = "1000/h"

[[limit]]
name = "teams"
key = ["team"]
rate = "1000/h"

[[limit]]
name = "all"
key = []
rate = "1000/h"

[[limit]]
name = "paths"
key = ["seller", "path"]
rate = "1000/h"

[[limit]]
name = "tried"
key = ["seller"]
rate = "1000/h"
mode = "shadow"

[[limit]]
name = "others"
key = ["seller"]
rate = "1000/h"
except = { ip = ["127.0.0.0/8"] }
"#;

fn start(upstream: &Upstream, rest: &str) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), SECRET).unwrap();
    std::fs::write(folder.path().join("weir.toml"), Weir::config(upstream, "", &format!("{LIMITS}{rest}"))).unwrap();
    Weir::start_in(folder)
}

/// The header line of a token of a seller.
fn of(seller: &str) -> String {
    let expires = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 600;
    let claims = json!({ "sellerId": seller, "exp": expires });
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    format!(
        "Authorization: Bearer {}\r\n",
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
    )
}

fn ask(weir: &Weir, method: &str, path: &str, lines: &str) -> Answer {
    Client::connect(weir.address()).send(format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{lines}\r\n")).answer()
}

fn limits(weir: &Weir, lines: &str) -> Value {
    let answer = ask(weir, "GET", PATH, lines);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    serde_json::from_slice(&answer.body).unwrap()
}

#[test]
fn a_seller_sees_its_own_limits_and_charges_nothing() {
    let upstream = Upstream::start();
    let weir = start(&upstream, CLIENT_API);
    let (first, second) = (of("111"), of("222"));
    let statuses: Vec<_> = (0..3).map(|_| ask(&weir, "GET", "/api/x", &first).status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    let refused = ask(&weir, "GET", "/api/x", &first);
    let id = refused.header("x-refusal-id").unwrap();
    let (before, requests) = (limits(&weir, &first), upstream.targets().len());
    for _ in 0..10 {
        let shown = limits(&weir, &first);
        let names: Vec<_> = shown["limits"].as_array().unwrap().iter().map(|limit| &limit["limit"]).collect();
        assert_eq!(names, ["sellers", "addresses"]);
        let remaining =
            |shown: &Value, limit: usize, rate: usize| shown["limits"][limit]["rates"][rate]["remaining"].clone();
        assert_eq!((remaining(&shown, 0, 0), remaining(&shown, 0, 1)), (json!(0), json!(8)));
        assert_eq!(remaining(&shown, 1, 0), remaining(&before, 1, 0));
    }
    assert_eq!(upstream.targets().len(), requests, "the service gets none of them");
    let own = &before["limits"][0];
    assert_eq!(
        (&own["state"], &own["banned"], &own["rates"][0]["capacity"]),
        (&json!("local"), &json!(false), &json!(2))
    );
    assert_eq!(own["rates"][0]["policy"], "\"sellers/1\";q=2;w=3600");
    assert!(own["rates"][0]["retry_after_ms"].as_u64() > Some(1_700_000), "{own}");
    assert_eq!((own["refusals"].as_array().unwrap().len(), &own["refusals"][0]["id"]), (2, &json!(id)));

    // Another seller sees nothing of that.
    let other = limits(&weir, &second);
    assert_eq!(
        (&other["limits"][0]["rates"][0]["remaining"], &other["limits"][0]["refusals"]),
        (&json!(2), &json!([]))
    );
    assert!(!other.to_string().contains("111") && !other.to_string().contains(id));
    assert_eq!(ask(&weir, "GET", "/api/x", &second).status, 200);
    assert_eq!(limits(&weir, &second)["limits"][0]["rates"][0]["remaining"], 1);

    over_h2(weir.address(), async |mut client, _| {
        let token = second.trim_end().split_once(": ").unwrap().1;
        let head = http::Request::get(format!("http://weir.test{PATH}")).header("authorization", token);
        let answer = client.ask(head).await.unwrap();
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
        assert_eq!(serde_json::from_slice::<Value>(&answer.body).unwrap()["limits"][0]["rates"][0]["remaining"], 1);
        assert_eq!(client.get(PATH).await.unwrap().status, 401);
    });
}

/// The state is in Redis, so a replica shows what it heard last.
#[test]
fn a_limit_in_redis_is_shown_as_a_copy() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let shared = LIMITS.replace("file = \"secret\"", &format!("file = \"{}\"", secret.display())).replacen(
        "key = [\"seller\"]",
        "key = [\"seller\"]\nstrategy = \"redis\"",
        1,
    );
    let store = format!(
        "[fleet]\nstrategy = \"local\"\nreplicas = 2\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\n\
         [store.main]\nredis = [\"{}\"]\ntimeout = \"5s\"\n",
        redis.url()
    );
    let fleet = Fleet::start(2, &upstream, &format!("{store}{shared}{CLIENT_API}"));
    fleet.wait_for_stores(true);
    let (token, own) = (of("111"), |weir: &Weir, token: &str| limits(weir, token)["limits"][0].clone());
    let [first, second] = &fleet.weirs[..] else { panic!("two replicas") };
    let shown = own(first, &token);
    assert_eq!((&shown["limit"], &shown["state"]), (&json!("sellers"), &json!("copy")));
    assert_eq!((&shown["copy_age_ms"], &shown["rates"][0]["remaining"]), (&Value::Null, &json!(2)));
    assert_eq!(ask(first, "GET", "/api/x", &token).status, 200);
    let shown = own(first, &token);
    assert!(shown["copy_age_ms"].is_u64(), "{shown}");
    assert_eq!((&shown["rates"][0]["remaining"], &shown["rates"][1]["remaining"]), (&json!(1), &json!(9)));
    // The other replica takes what is left, of which this one hears with its next request.
    assert_eq!(ask(second, "GET", "/api/x", &token).status, 200);
    assert_eq!(own(first, &token)["rates"][0]["remaining"], 1);
    for weir in [first, second] {
        let refused = ask(weir, "GET", "/api/x", &token);
        let shown = own(weir, &token);
        assert_eq!((refused.status, &shown["rates"][0]["remaining"]), (429, &json!(0)), "{shown}");
        assert!(shown["rates"][0]["retry_after_ms"].as_u64() > Some(1_700_000), "{shown}");
        assert_eq!(shown["refusals"][0]["id"], json!(refused.header("x-refusal-id")));
    }
    // Another seller sees nothing of that, and nobody else anything.
    assert_eq!(own(first, &of("222"))["rates"][0]["remaining"], 2);
    assert_eq!(ask(first, "GET", PATH, "").status, 401);
}

/// Authentication holds, whatever the mode, the match or the exemptions of limits.
#[test]
fn without_a_verified_identity_nobody_sees_anything() {
    let upstream = Upstream::start();
    for changed in [
        LIMITS.to_owned(),
        LIMITS.replace("rate = ", "mode = \"off\"\nrate = ").replace("mode = \"shadow\"", ""),
        LIMITS.replace("key = [\"ip\"]", "key = [\"ip\"]\nexcept = { ip = [\"127.0.0.1\"] }"),
        format!("{LIMITS}\n[access.allow]\nip = [\"127.0.0.1\"]\npath = [\"{PATH}\"]\n"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), SECRET).unwrap();
        std::fs::write(folder.path().join("weir.toml"), Weir::config(&upstream, "", &(changed + CLIENT_API))).unwrap();
        let weir = Weir::start_in(folder);
        let mut wrong = of("111");
        wrong.insert(wrong.len() - 4, 'x');
        for lines in ["", "X-Team: a\r\n", "Authorization: Bearer a.b.c\r\n", "Authorization: Basic YTpi\r\n", &wrong] {
            let answer = ask(&weir, "GET", PATH, lines);
            assert_eq!(answer.status, 401, "{lines}: {}", answer.text());
            assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"), "{lines}");
            assert!(!answer.text().contains("remaining"), "{}", answer.text());
        }
        assert_eq!(ask(&weir, "GET", PATH, &(of("111") + &of("222"))).status, 401, "two tokens");
        assert_eq!(ask(&weir, "GET", PATH, &of("111")).status, 200);
        for method in ["PUT", "DELETE", "OPTIONS"] {
            let answer = ask(&weir, method, PATH, &of("111"));
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method}");
        }
    }
    assert_eq!(upstream.targets().len(), 0);
}

#[test]
fn access_lists_and_bans_of_addresses_apply() {
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("{CLIENT_API}\n[access.deny]\nidentity = {{ seller = [\"666\"] }}\n"));
    assert_eq!(ask(&weir, "GET", PATH, &of("666")).status, 403);
    let ban = json!({"limit": "sellers", "key": {"seller": "111"}, "for": "1h", "reason": "row"});
    assert_eq!(weir.ask_admin("POST", "/v1/bans", &ban).status, 200);
    let own = &limits(&weir, &of("111"))["limits"][0];
    assert!(own["banned"] == true && own["rates"][0]["retry_after_ms"].as_u64() > Some(3_500_000), "{own}");
    let ban = json!({"address": "127.0.0.1", "for": "1h", "reason": "row"});
    assert_eq!(weir.ask_admin("POST", "/v1/bans", &ban).status, 200);
    for method in ["GET", "POST"] {
        assert_eq!(ask(&weir, method, PATH, &of("111")).status, 403, "{method}");
    }
}

#[test]
fn browsers_get_a_page_that_loads_nothing() {
    let upstream = Upstream::start();
    let weir = start(&upstream, CLIENT_API);
    let answer = ask(&weir, "GET", PATH, &(of("111") + "Accept: text/html,*/*;q=0.8\r\n"));
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(answer.header(name), Some(value));
    }
    assert!(answer.header("content-security-policy").unwrap().starts_with("default-src 'none';"));
    let page = answer.text();
    assert!(page.contains("<h2>sellers</h2>") && page.contains("2 of 2") && !page.contains("<script"), "{page}");
    let mut client = Client::connect(weir.address());
    let head = client.send(format!("HEAD {PATH} HTTP/1.1\r\nHost: h\r\n{}\r\n", of("111"))).head().unwrap();
    assert_eq!((head.status, head.header("content-type")), (200, Some("application/json")));
}

/// The rate of an address is bounded, whatever its identity.
#[test]
fn asking_has_a_limit_of_its_own() {
    let upstream = Upstream::start();
    let weir = start(&upstream, &CLIENT_API.replace("100/min", "3/h"));
    assert_eq!(ask(&weir, "GET", PATH, "Authorization: Bearer a.b.c\r\n").status, 401);
    assert_eq!(ask(&weir, "GET", PATH, "").status, 401);
    assert_eq!(ask(&weir, "GET", PATH, &of("111")).status, 200);
    for lines in [of("111"), of("222"), String::new(), "Authorization: Bearer a.b.c\r\n".to_owned()] {
        let answer = ask(&weir, "GET", PATH, &lines);
        let retry_s = answer.header("retry-after").unwrap().parse::<u64>().unwrap();
        assert!(answer.status == 429 && (1000..=1200).contains(&retry_s), "{retry_s}: {}", answer.text());
    }
    assert_eq!(ask(&weir, "GET", "/api/x", &of("111")).status, 200, "other requests go on");
}

#[test]
fn a_reload_turns_the_path_on_and_off() {
    let upstream = Upstream::start();
    let weir = start(&upstream, "");
    let config = std::fs::read_to_string(weir.config_file()).unwrap();
    assert_eq!((ask(&weir, "GET", PATH, "").status, upstream.targets().len()), (200, 1), "it is the service's");
    std::fs::write(weir.config_file(), format!("{config}{CLIENT_API}")).unwrap();
    weir.wait_for_line("reloaded");
    assert_eq!((ask(&weir, "GET", PATH, "").status, upstream.targets().len()), (401, 1));
    std::fs::write(weir.config_file(), &config).unwrap();
    weir.wait_for_lines("reloaded", 2);
    assert_eq!((ask(&weir, "GET", PATH, "").status, upstream.targets().len()), (200, 2));
}
