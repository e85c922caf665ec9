//! What ten million keys weigh, and the longest that a decision took while they came, while they were swept, and while a
//! snapshot of them was written.
//!
//! `cargo bench --bench stall [-- KEYS [MAX_KEYS]]`. Two threads bring the keys; then one decides on them, alone and
//! while another sweeps or writes; at last also on keys of another algorithm, a tenth as many. A row says how many
//! decisions took over 50 us, and their median, 99th percentile and maximum in milliseconds. On a machine that is not idle the maximum is the machine's: the first row, which decides
//! nothing, shows what it does. The hundreds of shards that grow are the hundreds of slow decisions of the second
//! row, so its median is what growing one takes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(clippy::disallowed_methods)] // it measures

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir::base::time::Timestamp;
use weir::engine::limit::{Algorithm, Key, OnFull, Quota, Rate, sliding_log};
use weir::engine::store::snapshot::{Snapshot, file};
use weir::engine::store::{Bans, Batch, Charge, Table};

/// As in the program: memory is what is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: u64 = 10_000_000;
const MAX_KEYS: u64 = 20_000_000;
/// How often bytes per key are looked at on the way: a table is heaviest just after it has grown.
const PARTS: u64 = 40;
const DAY_NS: u64 = 86_400 * 1_000_000_000;
const NOW: Timestamp = Timestamp::from_ns(1_700_000_000_000_000_000);

/// Charges one unit to a key.
fn decide(table: &Table, rule: &Algorithm, number: u64) {
    let mut batch: Batch<'_, ()> = [Charge::new(table, key(number), rule, 1, true, ())].into_iter().collect();
    assert!(batch.admit(NOW));
}

fn main() {
    let mut numbers = std::env::args().filter_map(|word| word.parse::<u64>().ok());
    let keys = numbers.next().unwrap_or(KEYS) / PARTS * PARTS;
    let max_keys = numbers.next().unwrap_or(MAX_KEYS);
    // No unit comes back before a sweep is told that days have passed.
    let rule = Algorithm::TokenBucket(Quota::new(Rate { count: 1, period_ns: DAY_NS }, 1 << 10).unwrap());
    let table = Table::new(&rule, usize::try_from(max_keys).unwrap(), OnFull::Sketch);
    let decide = |number: u64| decide(&table, &rule, number);
    let known = |number: u64| decide(number * 7919 % keys);
    report("of nothing", time(0..keys * 10, |number| assert!(key(number) != key(number + 1))));
    let (before, weighed) = (resident_bytes(), Barrier::new(2));
    let fill = |offset: u64, weighs: bool| {
        let (mut slow, mut heaviest) = (Vec::new(), 0.0_f64);
        for part in 0..PARTS {
            let (from, to) = (keys / PARTS * part, keys / PARTS * (part + 1));
            slow.extend(time((from + offset..to).step_by(2), decide));
            weighed.wait();
            if weighs && part >= PARTS / 4 {
                heaviest = heaviest.max(per_key(before, to));
            }
            weighed.wait();
        }
        (slow, heaviest)
    };
    let (slow, heaviest) = thread::scope(|scope| {
        let other = scope.spawn(|| fill(1, false));
        let (mut slow, heaviest) = fill(0, true);
        slow.extend(other.join().unwrap().0);
        (slow, heaviest)
    });
    assert_eq!(table.len() as u64, keys);
    println!(
        "{keys} keys of {:.1} bytes; {heaviest:.1} at the worst of the last three quarters",
        per_key(before, keys)
    );
    report("while the keys came on two threads", slow);
    report("on known keys", time(0..keys, known));
    while_written("token buckets", &table, known);
    for (name, later_ns) in [("found nothing", 0), ("dropped all", 2 * DAY_NS)] {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let decisions = scope.spawn(|| time((0..).take_while(|_| !is_over.load(Ordering::Relaxed)), known));
            let began = Instant::now();
            let dropped = table.sweep(NOW.saturating_add_ns(later_ns));
            println!("a sweep of {} ms dropped {dropped} keys", began.elapsed().as_millis());
            is_over.store(true, Ordering::Relaxed);
            report(&format!("while a sweep {name}"), decisions.join().unwrap());
        });
    }
    drop(table);
    of_another_algorithm(keys / 10);
}

/// The same of states that a sharded map keeps.
fn of_another_algorithm(keys: u64) {
    let rule = Algorithm::SlidingLog(sliding_log::Rule::new(Rate { count: 1 << 10, period_ns: DAY_NS }).unwrap());
    let table = Table::new(&rule, usize::try_from(keys * 2).unwrap(), OnFull::Shared);
    let decide = |number: u64| decide(&table, &rule, number);
    (0..keys).for_each(decide);
    while_written("another algorithm", &table, |number| {
        table.peek(key(number * 7919 % keys), &rule, 1, NOW);
    });
}

/// Decides while the table is written to a file, three times, as the program does it.
fn while_written(name: &str, table: &Table, decide: impl Fn(u64) + Sync) {
    let folder = tempfile::tempdir().unwrap();
    let bans = Bans::default();
    for _ in 0..3 {
        let (is_over, decided) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let decisions = scope.spawn(|| {
                let numbers = (0..).take_while(|_| !is_over.load(Ordering::Relaxed));
                time(numbers.inspect(|number| decided.store(*number, Ordering::Relaxed)), &decide)
            });
            let began = Instant::now();
            let written = file::replace(&folder.path().join("state"), |to| {
                let mut snapshot = Snapshot::begin(to, &[7; 16], NOW, NOW)?;
                snapshot.limit("a", table, &bans, |_| None)?;
                snapshot.finish().map(drop)
            });
            let (bytes, took) = (written.unwrap(), began.elapsed());
            is_over.store(true, Ordering::Relaxed);
            let slow = decisions.join().unwrap();
            let (decided, keys) = (decided.load(Ordering::Relaxed), table.len());
            println!(
                "{keys} keys of {name}: {} MB written in {} ms, during {decided} decisions, of which one in {} was slow",
                bytes >> 20,
                took.as_millis(),
                decided / (slow.len() as u64).max(1)
            );
            report(&format!("while {name} were written"), slow);
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

/// What takes longer is remembered: many times a decision, and less than a shard of thousands of keys takes to grow.
const SLOW: Duration = Duration::from_micros(50);

/// The slow ones of these decisions, each measured from the end of the one before.
fn time(numbers: impl Iterator<Item = u64>, decide: impl Fn(u64)) -> Vec<Duration> {
    let mut slow = Vec::with_capacity(1 << 16);
    let mut last = Instant::now();
    for number in numbers {
        decide(number);
        let now = Instant::now();
        if now - last > SLOW {
            slow.push(now - last);
        }
        last = now;
    }
    slow
}

fn report(name: &str, mut slow: Vec<Duration>) {
    slow.sort_unstable();
    let at = |part: usize| slow.get((slow.len() * part / 100).min(slow.len().saturating_sub(1)));
    let ms = |part| at(part).copied().unwrap_or_default().as_secs_f64() * 1e3;
    println!("{:>6} slow {name}: {:.3} {:.3} {:.3} ms", slow.len(), ms(50), ms(99), ms(100));
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
