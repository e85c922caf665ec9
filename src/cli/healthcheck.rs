//! `weir healthcheck`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::fail;
use crate::proxy::Listen;

/// Less than the interval at which anybody checks.
const AT_MOST: Duration = Duration::from_secs(3);

pub(super) fn healthcheck(admin: &Listen) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let asked = runtime.block_on(async { timeout(AT_MOST, ask(admin)).await });
    match asked {
        Ok(Ok(status)) if status.is_success() => ExitCode::SUCCESS,
        Ok(Ok(status)) => fail(&format_args!("{admin} answers {status}")),
        Ok(Err(error)) => fail(&format_args!("{admin} does not answer: {error}")),
        Err(_) => fail(&format_args!("{admin} does not answer in time")),
    }
}

async fn ask(admin: &Listen) -> Result<StatusCode, Box<dyn Error>> {
    match admin {
        Listen::Tcp(address) => ask_over(TcpStream::connect(address).await?, &address.to_string()).await,
        Listen::Unix(path) => ask_over(UnixStream::connect(path).await?, "localhost").await,
    }
}

async fn ask_over<S>(stream: S, host: &str) -> Result<StatusCode, Box<dyn Error>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/healthz").header(header::HOST, host).body(Empty::<Bytes>::new())?;
    let response = async { Ok::<_, Box<dyn Error>>(send.send_request(request).await?) };
    tokio::select! {
        response = response => Ok(response?.status()),
        ended = connection => Err(ended.err().map_or_else(|| "it closed".into(), Into::into)),
    }
}
