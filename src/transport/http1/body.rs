//! The framing of a body, and a decoder that separates data from framing (RFC 9112, section 6).

use super::chunked::{BodyStep, Chunked};
use super::limits::Underscores;
use crate::base::fields::FieldBuf;

/// The framing of a body (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A number of bytes.
    Length(u64),
    /// Chunks, until the last one.
    Chunked,
    /// All bytes until the end of the connection; never of a request.
    UntilEnd,
}

/// The position in one body.
#[derive(Debug)]
pub struct Decoder(State);

#[derive(Debug)]
enum State {
    Length(u64),
    Chunked(Box<Chunked>),
    UntilEnd,
    Ended(FieldBuf),
}

impl Decoder {
    /// A decoder of no body.
    pub const fn none() -> Self {
        Self(State::Length(0))
    }

    /// A decoder of a request body, with at most `max_headers` trailer fields.
    pub fn of_request(framing: Framing, max_headers: usize, underscores: Underscores) -> Self {
        Self(match framing {
            Framing::Length(left) => State::Length(left),
            Framing::Chunked => State::Chunked(Box::new(Chunked::strict(max_headers, underscores))),
            Framing::UntilEnd => State::UntilEnd,
        })
    }

    /// A decoder of a response body.
    pub fn of_response(framing: Framing) -> Self {
        match framing {
            Framing::Chunked => Self(State::Chunked(Box::new(Chunked::lenient()))),
            framing => Self::of_request(framing, 0, Underscores::Keep),
        }
    }

    /// Whether the body has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.0, State::Length(0) | State::Ended(_))
    }

    /// Number of bytes still to come, if the head announced it.
    pub fn remaining(&self) -> Option<u64> {
        match self.0 {
            State::Length(left) => Some(left),
            State::Ended(_) => Some(0),
            State::Chunked(_) | State::UntilEnd => None,
        }
    }

    /// Decodes `bytes` up to a piece of data or to the end.
    pub fn next(&mut self, bytes: &[u8]) -> BodyStep {
        match &mut self.0 {
            State::Length(0) | State::Ended(_) => BodyStep::End(0),
            _ if bytes.is_empty() => BodyStep::More,
            State::Length(left) => {
                let len = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= len as u64;
                BodyStep::Data { skipped: 0, len }
            }
            State::UntilEnd => BodyStep::Data { skipped: 0, len: bytes.len() },
            State::Chunked(chunked) => {
                let step = chunked.next(bytes);
                if let BodyStep::End(_) = step {
                    self.0 = State::Ended(chunked.trailers());
                }
                step
            }
        }
    }

    /// Tells that the connection has ended. Returns whether the body may end here.
    pub fn end(&mut self) -> bool {
        if let State::UntilEnd = self.0 {
            self.0 = State::Ended(FieldBuf::default());
        }
        self.has_ended()
    }

    /// The trailer fields, once the body has ended.
    pub fn trailers(&self) -> Option<&FieldBuf> {
        match &self.0 {
            State::Ended(trailers) if !trailers.is_empty() => Some(trailers),
            _ => None,
        }
    }
}
