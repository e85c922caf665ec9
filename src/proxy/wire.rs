//! The client's socket, shared by the connection that reads and writes it and by the requests on it.
//!
//! [`Wire`] is what both see; [`WireIo`] is what hyper reads and writes. On HTTP/1 every byte read passes the
//! [`Guard`], which answers for message boundaries and for heads that hyper must not see.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::HeaderValue;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

use super::deadline::Deadline;
use super::h1::{Guard, HeadFault, Phase};
use super::interim::Interim;
use super::settings::Timeouts;
use crate::policy::client_ip::unmap;
use crate::time;

/// The largest write that is copied together, in bytes.
const GATHERED_MAX: usize = 1024;

/// A client's connection.
#[derive(Debug)]
pub(super) struct Wire {
    /// Written to through [`WireIo`]; here it is the socket.
    stream: OwnedWriteHalf,
    pub(super) peer: SocketAddr,
    /// Its address as X-Forwarded-For has it.
    pub(super) peer_text: HeaderValue,
    /// Present on HTTP/1.
    guard: Option<RefCell<Guard>>,
    /// Requests that hyper has handed us.
    requests: Cell<u64>,
    /// Those of them whose answer has not ended.
    in_flight: Cell<u32>,
    /// When the answer in hand must have been written.
    answer_by: Cell<Option<Instant>>,
    /// Interim answers for the client.
    interim: Interim,
    /// Bytes of them that the socket did not take; they go before all else.
    interim_rest: RefCell<Vec<u8>>,
    /// Whether the socket takes no more for now.
    is_blocked: Cell<bool>,
    /// Whether the client may still be sending when everything has been answered.
    unread: Cell<bool>,
}

impl Wire {
    fn new(stream: OwnedWriteHalf, peer: SocketAddr, guard: Option<Guard>) -> Rc<Self> {
        let guard = guard.map(RefCell::new);
        let text = unmap(peer.ip()).to_string();
        let peer_text = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("unknown"));
        Rc::new(Self {
            stream,
            peer,
            peer_text,
            guard,
            requests: Cell::new(0),
            in_flight: Cell::new(0),
            answer_by: Cell::new(None),
            interim: Interim::default(),
            interim_rest: RefCell::default(),
            is_blocked: Cell::new(false),
            unread: Cell::new(false),
        })
    }

    /// Whether this is HTTP/1.
    pub(super) fn is_h1(&self) -> bool {
        self.guard.is_some()
    }

    /// A request begins: its ordinal, from 0, and what it holds until its answer has ended.
    pub(super) fn begin(self: &Rc<Self>) -> (u64, InFlight) {
        self.in_flight.set(self.in_flight.get() + 1);
        self.answer_by.set(None);
        (self.requests.replace(self.requests.get() + 1), InFlight(Rc::clone(self)))
    }

    /// Breaks the connection if the answer in hand has not been written by then. Nobody asks an answer for more
    /// while the client takes none of it, so that it cannot see to that by itself. On HTTP/2 this does nothing:
    /// answers share the connection.
    pub(super) fn answer_by(&self, at: Option<Instant>) {
        self.answer_by.set(at.filter(|_| self.is_h1()));
    }

    /// What is wrong with the `ordinal`-th request of the connection, if it is a substitute.
    pub(super) fn fault(&self, ordinal: u64) -> Option<HeadFault> {
        self.guard.as_ref()?.borrow().fault(ordinal)
    }

    /// Waits until the client has closed its side or the connection is broken, whatever lies unread before that.
    ///
    /// Readiness for priority data is what tokio reports `EPOLLRDHUP` with, and nothing else sets it here: the
    /// socket is not registered for such data.
    pub(super) async fn gone(&self) {
        // An error means that the runtime is going away, and the client with it.
        let _ = self.socket().ready(Interest::PRIORITY).await;
    }

    /// Where interim answers for this client are left, if it can get any.
    pub(super) fn interim(&self) -> Option<&Interim> {
        self.is_h1().then_some(&self.interim)
    }

    /// Writes the interim answers that have come. To be called only while the request in hand is unanswered: hyper
    /// has then written all it had, unless the socket is blocked. In that case they are dropped.
    pub(super) fn write_interim(&self) {
        let Some(bytes) = self.interim.take().filter(|_| !self.is_blocked.get()) else { return };
        let mut rest = self.interim_rest.borrow_mut();
        if rest.is_empty() {
            let written = self.socket().try_write(&bytes).unwrap_or(0); // an error shows again in the next write
            rest.extend_from_slice(&bytes[written..]);
        }
    }

    fn socket(&self) -> &TcpStream {
        self.stream.as_ref()
    }

    /// After the last answer: closes our side, and takes what the client still sends, so that the kernel does not
    /// answer it with a reset that destroys the answer on its way (RFC 9112, section 9.6).
    pub(super) async fn linger(&self, at_most: Duration) {
        let _ = SockRef::from(self.socket()).shutdown(std::net::Shutdown::Write);
        if !self.unread.get() && !self.socket().try_read(&mut [0; 1]).is_ok_and(|len| len > 0) {
            return;
        }
        let discard = async {
            let mut waste = [0; 4096];
            while self.socket().readable().await.is_ok() {
                match self.socket().try_read(&mut waste) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
        };
        let _ = tokio::time::timeout(at_most, discard).await;
    }
}

