//! A connection that speaks HTTP/2: many requests of a worker share it, each on a stream of its own.
//!
//! A task drives it, for it belongs to no request. It counts as open once it has answered a ping: it speaks HTTP/2
//! then, and what it allows is known. It is asked again only if it has been silent and a request goes out on it, or
//! one got no answer in time: services take pings without requests for an attack. Not here: which connection a
//! request gets, and when another one is opened.

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
use http::uri::Scheme;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::pool::Pool;
use super::queue::Slot;
use super::transport::Transport;
use crate::http1::RESPONSE_HEAD_BYTES_MAX;
use crate::net::deadline::Deadline;
use crate::time;

/// Streams of one connection, if the service allows as many. Beyond, another one is opened.
pub(super) const STREAMS_MAX: usize = 128;
/// Bytes that a service may send on one stream before they are taken: what RFC 9113, section 6.9.2, begins with.
const STREAM_WINDOW: u32 = 65_535;
/// The same for a connection: so much that no streams whose clients take nothing can stop the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 128;
/// Bytes of one stream that the library holds until the socket takes them.
const SEND_BUFFER_MAX: usize = 64 * 1024;
/// Streams that were reset and are remembered, in case something still comes for them.
const RESET_REMEMBERED_MAX: usize = 64;
/// After so long without a word, a connection is asked whether it is still there when it is used.
const SILENT: Duration = Duration::from_secs(5);

/// See the [module](self).
pub(super) struct Trunk {
    /// Where streams begin; none once none may.
    send: RefCell<Option<SendRequest<Bytes>>>,
    /// Requests that have a stream, or are about to.
    streams: Cell<usize>,
    /// Requests have gone out on it.
    was_used: Cell<bool>,
    /// When something last came.
    heard_at: Rc<Cell<Instant>>,
    /// It is to be asked whether it is there.
    is_doubted: Cell<bool>,
    /// When its last stream ended, in sweeps of its pool.
    idle_since: Cell<u64>,
}

/// The right to one stream.
#[derive(Debug)]
pub(super) struct Seat {
    trunk: Rc<Trunk>,
    pool: Rc<Pool>,
    was_used: bool,
}

/// What drives a connection.
pub(super) struct Driver<T> {
    connection: Connection<Heard<T>, Bytes>,
    ping: PingPong,
    trunk: Rc<Trunk>,
    /// How long an answer to a ping may take, and the last words of a connection that is not needed any more.
    patience: Duration,
    /// While its endpoint counts it.
    slot: Option<Slot>,
}

impl Trunk {
    /// Begins HTTP/2 on `transport`.
    pub(super) async fn open<T: AsyncRead + AsyncWrite + Unpin>(
        transport: T,
        patience: Duration,
        slot: Option<Slot>,
    ) -> io::Result<(Rc<Self>, Driver<T>)> {
        let heard_at = Rc::new(Cell::new(time::instant_now()));
        let heard = Heard { transport, at: Rc::clone(&heard_at) };
        let (send, mut connection) = builder().handshake(heard).await.map_err(|error| unfit(&error))?;
        let Some(mut ping) = connection.ping_pong() else { return Err(io::ErrorKind::Unsupported.into()) };
        ping.send_ping(Ping::opaque()).map_err(|error| unfit(&error))?;
        poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Err(io::Error::other("it ended the connection at once"))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(unfit(&error))),
            Poll::Pending => ping.poll_pong(cx).map_ok(drop).map_err(|error| unfit(&error)),
        })
        .await?;
        if send.current_max_send_streams() == 0 {
            return Err(io::Error::other("it takes no requests"));
        }
        let trunk = Rc::new(Self {
            send: RefCell::new(Some(send)),
            streams: Cell::new(0),
            was_used: Cell::new(false),
            heard_at,
            is_doubted: Cell::new(false),
            idle_since: Cell::new(0),
        });
        Ok((Rc::clone(&trunk), Driver { connection, ping, trunk, patience, slot }))
    }

    /// Whether streams may begin on it: it is neither closed nor about to be.
    pub(super) fn is_open(&self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut send = self.send.borrow_mut();
        send.as_mut().is_some_and(|send| !matches!(send.poll_ready(&mut cx), Poll::Ready(Err(_))))
    }

    /// How many streams it may have.
    pub(super) fn streams_max(&self) -> usize {
        self.send.borrow().as_ref().map_or(0, |send| send.current_max_send_streams().min(STREAMS_MAX))
    }

    /// Whether one more may begin.
    pub(super) fn has_room(&self) -> bool {
        self.streams.get() < self.streams_max()
    }

    /// Whether it has no streams.
    pub(super) fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// It has been idle since this sweep of its pool.
    pub(super) fn rest(&self, since: u64) {
        self.idle_since.set(since);
    }

    /// Since which sweep it is idle; none if it is not.
    pub(super) fn idle_since(&self) -> Option<u64> {
        self.is_idle().then(|| self.idle_since.get())
    }

    /// No stream begins on it any more; it closes when those it has have ended.
    pub(super) fn leave(&self) {
        self.send.take();
    }
}

