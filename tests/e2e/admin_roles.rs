//! Named tokens and their roles, the audit log, and the document of the API.

use serde_json::{Value, json};

use crate::support::{Answer, Client, NEVER, Upstream, Weir};

const READER: &str = "0123456789abcdef-reader";
const WRITER: &str = "0123456789abcdef-writer";

const ADMIN: &str = "[admin]\n\
    tokens = [{ name = \"grafana\", role = \"read\", token = { file = \"read.token\" } },\n\
    { name = \"night-shift\", role = \"write\", token = { file = \"write.token\" } }]\n\
    overrides = \"overrides.toml\"\naudit = \"audit.jsonl\"\n";

const LIMIT: &str = "[identity.seller]\nheader = \"x-seller\"\n\
    [[limit]]\nname = \"sellers\"\nkey = [\"seller\"]\nrate = \"10/h\"\n\
    [[limit]]\nname = \"paths\"\nkey = [\"path\"]\nrate = \"10/h\"\n";

fn start(upstream: &Upstream) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("read.token"), READER).unwrap();
    std::fs::write(folder.path().join("write.token"), WRITER).unwrap();
    let config = Weir::config(upstream, "", LIMIT).replacen("[admin]\n", ADMIN, 1);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in(folder)
}

fn request(token: &str, method: &str, target: &str, body: &str) -> String {
    format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn send(weir: &Weir, token: &str, method: &str, target: &str, body: &str) -> Answer {
    Client::connect(weir.admin()).send(request(token, method, target, body)).answer()
}

const QUESTION: &str = r#"{"method":"GET","path":"/","host":"a","ip":"192.0.2.1"}"#;
const OVERRIDE: &str = r#"{"limit":"sellers","key":{"seller":"123456"},"to":"20/h","reason":"asked by support"}"#;
const CHARGE: &str = r#"{"limit":"sellers","key":{"seller":"123456"},"units":1}"#;

#[test]
fn a_role_says_what_a_token_may_do() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    for (method, target, body, by_reader, by_writer) in [
        ("GET", "/metrics", "", 200, 200),
        ("GET", "/v1/top", "", 200, 200),
        ("GET", "/v1/refusals?id=0123456789abcdef", "", 404, 404),
        ("POST", "/v1/refusals?id=0123456789abcdef", "", 405, 405),
        ("GET", "/v1/overrides", "", 200, 200),
        ("GET", "/v1/openapi.json", "", 200, 200),
        ("POST", "/v1/explain", QUESTION, 200, 200),
        ("POST", "/v1/overrides", OVERRIDE, 403, 200),
        ("GET", "/v1/plans", "", 200, 200),
        ("GET", "/v1/config", "", 200, 200),
        ("GET", "/v1/reloads", "", 200, 200),
        ("POST", "/v1/reload", "{}", 403, 200),
        ("POST", "/v1/config/check", "{}", 415, 415),
        ("POST", "/v1/config/diff", "{}", 415, 415),
        ("GET", "/v1/config/toml", "", 200, 200),
        ("GET", "/v1/config/versions", "", 200, 200),
        ("POST", "/v1/config/rollback", "{}", 403, 200),
        ("DELETE", "/v1/overrides?left_out=true", "", 403, 200),
        ("POST", "/v1/plans", "{}", 403, 400),
        ("PUT", "/v1/plans", "{}", 403, 400),
        ("DELETE", "/v1/plans?limit=sellers&key=1", "", 403, 404),
        ("GET", "/v1/upstreams", "", 200, 200),
        ("POST", "/v1/upstreams/drain", "{}", 403, 400),
        ("POST", "/v1/upstreams/undrain", "{}", 403, 400),
        ("POST", "/v1/upstreams/weight", "{}", 403, 400),
        ("POST", "/v1/spend", CHARGE, 403, 200),
        ("POST", "/spend_ratelimiter_budget", CHARGE, 403, 200),
        ("DELETE", "/v1/top", "", 405, 405),
        ("GET", "/v1/nothing", "", 404, 404),
    ] {
        for (token, status) in [(READER, by_reader), (WRITER, by_writer), ("0123456789abcdef-other", 401)] {
            let answer = send(&weir, token, method, target, body);
            assert_eq!(answer.status, status, "{method} {target} {token}: {}", answer.text());
        }
    }
    // The tokens are read anew when their files change.
    std::fs::write(weir.folder().join("read.token"), "0123456789abcdef-newer").unwrap();
    weir.wait_until("the new token", || send(&weir, "0123456789abcdef-newer", "GET", "/v1/top", "").status == 200);
    assert_eq!(send(&weir, READER, "GET", "/v1/top", "").status, 401);
}

