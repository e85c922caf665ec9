//! API keys that Weir gives out: refusals, plans, changes of the file, and a rotation under load.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::ops::{count_lines, refill, replace};
use crate::support::{Answer, Client, SetOnDrop, Upstream, Weir, poll};

const CONFIG: &str = r#"
[identity.partner]
api_keys = { file = "keys.toml" }

[plans]
from = "partner.plan"

[[limit]]
name = "per-partner"
key = ["partner"]
rate = "1000000/h"
plans = { premium = "2000000/h" }
"#;

fn command(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("apikeys").args(arguments).current_dir(folder).output().unwrap()
}

/// The standard output of a command that succeeds.
fn printed(folder: &Path, arguments: &[&str]) -> String {
    let output = command(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A new key: the one line on standard output.
fn key(folder: &Path, arguments: &[&str]) -> String {
    let text = printed(folder, arguments);
    let key = text.strip_suffix('\n').unwrap();
    assert!(key.len() == 44 && key.starts_with("weir_") && !key.contains(char::is_whitespace), "{text}");
    key.to_owned()
}

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    folder
}

/// A Weir with an API key of `ACME`, which has the plan `premium`.
fn start(upstream: &Upstream, rest: &str) -> (Weir, String) {
    let config = Weir::config(upstream, "", &format!("{CONFIG}{rest}"));
    let folder = folder(&config.replacen("[admin]\n", "[admin]\naudit = \"audit.jsonl\"\n", 1));
    let key = key(folder.path(), &["new", "--name", "ACME", "--plan", "premium"]);
    (Weir::start_in(folder), key)
}

fn ask(weir: &Weir, key: &str) -> Answer {
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\n\r\n");
    Client::connect(weir.address()).send(head).answer()
}

fn send(weir: &Weir, method: &str, target: &str, body: &Value) -> (u16, Value) {
    let answer = weir.ask_admin(method, target, body);
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// Whether a log line, an audit line or an answer of the admin listener contains a key.
fn shows(weir: &Weir, key: &str) -> bool {
    let audit = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap_or_default();
    let answers =
        ["/metrics", "/v1/apikeys", "/v1/top", "/v1/config", "/v1/audit", "/v1/keys?limit=per-partner&key=ACME"];
    let mut texts = answers.map(|target| Client::connect(weir.admin()).get(target).text()).to_vec();
    texts.extend(weir.lines().into_iter().chain([audit]));
    texts.iter().any(|text| text.contains(key))
}

/// Requests that wait for a limit of each stage, while the configuration or the file of keys changes.
#[test]
fn waiting_requests_need_the_newest_configuration() {
    const RULES: &str = r#"
[[limit]]
name = "arrival"
stage = "arrival"
match = { path = "/arrival" }
key = []
rate = "1/h"
on_limit = "hold"

[[limit]]
name = "identified"
match = { path = "/identified" }
key = []
rate = "1/h"
on_limit = "hold"
"#;
    let upstream = Upstream::start();
    let (weir, key) = start(&upstream, RULES);
    let text = std::fs::read_to_string(weir.config_file()).unwrap();
    let head = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\n\r\n");
    let get = |path: &str| Client::connect(weir.address()).send(head(path)).answer();
    let reloaded = |change: &dyn Fn()| {
        let reloads = count_lines(&weir, "\"reloaded\"");
        change();
        weir.wait_for_lines("\"reloaded\"", reloads + 1);
    };
    let status_after = |limit: &str, change: &dyn Fn()| {
        let mut held = Client::connect(weir.address());
        held.send(head(&format!("/{limit}")));
        weir.wait_for_metric(&format!("weir_held_requests{{limit=\"{limit}\"}}"), |held| held == 1.0);
        reloaded(change);
        refill(&weir, limit);
        held.answer().status
    };
    let rules = |rules: &str| replace(&weir.config_file(), &format!("{text}{rules}"));
    for limit in ["arrival", "identified"] {
        assert_eq!(get(&format!("/{limit}")).status, 200);
        for (access, status) in [
            (&*format!("deny = {{ path = [\"/{limit}\"] }}"), 403),
            ("deny = { ip = [\"127.0.0.1\"] }", 403),
            ("deny = { identity = { partner = \"ACME\" } }", 403),
            ("require = [{ plan = \"other\" }]", 403),
            ("deny = { path = [\"/other\"] }", 200),
        ] {
            let answered = status_after(limit, &|| rules(&format!("\n[access]\n{access}\n")));
            assert_eq!(answered, status, "{limit}: {access}");
            reloaded(&|| rules("\n"));
            if limit == "identified" && status == 403 {
                // The refused request has given its unit back.
                assert_eq!(get("/identified").status, 200);
            }
        }
    }
    let (forwarded, keys) = (upstream.received_count(), weir.folder().join("keys.toml"));
    let before = std::fs::read_to_string(&keys).unwrap();
    for limit in ["arrival", "identified"] {
        let revoke = || drop(printed(weir.folder(), &["revoke", "--name", "ACME"]));
        assert_eq!(status_after(limit, &revoke), 401, "{limit}");
        reloaded(&|| replace(&keys, &before));
    }
    assert_eq!(upstream.received_count(), forwarded);
    assert_eq!(weir.metric("weir_requests_total{verdict=\"held\"}"), 2.0);
}

#[test]
fn only_valid_keys_pass() {
    let upstream = Upstream::start();
    let (weir, valid) = start(&upstream, "[log]\nformat = \"json\"\nlevel = \"trace\"\naccess = \"all\"\n");
    let folder = weir.folder();
    let disabled = key(folder, &["new", "--name", "Zeta"]);
    let brief = key(folder, &["new", "--name", "brief", "--expires", "1s"]);
    let file = folder.join("keys.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    replace(&file, &text.replace("[Zeta]", "[Zeta]\ndisabled = true"));
    weir.wait_until("the file is read", || ask(&weir, &disabled).text().contains("is disabled"));
    weir.wait_until("the key has expired", || ask(&weir, &brief).text().contains("has expired"));
    let unknown = {
        let elsewhere = tempfile::tempdir().unwrap();
        key(elsewhere.path(), &["new", "--name", "ACME", "--file", "keys.toml"])
    };
    let mut typo = valid.clone();
    typo.replace_range(20..21, if &valid[20..21] == "a" { "b" } else { "a" });
    let forwarded = upstream.received_count();
    for (key, why) in [
        (&*unknown, "partner: the API key is unknown"),
        (&*typo, "partner: the API key is malformed"),
        ("x", "partner: the API key is malformed"),
        (&*brief, "partner: the API key has expired"),
        (&*disabled, "partner: the API key is disabled"),
        ("", "partner: none given"),
        (&*format!("{valid}\r\nX-Api-Key: {valid}"), "partner: more than one given"),
    ] {
        let answer = ask(&weir, key);
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("ApiKey")), "{key}");
        assert!(answer.text().contains(why) && !answer.text().contains("weir_"), "{key}: {}", answer.text());
    }
    assert_eq!(upstream.received_count(), forwarded);
    assert_eq!(ask(&weir, &valid).status, 200);
    // Services get no key, unless the configuration says so.
    assert_eq!(upstream.received().last().unwrap().header("x-api-key"), None);
    for key in [&valid, &disabled, &brief, &unknown, &typo] {
        assert!(!shows(&weir, key), "{key}");
    }
}

#[test]
fn authentication_follows_from_no_limit() {
    let upstream = Upstream::start();
    for change in ["mode = \"off\"", "mode = \"shadow\"", "except.ip = \"127.0.0.1\""] {
        let (weir, key) = start(&upstream, change);
        assert_eq!((ask(&weir, "x").status, ask(&weir, &key).status), (401, 200), "{change}");
    }
}

#[test]
fn a_key_in_authorization_is_a_bearer_token_and_can_reach_the_service() {
    let upstream = Upstream::start();
    let config = CONFIG.replace("file =", "header = \"authorization\", forward = true, file =");
    let folder =
        folder(&Weir::config(&upstream, "forward_as = { x-partner = \"partner\", x-plan = \"plan\" }", &config));
    let key = key(folder.path(), &["new", "--name", "ACME & Söhne", "--plan", "premium"]);
    let weir = Weir::start_in(folder);
    let ask = |value: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: {value}\r\n\r\n");
        Client::connect(weir.address()).send(head).answer()
    };
    for (value, challenge) in [("Basic YTpi", "Bearer"), ("Bearer x", "Bearer error=\"invalid_token\"")] {
        assert_eq!(ask(value).header("www-authenticate"), Some(challenge));
    }
    assert_eq!(ask(&format!("Bearer {key}")).status, 200);
    let received = upstream.received();
    let last = received.last().unwrap();
    assert_eq!(last.header("authorization"), Some(format!("Bearer {key}")));
    assert_eq!(last.header("x-plan").as_deref(), Some("premium"));
    assert!(last.header("x-partner").is_some_and(|name| name.starts_with("ACME & S")));
}

