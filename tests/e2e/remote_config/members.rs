//! Replicas that find each other through etcd.

use std::time::{Duration, Instant};

use crate::support::{Etcd, Upstream, Weir, free_port};

const REPLICAS: &str = "weir_fleet_replicas";
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Starts a replica that registers itself in etcd.
fn replica(upstream: &Upstream, etcd: &Etcd) -> Weir {
    let fleet = format!(
        "[fleet]\nstrategy = \"local\"\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\nlisten = \"127.0.0.1:{}\"\n\
         members = {{ etcd = [\"http://{}\"], prefix = \"/eu/weir\" }}\nleave_after = \"1s\"\n\
         [[limit]]\nname = \"all\"\nkey = []\nrate = \"1000/s\"\n",
        free_port(),
        etcd.address()
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), Weir::config(upstream, "", &fleet)).unwrap();
    Weir::start_in_env(folder, &[("WEIR_FLEET_SECRET", SECRET)])
}

#[test]
fn members_follow_etcd_and_stay_without_it() {
    let (upstream, mut etcd) = (Upstream::start(), Etcd::start());
    let mut weirs: Vec<Weir> = (0..3).map(|_| replica(&upstream, &etcd)).collect();
    for weir in &weirs {
        weir.wait_for_metric(REPLICAS, |replicas| replicas == 3.0);
    }
    let keys = etcd.keys("/eu/weir/members/");
    assert!(keys.len() == 3 && keys.iter().all(|key| key.starts_with("/eu/weir/members/127.0.0.1:")), "{keys:?}");

    etcd.kill();
    let gone = weirs.pop().unwrap();
    let key: serde_json::Value = serde_json::from_str(&gone.wait_for_line("registered in etcd")).unwrap();
    drop(gone);
    for weir in &weirs {
        weir.wait_for_line("the last known ones stay");
    }
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        assert!(weirs.iter().all(|weir| weir.metric(REPLICAS) == 3.0), "longer than `leave_after`");
    }
    etcd.restart();
    for weir in &weirs {
        weir.wait_for_lines("registered in etcd", 2);
    }
    // As if its lease were over.
    etcd.call(&["del", key["key"].as_str().unwrap()]);
    for weir in &weirs {
        weir.wait_for_metric(REPLICAS, |replicas| replicas == 2.0);
    }
    // A living replica whose key is removed registers again.
    etcd.call(&["del", "--prefix", "/eu/weir/members/"]);
    weirs[0].wait_until("both are there again", || etcd.keys("/eu/weir/members/").len() == 2);
}
