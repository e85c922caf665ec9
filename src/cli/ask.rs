//! A client of the admin listener of a running Weir.

use std::error::Error;
use std::fmt;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::signal::ctrl_c;
use tokio::time::timeout;

use crate::admin::MARK;
use crate::app::exchange::{self, Streamed, exchange};
use crate::app::remote::TlsFiles;
use crate::transport::net::Protocol;
use crate::transport::net::tls::{ClientTls, ServerName};

/// The address of an admin listener.
#[derive(Clone, Debug)]
pub(super) enum AdminAddress {
    Tcp { authority: Authority, is_tls: bool },
    Unix(PathBuf),
}

impl FromStr for AdminAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        let (is_tls, rest, usual) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest, Some(443)),
            (_, Some(rest)) => (false, rest, Some(80)),
            _ => (false, text, None),
        };
        let authority: Authority = rest.trim_end_matches('/').parse().map_err(|_| BAD_ADDRESS)?;
        if authority.as_str().contains('@') {
            return Err(BAD_ADDRESS);
        }
        let authority = match (authority.port_u16(), usual) {
            (Some(_), _) => authority,
            (None, Some(port)) => format!("{authority}:{port}").parse().map_err(|_| BAD_ADDRESS)?,
            (None, None) => return Err(BAD_ADDRESS),
        };
        Ok(Self::Tcp { authority, is_tls })
    }
}

impl AdminAddress {
    /// The address in the environment variable `WEIR_ADMIN`; without it 127.0.0.1:9901.
    pub(super) fn of_environment() -> Result<Self, String> {
        Self::of_text(&std::env::var("WEIR_ADMIN").unwrap_or_else(|_| "127.0.0.1:9901".to_owned()))
    }

    pub(super) fn of_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|reason| format!("`{text}` is no admin listener: {reason}"))
    }
}

/// The body of a success.
///
/// # Errors
/// The refusal as a message for the user.
pub(super) fn body_of<'a>(place: &AdminAddress, answer: &'a Response<Bytes>) -> Result<&'a [u8], String> {
    if answer.status().is_success() { Ok(answer.body()) } else { Err(refusal(place, answer)) }
}

/// The JSON of a success. The errors are those of [`body_of`].
pub(super) fn json_of(place: &AdminAddress, answer: &Response<Bytes>) -> Result<Value, String> {
    serde_json::from_slice(body_of(place, answer)?).map_err(|_| not_of_weir(place, answer))
}

/// The message about an answer of another service.
fn not_of_weir(place: &AdminAddress, answer: &Response<Bytes>) -> String {
    let status = answer.status();
    format!("{place} answers {status}, but not as Weir does; `--admin` names the admin listener of Weir")
}

/// The message about an answer that is no success.
pub(super) fn refusal(place: &AdminAddress, answer: &Response<Bytes>) -> String {
    let (status, body) = (answer.status(), serde_json::from_slice::<Value>(answer.body()).unwrap_or_default());
    let detail = body.get("detail").and_then(Value::as_str).map(|detail| format!(": {detail}"));
    let help = match status {
        StatusCode::UNAUTHORIZED => "; name the file with the token by `--token-file`, or set `WEIR_ADMIN_TOKEN`",
        _ => "",
    };
    format!("{place} answers {status}{}{help}", detail.unwrap_or_default())
}

