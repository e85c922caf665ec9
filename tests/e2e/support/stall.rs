//! Bytes that somebody writes until nobody takes them any more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::PATIENCE;

/// Writes `len` bytes in pieces, and counts them.
pub fn pour(len: usize, mut write: impl FnMut(&[u8]) -> bool, count: &AtomicUsize) {
    let piece = vec![7; 64 * 1024];
    while count.load(Ordering::Relaxed) < len && write(&piece) {
        count.fetch_add(piece.len(), Ordering::Relaxed);
    }
}

/// Waits until `count` has not changed for 150 ms, and returns it. A blocked write is no event, so this takes time. A pause
/// of the machine gives a smaller count, which fails no test.
pub fn wait_until_stalled(count: &AtomicUsize) -> usize {
    const WHILE: Duration = Duration::from_millis(150);
    let until = Instant::now() + PATIENCE;
    let (mut last, mut since) = (0, Instant::now());
    while last == 0 || since.elapsed() < WHILE {
        let now = count.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        assert!(Instant::now() < until, "still moving at {now}");
        thread::park_timeout(Duration::from_millis(1));
    }
    last
}
