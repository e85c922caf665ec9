//! An etcd that has the members and the configuration of a fleet is killed under load, and comes back.

use super::replicas::view;
use super::trial::{LIMITS, trial, until_met};
use crate::remote_config;
use crate::support::{Etcd, Upstream, Weir, free_port};

const SECRET: &str = "0123456789abcdef0123456789ABCDEF";
const NAMES: [&str; 3] = ["a", "b", "c"];

/// The key of a replica's configuration. On one machine, each needs a port of its own.
fn key(name: &str) -> String {
    format!("/weir/config/{name}")
}

#[test]
fn an_etcd_that_is_killed_takes_nothing_from_clients() {
    let (upstream, mut etcd, folder) = (Upstream::start(), Etcd::start(), tempfile::tempdir().unwrap());
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let start = |name: &&str| {
        let rest = format!(
            "[fleet]\nstrategy = \"stream\"\nsecret = {{ file = \"{}\" }}\nleave_after = \"100ms\"\ninterval = \"100ms\"\n\
             listen = \"127.0.0.1:{}\"\nmembers = {{ etcd = [\"http://{}\"] }}\n{LIMITS}",
            secret.display(),
            free_port(),
            etcd.address()
        );
        etcd.put(&key(name), Weir::config(&upstream, "", &rest));
        remote_config::start(&etcd.url(&key(name)), &["--replica", name])
    };
    let weirs: Vec<Weir> = NAMES.iter().map(start).collect();
    trial("etcd killed", weirs, |weirs, balancer| {
        etcd.kill();
        for weir in &*weirs {
            weir.wait_for_line("the last known ones stay");
            weir.wait_for_metric("weir_config_source_reachable", |reachable| reachable == 0.0);
        }
        balancer.wait_for(200, 20);
        until_met(weirs);
        etcd.restart();
        for (weir, name) in weirs.iter().zip(NAMES) {
            weir.wait_for_lines("registered in etcd", 2);
            etcd.put(&key(name), etcd.get(&key(name)));
            let revision = etcd.revision(&key(name)) as f64;
            weir.wait_for_metric("weir_config_revision", |seen| seen >= revision);
            weir.wait_until("all are members", || view(weir)["replicas"] == NAMES.len());
        }
    });
}
