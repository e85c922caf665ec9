//! One HTTP/2 connection: many requests of a worker share it, each on a stream of its own.
//!
//! A task drives it, because it belongs to no request. It counts as open once the service has answered a ping: the
//! service then speaks HTTP/2, and its settings are known. Weir sends another ping only if the connection has been
//! silent and a request uses it, or if a request got no answer in time: services take pings without requests for an
//! attack. Not here: which connection a request gets, and when another one is opened.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::base::opaque::opaque_debug;
use crate::base::time;
use crate::transport::http1::RESPONSE_HEAD_BYTES_MAX;
use crate::transport::net::deadline::Deadline;
use crate::transport::upstream::pool::permit::ConnectionPermit;
use crate::transport::upstream::pool::stream::EndpointStream;

/// Streams of one connection, if the service allows as many. Beyond them another connection is opened.
pub(crate) const STREAMS_MAX: usize = 128;
/// Bytes that a service may send on one stream before Weir reads them: the initial value of RFC 9113, section 6.9.2.
pub(crate) const STREAM_WINDOW: u32 = 65_535;
/// Bytes that a service may send on one connection before Weir reads them: enough that streams whose clients read
/// nothing cannot stop the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 128;
/// Bytes by which unread DATA frames may be shorter than 256 bytes, all together. The library ends a connection beyond it.
/// Full windows of frames of 10 bytes, which are about the shortest messages of gRPC, stay below it.
const DATA_FRAME_BUDGET: usize = CONNECTION_WINDOW as usize / 10 * 256;
/// Bytes of one stream that the library buffers until the socket takes them.
const SEND_BUFFER_MAX: usize = 64 * 1024;
/// Streams that were reset and are remembered, because frames for them may still arrive.
const RESET_REMEMBERED_MAX: usize = 64;
/// After this time without a byte from the service, the next request also sends a ping.
const SILENT: Duration = Duration::from_secs(5);

/// See the [module](self).
pub(crate) struct H2Connection {
    /// Begins streams; none once the connection is retired.
    send: RefCell<Option<SendRequest<Bytes>>>,
    /// Requests that have a stream, or are about to begin one.
    streams: Cell<usize>,
    /// A request has used it.
    was_used: Cell<bool>,
    /// When the last byte arrived.
    active_at: Rc<Cell<Instant>>,
    /// The driver has to send a ping.
    needs_ping: Cell<bool>,
    /// When its last stream ended, in sweeps of its pool.
    idle_since: Cell<u64>,
}

/// Drives one connection.
pub(crate) struct Driver<T> {
    protocol: Connection<ActivityTracker<T>, Bytes>,
    ping: PingPong,
    connection: Rc<H2Connection>,
    /// How long the answer to a ping may take, and how long a retired idle connection may take to close.
    ping_timeout: Duration,
    /// Held until the connection is closed.
    permit: Option<ConnectionPermit>,
}