#[test]
fn the_plan_of_a_key_has_its_numbers() {
    let upstream = Upstream::start();
    let (weir, premium) = start(&upstream, "overrides = { override = \"5/h\" }\n");
    let usual = key(weir.folder(), &["new", "--name", "usual"]);
    let overridden = key(weir.folder(), &["new", "--name", "override", "--plan", "premium"]);
    weir.wait_until("the keys are known", || ask(&weir, &overridden).status == 200);
    for (key, limit) in [(&premium, "2000000"), (&usual, "1000000"), (&overridden, "5")] {
        assert_eq!(ask(&weir, key).header("x-ratelimit-limit"), Some(limit));
    }
    let (_, listed) = send(&weir, "GET", "/v1/keys?limit=per-partner&key=ACME", &Value::Null);
    assert_eq!(listed["key"], json!({ "partner": "ACME" }));
}

#[test]
fn a_broken_file_keeps_the_keys() {
    let upstream = Upstream::start();
    let (weir, key) = start(&upstream, "");
    let file = weir.folder().join("keys.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    for (broken, what) in
        [("[ACME\n", "is not valid TOML at line 1"), ("[ACME]\nkeys = 1\n", "`keys` must be a list of tables")]
    {
        replace(&file, broken);
        weir.wait_for_line(what);
        assert_eq!(ask(&weir, &key).status, 200);
        let refused = command(weir.folder(), &["new", "--name", "other"]);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
        assert!(String::from_utf8_lossy(&refused.stderr).contains(what));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), broken);
    }
    std::fs::remove_file(&file).unwrap();
    weir.wait_for_line("`weir apikeys new --name NAME` makes the file");
    assert_eq!(ask(&weir, &key).status, 200);
    replace(&file, &text.replace("[ACME]", "[Other]"));
    let line = weir.wait_for_line("API keys changed");
    assert!(line.contains("ACME, Other") && line.contains("partner"), "{line}");
    assert_eq!(ask(&weir, &key).status, 200);
}

