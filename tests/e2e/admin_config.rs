//! The configuration over the admin API: shown, checked, reloaded.

use serde_json::{Value, json};

use crate::ops::replace;
use crate::support::{Client, Upstream, Weir};

const REST: &str = r#"
[identity.seller]
jwt = { claim = "sub", algorithms = ["HS256"], keys = [{ secret = { file = "secret" } }] }

[[limit]]
name = "sellers"
key = ["seller"]
rate = "10/h"
overrides = { "hunter2" = "20/h" }

[[limit]]
name = "clients"
key = ["ip"]
rate = "100/h"
"#;

fn start(upstream: &Upstream) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    let config = Weir::config(upstream, "", REST);
    let config = config.replacen("[admin]\n", "[admin]\noverrides = \"overrides.toml\"\n", 1);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in(folder)
}

fn send(weir: &Weir, method: &str, target: &str, kind: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    );
    let answer = Client::connect(weir.admin()).send(head).send(body).answer();
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

fn get(weir: &Weir, target: &str) -> Value {
    let (status, answer) = send(weir, "GET", target, "application/json", "");
    assert_eq!(status, 200, "{answer}");
    answer
}

fn post(weir: &Weir, target: &str, body: &Value) -> (u16, Value) {
    send(weir, "POST", target, "application/json", &body.to_string())
}

fn check(weir: &Weir, text: &str) -> Value {
    let (status, answer) = send(weir, "POST", "/v1/config/check?name=new.toml", "application/toml", text);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn setting(config: &Value, path: &str) -> Value {
    let all = config["settings"].as_array().unwrap();
    all.iter().find(|one| one["path"] == path).unwrap_or_else(|| panic!("{path}: {config}")).clone()
}

#[test]
fn each_value_has_its_source() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let edit = json!({ "limit": "clients", "key": "192.0.2.1", "to": "7/h" });
    assert_eq!(post(&weir, "/v1/overrides", &edit).0, 200);
    let config = get(&weir, "/v1/config");
    assert_eq!(config["name"], weir.config_file().display().to_string());
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    let line = |start: &str| text.lines().position(|line| line.starts_with(start)).unwrap() + 1;
    let workers = setting(&config, "server.workers");
    assert_eq!(
        (&workers["value"], &workers["source"], &workers["line"]),
        (&json!(2), &json!("file"), &json!(line("workers")))
    );
    let rate = setting(&config, "limit.clients.rate");
    assert_eq!((&rate["value"], &rate["source"]), (&json!("100/h"), &json!("file")));
    let mode = setting(&config, "limit.clients.mode");
    assert_eq!((&mode["value"], &mode["source"], &mode["line"]), (&json!("enforce"), &json!("default"), &Value::Null));
    // Defaults that depend on other options have the values in force.
    let bans = weir.folder().join("weir.bans.jsonl").display().to_string();
    for (path, value) in [
        ("limit.clients.strategy", json!("local")),
        ("limit.clients.burst", json!(100)),
        // There is no `[snapshot]`.
        ("limit.clients.persist", json!(false)),
        ("admin.bans", json!(bans)),
    ] {
        let found = setting(&config, path);
        assert_eq!((&found["value"], &found["source"]), (&value, &json!("default")), "{path}");
    }
    // As many as the file descriptors allow.
    assert!(setting(&config, "server.max_connections")["value"].as_u64() >= Some(1), "{config}");
    let set = setting(&config, "limit.clients.overrides.192.0.2.1");
    assert_eq!((&set["value"], &set["source"]), (&json!("7/h"), &json!("override")));
    let own = setting(&config, "limit.sellers.overrides.***");
    assert_eq!((&own["value"], &own["source"]), (&json!("20/h"), &json!("file")));
    assert!(!config.to_string().contains("hunter2"), "{config}");
    let few = get(&weir, "/v1/config?path=limit.clients&defaults=false");
    let paths: Vec<_> = few["settings"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(
        paths,
        ["limit.clients.name", "limit.clients.key", "limit.clients.rate", "limit.clients.overrides.192.0.2.1"]
    );
    assert_eq!(get(&weir, "/v1/config?path=limit.sellers.plans&defaults=false")["settings"], json!([]));
    let (status, unknown) = send(&weir, "GET", "/v1/config?path=limit.client", "application/json", "");
    let detail = "no option in force has a name that begins with `limit.client`";
    assert_eq!((status, unknown["detail"].as_str()), (404, Some(detail)));
}

#[test]
fn a_variable_is_a_source_and_stays_secret() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let config = Weir::config(&upstream, "", "");
    let config = config.replacen("[admin]\n", "[admin]\ntoken = { env = \"OPERATOR\" }\n", 1);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    let weir = Weir::start_in_env(folder, &[("OPERATOR", "hunter2-hunter2-hunter2")]);
    let head = "GET /v1/config HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hunter2-hunter2-hunter2\r\n\r\n";
    let answer = Client::connect(weir.admin()).send(head).answer();
    let config: Value = serde_json::from_slice(&answer.body).unwrap();
    let token = setting(&config, "admin.token");
    assert_eq!(
        (&token["value"], &token["source"], &token["variable"]),
        (&json!("***"), &json!("environment"), &json!("OPERATOR"))
    );
    // Without a limit in the file, the default limit is in force.
    assert_eq!(setting(&config, "limit.per-path.rate")["source"], "default");
    assert!(!answer.text().contains("hunter2"));
}

