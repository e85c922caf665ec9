//! A client's connection that speaks HTTP/1: heads and bodies in, answers out.
//!
//! One task has it, so that nothing here is shared. While it is idle it holds no buffer.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::fields::{FieldBuf, Fields, Spans};
use crate::http1::encode::Encoder;
use crate::http1::{Head, HeadFault, Limits, Next, Requests, Step};
use crate::net::Timeouts;
use crate::net::buffer::{Buffer, Buffers, Out, PENDING_MAX};
use crate::net::deadline::Deadline;
use crate::net::stream::Stream;
use crate::time;
use crate::upstream::{BodyFault, Source, spend};

/// Bytes of later requests that are taken in while one is being answered.
const PIPELINED_MAX: usize = 4 * 1024;
/// Bytes of a body that are taken in for nothing, to keep a connection.
const SKIPPED_MAX: usize = 64 * 1024;
/// What is moved at once from the client to the upstream.
const PIECE_MAX: usize = 64 * 1024;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    buffers: Rc<Buffers>,
    requests: Requests,
    input: Buffer,
    out: Out,
    expectation: Expectation,
    /// When the head began that is not whole yet.
    head_since: Option<Instant>,
    /// The system keeps little of what was not sent.
    is_bounded: bool,
}

/// Whether the client waits for a 100 before it sends the body of the request in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expectation {
    /// It does not, or no longer.
    None,
    Waits,
    /// It waited, and got a final response instead. It may send the body or not.
    Answered,
}

/// A head as it came, with memory of its own.
#[derive(Debug, Default)]
pub(super) struct HeadBytes {
    bytes: Vec<u8>,
    start: usize,
    spans: Spans,
}

impl HeadBytes {
    /// From the first byte of the message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Its fields.
    pub(super) fn fields(&self) -> Fields<'_> {
        self.spans.of(self.bytes())
    }
}

/// What a client says next.
#[derive(Debug)]
pub(super) enum Said {
    /// A request; its bytes are where they were asked to be put.
    Head(Head),
    /// Something that cannot be answered as a request.
    Fault(HeadFault),
    /// Nothing more.
    Nothing,
}

/// How a client sees that a response is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutEnd {
    /// The connection closes before the announced length, or before the last chunk.
    Closed,
    /// The end of the connection would be the end of the body, so it is reset instead.
    Reset,
}

impl Wire {
    /// A connection that began at `since`, on which `first` has been read.
    pub(super) fn new(stream: Stream, first: Buffer, since: Instant, limits: Limits, buffers: Rc<Buffers>) -> Self {
        Self {
            stream,
            buffers,
            requests: Requests::new(limits),
            input: first,
            out: Out::default(),
            expectation: Expectation::None,
            head_since: Some(since),
            is_bounded: false,
        }
    }

    /// The next head, put into `memory`. A client that has been idle since `since` for longer than it may says
    /// nothing more.
    pub(super) fn poll_said(
        &mut self,
        cx: &mut Context<'_>,
        memory: &mut HeadBytes,
        since: Instant,
        timeouts: &Timeouts,
        deadline: &mut Deadline,
    ) -> Poll<Said> {
        loop {
            let mut is_idle = self.input.is_empty();
            if !is_idle {
                match self.requests.head(self.input.unread()) {
                    Next::Head(head) => {
                        self.take_head(head.len, memory);
                        return Poll::Ready(Said::Head(head));
                    }
                    Next::Fault(fault) => return Poll::Ready(Said::Fault(fault)),
                    Next::InHead => {}
                    Next::Idle(len) => {
                        self.input.consume(len);
                        is_idle = true;
                    }
                }
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(Said::Nothing),
                Poll::Pending => {
                    let at = if is_idle {
                        since + timeouts.keep_alive
                    } else {
                        *self.head_since.get_or_insert_with(time::instant_now) + timeouts.request_head
                    };
                    ready!(deadline.poll(cx, at));
                    return Poll::Ready(if is_idle { Said::Nothing } else { Said::Fault(HeadFault::Timeout) });
                }
            }
        }
    }

    fn take_head(&mut self, len: usize, memory: &mut HeadBytes) {
        self.head_since = None;
        self.expectation = Expectation::None;
        let (bytes, start) = self.input.split(len, &self.buffers);
        self.buffers.put(std::mem::replace(&mut memory.bytes, bytes));
        memory.start = start;
        memory.spans = self.requests.take_fields(std::mem::take(&mut memory.spans));
    }