#[test]
fn a_key_is_rotated_under_load_without_a_failed_request() {
    let upstream = Upstream::start();
    let (weir, old) = start(&upstream, "");
    let address = weir.address();
    let (shown, stop, failed) = (Mutex::new(old.clone()), AtomicBool::new(false), Mutex::new(Vec::new()));
    // The requests of each client by the old and the new key.
    let [by_old, by_new]: [[AtomicUsize; 4]; 2] = Default::default();
    let client = |number: usize| {
        let mut client = Client::connect(address);
        while !stop.load(Ordering::Relaxed) {
            let key = shown.lock().unwrap().clone();
            let answer = client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\n\r\n")).answer();
            if answer.status != 200 {
                failed.lock().unwrap().push((answer.status, answer.text()));
            }
            (if key == old { &by_old } else { &by_new })[number].fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let each_passes = |counts: &[AtomicUsize; 4]| {
        for count in counts {
            let until = count.load(Ordering::Relaxed) + 30;
            crate::ops::until("30 requests", || count.load(Ordering::Relaxed) >= until);
        }
    };
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        for number in 0..4 {
            let client = &client;
            scope.spawn(move || client(number));
        }
        each_passes(&by_old);
        let new = key(weir.folder(), &["rotate", "--name", "ACME", "--overlap", "1h"]);
        weir.wait_for_line("API keys changed");
        each_passes(&by_old);
        shown.lock().unwrap().clone_from(&new);
        each_passes(&by_new);
        let listed: Value = serde_json::from_str(&printed(weir.folder(), &["list"])).unwrap();
        let keys = listed["owners"][0]["keys"].as_array().unwrap();
        assert_eq!((keys.len(), keys[0]["expires"].is_string(), &keys[1]["expires"]), (2, true, &Value::Null));
        printed(weir.folder(), &["revoke", "--name", "ACME", "--id", keys[0]["id"].as_str().unwrap()]);
        weir.wait_until("the old key is refused", || ask(&weir, &old).status == 401);
        each_passes(&by_new);
    });
    assert_eq!(*failed.lock().unwrap(), []);
}

