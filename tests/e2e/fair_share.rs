//! A limit whose budget sellers share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Client, SetOnDrop, Upstream, Weir};

/// The limit. Sellers are named by a header that this Weir trusts.
fn limit(rest: &str) -> String {
    format!("[[limit]]\nname = 'a'\nkey = []\nshare_by = ['header:x-seller']\n{rest}")
}

fn ask(client: &mut Client, seller: &str) -> u16 {
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Seller: {seller}\r\n\r\n")).answer().status
}

/// Runs `test` with the number of refusals, while a seller floods `weir` from `clients` connections. Returns the answers 200
/// of the flood.
fn flooded(weir: &Weir, clients: usize, test: impl FnOnce(&AtomicUsize)) -> usize {
    let (address, is_over, refused) = (weir.address(), AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let flood = || {
            let mut client = Client::connect(address);
            let mut admitted = 0;
            while !is_over.load(Ordering::Relaxed) {
                match ask(&mut client, "flood") {
                    200 => admitted += 1,
                    429 => {
                        refused.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    other => panic!("{other}"),
                }
            }
            admitted
        };
        let floods: Vec<_> = (0..clients).map(|_| scope.spawn(flood)).collect();
        let ends = SetOnDrop(&is_over);
        test(&refused);
        drop(ends);
        floods.into_iter().map(|flood| flood.join().unwrap()).sum()
    })
}

/// No request of a seller that asks for less than its share is refused, also across a reload.
#[test]
fn a_flood_takes_nothing_from_other_sellers() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit("rate = '40/s'\nburst = 40"));
    let began = Instant::now();
    let admitted = flooded(&weir, 2, |refused| {
        while refused.load(Ordering::Relaxed) < 20 {
            assert!(began.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut client = Client::connect(weir.address());
        for round in 0..20 {
            for seller in ["b", "c", "d"] {
                assert_eq!(ask(&mut client, seller), 200, "{seller} in round {round}");
            }
            if round == 10 {
                std::fs::write(weir.config_file(), Weir::config(&upstream, "", &limit("rate = '41/s'\nburst = 40")))
                    .unwrap();
                weir.signal("HUP");
                weir.wait_for_lines("\"reloaded\"", 1);
            }
            // A part of 10/s for each of four sellers.
            std::thread::sleep(Duration::from_millis(120));
        }
    });
    let most = 41.0 * began.elapsed().as_secs_f64() + 40.0;
    let all = u32::try_from(admitted + 60).map(f64::from).unwrap();
    assert!(all <= most, "{all} of {most}");
    assert!(admitted > 40, "{admitted}");
    let ask = "GET /limit?name=a HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let page = Client::connect(weir.admin()).send(ask).answer().text();
    assert!(page.contains("41/s, burst 40, token bucket, shared with weight 1"), "{page}");
}

/// Each seller waits behind its own requests alone.
#[test]
fn a_flood_that_waits_is_overtaken() {
    let upstream = Upstream::start();
    let hold = "rate = '20/s'\nburst = 1\non_limit = 'hold'\nhold = { max_waiting = 100 }";
    let weir = Weir::start(&upstream, &limit(hold));
    flooded(&weir, 16, |_| {
        weir.wait_for_metric("weir_held_requests{limit=\"a\"}", |held| held >= 14.0);
        let mut client = Client::connect(weir.address());
        // In one queue each would wait for 0.8 s.
        let began = Instant::now();
        for _ in 0..8 {
            assert_eq!(ask(&mut client, "b"), 200);
        }
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(5), "{waited:?}");
    });
}
