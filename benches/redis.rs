//! Decisions per second of one Redis core: asked by Weir's client, and by redis-benchmark with the same call.
//!
//! `cargo bench --bench redis`. Redis runs on the first core of this process, and its clients on the others. One worker
//! asks over one connection, and so does redis-benchmark, with as many calls on their way. Redis must be the bottleneck:
//! the share of its core that it used is in the table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]
#![allow(clippy::disallowed_methods, clippy::float_cmp)] // as where the tests' support comes from
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
#![allow(dead_code, unused_imports)] // a part of what tests share is for other tests

#[path = "../tests/e2e/ops.rs"]
mod ops;
#[path = "../tests/e2e/support/mod.rs"]
mod support;

use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::Redis;
use weir::base::telemetry::Metrics;
use weir::base::time::Clock;
use weir::engine::limit::{Algorithm, Key, Quota, Rate};
use weir::engine::store::backend::{Connections, Handling, Mirror, Mirrors, OnFailure, RemoteCharge, Units};
use weir::fleet::stores::driver::{Login, NodeAddress, RemoteSettings, Servers, Topology};
use weir::fleet::stores::redis::script;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SECOND_NS: u64 = 1_000_000_000;
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(3);
/// Calls on their way at once.
const CALLS: [usize; 3] = [1, 16, 128];

/// What one run found.
struct Sample {
    per_second: f64,
    /// The share of its core that Redis used.
    used: f64,
}

fn main() {
    let cores = allowed_cores();
    let [of_redis, others @ ..] = cores.as_slice() else { return println!("there is no core") };
    if others.is_empty() {
        return println!("Redis needs a core of its own: nothing was measured");
    }
    let others = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    pin(std::process::id(), &others);
    let redis = Redis::start();
    pin(redis.pid(), &of_redis.to_string());
    println!("| Calls at once | Weir's client, decisions/s | redis-benchmark, calls/s | ratio | Redis used its core |");
    println!("|---:|---:|---:|---:|---:|");
    let call = load_with_arguments(&redis, &seen_call(&redis));
    for calls in CALLS {
        let (mut by_weir, mut by_other) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let sample = measure(&redis, || decide(&redis, calls, TIME));
            // About as long.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate is not negative
            let requests = (sample.per_second * TIME.as_secs_f64()) as u64;
            by_weir.push(sample);
            by_other.push(measure(&redis, || benchmark(&redis, calls, &call, requests)));
        }
        let (weir, other) = (median(by_weir), median(by_other));
        println!(
            "| {calls} | {:.0} | {:.0} | {:.2} | {:.0} %, {:.0} % |",
            weir.per_second,
            other.per_second,
            weir.per_second / other.per_second,
            weir.used * 100.0,
            other.used * 100.0,
        );
    }
}

fn median(mut samples: Vec<Sample>) -> Sample {
    samples.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    samples.swap_remove(samples.len() / 2)
}

/// The result of `run` as calls per second, and the CPU time of Redis meanwhile.
fn measure(redis: &Redis, run: impl FnOnce() -> f64) -> Sample {
    let (before, start) = (cpu(redis.pid()), Instant::now());
    let per_second = run();
    Sample { per_second, used: (cpu(redis.pid()) - before) / start.elapsed().as_secs_f64() }
}

/// A limit that is never reached.
fn rule() -> Algorithm {
    Algorithm::TokenBucket(Quota::new(Rate { count: 1_000_000, period_ns: SECOND_NS }, 1_000_000).unwrap())
}

fn settings(redis: &Redis) -> RemoteSettings {
    let address = redis.address();
    let node = NodeAddress::tcp(address.ip().to_string(), address.port());
    let topology = Topology::Ring(vec![node]);
    RemoteSettings {
        name: "main".into(),
        servers: Servers::Redis { topology, login: Login::default(), prefix: "weir".into() },
        tls: None,
        timeout: Duration::from_secs(5),
        on_failure: OnFailure::Split,
    }
}

/// This replica knows of no key that a server without keys should get.
struct Nothing;

