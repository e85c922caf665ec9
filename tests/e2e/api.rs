//! What operators and services ask of a running Weir.

use serde_json::{Value, json};

use crate::support::{Answer, Client, Upstream, Weir};

const LIMITS: &str = r#"
[identity.seller]
header = "x-seller"
on_missing = "anonymous"

[[limit]]
name = "cpu"
key = ["seller"]
rate = "10/h"

[[limit]]
name = "wait"
match = { path = "/wait" }
key = ["ip", "header:x-api-key"]
rate = "1/h"
on_limit = "hold"
"#;

/// One table has what the harness writes and what is asked for here.
fn start(upstream: &Upstream) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    let config = Weir::config(upstream, "", LIMITS).replacen("[admin]\n", "[admin]\nhosts = [\"weir.internal\"]\n", 1);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in(folder)
}

fn send(weir: &Weir, method: &str, target: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    let head = format!("{method} {target} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n");
    Client::connect(weir.admin()).send(head).send(body).answer()
}

const JSON: &str = "Host: localhost\r\nContent-Type: application/json\r\n";

fn post(weir: &Weir, target: &str, body: &Value) -> Answer {
    send(weir, "POST", target, JSON, &body.to_string())
}

fn read(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// The status of a request of this seller.
fn ask(weir: &Weir, seller: &str) -> Answer {
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Seller: {seller}\r\n\r\n");
    Client::connect(weir.address()).send(head).answer()
}

#[test]
fn a_service_charges_its_client() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let charge = |seller: &str, units: u64| json!({ "limit": "cpu", "key": { "seller": seller }, "units": units });
    assert_eq!(ask(&weir, "123").header("x-ratelimit-remaining"), Some("9"));
    for (target, units, remaining) in
        [("/v1/spend", 4, 5), ("/spend_ratelimiter_budget", 3, 2), ("/v1/spend", 250, 0), ("/v1/spend", 1, 0)]
    {
        let answer = post(&weir, target, &charge("123", units));
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        let balance = read(&answer);
        assert_eq!(balance["limit"], "cpu");
        assert_eq!(balance["remaining"], remaining, "{balance}");
        assert_eq!(balance["debt"], 0);
        assert!(balance["reset_after_ms"].as_u64().unwrap() > 1_000_000, "{balance}");
    }
    assert_eq!((ask(&weir, "123").status, ask(&weir, "124").status), (429, 200));
    // Of many, each has its own result; a number is a seller as good as its text.
    let batch = json!([
        charge("125", 10),
        { "limit": "cpu", "key": { "seller": 126 }, "units": 9 },
        { "limit": "gpu", "units": 1 },
        { "limit": "cpu", "key": {}, "units": 1 },
    ]);
    let results = read(&post(&weir, "/v1/spend", &batch));
    let told: Vec<_> =
        results.as_array().unwrap().iter().map(|one| (one["remaining"].as_u64(), one["status"].as_u64())).collect();
    assert_eq!(told, [(Some(0), None), (Some(1), None), (None, Some(404)), (None, Some(400))]);
    assert_eq!([ask(&weir, "125"), ask(&weir, "126"), ask(&weir, "126")].map(|answer| answer.status), [429, 200, 429]);
}

