//! Connections that this replica opens: one task for each address of a member.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status, Streaming};

use super::handshake::{BadHello, Greetings, ProcessId, Side, process_of};
use super::hub::{Calling, Hub, JoinError};
use super::listen::{HANDSHAKE_TIMEOUT, PING_EVERY, PING_TIMEOUT, PROOF, WINDOW_BYTES};
use super::messages::{MESSAGE_BYTES_MAX, Membership, Outbound};
use super::roster::Target;
use crate::base::time;
use crate::engine::store::stream::message::Message;
use crate::fleet::etcd::{Backoff, Sender};
use crate::fleet::grpc::proto::weir::v1::fleet_client::FleetClient;

/// The first and the longest pause between two attempts, without a random part of up to the same length.
const PAUSE_MIN: Duration = Duration::from_millis(25);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The age of a connection after which the next attempt follows soon.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// The pause after a connection to this process itself: another process may get the address.
const PAUSE_OWN: Duration = Duration::from_mins(1);

/// The origin of calls. Both sides ignore it.
pub(super) const ORIGIN: &str = "http://weir";

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What an address led to.
enum Reached {
    /// To this process.
    Itself,
    /// To a process with another connection, or with one that has ended.
    Process(ProcessId),
}

/// Keeps a connection to the replica at `address`, until dropped.
pub(super) async fn keep_connected(hub: Arc<Hub>, address: Box<str>) {
    let (mut backoff, mut last_error) = (Backoff::new(PAUSE_MIN, PAUSE_MAX, 2), String::new());
    loop {
        let (began, began_at) = (time::instant_now(), hub.clock.now());
        match reach(&hub, &address).await {
            Ok(Reached::Itself) => {
                hub.found(&address, Target::Itself);
                sleep(PAUSE_OWN).await;
            }
            Ok(Reached::Process(process)) => {
                if hub.is_connected(process) {
                    hub.found(&address, Target::Instance(process.instance));
                }
                last_error.clear();
                hub.disconnected(process).await;
                if began.elapsed() >= SETTLED_AFTER {
                    backoff.reset();
                }
                sleep(backoff.pause()).await;
            }
            Err(error) => {
                let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
                hub.failed(&address, cause == Some(io::ErrorKind::ConnectionRefused), began_at);
                let text = error.to_string();
                if text == last_error {
                    tracing::debug!(peer = %address, error = text, "a replica cannot be reached");
                } else {
                    tracing::warn!(peer = %address, error = text, "a replica cannot be reached");
                    last_error = text;
                }
                sleep(backoff.pause()).await;
            }
        }
    }
}

/// Connects, and exchanges messages until the connection ends.
async fn reach(hub: &Arc<Hub>, address: &str) -> Result<Reached, Error> {
    let tls = hub.settings.load().tls.clone();
    let connect = async {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        match &tls {
            None => Call::open(hub, address, socket, &[]).await,
            Some(tls) => {
                let (stream, binding) = tls.connect(socket).await?;
                Call::open(hub, address, stream, &binding).await
            }
        }
    };
    let opened = timeout(HANDSHAKE_TIMEOUT, connect).await.map_err(|_| "no answer in time")?;
    let Call { calling: _calling, membership, process, inbound, cut } = match opened? {
        Ok(call) => *call,
        Err(reached) => return Ok(reached),
    };
    tokio::select! {
        ended = membership.receive_all(inbound) => {
            if let Err(status) = ended {
                tracing::debug!(peer = address, %status, "a connection to a replica ended");
            }
        }
        () = cut.notified() => {}
        () = hub.has_other_tls(tls.as_ref()) => {}
    }
    Ok(Reached::Process(process))
}

/// An open connection that has joined the fleet.
struct Call {
    calling: Calling,
    membership: Membership,
    process: ProcessId,
    inbound: Streaming<Message>,
    cut: Arc<Notify>,
}

impl Call {
    /// Opens a connection. The inner error says why there is no use for one more.
    async fn open(
        hub: &Arc<Hub>,
        address: &str,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        binding: &[u8],
    ) -> Result<Result<Box<Self>, Reached>, Error> {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        let (sender, connection) = http.handshake(TokioIo::new(stream)).await?;
        // It ends with the streams on it.
        tokio::spawn(connection);
        let client = FleetClient::with_origin(Sender(sender), Uri::from_static(ORIGIN));
        let mut client = client.max_decoding_message_size(MESSAGE_BYTES_MAX);

        let own = hub.hello()?;
        let hello = client.meet(own.clone()).await.map_err(error_of)?.into_inner();
        let (process, named) = process_of(&hello).map_err(|bad| match bad {
            BadHello::Protocol(protocol) => format!("it has version {protocol} of the fleet protocol"),
            BadHello::Malformed => "it is no replica".to_owned(),
        })?;
        if process.instance == hub.own.instance {
            return Ok(Err(Reached::Itself));
        }
        let Some(calling) = hub.begin_call(process) else { return Ok(Err(Reached::Process(process))) };
        let greetings = Greetings { caller: own, listener: hello, binding: binding.into() };
        let (outbound, joined) = Outbound::joining(Arc::clone(hub));
        let mut request = tonic::Request::new(outbound);
        let proof = MetadataValue::from_bytes(&greetings.prove(Side::Caller, &hub.key));
        request.metadata_mut().insert_bin(PROOF, proof);
        let answer = match client.exchange(request).await {
            // The process may have cut this connection because of its own call.
            Err(status) if status.code() == Code::AlreadyExists || hub.is_connected(process) => {
                return Ok(Err(Reached::Process(process)));
            }
            answer => answer.map_err(error_of)?,
        };
        let proof = answer.metadata().get_bin(PROOF).and_then(|proof| proof.to_bytes().ok());
        if !greetings.is_proof(Side::Listener, &proof.unwrap_or_default(), &hub.key) {
            return Err("it has another `fleet.secret`".into());
        }
        hub.found(address, Target::Instance(process.instance));
        let cut = Arc::default();
        match hub.join(process, named.unwrap_or_else(|| address.into()), true, &cut) {
            Ok(ticket) => {
                // Nobody waits for it if the connection has ended.
                let _ = joined.send(ticket);
                let membership = Membership::new(Arc::clone(hub), ticket);
                let call = Self { calling, membership, process, inbound: answer.into_inner(), cut };
                Ok(Ok(Box::new(call)))
            }
            Err(JoinError::Itself) => Ok(Err(Reached::Itself)),
            Err(JoinError::Connected) => Ok(Err(Reached::Process(process))),
            Err(JoinError::Full) => Err("the fleet has `fleet.max_replicas` replicas".into()),
        }
    }
}

/// What a status of the other side means.
fn error_of(status: Status) -> Error {
    match status.code() {
        Code::Unauthenticated => "it has another `fleet.secret`".into(),
        Code::FailedPrecondition => "it has another version of the fleet protocol".into(),
        _ => status.into(),
    }
}