impl Seat {
    /// One on `trunk`, of `pool`.
    pub(super) fn new(trunk: &Rc<Trunk>, pool: &Rc<Pool>) -> Self {
        trunk.streams.set(trunk.streams.get() + 1);
        let was_used = trunk.was_used.replace(true);
        Self { trunk: Rc::clone(trunk), pool: Rc::clone(pool), was_used }
    }

    /// Whether another request has gone out on the connection before.
    pub(super) fn was_used(&self) -> bool {
        self.was_used
    }

    /// By which scheme the endpoint is spoken to.
    pub(super) fn scheme(&self) -> Scheme {
        self.pool.spec.endpoint.scheme()
    }

    /// Begins the stream.
    pub(super) fn send(
        &self,
        request: Request<()>,
        is_whole: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        if time::instant_now().saturating_duration_since(self.trunk.heard_at.get()) >= SILENT {
            self.doubt();
        }
        let send = self.trunk.send.borrow();
        // A handle of its own: one waits where a stream of its own waits to begin.
        let mut send = send.clone().ok_or(h2::Reason::REFUSED_STREAM)?;
        send.send_request(request, is_whole)
    }

    /// Has the connection asked whether it is still there. What is done to the stream after this wakes its driver.
    pub(super) fn doubt(&self) {
        self.trunk.is_doubted.set(true);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.trunk.streams.set(self.trunk.streams.get().saturating_sub(1));
        self.pool.stream_ended(&self.trunk);
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Driver<T> {
    /// Drives the connection until it ends.
    pub(super) async fn run(self) {
        let Self { mut connection, mut ping, trunk, patience, slot } = self;
        let (mut deadline, mut asked_at, mut left_at) = (Deadline::default(), None, None);
        let ended = poll_fn(|cx| {
            if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(ended.map_err(io::Error::other));
            }
            if trunk.is_doubted.take() && asked_at.is_none() && ping.send_ping(Ping::opaque()).is_ok() {
                asked_at = Some(time::instant_now());
            }
            if asked_at.is_some() && ping.poll_pong(cx).is_ready() {
                asked_at = None;
            }
            if left_at.is_none() && trunk.is_idle() && trunk.send.borrow().is_none() {
                left_at = Some(time::instant_now());
            }
            // Whatever came shows that somebody is there.
            let due = left_at.or(asked_at.map(|asked_at| trunk.heard_at.get().max(asked_at)));
            match due {
                Some(since) => deadline.poll(cx, since + patience).map(|()| Err(io::ErrorKind::TimedOut.into())),
                None => Poll::Pending,
            }
        });
        let ended = ended.await;
        trunk.leave();
        if let Err(error) = ended {
            tracing::debug!(%error, "a shared connection to an upstream has ended");
        }
        // Its endpoint counts it until it is closed.
        drop(connection);
        drop(slot);
    }
}

impl std::fmt::Debug for Trunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trunk").field("streams", &self.streams).finish_non_exhaustive()
    }
}