impl Mirrors for Nothing {
    fn visit(&self, _: &str, _: usize, _: &mut dyn FnMut(&Mirror<'_>)) -> bool {
        false
    }
}

/// Decisions per second of one worker that always has `calls` of them on their way.
fn decide(redis: &Redis, calls: usize, time: Duration) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let metrics = Metrics::new("0", "0").unwrap();
    let store = settings(redis).store(Key::default(), Clock::start(), &metrics).unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let background = tokio::spawn(store.run(Arc::new(Nothing)));
        let worker = store.connect();
        while !is_decided(&*worker, &rule()).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (count, start) = (Rc::new(Cell::new(0_u64)), Instant::now());
        let ask = |_| {
            let (worker, count, rule) = (Rc::clone(&worker), Rc::clone(&count), rule());
            tokio::task::spawn_local(async move {
                while start.elapsed() < time {
                    assert!(is_decided(&*worker, &rule).await, "Redis did not decide");
                    count.set(count.get() + 1);
                }
            })
        };
        for task in (0..calls).map(ask).collect::<Vec<_>>() {
            task.await.unwrap();
        }
        background.abort();
        count.get() as f64 / start.elapsed().as_secs_f64()
    })
}

/// Takes one unit, and returns whether Redis decided.
async fn is_decided(worker: &dyn Connections, rule: &Algorithm) -> bool {
    let key = Key { first: 1, second: 2 };
    let charge = RemoteCharge {
        limit: "per-ip",
        key,
        rule,
        units: Units::exactly(1),
        handling: Handling::Enforce,
        asked_again_until: None,
    };
    worker.decide(&[charge]).await.outcomes[0].is_ok()
}

/// The words of a call that Weir's client makes.
fn seen_call(redis: &Redis) -> Vec<Vec<u8>> {
    let mut monitor = BufReader::new(TcpStream::connect(redis.address()).unwrap());
    monitor.get_mut().write_all(b"MONITOR\r\n").unwrap();
    monitor.read_line(&mut String::new()).unwrap();
    decide(redis, 1, Duration::from_millis(1));
    let lines = monitor.lines().map(Result::unwrap);
    let call =
        lines.filter(|line| line.contains("\"EVALSHA\"") && line.contains("per-ip")).map(|line| words(&line)).next();
    call.unwrap()
}

/// The words in quotes of a line of MONITOR.
fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut rest) = (Vec::new(), line.bytes());
    while rest.any(|byte| byte == b'"') {
        let mut word = Vec::new();
        loop {
            match rest.next().unwrap() {
                b'"' => break,
                b'\\' => word.push(match rest.next().unwrap() {
                    b'x' => {
                        let digits = [rest.next().unwrap(), rest.next().unwrap()];
                        u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                    }
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    other => other,
                }),
                byte => word.push(byte),
            }
        }
        words.push(word);
    }
    words
}

/// Loads the script of a call with the arguments of that call in its text, and returns the words of a call of it. For
/// redis-benchmark sends no argument with a zero in it.
fn load_with_arguments(redis: &Redis, call: &[Vec<u8>]) -> Vec<String> {
    let text = |word: &Vec<u8>| String::from_utf8(word.clone()).unwrap();
    let script = script::all().into_iter().find(|script| script.sha == text(&call[1])).unwrap();
    let keys: usize = text(&call[2]).parse().unwrap();
    let (keys, arguments) = call[3..].split_at(keys);
    let escaped = |word: &Vec<u8>| word.iter().map(|byte| format!("\\{byte:03}")).collect::<Vec<_>>().concat();
    let arguments: Vec<String> = arguments.iter().map(|word| format!("\"{}\"", escaped(word))).collect();
    let sha = redis.call(&["SCRIPT", "LOAD", &format!("local ARGV = {{ {} }}\n{}", arguments.join(", "), script.text)]);
    let words = ["EVALSHA".to_owned(), sha.text().to_owned(), keys.len().to_string()];
    words.into_iter().chain(keys.iter().map(text)).collect()
}

/// Calls per second of redis-benchmark, with `calls` of them on their way over one connection.
fn benchmark(redis: &Redis, calls: usize, words: &[String], requests: u64) -> f64 {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &redis.address().port().to_string(), "-c", "1", "-P", &calls.to_string()]);
    let output = command.args(["-n", &requests.to_string(), "--csv"]).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // A line of titles, and a line with the call, which may contain commas, and eight numbers.
    let line = text.lines().last().unwrap();
    let number = line.rsplit(',').nth(6).unwrap_or_else(|| panic!("{text}"));
    number.trim_matches('"').parse().unwrap_or_else(|_| panic!("{text}"))
}

/// Seconds of CPU time of a process.
fn cpu(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// The cores on which this process may run.
fn allowed_cores() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

/// Lets all threads of a process run on these cores only.
fn pin(pid: u32, cores: &str) {
    let output = Command::new("taskset").args(["-a", "-p", "-c", cores, &pid.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
