//! Bodies whose start was read before the request is forwarded.

use super::request::Request;
use crate::transport::http1::Framing;
use crate::transport::http1::encode::Encoder;
use crate::transport::upstream::{BodyFault, Source, spend};

/// The most bytes that are moved at once.
const PIECE_MAX: usize = 64 * 1024;

/// The source of a body that can be given back.
pub(super) trait Replayed: Source {
    /// Notes that the client waits for 100 Continue, unless its body was read already.
    fn expect_continue(&mut self);

    /// Gives back what was read of the body, so that it is read again.
    fn put_back(&mut self, ahead: ReadAhead);
}

/// The start of a body that was read.
#[derive(Debug)]
pub(super) struct ReadAhead {
    bytes: Vec<u8>,
    /// The bytes that were moved.
    moved: usize,
    /// The body ends behind it.
    pub(super) has_ended: bool,
}

impl ReadAhead {
    pub(super) fn new(bytes: Vec<u8>, has_ended: bool) -> Self {
        Self { bytes, moved: 0, has_ended }
    }

    /// Appends the next piece to `out`. Returns whether there was one. The memory is freed behind the last one.
    pub(super) fn replay(&mut self, out: &mut Vec<u8>, encoder: &Encoder, left: &mut u64) -> Result<bool, BodyFault> {
        let rest = &self.bytes[self.moved..];
        let piece = &rest[..rest.len().min(PIECE_MAX)];
        if piece.is_empty() {
            self.bytes = Vec::new();
            self.moved = 0;
            return Ok(false);
        }
        spend(left, piece.len())?;
        encoder.data(out, piece);
        self.moved += piece.len();
        Ok(true)
    }
}

/// The body of a request at the gate.
pub(super) struct GateBody<'a> {
    pub(super) framing: Framing,
    /// The client waits for 100 Continue.
    pub(super) expects_continue: bool,
    /// The stream of an HTTP/2 client. An HTTP/1 client sends it on its wire.
    pub(super) stream: Option<&'a mut dyn Replayed>,
}

impl<'a> GateBody<'a> {
    /// The body of `request`, over HTTP/2 on `stream`.
    pub(super) fn of(request: &Request<'_>, stream: Option<&'a mut dyn Replayed>) -> Self {
        Self { framing: request.framing, expects_continue: request.expects_continue(), stream }
    }
}