#[test]
fn an_operator_makes_rotates_and_revokes_keys() {
    let upstream = Upstream::start();
    let (weir, old) = start(&upstream, "");
    let (status, made) =
        send(&weir, "POST", "/v1/apikeys", &json!({ "name": "API", "expires": "90d", "reason": "order 7" }));
    let key = made["key"].as_str().unwrap();
    assert_eq!((status, &made["was"], &made["owner"]["plan"]), (200, &Value::Null, &Value::Null), "{made}");
    // The key is in force when the answer arrives.
    assert_eq!((ask(&weir, key).status, ask(&weir, &old).status), (200, 200));
    let (status, rotated) = send(&weir, "POST", "/v1/apikeys/rotate", &json!({ "name": "ACME", "overlap": "1h" }));
    let new = rotated["key"].as_str().unwrap();
    assert_eq!((status, ask(&weir, &old).status, ask(&weir, new).status), (200, 200, 200), "{rotated}");
    let (_, listed) = send(&weir, "GET", "/v1/apikeys?identity=partner", &Value::Null);
    assert_eq!((listed["owners"].as_array().unwrap().len(), &listed["more"]), (2, &json!(0)));
    let acme = &listed["owners"][0];
    assert!(acme["keys"].as_array().unwrap().iter().all(|key| key["last_used"].as_str().unwrap().contains(":00:00")));
    assert_eq!(printed(weir.folder(), &["list", "--admin", &weir.admin().to_string()]), format!("{listed:#}\n"));
    let id = acme["keys"][0]["id"].as_str().unwrap();
    let (status, left) = send(&weir, "DELETE", &format!("/v1/apikeys?name=ACME&id={id}"), &Value::Null);
    assert_eq!((status, left["owner"]["keys"].as_array().unwrap().len(), ask(&weir, &old).status), (200, 1, 401));
    let (status, gone) = send(&weir, "DELETE", "/v1/apikeys?identity=partner&name=ACME&reason=left", &Value::Null);
    assert_eq!((status, &gone["owner"], ask(&weir, new).status), (200, &Value::Null, 401));
    for owner in [&rotated["was"], &rotated["owner"], &left["was"], &left["owner"], &gone["was"]] {
        assert!(owner["keys"][0]["last_used"].is_string(), "{owner}");
    }
    for (method, target, body, status) in [
        ("POST", "/v1/apikeys", json!({ "name": "API" }), 409),
        ("POST", "/v1/apikeys", json!({ "name": "a|b" }), 400),
        ("POST", "/v1/apikeys", json!({ "name": "b", "expires": "0s" }), 400),
        ("POST", "/v1/apikeys", json!({ "name": "b", "identity": "none" }), 404),
        ("POST", "/v1/apikeys/rotate", json!({ "name": "ACME" }), 404),
        ("POST", "/v1/apikeys/rotate", json!({ "name": "API", "overlap": "soon" }), 400),
        ("DELETE", "/v1/apikeys?name=ACME", Value::Null, 404),
    ] {
        assert_eq!(send(&weir, method, target, &body).0, status, "{method} {target} {body}");
    }
    let lines = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let actions: Vec<_> = lines.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["new_key", "rotate_key", "revoke_key", "revoke_key"]);
    assert_eq!((&lines[0]["target"]["name"], &lines[0]["reason"]), (&json!("API"), &json!("order 7")));
    assert_eq!((&lines[3]["before"], &lines[3]["after"]), (&gone["was"], &Value::Null));
    for key in [&old, key, new] {
        assert!(!shows(&weir, key), "{key}");
    }
}

