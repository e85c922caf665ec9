//! The requests of one connection: a head, its body, the next head.

use super::body::Decoder;
use super::chunked::BodyStep;
use super::head::{HeadParser, RequestHead};
use super::limits::{HeadFault, Limits};
use crate::base::fields::Spans;

/// The position in the messages of one connection.
#[derive(Debug)]
pub struct RequestReader {
    limits: Limits,
    scan: HeadParser,
    body: Decoder,
}

/// The state of the next head in the bytes received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadStep {
    /// A complete and valid head.
    Head(RequestHead),
    /// A part of a head.
    Incomplete,
    /// No part of a head. This number of bytes are empty lines, to be dropped: some clients send one after a body.
    Idle(usize),
    /// The head is refused, and nothing after it can be parsed.
    Fault(HeadFault),
}

impl RequestReader {
    /// A reader of a connection without bytes so far.
    pub fn new(limits: Limits) -> Self {
        Self { limits: limits.clamped(), scan: HeadParser::default(), body: Decoder::none() }
    }

    /// Parses the next head in the bytes that are not consumed. The bytes stay until the head is complete or refused.
    /// To be called after the end of the body before it.
    pub fn head(&mut self, unread: &[u8]) -> HeadStep {
        match self.scan.advance(unread, &self.limits) {
            Ok(Some(head)) => {
                self.body = Decoder::of_request(head.framing, self.limits.max_headers, self.limits.underscores);
                HeadStep::Head(head)
            }
            Ok(None) if self.scan.only_leading_lines(unread.len()) => {
                self.scan.drop_leading_lines();
                HeadStep::Idle(unread.len())
            }
            Ok(None) => HeadStep::Incomplete,
            Err(fault) => HeadStep::Fault(fault),
        }
    }

    /// Returns the positions of the fields of the last head, and takes memory for the next one.
    pub fn take_fields(&mut self, memory: Spans) -> Spans {
        self.scan.restart(memory)
    }

    /// Decodes the body of the last head.
    pub fn body(&mut self, unread: &[u8]) -> BodyStep {
        self.body.next(unread)
    }

    /// The position in that body.
    pub fn decoder(&self) -> &Decoder {
        &self.body
    }
}
