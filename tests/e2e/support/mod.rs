//! Shared by all tests: a Weir, recording upstreams, and clients that send bytes.

mod balancer;
mod client;
mod dns;
mod etcd;
mod event;
mod fleet;
mod front;
mod h2;
mod h2_service;
mod pebble;
mod programs;
mod redis;
mod relay;
mod servers;
mod stall;
mod tls;
mod upstream;
mod weir;

pub use balancer::Balancer;
pub use client::{Answer, Client};
pub use dns::{A, AAAA, Dns, DnsAnswer, REFUSED, Record, SERVFAIL};
pub use etcd::Etcd;
pub use event::Event;
pub use fleet::{Fleet, Sample, Samples, has_stores, over_all, over_paths};
pub use front::Front;
pub use h2::{Channel, H2Answer, H2Client, over_h2, over_h2_tls};
pub use h2_service::{Call, H2Options, H2Service, send_all};
pub use pebble::Pebble;
pub use programs::{installed, library};
pub use redis::{Cluster, Redis, Reply, Sentinels};
pub use relay::{Link, Relay};
pub use servers::{Kind, Server, free_port};
pub use stall::{pour, wait_until_stalled};
pub use tls::{Cert, TlsClient, connect_tls, trusting, trusting_roots};
pub use upstream::{Peer, Received, Upstream, echo};
pub use weir::{NEVER, Weir};

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time after which a wait fails. Only a fault takes this long.
pub const PATIENCE: Duration = Duration::from_secs(45);
/// Time after which a test of many waits fails.
pub const PATIENCE_OF_TEST: Duration = Duration::from_mins(5);

/// Calls `look` until it returns a value: for states of other processes, which send no event. It looks the less often the
/// longer it has waited, because each look takes processor time from other tests.
#[track_caller]
pub fn poll<T>(look: impl FnMut() -> Option<T>) -> T {
    poll_for("anything to see", look)
}

/// As [`poll`]; `what` is said if it never comes.
#[track_caller]
pub fn poll_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        let waited = began.elapsed();
        assert!(waited < PATIENCE, "never: {what}");
        std::thread::park_timeout((waited / 4).clamp(Duration::from_millis(2), Duration::from_millis(50)));
    }
}

/// Sets a flag on drop, also if a test fails.
pub struct SetOnDrop<'f>(pub &'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
