//! Request heads on a wire.

use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::{Expectation, Wire};
use crate::base::fields::{Fields, Spans};
use crate::base::time;
use crate::transport::http1::{HeadFault, HeadStep, RequestHead};
use crate::transport::net::Timeouts;
use crate::transport::net::deadline::Deadline;

/// The bytes of a head, with their memory.
#[derive(Debug, Default)]
pub(in crate::transport::proxy) struct HeadBytes {
    bytes: Vec<u8>,
    start: usize,
    spans: Spans,
}

impl HeadBytes {
    /// The bytes from the start of the message.
    pub(in crate::transport::proxy) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The fields of the head.
    pub(in crate::transport::proxy) fn fields(&self) -> Fields<'_> {
        self.spans.of(self.bytes())
    }
}

/// The next event on an idle connection.
#[derive(Debug)]
pub(in crate::transport::proxy) enum NextRequest {
    /// A request; its bytes are in the memory that was given.
    Head(RequestHead),
    /// A refused head.
    Fault(HeadFault),
    /// The client closed, or was idle for too long.
    Closed,
}

impl Wire {
    /// Reads the next head into `memory`. A client that has been idle since `since` for longer than its timeout counts
    /// as closed.
    pub(in crate::transport::proxy) fn poll_next_request(
        &mut self,
        cx: &mut Context<'_>,
        memory: &mut HeadBytes,
        since: Instant,
        timeouts: &Timeouts,
        deadline: &mut Deadline,
    ) -> Poll<NextRequest> {
        loop {
            let mut is_idle = self.input.is_empty();
            if !is_idle {
                match self.requests.head(self.input.unread()) {
                    HeadStep::Head(head) => {
                        self.take_head(head.len, memory);
                        return Poll::Ready(NextRequest::Head(head));
                    }
                    HeadStep::Fault(fault) => return Poll::Ready(NextRequest::Fault(fault)),
                    HeadStep::Incomplete => {}
                    HeadStep::Idle(len) => {
                        self.input.consume(len);
                        is_idle = true;
                    }
                }
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(NextRequest::Closed),
                Poll::Pending => {
                    let at = if is_idle {
                        since + timeouts.keep_alive
                    } else {
                        *self.head_since.get_or_insert_with(time::instant_now) + timeouts.request_head
                    };
                    ready!(deadline.poll(cx, at));
                    return Poll::Ready(if is_idle {
                        NextRequest::Closed
                    } else {
                        NextRequest::Fault(HeadFault::Timeout)
                    });
                }
            }
        }
    }

    pub(super) fn take_head(&mut self, len: usize, memory: &mut HeadBytes) {
        self.head_since = None;
        self.expectation = Expectation::None;
        self.ahead = None;
        let (bytes, start) = self.input.split(len, &self.buffers);
        self.buffers.put(std::mem::replace(&mut memory.bytes, bytes));
        memory.start = start;
        memory.spans = self.requests.take_fields(std::mem::take(&mut memory.spans));
    }

    /// Frees the memory of a head.
    pub(in crate::transport::proxy) fn give_back(&self, memory: &mut HeadBytes) {
        self.buffers.put(std::mem::take(&mut memory.bytes));
    }
}
