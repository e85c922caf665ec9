//! A Weir without requests leaves the CPU to others.

use std::fs::read_to_string;
use std::time::{Duration, Instant};

use crate::ops::until;
use crate::support::{Upstream, Weir};

/// How often all threads of a process have gone to sleep.
fn sleeps(weir: &Weir) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{}/task", weir.pid())).unwrap();
    threads
        .filter_map(|thread| {
            // A thread may end meanwhile.
            let status = read_to_string(thread.unwrap().path().join("status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
            Some(line.trim().parse::<usize>().unwrap())
        })
        .sum()
}

/// Each thread looks once a second at what has changed, and its runtime may wake once more on the way.
#[test]
fn an_idle_process_seldom_wakes() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, "[[limit]]\nname = \"clients\"\nkey = [\"ip\"]\nrate = \"10/s\"\n");
    // What begins with the process is over.
    until("a quiet second", || {
        let (before, begin) = (sleeps(&weir), Instant::now());
        until("a second", || begin.elapsed() >= Duration::from_secs(1));
        // Three threads.
        sleeps(&weir).checked_sub(before).is_some_and(|woken| woken <= 14)
    });
}
