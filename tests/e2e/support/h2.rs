//! A client that speaks HTTP/2 with prior knowledge.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Builder;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::PATIENCE_OF_TEST;

/// A body whose frames come from a channel. It ends when the sender is dropped.
pub struct Channel(pub UnboundedReceiver<Frame<Bytes>>);

type AnyBody = BoxBody<Bytes, Infallible>;

/// A connection to Weir. A drop of the future of a request resets its stream.
#[derive(Clone)]
pub struct H2Client {
    send: SendRequest<AnyBody>,
    /// Its sender is dropped when the connection has ended.
    running: watch::Receiver<()>,
}

/// A whole response.
#[derive(Debug)]
pub struct H2Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

/// Runs `test` with a connection and its socket. `test` may block: another thread drives the connection.
pub fn over_h2<T>(address: SocketAddr, test: impl AsyncFnOnce(H2Client, TcpStream) -> T) -> T {
    run(address, async |stream| stream, test)
}

/// Runs `test` with a connection over TLS, where ALPN must agree on HTTP/2.
pub fn over_h2_tls<T>(
    address: SocketAddr,
    config: ClientConfig,
    host: &str,
    test: impl AsyncFnOnce(H2Client, TcpStream) -> T,
) -> T {
    let host = ServerName::try_from(host.to_owned()).unwrap();
    let shake = async |stream| {
        let stream = TlsConnector::from(Arc::new(config)).connect(host, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        stream
    };
    run(address, shake, test)
}

fn run<S: AsyncRead + AsyncWrite + Unpin + Send + 'static, T>(
    address: SocketAddr,
    shake: impl AsyncFnOnce(tokio::net::TcpStream) -> S,
    test: impl AsyncFnOnce(H2Client, TcpStream) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let done = runtime.block_on(async {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let stream = tokio::net::TcpStream::from_std(socket.try_clone().unwrap()).unwrap();
        let stream = shake(stream).await;
        let (send, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let (sender, running) = watch::channel(());
        tokio::spawn(async move {
            let _ = connection.await;
            drop(sender);
        });
        timeout(PATIENCE_OF_TEST, test(H2Client { send, running }, socket)).await.expect("in time")
    });
    runtime.shutdown_background();
    done
}

impl Body for Channel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

impl H2Client {
    /// Waits until the connection has ended.
    pub async fn closed(&mut self) {
        while self.running.changed().await.is_ok() {}
    }

    /// Sends a request, and returns the response without reading its body.
    pub async fn send<B>(&mut self, head: Builder, body: B) -> hyper::Result<Response<Incoming>>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static,
    {
        let request: Request<AnyBody> = head.body(BodyExt::boxed(body)).unwrap();
        self.send.send_request(request).await
    }

    /// Sends a request without a body, and reads the response.
    pub async fn ask(&mut self, head: Builder) -> hyper::Result<H2Answer> {
        H2Answer::read(self.send(head, Empty::new()).await?).await
    }

    /// Sends a GET, and reads the response.
    pub async fn get(&mut self, path: &str) -> hyper::Result<H2Answer> {
        self.ask(Request::get(format!("http://weir.test{path}"))).await
    }

    /// Sends a POST, and reads the response.
    pub async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> hyper::Result<H2Answer> {
        let head = Request::post(format!("http://weir.test{path}"));
        H2Answer::read(self.send(head, Full::new(body.into())).await?).await
    }

    /// Posts fifty bodies of different sizes at once. Each must come back.
    pub async fn check_echoes(&self) {
        let mut asking = Vec::new();
        for turn in 0..50_usize {
            let mut client = self.clone();
            asking.push(tokio::spawn(async move { client.post("/", vec![b'x'; turn * 5000]).await }));
        }
        for (turn, asked) in asking.into_iter().enumerate() {
            let answer = asked.await.unwrap().unwrap();
            assert_eq!((answer.status, answer.body.len()), (200, turn * 5000));
        }
    }

    /// Sends `abc` and the trailer `x-check: 3`.
    pub async fn ask_with_trailer(&mut self, head: Builder) -> H2Answer {
        let trailers = HeaderMap::from_iter([("x-check".parse().unwrap(), "3".parse().unwrap())]);
        let (frames, body) = tokio::sync::mpsc::unbounded_channel();
        frames.send(Frame::data(Bytes::from_static(b"abc"))).unwrap();
        frames.send(Frame::trailers(trailers)).unwrap();
        drop(frames);
        H2Answer::read(self.send(head, Channel(body)).await.unwrap()).await.unwrap()
    }
}

impl H2Answer {
    /// Reads the rest of a response.
    pub async fn read(response: Response<Incoming>) -> hyper::Result<Self> {
        let (parts, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        Ok(Self { status: parts.status.as_u16(), headers: parts.headers, body: body.to_bytes(), trailers })
    }

    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}