/// A request whose answer has not ended.
#[derive(Debug)]
pub(super) struct InFlight(Rc<Wire>);

impl InFlight {
    /// Whether it is on HTTP/1.
    pub(super) fn is_h1(&self) -> bool {
        self.0.is_h1()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get().saturating_sub(1));
    }
}

/// What the client owes us next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    Nothing,
    Request,
    RestOfHead,
}

/// The client's connection as hyper reads and writes it.
#[derive(Debug)]
pub(super) struct WireIo {
    wire: Rc<Wire>,
    /// Knows when the socket has been read empty, which saves the read that would find out.
    read: OwnedReadHalf,
    /// What was read to tell the protocol.
    first: Bytes,
    timeouts: Rc<Timeouts>,
    /// What is owed, after how many requests, and since when.
    owed: (Owed, u64, Instant),
    read_deadline: Deadline,
    write_blocked_since: Option<Instant>,
    write_deadline: Deadline,
}

impl WireIo {
    /// A connection on which `first` has been read, beginning at `since`; HTTP/1 if there is a `guard`.
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        guard: Option<Guard>,
        first: Bytes,
        timeouts: Rc<Timeouts>,
        since: Instant,
    ) -> Self {
        let (read, write) = stream.into_split();
        Self {
            wire: Wire::new(write, peer, guard),
            read,
            first,
            timeouts,
            owed: (Owed::RestOfHead, 0, since),
            read_deadline: Deadline::default(),
            write_blocked_since: None,
            write_deadline: Deadline::default(),
        }
    }

    /// The connection as its requests see it.
    pub(super) fn wire(&self) -> &Rc<Wire> {
        &self.wire
    }

    /// Reads once from what was read before or from the socket; `false` at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        if !self.first.is_empty() {
            let len = self.first.len().min(buf.remaining());
            buf.put_slice(&self.first[..len]);
            self.first.advance(len);
            return Poll::Ready(Ok(true));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.read).poll_read(cx, buf))?;
        Poll::Ready(Ok(buf.filled().len() > before))
    }

    /// Ready if the client has owed us something for too long.
    fn poll_overdue(&mut self, cx: &mut Context<'_>, phase: Phase) -> Poll<()> {
        if self.wire.in_flight.get() > 0 {
            // hyper need not read again once it has answered. This makes it, for the next request to be owed.
            self.read_deadline.tick(cx, self.timeouts.keep_alive);
            return Poll::Pending;
        }
        let requests = self.wire.requests.get();
        let (owed, allowed) = match phase {
            // A new connection owes a whole head.
            Phase::Idle if requests > 0 => (Owed::Request, self.timeouts.keep_alive),
            Phase::Idle | Phase::InHead => (Owed::RestOfHead, self.timeouts.request_head),
            _ => (Owed::Nothing, self.timeouts.keep_alive),
        };
        if (owed, requests) != (self.owed.0, self.owed.1) {
            self.owed = (owed, requests, time::instant_now());
        }
        if owed == Owed::Nothing { Poll::Pending } else { self.read_deadline.poll(cx, self.owed.2 + allowed) }
    }

    fn poll_read_h1(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let filled = buf.filled().len();
            let phase = {
                let Some(guard) = &self.wire.guard else { return Poll::Ready(Ok(())) };
                let mut guard = guard.borrow_mut();
                let held = guard.releasable();
                if !held.is_empty() {
                    let len = held.len().min(buf.remaining());
                    buf.put_slice(&held[..len]);
                    guard.consume(len);
                    return Poll::Ready(Ok(()));
                }
                guard.phase()
            };
            match phase {
                // The answer to a substitute closes the connection; an end of stream here would lose it.
                Phase::Done => return Poll::Pending,
                Phase::Broken => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                _ => {}
            }
            match self.poll_fill(cx, buf) {
                Poll::Ready(Ok(true)) => {
                    let Some(guard) = &self.wire.guard else { return Poll::Ready(Ok(())) };
                    let released = guard.borrow_mut().push(&buf.filled()[filled..]);
                    buf.set_filled(filled + released);
                    if released > 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                Poll::Ready(Ok(false)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    ready!(self.poll_overdue(cx, phase));
                    let Some(guard) = &self.wire.guard else { return Poll::Ready(Ok(())) };
                    if !guard.borrow_mut().time_out() {
                        return Poll::Ready(Ok(())); // between requests: as if the client had closed
                    }
                }
            }
        }
    }

    /// After a write that could not go on: fails once it has been so for too long.
    fn write_blocked(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let since = *self.write_blocked_since.get_or_insert_with(time::instant_now);
        self.wire.is_blocked.set(true);
        let idle_at = since + self.timeouts.body_idle;
        let at = self.wire.answer_by.get().map_or(idle_at, |answer_by| answer_by.min(idle_at));
        ready!(self.write_deadline.poll(cx, at));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.wire.socket().poll_write_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return self.write_blocked(cx),
            }
            let mut rest = self.wire.interim_rest.borrow_mut();
            let is_rest = !rest.is_empty();
            let written = if is_rest { self.wire.socket().try_write(&rest) } else { write(self.wire.socket()) };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(len) if is_rest => drop(rest.drain(..len)),
                done => {
                    drop(rest);
                    self.write_blocked_since = None;
                    self.wire.is_blocked.set(false);
                    return Poll::Ready(done);
                }
            }
        }
    }
}

impl AsyncRead for WireIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.wire.is_h1() {
            return self.poll_read_h1(cx, buf);
        }
        match self.poll_fill(cx, buf) {
            Poll::Ready(done) => Poll::Ready(done.map(|_| ())),
            Poll::Pending => {
                ready!(self.poll_overdue(cx, Phase::Idle));
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for WireIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Head and body of a small answer: copied together they cost less than what a vectored write does.
        let mut small = [0; GATHERED_MAX];
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        let Some(gathered) = small.get_mut(..len) else {
            return self.poll_write_with(cx, |stream| stream.try_write_vectored(slices));
        };
        let mut free = &mut *gathered;
        for slice in slices {
            free.put_slice(slice);
        }
        self.poll_write_with(cx, |stream| stream.try_write(gathered))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(self.wire.socket()).shutdown(std::net::Shutdown::Write))
    }
}

impl Drop for WireIo {
    fn drop(&mut self) {
        let is_mid_message = self.wire.guard.as_ref().is_some_and(|guard| guard.borrow().phase() != Phase::Idle);
        self.wire.unread.set(is_mid_message || !self.first.is_empty());
    }
}
