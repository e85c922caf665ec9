//! All there is, for a time, and what is left of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::descriptors::open;
use super::service::quick;
use super::traffic::{HOST, Traffic};
use crate::support::{Cert, SetOnDrop, Upstream, Weir, trusting};

/// What a process has.
#[derive(Clone, Copy, Debug)]
struct Has {
    resident: usize,
    descriptors: usize,
    threads: usize,
    tasks: f64,
}

/// How long it is looked at once nobody asks any more.
const REST: Duration = Duration::from_secs(5);

/// Memory that may be more at the end: what an allocator keeps for a busier moment.
const MORE_MEMORY: usize = 8 << 20;

/// Threads of the runtime for blocking work that may be more at the end: they outlive their work by ten seconds, and a
/// part has some 20 reloads.
const BLOCKING_THREADS: usize = 2;

/// Lets clients of all kinds ask, over plain connections and TLS, through reloads, for this `time`. Says what it saw.
///
/// A first part of it brings memory, pools and tables to their size. What there is when all clients have gone is held
/// against what there was after that part.
pub fn soak(time: Duration) -> String {
    let upstream = quick();
    let cert = Cert::of_hosts(&[HOST]);
    let plain = start(&upstream, None);
    let tls = start(&upstream, Some(&cert));
    let config = |protocol| trusting(&[&cert], &[&rustls::version::TLS13], &[protocol], None);
    let mut traffic = Traffic {
        plain: plain.address(),
        tls: tls.address(),
        over_http1: config("http/1.1"),
        over_http2: config("h2"),
        is_over: AtomicBool::new(false),
        rounds: AtomicU64::new(0),
    };
    let weirs = [&plain, &tls];
    let mut before = None;
    let mut lines = Vec::new();
    for part in [time / 4, time / 4 * 3] {
        *traffic.is_over.get_mut() = false;
        let peaks = run(&traffic, &weirs, part);
        let rests = at_rest(weirs);
        let Some(befores) = before.replace(rests) else { continue };
        for (((name, first), last), (early, late)) in ["plain", "tls"].into_iter().zip(befores).zip(rests).zip(peaks) {
            let grown = format!("{name}: {first:?} became {last:?}; under load {early} became {late} bytes");
            assert!(last.resident <= first.resident + first.resident / 4 + MORE_MEMORY, "{grown}");
            assert!(late <= early + early / 4 + MORE_MEMORY, "{grown}");
            assert!(last.descriptors <= first.descriptors, "{grown}");
            assert!(last.threads <= first.threads + BLOCKING_THREADS, "{grown}");
            assert_eq!(last.tasks, first.tasks, "{grown}");
            lines.push(grown);
        }
    }
    let rounds = traffic.rounds.load(Ordering::Relaxed);
    format!("{rounds} rounds of clients in {time:?}; {}", lines.join("; "))
}

fn start(upstream: &Upstream, cert: Option<&Cert>) -> Weir {
    let limits = "\
        [[limit]]\nname = \"who\"\nkey = [\"query:who\"]\nrate = \"1000/s\"\nmatch = { path = \"/who\" }\n\
        [[limit]]\nname = \"held\"\nkey = []\nrate = \"200/s\"\nburst = 1\non_limit = \"hold\"\nmatch = { path = \"/held\" }\n\
        [[limit]]\nname = \"never\"\nkey = []\nrate = \"1/h\"\nburst = 1\non_limit = \"hold\"\nmatch = { path = \"/never\" }\n";
    let folder = tempfile::tempdir().unwrap();
    let tls = cert.map_or("", |cert| {
        cert.write(folder.path(), "a");
        "[server.tls]\ncertificates = [{ cert = \"a.pem\", key = \"a.key\" }]\n"
    });
    let text = Weir::upgrading(upstream, &["websocket"], "", &format!("{tls}{limits}"));
    // So that a rest shows nothing of it.
    let text = text.replace("[upstream]\n", "[upstream]\nidle_timeout = \"1s\"\n");
    std::fs::write(folder.path().join("weir.toml"), text).unwrap();
    Weir::start_in(folder)
}

/// Lets them ask for a time, with reloads. Says for each process its memory early and late, in the middle of what it was.
fn run(traffic: &Traffic, weirs: &[&Weir; 2], time: Duration) -> [(usize, usize); 2] {
    let began = Instant::now();
    let mut seen = [Vec::new(), Vec::new()];
    std::thread::scope(|scope| {
        for kind in Traffic::KINDS {
            scope.spawn(move || traffic.run(kind));
        }
        let _over = SetOnDrop(&traffic.is_over);
        while began.elapsed() < time {
            for (weir, seen) in weirs.iter().zip(&mut seen) {
                weir.signal("HUP");
                seen.push(weir.resident());
            }
            std::thread::park_timeout((time / 20).min(Duration::from_secs(1)));
        }
    });
    seen.map(|seen| {
        let third = (seen.len() / 3).max(1);
        let median = |part: &[usize]| {
            let mut part = part.to_vec();
            part.sort_unstable();
            part[part.len() / 2]
        };
        (median(&seen[..third]), median(&seen[seen.len() - third..]))
    })
}

/// What they have when nobody asks them any more.
fn at_rest(weirs: [&Weir; 2]) -> [Has; 2] {
    for weir in weirs {
        weir.wait_for_metric("weir_connections", |open| open == 0.0);
        weir.wait_for_metric("weir_held_requests{limit=\"never\"}", |held| held == 0.0);
    }
    // Idle connections to the service are closed within some seconds, and tasks are counted every second. To ask is a
    // connection and a task too, now and then: the least of many looks is without.
    let began = Instant::now();
    let mut least = weirs.map(has);
    while began.elapsed() < REST {
        std::thread::park_timeout(Duration::from_millis(260));
        for (least, now) in least.iter_mut().zip(weirs.map(has)) {
            *least = Has {
                resident: now.resident,
                descriptors: least.descriptors.min(now.descriptors),
                threads: least.threads.min(now.threads),
                tasks: least.tasks.min(now.tasks),
            };
        }
    }
    least
}

fn has(weir: &Weir) -> Has {
    let status = std::fs::read_to_string(format!("/proc/{}/status", weir.pid())).unwrap();
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap().trim().parse().unwrap();
    Has { resident: weir.resident(), descriptors: open(weir), threads, tasks: weir.metric("weir_tasks") }
}
