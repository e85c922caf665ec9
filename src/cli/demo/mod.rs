//! `weir demo`: runs Weir in front of a built-in service, and prints commands that show its features.

mod address;
mod fleet;
mod load;
mod secret;
mod upstream;

use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;

use address::{ANY_PORT, url};
use secret::{Secret, origin};

use crate::app::remote::ConfigFeed;
use crate::app::{App, AppError, ignore_signals};
use crate::base::telemetry::{LogGuard, start_logs};
use crate::cli::output::fail;
use crate::config;
use crate::transport::net::ListenAddress;

const CONFIG: &str = include_str!("demo.toml");
const GUIDE: &str = include_str!("guide.txt");

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9901);

/// The sellers that send load.
const LOAD_SELLERS: std::ops::Range<u64> = 101..121;
const LOAD_RUNS: &str = "Six clients send load for about ten minutes, so the page is alive.";
const LOAD_IS_OFF: &str = "With `weir demo --load` clients send load for about ten minutes, so that the page is alive.";

pub(super) fn demo(listen: Option<SocketAddr>, is_fleet: bool, has_load: bool) -> ExitCode {
    match ignore_signals()
        .map_err(Into::into)
        .and_then(|()| if is_fleet { fleet::run() } else { run(listen, has_load) })
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error),
    }
}

fn run(listen: Option<SocketAddr>, has_load: bool) -> Result<(), Box<dyn Error>> {
    let upstream = TcpListener::bind(ANY_PORT)?;
    upstream.set_nonblocking(true)?;
    let secret = Secret::random()?;
    let (app, _logs) = start(listen, upstream.local_addr()?, &secret)?;
    let guide = guide(&app, &secret, has_load)?;
    let service_address = app.addresses().first().and_then(ListenAddress::reachable).filter(|_| has_load);
    let tokens = LOAD_SELLERS.map(|seller| secret.token(seller)).collect::<Result<Vec<_>, _>>()?;
    let service = async {
        // The demo also runs without a reader of the guide.
        let _ = std::io::stdout().write_all(guide.as_bytes());
        let load = async {
            if let Some(address) = service_address {
                load::send(address, tokens).await;
            }
        };
        tokio::join!(upstream::serve_on(upstream), load);
    };
    Ok(app.run(None, service)?)
}

/// Binds the given address, or the default ports, or free ports if these are in use.
fn start(listen: Option<SocketAddr>, upstream: SocketAddr, secret: &Secret) -> Result<(App, LogGuard), Box<dyn Error>> {
    let mut address = listen.unwrap_or(LISTEN);
    let mut admin = if address == ADMIN { ANY_PORT } else { ADMIN };
    loop {
        let text = CONFIG
            .replace("$LISTEN", &address.to_string())
            .replace("$UPSTREAM", &upstream.to_string())
            .replace("$ADMIN", &admin.to_string());
        let origin = origin(text, secret);
        let config = config::load(&origin)?;
        let log = config.log.clone();
        match App::new(config, Some(ConfigFeed::Fixed(origin))) {
            Ok(app) => return Ok((app, start_logs(&log)?)),
            Err(AppError::Listen(taken, error)) if error.kind() == std::io::ErrorKind::AddrInUse => {
                if taken == ListenAddress::Tcp(admin) && admin != ANY_PORT {
                    admin = ANY_PORT;
                } else if listen.is_none() && address != ANY_PORT {
                    address = ANY_PORT;
                } else {
                    return Err(AppError::Listen(taken, error).into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn guide(app: &App, secret: &Secret, has_load: bool) -> Result<String, Box<dyn Error>> {
    Ok(GUIDE
        .replace("$LOAD", if has_load { LOAD_RUNS } else { LOAD_IS_OFF })
        .replace("$URL", &url(app.addresses().first()))
        .replace("$ADMIN", &url(app.admin_address()))
        .replace("$TOKEN_7", &secret.token(7)?)
        .replace("$TOKEN_8", &secret.token(8)?))
}
