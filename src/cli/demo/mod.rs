//! `weir demo`: runs Weir in front of a built-in service, and prints commands that show its features.

mod fleet;
mod upstream;

use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::json;

use crate::app::{App, AppError};
use crate::cli::output::fail;
use crate::config;
use crate::net::ListenAddress;
use crate::telemetry::{LogGuard, start_logs};
use crate::time::Clock;

const CONFIG: &str = include_str!("demo.toml");
const GUIDE: &str = include_str!("guide.txt");

/// The environment variable of the configuration. The demo supplies its value.
const SECRET_NAME: &str = "WEIR_DEMO_SECRET";
/// The length of the hash (RFC 7518, section 3.2).
const SECRET_BYTES: usize = 32;
const TOKEN_LIFE_S: u64 = 24 * 3600;

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9901);
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(super) fn demo(listen: Option<SocketAddr>, is_fleet: bool) -> ExitCode {
    match if is_fleet { fleet::run() } else { run(listen) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error),
    }
}

fn run(listen: Option<SocketAddr>) -> Result<(), Box<dyn Error>> {
    let upstream = TcpListener::bind(ANY_PORT)?;
    upstream.set_nonblocking(true)?;
    let secret = Secret::random()?;
    let (app, _logs) = start(listen, upstream.local_addr()?, &secret)?;
    let guide = guide(&app, &secret)?;
    let service = async {
        // The demo also runs without a reader of the guide.
        let _ = std::io::stdout().write_all(guide.as_bytes());
        serve(upstream).await;
    };
    Ok(app.run(None, service)?)
}

/// Runs the built-in service on `listener`.
async fn serve(listener: TcpListener) {
    match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => upstream::serve(listener).await,
        Err(error) => tracing::error!(%error, "cannot serve behind Weir"),
    }
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
        let env = |name: &str| (name == SECRET_NAME).then(|| secret.text.clone());
        let config = config::compile(&text, "demo", Path::new(""), &env)?;
        let log = config.log.clone();
        match App::new(config, None) {
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

fn guide(app: &App, secret: &Secret) -> Result<String, Box<dyn Error>> {
    Ok(GUIDE
        .replace("$URL", &url(app.addresses().first()))
        .replace("$ADMIN", &url(app.admin_address()))
        .replace("$TOKEN_7", &secret.token(7)?)
        .replace("$TOKEN_8", &secret.token(8)?))
}

/// The URL of a TCP address.
fn url(place: Option<&ListenAddress>) -> String {
    match place {
        Some(ListenAddress::Tcp(address)) => format!("http://{}", reachable(*address)),
        _ => String::new(),
    }
}

/// The address that a client on this machine connects to. `address` may stand for all addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
        _ => address,
    }
}

/// The secret that signs the tokens of this run.
struct Secret {
    text: String,
}

impl Secret {
    fn random() -> Result<Self, Box<dyn Error>> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self { text: URL_SAFE_NO_PAD.encode(bytes) })
    }

    /// A token of a seller, valid for a day.
    fn token(&self, seller: u64) -> Result<String, Box<dyn Error>> {
        let expires = Clock::start().now().as_secs() + TOKEN_LIFE_S;
        let head = json!({ "alg": "HS256", "typ": "JWT" });
        let claims = json!({ "sellerId": seller, "exp": expires });
        let signed = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let key = EncodingKey::from_secret(self.text.as_bytes());
        let signer = (DEFAULT_PROVIDER.signer_factory)(&Algorithm::HS256, &key)?;
        let signature = signer.try_sign(signed.as_bytes())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
