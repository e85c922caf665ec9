//! What ten million keys weigh, and the longest that a decision took while they came and while they were swept.
//!
//! `cargo bench --bench stall [-- KEYS]`. A stall of the machine counts as one of ours, so a quiet machine with a
//! core for each of two threads is needed before the store can be blamed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(clippy::disallowed_methods)] // it measures

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir::limit::{Algorithm, Key, Quota, Rate};
use weir::store::Table;
use weir::time::Timestamp;

/// As in the program: memory is what is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: u64 = 10_000_000;
const MAX_KEYS: usize = 20_000_000;
/// How often bytes per key are looked at on the way: a table is heaviest just after it has grown.
const PARTS: u64 = 40;
const DAY_NS: u64 = 86_400 * 1_000_000_000;
const NOW: Timestamp = Timestamp::from_ns(1_700_000_000_000_000_000);

fn main() {
    let keys = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(KEYS) / PARTS * PARTS;
    // No unit comes back before a sweep is told that days have passed.
    let rule = Algorithm::TokenBucket(Quota::new(Rate { count: 1, period_ns: DAY_NS }, 1 << 10).unwrap());
    let table = Table::new(&rule, MAX_KEYS);
    let decide = |number: u64| assert!(table.admit(key(number), &rule, 1, NOW).is_admitted());
    let before = resident_bytes();
    let (mut slowest, mut heaviest) = (Vec::new(), 0.0_f64);
    for part in 0..PARTS {
        let (from, to) = (keys / PARTS * part, keys / PARTS * (part + 1));
        thread::scope(|scope| {
            let one = scope.spawn(|| time((from..to).step_by(2), decide));
            slowest.extend(time((from + 1..to).step_by(2), decide));
            slowest.extend(one.join().unwrap());
        });
        if part >= PARTS / 4 {
            heaviest = heaviest.max(per_key(before, to));
        }
    }
    assert_eq!(table.len() as u64, keys);
    println!(
        "{keys} keys: {:.1} bytes each; at the worst moment of the last three quarters {heaviest:.1}",
        per_key(before, keys)
    );
    report("while the keys came on two threads", slowest);
    report("on known keys, one thread", time(0..keys, |number| decide(number * 7919 % keys)));
    for (name, later_ns) in [("found nothing", 0), ("dropped all", 2 * DAY_NS)] {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let others = scope.spawn(|| {
                let numbers = (0..).take_while(|_| !is_over.load(Ordering::Relaxed));
                time(numbers, |number| decide(number * 7919 % keys))
            });
            let began = Instant::now();
            let dropped = table.sweep(NOW.saturating_add_ns(later_ns));
            let took = began.elapsed();
            is_over.store(true, Ordering::Relaxed);
            let others = others.join().unwrap();
            println!("a sweep of {:.0} ms dropped {dropped} keys", took.as_secs_f64() * 1e3);
            report(&format!("while a sweep {name}"), others);
        });
    }
}

/// A uniform hash, as policy makes them.
fn key(number: u64) -> Key {
    let mix = |seed: u64| {
        let mixed = (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ mixed >> 32
    };
    Key { first: mix(0), second: mix(u64::MAX) }
}

const SLOWEST: usize = 4;

/// The slowest of the decisions, each measured from the end of the one before.
fn time(numbers: impl Iterator<Item = u64>, decide: impl Fn(u64)) -> Vec<Duration> {
    let mut slowest = [Duration::ZERO; SLOWEST];
    let mut last = Instant::now();
    for number in numbers {
        decide(number);
        let now = Instant::now();
        if now - last > slowest[0] {
            slowest[0] = now - last;
            slowest.sort_unstable();
        }
        last = now;
    }
    slowest.to_vec()
}

fn report(name: &str, mut slowest: Vec<Duration>) {
    slowest.sort_unstable_by(|left, right| right.cmp(left));
    let times: Vec<String> =
        slowest.iter().take(SLOWEST).map(|time| format!("{:.3}", time.as_secs_f64() * 1e3)).collect();
    println!("slowest decisions {name}: {} ms", times.join(" "));
}

#[allow(clippy::cast_precision_loss)]
fn per_key(before: u64, keys: u64) -> f64 {
    resident_bytes().saturating_sub(before) as f64 / keys.max(1) as f64
}

/// `VmRSS` of this process; 0 where there is no /proc.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse().map_or(0, |kilobytes: u64| kilobytes * 1024)
}
