//! A client's connection that speaks HTTP/1: heads and bodies in, answers out.
//!
//! One task has it, so that nothing here is shared. While it is idle it holds no buffer.

mod body;
pub(super) mod close;
pub(super) mod head;

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use crate::http1::{Limits, Requests};
use crate::net::buffer::{Buffer, Buffers, Out, PENDING_MAX};
use crate::net::stream::Stream;

/// Bytes of later requests that are taken in while one is being answered.
const PIPELINED_MAX: usize = 4 * 1024;

/// See the [module](self).
#[derive(Debug)]
pub(in crate::proxy) struct Wire {
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

impl Wire {
    /// A connection that began at `since`, on which `first` has been read.
    pub(in crate::proxy) fn new(
        stream: Stream,
        first: Buffer,
        since: Instant,
        limits: Limits,
        buffers: Rc<Buffers>,
    ) -> Self {
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

    /// Reads once, with a buffer only if there is something to read.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.stream.poll_fill(cx, &mut self.input, &self.buffers)
    }

    /// Whether the client has closed its side or the connection is broken; asked while its request is in hand. Bytes
    /// of later requests are taken in, up to a bound; beyond it, nothing is known.
    pub(in crate::proxy) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.input.unread().len() < PIPELINED_MAX {
            match ready!(self.poll_fill(cx)) {
                Ok(1..) => {}
                _ => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    /// Waits until the client has closed its side or the connection is broken, whatever lies unread before that.
    pub(in crate::proxy) async fn gone(&mut self) {
        self.stream.gone(&mut self.input, PIPELINED_MAX, &self.buffers).await;
    }

    /// The client waits to be told to send the body of the request in hand.
    pub(in crate::proxy) fn expect_continue(&mut self) {
        self.expectation = Expectation::Waits;
    }

    /// The final response begins: after it there is no interim one.
    pub(in crate::proxy) fn begin_response(&mut self) {
        if self.expectation == Expectation::Waits {
            self.expectation = Expectation::Answered;
        }
    }

    /// Where an answer is written.
    pub(in crate::proxy) fn out(&mut self) -> &mut Vec<u8> {
        self.out.prepare(&self.buffers);
        self.out.bytes()
    }

    /// The memory of the worker's connections.
    pub(in crate::proxy) fn buffers(&self) -> Rc<Buffers> {
        Rc::clone(&self.buffers)
    }

    /// Gives HTTP up: the connection, what came and was not taken, and what waits to be sent.
    pub(in crate::proxy) fn into_parts(self) -> (Stream, Buffer, Out) {
        (self.stream, self.input, self.out)
    }

    /// Whether nothing of a next request has come.
    pub(in crate::proxy) fn is_silent(&self) -> bool {
        self.input.is_empty()
    }

    /// Whether the body of the request in hand has been read to its end.
    pub(in crate::proxy) fn has_read_all(&self) -> bool {
        self.requests.decoder().has_ended()
    }

    /// Bytes that wait to be sent.
    pub(in crate::proxy) fn pending(&self) -> usize {
        self.out.pending() + self.stream.pending()
    }

    /// Whether enough is waiting to be sent.
    pub(in crate::proxy) fn is_full(&self) -> bool {
        self.pending() >= PENDING_MAX
    }

    /// Before a long answer: what the system has not sent of it stays small, so that it is seen how fast it is taken.
    pub(in crate::proxy) fn bound_unsent(&mut self) {
        if !std::mem::replace(&mut self.is_bounded, true) {
            self.stream.socket().bound_unsent();
        }
    }

    /// Sends what the socket takes; ready when nothing is left.
    pub(in crate::proxy) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream.poll_write(cx, &mut self.out, &self.buffers))?;
        self.out.clear();
        self.out.release(&self.buffers);
        Poll::Ready(Ok(()))
    }
}
