//! A service that speaks HTTP/2, with prior knowledge or over TLS.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

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

use super::Cert;
use super::event::Changes;

/// A received request, and the means to respond.
pub struct Call {
    pub head: http::request::Parts,
    pub body: RecvStream,
    pub respond: SendResponse<Bytes>,
    /// Number of its connection, from 1.
    pub connection: usize,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub struct Called {
    pub method: String,
    pub uri: String,
    pub headers: HeaderMap,
    pub connection: usize,
}

/// The service. It ends when this is dropped.
pub struct H2Service {
    address: SocketAddr,
    record: Arc<Record>,
    runtime: Option<Runtime>,
}

/// The connections and the requests of a service.
#[derive(Default)]
struct Record {
    connections: AtomicUsize,
    open: AtomicUsize,
    called: Mutex<Vec<Called>>,
    changes: Changes,
}

/// Options of connections.
#[derive(Clone, Default)]
pub struct H2Options {
    /// TLS with this configuration; none for prior knowledge.
    pub tls: Option<Arc<ServerConfig>>,
    /// The most open streams of a connection.
    pub streams: Option<u32>,
    /// Requests of a connection, after which the service sends GOAWAY.
    pub calls: Option<usize>,
    pub window: Option<u32>,
}

impl H2Options {
    /// TLS with this certificate, and these protocols by ALPN.
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
    /// Responds to each request with `answer`.
    pub fn start<F: Future<Output = ()> + Send + 'static>(answer: impl Fn(Call) -> F + Clone + Send + 'static) -> Self {
        Self::start_with(H2Options::default(), answer)
    }

    /// Responds to each request with `answer`, on connections with these options.
    pub fn start_with<F: Future<Output = ()> + Send + 'static>(
        options: H2Options,
        answer: impl Fn(Call) -> F + Clone + Send + 'static,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let record = Arc::<Record>::default();
        let all = Arc::clone(&record);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let (options, answer, record) = (options.clone(), answer.clone(), Arc::clone(&all));
                let number = record.connections.fetch_add(1, Ordering::SeqCst) + 1;
                record.open.fetch_add(1, Ordering::SeqCst);
                record.changes.notify();
                tokio::spawn(async move {
                    match &options.tls {
                        None => serve(socket, &options, number, &record, answer).await,
                        Some(tls) => {
                            if let Ok(stream) = TlsAcceptor::from(Arc::clone(tls)).accept(socket).await {
                                serve(stream, &options, number, &record, answer).await;
                            }
                        }
                    }
                    record.open.fetch_sub(1, Ordering::SeqCst);
                    record.changes.notify();
                });
            }
        });
        Self { address, record, runtime: Some(runtime) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of all connections.
    pub fn connections(&self) -> usize {
        self.record.connections.load(Ordering::SeqCst)
    }

    /// Number of open connections.
    pub fn open(&self) -> usize {
        self.record.open.load(Ordering::SeqCst)
    }

    /// All recorded requests.
    pub fn called(&self) -> Vec<Called> {
        self.record.called.lock().unwrap().clone()
    }

    /// The table `[upstreams.a]` for this service.
    pub fn upstream(&self, more: &str) -> String {
        format!("[upstreams.a]\nendpoints = [\"http://{}\"]\nprotocol = \"h2\"\n{more}\n", self.address)
    }

    /// Waits until `is_so`, which is checked after each request, and each time that a connection opens or closes.
    pub fn wait_until(&self, is_so: impl Fn(&Self) -> bool) {
        assert!(self.record.changes.wait_until(|| is_so(self)), "never; called: {:#?}", self.called());
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
    options: &H2Options,
    number: usize,
    record: &Record,
    answer: impl Fn(Call) -> F,
) {
    let mut builder = Builder::new();
    if let Some(streams) = options.streams {
        builder.max_concurrent_streams(streams);
    }
    if let Some(window) = options.window {
        builder.initial_window_size(window);
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    let mut calls = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (head, body) = request.into_parts();
        record.called.lock().unwrap().push(Called {
            method: head.method.to_string(),
            uri: head.uri.to_string(),
            headers: head.headers.clone(),
            connection: number,
        });
        record.changes.notify();
        tokio::spawn(answer(Call { head, body, respond, connection: number }));
        calls += 1;
        if options.calls == Some(calls) {
            connection.graceful_shutdown();
        }
    }
}

impl Call {
    /// Responds with 200 and `body`.
    pub fn say(mut self, body: impl Into<Bytes>) {
        if let Ok(mut stream) = self.respond.send_response(Response::new(()), false) {
            let _ = stream.send_data(body.into(), true);
        }
    }

    /// Begins a response.
    pub fn begin(&mut self, response: http::response::Builder) -> SendStream<Bytes> {
        self.respond.send_response(response.body(()).unwrap(), false).unwrap()
    }

    /// Reads the body of the request to its end, and its trailers.
    pub async fn read(&mut self) -> (Vec<u8>, Option<HeaderMap>) {
        let mut all = Vec::new();
        while let Some(Ok(data)) = self.body.data().await {
            let _ = self.body.flow_control().release_capacity(data.len());
            all.extend_from_slice(&data);
        }
        (all, self.body.trailers().await.ok().flatten())
    }
}

/// Sends all of `bytes` as fast as the peer reads. Returns whether it could.
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