impl H2Connection {
    /// Begins HTTP/2 on `stream` and waits for the answer to a ping. Errs if the service does not speak HTTP/2 or allows
    /// no streams.
    pub(crate) async fn open<T: AsyncRead + AsyncWrite + Unpin>(
        stream: T,
        ping_timeout: Duration,
        permit: Option<ConnectionPermit>,
    ) -> io::Result<(Rc<Self>, Driver<T>)> {
        let active_at = Rc::new(Cell::new(time::instant_now()));
        let tracked = ActivityTracker { stream, active_at: Rc::clone(&active_at) };
        let (send, mut protocol) = builder().handshake(tracked).await.map_err(|error| violation(&error))?;
        let Some(mut ping) = protocol.ping_pong() else { return Err(io::ErrorKind::Unsupported.into()) };
        ping.send_ping(Ping::opaque()).map_err(|error| violation(&error))?;
        poll_fn(|cx| match Pin::new(&mut protocol).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Err(io::Error::other("the service closed the connection at once"))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(violation(&error))),
            Poll::Pending => ping.poll_pong(cx).map_ok(drop).map_err(|error| violation(&error)),
        })
        .await?;
        if send.current_max_send_streams() == 0 {
            return Err(io::Error::other("the service allows no streams"));
        }
        let connection = Rc::new(Self {
            send: RefCell::new(Some(send)),
            streams: Cell::new(0),
            was_used: Cell::new(false),
            active_at,
            needs_ping: Cell::new(false),
            idle_since: Cell::new(0),
        });
        Ok((Rc::clone(&connection), Driver { protocol, ping, connection, ping_timeout, permit }))
    }

    /// Whether streams may begin on it: it is neither closed nor retired.
    pub(crate) fn is_open(&self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut send = self.send.borrow_mut();
        send.as_mut().is_some_and(|send| !matches!(send.poll_ready(&mut cx), Poll::Ready(Err(_))))
    }

    /// The number of streams that it may have at once.
    pub(crate) fn streams_max(&self) -> usize {
        self.send.borrow().as_ref().map_or(0, |send| send.current_max_send_streams().min(STREAMS_MAX))
    }

    /// Whether one more stream may begin.
    pub(crate) fn has_capacity(&self) -> bool {
        self.streams.get() < self.streams_max()
    }

    /// Whether it has no streams.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// Records that it has been idle since this sweep of its pool.
    pub(crate) fn mark_idle(&self, since: u64) {
        self.idle_since.set(since);
    }

    /// The sweep since which it is idle; none if it has streams.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        self.is_idle().then(|| self.idle_since.get())
    }

    /// Lets no further stream begin. The connection closes when its streams have ended.
    pub(crate) fn retire(&self) {
        self.send.take();
    }

    /// Counts one stream. Returns whether a request has used the connection before.
    pub(crate) fn reserve_stream(&self) -> bool {
        self.streams.set(self.streams.get() + 1);
        self.was_used.replace(true)
    }

    /// Ends the count of one stream.
    pub(crate) fn release_stream(&self) {
        self.streams.set(self.streams.get().saturating_sub(1));
    }

    /// Begins a stream with `request`; `is_whole`: no body follows. Errs if no stream may begin any more.
    pub(crate) fn send(
        &self,
        request: Request<()>,
        is_whole: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        if time::instant_now().saturating_duration_since(self.active_at.get()) >= SILENT {
            self.request_ping();
        }
        let send = self.send.borrow();
        // A clone: a handle whose own stream still waits to begin is not ready for another one.
        let mut send = send.clone().ok_or(h2::Reason::REFUSED_STREAM)?;
        send.send_request(request, is_whole)
    }

    /// Has the driver send a ping. The next action on a stream wakes the driver.
    pub(crate) fn request_ping(&self) {
        self.needs_ping.set(true);
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Driver<T> {
    /// Drives the connection until it ends.
    pub(crate) async fn run(self) {
        let Self { mut protocol, mut ping, connection, ping_timeout, permit } = self;
        let (mut deadline, mut pinged_at, mut retired_at) = (Deadline::default(), None, None);
        let ended = poll_fn(|cx| {
            if let Poll::Ready(ended) = Pin::new(&mut protocol).poll(cx) {
                return Poll::Ready(ended.map_err(io::Error::other));
            }
            if connection.needs_ping.take() && pinged_at.is_none() && ping.send_ping(Ping::opaque()).is_ok() {
                pinged_at = Some(time::instant_now());
            }
            if pinged_at.is_some() && ping.poll_pong(cx).is_ready() {
                pinged_at = None;
            }
            if retired_at.is_none() && connection.is_idle() && connection.send.borrow().is_none() {
                retired_at = Some(time::instant_now());
            }
            // Any byte after the ping shows that the service is alive.
            let since = retired_at.or(pinged_at.map(|pinged_at| connection.active_at.get().max(pinged_at)));
            match since {
                Some(since) => deadline.poll(cx, since + ping_timeout).map(|()| Err(io::ErrorKind::TimedOut.into())),
                None => Poll::Pending,
            }
        });
        let ended = ended.await;
        connection.retire();
        if let Err(error) = ended {
            let state = permit.as_ref().map(ConnectionPermit::endpoint);
            let (upstream, endpoint) = state.map(|state| (&*state.upstream, state.endpoint.to_string())).unzip();
            tracing::debug!(upstream, endpoint, %error, "an HTTP/2 connection to an upstream has ended");
        }
        // The endpoint counts the connection until it is closed.
        drop(protocol);
        drop(permit);
    }
}

opaque_debug!(H2Connection);

/// Sends one request without a body on a connection of its own, and returns the status of the response.
pub(crate) async fn probe(stream: EndpointStream, request: Request<()>) -> io::Result<u16> {
    stream.require_h2()?;
    let (mut send, mut protocol) = builder().handshake::<_, Bytes>(stream).await.map_err(|error| violation(&error))?;
    let (mut response, _) = send.send_request(request, true).map_err(|error| violation(&error))?;
    poll_fn(|cx| {
        let ended = Pin::new(&mut protocol).poll(cx);
        match Pin::new(&mut response).poll(cx) {
            Poll::Ready(response) => {
                Poll::Ready(response.map(|response| response.status().as_u16()).map_err(|error| violation(&error)))
            }
            Poll::Pending if ended.is_ready() => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .data_frame_budget(DATA_FRAME_BUDGET)
        .max_send_buffer_size(SEND_BUFFER_MAX)
        .max_concurrent_reset_streams(RESET_REMEMBERED_MAX)
        .max_header_list_size(u32::try_from(RESPONSE_HEAD_BYTES_MAX).unwrap_or(u32::MAX));
    builder
}

fn violation(error: &h2::Error) -> io::Error {
    io::Error::other(format!("the service violates HTTP/2: {error}"))
}

/// A byte stream that records when its last read returned.
#[derive(Debug)]
struct ActivityTracker<T> {
    stream: T,
    active_at: Rc<Cell<Instant>>,
}

impl<T: AsyncRead + Unpin> AsyncRead for ActivityTracker<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        if read.is_ready() {
            self.active_at.set(time::instant_now());
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ActivityTracker<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::LocalSet;
    use tokio::time::{sleep, timeout};

    use super::*;

    const PING_TIMEOUT: Duration = Duration::from_secs(3);

    /// A service that speaks HTTP/2 for as long as it is polled.
    async fn service(socket: DuplexStream) -> h2::server::Connection<DuplexStream, Bytes> {
        h2::server::handshake(socket).await.unwrap()
    }

    /// Opens a connection to a service that answers for `lives` and is silent after that, and requests a ping at
    /// `pinged_at`. Returns when the connection ended; none if it did not.
    async fn ended_in(lives: Duration, pinged_at: Duration) -> Option<Duration> {
        let (near, far) = duplex(1 << 16);
        let began = time::instant_now();
        let serving = async {
            let mut connection = service(far).await;
            let _ = timeout(lives, async { while connection.accept().await.is_some() {} }).await;
            sleep(Duration::from_hours(1)).await;
        };
        let driving = async {
            let (connection, driver) = H2Connection::open(near, PING_TIMEOUT, None).await.unwrap();
            let request_ping = async {
                sleep(pinged_at).await;
                connection.request_ping();
                // An action on a stream wakes the driver.
                drop(connection.send.borrow().clone());
                let send = connection.send.borrow().clone();
                if let Some(mut send) = send {
                    let _ = send.send_request(Request::new(()), true);
                }
                std::future::pending::<()>().await;
            };
            let run = timeout(Duration::from_mins(10), driver.run());
            let ended = tokio::select! { ended = run => ended.is_ok(), () = request_ping => false };
            ended.then(|| began.elapsed())
        };
        tokio::select! { ended = driving => ended, () = serving => None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_an_answer_to_a_ping_is_closed() {
        let local = LocalSet::new();
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        let dead = local.run_until(ended_in(second, minute)).await;
        assert_eq!(dead, Some(minute + PING_TIMEOUT));
        assert_eq!(local.run_until(ended_in(2 * minute, minute)).await, None, "the service answers the ping");
    }

    /// Its last frames have no reader.
    #[tokio::test(start_paused = true)]
    async fn a_retired_idle_connection_closes_in_time() {
        let (near, far) = duplex(64);
        let began = time::instant_now();
        let opened = tokio::select! {
            opened = H2Connection::open(near, PING_TIMEOUT, None) => opened,
            () = async { _ = service(far).await.accept().await } => Err(io::ErrorKind::Other.into()),
        };
        // The service does not read from here on. A socket would buffer some bytes more.
        let (connection, driver) = opened.unwrap();
        connection.retire();
        assert!(timeout(Duration::from_mins(1), driver.run()).await.is_ok());
        assert!(began.elapsed() <= PING_TIMEOUT);
    }
}
