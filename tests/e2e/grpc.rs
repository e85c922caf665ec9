//! gRPC by those who made it: a client and a service of tonic, with Weir between them.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use socket2::{Domain, Socket, Type};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt, iter};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::service_fn;

use crate::ops::until;
use crate::support::{Cert, Client, NEVER, PATIENCE_OF_TEST, Upstream, Weir};

/// Messages as they are: what they mean is nothing to Weir.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

type Messages = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;
type Call = http::Request<Body>;
type Answer = http::Response<Body>;

const MESSAGE_MAX: usize = 64 * 1024 * 1024;

/// What a service has seen.
#[derive(Clone, Default)]
struct Seen {
    metadata: Arc<Mutex<Vec<MetadataMap>>>,
    /// Calls that were dropped before they ended.
    dropped: Arc<AtomicUsize>,
}

/// Notes that a call was dropped.
struct Noting(Seen);

impl Drop for Noting {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// A service of gRPC.
struct Service {
    address: SocketAddr,
    seen: Seen,
    runtime: Option<Runtime>,
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Service {
    fn start(cert: Option<&Cert>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Seen::default();
        let kept = seen.clone();
        let mut server = Server::builder();
        if let Some(cert) = cert {
            let identity = Identity::from_pem(&cert.pem, &cert.key);
            server = server.tls_config(ServerTlsConfig::new().identity(identity)).unwrap();
        }
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let answer = service_fn(move |call: Call| {
                let seen = seen_of(&kept, &call);
                async move { Ok::<_, Infallible>(serve(call, seen).await) }
            });
            server.serve_with_incoming(answer, incoming).await.unwrap();
        });
        Self { address, seen, runtime: Some(runtime) }
    }
}

fn seen_of(seen: &Seen, call: &Call) -> Seen {
    seen.metadata.lock().unwrap().push(MetadataMap::from_headers(call.headers().clone()));
    seen.clone()
}

async fn serve(call: Call, seen: Seen) -> Answer {
    let path = call.uri().path().to_owned();
    let mut grpc = tonic::server::Grpc::new(Raw).max_decoding_message_size(MESSAGE_MAX);
    match &*path {
        "/t.T/Unary" => grpc.unary(service_fn(unary), call).await,
        "/t.T/Fail" => grpc.unary(service_fn(fail), call).await,
        "/t.T/Break" => grpc.server_streaming(service_fn(break_off), call).await,
        "/t.T/Many" => grpc.server_streaming(service_fn(many), call).await,
        "/t.T/Gather" => grpc.client_streaming(service_fn(gather), call).await,
        "/t.T/Talk" => grpc.streaming(service_fn(talk), call).await,
        "/t.T/Wait" => {
            let waiting = move |_: Request<Bytes>| {
                let noting = Noting(seen.clone());
                async move {
                    let _noting = noting;
                    std::future::pending::<Result<Response<Bytes>, Status>>().await
                }
            };
            grpc.unary(service_fn(waiting), call).await
        }
        _ => Status::unimplemented("no such method").into_http(),
    }
}

async fn unary(request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    let name = request.metadata().get("x-name").cloned();
    let mut response = Response::new(request.into_inner());
    if let Some(name) = name {
        response.metadata_mut().insert("x-name", name);
    }
    Ok(response)
}

fn refused() -> Status {
    let mut status = Status::with_details(Code::FailedPrecondition, "näh: 100% no", Bytes::from_static(b"\0\x01why"));
    status.metadata_mut().insert("x-hint", "later".parse().unwrap());
    status
}

async fn fail(_: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    Err(refused())
}

async fn break_off(_: Request<Bytes>) -> Result<Response<Messages>, Status> {
    Ok(Response::new(Box::pin(iter([Ok("one".into()), Err(refused())]))))
}

/// As many as the request has bytes, each of as many.
async fn many(request: Request<Bytes>) -> Result<Response<Messages>, Status> {
    let len = request.get_ref().len();
    let messages = (0..len).map(move |turn| Ok(Bytes::from(vec![turn as u8; len])));
    Ok(Response::new(Box::pin(iter(messages))))
}