#[test]
fn a_text_is_checked_and_nothing_changes() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    let good = check(&weir, &text);
    assert_eq!((&good["valid"], &good["limits"]), (&json!(true), &json!(2)), "{good}");
    let bad = check(&weir, &text.replace("rate = \"10/h\"", "rate = \"10/fortnight\""));
    let problem = &bad["problems"][0];
    assert_eq!((&bad["valid"], &bad["limits"], &problem["severity"]), (&json!(false), &Value::Null, &json!("error")));
    let line = text.lines().position(|line| line == "rate = \"10/h\"").unwrap() + 1;
    assert_eq!((&problem["file"], &problem["line"], &problem["column"]), (&json!("new.toml"), &json!(line), &json!(8)));
    assert!(problem["title"].as_str().unwrap().contains("unknown unit"), "{bad}");
    assert_eq!(problem["code"], "invalid_value");
    let edit = json!({ "limit": "clients", "key": "192.0.2.1", "to": "7/h" });
    assert_eq!(post(&weir, "/v1/overrides", &edit).0, 200);
    let gone = check(&weir, &text.replace("name = \"clients\"", "name = \"others\""));
    assert!(
        gone["valid"] == true && gone["problems"][0]["title"].as_str().unwrap().contains("no limit `clients`"),
        "{gone}"
    );
    assert_eq!(check(&weir, "[[")["valid"], false);
    let stored = |body: &str| send(&weir, "POST", "/v1/config/check?stored=true", "application/toml", body);
    let (status, checked) = stored("");
    assert_eq!((status, &checked["valid"], &checked["text"]), (200, &json!(true), &good["text"]), "{checked}");
    assert_eq!(stored("[server]").0, 400);
    let lines = [format!("--> new.toml:{line}:8"), format!("{line} | rate = \"10/fortnight\"")];
    assert!(lines.iter().all(|line| bad["text"].as_str().unwrap().contains(line)), "{bad}");
    assert_eq!(get(&weir, "/v1/reloads"), json!([]));
    assert_eq!(get(&weir, "/v1/config?path=limit.sellers.rate")["settings"][0]["value"], "10/h");
    for (kind, body, status) in [("application/json", "{}", 415), ("text/plain", "a", 415)] {
        assert_eq!(send(&weir, "POST", "/v1/config/check", kind, body).0, status, "{kind}");
    }
    let long = "#".repeat((4 << 20) + 1);
    let (status, problem) = send(&weir, "POST", "/v1/config/check", "application/toml", &long);
    assert!(status == 400 && problem["detail"].as_str().unwrap().contains("4194304"), "{problem}");
}

