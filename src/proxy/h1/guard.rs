//! The guard itself: which of the received bytes hyper may have, and when.
//!
//! How a reader uses it: drain [`Guard::releasable`] with [`Guard::consume`]; when that is empty, look at
//! [`Guard::phase`] (`Broken`: an I/O error; `Done`: pending for ever, since end of file would make hyper
//! drop the answer); else read, [`Guard::push`] what came, and hand on as many bytes as it says.
//!
//! Not here: how a head or a chunk is read, and any deadline.

use super::chunked::{Chunked, Progress};
use super::head::{Framing, HeadScan};
use super::{HeadFault, Limits};

/// The head that hyper gets in place of a bad one.
pub const SUBSTITUTE: &[u8] = b"GET / HTTP/1.1\r\nhost: fault.invalid\r\nconnection: close\r\n\r\n";

/// Where in the stream of messages the received bytes end. Drain what is releasable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Between messages; nothing of the next one has come.
    Idle,
    /// A part of a head is held back.
    InHead,
    /// The head was released, the body has not ended.
    InBody,
    /// A substitute was released; nothing follows it.
    Done,
    /// A chunked body is malformed; its reader must fail.
    Broken,
}

/// What the next byte belongs to.
#[derive(Debug)]
enum State {
    Head(HeadScan),
    Length(u64),
    Chunked(Chunked),
    Done,
    Broken,
}

/// Follows the messages of one connection, one at a time.
#[derive(Debug)]
struct Messages {
    limits: Limits,
    state: State,
    /// Heads found clean.
    heads: u64,
    fault: Option<HeadFault>,
}

/// See the [module](super). One for each connection.
#[derive(Debug)]
pub struct Guard {
    messages: Messages,
    /// Received and not handed on; up to `start` it was, the next `ready` may be.
    held: Vec<u8>,
    start: usize,
    ready: usize,
}

impl Guard {
    /// A guard for a connection on which nothing has come yet.
    pub fn new(limits: Limits) -> Self {
        let limits = limits.clamped();
        let state = State::Head(HeadScan::default());
        Self { messages: Messages { limits, state, heads: 0, fault: None }, held: Vec::new(), start: 0, ready: 0 }
    }

    /// Takes what was just received and returns how many of its first bytes hyper may have as they are; the
    /// guard keeps its own copy of the others. Never more than to the end of one message. With bytes held
    /// back that is 0: then, too, see [`Guard::releasable`]. In `Done` and `Broken` all is dropped.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        if matches!(self.messages.state, State::Done | State::Broken) {
            return 0;
        }
        let passed = if self.held.is_empty() { self.messages.follow(bytes) } else { 0 };
        if passed == bytes.len() {
            return passed;
        }
        self.held.drain(..self.start);
        self.start = 0;
        if self.settle() {
            self.held.extend_from_slice(&bytes[passed..]);
            self.examine();
        }
        passed
    }

    /// Held bytes that hyper may have now, to the end of one message at most.
    pub fn releasable(&self) -> &[u8] {
        &self.held[self.start..self.start + self.ready]
    }

    /// Marks the first `len` of the releasable bytes as handed on. After the last of them the next held
    /// message, if there is a complete head, becomes releasable.
    pub fn consume(&mut self, len: usize) {
        let len = len.min(self.ready);
        self.start += len;
        self.ready -= len;
        self.examine();
    }

    /// The deadline for a head has passed: a partial one becomes a [`HeadFault::Timeout`]. Returns whether
    /// there was one.
    pub fn time_out(&mut self) -> bool {
        let late = self.ready == 0 && self.phase() == Phase::InHead;
        if late {
            self.messages.refuse(HeadFault::Timeout);
            self.settle();
        }
        late
    }

    /// Where the received bytes end.
    pub fn phase(&self) -> Phase {
        match self.messages.state {
            State::Head(_) if self.held.len() > self.start + self.ready => Phase::InHead,
            State::Head(_) => Phase::Idle,
            State::Length(_) | State::Chunked(_) => Phase::InBody,
            State::Done => Phase::Done,
            State::Broken => Phase::Broken,
        }
    }

    /// The fault of the request that is the `ordinal`-th, from 0, that hyper sees on this connection; `None`
    /// if that is the client's own.
    pub fn fault(&self, ordinal: u64) -> Option<HeadFault> {
        self.messages.fault.filter(|_| ordinal == self.messages.heads)
    }

    #[cfg(test)]
    pub(super) fn held_capacity(&self) -> usize {
        self.held.capacity()
    }

    /// Looks at what is held once all that was ready is gone.
    fn examine(&mut self) {
        if self.ready == 0 && self.start < self.held.len() {
            self.ready = self.messages.follow(&self.held[self.start..]);
            self.settle();
        }
        if let State::Head(scan) = &mut self.messages.state {
            let unread = self.held.len() - self.start;
            if self.ready == 0 && unread > 0 && scan.only_leading_lines(unread) {
                // Some clients send an empty line after a body; alone it does not begin a request.
                scan.drop_leading_lines();
                self.start = self.held.len();
            }
        }
        if self.start == self.held.len() {
            self.held = Vec::new();
            self.start = 0;
        }
    }

    /// After a step: brings what is held in line with an end of reading. Returns whether reading goes on.
    fn settle(&mut self) -> bool {
        match self.messages.state {
            State::Done if self.ready == 0 => {
                self.held = SUBSTITUTE.to_vec();
                self.start = 0;
                self.ready = SUBSTITUTE.len();
                false
            }
            State::Done | State::Broken => {
                self.held.truncate(self.start + self.ready);
                false
            }
            _ => true,
        }
    }
}

impl Messages {
    /// Follows `bytes` to the end of the current message at most; returns how many may be released. While a
    /// head is incomplete that is 0, and the next call must begin with the same bytes.
    fn follow(&mut self, bytes: &[u8]) -> usize {
        let State::Head(scan) = &mut self.state else {
            return self.body(bytes);
        };
        match scan.advance(bytes, &self.limits) {
            Ok(None) => 0,
            Ok(Some(head)) => {
                self.heads += 1;
                self.state = match head.framing {
                    Framing::Length(0) => State::Head(HeadScan::default()),
                    Framing::Length(left) => State::Length(left),
                    Framing::Chunked => State::Chunked(Chunked::new()),
                };
                head.len + self.body(&bytes[head.len..])
            }
            Err(fault) => {
                self.refuse(fault);
                0
            }
        }
    }

    /// How many of `bytes` belong to the current body.
    fn body(&mut self, bytes: &[u8]) -> usize {
        match &mut self.state {
            State::Length(left) => {
                let step = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= step as u64;
                if *left == 0 {
                    self.state = State::Head(HeadScan::default());
                }
                step
            }
            State::Chunked(chunked) => match chunked.advance(bytes, self.limits.max_headers) {
                Progress::More => bytes.len(),
                Progress::End(len) => {
                    self.state = State::Head(HeadScan::default());
                    len
                }
                Progress::Broken(len) => {
                    self.state = State::Broken;
                    len
                }
            },
            State::Head(_) | State::Done | State::Broken => 0,
        }
    }

    fn refuse(&mut self, fault: HeadFault) {
        self.fault = Some(fault);
        self.state = State::Done;
    }
}