#[test]
fn what_cannot_be_charged_is_a_problem() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let of = |units: &str| format!("{{\"limit\":\"cpu\",\"key\":{{\"seller\":\"1\"}},\"units\":{units}}}");
    let good = of("1");
    let many = |count: usize| format!("[{}]", vec!["0"; count].join(","));
    let long = format!("{good}{}", " ".repeat(600_000));
    for (method, headers, body, status) in [
        ("POST", JSON, &*good, 200),
        ("POST", JSON, &of("0"), 200),
        ("POST", JSON, &of("-1"), 200),
        ("POST", JSON, &of("-9007199254740992"), 400),
        ("POST", JSON, &of("1.5"), 400),
        ("POST", JSON, &of("\"1\""), 400),
        ("POST", JSON, &of("9007199254740992"), 400),
        ("POST", JSON, &of("99999999999999999999999"), 400),
        ("POST", JSON, "{\"limit\":\"gpu\",\"units\":1}", 404),
        ("POST", JSON, "{\"limit\":\"cpu\",\"units\":1}", 400),
        ("POST", JSON, "{\"limit\":\"cpu\",\"key\":{\"seller\":\"1\",\"ip\":\"::1\"},\"units\":1}", 400),
        ("POST", JSON, "{\"limit\":\"cpu\",\"key\":{\"seller\":[]},\"units\":1}", 400),
        ("POST", JSON, "{\"limit\":\"cpu\",\"key\":{\"seller\":\"1\"},\"units\":1,\"extra\":1}", 400),
        ("POST", JSON, "{\"limit\":\"cpu\"", 400),
        ("POST", JSON, "", 400),
        ("POST", JSON, &long, 400),
        ("POST", JSON, &many(1000), 200),
        ("POST", JSON, &many(1001), 400),
        ("GET", JSON, "", 405),
        ("PUT", JSON, &good, 405),
        ("POST", "Host: localhost\r\n", &good, 415),
        ("POST", "Host: localhost\r\nOrigin: http://localhost\r\nContent-Type: application/json\r\n", &good, 403),
        ("POST", "Host: evil.example\r\nContent-Type: application/json\r\n", &good, 403),
        ("POST", "Host: Weir.internal:99\r\nContent-Type: application/json\r\n", &good, 200),
    ] {
        let answer = send(&weir, method, "/v1/spend", headers, body);
        let shown = &body[..body.len().min(80)];
        assert_eq!(answer.status, status, "{method} {headers} {shown}: {}", answer.text());
        if status != 200 {
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{shown}");
            assert_eq!(read(&answer)["status"], status, "{shown}");
        }
    }
    assert_eq!(send(&weir, "GET", "/v1/spend", JSON, "").header("allow"), Some("POST"));
    // Probes and scrapers name it as they like.
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(send(&weir, "GET", path, "Host: any.example\r\n", "").status, 200);
    }
}

#[test]
fn a_thousand_charges_fit_one_body() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    // As long as the parts of real keys are: a UUID, an address, a token of 256 bytes.
    let one = |number: usize| {
        let (seller, key) = (format!("{number:08}-7b1c-4e0f-9f5a-2d1e6c3b8a90"), "k".repeat(256));
        if number.is_multiple_of(2) {
            json!({ "limit": "cpu", "key": { "seller": seller }, "units": 3 })
        } else {
            json!({ "limit": "wait", "key": { "ip": "2001:db8:85a3::8a2e:370:7334", "header:x-api-key": key }, "units": 1 })
        }
    };
    let body = Value::from((0..1000).map(one).collect::<Vec<_>>());
    assert!(body.to_string().len() > 200_000);
    let results = read(&post(&weir, "/v1/spend", &body));
    let remaining: Vec<_> = results.as_array().unwrap().iter().map(|one| one["remaining"].as_u64()).collect();
    assert_eq!((remaining.len(), remaining[0], remaining[2], remaining[1]), (1000, Some(7), Some(7), Some(0)));
}

/// Masks the fingerprints and the ids of keys, and times, which differ with each start.
fn masked(text: &str) -> String {
    let mask = |text: &str, mark: &str, length: usize| {
        let mut parts = text.split(mark);
        let first = parts.next().unwrap_or("").to_owned();
        parts.fold(first, |masked, part| masked + mark + part.get(length..).unwrap_or(""))
    };
    let text = ["id", "since", "at"]
        .iter()
        .fold(text.to_owned(), |text, name| text.replace(&format!("\"{name}\": "), &format!("\"{name}\":")));
    let text = mask(&mask(&text, "..#", 8), "\"id\":\"", 32);
    mask(&mask(&text, "\"since\":\"", 24), "\"at\":\"", 24)
}