    /// The head in `memory` is not needed any more.
    pub(super) fn give_back(&self, memory: &mut HeadBytes) {
        self.buffers.put(std::mem::take(&mut memory.bytes));
    }

    /// Reads once, with a buffer only if there is something to read.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.stream.poll_fill(cx, &mut self.input, &self.buffers)
    }

    /// Whether the client has closed its side or the connection is broken; asked while its request is in hand. Bytes
    /// of later requests are taken in, up to a bound; beyond it, nothing is known.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.input.unread().len() < PIPELINED_MAX {
            match ready!(self.poll_fill(cx)) {
                Ok(1..) => {}
                _ => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    /// Waits until the client has closed its side or the connection is broken, whatever lies unread before that.
    pub(super) async fn gone(&mut self) {
        self.stream.gone(&mut self.input, PIPELINED_MAX, &self.buffers).await;
    }

    /// The client waits to be told to send the body of the request in hand.
    pub(super) fn expect_continue(&mut self) {
        self.expectation = Expectation::Waits;
    }

    /// The final response begins: after it there is no interim one.
    pub(super) fn begin_response(&mut self) {
        if self.expectation == Expectation::Waits {
            self.expectation = Expectation::Answered;
        }
    }

    /// Where an answer is written.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        self.out.prepare(&self.buffers);
        self.out.bytes()
    }

    /// The memory of the worker's connections.
    pub(super) fn buffers(&self) -> Rc<Buffers> {
        Rc::clone(&self.buffers)
    }

    /// Gives HTTP up: the connection, what came and was not taken, and what waits to be sent.
    pub(super) fn into_parts(self) -> (Stream, Buffer, Out) {
        (self.stream, self.input, self.out)
    }

    /// Whether nothing of a next request has come.
    pub(super) fn is_silent(&self) -> bool {
        self.input.is_empty()
    }

    /// Whether the body of the request in hand has been read to its end.
    pub(super) fn has_read_all(&self) -> bool {
        self.requests.decoder().has_ended()
    }

    /// Bytes that wait to be sent.
    pub(super) fn pending(&self) -> usize {
        self.out.pending() + self.stream.pending()
    }

    /// Whether enough is waiting to be sent.
    pub(super) fn is_full(&self) -> bool {
        self.pending() >= PENDING_MAX
    }

    /// Before a long answer: what the system has not sent of it stays small, so that it is seen how fast it is taken.
    pub(super) fn bound_unsent(&mut self) {
        if !std::mem::replace(&mut self.is_bounded, true) {
            self.stream.socket().bound_unsent();
        }
    }

    /// Sends what the socket takes; ready when nothing is left.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream.poll_write(cx, &mut self.out, &self.buffers))?;
        self.out.clear();
        self.out.release(&self.buffers);
        Poll::Ready(Ok(()))
    }

    /// Before an answer that does not wait for the body of its request: takes what has come of that. Says whether
    /// that was all, so that another request can follow.
    pub(super) fn skip_body(&mut self) -> bool {
        let mut taken = 0;
        loop {
            match self.requests.body(self.input.unread()) {
                Step::Data { skipped, len } => {
                    self.input.consume(skipped + len);
                    taken += len;
                    if taken > SKIPPED_MAX {
                        return false;
                    }
                }
                Step::End(len) => {
                    self.input.consume(len);
                    return true;
                }
                Step::Broken(_) => return false,
                Step::More => {
                    self.input.consume(self.input.unread().len());
                    // A client that waits for a 100 may send the body or the next request: the bytes cannot tell.
                    let mut cx = Context::from_waker(std::task::Waker::noop());
                    if self.expectation != Expectation::None || !matches!(self.poll_fill(&mut cx), Poll::Ready(Ok(1..)))
                    {
                        return false;
                    }
                }
            }
        }
    }

    /// After the last answer: closes our side, and takes what the client still sends, so that the kernel does not
    /// answer it with a reset that destroys the answer on its way (RFC 9112, section 9.6).
    pub(super) async fn linger(&mut self, at_most: Duration) {
        self.stream.finish(&self.buffers);
        self.discard(at_most).await;
    }

    /// After a response that is not whole: closes our side so that the client can tell.
    pub(super) async fn cut(&mut self, end: CutEnd, at_most: Duration) {
        if !self.stream.cut(end == CutEnd::Reset) {
            self.discard(at_most).await;
        }
    }

    async fn discard(&self, at_most: Duration) {
        let socket = self.stream.socket();
        let may_send = !self.requests.decoder().has_ended() || !self.input.is_empty();
        if !may_send && !socket.try_read(&mut [0; 1]).is_ok_and(|len| len > 0) {
            return;
        }
        self.stream.discard(at_most, &self.buffers).await;
    }
}

