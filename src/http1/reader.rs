//! The requests of one connection, one after another: a head, then its body, then the next head.

use super::body::Decoder;
use super::chunked::Step;
use super::head::{Head, HeadScan};
use super::limits::{HeadFault, Limits};
use crate::fields::Spans;

/// Follows the messages of one connection.
#[derive(Debug)]
pub struct Requests {
    limits: Limits,
    scan: HeadScan,
    body: Decoder,
}

/// What the bytes that have come hold of the next head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// All of it, and it is clean.
    Head(Head),
    /// A part of it.
    InHead,
    /// None of it. So many bytes are empty lines, to be dropped: some clients send one after a body.
    Idle(usize),
    /// It is refused, and nothing that follows can be read.
    Fault(HeadFault),
}

impl Requests {
    /// Of a connection on which nothing has come yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits: limits.clamped(), scan: HeadScan::default(), body: Decoder::none() }
    }

    /// Looks for the next head in what has come and was not taken. Until it is whole or refused the bytes stay. To be
    /// called once the body before it has ended.
    pub fn head(&mut self, unread: &[u8]) -> Next {
        match self.scan.advance(unread, &self.limits) {
            Ok(Some(head)) => {
                self.body = Decoder::of_request(head.framing, self.limits.max_headers, self.limits.underscores);
                Next::Head(head)
            }
            Ok(None) if self.scan.only_leading_lines(unread.len()) => {
                self.scan.drop_leading_lines();
                Next::Idle(unread.len())
            }
            Ok(None) => Next::InHead,
            Err(fault) => Next::Fault(fault),
        }
    }

    /// Gives up where the fields of the last head lie, in exchange for memory for the next ones.
    pub fn take_fields(&mut self, memory: Spans) -> Spans {
        self.scan.restart(memory)
    }

    /// Follows the body of the last head.
    pub fn body(&mut self, unread: &[u8]) -> Step {
        self.body.next(unread)
    }

    /// The position in that body.
    pub fn decoder(&self) -> &Decoder {
        &self.body
    }
}