/// The path and the query in a `curl` line.
fn target(line: &str) -> &str {
    line.split_once("127.0.0.1:9901").unwrap().1.split([' ', '\n', '\'']).next().unwrap()
}

/// Runs the `curl` line of a page.
fn curl(weir: &Weir, line: &str) -> Answer {
    let target = target(line);
    match line.split_once(" -d '") {
        None if line.starts_with("-X DELETE") => send(weir, "DELETE", target, "Host: localhost\r\n", ""),
        None => send(weir, "GET", target, "Host: localhost\r\n", ""),
        Some((_, rest)) => {
            let kind = if line.contains("application/toml") { JSON.replace("json", "toml") } else { JSON.to_owned() };
            send(weir, "POST", target, &kind, rest.split_once('\'').unwrap().0)
        }
    }
}

/// Opens a tap that ends with one request, and sends a request that it shows.
fn tap_one(weir: &Weir, target: &str) {
    let mut client = Client::connect(weir.admin());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    assert_eq!(client.head().unwrap().status, 200, "{target}");
    ask(weir, "12345");
    assert!(String::from_utf8(client.rest()).unwrap().contains("event: decision\ndata: {"), "{target}");
}

/// The names of all fields of the JSON at the begin of a text, in their order.
fn fields(text: &str) -> Vec<String> {
    let json = text.split("```").next().unwrap();
    let names = json.split('"').skip(1).step_by(2).zip(json.split('"').skip(2).step_by(2));
    names.filter(|(_, next)| next.starts_with(':')).map(|(name, _)| name.to_owned()).collect()
}

/// Asserts that the description of the API has the status and the media type of an answer.
fn assert_described(document: &Value, method: &str, target: &str, answer: &Answer) {
    let path = target.split('?').next().unwrap();
    let described = &document["paths"][path][method]["responses"][answer.status.to_string()]["content"];
    let kind = answer.header("content-type").unwrap().split(';').next().unwrap();
    assert!(described[kind].is_object(), "{method} {target}: {} {kind}: {described}", answer.status);
}

/// Each `curl` line of the page about the admin API gets the answer that follows it.
#[test]
fn the_examples_of_the_admin_page_come_true() {
    let page = include_str!("../../docs/reference/admin-api.md");
    let upstream = Upstream::start();
    let config = page.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let config = config.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:9901", "127.0.0.1:0");
    let config = config.replace("127.0.0.1:9000", &upstream.address().to_string());
    let weir = Weir::start_as(&format!("{config}\n[log]\nformat = \"json\"\n"));
    let document = read(&send(&weir, "GET", "/v1/openapi.json", "Host: localhost\r\n", ""));
    let (mut checked, mut refusal) = (std::collections::BTreeSet::new(), String::new());
    for example in page.split("```sh\ncurl ").skip(1) {
        let (line, rest) = example.split_once("```").unwrap();
        if target(line).starts_with("/v1/tap") {
            tap_one(&weir, target(line));
            checked.insert(("/v1/tap".to_owned(), "get"));
            continue;
        }
        if target(line).starts_with("/v1/refusals") {
            let answer = curl(&weir, &line.replace("id=ID", &format!("id={refusal}")));
            assert_described(&document, "get", target(line), &answer);
            assert_eq!(fields(&answer.text()), fields(rest.split_once("```json\n").unwrap().1), "{line}");
            checked.insert(("/v1/refusals".to_owned(), "get"));
            continue;
        }
        let answer = curl(&weir, line);
        assert_eq!(answer.status, 200, "{line}: {}", answer.text());
        if line.contains("/v1/spend") {
            let refused = ask(&weir, "12345");
            assert_eq!(refused.status, 429);
            refused.header("x-refusal-id").unwrap().clone_into(&mut refusal);
        }
        let shown = rest.trim_start();
        if let Some(json) = shown.strip_prefix("```json\n") {
            let shown: Value = serde_json::from_str(&masked(json.split_once("```").unwrap().0)).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&masked(&answer.text())).unwrap(), shown, "{line}");
        } else if let Some(text) = shown.strip_prefix("```text\n") {
            assert_eq!(answer.text(), text.split_once("```").unwrap().0, "{line}");
        }
        let method = if line.starts_with("-X DELETE") {
            "delete"
        } else if line.contains(" -d ") {
            "post"
        } else {
            "get"
        };
        assert_described(&document, method, target(line), &answer);
        checked.insert((target(line).split('?').next().unwrap().to_owned(), method));
    }
    // Every request of the API has an example, but for the old name of another, and those that need a fleet, a file, an
    // earlier configuration or a second endpoint: files of their own test them.
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in
            operations.as_object().unwrap().keys().filter(|method| ["get", "post", "delete"].contains(&&***method))
        {
            let has_example = checked.iter().any(|(known, of)| known == path && of == method);
            let is_exempt = ["/spend_ratelimiter_budget", "/v1/fleet", "/v1/audit", "/v1/config/rollback"];
            let needs_more = path.starts_with("/v1/upstreams/") || path.starts_with("/v1/apikeys");
            let is_exempt = is_exempt.contains(&path.as_str()) || needs_more;
            assert!(has_example || is_exempt, "{method} {path}");
        }
    }
}

