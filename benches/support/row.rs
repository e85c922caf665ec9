//! The time of one call, as a row of a table.

use std::fmt::Display;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The measurements of a row.
const SAMPLES: usize = 25;
/// The least time of a measurement.
const SAMPLE: Duration = Duration::from_millis(20);

/// Prints the median time of a call and its quartiles, in nanoseconds. With an argument, `cargo bench --bench NAME -- TEXT`,
/// only rows that contain it are measured.
pub(crate) fn row<T>(group: &str, name: impl Display, mut step: impl FnMut() -> T) {
    let name = format!("{group}/{name}");
    let mut wanted = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    if wanted.peek().is_some() && !wanted.any(|text| name.contains(&text)) {
        return;
    }
    let mut took = |calls: u32| {
        let begin = Instant::now();
        (0..calls).for_each(|_| _ = black_box(step()));
        begin.elapsed()
    };
    let mut calls = 1;
    while took(calls) < SAMPLE {
        calls *= 2;
    }
    let mut samples = [(); SAMPLES].map(|()| took(calls).as_secs_f64() * 1e9 / f64::from(calls));
    samples.sort_by(f64::total_cmp);
    let [low, median, high] = [1, 2, 3].map(|quarter| samples[quarter * (SAMPLES - 1) / 4]);
    println!("{name:<60} {median:>12.1} ns ({low:.1} to {high:.1})");
}
