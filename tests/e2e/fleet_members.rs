//! Limits whose shares follow the members of the fleet.

use serde_json::Value;

use crate::fleet_stream::{connected, view};
use crate::support::{Client, Etcd, Upstream, Weir, free_port};

const SECRET: &str = "5c6f1e0b7a9d4283bd01f6e2c4a85790";

const SPLIT: &str = "strategy = \"split\"";

/// Starts a replica that registers itself in etcd, with a limit of 90 for each path, and more lines of `[fleet]`.
fn replica(upstream: &Upstream, etcd: &Etcd, lines: &str) -> Weir {
    let fleet = format!(
        "[fleet]\n{lines}\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\nlisten = \"127.0.0.1:{}\"\n\
         members = {{ etcd = [\"http://{}\"] }}\nleave_after = \"1s\"\n\
         [[limit]]\nname = \"per-path\"\nkey = [\"path\"]\nrate = \"90/day\"\n",
        free_port(),
        etcd.address()
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), Weir::config(upstream, "", &fleet)).unwrap();
    Weir::start_in_env(folder, &[("WEIR_FLEET_SECRET", SECRET)])
}

/// `fleet.replicas` of the configuration in force, and its source.
fn replicas(weir: &Weir) -> (Value, Value) {
    let head = "GET /v1/config?path=fleet.replicas HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let answer: Value = serde_json::from_str(&Client::connect(weir.admin()).send(head).answer().text()).unwrap();
    let setting = &answer["settings"][0];
    (setting["value"].clone(), setting["source"].clone())
}

/// Waits until all replicas share limits by their number.
#[track_caller]
fn wait_until_met(weirs: &[Weir]) {
    let count = weirs.len();
    for weir in weirs {
        weir.wait_until("all members share the limit", || {
            let view = view(weir);
            let is_known = connected(&view) == count - 1 && view["replicas"] == count;
            is_known && replicas(weir) == (count.into(), "members".into())
        });
    }
}

/// Of 100 requests for `path` to each replica, those that pass.
fn passed(weirs: &[Weir], path: &str) -> Vec<usize> {
    let of = |weir: &Weir| {
        let mut client = Client::connect(weir.address());
        (0..100).filter(|_| client.get(path).status == 200).count()
    };
    weirs.iter().map(of).collect()
}

#[test]
fn shares_follow_the_members() {
    let (upstream, mut etcd) = (Upstream::start(), Etcd::start());
    let mut weirs: Vec<Weir> = (0..3).map(|_| replica(&upstream, &etcd, SPLIT)).collect();
    wait_until_met(&weirs);
    assert_eq!(passed(&weirs, "/a"), [30, 30, 30]);

    let gone = weirs.pop().unwrap();
    let key: Value = serde_json::from_str(&gone.wait_for_line("registered in etcd")).unwrap();
    drop(gone);
    // As if its lease were over.
    etcd.call(&["del", key["key"].as_str().unwrap()]);
    wait_until_met(&weirs);
    assert_eq!(passed(&weirs, "/a"), [15, 15], "spent units stay spent");
    assert_eq!(passed(&weirs, "/b"), [45, 45]);

    etcd.kill();
    for weir in &weirs {
        weir.wait_for_line("the last known ones stay");
    }
    assert_eq!(passed(&weirs, "/c"), [45, 45], "the last number stays");

    etcd.restart();
    weirs.push(replica(&upstream, &etcd, SPLIT));
    wait_until_met(&weirs);
    assert_eq!(passed(&weirs[..2], "/b"), [0, 0]);
    assert_eq!(passed(&weirs, "/d"), [30, 30, 30]);
}

/// A reset of a key gives back the share of each replica, and no other key is changed.
#[test]
fn a_reset_reaches_all_shares() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let weirs: Vec<Weir> = (0..3).map(|_| replica(&upstream, &etcd, SPLIT)).collect();
    wait_until_met(&weirs);
    assert_eq!([passed(&weirs, "/a"), passed(&weirs, "/b")], [[30; 3]; 2]);
    let head = "DELETE /v1/keys?limit=per-path&key=/a HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(Client::connect(weirs[1].admin()).send(head).answer().status, 200);
    let mut again = [0; 3];
    // The reset may come between two requests of a look.
    weirs[0].wait_until("all have heard of the reset", || {
        for (again, passed) in again.iter_mut().zip(passed(&weirs, "/a")) {
            *again += passed;
        }
        again.iter().all(|passed| *passed >= 30)
    });
    assert_eq!((again, passed(&weirs, "/a"), passed(&weirs, "/b")), ([30; 3], vec![0; 3], vec![0; 3]));
}

/// No replica finds the others, and each keeps to its part of the limit.
#[test]
fn replicas_that_start_without_etcd_keep_the_limit() {
    let (upstream, mut etcd) = (Upstream::start(), Etcd::start());
    etcd.kill();
    let mut fleets = ["stream", "split"].map(|strategy| {
        let lines = format!("strategy = \"{strategy}\"\nreplicas = 3");
        (0..3).map(|_| replica(&upstream, &etcd, &lines)).collect::<Vec<_>>()
    });
    for weirs in &fleets {
        for weir in weirs {
            weir.wait_for_metric("weir_fleet_isolated", |isolated| isolated == 1.0);
            assert_eq!((weir.metric("weir_fleet_replicas"), &view(weir)["replicas"]), (3.0, &3.into()));
            assert_eq!(weir.metric(BOUND), 1.0);
        }
        assert_eq!(passed(weirs, "/a"), [30, 30, 30]);
    }
    let alone = replica(&upstream, &etcd, "strategy = \"stream\"");
    alone.wait_for_line("`fleet.replicas` is not set");
    assert_eq!(alone.metric(BOUND), f64::INFINITY);
    drop(alone);

    // Both fleets would be one.
    let [stream, split] = &mut fleets;
    split.clear();
    etcd.restart();
    for weir in &*stream {
        weir.wait_until("all are members", || {
            let view = view(weir);
            connected(&view) == 2 && view["replicas"] == 3 && view["isolated"] == false
        });
    }
    assert_eq!(passed(stream, "/a"), [0, 0, 0]);
}

const BOUND: &str = "weir_fleet_bound_ratio{limit=\"per-path\"}";