#[test]
fn what_is_not_described_is_refused() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let document = read(&send(&weir, "GET", "/v1/openapi.json", "Host: localhost\r\n", ""));
    let ask = |method: &str, target: &str, body: &str, status: u16| {
        let kind = if target.contains("config/check") || target.contains("diff") { "toml" } else { "json" };
        let answer = send(&weir, &method.to_uppercase(), target, &JSON.replace("json", kind), body);
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
        assert_described(&document, method, target, &answer);
        answer
    };
    let mut ids = std::collections::HashSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            assert!(ids.insert(operation["operationId"].to_string()), "{method} {path}");
            let has_problems = !["/healthz", "/readyz", "/metrics"].contains(&path.as_str());
            let answer = ask(method, &format!("{path}?x=1"), "", if has_problems { 400 } else { 200 });
            assert_eq!(answer.text().contains("`x`"), has_problems, "{method} {path}: {}", answer.text());
            if method == "delete" {
                assert!(ask(method, path, "{}", 400).text().contains("in place of a body"), "{path}");
            }
        }
    }
    let key_of_7 = r#"{"limit":"cpu","key":7,"units":0,"plan":"a","to":"1/s","for":"1h"}"#;
    let (unknown, field) = (r#"[{"limit":"gpu","key":"a","plan":"a"}]"#, r#"{"x":1}"#);
    for (method, target, body, status) in [
        ("post", "/v1/config/rollback?to=25&reason=x", "", 400),
        ("post", "/v1/config/rollback", field, 400),
        ("post", "/v1/reload?reason=x", "", 400),
        ("post", "/v1/reload", field, 400),
        ("post", "/v1/bans?dry_run=true", r#"{"address":"192.0.2.1","for":"1h"}"#, 400),
        ("post", "/v1/spend", key_of_7, 400),
        ("post", "/spend_ratelimiter_budget", r#"{"limit":"gpu","key":"a","units":0}"#, 404),
        ("put", "/v1/plans", unknown, 404),
        ("delete", "/v1/plans?limit=gpu&key=a", "", 404),
        ("delete", "/v1/overrides?limit=cpu&key=a", "", 404),
        ("delete", "/v1/overrides?left_out=true", "", 200),
        ("post", "/v1/upstreams/undrain", r#"{"upstream":"a","endpoint":"b"}"#, 404),
        ("get", "/v1/keys?limit=gpu", "", 404),
        ("get", "/v1/fleet", "", 404),
        ("get", "/v1/audit", "", 404),
    ] {
        ask(method, target, body, status);
    }
    assert_eq!(
        (read(&ask("get", "/v1/reloads", "", 200)), read(&ask("get", "/v1/bans", "", 200))["bans"].clone()),
        (json!([]), json!([]))
    );
    for (headers, status) in [("Host: localhost\r\nContent-Type: text/plain\r\n", 415), ("Host: evil.example\r\n", 403)]
    {
        let answer = send(&weir, "POST", "/v1/spend", headers, "{}");
        assert_eq!(answer.status, status);
        assert_described(&document, "post", "/v1/spend", &answer);
    }
}

/// The schemas of values that have several types.
#[test]
fn the_document_has_every_type_of_a_value() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let document = read(&send(&weir, "GET", "/v1/openapi.json", "Host: localhost\r\n", ""));
    let resolved = |schema: &Value| match schema["$ref"].as_str() {
        Some(place) => document.pointer(place.trim_start_matches('#')).unwrap().clone(),
        None => schema.clone(),
    };
    let types = |schema: &Value| {
        let one = resolved(schema);
        one["oneOf"].as_array().unwrap().iter().map(|one| resolved(one)["type"].clone()).collect::<Vec<_>>()
    };
    let schemas = &document["components"]["schemas"];
    for name in ["NewCharge", "NewPlan", "OverrideChange"] {
        assert_eq!(types(&schemas[name]["properties"]["key"]), ["string", "object"], "{name}");
    }
    for (name, field) in [("Setting", "value"), ("SettingDiff", "before"), ("SettingDiff", "after")] {
        assert!(schemas[name]["properties"][field]["description"].is_string(), "{name}");
        assert_eq!(schemas[name]["properties"][field]["type"], json!(null), "{name}");
    }
    for (path, method) in
        [("/v1/spend", "post"), ("/v1/overrides", "post"), ("/v1/plans", "put"), ("/v1/overrides", "delete")]
    {
        let operation = &document["paths"][path][method];
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        let answer = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        for schema in [body, answer].into_iter().filter(|schema| !schema.is_null()) {
            assert_eq!(types(schema).last().unwrap(), "array", "{method} {path}");
        }
    }
}

#[test]
fn whose_requests_are_refused_most() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    for (seller, times) in [("alice-of-acme", 14), ("bob-of-acme", 12), ("carol-of-acme", 3)] {
        (0..times).for_each(|_| drop(ask(&weir, seller)));
    }
    let top = |query: &str| read(&send(&weir, "GET", &format!("/v1/top{query}"), "Host: localhost\r\n", ""));
    let all = top("");
    assert_eq!(all["limits"][1], json!({ "limit": "wait", "total": 0, "missed": 0, "keys": [] }));
    let cpu = &all["limits"][0];
    assert_eq!((&cpu["total"], &cpu["missed"]), (&json!(6), &json!(0)), "{all}");
    let rows: Vec<_> =
        cpu["keys"].as_array().unwrap().iter().map(|row| (row["count"].as_u64(), row["error"].as_u64())).collect();
    assert_eq!(rows, [(Some(4), Some(0)), (Some(2), Some(0))]);
    // What a client sent in a header cannot be read.
    assert!(cpu["keys"][0]["key"].as_str().unwrap().starts_with("alic..#"), "{all}");
    assert!(!all.to_string().contains("alice"), "{all}");
    assert_eq!(top("?limit=cpu&n=1")["limits"][0]["keys"].as_array().unwrap().len(), 1);
    for (query, status) in
        [("?limit=gpu", 404), ("?n=0", 400), ("?n=513", 400), ("?n=+5", 400), ("?m=1", 400), ("?limit=cpu&n=512", 200)]
    {
        let answer = send(&weir, "GET", &format!("/v1/top{query}"), "Host: localhost\r\n", "");
        assert_eq!(answer.status, status, "{query}");
    }
    assert_eq!(send(&weir, "POST", "/v1/top", JSON, "{}").status, 405);
    assert_eq!(send(&weir, "GET", "/v1/top", "Host: evil.example\r\n", "").status, 403);
}