impl Source for Wire {
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        left: &mut u64,
    ) -> Poll<Result<bool, BodyFault>> {
        loop {
            match self.requests.body(self.input.unread()) {
                Step::Data { skipped, len } => {
                    self.expectation = Expectation::None;
                    spend(left, len)?;
                    encoder.data(out, &self.input.unread()[skipped..skipped + len]);
                    self.input.consume(skipped + len);
                    if out.len() >= PIECE_MAX {
                        return Poll::Ready(Ok(true));
                    }
                }
                Step::End(len) => {
                    self.input.consume(len);
                    encoder.end(out, self.requests.decoder().trailers());
                    return Poll::Ready(Ok(false));
                }
                Step::Broken(_) => return Poll::Ready(Err(BodyFault::Broken)),
                Step::More => {
                    self.input.consume(self.input.unread().len());
                    if !out.is_empty() {
                        return Poll::Ready(Ok(true));
                    }
                    if self.expectation == Expectation::Waits {
                        self.expectation = Expectation::None;
                        self.out().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                        // What the socket does not take now goes before the answer.
                        let _ = self.poll_flush(cx);
                    }
                    match ready!(self.poll_fill(cx)) {
                        Ok(1..) => {}
                        _ => return Poll::Ready(Err(BodyFault::Broken)),
                    }
                }
            }
        }
    }

    fn trailers(&self) -> Option<&FieldBuf> {
        self.requests.decoder().trailers()
    }
}

/// Waits for the first bytes, which tell the protocol, beside those that have come; none if the client closes before
/// that.
pub(super) async fn first_bytes(
    stream: &mut Stream,
    mut first: Buffer,
    preface: &[u8],
    buffers: &Buffers,
) -> Option<Buffer> {
    loop {
        let bytes = first.unread();
        if !bytes.is_empty() && (!preface.starts_with(bytes) || bytes.len() >= preface.len()) {
            return Some(first);
        }
        if !matches!(poll_fn(|cx| stream.poll_fill(cx, &mut first, buffers)).await, Ok(1..)) {
            return None;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::http1::Underscores;
    use crate::net::socket::Socket;

    const LIMITS: Limits =
        Limits { max_head_bytes: 1024, max_headers: 8, max_uri_bytes: 64, underscores: Underscores::Keep };

    /// A connection on which this has come, and the client's end of it.
    async fn wire(first: &str) -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = Stream::Plain(Socket::Tcp(listener.accept().await.unwrap().0));
        let (buffers, mut input) = (Rc::new(Buffers::default()), Buffer::default());
        input.extend(first.as_bytes(), &buffers);
        (Wire::new(stream, input, time::instant_now(), LIMITS, buffers), client)
    }

    #[tokio::test]
    async fn no_interim_response_follows_a_final_one() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        for (is_late, expected) in [(false, &b"HTTP/1.1 100 Continue\r\n\r\n"[..]), (true, b"")] {
            let (mut wire, client) = wire(head).await;
            let Next::Head(head) = wire.requests.head(wire.input.unread()) else { panic!("no head") };
            wire.take_head(head.len, &mut HeadBytes::default());
            wire.expect_continue();
            if is_late {
                wire.begin_response();
            }
            let (mut body, mut left) = (Vec::new(), 5);
            let polled = poll_fn(|cx| Poll::Ready(wire.poll_body(cx, &mut body, &Encoder::Raw, &mut left))).await;
            assert!(polled.is_pending());
            assert!(!is_late || !wire.skip_body(), "it may still come");
            drop(wire);
            let mut said = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut { client }, &mut said).await.unwrap();
            assert_eq!(said, expected);
        }
    }
}
