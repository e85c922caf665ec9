//! An open-loop latency generator: HTTP/1.1 requests on a fixed schedule, each timed from its intended start.
//!
//! `cargo bench --bench latency -- --help`. Here are the command line and what a run is; a run's parts are below
//! `latency/`. It does not look for the rate that a server can bear, and speaks no TLS and no HTTP/2:
//! `compare/run.py latency` drives it.

// A generator of load reads clocks, and nothing outside reaches its items.
#![allow(clippy::disallowed_methods, unreachable_pub)]

#[path = "latency/answer.rs"]
mod answer;
#[path = "latency/generator.rs"]
mod generator;
#[path = "latency/record.rs"]
mod record;
#[path = "latency/schedule.rs"]
mod schedule;
#[path = "latency/server.rs"]
mod server;
#[path = "latency/target.rs"]
mod target;
#[path = "latency/timer.rs"]
mod timer;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::generator::{Failure, Plan};
use crate::record::Report;
use crate::target::Target;

/// Sends HTTP/1.1 requests at a constant rate, and measures each from the moment at which it should have started.
///
/// Request number k is due k/RATE seconds after the start, whatever became of those before it. It goes out on a free
/// connection; if none is free it waits, and that wait counts, so a server that stalls cannot hide it. Every answer's
/// status is checked. A run is good, and the exit code 0, if all requests were answered with that status.
#[derive(Parser)]
#[command(name = "latency", version)]
struct Arguments {
    /// http://ADDRESS:PORT/PATH; without it, one second against a small server of its own
    url: Option<String>,
    /// Keep-alive connections, over all threads
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Requests per second, over all connections
    #[arg(short, long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: u32,
    /// Requests that are due at once, so that the generator wakes less often: where it shares a core it disturbs less
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    group: u32,
    /// Seconds that are measured
    #[arg(short, long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Seconds at the same rate before them, which are not
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    warm_up: u32,
    /// Threads that send; connections and requests are divided among them
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// A header to send, as `NAME: VALUE`; may be given several times
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The status that every answer must have
    #[arg(long, default_value_t = 200)]
    status: u16,
    /// Print one line of JSON instead of text
    #[arg(long)]
    json: bool,
    /// What `cargo bench` says to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(report) if report.is_good() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("latency: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the plan of the command line and prints what came of it.
fn run(arguments: &Arguments) -> Result<Report, Failure> {
    let report = if let Some(url) = &arguments.url {
        generator::run(&plan(arguments, &Target::parse(url)?))?
    } else {
        println!("no URL is given, so this is one second against a server of its own; --help says more");
        let address = server::start()?;
        let short = Arguments { seconds: 1, warm_up: 0, ..Arguments::parse_from(["latency"]) };
        generator::run(&plan(&short, &Target::parse(&format!("http://{address}/"))?))?
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{report}");
    }
    Ok(report)
}

fn plan(arguments: &Arguments, target: &Target) -> Plan {
    Plan {
        request: target.request(&arguments.headers),
        address: target.address,
        connections: arguments.connections.max(arguments.threads),
        threads: arguments.threads,
        rate: arguments.rate,
        group: arguments.group,
        warm_up: Duration::from_secs(arguments.warm_up.into()),
        measured: Duration::from_secs(arguments.seconds.into()),
        status: arguments.status,
    }
}
