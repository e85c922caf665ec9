//! What a decision costs whose charge other replicas hear of, and how many charges of others one core takes in.
//!
//! `cargo bench --bench streams`.
//!
//! The first table has decisions of local limits and of limits shared by streams, in turns of 50,000, over 10,000 keys.
//! Meanwhile another thread takes the charges every 20 ms, as the streams do.
//!
//! For the second table, one thread makes a million charges a second and sends them to another thread, by the streams of a
//! fleet: gRPC on the loopback address, without TLS, a batch every 20 ms. The receiver charges them to the tables of a gate.
//! A row says in how many keys the charges are, by how many replicas they come, how many arrived, and the CPU time of the
//! receiving thread for each, with its sockets.
//!
//! All times are CPU times of one thread, so a busy machine changes them little.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(clippy::disallowed_methods)] // it measures
#![allow(clippy::cast_precision_loss)]

#[path = "support/subject.rs"]
mod subject;

use std::hint::black_box;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use subject::{STRIDE, Subject};
use weir::base::split_mix::mix;
use weir::base::telemetry::Metrics;
use weir::base::time::{Clock, Timestamp};
use weir::engine::limit::Key;
use weir::engine::policy::FleetSecret;
use weir::engine::store::stream::message::{BanChange, Cursor, LimitCharges, LimitStates, States};
use weir::engine::store::stream::{Ledger, Link, Taken, Timing};
use weir::fleet::grpc::fleet::settings::{FleetSettings, MemberSource};
use weir::fleet::grpc::fleet::{FleetParts, Hub, accept, run};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The charges of all senders in a second.
const CHARGES_PER_S: u64 = 1_000_000;
/// The measurements of a row, after one that warms up.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
const MS: u64 = 1_000_000;
/// The charges of a late sender are dropped beyond those of so many nanoseconds.
const LATE_NS: u64 = 100 * MS;

/// The keys in turn, and the replicas that charge them.
const ROWS: [(u64, u64); 6] = [(100, 2), (1_000, 2), (10_000, 2), (100_000, 2), (1_000_000, 2), (10_000, 7)];

/// A replica that makes charges of one unit, each for the next key.
struct Made {
    keys: u64,
    per_s: u64,
    next: u64,
    /// The instant up to which charges were made.
    until: Timestamp,
}

impl Ledger for Made {
    fn take(&mut self, now: Timestamp) -> Taken {
        let from = self.until.max(now.saturating_sub_ns(LATE_NS));
        let due = now.ns_since(from) * self.per_s / 1_000_000_000;
        self.until = now;
        let mut charges = LimitCharges::of("l0", None);
        for number in 0..due.min(self.keys) {
            // The first keys have one charge more if the charges do not divide.
            let units = due / self.keys + u64::from(number < due % self.keys);
            let key = (self.next + number) % self.keys;
            charges.push(Key::of_hash(mix(2 * key), mix(2 * key + 1)), units.cast_signed());
        }
        self.next = (self.next + due) % self.keys;
        Taken { limits: vec![charges], bans: Vec::new(), is_complete: true }
    }

    fn charge(&mut self, _: &LimitCharges, _: Timestamp, _: Timestamp) {}

    fn ban(&mut self, _: &[BanChange], _: Timestamp) {}

    fn states(&mut self, at: &Cursor, _: Timestamp) -> States {
        States { at: Some(at.clone()), ..States::default() }
    }

    fn merge(&mut self, _: &LimitStates, _: Timestamp) {}
}

/// Tables that count the units they are charged, and the entries in which these come.
struct Counted<L> {
    tables: L,
    count: Arc<Count>,
}

#[derive(Default)]
struct Count {
    units: AtomicU64,
    entries: AtomicU64,
}

impl<L: Ledger> Ledger for Counted<L> {
    fn take(&mut self, now: Timestamp) -> Taken {
        self.tables.take(now)
    }

    fn charge(&mut self, charges: &LimitCharges, at: Timestamp, now: Timestamp) {
        let units: i64 = charges.units.iter().sum();
        self.count.units.fetch_add(units.cast_unsigned(), Ordering::Relaxed);
        self.count.entries.fetch_add(charges.units.len() as u64, Ordering::Relaxed);
        self.tables.charge(charges, at, now);
    }

    fn ban(&mut self, bans: &[BanChange], now: Timestamp) {
        self.tables.ban(bans, now);
    }

    fn states(&mut self, at: &Cursor, now: Timestamp) -> States {
        self.tables.states(at, now)
    }

    fn merge(&mut self, states: &LimitStates, now: Timestamp) {
        self.tables.merge(states, now);
    }
}

