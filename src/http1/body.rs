//! Where a body ends and what of it is data, however its head frames it (RFC 9112, section 6).

use super::chunked::{Chunked, Step};
use super::limits::Underscores;
use crate::fields::FieldBuf;

/// How long the body after a head is (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks, to the last one.
    Chunked,
    /// All that comes, to the end of the connection; never of a request.
    UntilEnd,
}

/// Follows one body.
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
    /// Of no body.
    pub const fn none() -> Self {
        Self(State::Length(0))
    }

    /// Of a request's body, with so many trailer fields at most.
    pub fn of_request(framing: Framing, max_headers: usize, underscores: Underscores) -> Self {
        Self(match framing {
            Framing::Length(left) => State::Length(left),
            Framing::Chunked => State::Chunked(Box::new(Chunked::strict(max_headers, underscores))),
            Framing::UntilEnd => State::UntilEnd,
        })
    }

    /// Of a response's body.
    pub fn of_response(framing: Framing) -> Self {
        match framing {
            Framing::Chunked => Self(State::Chunked(Box::new(Chunked::lenient()))),
            framing => Self::of_request(framing, 0, Underscores::Keep),
        }
    }

    /// Whether nothing more will come.
    pub fn has_ended(&self) -> bool {
        matches!(self.0, State::Length(0) | State::Ended(_))
    }

    /// How many bytes are still to come, if that was said.
    pub fn left(&self) -> Option<u64> {
        match self.0 {
            State::Length(left) => Some(left),
            State::Ended(_) => Some(0),
            State::Chunked(_) | State::UntilEnd => None,
        }
    }

    /// Follows the next `bytes` to a piece of data or to the end.
    pub fn next(&mut self, bytes: &[u8]) -> Step {
        match &mut self.0 {
            State::Length(0) | State::Ended(_) => Step::End(0),
            _ if bytes.is_empty() => Step::More,
            State::Length(left) => {
                let len = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= len as u64;
                Step::Data { skipped: 0, len }
            }
            State::UntilEnd => Step::Data { skipped: 0, len: bytes.len() },
            State::Chunked(chunked) => {
                let step = chunked.next(bytes);
                if let Step::End(_) = step {
                    self.0 = State::Ended(chunked.trailers());
                }
                step
            }
        }
    }

    /// The connection has ended. Says whether the body may end so.
    pub fn end(&mut self) -> bool {
        if let State::UntilEnd = self.0 {
            self.0 = State::Ended(FieldBuf::default());
        }
        self.has_ended()
    }

    /// The fields after the body, once it has ended.
    pub fn trailers(&self) -> Option<&FieldBuf> {
        match &self.0 {
            State::Ended(trailers) if !trailers.is_empty() => Some(trailers),
            _ => None,
        }
    }
}