#[test]
fn each_change_is_one_line_of_the_audit_log() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    assert_eq!(send(&weir, WRITER, "POST", "/v1/overrides", OVERRIDE).status, 200);
    let both = r#"[{"limit":"sellers","key":{"seller":"123456"},"to":null},{"limit":"sellers","key":{"seller":7},"to":"5/h"}]"#;
    assert_eq!(send(&weir, WRITER, "POST", "/v1/overrides", both).status, 200);
    // What is refused, and what only reads, is no change.
    assert_eq!(send(&weir, READER, "POST", "/v1/overrides", OVERRIDE).status, 403);
    assert_eq!(send(&weir, WRITER, "POST", "/v1/overrides", &OVERRIDE.replace("20/h", "twenty")).status, 400);
    assert_eq!(send(&weir, WRITER, "GET", "/v1/overrides", "").status, 200);

    let text = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap();
    assert!(!text.contains("123456"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{text}");
    for (line, (before, after, reason)) in lines.iter().zip([
        (json!(null), json!("20/h"), json!("asked by support")),
        (json!("20/h"), json!(null), json!(null)),
        (json!(null), json!("5/h"), json!(null)),
    ]) {
        assert_eq!((&line["before"], &line["after"], &line["reason"]), (&before, &after, &reason));
        assert_eq!((&line["token"], &line["address"]), (&json!("night-shift"), &json!("127.0.0.1")));
        assert_eq!((&line["action"], &line["limit"]), (&json!("override"), &json!("sellers")));
        assert!(line["at"].as_str().unwrap().ends_with('Z') && line["target"]["seller"].is_string());
    }
    let logged = weir.wait_for_lines("changed by an operator", 3);
    assert!(logged[0].contains("night-shift") && logged[0].contains("asked by support"), "{}", logged[0]);
}

#[test]
fn a_change_has_its_line_although_its_client_leaves() {
    const TIMES: usize = 5;
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let ban = r#"{"address":"203.0.113.7","for":"1h","reason":"attack"}"#;
    let changes = [("/v1/bans", ban, "ban"), ("/v1/reload", "{}", "reload"), ("/v1/overrides", OVERRIDE, "override")];
    for (target, body, _) in [changes; TIMES].concat() {
        // The request is whole, and its connection ends at once.
        Client::connect(weir.admin()).send(request(WRITER, "POST", target, body));
    }
    let audit = weir.folder().join("audit.jsonl");
    for (_, _, action) in changes {
        weir.wait_until(&format!("each {action}"), || {
            let text = std::fs::read_to_string(&audit).unwrap_or_default();
            text.matches(&format!("\"action\":\"{action}\"")).count() == TIMES
        });
    }
}

/// A change with longer texts would push all others out of the list.
#[test]
fn reasons_and_keys_have_a_bound() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let reason = "x".repeat(1024);
    let bodies = [
        ("/v1/overrides", json!({ "limit": "sellers", "key": { "seller": "a" }, "to": "20/h" })),
        ("/v1/plans", json!({ "limit": "sellers", "key": { "seller": "a" }, "plan": "none" })),
        ("/v1/spend", json!({ "limit": "sellers", "key": { "seller": "a" }, "units": 1 })),
        ("/v1/bans", json!({ "address": "192.0.2.1", "for": "1h" })),
        ("/v1/reload", json!({})),
        ("/v1/config/rollback", json!({})),
        ("/v1/apikeys", json!({ "name": "a" })),
        ("/v1/apikeys/rotate", json!({ "name": "a" })),
        ("/v1/upstreams/drain", json!({ "upstream": "upstream", "endpoint": "a" })),
        ("/v1/upstreams/undrain", json!({ "upstream": "upstream", "endpoint": "a" })),
        ("/v1/upstreams/weight", json!({ "upstream": "upstream", "endpoint": "a", "weight": 1 })),
    ];
    let with = |body: &Value, reason: &str| {
        let mut body = body.clone();
        body["reason"] = json!(reason);
        body.to_string()
    };
    let is_refused =
        |answer: Answer| answer.status == 400 && answer.text().contains("reason: expected at most 1024 bytes");
    for (target, body) in &bodies {
        assert!(is_refused(send(&weir, WRITER, "POST", target, &with(body, &format!("{reason}x")))), "{target}");
        assert!(!is_refused(send(&weir, WRITER, "POST", target, &with(body, &reason))), "{target}");
    }
    for target in
        ["keys?limit=sellers&key=a&", "keys/all?limit=sellers&", "bans/all?limit=sellers&", "overrides?left_out=true&"]
    {
        let target = format!("/v1/{target}reason={reason}");
        assert!(is_refused(send(&weir, WRITER, "DELETE", &format!("{target}x"), "")), "{target}");
        assert_eq!(send(&weir, WRITER, "DELETE", &target, "").status, 200, "{target}");
    }
    let long = json!({ "limit": "paths", "key": { "path": format!("/{}", "é".repeat(100_000)) }, "units": 1 });
    assert_eq!(send(&weir, WRITER, "POST", "/v1/spend", &long.to_string()).status, 200);
    let listed = send(&weir, WRITER, "GET", "/v1/audit", "").text();
    assert!(listed.matches(&reason).count() > 4, "{listed}");
    let document = send(&weir, WRITER, "GET", "/v1/openapi.json", "").text();
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["components"]["schemas"]["Reason"]["maxLength"], 1024, "{document}");
}

