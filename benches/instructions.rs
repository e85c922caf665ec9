//! How many instructions a decision takes, which is the same on a busy machine as on a quiet one.
//!
//! `cargo bench --bench instructions` runs itself under `valgrind --tool=callgrind` twice for each row, with few
//! and with many decisions, and prints the difference for one. Waiting for memory or for other threads is not in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "support/subject.rs"]
mod subject;

use std::hint::black_box;
use std::process::{Command, ExitCode};

use subject::{OTHERS, STRIDE, Subject};
use weir::base::time::Timestamp;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: u32 = 10_000;
const FEW: u32 = KEYS;
const MANY: u32 = 3 * KEYS;

/// The keys of the limits, and what to call them.
const ROWS: [(&str, &[&str]); 5] = [
    ("1 limit by address", &[r#"["ip"]"#]),
    ("2 limits by address", &[r#"["ip"]"#; 2]),
    ("4 limits by address", &[r#"["ip"]"#; 4]),
    ("by address, and by address and header", &[r#"["ip"]"#, r#"["ip", "header:x-api-key"]"#]),
    ("by path and header", &[r#"["path", "header:x-api-key"]"#]),
];

fn main() -> ExitCode {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    if let [row, others, decisions] = numbers[..] {
        run(row as usize, others, decisions);
        return ExitCode::SUCCESS;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("valgrind is missing: nothing was counted");
        return ExitCode::SUCCESS;
    }
    let mut rows: Vec<_> = ROWS.iter().enumerate().map(|(row, (name, _))| (row, 0, (*name).to_owned())).collect();
    for (row, (name, _)) in OTHERS.iter().enumerate() {
        rows.extend([8, 98, 998].map(|others| (row, others, format!("2 limits, and {others} for other {name}"))));
    }
    for (row, others, name) in rows {
        let (Some(few), Some(many)) = (count(row, others, FEW), count(row, others, MANY)) else {
            println!("valgrind failed on: {name}");
            return ExitCode::FAILURE;
        };
        println!("{:>5} instructions: {name}", (many - few) / u64::from(MANY - FEW));
    }
    ExitCode::SUCCESS
}

/// This many decisions, first one for each key. Without `others`, `row` is one of `ROWS`, else one of `OTHERS`.
fn run(row: usize, others: u32, decisions: u32) {
    let subject = if others == 0 { Subject::new(ROWS[row].1) } else { Subject::among(others as usize, OTHERS[row].1) };
    let mut clock = Timestamp::from_ns(1);
    for step in 0..decisions {
        let client = u64::from(step) * u64::from(STRIDE) % u64::from(KEYS);
        assert!(subject.decide(black_box(u32::try_from(client).unwrap()), &mut clock));
    }
}

/// Instructions of a whole process that makes this many decisions, from the summary that callgrind ends with.
fn count(row: usize, others: u32, decisions: u32) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args([row.to_string(), others.to_string(), decisions.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, summary) = text.split_once("Collected : ")?;
    summary.split_whitespace().next()?.parse().ok()
}