/// One replica of a fleet with this ledger.
fn hub(instance: u64, members: Vec<Box<str>>, link: Arc<Link>, ledger: Box<dyn Ledger + Send>) -> Arc<Hub> {
    let parts = FleetParts {
        clock: Clock::start(),
        ledger,
        link,
        key: FleetSecret::new(b"0123456789abcdef0123456789ABCDEF").unwrap().proof_key(),
        metrics: Metrics::new("0", "0").unwrap().show_fleet().unwrap(),
        instance,
    };
    let settings = FleetSettings {
        members: MemberSource::Static(members.into()),
        advertise: None,
        tls: None,
        timing: Timing { interval_ns: 20 * MS, isolate_after_ns: 1000 * MS },
        replicas: None,
        max_replicas: 16,
        leave_after: Duration::from_secs(30),
    };
    Hub::new(parts, settings)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Waits until `is_over`.
async fn until(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The CPU time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
}

/// One measurement: charges and entries in a second, and the CPU time of a charge in nanoseconds.
struct Measured {
    charges_per_s: f64,
    entries_per_s: f64,
    cpu_ns: f64,
}

async fn measure(count: &Count) -> Measured {
    let read = || (count.units.load(Ordering::Relaxed), count.entries.load(Ordering::Relaxed), thread_cpu());
    let (began, before) = (Instant::now(), read());
    tokio::time::sleep(ROUND).await;
    let (took_s, after) = (began.elapsed().as_secs_f64(), read());
    let charges = (after.0 - before.0) as f64;
    Measured {
        charges_per_s: charges / took_s,
        entries_per_s: (after.1 - before.1) as f64 / took_s,
        cpu_ns: after.2.saturating_sub(before.2).as_nanos() as f64 / charges,
    }
}

/// Runs one receiver and its senders.
fn row(keys: u64, senders: u64) -> Vec<Measured> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address: Box<str> = listener.local_addr().unwrap().to_string().into();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            runtime().block_on(async {
                for sender in 0..senders {
                    let made = Made { keys, per_s: CHARGES_PER_S / senders, next: 0, until: Clock::start().now() };
                    let hub = hub(2 + sender, vec![address.clone()], Arc::default(), Box::new(made));
                    tokio::spawn(run(hub));
                }
                until(&is_over).await;
            });
        });
        let subject = Subject::streamed(1, Some(2_000_000));
        let count = Arc::<Count>::default();
        let ledger = Counted { tables: subject.ledger(), count: Arc::clone(&count) };
        let rounds = runtime().block_on(async {
            let hub = hub(1, Vec::new(), subject.link(), Box::new(ledger));
            accept(&hub, listener).unwrap();
            tokio::spawn(run(hub));
            // Until all are connected and all keys are known.
            measure(&count).await;
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                rounds.push(measure(&count).await);
            }
            rounds
        });
        is_over.store(true, Ordering::Relaxed);
        rounds
    })
}

/// The medians of the CPU time of a decision, local and shared, and the median of the ratios of two turns, in nanoseconds.
fn decisions(limits: usize) -> [f64; 3] {
    const KEYS: u32 = 10_000;
    const TURN: u32 = 50_000;
    const TURNS: usize = 101;
    let subjects = [Subject::by_address(limits), Subject::streamed(limits, None)];
    let (mut ledger, is_over) = (subjects[1].ledger(), AtomicBool::new(false));
    let (mut clock, mut client) = (Timestamp::from_ns(1), 0);
    let mut turn = |subject: &Subject| {
        let before = thread_cpu();
        for _ in 0..TURN {
            client = (client + STRIDE) % KEYS;
            assert!(black_box(subject.decide(black_box(client), &mut clock)));
        }
        thread_cpu().saturating_sub(before).as_nanos() as f64 / f64::from(TURN)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
                black_box(ledger.take(Timestamp::ZERO));
            }
        });
        // All keys are known after the first turn.
        let turns: Vec<[f64; 2]> = (0..TURNS).map(|_| subjects.each_ref().map(&mut turn)).skip(1).collect();
        is_over.store(true, Ordering::Relaxed);
        let of = |one: fn(&[f64; 2]) -> f64| median(&turns, one);
        [of(|[local, _]| *local), of(|[_, shared]| *shared), of(|[local, shared]| shared / local)]
    })
}

fn median<T>(rounds: &[T], of: impl Fn(&T) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    println!("| Limits | `local` | `stream` | Ratio |");
    println!("|---:|---:|---:|---:|");
    for limits in [1, 2] {
        let [local, shared, ratio] = decisions(limits);
        println!("| {limits} | {local:.0} ns | {shared:.0} ns | {ratio:.2} |");
    }
    println!();
    println!("| Keys | Senders | Charges/s | Entries/s | CPU of a charge, min to max | One core takes in |");
    println!("|---:|---:|---:|---:|---:|---:|");
    for (keys, senders) in ROWS {
        let rounds = row(keys, senders);
        let cpu_ns = median(&rounds, |round| round.cpu_ns);
        let least = rounds.iter().map(|round| round.cpu_ns).fold(f64::INFINITY, f64::min);
        let most = rounds.iter().map(|round| round.cpu_ns).fold(0.0, f64::max);
        println!(
            "| {keys} | {senders} | {:.0} | {:.0} | {cpu_ns:.0} ns ({least:.0} to {most:.0}) | {:.1} million/s |",
            median(&rounds, |round| round.charges_per_s),
            median(&rounds, |round| round.entries_per_s),
            1000.0 / cpu_ns
        );
    }
}
