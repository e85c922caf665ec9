//! The configuration, the process and the replicas change while other proxies ask.

use super::{Asked, GET, config, connect, detail, start};
use crate::ops::{replace, until};
use crate::support::{Client, Redis, Upstream, Weir};

fn limit(rate: &str) -> String {
    format!("[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"{rate}\"\n")
}

/// Replaces the configuration, and waits until it is in force.
fn reload(weir: &Weir, text: &str, count: usize) {
    replace(&weir.config_file(), text);
    weir.wait_for_lines("\"reloaded\"", count);
}

#[test]
fn a_reload_changes_open_connections() {
    let weir = start(&limit("10/h"));
    let mut client = connect(&weir);
    let mut ask = |bytes: String| client.send(bytes).answer();
    let shown = |answer: crate::support::Answer| {
        (
            answer.status,
            answer.header("x-ratelimit-limit").map(str::to_owned),
            answer.header("x-ratelimit-remaining").map(str::to_owned),
        )
    };
    let row = |status, limit: &str, left: &str| (status, Some(limit.to_owned()), Some(left.to_owned()));
    assert_eq!(shown(ask(GET.bytes("/auth"))), row(200, "10", "9"));
    // The bucket stays.
    reload(&weir, &config("", &limit("5/h")), 1);
    assert_eq!(shown(ask(GET.bytes("/auth"))), row(200, "5", "3"));
    reload(&weir, &config("headers = \"x-original\"", &limit("5/h")), 2);
    let refused = ask(GET.bytes("/auth"));
    assert_eq!(detail(&refused), "x-original-method: missing; the proxy that asks must set it");
    let original = GET.bytes("/auth").replace("X-Forwarded-Uri", "X-Original-URI");
    let original =
        original.replace("X-Forwarded-Method", "X-Original-Method").replace("X-Forwarded-Host", "X-Original-Host");
    assert_eq!(shown(ask(original.clone())), row(200, "5", "2"));
    // Trust is taken back, and given again.
    let text = config("headers = \"x-original\"", &limit("5/h"));
    reload(&weir, &text.replace("[\"127.0.0.1\"]", "[\"10.0.0.1\"]"), 3);
    // A refusal for want of trust closes the connection.
    assert_eq!((ask(original.clone()).status, client.rest()), (403, vec![]));
    reload(&weir, &text, 4);
    assert_eq!(shown(connect(&weir).send(original).answer()), row(200, "5", "1"));
}

#[test]
fn a_listener_that_is_removed_stays_until_a_restart_and_answers_nothing() {
    let upstream = Upstream::start();
    let server = "trusted_proxies = [\"127.0.0.1\"]\n";
    let check = "[check]\nlisten = \"127.0.0.1:0\"\n";
    let text = |check: &str| Weir::config(&upstream, server, check);
    let weir = Weir::start_as(&text(check));
    let (mut client, address) = (connect(&weir), weir.checks());
    assert_eq!(GET.ask(&mut client).status, 200);
    reload(&weir, &text(""), 1);
    weir.wait_for_line("in force only after a restart");
    let gone = GET.ask(&mut client);
    assert_eq!((gone.status, &*detail(&gone)), (404, "the configuration has no `[check]` any more"));
    assert_eq!(Client::connect(address).rest(), b"");
    reload(&weir, &text(check), 2);
    assert_eq!([GET.ask(&mut client).status, GET.ask(&mut Client::connect(address)).status], [200, 200]);
}

/// Its listeners stay open until a restart.
#[test]
fn a_service_that_is_removed_has_no_route() {
    let upstream = Upstream::start();
    let check = "[check]\nlisten = \"127.0.0.1:0\"\n";
    let weir = Weir::start_with(&upstream, "trusted_proxies = [\"127.0.0.1\"]\n", check);
    let mut client = Client::connect(weir.address());
    assert_eq!(client.get("/").status, 200);
    reload(&weir, &config("", ""), 1);
    assert_eq!((client.get("/").status, GET.ask(&mut connect(&weir)).status), (404, 200));
    reload(&weir, &Weir::config(&upstream, "trusted_proxies = [\"127.0.0.1\"]\n", check), 2);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn a_successor_gets_the_listener_and_the_charges() {
    let folder = tempfile::tempdir().unwrap();
    let takeover = format!("takeover = \"{}\"\n", folder.path().join("takeover.sock").display());
    let text = config("", &limit("3/h")).replacen("[server]\n", &format!("[server]\n{takeover}"), 1);
    let first = Weir::start_as(&text);
    assert_eq!(GET.ask(&mut connect(&first)).header("x-ratelimit-remaining"), Some("2"));
    let second = Weir::start_as(&text);
    assert_eq!(second.checks(), first.checks());
    assert_eq!(first.wait(), Some(0));
    assert_eq!(GET.ask(&mut connect(&second)).header("x-ratelimit-remaining"), Some("1"));
}

#[test]
fn replicas_that_share_a_limit_admit_it_once() {
    for strategy in ["redis", "lease"] {
        let redis = Redis::start();
        let folder = || {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("secret"), "0123456789abcdef0123456789ABCDEF").unwrap();
            let fleet = format!(
                "[fleet]\nstrategy = \"local\"\nreplicas = 2\nsecret = {{ file = \"secret\" }}\n[store.a]\nredis = [\"{}\"]\n\
                 timeout = \"5s\"\n{}strategy = \"{strategy}\"\n",
                redis.url(),
                limit("40/day")
            );
            std::fs::write(folder.path().join("weir.toml"), config("", &fleet)).unwrap();
            folder
        };
        let weirs = [Weir::start_in(folder()), Weir::start_in(folder())];
        for weir in &weirs {
            until("a store that decides", || {
                let text = Client::connect(weir.admin()).get("/metrics").text();
                text.lines().any(|line| line.starts_with("weir_store_up{") && line.ends_with(" 1"))
            });
        }
        let mut clients = weirs.iter().map(connect).collect::<Vec<_>>();
        let mut ask = |turn: usize| {
            let answer = Asked { client: "192.0.2.1", ..GET }.ask(&mut clients[turn % 2]);
            assert!(matches!(answer.status, 200 | 429), "{}", answer.text());
            usize::from(answer.status == 200)
        };
        // Units that a replica borrowed and did not spend in half a second go back first.
        let (mut passed, mut turn) = (0, 0);
        until("all units are spent", || {
            passed += ask(turn);
            turn += 1;
            passed == 40
        });
        assert_eq!((0..60).map(ask).sum::<usize>(), 0, "{strategy}");
        assert_eq!(
            weirs.iter().map(|weir| weir.metric("weir_fallback_decisions_total{limit=\"l\"}")).sum::<f64>(),
            0.0
        );
    }
}
