//! Heads of requests, taken from a client's connection.

use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::{Expectation, Wire};
use crate::fields::{Fields, Spans};
use crate::http1::{Head, HeadFault, Next};
use crate::net::Timeouts;
use crate::net::deadline::Deadline;
use crate::time;

/// A head as it came, with memory of its own.
#[derive(Debug, Default)]
pub(in crate::proxy) struct HeadBytes {
    bytes: Vec<u8>,
    start: usize,
    spans: Spans,
}

impl HeadBytes {
    /// From the first byte of the message.
    pub(in crate::proxy) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Its fields.
    pub(in crate::proxy) fn fields(&self) -> Fields<'_> {
        self.spans.of(self.bytes())
    }
}

/// What a client says next.
#[derive(Debug)]
pub(in crate::proxy) enum Said {
    /// A request; its bytes are where they were asked to be put.
    Head(Head),
    /// Something that cannot be answered as a request.
    Fault(HeadFault),
    /// Nothing more.
    Nothing,
}

impl Wire {
    /// The next head, put into `memory`. A client that has been idle since `since` for longer than it may says
    /// nothing more.
    pub(in crate::proxy) fn poll_said(
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

    pub(super) fn take_head(&mut self, len: usize, memory: &mut HeadBytes) {
        self.head_since = None;
        self.expectation = Expectation::None;
        let (bytes, start) = self.input.split(len, &self.buffers);
        self.buffers.put(std::mem::replace(&mut memory.bytes, bytes));
        memory.start = start;
        memory.spans = self.requests.take_fields(std::mem::take(&mut memory.spans));
    }

    /// The head in `memory` is not needed any more.
    pub(in crate::proxy) fn give_back(&self, memory: &mut HeadBytes) {
        self.buffers.put(std::mem::take(&mut memory.bytes));
    }
}
