//! What a decision costs: matching, key hashing and charging, over keys, limits and threads.
//!
//! `cargo bench --bench decision`. Absolute times depend on the machine; compare within one run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(clippy::disallowed_methods)] // it measures

#[path = "support/row.rs"]
mod row;
#[path = "support/subject.rs"]
mod subject;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use row::row;
use subject::{OTHERS, STRIDE, Subject};
use weir::base::time::Timestamp;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Clients in turn, each a microsecond after the one before.
struct Clients {
    next: u32,
    count: u32,
    offset: u32,
    clock: Timestamp,
}

impl Clients {
    fn new(count: u32, offset: u32) -> Self {
        Self { next: 0, count, offset, clock: Timestamp::from_ns(1) }
    }

    fn ask(&mut self, subject: &Subject) -> bool {
        self.next = (self.next + STRIDE) % self.count;
        black_box(subject.decide(black_box(self.next + self.offset), &mut self.clock))
    }

    /// Every client once, so that all keys are known.
    fn introduce(&mut self, subject: &Subject) {
        (0..self.count).for_each(|client| assert!(subject.decide(client, &mut self.clock)));
    }
}

fn keys() {
    for keys in [1_u32, 10_000, 1_000_000, 10_000_000] {
        // All of them are remembered: no sketch takes the place of any.
        let max_keys = (keys >= 1_000_000).then_some(2 * keys);
        let (subject, mut clients) = (Subject::with_room(&[r#"["ip"]"#], max_keys), Clients::new(keys, 0));
        let mut is_known = false;
        row("one limit", format_args!("keys/{keys}"), || {
            if !std::mem::replace(&mut is_known, true) {
                clients.introduce(&subject);
            }
            clients.ask(&subject)
        });
    }
}

fn limits() {
    for limits in [1_usize, 2, 4] {
        let (subject, mut clients) = (Subject::by_address(limits), Clients::new(10_000, 0));
        clients.introduce(&subject);
        row("10000 keys", format_args!("limits/{limits}"), || clients.ask(&subject));
    }
    let by_both = Subject::new(&[r#"["ip"]"#, r#"["ip", "header:x-api-key"]"#]);
    let mut clients = Clients::new(10_000, 0);
    clients.introduce(&by_both);
    row("10000 keys", "limits by address, and by address and header", || clients.ask(&by_both));
}

/// Two limits match; the others are for requests that differ in one property.
fn other_limits() {
    for (name, other) in OTHERS {
        for limits in [2, 10, 100, 1000] {
            let (subject, mut clients) = (Subject::among(limits - 2, other), Clients::new(10_000, 0));
            clients.introduce(&subject);
            row("limits of which two match", format_args!("{name}/{limits}"), || clients.ask(&subject));
        }
    }
}

fn threads() {
    for (name, offset, keys) in [("other keys", 10_000, 10_000), ("the same key", 0, 1)] {
        let (subject, is_over) = (Subject::by_address(1), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut clients = Clients::new(keys, offset);
                while !is_over.load(Ordering::Relaxed) {
                    clients.ask(&subject);
                }
            });
            let mut clients = Clients::new(keys, 0);
            row("with a second thread", name, || clients.ask(&subject));
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

fn main() {
    keys();
    limits();
    other_limits();
    threads();
}