async fn gather(request: Request<Streaming<Bytes>>) -> Result<Response<Bytes>, Status> {
    let (mut messages, mut lens) = (request.into_inner(), Vec::new());
    while let Some(message) = messages.next().await {
        lens.push(message?.len().to_string());
    }
    Ok(Response::new(lens.join(",").into()))
}

async fn talk(request: Request<Streaming<Bytes>>) -> Result<Response<Messages>, Status> {
    Ok(Response::new(Box::pin(request.into_inner())))
}

/// A client.
struct Caller(Grpc<Channel>);

impl Caller {
    async fn connect(weir: &Weir, cert: Option<&Cert>) -> Self {
        let scheme = if cert.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", weir.address())).unwrap();
        if let Some(cert) = cert {
            let trusted = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&cert.pem));
            endpoint = endpoint.tls_config(trusted.domain_name("weir.test")).unwrap();
        }
        Self(Grpc::new(endpoint.connect().await.unwrap()).max_decoding_message_size(MESSAGE_MAX))
    }

    async fn unary(&mut self, path: &'static str, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        self.0.ready().await.unwrap();
        self.0.unary(request, path.parse().unwrap(), Raw).await
    }

    async fn call(&mut self, path: &'static str, message: impl Into<Bytes>) -> Result<Bytes, Status> {
        self.unary(path, Request::new(message.into())).await.map(Response::into_inner)
    }

    async fn many(&mut self, path: &'static str, message: Bytes) -> Result<Streaming<Bytes>, Status> {
        self.0.ready().await.unwrap();
        let answer = self.0.server_streaming(Request::new(message), path.parse().unwrap(), Raw).await;
        answer.map(Response::into_inner)
    }

    async fn gather(&mut self, messages: impl Stream<Item = Bytes> + Send + 'static) -> Result<Bytes, Status> {
        self.0.ready().await.unwrap();
        let path = "/t.T/Gather".parse().unwrap();
        self.0.client_streaming(Request::new(messages), path, Raw).await.map(Response::into_inner)
    }

    async fn talk(&mut self) -> (UnboundedSender<Bytes>, Streaming<Bytes>) {
        self.0.ready().await.unwrap();
        let (say, said) = unbounded_channel();
        let request = Request::new(UnboundedReceiverStream::new(said));
        let answer = self.0.streaming(request, "/t.T/Talk".parse().unwrap(), Raw).await.unwrap();
        (say, answer.into_inner())
    }
}

/// Runs `test` with a Weir between client and service, in the clear and then sealed.
#[expect(clippy::needless_pass_by_value, reason = "a closure is written where it is used")]
fn between(rest: &str, test: impl AsyncFn(&Weir, Caller, &Service)) {
    let certs = [Cert::of_hosts(&["weir.test"]), Cert::of_hosts(&["app.test"])];
    for is_sealed in [false, true] {
        let [own, theirs] = certs.each_ref().map(|cert| is_sealed.then_some(cert));
        let service = Service::start(theirs);
        let folder = tempfile::tempdir().unwrap();
        let (mut scheme, mut tls, mut upstream_tls) = ("http", "", "");
        if let [Some(own), Some(theirs)] = [own, theirs] {
            own.write(folder.path(), "own");
            theirs.write(folder.path(), "theirs");
            scheme = "https";
            tls = "[server.tls]\ncertificates = [{ cert = \"own.pem\", key = \"own.key\" }]\n";
            upstream_tls = "tls = { ca = \"theirs.pem\", server_name = \"app.test\" }\n";
        }
        let url = format!("{scheme}://{}", service.address);
        let upstream = format!("{tls}[upstreams.a]\nendpoints = [\"{url}\"]\nprotocol = \"h2\"\n{upstream_tls}");
        std::fs::write(folder.path().join("weir.toml"), Weir::text(&format!("{upstream}{rest}"))).unwrap();
        let weir = Weir::start_in(folder);
        run(async || test(&weir, Caller::connect(&weir, own).await, &service).await);
    }
}

/// Runs `test` to its end.
fn run<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE_OF_TEST, test()).await.expect("in time") });
    runtime.shutdown_background();
}