/// An operator may check a text that names any file.
#[test]
fn answers_have_no_text_of_files_that_a_text_names() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    std::fs::write(weir.folder().join("private"), "[sellers]\nhunter3 = \"hunter3\"\n").unwrap();
    std::fs::write(weir.folder().join("rows"), "hunter3\n").unwrap();
    let identity = |source: &str| format!("{text}\n[identity.other]\n{source}\n");
    for (text, is_valid) in [
        (format!("{text}\n[access]\ndeny.ip = {{ file = \"rows\" }}\n"), false),
        (format!("{text}except.ip = {{ file = \"rows\" }}\n"), false),
        (format!("{text}\n[server.tls]\ncertificates = [{{ cert = \"rows\", key = \"rows\" }}]\n"), false),
        (identity("api_keys.file = \"rows\""), false),
        (identity("api_keys.file = \"private\""), false),
        (identity("jwt = { claim = \"a\", algorithms = [\"RS256\"], keys = [{ jwks = \"rows\" }] }"), false),
        (text.replace("\"overrides.toml\"", "\"private\""), true),
    ] {
        let checked = check(&weir, &text);
        assert_eq!(checked["valid"], is_valid, "{text}: {checked}");
        assert!(!checked["problems"].as_array().unwrap().is_empty(), "{text}: {checked}");
        let (_, difference) = send(&weir, "POST", "/v1/config/diff", "application/toml", &text);
        for answer in [checked, difference] {
            assert!(!answer.to_string().contains("hunter3"), "{text}: {answer}");
        }
    }
}

#[test]
fn reloads_have_outcomes_and_a_bounded_history() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    let reload = || {
        let (status, made) = post(&weir, "/v1/reload", &json!({ "reason": "test" }));
        assert_eq!(status, 200, "{made}");
        made
    };
    let made = reload();
    assert_eq!(
        (&made["outcome"], &made["cause"], &made["restart"]),
        (&json!("applied"), &json!("request"), &json!([]))
    );
    replace(&weir.config_file(), &text.replacen("listen = \"127.0.0.1:0\"", "listen = \"127.0.0.2:0\"", 1));
    assert_eq!(reload()["restart"], json!(["server"]));
    let waiting = get(&weir, "/v1/config?path=server.listen");
    assert_eq!(
        (&waiting["settings"][0]["value"], &waiting["restart"]),
        (&json!("127.0.0.2:0"), &json!(["server"])),
        "{waiting}"
    );
    replace(&weir.config_file(), &text.replace("rate = \"10/h\"", "rate = 10"));
    let made = reload();
    assert_eq!((&made["outcome"], &made["problems"][0]["code"]), (&json!("invalid"), &json!("wrong_type")), "{made}");
    assert!(made["text"].as_str().unwrap().contains("| rate = 10\n"), "{made}");
    assert_eq!(get(&weir, "/v1/config?path=limit.sellers.rate")["settings"][0]["value"], "10/h");
    replace(&weir.config_file(), &text);
    for _ in 0..20 {
        assert_eq!(reload()["outcome"], "applied");
    }
    assert_eq!(get(&weir, "/v1/config?path=server.listen")["restart"], json!([]));
    let history = get(&weir, "/v1/reloads");
    assert_eq!(history.as_array().unwrap().len(), 20);
    assert!(history.as_array().unwrap().iter().all(|one| one["at"].as_str().unwrap().ends_with('Z')), "{history}");
    weir.signal("HUP");
    weir.wait_until("the reload by a signal", || get(&weir, "/v1/reloads")[0]["cause"] == "signal");
    let lines = weir.wait_for_lines("\"action\":\"reload\"", 23);
    assert!(lines[0].contains("test"), "{lines:?}");
    assert_eq!(post(&weir, "/v1/reload", &json!([])).0, 400);
    assert_eq!(post(&weir, "/v1/reload", &json!({ "why": "a" })).0, 400);
}
