//! Connections that other replicas open.
//!
//! A stranger can hold a connection only for a few seconds, and gets nothing before it has proved that it knows the secret
//! of the fleet.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataValue;
use tonic::{Response, Status, Streaming};
use tower::Service;

use super::handshake::{BadHello, Greetings, Refusal, Side, process_of};
use super::hub::{Hub, JoinError, Ticket};
use super::messages::{MESSAGE_BYTES_MAX, Membership, Outbound};
use super::settings::FleetSettings;
use crate::engine::policy::PROOF_BYTES;
use crate::engine::store::stream::message::Message;
use crate::fleet::grpc::proto::weir::v1::Hello;
use crate::fleet::grpc::proto::weir::v1::fleet_server::{Fleet, FleetServer};
use crate::transport::net::accept::FailedAccepts;

/// Connections at once that have not proved yet that they are of replicas.
const STRANGERS_MAX: usize = 64;
/// The time for the handshakes of TLS, of HTTP/2 and of the fleet.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest hello.
const HELLO_BYTES_MAX: usize = 1024;
/// Bytes of the fields of a call.
const HEADER_BYTES_MAX: u32 = 8 * 1024;
/// Calls at once on a connection.
const STREAMS_MAX: u32 = 4;
/// Bytes that a peer may send before they are taken.
pub(super) const WINDOW_BYTES: u32 = 512 * 1024;
/// The time without a frame after which a peer must prove that it is there.
pub(super) const PING_EVERY: Duration = Duration::from_secs(5);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The metadata of proofs.
pub(super) const PROOF: &str = "weir-proof-bin";

/// The connections of a fleet with these settings at most, about.
pub fn connections_max(settings: &FleetSettings) -> usize {
    settings.max_replicas + STRANGERS_MAX
}

/// Accepts connections until dropped. Those that have joined stay.
pub(super) async fn accept(hub: Arc<Hub>, listener: TcpListener) {
    let (strangers, mut failed) = (Arc::new(Semaphore::new(STRANGERS_MAX)), FailedAccepts::default());
    loop {
        let (socket, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                failed.pause(&error, "cannot accept on the fleet listener").await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&strangers).try_acquire_owned() else {
            hub.metrics.refused_busy.inc();
            tracing::debug!(%from, "too many connections to the fleet listener");
            continue;
        };
        let hub = Arc::clone(&hub);
        tokio::spawn(async move {
            if let Err(error) = converse(&hub, socket, from, permit).await {
                tracing::debug!(%error, %from, "a connection to the fleet listener ended");
            }
        });
    }
}

impl Hub {
    /// Gives `settings` the TLS in force.
    pub fn keep_tls(&self, settings: &mut FleetSettings) {
        settings.tls.clone_from(&self.settings.load().tls);
    }

    /// Counts a refused connection. Returns whether it gets a line in the log: a stranger must not fill the disk.
    pub(super) fn logs_refusal(&self, reason: Refusal, from: SocketAddr) -> bool {
        let (address, now) = (Some(from.ip().to_canonical()), self.clock.now());
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let of_reason = refusals.entry(reason).or_default();
        let is_logged = of_reason.may_fail(address, now);
        of_reason.failed(address, now);
        is_logged
    }
}

async fn converse(
    hub: &Arc<Hub>,
    socket: TcpStream,
    from: SocketAddr,
    permit: OwnedSemaphorePermit,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    socket.set_nodelay(true)?;
    let tls = hub.settings.load().tls.clone();
    let served = async {
        let Some(tls) = &tls else { return serve(Conversation::new(hub, from, permit, &[])?, socket).await };
        let opened = timeout(HANDSHAKE_TIMEOUT, tls.accept(socket)).await.map_err(io::Error::from).flatten();
        let (stream, binding) = opened.inspect_err(|error| {
            hub.metrics.refused_stranger.inc();
            if hub.logs_refusal(Refusal::Certificate, from) {
                tracing::warn!(%error, %from, "a connection to the fleet listener has no valid certificate");
            }
        })?;
        serve(Conversation::new(hub, from, permit, &binding)?, stream).await
    };
    tokio::select! {
        served = served => served,
        () = hub.has_other_tls(tls.as_ref()) => Ok(()),
    }
}

