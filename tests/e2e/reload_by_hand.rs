//! What operators see of a reload, how they compare configurations, and how they return to an earlier one.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::ops::{count_lines, replace};
use crate::support::{Client, Upstream, Weir};

fn limit(name: &str, rate: &str) -> String {
    format!("[[limit]]\nname = \"{name}\"\nkey = [\"ip\"]\nrate = \"{rate}\"\nmatch.path = \"/{name}\"\n")
}

/// A configuration with these limits, each with its own path.
fn config(upstream: &Upstream, server: &str, limits: &[(&str, &str)]) -> String {
    let limits: Vec<_> = limits.iter().map(|(name, rate)| limit(name, rate)).collect();
    Weir::config(upstream, server, &limits.concat())
}

/// The burst of the limit that has this name.
fn burst(weir: &Weir, name: &str) -> Option<u64> {
    let answer = Client::connect(weir.address()).get(&format!("/{name}"));
    answer.header("x-ratelimit-limit").map(|burst| burst.parse().unwrap())
}

fn run(weir: &Weir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("config").args(arguments).env("WEIR_ADMIN", weir.admin().to_string()).output().unwrap()
}

/// The JSON of a command of `weir config`.
fn asked(weir: &Weir, arguments: &[&str]) -> Value {
    let output = run(weir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn samples(weir: &Weir) -> usize {
    let head = "GET /v1/history HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer: Value = serde_json::from_slice(&Client::connect(weir.admin()).send(head).answer().body).unwrap();
    answer["at_s"].as_array().unwrap().len()
}

#[test]
fn a_reload_names_what_it_changes() {
    let upstream = Upstream::start();
    let weir = Weir::start_as(&config(&upstream, "", &[("a", "10/s"), ("b", "10/s"), ("c", "10/s")]));
    replace(&weir.config_file(), &config(&upstream, "", &[("a", "20/s"), ("c", "10/s"), ("d", "10/s")]));
    let line: Value = serde_json::from_str(&weir.wait_for_line("\"reloaded\"")).unwrap();
    let named = ["appeared", "changed", "vanished"].map(|kind| line[kind].as_str());
    assert_eq!(named, [Some("limit d"), Some("limit a"), Some("limit b")], "{line}");
    // The record follows the line.
    let reloads = weir.wait_for("a record", || {
        Some(asked(&weir, &["history"])).filter(|reloads| !reloads.as_array().unwrap().is_empty())
    });
    assert_eq!((&reloads[0]["cause"], &reloads[0]["vanished"]), (&json!("file"), &json!(["limit b"])));
    assert_eq!(count_lines(&weir, "more than half of the limits"), 0);

    replace(&weir.config_file(), &config(&upstream, "", &[("a", "20/s")]));
    let line: Value = serde_json::from_str(&weir.wait_for_line("more than half of the limits")).unwrap();
    assert_eq!((&line["level"], &line["before"], &line["lost"]), (&json!("WARN"), &json!(3), &json!(2)));
}

#[test]
fn without_watching_a_reload_needs_an_order() {
    let upstream = Upstream::start();
    let manual = |rate| config(&upstream, "reload = \"manual\"", &[("a", rate)]);
    let weir = Weir::start_as(&manual("10/s"));
    assert_eq!(burst(&weir, "a"), Some(10));
    replace(&weir.config_file(), &manual("20/s"));
    // A sample comes every five seconds, and so does the look at the files.
    let before = samples(&weir);
    weir.wait_until("two samples", || samples(&weir) >= before + 2);
    assert_eq!((burst(&weir, "a"), count_lines(&weir, "\"reloaded\"")), (Some(10), 0));
    let diff = asked(&weir, &["diff"]);
    assert_eq!(diff["settings"], json!([{"path": "limit.a.rate", "before": "10/s", "after": "20/s"}]));
    weir.signal("HUP");
    weir.wait_for_line("\"reloaded\"");
    assert_eq!(burst(&weir, "a"), Some(20));
    // A reload puts watching in force.
    replace(&weir.config_file(), &config(&upstream, "", &[("a", "30/s")]));
    assert_eq!(asked(&weir, &["reload"])["outcome"], "applied");
    replace(&weir.config_file(), &config(&upstream, "", &[("a", "40/s")]));
    weir.wait_until("a watched change", || burst(&weir, "a") == Some(40));
}

#[test]
fn a_file_is_compared_with_the_configuration_in_force() {
    let upstream = Upstream::start();
    let weir = Weir::start_as(&config(&upstream, "", &[("a", "10/s"), ("b", "10/s")]));
    let file = weir.folder().join("next.toml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, config(&upstream, "max_headers = 50", &[("a", "10/s"), ("c", "5/s")])).unwrap();
    let diff = asked(&weir, &["diff", path]);
    let parts = ["appeared", "changed", "vanished"].map(|kind| diff[kind].clone());
    assert_eq!(parts, [json!(["limit c"]), json!(["server"]), json!(["limit b"])], "{diff}");
    let headers = json!({"path": "server.max_headers", "before": null, "after": 50});
    assert!(diff["settings"].as_array().unwrap().contains(&headers), "{diff}");
    std::fs::write(&file, "[upstream]\n").unwrap();
    let output = run(&weir, &["diff", path]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("upstream.url"), "{output:?}");
    assert_eq!(burst(&weir, "a"), Some(10));
}

#[test]
fn the_configuration_in_force_is_shown_as_a_file() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    let rest = "[identity.seller]\njwt = { claim = \"sub\", algorithms = [\"HS256\"], keys = [{ secret = { file = \"secret\" } }] }\n\
        [access]\ndeny.identity.seller = [\"hunter2\", \"hunter3\"] # hunter2 leaks\n\
        [[limit]]\nname = \"sellers\"\nkey = [\"seller\"]\nrate = \"10/h\"\noverrides = { \"hunter4\" = \"20/h\", hunter5 = \"30/h\" }\n\
        match.header = { authorization = \"hunter6\" }\n";
    std::fs::write(folder.path().join("weir.toml"), Weir::config(&upstream, "", rest)).unwrap();
    let weir = Weir::start_in(folder);
    let shown = run(&weir, &["show", "--toml"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(!text.contains("hunter") && text.contains("file = \"secret\""), "{text}");
    let file = weir.folder().join("shown.toml");
    std::fs::write(&file, text).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg(&file).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

#[test]
fn an_earlier_configuration_is_in_force_until_the_file_changes() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let text =
        |rate| config(&upstream, "", &[("a", rate)]).replacen("[admin]\n", "[admin]\naudit = \"audit.jsonl\"\n", 1);
    std::fs::write(folder.path().join("weir.toml"), text("1000/s")).unwrap();
    let state = folder.path().join("state");
    let weir = Weir::start_in_env(folder, &[("STATE_DIRECTORY", state.to_str().unwrap())]);
    let output = run(&weir, &["rollback"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no earlier configuration is kept"), "{output:?}");
    for rate in ["2000/s", "3000/s"] {
        replace(&weir.config_file(), &text(rate));
        assert_eq!(asked(&weir, &["reload"])["outcome"], "applied");
    }
    assert_eq!(burst(&weir, "a"), Some(3000));

    let made = asked(&weir, &["rollback", "--reason", "too high"]);
    assert_eq!((&made["cause"], &made["changed"]), (&json!("rollback"), &json!(["limit a"])));
    assert_eq!(burst(&weir, "a"), Some(2000));
    assert_eq!(std::fs::read_to_string(weir.config_file()).unwrap(), text("3000/s"));
    let audit = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap();
    let line: Value = serde_json::from_str(audit.lines().last().unwrap()).unwrap();
    assert_eq!((&line["action"], &line["reason"]), (&json!("rollback"), &json!("too high")));
    assert_eq!((&line["before"]["number"], &line["after"]["in_force"]["number"]), (&json!(3), &json!(2)));
    // Overrides apply to the configuration in force, and do not end the return.
    for (to, expected) in [(json!("7/s"), 7), (json!(null), 2000)] {
        let set = json!({"limit": "a", "key": "127.0.0.1", "to": to}).to_string();
        let head = format!(
            "POST /v1/overrides HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            set.len()
        );
        let answer = Client::connect(weir.admin()).send(head).send(&set).answer();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(burst(&weir, "a"), Some(expected));
    }
    // A second one goes further back, and a number to any.
    asked(&weir, &["rollback"]);
    assert_eq!(burst(&weir, "a"), Some(1000));
    asked(&weir, &["rollback", "--to", "3"]);
    asked(&weir, &["rollback", "--to", "1"]);
    assert_eq!(burst(&weir, "a"), Some(1000));
    let kept = asked(&weir, &["versions"]);
    let numbers: Vec<_> = kept["versions"].as_array().unwrap().iter().map(|one| one["number"].as_u64()).collect();
    assert_eq!(numbers, [Some(3), Some(2), Some(1)]);
    assert!(kept["file"].as_str().unwrap().starts_with(state.to_str().unwrap()), "{kept}");

    replace(&weir.config_file(), &text("4000/s"));
    weir.wait_until("the changed file", || burst(&weir, "a") == Some(4000));
}

#[test]
fn the_configurations_in_force_outlive_the_process() {
    let upstream = Upstream::start();
    let state = tempfile::tempdir().unwrap();
    let of = tempfile::tempdir().unwrap();
    let file = of.path().join("weir.toml");
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["run", "--state-dir"]).arg(state.path()).arg(&file);
        // The folder of the test's own configuration is not that of the process.
        Weir::of_command(command, tempfile::tempdir().unwrap())
    };
    std::fs::write(&file, config(&upstream, "", &[("a", "1000/s")])).unwrap();
    let weir = start();
    replace(&file, &config(&upstream, "", &[("a", "2000/s")]));
    weir.wait_until("the changed file", || burst(&weir, "a") == Some(2000));
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
    let weir = start();
    assert_eq!(burst(&weir, "a"), Some(2000));
    asked(&weir, &["rollback"]);
    assert_eq!(burst(&weir, "a"), Some(1000));
}