#[test]
fn every_kind_of_call_passes() {
    between(NEVER, async |_, mut caller, _| {
        assert_eq!(&*caller.call("/t.T/Unary", "hello").await.unwrap(), b"hello");
        assert_eq!(&*caller.call("/t.T/Unary", "").await.unwrap(), b"");
        let messages: Vec<_> = caller.many("/t.T/Many", vec![0; 200].into()).await.unwrap().collect().await;
        assert_eq!(messages.len(), 200);
        for (turn, message) in messages.into_iter().enumerate() {
            assert_eq!(message.unwrap(), vec![turn as u8; 200]);
        }
        let lens = (0..50).map(|len| Bytes::from(vec![7; len * 100]));
        let gathered = caller.gather(iter(lens)).await.unwrap();
        let expected: Vec<_> = (0..50).map(|len| (len * 100).to_string()).collect();
        assert_eq!(gathered, expected.join(","));
        // Each answer comes before the next question.
        let (say, mut answers) = caller.talk().await;
        for turn in 0..20_u8 {
            say.send(vec![turn; 1000].into()).unwrap();
            assert_eq!(answers.next().await.unwrap().unwrap(), vec![turn; 1000]);
        }
        drop(say);
        assert!(answers.next().await.is_none() && answers.trailers().await.unwrap().is_some());
    });
}

#[test]
fn errors_and_metadata_pass_whole() {
    between(NEVER, async |_, mut caller, service| {
        // Without a body, and after a part of one.
        let alone = caller.call("/t.T/Fail", "x").await.unwrap_err();
        let mut answers = caller.many("/t.T/Break", "x".into()).await.unwrap();
        assert_eq!(answers.next().await.unwrap().unwrap(), "one");
        let late = answers.next().await.unwrap().unwrap_err();
        for status in [alone, late] {
            let expected = refused();
            assert_eq!((status.code(), status.message()), (expected.code(), expected.message()));
            assert_eq!(status.details(), expected.details());
            assert_eq!(status.metadata().get("x-hint").unwrap(), "later");
        }
        assert_eq!(caller.call("/t.T/None", "x").await.unwrap_err().code(), Code::Unimplemented);

        let mut request = Request::new(Bytes::new());
        request.metadata_mut().insert("x-name", "value".parse().unwrap());
        request.metadata_mut().insert_bin("x-raw-bin", tonic::metadata::MetadataValue::from_bytes(&[0, 255]));
        request.set_timeout(Duration::from_millis(4321));
        let response = caller.unary("/t.T/Unary", request).await.unwrap();
        assert_eq!(response.metadata().get("x-name").unwrap(), "value");
        let seen = service.seen.metadata.lock().unwrap().pop().unwrap();
        assert_eq!(seen.get("grpc-timeout").unwrap(), "4321000u");
        assert_eq!(&*seen.get_bin("x-raw-bin").unwrap().to_bytes().unwrap(), [0, 255]);
        for (name, value) in [("te", "trailers"), ("content-type", "application/grpc")] {
            assert_eq!(seen.get(name).unwrap(), value);
        }
        assert_eq!(seen.get("x-forwarded-for").unwrap(), "127.0.0.1");
    });
}

#[test]
fn large_messages_pass_both_ways_at_once() {
    const LEN: usize = 8 * 1024 * 1024;
    between(NEVER, async |_, mut caller, _| {
        let large = Bytes::from(vec![5; LEN]);
        assert!(caller.call("/t.T/Unary", large.clone()).await.unwrap() == large);
        // Much is said before any answer is taken.
        let (say, mut answers) = caller.talk().await;
        for _ in 0..64 {
            say.send(large.slice(..LEN / 64)).unwrap();
        }
        drop(say);
        let mut len = 0;
        while let Some(message) = answers.next().await {
            len += message.unwrap().len();
        }
        assert_eq!(len, LEN);
    });
}

#[test]
fn a_call_that_is_cancelled_ends_at_the_service() {
    between(NEVER, async |_, mut caller, service| {
        let calling = tokio::spawn(async move { caller.call("/t.T/Wait", "x").await });
        until("it has come", || !service.seen.metadata.lock().unwrap().is_empty());
        calling.abort();
        // The service itself would never end it.
        until("it was dropped", || service.seen.dropped.load(Ordering::SeqCst) == 1);
    });
}

