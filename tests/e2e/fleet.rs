//! Several Weirs that share limits: each spends its part, and together they never pass more than the limit.

use std::process::Command;

use crate::support::{Client, Fleet, Upstream, Weir, over_all, over_paths};

const REPLICAS: usize = 3;

/// `[fleet]` with this number of replicas, and these limits.
fn shared(replicas: usize, limits: &str) -> String {
    format!("[fleet]\nstrategy = \"split\"\nreplicas = {replicas}\n{limits}")
}

/// Requests out of `count` that `weir` passes.
fn passed(weir: &Weir, count: usize) -> usize {
    let mut client = Client::connect(weir.address());
    (0..count).filter(|_| client.get("/").status == 200).count()
}

#[test]
fn three_replicas_pass_no_more_than_the_limit() {
    let limits = [
        "rate = \"40/day\"",
        "algorithm = \"leaky_bucket\"\nrate = \"40/day\"",
        "algorithm = \"fixed_window\"\nrate = \"40/day\"",
        "algorithm = \"sliding_log\"\nrate = \"40/day\"",
        "algorithm = \"sliding_window\"\nrate = \"40/day\"",
        "algorithm = \"sub_window\"\nrate = \"40/day\"",
        "rate = [\"40/day\", \"80/week\"]",
    ];
    let upstream = Upstream::start();
    let fleet = Fleet::start(REPLICAS, &upstream, &shared(REPLICAS, &over_paths(&limits)));
    for (index, limit) in limits.iter().enumerate() {
        let answers = fleet.ask(24 * REPLICAS, 6, &[format!("/l{index}")]);
        answers.assert_only(&[200, 429]);
        assert_eq!(answers.passed(), 13 * REPLICAS, "{limit}");
    }
}

#[test]
fn an_explanation_names_the_share() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &shared(4, &over_all("rate = \"100/min\"")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["explain", "--path", "/", "--ip", "192.0.2.1", "--admin", &weir.admin().to_string()]);
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(output.contains("100/min, token bucket (the share of one of 4 replicas is 25)"), "{output}");
}

#[test]
fn a_client_is_told_of_the_share() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &shared(4, &over_all("rate = \"100/min\"")));
    let answer = Client::connect(weir.address()).get("/");
    assert_eq!(answer.header("x-ratelimit-limit"), Some("25"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("24"));
}

/// A replica that joins takes its part from the others, and what they have spent stays spent.
#[test]
fn another_number_of_replicas_refills_nothing() {
    let upstream = Upstream::start();
    let config = |replicas| Weir::config(&upstream, "", &shared(replicas, &over_all("rate = \"100/day\"")));
    let weir = Weir::start_as(&config(2));
    assert_eq!(passed(&weir, 20), 20);
    std::fs::write(weir.config_file(), config(4)).unwrap();
    weir.wait_for_line("\"reloaded\"");
    assert_eq!(passed(&weir, 40), 5, "25 in all");
}