/// Asks with a GET once, and gives the status.
pub(super) async fn ask(transport: Transport, request: Request<()>) -> io::Result<u16> {
    transport.agreed_on_h2()?;
    let (mut send, mut connection) = builder().handshake::<_, Bytes>(transport).await.map_err(|error| unfit(&error))?;
    let (mut response, _) = send.send_request(request, true).map_err(|error| unfit(&error))?;
    poll_fn(|cx| {
        let ended = Pin::new(&mut connection).poll(cx);
        match Pin::new(&mut response).poll(cx) {
            Poll::Ready(response) => {
                Poll::Ready(response.map(|response| response.status().as_u16()).map_err(|error| unfit(&error)))
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
        .max_send_buffer_size(SEND_BUFFER_MAX)
        .max_concurrent_reset_streams(RESET_REMEMBERED_MAX)
        .max_header_list_size(u32::try_from(RESPONSE_HEAD_BYTES_MAX).unwrap_or(u32::MAX));
    builder
}

fn unfit(error: &h2::Error) -> io::Error {
    io::Error::other(format!("it does not speak HTTP/2 as it should: {error}"))
}

/// A connection that knows when it was last heard of.
#[derive(Debug)]
struct Heard<T> {
    transport: T,
    at: Rc<Cell<Instant>>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Heard<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.transport).poll_read(cx, into);
        if read.is_ready() {
            self.at.set(time::instant_now());
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Heard<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::LocalSet;
    use tokio::time::{sleep, timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(3);

    /// A service that takes part in the protocol until it is dropped or forgotten.
    async fn service(socket: DuplexStream) -> h2::server::Connection<DuplexStream, Bytes> {
        h2::server::handshake(socket).await.unwrap()
    }

    /// Opens a connection to a service that is alive for `lives`, and then says nothing. Gives how long it took to end
    /// once it was doubted `after` that; none if it did not.
    async fn ended_in(lives: Duration, doubted_at: Duration) -> Option<Duration> {
        let (near, far) = duplex(1 << 16);
        let began = time::instant_now();
        let serving = async {
            let mut connection = service(far).await;
            let _ = timeout(lives, async { while connection.accept().await.is_some() {} }).await;
            sleep(Duration::from_hours(1)).await;
        };
        let driving = async {
            let (trunk, driver) = Trunk::open(near, PATIENCE, None).await.unwrap();
            let doubt = async {
                sleep(doubted_at).await;
                trunk.is_doubted.set(true);
                // As what is done to a stream does.
                drop(trunk.send.borrow().clone());
                let send = trunk.send.borrow().clone();
                if let Some(mut send) = send {
                    let _ = send.send_request(Request::new(()), true);
                }
                std::future::pending::<()>().await;
            };
            let run = timeout(Duration::from_mins(10), driver.run());
            let ended = tokio::select! { ended = run => ended.is_ok(), () = doubt => false };
            ended.then(|| began.elapsed())
        };
        tokio::select! { ended = driving => ended, () = serving => None }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_answer_is_given_up() {
        let local = LocalSet::new();
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        let dead = local.run_until(ended_in(second, minute)).await;
        assert_eq!(dead, Some(minute + PATIENCE));
        assert_eq!(local.run_until(ended_in(2 * minute, minute)).await, None, "it answers");
    }

    /// It says that it leaves, but nobody reads it.
    #[tokio::test(start_paused = true)]
    async fn one_that_is_not_needed_does_not_stay_for_its_last_words() {
        let (near, far) = duplex(64);
        let began = time::instant_now();
        let opened = tokio::select! {
            opened = Trunk::open(near, PATIENCE, None) => opened,
            () = async { _ = service(far).await.accept().await } => Err(io::ErrorKind::Other.into()),
        };
        // The service is gone from here on; a socket would swallow some more.
        let (trunk, driver) = opened.unwrap();
        trunk.leave();
        assert!(timeout(Duration::from_mins(1), driver.run()).await.is_ok());
        assert!(began.elapsed() <= PATIENCE);
    }
}