#[test]
fn a_deadline_is_the_clients_and_passes_on() {
    between(NEVER, async |_, mut caller, service| {
        let mut request = Request::new(Bytes::new());
        request.set_timeout(Duration::from_secs(5));
        let status = caller.unary("/t.T/Wait", request).await.unwrap_err();
        assert!(matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded), "{status}");
        until("it was dropped", || service.seen.dropped.load(Ordering::SeqCst) == 1);
    });
    let timeouts = "[timeouts]\nresponse_head = \"200ms\"\n";
    between(&format!("{timeouts}{NEVER}"), async |_, mut caller, _| {
        assert_eq!(caller.call("/t.T/Wait", "x").await.unwrap_err().code(), Code::DeadlineExceeded);
    });
}

#[test]
fn what_weir_says_is_a_status() {
    let limit = "[[limit]]\nname = \"one\"\nkey = []\nrate = \"1/h\"\n";
    between(limit, async |_, mut caller, service| {
        assert_eq!(caller.call("/t.T/Unary", "x").await.unwrap(), "x");
        let status = caller.call("/t.T/Unary", "x").await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        let told = |name| status.metadata().get(name).and_then(|value| value.to_str().ok()?.parse::<f64>().ok());
        let (retry_after_s, pushback_ms) = (told("retry-after").unwrap(), told("grpc-retry-pushback-ms").unwrap());
        assert_eq!((pushback_ms / 1000.0).ceil(), retry_after_s, "{status:?}");
        assert_eq!(caller.many("/t.T/Many", "x".into()).await.unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!(service.seen.metadata.lock().unwrap().len(), 1);
    });
    // Nobody listens, or nobody accepts: one connection fills the backlog. Either way the service has got nothing.
    let backlog = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    backlog.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    backlog.listen(0).unwrap();
    let full = backlog.local_addr().unwrap().as_socket().unwrap();
    let _waiting = std::net::TcpStream::connect(full).unwrap();
    for service in [Upstream::start().stop(), full] {
        let upstream = format!("[upstream]\nurl = \"http://{service}\"\nprotocol = \"h2\"\n");
        let weir = Weir::with(&format!("{upstream}[timeouts]\nconnect = \"300ms\"\n{NEVER}"));
        run(async || {
            let status = Caller::connect(&weir, None).await.call("/t.T/Unary", "x").await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status}");
        });
        let answer = Client::connect(weir.address()).get("/");
        assert_eq!(answer.status, if service == full { 504 } else { 502 }, "{}", answer.head);
    }
}

/// The service announces no trailers.
#[test]
fn a_client_of_http1_that_accepts_trailers_gets_the_status() {
    let service = Service::start(None);
    let weir = Weir::with(&format!("[upstream]\nurl = \"http://{}\"\nprotocol = \"h2\"\n{NEVER}", service.address));
    let mut client = Client::connect(weir.address());
    for (te, status) in [("TE: trailers\r\n", "grpc-status: 0\r\n"), ("", "")] {
        let head = format!("POST /t.T/Unary HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n{te}");
        let answer = client.send(format!("{head}Content-Length: 6\r\n\r\n\0\0\0\0\x01x")).answer();
        assert_eq!((&*answer.body, &*answer.trailers), (&b"\0\0\0\0\x01x"[..], status));
    }
}

#[test]
fn a_call_that_is_held_leaves_its_place_with_its_client() {
    let limit =
        "[[limit]]\nname = \"one\"\nkey = []\nrate = \"1/h\"\non_limit = \"hold\"\nhold = { max_wait = \"forever\" }\n";
    between(limit, async |weir, mut caller, _| {
        assert_eq!(caller.call("/t.T/Unary", "x").await.unwrap(), "x");
        let mut request = Request::new(Bytes::new());
        request.set_timeout(Duration::from_secs(4));
        let held = "weir_held_requests{limit=\"one\"}";
        let calling = tokio::spawn(async move { caller.unary("/t.T/Unary", request).await });
        weir.wait_for_metric(held, |value| value == 1.0);
        assert!(calling.await.unwrap().is_err());
        weir.wait_for_metric(held, |value| value == 0.0);
    });
}
