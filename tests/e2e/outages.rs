//! Endpoints that fail: ejected after failed requests or failed checks, and used again after they recover.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ops::{replace, until};
use crate::routes::upstream;
use crate::support::{Client, NEVER, Upstream, Weir, echo};

/// An upstream that answers 503 to each request while the flag is false.
fn fragile() -> (Upstream, Arc<AtomicBool>) {
    let is_healthy = Arc::new(AtomicBool::new(true));
    let current = Arc::clone(&is_healthy);
    let upstream = Upstream::answering(move |request, stream| {
        if current.load(Ordering::SeqCst) {
            return echo(request, stream);
        }
        std::io::Write::write_all(stream, b"HTTP/1.1 503 Unwell\r\ncontent-length: 0\r\n\r\n").is_ok()
    });
    (upstream, is_healthy)
}

/// The value of a series of an endpoint of the upstream `a`.
fn series(weir: &Weir, name: &str, endpoint: &Upstream) -> f64 {
    weir.metric(&format!("{name}{{endpoint=\"http://{}\",upstream=\"a\"}}", endpoint.address()))
}

/// The number of requests for `/` that have reached the endpoint.
fn requests(endpoint: &Upstream) -> usize {
    endpoint.targets().iter().filter(|target| *target == "/").count()
}

fn statuses(weir: &Weir, count: usize) -> Vec<u16> {
    (0..count).map(|_| Client::connect(weir.address()).get("/").status).collect()
}

#[test]
fn an_endpoint_that_keeps_failing_is_ejected_for_all_workers() {
    let ((broken, is_healthy), alive) = (fragile(), Upstream::answering(echo));
    is_healthy.store(false, Ordering::SeqCst);
    let eject = "eject = { after = 3, for = \"1h\" }";
    let weir = Weir::with(&format!("{}{NEVER}", upstream("a", &[&broken, &alive], eject)));
    let all = statuses(&weir, 40);
    assert_eq!((all.iter().filter(|status| **status == 503).count(), broken.received_count()), (3, 3), "{all:?}");
    assert_eq!(series(&weir, "weir_endpoint_ejections_total", &broken), 1.0);
    assert_eq!(series(&weir, "weir_endpoint_ejections_total", &alive), 0.0);

    // A reload keeps the ejection.
    weir.signal("HUP");
    weir.wait_for_lines("\"reloaded\"", 1);
    assert_eq!((statuses(&weir, 10), broken.received_count()), (vec![200; 10], 3));
}

#[test]
fn an_endpoint_that_recovers_is_used_again() {
    let ((broken, is_healthy), alive) = (fragile(), Upstream::answering(echo));
    is_healthy.store(false, Ordering::SeqCst);
    let eject = "eject = { after = 1, for = \"50ms\" }";
    let weir = Weir::with(&format!("{}{NEVER}", upstream("a", &[&broken, &alive], eject)));
    until("the endpoint is out", || {
        statuses(&weir, 1);
        series(&weir, "weir_endpoint_ejections_total", &broken) >= 1.0
    });
    is_healthy.store(true, Ordering::SeqCst);
    let before = requests(&broken);
    until("the endpoint is back", || {
        statuses(&weir, 1);
        requests(&broken) > before + 20
    });
}

#[test]
fn an_unreachable_endpoint_is_ejected() {
    let (gone, alive) = (Upstream::start(), Upstream::answering(echo));
    let eject = "eject = { after = 2, for = \"1h\" }";
    let text = format!("{}{NEVER}", upstream("a", &[&gone, &alive], eject));
    let ejections = format!("weir_endpoint_ejections_total{{endpoint=\"http://{}\",upstream=\"a\"}}", gone.address());
    let address = gone.stop();
    let weir = Weir::with(&text);
    assert_eq!(statuses(&weir, 20), vec![200; 20]);
    assert_eq!(weir.metric(&ejections), 1.0);
    let back = Upstream::start_at(address);
    assert_eq!((statuses(&weir, 20), back.received_count()), (vec![200; 20], 0), "an hour has not passed");
}

#[test]
fn if_all_endpoints_are_ejected_all_are_used() {
    let ((one, _), (two, is_healthy)) = (fragile(), fragile());
    is_healthy.store(false, Ordering::SeqCst);
    let address = one.stop();
    let eject = "eject = { after = 1, for = \"1h\" }";
    let both = format!("[upstreams.a]\nendpoints = [\"http://{address}\", \"http://{}\"]\n{eject}\n", two.address());
    let weir = Weir::with(&format!("{both}{NEVER}"));
    until("both endpoints are ejected", || {
        statuses(&weir, 1);
        weir.lines().iter().filter(|line| line.contains("is ejected")).count() == 2
    });
    let before = two.received_count();
    assert_eq!(statuses(&weir, 6), vec![503; 6], "the answers of the service");
    assert_eq!(two.received_count(), before + 6);
    is_healthy.store(true, Ordering::SeqCst);
    assert_eq!(statuses(&weir, 6), vec![200; 6]);
}

#[test]
fn checks_remove_an_endpoint_and_restore_it() {
    let ((fragile, is_healthy), alive) = (fragile(), Upstream::answering(echo));
    let health = "health = { path = \"/healthz?a=b\", interval = \"10ms\", healthy_after = 2, unhealthy_after = 2 }";
    let text = |health: &str| format!("{}{NEVER}", upstream("a", &[&fragile, &alive], health));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), Weir::text(&text(health))).unwrap();
    let weir = Weir::start_in(folder);
    let healthy = || series(&weir, "weir_endpoint_healthy", &fragile);
    fragile.wait_until(|fragile| fragile.targets().contains(&"/healthz?a=b".to_owned()));
    assert_eq!(healthy(), 1.0);

    is_healthy.store(false, Ordering::SeqCst);
    weir.wait_until("the endpoint is out", || healthy() == 0.0);
    assert_eq!((statuses(&weir, 20), requests(&fragile)), (vec![200; 20], 0));
    assert_eq!(series(&weir, "weir_endpoint_healthy", &alive), 1.0);

    is_healthy.store(true, Ordering::SeqCst);
    weir.wait_until("the endpoint is back", || healthy() == 1.0);
    until("the endpoint gets requests", || {
        statuses(&weir, 1);
        requests(&fragile) > 0
    });

    // Without checks no result could make the endpoint healthy again, so it counts as healthy.
    is_healthy.store(false, Ordering::SeqCst);
    weir.wait_until("the endpoint is out", || healthy() == 0.0);
    replace(&weir.config_file(), &Weir::text(&text("")));
    weir.wait_for_lines("\"reloaded\"", 1);
    weir.wait_until("the endpoint counts as healthy", || healthy() == 1.0);
    is_healthy.store(true, Ordering::SeqCst);
    let before = requests(&fragile);
    statuses(&weir, 8);
    assert!(requests(&fragile) > before);
}

#[test]
fn an_endpoint_without_valid_answers_to_checks_is_unhealthy() {
    let mute = Upstream::serving(|mut peer| drop(peer.rest()));
    let garbage = Upstream::saying("SSH-2.0-OpenSSH_9.9\r\n\r\n");
    let alive = Upstream::answering(echo);
    let health = "health = { path = \"/\", interval = \"200ms\", timeout = \"3s\", unhealthy_after = 2 }";
    let weir = Weir::with(&format!("{}{NEVER}", upstream("a", &[&mute, &garbage, &alive], health)));
    for endpoint in [&mute, &garbage] {
        weir.wait_until("the endpoint is out", || series(&weir, "weir_endpoint_healthy", endpoint) == 0.0);
    }
    assert_eq!(statuses(&weir, 12), vec![200; 12]);
}
