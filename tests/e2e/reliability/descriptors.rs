//! No descriptor is left.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::service::quick;
use crate::ops::until;
use crate::support::{Client, NEVER, PATIENCE, Weir};

/// What of a processor may be spent on trying again, in parts of one.
const CPU_MAX: f64 = 0.1;

/// Takes all descriptors but a few away while `clients` connect, and looks on for a time. Says what it saw.
pub fn descriptors(clients: usize, time: Duration) -> String {
    let upstream = quick();
    let weir = Weir::start(&upstream, NEVER);
    let mut known = Client::connect(weir.address());
    assert_eq!(known.get("/").status, 200);
    limit(&weir, Some(open(&weir) as u64 + 5));

    let mut waiting: Vec<Client> = (0..clients).map(|_| ask(&weir)).collect();
    let operators: Vec<_> = (0..20).map(|_| TcpStream::connect(weir.admin()).unwrap()).collect();
    weir.wait_for_lines("cannot accept connections", 1);
    weir.wait_for_lines("cannot accept on the admin listener", 1);
    // Those who came in last may have its connection to the service just now.
    until("who is in already goes on", || known.get("/").status == 200);
    let (began, spent, lines) = (Instant::now(), cpu(&weir), complaints(&weir));
    while began.elapsed() < time {
        // Who is in already goes on: its connection to the service is there.
        assert_eq!(known.get("/").status, 200);
        std::thread::park_timeout(Duration::from_millis(100));
    }
    // A busy machine may take longer.
    let took = began.elapsed();
    let share = cpu(&weir).saturating_sub(spent).as_secs_f64() / took.as_secs_f64();
    assert!(share < CPU_MAX, "{share:.3} of a processor");
    let lines = complaints(&weir) - lines;
    assert!(lines <= 5 * (took.as_secs() + 1), "{lines} lines in {took:?}");

    limit(&weir, getrlimit(Resource::Nofile).maximum);
    for client in &mut waiting {
        // One that was let in may have found no descriptor for the service.
        assert!(matches!(client.answer().status, 200 | 502));
    }
    assert_eq!(ask(&weir).answer().status, 200);
    drop((waiting, operators));
    weir.wait_for_metric("weir_connections", |open| open <= 2.0);
    format!(
        "{clients} clients and no descriptor: {:.1} % of a processor, {lines} lines in {took:.0?}; then all were served",
        share * 100.0
    )
}

fn ask(weir: &Weir) -> Client {
    let stream = TcpStream::connect(weir.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client::over(stream);
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    client
}

/// Lets it have so many descriptors, of those that this process could have as well.
fn limit(weir: &Weir, most: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(weir.pid()).unwrap());
    let maximum = getrlimit(Resource::Nofile).maximum;
    prlimit(pid, Resource::Nofile, Rlimit { current: most, maximum }).unwrap();
}

/// The lines of the log about failures. Lines of level `trace` depend on the instant at which clients get in.
fn complaints(weir: &Weir) -> u64 {
    weir.lines().iter().filter(|line| !line.contains("\"TRACE\"")).count() as u64
}

/// Descriptors that it has.
pub fn open(weir: &Weir) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", weir.pid())).unwrap().count()
}

/// Time on a processor that it has spent.
fn cpu(weir: &Weir) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", weir.pid())).unwrap();
    // Behind the name, which is in brackets: the 12th and the 13th, in hundredths of a second.
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}
