//! Every process of a fleet is replaced, one after the other, under load.

use super::trial::{LIMITS, trial, until_met, until_spent};
use crate::support::{Balancer, Etcd, Fleet, Upstream, Weir, free_port};

const REPLICAS: usize = 3;

/// Starts a replica with these lines in `[server]`, and with the port and the members of its fleet.
fn replica(upstream: &Upstream, server: &str, port: u16, members: &str) -> Weir {
    let rest = format!(
        "[fleet]\nstrategy = \"stream\"\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\nleave_after = \"1s\"\n\
         interval = \"100ms\"\nlisten = \"127.0.0.1:{port}\"\nmembers = {members}\n{LIMITS}"
    );
    Fleet::start_one(&Weir::config(upstream, server, &rest))
}

/// Takes a replica out of service, and stops it.
fn stop(weir: Weir, balancer: &Balancer) {
    balancer.remove(weir.address());
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
}

/// Ports of a fleet, and its list of members.
fn static_members() -> (Vec<u16>, String) {
    let ports: Vec<u16> = (0..REPLICAS).map(|_| free_port()).collect();
    let members: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    (ports, format!("{{ static = {members:?} }}"))
}

/// As the replicas of a stateful set: each stops, and another process starts in its place.
#[test]
fn replicas_that_stop_leave_their_charges_to_those_that_start() {
    let upstream = Upstream::start();
    let (ports, members) = static_members();
    let start = |port: &u16| replica(&upstream, "", *port, &members);
    trial("stopped and started", ports.iter().map(start).collect(), |weirs, balancer| {
        for port in &ports {
            stop(weirs.remove(0), balancer);
            weirs.push(start(port));
            until_met(weirs);
            until_spent(weirs);
            balancer.add(weirs[REPLICAS - 1].address());
            balancer.wait_for(50, 1);
        }
    });
}

/// Each process hands its sockets and its state over to the next one. The balancer notices nothing.
#[test]
fn replicas_that_take_over_continue() {
    let (upstream, folder) = (Upstream::start(), tempfile::tempdir().unwrap());
    let (ports, members) = static_members();
    let start = |port: &u16| {
        let socket = folder.path().join(format!("{port}.sock"));
        replica(&upstream, &format!("takeover = \"{}\"", socket.display()), *port, &members)
    };
    trial("taken over", ports.iter().map(start).collect(), |weirs, balancer| {
        for port in &ports {
            let (old, new) = (weirs.remove(0), start(port));
            new.wait_for_line("\"took over\"");
            assert_eq!(new.address(), old.address());
            assert_eq!(old.wait(), Some(0));
            weirs.push(new);
            until_met(weirs);
            balancer.wait_for(50, 1);
        }
    });
}

/// As the replicas of a deployment: each new one has an address of its own, and is in service before an old one stops.
#[test]
fn replicas_that_move_are_found_through_etcd() {
    let (upstream, etcd) = (Upstream::start(), Etcd::start());
    let members = format!("{{ etcd = [\"http://{}\"] }}", etcd.address());
    let start = || replica(&upstream, "", free_port(), &members);
    trial("moved", (0..REPLICAS).map(|_| start()).collect(), |weirs, balancer| {
        for _ in 0..REPLICAS {
            weirs.push(start());
            until_met(weirs);
            until_spent(weirs);
            balancer.add(weirs[REPLICAS].address());
            stop(weirs.remove(0), balancer);
            balancer.wait_for(50, 1);
        }
    });
}