/// A change of keys needs no valid configuration on disk, and puts none in force.
#[test]
fn a_key_is_revoked_whatever_waits_on_disk() {
    let upstream = Upstream::start();
    let (weir, _) = start(&upstream, "");
    let makes_and_revokes = || {
        let (status, made) = send(&weir, "POST", "/v1/apikeys", &json!({ "name": "later" }));
        let key = made["key"].as_str().unwrap();
        let answer = ask(&weir, key);
        assert_eq!((status, &made["not_in_force"], answer.status), (200, &Value::Null, 200), "{made}");
        assert_ne!(answer.header("x-ratelimit-limit"), Some("7"));
        let (status, gone) = send(&weir, "DELETE", "/v1/apikeys?name=later&reason=leaked", &Value::Null);
        assert_eq!((status, &gone["not_in_force"], ask(&weir, key).status), (200, &Value::Null, 401), "{gone}");
    };
    let config = std::fs::read_to_string(weir.config_file()).unwrap();
    replace(&weir.config_file(), &format!("{config}[broken"));
    weir.wait_for_line("the new configuration is invalid");
    makes_and_revokes();
    assert_eq!(weir.metric("weir_config_last_reload_successful"), 0.0);
    let manual = config.replacen("[server]\n", "[server]\nreload = \"manual\"\n", 1);
    replace(&weir.config_file(), &manual);
    weir.wait_for_metric("weir_config_last_reload_successful", |is_valid| is_valid == 1.0);
    replace(&weir.config_file(), &manual.replace("1000000/h", "7/h"));
    makes_and_revokes();
}

#[test]
fn commands_explain_what_they_cannot_do() {
    let folder = folder("[identity.a]\napi_keys.file = 'a.toml'\n[identity.b]\napi_keys.file = 'b.toml'\n");
    key(folder.path(), &["new", "--name", "ACME", "--identity", "a"]);
    for (arguments, expected) in [
        (&["new", "--name", "ACME"][..], "several identities in `weir.toml` have API keys: `a`, `b`; choose one"),
        (&["new", "--name", "ACME", "--identity", "c"], "`c` has no `api_keys`"),
        (&["new", "--name", "ACME", "--identity", "a"], "`ACME` has an API key already; rotate it"),
        (&["rotate", "--name", "Other", "--identity", "a"], "there is no API key of `Other`"),
        (&["revoke", "--name", "ACME", "--identity", "a", "--id", "x"], "`ACME` has no API key with the id `x`"),
        (&["list", "--file", "none.toml"], "`none.toml` cannot be read"),
        (&["new", "--name", "ACME", "--file", "none/keys.toml"], "cannot be written"),
        (&["new", "--name", "ACME", "--config", "etcd://127.0.0.1:1/x"], "name it by --file"),
    ] {
        let output = command(folder.path(), arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{arguments:?}");
    }
    key(folder.path(), &["rotate", "--name", "ACME", "--identity", "a"]);
    let third = command(folder.path(), &["rotate", "--name", "ACME", "--identity", "a"]);
    assert!(String::from_utf8_lossy(&third.stderr).contains("has two valid API keys already"));
    key(folder.path(), &["rotate", "--name", "ACME", "--identity", "a", "--overlap", "0s"]);
    let listed: Value = serde_json::from_str(&printed(folder.path(), &["list", "--identity", "a"])).unwrap();
    assert_eq!(listed["owners"][0]["keys"].as_array().unwrap().len(), 1);
}

/// A key of another system is valid without a restart, and is rotated to one of Weir.
#[test]
fn a_key_of_another_system_is_adopted() {
    let upstream = Upstream::start();
    let (weir, _) = start(&upstream, "");
    let old = "kong-0123456789ab";
    let adopt = |text: &str, name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["apikeys", "adopt", "--name", name, "--plan", "premium"]).current_dir(weir.folder());
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_adopted, said) = adopt(&format!("{old}\n"), "Zeta");
    assert!(is_adopted && said.contains("`Zeta` has its key in"), "{said}");
    poll(|| (ask(&weir, old).status == 200).then_some(()));
    for (text, name, expected) in [
        ("short", "Other", "an adopted key has 16 to 512 visible ASCII characters"),
        ("", "Other", "an adopted key has 16 to 512 visible ASCII characters"),
        (old, "Other", "it is a key of `Zeta`"),
        (old, "Zeta", "`Zeta` has an API key already; rotate it"),
    ] {
        let (is_adopted, said) = adopt(text, name);
        assert!(!is_adopted && said.contains(expected), "{text}: {said}");
    }
    let new = key(weir.folder(), &["rotate", "--name", "Zeta", "--overlap", "0s"]);
    poll(|| (ask(&weir, &new).status == 200).then_some(()));
    assert_eq!(ask(&weir, old).status, 401);
}
