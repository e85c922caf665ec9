//! A service that speaks HTTP/2, over TCP with prior knowledge or over TLS, and answers as it is told.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Response};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::{Cert, PATIENCE};

/// A request that has come, and the way to answer it.
pub struct Call {
    pub head: http::request::Parts,
    pub body: RecvStream,
    pub respond: SendResponse<Bytes>,
    /// Which connection it came on, from 1.
    pub connection: usize,
}

/// What has reached it.
#[derive(Clone, Debug)]
pub struct Called {
    pub method: String,
    pub uri: String,
    pub headers: HeaderMap,
    pub connection: usize,
}

/// The service. It ends with this.
pub struct H2Service {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    called: Arc<Mutex<Vec<Called>>>,
    runtime: Option<Runtime>,
}

/// How connections are taken.
#[derive(Clone, Default)]
pub struct Taking {
    /// With TLS, and these protocols by ALPN.
    pub tls: Option<Arc<ServerConfig>>,
    /// Streams of one connection at once.
    pub streams: Option<u32>,
    /// Calls of one connection, after which it says GOAWAY.
    pub calls: Option<usize>,
    pub window: Option<u32>,
}

impl Taking {
    /// Over TLS with this certificate, and these protocols by ALPN.
    pub fn tls(cert: &Cert, alpn: &[&str]) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::from_pem_slice(cert.key.as_bytes()).unwrap();
        let mut config = builder.with_no_client_auth().with_single_cert(vec![cert.der()], key).unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self { tls: Some(Arc::new(config)), ..Self::default() }
    }
}

impl H2Service {
    /// Answers each call by `answer`.
    pub fn start<F: Future<Output = ()> + Send + 'static>(answer: impl Fn(Call) -> F + Clone + Send + 'static) -> Self {
        Self::start_by(Taking::default(), answer)
    }

    /// The same, with connections taken otherwise.
    pub fn start_by<F: Future<Output = ()> + Send + 'static>(
        taking: Taking,
        answer: impl Fn(Call) -> F + Clone + Send + 'static,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (connections, open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let called = Arc::<Mutex<Vec<Called>>>::default();
        let counts = (Arc::clone(&connections), Arc::clone(&open), Arc::clone(&called));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let (taking, answer, (connections, open, called)) = (taking.clone(), answer.clone(), counts.clone());
                let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
                open.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    match &taking.tls {
                        None => serve(socket, &taking, number, called, answer).await,
                        Some(tls) => {
                            if let Ok(stream) = TlsAcceptor::from(Arc::clone(tls)).accept(socket).await {
                                serve(stream, &taking, number, called, answer).await;
                            }
                        }
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, connections, open, called, runtime: Some(runtime) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Everything that has reached it.
    pub fn called(&self) -> Vec<Called> {
        self.called.lock().unwrap().clone()
    }

    /// `[upstreams.a]` for it.
    pub fn upstream(&self, more: &str) -> String {
        format!("[upstreams.a]\nendpoints = [\"http://{}\"]\nprotocol = \"h2\"\n{more}\n", self.address)
    }

    /// Waits until `is_so` of this service.
    pub fn wait_until(&self, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < until, "never; called: {:#?}", self.called());
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

impl Drop for H2Service {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve<F: Future<Output = ()> + Send + 'static>(
    socket: impl AsyncRead + AsyncWrite + Unpin,
    taking: &Taking,
    number: usize,
    called: Arc<Mutex<Vec<Called>>>,
    answer: impl Fn(Call) -> F,
) {
    let mut builder = Builder::new();
    if let Some(streams) = taking.streams {
        builder.max_concurrent_streams(streams);
    }
    if let Some(window) = taking.window {
        builder.initial_window_size(window);
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    let mut calls = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (head, body) = request.into_parts();
        called.lock().unwrap().push(Called {
            method: head.method.to_string(),
            uri: head.uri.to_string(),
            headers: head.headers.clone(),
            connection: number,
        });
        tokio::spawn(answer(Call { head, body, respond, connection: number }));
        calls += 1;
        if taking.calls == Some(calls) {
            connection.graceful_shutdown();
        }
    }
}

impl Call {
    /// Answers with 200 and `body`.
    pub fn say(mut self, body: impl Into<Bytes>) {
        if let Ok(mut stream) = self.respond.send_response(Response::new(()), false) {
            let _ = stream.send_data(body.into(), true);
        }
    }

    /// Begins to answer.
    pub fn begin(&mut self, response: http::response::Builder) -> SendStream<Bytes> {
        self.respond.send_response(response.body(()).unwrap(), false).unwrap()
    }

    /// The body of the request, as it comes to its end; and its trailers.
    pub async fn read(&mut self) -> (Vec<u8>, Option<HeaderMap>) {
        let mut all = Vec::new();
        while let Some(Ok(data)) = self.body.data().await {
            let _ = self.body.flow_control().release_capacity(data.len());
            all.extend_from_slice(&data);
        }
        (all, self.body.trailers().await.ok().flatten())
    }
}

/// Sends all of `bytes`, as fast as they are taken. Says whether they were.
pub async fn send_all(stream: &mut SendStream<Bytes>, mut bytes: Bytes, is_last: bool) -> bool {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        while stream.capacity() == 0 {
            match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(Ok(_)) => {}
                _ => return false,
            }
        }
        let part = bytes.split_to(stream.capacity().min(bytes.len()));
        let is_end = is_last && bytes.is_empty();
        if stream.send_data(part, is_end).is_err() {
            return false;
        }
    }
    true
}
