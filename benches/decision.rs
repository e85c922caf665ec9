//! What a decision costs: matching, key hashing and charging, over keys, limits and threads.
//!
//! `cargo bench --bench decision`. Absolute times depend on the machine; compare within one run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use http::Method;
use weir::config;
use weir::gate::{Gate, Live, Step};
use weir::policy::{Facts, Fields, Stage};
use weir::telemetry::Metrics;
use weir::time::{Clock, Timestamp};

/// A prime, so that steps through the keys visit all of them in no order a cache could guess.
const STRIDE: u32 = 7_919;

struct Subject {
    gate: Gate,
    live: Live,
}

impl Subject {
    /// `limits` limits by client address, none of which is ever reached.
    fn new(limits: usize) -> Self {
        let mut text = String::from("[upstream]\nurl = \"http://127.0.0.1:1\"\n");
        for index in 0..limits {
            let name = format!("name = \"l{index}\"\n");
            text += "[[limit]]\nkey = [\"ip\"]\nrate = \"1000000/s\"\nmax_keys = 20000000\n";
            text += &name;
        }
        let config = config::compile(&text, "bench", Path::new(""), &|_| None).expect("a valid configuration");
        let gate = Gate::new(Clock::start(), [7; 16], Arc::new(Metrics::new("0", "0").unwrap()));
        let live = gate.install(config.policy, config.hold, config.max_tokens);
        Self { gate, live }
    }

    /// One decision for the client with this number, a microsecond after the last. Reading the clock is left out:
    /// a request reads it once, for all that it needs it for.
    fn decide(&self, client: u32, clock: &mut Timestamp) -> bool {
        let facts = Facts {
            method: &Method::GET,
            host: "api.example.com",
            path: "/v1/reports",
            query: None,
            headers: Fields::NONE,
            client_ip: IpAddr::V4(Ipv4Addr::from_bits(client)),
            certificate: None,
        };
        *clock = clock.saturating_add_ns(1000);
        match self.gate.admit(&self.live, Stage::Identified, &facts, || 0, *clock) {
            Ok(Step::Pass(mut pass)) => {
                pass.charged.keep(true);
                true
            }
            _ => false,
        }
    }
}

fn keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one limit");
    for keys in [1_u32, 10_000, 1_000_000] {
        let subject = Subject::new(1);
        let (mut client, mut clock) = (0, Timestamp::from_ns(1));
        (0..keys).for_each(|client| assert!(subject.decide(client, &mut clock)));
        group.bench_function(BenchmarkId::new("keys", keys), |bencher| {
            bencher.iter(|| {
                client = (client + STRIDE) % keys;
                black_box(subject.decide(black_box(client), &mut clock))
            });
        });
    }
    group.finish();
}

fn limits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("10000 keys");
    for limits in [1_usize, 2, 4] {
        let subject = Subject::new(limits);
        let (mut client, mut clock) = (0, Timestamp::from_ns(1));
        group.bench_function(BenchmarkId::new("limits", limits), |bencher| {
            bencher.iter(|| {
                client = (client + STRIDE) % 10_000;
                black_box(subject.decide(black_box(client), &mut clock))
            });
        });
    }
    group.finish();
}

fn threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("with a second thread");
    for (name, offset, keys) in [("other keys", 10_000, 10_000), ("the same key", 0, 1)] {
        let subject = Arc::new(Subject::new(1));
        let is_over = Arc::new(AtomicBool::new(false));
        let (theirs, over) = (Arc::clone(&subject), Arc::clone(&is_over));
        let other = std::thread::spawn(move || {
            let (mut client, mut clock) = (0, Timestamp::from_ns(1));
            while !over.load(Ordering::Relaxed) {
                client = (client + STRIDE) % keys;
                black_box(theirs.decide(black_box(client + offset), &mut clock));
            }
        });
        let (mut client, mut clock) = (0, Timestamp::from_ns(1));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                client = (client + STRIDE) % keys;
                black_box(subject.decide(black_box(client), &mut clock))
            });
        });
        is_over.store(true, Ordering::Relaxed);
        other.join().unwrap();
    }
    group.finish();
}

criterion_group!(benches, keys, limits, threads);
criterion_main!(benches);
