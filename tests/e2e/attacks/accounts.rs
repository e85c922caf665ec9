//! The same bytes in front of real servers: none of them sees a request that Weir has no account of.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{bodies, differential, framing, h2_bodies, h2_heads, heads, hops};
use crate::ops::until;
use crate::support::{Client, Kind, Server, Weir};

/// Connections at once to each Weir.
const CLIENTS: usize = 8;
/// Random attacks, of a seed of their own.
const RANDOM: usize = 300;
const SEED: u64 = 0x5eed_0005;

/// What follows some of the attacks, in the hope that somebody takes the connection for one in good order.
const NEXT: &[u8] = b"GET /smuggled HTTP/1.1\r\nhost: weir.test\r\n\r\n";

fn corpus() -> Vec<Vec<u8>> {
    let plain = [framing::corpus(), heads::corpus(), bodies::corpus(), hops::corpus()].concat();
    let followed: Vec<_> = plain.iter().map(|attack| [attack, NEXT].concat()).collect();
    let random = differential::attacks(SEED, RANDOM);
    [plain, followed, random, h2_heads::corpus(), h2_bodies::corpus()].concat()
}

fn in_front_of(server: &Server) -> Weir {
    Weir::with(&format!(
        "access = \"all\"\n[upstream]\nurl = \"unix:{}\"\n\
         [timeouts]\nrequest_head = \"100ms\"\nkeep_alive = \"100ms\"\nbody_idle = \"100ms\"\n\
         [[limit]]\nname = \"all\"\nkey = []\nrate = \"1000000/s\"",
        server.socket().display()
    ))
}

/// Sends bytes, and takes what comes to the end of the connection.
fn attack(address: SocketAddr, bytes: &[u8]) {
    let mut client = Client::connect(address);
    // It may be closed before all is sent.
    let _ = client.stream().write_all(bytes);
    client.rest();
}

/// How often each method and path is in a list of `METHOD TARGET`.
fn count(requests: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        let without_query = request.split('?').next().unwrap_or_default().to_owned();
        *counts.entry(without_query).or_default() += 1;
    }
    counts
}

/// The requests in Weir's access log.
fn accounted(weir: &Weir) -> Vec<String> {
    let lines = weir.lines();
    let lines = lines.iter().filter(|line| line.contains("\"message\":\"request\""));
    let lines = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let requests = lines.filter(|line| line["message"] == "request");
    // A head that cannot be read has no method and no path.
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    requests.map(|line| format!("{} {}", text(&line["method"]), text(&line["path"]))).collect()
}

fn check(kind: Kind, corpus: &[Vec<u8>]) {
    let server = Server::start(kind);
    let weir = in_front_of(&server);
    let address = weir.address();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while let Some(bytes) = corpus.get(next.fetch_add(1, Ordering::Relaxed)) {
                    attack(address, bytes);
                }
            });
        }
    });
    // What was hidden on a connection to the server would come before this. The short timeouts may end it.
    for _ in 0..CLIENTS {
        let ask = || Client::connect(address).send("GET /last HTTP/1.1\r\nhost: a\r\n\r\n").try_answer();
        until("a last request", || ask().is_some_and(|answer| answer.status == 200));
    }
    let last = |requests: Vec<String>| requests.iter().filter(|it| *it == "GET /last").count() >= CLIENTS;
    until("the last requests", || last(server.seen()) && last(accounted(&weir)));

    let seen = count(server.seen());
    let total: usize = seen.values().sum();
    assert!(total > corpus.len() / 10, "{kind:?} saw {total} of {} attacks", corpus.len());
    // Lines of the log may come after the answers.
    weir.wait_until(&format!("Weir knows what {kind:?} saw: {seen:#?}"), || {
        let accounted = count(accounted(&weir));
        seen.iter().all(|(request, times)| accounted.get(request).is_some_and(|known| known >= times))
    });
    let admitted = weir.metric("weir_limit_decisions_total{decision=\"admitted\",limit=\"all\"}");
    assert!(total as f64 <= admitted, "{kind:?} saw {total} requests, of which {admitted} were charged");
    assert_eq!(weir.metric("weir_panics_total"), 0.0);
}

#[test]
fn no_server_sees_what_was_not_counted() {
    let corpus = &corpus();
    std::thread::scope(|scope| {
        for kind in Kind::ALL {
            scope.spawn(move || check(kind, corpus));
        }
    });
}
