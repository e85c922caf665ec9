//! `weir demo --fleet`: three replicas in one process that stream their charges to each other.

use std::error::Error;
use std::future::pending;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use super::address::{ANY_PORT, url};
use super::secret::{Secret, origin};
use super::upstream::serve_on;
use crate::app::remote::ConfigFeed;
use crate::app::{App, AppError};
use crate::base::telemetry::{LogGuard, start_logs};
use crate::config;

const CONFIG: &str = include_str!("fleet.toml");
const GUIDE: &str = include_str!("fleet.txt");

const REPLICAS: usize = 3;

/// Attempts to find free addresses. Another program may take one before a replica listens on it.
const ATTEMPTS: usize = 10;

/// Runs the replicas until a signal stops them.
pub(super) fn run() -> Result<(), Box<dyn Error>> {
    let upstream = TcpListener::bind(ANY_PORT)?;
    upstream.set_nonblocking(true)?;
    let (apps, _logs) = start(upstream.local_addr()?, &Secret::random()?)?;
    let guide = guide(&apps);
    let mut apps = apps.into_iter();
    let first = apps.next();
    let others: Vec<_> = apps.map(|app| thread::spawn(move || app.run(None, pending()))).collect();
    let service = async {
        // The demo also runs without a reader of the guide.
        let _ = std::io::stdout().write_all(guide.as_bytes());
        serve_on(upstream).await;
    };
    let mut result = first.map_or(Ok(()), |app| app.run(None, service));
    for other in others {
        result = result.and(other.join().unwrap_or(Ok(())));
    }
    Ok(result?)
}

/// Starts replicas that listen for each other on free ports.
fn start(upstream: SocketAddr, secret: &Secret) -> Result<(Vec<App>, LogGuard), Box<dyn Error>> {
    let mut attempts = 0;
    loop {
        let members = free_addresses()?;
        match members.iter().map(|member| replica(member, &members, upstream, secret)).collect() {
            Ok(apps) => {
                let log = config::load(&origin(text(ANY_PORT, &members, upstream), secret))?.log;
                return Ok((apps, start_logs(&log)?));
            }
            Err(error) if is_taken(&*error) && attempts < ATTEMPTS => attempts += 1,
            Err(error) => return Err(error),
        }
    }
}

fn is_taken(error: &(dyn Error + 'static)) -> bool {
    let listen =
        error.downcast_ref().and_then(|error| if let AppError::Listen(_, error) = error { Some(error) } else { None });
    listen.is_some_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

/// Addresses that nothing listens on now.
fn free_addresses() -> Result<Vec<SocketAddr>, std::io::Error> {
    let listeners = (0..REPLICAS).map(|_| TcpListener::bind(ANY_PORT)).collect::<Result<Vec<_>, _>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}

fn replica(
    member: &SocketAddr,
    members: &[SocketAddr],
    upstream: SocketAddr,
    secret: &Secret,
) -> Result<App, Box<dyn Error>> {
    let origin = origin(text(*member, members, upstream), secret);
    Ok(App::new(config::load(&origin)?, Some(ConfigFeed::Fixed(origin)))?)
}

/// The configuration of one replica.
fn text(member: SocketAddr, members: &[SocketAddr], upstream: SocketAddr) -> String {
    let all: Vec<_> = members.iter().map(|member| format!("\"{member}\"")).collect();
    CONFIG
        .replace("$UPSTREAM", &upstream.to_string())
        .replace("$MEMBERS", &all.join(", "))
        .replace("$MEMBER", &member.to_string())
}

fn guide(apps: &[App]) -> String {
    (1..).zip(apps).fold(GUIDE.to_owned(), |guide, (number, app)| {
        guide
            .replace(&format!("$URL{number}"), &url(app.addresses().first()))
            .replace(&format!("$ADMIN{number}"), &url(app.admin_address()))
    })
}
