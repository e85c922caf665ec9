//! Replacements while clients ask as fast as they can.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Place, left};
use crate::support::{Client, Weir};

/// No unit of it comes back while a test runs.
const BUDGET: u64 = 5_000_000;
const REPLACEMENTS: usize = 20;

/// Clients that ask until they are told to stop. Whatever is not an answer of 200 stops the test.
struct Load {
    answered: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    fn ask(&self, weir: std::net::SocketAddr, per_connection: usize) {
        while !self.is_over.load(Ordering::Relaxed) {
            let mut client = Client::connect(weir);
            for _ in 0..per_connection {
                let answer = client.get("/");
                assert_eq!(answer.status, 200, "{}", answer.head);
                self.answered.fetch_add(1, Ordering::Relaxed);
                if answer.header("connection").is_some() || self.is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    }
}

#[test]
fn twenty_replacements_refuse_nobody_and_refill_nothing() {
    let limits = format!(
        "[[limit]]\nname = \"all\"\nkey = []\nrate = \"1000/day\"\nburst = {BUDGET}\n\
         [[limit]]\nname = \"few\"\nkey = [\"query:who\"]\nrate = \"1/day\"\nburst = 3\nmatch = {{ path = \"/few\" }}\n"
    );
    let place = Place::new(&limits);
    let mut weir = place.start();
    let few = |weir: &Weir| Client::connect(weir.address()).get("/few?who=a").status;
    assert_eq!([few(&weir), few(&weir), few(&weir), few(&weir)], [200, 200, 200, 429]);
    let load = Load { answered: AtomicU64::new(0), is_over: AtomicBool::new(false) };
    let address = weir.address();
    std::thread::scope(|scope| {
        for client in 0..6 {
            let load = &load;
            // Half of them connect anew for each request.
            scope.spawn(move || load.ask(address, if client % 2 == 0 { usize::MAX } else { 1 }));
        }
        for number in 0..REPLACEMENTS {
            let before = load.answered.load(Ordering::Relaxed);
            let next = place.start_with(&format!("workers = {}", 1 + number % 3));
            next.wait_for_line("\"took over\"");
            assert_eq!(few(&next), 429, "replacement {number}");
            let old = std::mem::replace(&mut weir, next);
            assert_eq!(old.wait(), Some(0));
            crate::ops::until("answers", || load.answered.load(Ordering::Relaxed) > before + 20);
        }
        load.is_over.store(true, Ordering::Relaxed);
    });
    let charged = load.answered.load(Ordering::Relaxed) + 3 + 1;
    let left = left(&weir, "/").unwrap();
    assert!(left <= BUDGET - charged, "{left} left after {charged}");
    // A charge made while the state was sent may be counted twice: as many as were in hand, at each replacement.
    assert!(left + 6 * REPLACEMENTS as u64 >= BUDGET - charged, "{left} left after {charged}");
}
