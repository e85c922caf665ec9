//! The wire: the connection of one HTTP/1 client, with its input, its output, the position in its messages, and its end.
//!
//! One task owns it. An idle wire holds no buffer.

mod body;
pub(super) mod head;

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::transport::http1::{Limits, RequestReader};
use crate::transport::net::buffer::{BufferPool, InputBuffer, OutputBuffer, PENDING_MAX};
use crate::transport::net::stream::Stream;
use crate::transport::proxy::replay::ReadAhead;

/// Bytes of later requests that are read while one is served.
const PIPELINED_MAX: usize = 4 * 1024;

/// The connection of one HTTP/1 client.
#[derive(Debug)]
pub(in crate::transport::proxy) struct Wire {
    stream: Stream,
    buffers: Rc<BufferPool>,
    requests: RequestReader,
    input: InputBuffer,
    out: OutputBuffer,
    expectation: Expectation,
    /// Start of the head that is not complete yet.
    head_since: Option<Instant>,
    /// What was read before of the body of the current request; none if nothing is left of it. Boxed: few bodies are read
    /// before.
    ahead: Option<Box<ReadAhead>>,
    /// The kernel keeps few unsent bytes.
    is_bounded: bool,
}

/// Whether the client waits for 100 Continue before it sends the body of the current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expectation {
    /// It does not wait, or no longer.
    None,
    Waits,
    /// It waited and got a final response. It may send the body or not.
    Answered,
}

/// How a client learns that a response is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truncation {
    /// The connection closes before the announced length, or before the last chunk.
    Closed,
    /// The connection is reset, because its end would be the end of the body.
    Reset,
}

impl Wire {
    /// A connection that began at `since`, of which `first` was read.
    pub(in crate::transport::proxy) fn new(
        stream: Stream,
        first: InputBuffer,
        since: Instant,
        limits: Limits,
        buffers: Rc<BufferPool>,
    ) -> Self {
        Self {
            stream,
            buffers,
            requests: RequestReader::new(limits),
            input: first,
            out: OutputBuffer::default(),
            expectation: Expectation::None,
            head_since: Some(since),
            ahead: None,
            is_bounded: false,
        }
    }

    /// Reads once. Takes a buffer only if there are bytes to read.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.stream.poll_fill(cx, &mut self.input, &self.buffers)
    }

    /// Ready when the client has closed its direction or the connection is broken, while its request is served. Reads
    /// up to [`PIPELINED_MAX`] bytes of later requests; after that it stays pending.
    pub(in crate::transport::proxy) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.input.unread().len() < PIPELINED_MAX {
            match ready!(self.poll_fill(cx)) {
                Ok(1..) => {}
                _ => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    /// Waits until the client has closed its direction or the connection is broken, even if unread bytes come before
    /// that.
    pub(in crate::transport::proxy) async fn gone(&mut self) {
        self.stream.gone(&mut self.input, PIPELINED_MAX, &self.buffers).await;
    }

    /// Notes that the final response begins: no interim response may follow. Returns whether another request may follow: not
    /// if the client waits for 100 Continue.
    pub(in crate::transport::proxy) fn begin_response(&mut self) -> bool {
        if self.expectation == Expectation::Waits {
            self.expectation = Expectation::Answered;
        }
        self.expectation == Expectation::None || !self.input.is_empty()
    }

    /// The buffer for output.
    pub(in crate::transport::proxy) fn out(&mut self) -> &mut Vec<u8> {
        self.out.prepare(&self.buffers);
        self.out.bytes()
    }

    /// The buffers of the worker.
    pub(in crate::transport::proxy) fn buffers(&self) -> Rc<BufferPool> {
        Rc::clone(&self.buffers)
    }

    /// Ends HTTP on this connection. Returns the stream, unconsumed input, and unsent output.
    pub(in crate::transport::proxy) fn into_parts(self) -> (Stream, InputBuffer, OutputBuffer) {
        (self.stream, self.input, self.out)
    }

    /// Whether no byte of a next request has arrived.
    pub(in crate::transport::proxy) fn is_input_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// Whether the body of the current request was read to its end.
    pub(in crate::transport::proxy) fn has_read_all(&self) -> bool {
        self.requests.decoder().has_ended()
    }

    /// Bytes that wait to be sent.
    pub(in crate::transport::proxy) fn pending(&self) -> usize {
        self.out.pending() + self.stream.pending()
    }

    /// Bytes of memory in which they wait.
    pub(in crate::transport::proxy) fn memory(&self) -> usize {
        self.out.memory() + self.stream.pending()
    }

    /// Whether enough bytes wait to be sent.
    pub(in crate::transport::proxy) fn is_full(&self) -> bool {
        self.pending() >= PENDING_MAX
    }

    /// Bounds the unsent bytes in the kernel before a long response, so that its progress can be measured.
    pub(in crate::transport::proxy) fn bound_unsent(&mut self) {
        if !std::mem::replace(&mut self.is_bounded, true) {
            self.stream.socket().bound_unsent();
        }
    }

    /// Sends until the socket accepts no more; ready when all is sent.
    pub(in crate::transport::proxy) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stream.poll_write(cx, &mut self.out, &self.buffers)?.is_pending() {
            self.out.compact();
            return Poll::Pending;
        }
        self.out.clear();
        self.out.release(&self.buffers);
        Poll::Ready(Ok(()))
    }

    /// Closes our direction after the last response, and reads what the client still sends. Otherwise the kernel would
    /// answer it with a reset, which destroys the response in flight (RFC 9112, section 9.6).
    pub(super) async fn linger(&mut self, at_most: Duration) {
        self.stream.finish(&self.buffers);
        self.discard(at_most).await;
    }

    /// Closes our direction in the middle of a response, so that the client can tell.
    pub(super) async fn cut(&mut self, end: Truncation, at_most: Duration) {
        if !self.stream.cut(end == Truncation::Reset) {
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
