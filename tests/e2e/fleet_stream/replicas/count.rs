//! The number of replicas that reach each other, and themselves, through proxies.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{connected, fleet_address, fleet_view, view};
use crate::support::{Fleet, Link, Relay, Upstream, Weir, free_port};

const REPLICAS: usize = 3;

/// The relays by the replica that connects, and by the replica that it reaches.
type Ways = Vec<Vec<Relay>>;

fn start(upstream: &Upstream, port: u16, ways: &[Relay]) -> Weir {
    let members: Vec<_> = ways.iter().map(|way| way.address().to_string()).collect();
    let fleet = "[fleet]\nstrategy = \"stream\"\nsecret = { env = \"WEIR_FLEET_SECRET\" }\nleave_after = \"30s\"";
    let limit = "[[limit]]\nname = \"all\"\nkey = []\nrate = \"600/day\"";
    let rest = format!("{fleet}\nlisten = \"127.0.0.1:{port}\"\nmembers = {{ static = {members:?} }}\n{limit}\n");
    let weir = Fleet::start_one(&Weir::config(upstream, "", &rest));
    assert_eq!(fleet_address(&weir).port(), port);
    weir
}

/// Calls `act`. Returns all counts of the replicas that `weirs` gave meanwhile, in the API and in metrics.
fn counts_during(weirs: &[Weir], act: impl FnOnce()) -> BTreeSet<u64> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let look = |weir: &Weir| {
            let (is_over, admin) = (&is_over, weir.admin());
            scope.spawn(move || {
                let mut counts = BTreeSet::new();
                while !is_over.load(Ordering::Relaxed) {
                    counts.insert(fleet_view(admin)["replicas"].as_u64().unwrap());
                    thread::sleep(Duration::from_millis(5));
                }
                counts
            })
        };
        let looking: Vec<_> = weirs.iter().map(look).collect();
        act();
        is_over.store(true, Ordering::Relaxed);
        looking.into_iter().flat_map(|looking| looking.join().unwrap()).collect()
    })
}

fn until_met(weirs: &[Weir]) {
    for weir in weirs {
        weir.wait_until("all are connected, and all addresses are known", || {
            let view = view(weir);
            connected(&view) == REPLICAS - 1 && view["members"].as_array().unwrap().len() == REPLICAS - 1
        });
    }
}

/// The first replica is reached long before it reaches an address, also its own.
#[test]
fn the_count_of_replicas_behind_proxies_is_stable() {
    let upstream = Upstream::start();
    let ports = [(); REPLICAS].map(|()| free_port());
    let to = |port: &u16| Relay::to(([127, 0, 0, 1], *port).into());
    let ways: Ways = ports.iter().map(|_| ports.iter().map(to).collect()).collect();
    ways[0].iter().for_each(|way| way.set(Link::Slow(Duration::from_millis(300))));
    let mut weirs: Vec<Weir> = ports.iter().zip(&ways).map(|(port, ways)| start(&upstream, *port, ways)).collect();
    let stable = BTreeSet::from([REPLICAS as u64]);
    assert_eq!(counts_during(&weirs, || until_met(&weirs)), stable, "at the start");

    let cut = counts_during(&weirs, || {
        for way in [&ways[0][1], &ways[1][0]] {
            way.set(Link::Reset);
        }
        weirs[0].wait_until("the link is lost", || connected(&view(&weirs[0])) == 1);
        for way in ways.iter().flatten() {
            way.set(Link::Clear);
        }
        until_met(&weirs);
    });
    assert_eq!(cut, stable, "at a cut");

    // The new process calls others before they reach its address.
    let old = weirs.pop().unwrap();
    old.signal("KILL");
    drop(old);
    for weir in &weirs {
        weir.wait_until("it is gone", || connected(&view(weir)) == 1);
    }
    ways[0][2].set(Link::Slow(Duration::from_millis(300)));
    weirs.push(start(&upstream, ports[2], &ways[2]));
    assert_eq!(counts_during(&weirs, || until_met(&weirs)), stable, "at a restart");
    for weir in &weirs {
        weir.wait_for_metric("weir_fleet_replicas", |replicas| replicas == REPLICAS as f64);
    }
}