/// Serves the calls of a connection, until it is cut or has not joined in time.
async fn serve(
    conversation: Arc<Conversation>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let answering = Arc::clone(&conversation);
    let service = service_fn(move |request: Request<Incoming>| {
        let is_hello = request.uri().path().ends_with("/Meet");
        let bytes_max = if is_hello { HELLO_BYTES_MAX } else { MESSAGE_BYTES_MAX };
        let mut fleet = FleetServer::from_arc(Arc::clone(&answering)).max_decoding_message_size(bytes_max);
        // A service of tonic is always ready.
        let answer = fleet.call(request);
        async move { answer.await.map_err(|never: Infallible| never) }
    });
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    let served = http.serve_connection(TokioIo::new(stream), service);
    let late = async {
        sleep(HANDSHAKE_TIMEOUT).await;
        if conversation.has_joined() {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        served = served => served,
        () = conversation.cut.notified() => Ok(()),
        () = late => Ok(()),
    };
    if !conversation.has_joined() {
        conversation.hub.metrics.refused_stranger.inc();
    }
    ended.map_err(Into::into)
}

/// One connection.
pub(super) struct Conversation {
    hub: Arc<Hub>,
    from: SocketAddr,
    own: Hello,
    binding: Box<[u8]>,
    cut: Arc<Notify>,
    phase: Mutex<Phase>,
}

enum Phase {
    /// The caller has said nothing yet.
    Silent(OwnedSemaphorePermit),
    /// The caller has said hello.
    Met(OwnedSemaphorePermit, Hello),
    /// The caller is a replica.
    Joined,
    /// The caller is none.
    Refused,
}

impl Conversation {
    fn new(
        hub: &Arc<Hub>,
        from: SocketAddr,
        permit: OwnedSemaphorePermit,
        binding: &[u8],
    ) -> Result<Arc<Self>, getrandom::Error> {
        let phase = Mutex::new(Phase::Silent(permit));
        let (own, cut) = (hub.hello()?, Arc::default());
        Ok(Arc::new(Self { hub: Arc::clone(hub), from, own, binding: binding.into(), cut, phase }))
    }

    fn replace_phase(&self, phase: Phase) -> Phase {
        std::mem::replace(&mut *self.phase.lock().unwrap_or_else(PoisonError::into_inner), phase)
    }

    fn has_joined(&self) -> bool {
        matches!(*self.phase.lock().unwrap_or_else(PoisonError::into_inner), Phase::Joined)
    }

    /// Checks the proof of a caller, and takes its connection into the fleet.
    fn join(&self, caller: Hello, proof: Option<&[u8]>) -> Result<(Ticket, [u8; PROOF_BYTES]), Status> {
        let Self { hub, from, own, binding, cut, .. } = self;
        let (process, address) = process_of(&caller).map_err(|bad| refusal_of(hub, bad, *from))?;
        let greetings = Greetings { caller, listener: own.clone(), binding: binding.clone() };
        if !greetings.is_proof(Side::Caller, proof.unwrap_or_default(), &hub.key) {
            hub.metrics.refused_secret.inc();
            if hub.logs_refusal(Refusal::Secret, *from) {
                tracing::warn!(%from, "a replica is refused: it has another `fleet.secret`");
            }
            return Err(Status::unauthenticated("another fleet.secret"));
        }
        let address = address.unwrap_or_else(|| from.ip().to_string().into());
        let ticket = hub.join(process, address, false, cut).map_err(|error| match error {
            JoinError::Itself => Status::already_exists("this process itself"),
            JoinError::Connected => Status::already_exists("there is another connection"),
            JoinError::Full => {
                hub.metrics.refused_busy.inc();
                if hub.logs_refusal(Refusal::Full, *from) {
                    tracing::warn!(%from, "a replica is refused: the fleet has `fleet.max_replicas` replicas");
                }
                Status::resource_exhausted("the fleet has max_replicas replicas")
            }
        })?;
        Ok((ticket, greetings.prove(Side::Listener, &hub.key)))
    }
}

fn refusal_of(hub: &Hub, bad: BadHello, from: SocketAddr) -> Status {
    match bad {
        BadHello::Protocol(protocol) => {
            if hub.logs_refusal(Refusal::Protocol, from) {
                tracing::warn!(%from, protocol, "a replica is refused: it has another version of the fleet protocol");
            }
            Status::failed_precondition("another version of the protocol")
        }
        BadHello::Malformed => Status::invalid_argument("no hello of a replica"),
    }
}

#[tonic::async_trait]
impl Fleet for Conversation {
    async fn meet(&self, request: tonic::Request<Hello>) -> Result<Response<Hello>, Status> {
        match self.replace_phase(Phase::Refused) {
            Phase::Silent(permit) => {
                let caller = request.into_inner();
                process_of(&caller).map_err(|bad| refusal_of(&self.hub, bad, self.from))?;
                self.replace_phase(Phase::Met(permit, caller));
                Ok(Response::new(self.own.clone()))
            }
            before => {
                self.replace_phase(before);
                Err(Status::failed_precondition("hello was said before"))
            }
        }
    }

    type ExchangeStream = Pin<Box<dyn Stream<Item = Result<Message, Status>> + Send>>;

    async fn exchange(
        &self,
        request: tonic::Request<Streaming<Message>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        let (permit, caller) = match self.replace_phase(Phase::Refused) {
            Phase::Met(permit, caller) => (permit, caller),
            before => {
                self.replace_phase(before);
                return Err(Status::failed_precondition("hello comes first, and once"));
            }
        };
        let proof = request.metadata().get_bin(PROOF).and_then(|proof| proof.to_bytes().ok());
        let (ticket, proof) = self.join(caller, proof.as_deref())?;
        self.replace_phase(Phase::Joined);
        drop(permit); // it is no stranger any more
        let outbound = Outbound::joined(Arc::clone(&self.hub), ticket);
        let (membership, cut, inbound) =
            (Membership::new(Arc::clone(&self.hub), ticket), Arc::clone(&self.cut), request.into_inner());
        tokio::spawn(async move {
            // The task of the connection logs its end.
            let _ = membership.receive_all(inbound).await;
            cut.notify_one();
        });
        let mut response: Response<Self::ExchangeStream> = Response::new(Box::pin(outbound.map(Ok)));
        response.metadata_mut().insert_bin(PROOF, MetadataValue::from_bytes(&proof));
        Ok(response)
    }
}