/// Every path and method of the document is answered, and every other method of its paths is refused.
#[test]
fn the_document_describes_the_routes() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, NEVER);
    let answer = send(&weir, "", "GET", "/v1/openapi.json", "");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let document: Value = serde_json::from_slice(&answer.body).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."), "{document}");
    let paths = document["paths"].as_object().unwrap();
    for (path, operations) in paths {
        for method in ["get", "post", "put", "delete"] {
            // The stream of a tap has no end by itself.
            let target = if path == "/v1/tap" && method == "get" { "/v1/tap?count=0" } else { path };
            let answer = send(&weir, "", &method.to_uppercase(), target, "{}");
            let is_described = operations.get(method).is_some();
            assert_eq!(answer.status != 405, is_described, "{method} {path}: {}", answer.status);
            assert!(!answer.text().starts_with("the paths are"), "{method} {path}");
            if let Some(operation) = operations.get(method) {
                let has_text = |field: &str| operation[field].as_str().is_some_and(|text| !text.is_empty());
                assert!(has_text("summary") && has_text("operationId"), "{method} {path}");
                let answers = operation["responses"].as_object().unwrap();
                assert!(answers.values().all(|answer| answer["description"].is_string()), "{method} {path}");
            }
        }
    }
    let unknown = send(&weir, "", "GET", "/v1/nothing", "");
    assert_eq!(unknown.status, 404);
    let detail = serde_json::from_slice::<Value>(&unknown.body).unwrap()["detail"].as_str().unwrap().to_owned();
    let listed: Vec<_> = detail.trim_start_matches("the paths are ").split(", ").map(str::to_owned).collect();
    assert_eq!(listed, paths.keys().cloned().collect::<Vec<_>>());
    // Every reference leads to a schema.
    let text = document.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
}