const BAD_ADDRESS: &str = "expected a host and a port, an http or https URL without a path, or `unix:` and a path";

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { authority, is_tls: false } => write!(f, "{authority}"),
            Self::Tcp { authority, is_tls: true } => write!(f, "https://{authority}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The TLS settings and the token for the admin listener.
#[derive(Debug, Args)]
pub(super) struct Credentials {
    /// The CA certificates in PEM for the admin listener; replaces the root certificates of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The client certificate in PEM, if the admin listener requires one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The file with the token of the admin listener; the default is the environment variable `WEIR_ADMIN_TOKEN`.
    #[arg(long, visible_alias = "admin-token", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The variable with the token, if no option names a file. Other users can read the command line.
const TOKEN_VARIABLE: &str = "WEIR_ADMIN_TOKEN";
/// The longest time without a piece of a stream; a comment comes every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// An explanation has a few hundred bytes for each limit.
const ANSWER_BYTES_MAX: usize = 64 << 20;

type ClientResult<T> = Result<T, Box<dyn Error>>;

impl Credentials {
    fn token(&self) -> ClientResult<Option<HeaderValue>> {
        let token = match &self.token_file {
            Some(file) => Some(fs::read_to_string(file).map_err(|error| {
                let file = file.display();
                format!("cannot read the token file `{file}`: {error}")
            })?),
            None => std::env::var(TOKEN_VARIABLE).ok(),
        };
        let shown = token.map(|token| HeaderValue::try_from(format!("Bearer {}", token.trim_end()))).transpose();
        let mut shown = shown.map_err(|_| "the token is not a valid header value")?;
        if let Some(shown) = &mut shown {
            shown.set_sensitive(true);
        }
        Ok(shown)
    }

    fn tls(&self) -> ClientResult<ClientTls> {
        let own = self.cert.clone().zip(self.key.clone());
        Ok(TlsFiles { authorities: self.ca.clone(), own }.read(Protocol::Http1)?)
    }

    fn is_about_tls(&self) -> bool {
        self.ca.is_some() || self.cert.is_some()
    }
}

/// A connection to the admin listener.
trait Connection: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection for S {}

/// Sends a request and reads its answer within `at_most`. `head` has the method, the path and further headers.
///
/// # Errors
/// Weir does not answer, as a message for the user.
pub(super) fn ask(
    place: &AdminAddress,
    credentials: &Credentials,
    head: http::request::Builder,
    body: Vec<u8>,
    at_most: Duration,
) -> ClientResult<Response<Bytes>> {
    let (request, tls) = prepare(place, credentials, head.body(Full::from(body))?)?;
    let answered = async {
        let stream = connect(place, tls).await?;
        exchange(stream, request, ANSWER_BYTES_MAX).await.map_err(|error| format!("{place}: {error}").into())
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answered: Result<ClientResult<_>, _> = runtime.block_on(async { timeout(at_most, answered).await });
    let answer = answered.map_err(|_| format!("{place} does not answer in time"))??;
    if answer.headers().contains_key(MARK) { Ok(answer) } else { Err(not_of_weir(place, &answer).into()) }
}

/// Sends a GET for `target`, and gives each piece of the stream that answers it to `take`, until `take` breaks, the
/// stream ends, or the user interrupts the command.
pub(super) fn follow(
    place: &AdminAddress,
    credentials: &Credentials,
    target: &str,
    take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> ClientResult<Streamed> {
    let (request, tls) = prepare(place, credentials, Request::get(target).body(Full::default())?)?;
    let streamed = async {
        let connected = timeout(SILENCE_MAX, connect(place, tls)).await;
        let stream = connected.map_err(|_| format!("{place} does not answer in time"))??;
        let bounds = (SILENCE_MAX, ANSWER_BYTES_MAX);
        exchange::follow(stream, request, bounds, take).await.map_err(|error| format!("{place}: {error}").into())
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            streamed = streamed => streamed,
            interrupted = ctrl_c() => interrupted.map(|()| Streamed::Stopped).map_err(Into::into),
        }
    })
}

/// The request with its token and its host, and the settings of TLS if there is TLS.
fn prepare(
    place: &AdminAddress,
    credentials: &Credentials,
    mut request: Request<Full<Bytes>>,
) -> ClientResult<(Request<Full<Bytes>>, Option<ClientTls>)> {
    request.headers_mut().extend(credentials.token()?.map(|shown| (header::AUTHORIZATION, shown)));
    let host = match place {
        AdminAddress::Unix(_) => HeaderValue::from_static("localhost"),
        AdminAddress::Tcp { authority, .. } => authority.as_str().parse()?,
    };
    request.headers_mut().insert(header::HOST, host);
    let tls = match place {
        AdminAddress::Tcp { is_tls: true, .. } => Some(credentials.tls()?),
        _ if credentials.is_about_tls() => {
            return Err(format!("--ca and --cert need an https URL, not {place}").into());
        }
        _ => None,
    };
    Ok((request, tls))
}

async fn connect(place: &AdminAddress, tls: Option<ClientTls>) -> ClientResult<Box<dyn Connection>> {
    let failed = |error: std::io::Error| {
        format!("{place} does not answer: {error}; `--admin` or `WEIR_ADMIN` names another admin listener")
    };
    let authority = match place {
        AdminAddress::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await.map_err(failed)?)),
        AdminAddress::Tcp { authority, .. } => authority,
    };
    let stream = TcpStream::connect(authority.as_str()).await.map_err(failed)?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::new(authority.host()).ok_or("the host of the URL is not a valid name")?;
    let stream = tls.connect(&name, stream).await.map_err(|error| format!("{place}: no TLS session: {error}"))?;
    Ok(Box::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_addresses_have_several_forms() {
        let rows = [
            ("127.0.0.1:9901", Some("127.0.0.1:9901")),
            ("[::1]:9901", Some("[::1]:9901")),
            ("weir.internal:9901", Some("weir.internal:9901")),
            ("http://127.0.0.1:9901/", Some("127.0.0.1:9901")),
            ("http://weir.internal", Some("weir.internal:80")),
            ("https://weir.internal", Some("https://weir.internal:443")),
            ("https://[::1]:9901", Some("https://[::1]:9901")),
            ("unix:/run/a.sock", Some("unix:/run/a.sock")),
            ("nowhere", None),
            ("127.0.0.1", None),
            ("https://a@b:1", None),
            ("https://a/b", None),
            ("ftp://a:1", None),
            ("", None),
        ];
        for (text, shown) in rows {
            let place = text.parse::<AdminAddress>().ok().map(|place| place.to_string());
            assert_eq!(place.as_deref(), shown, "{text}");
        }
    }
}
