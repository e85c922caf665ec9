//! Bodies whose start was read before the request is forwarded.

use super::request::Request;
use crate::base::fields::FieldBuf;
use crate::transport::http1::Framing;
use crate::transport::http1::encode::Encoder;
use crate::transport::upstream::{BodyFault, Source, spend};

/// The most bytes that move from the client to the upstream at once.
pub(super) const PIECE_MAX: usize = 64 * 1024;

/// The source of a body that can be given back.
pub(super) trait Replayed: Source {
    /// Notes that the client waits for 100 Continue. Returns false if Weir has asked for the body already.
    fn expect_continue(&mut self) -> bool;

    /// Gives back what was read of the body, so that it is read again.
    fn put_back(&mut self, ahead: ReadAhead);

    /// The bytes that have come and are not read.
    fn unread(&self) -> usize;
}

/// The start of a body that was read.
#[derive(Debug)]
pub(super) struct ReadAhead {
    bytes: Vec<u8>,
    /// The bytes that were moved.
    moved: usize,
    /// The body ends behind it.
    has_ended: bool,
}

impl ReadAhead {
    pub(super) fn new(bytes: Vec<u8>, has_ended: bool) -> Self {
        Self { bytes, moved: 0, has_ended }
    }
}

/// Appends the next piece of what was read before to `out`, as [`Source::poll_body`] does; `None` if nothing is left of
/// it, and the rest of the body is to be read. Its memory is freed behind the last piece.
#[inline]
pub(super) fn replay(
    ahead: &mut Option<Box<ReadAhead>>,
    out: &mut Vec<u8>,
    encoder: &Encoder,
    left: &mut u64,
    trailers: Option<&FieldBuf>,
) -> Option<Result<bool, BodyFault>> {
    let ReadAhead { bytes, moved, has_ended } = &mut **ahead.as_mut()?;
    let rest = &bytes[*moved..];
    let piece = &rest[..rest.len().min(PIECE_MAX)];
    if !piece.is_empty() {
        if let Err(fault) = spend(left, piece.len()) {
            return Some(Err(fault));
        }
        encoder.data(out, piece);
        *moved += piece.len();
        return Some(Ok(true));
    }
    if *has_ended {
        (*bytes, *moved) = (Vec::new(), 0);
        encoder.end(out, trailers);
        return Some(Ok(false));
    }
    *ahead = None;
    None
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
    /// Lends the body for a shorter time.
    pub(super) fn reborrow(&mut self) -> GateBody<'_> {
        let Self { framing, expects_continue, stream } = self;
        let stream = stream.as_mut().map(|stream| &mut **stream as &mut dyn Replayed);
        GateBody { framing: *framing, expects_continue: *expects_continue, stream }
    }

    /// The bytes that are kept beside those that were read. The kernel keeps what comes on a wire.
    pub(super) fn unread(&self) -> usize {
        self.stream.as_ref().map_or(0, |stream| stream.unread())
    }

    /// The body of `request`, over HTTP/2 on `stream`.
    pub(super) fn of(request: &Request<'_>, stream: Option<&'a mut dyn Replayed>) -> Self {
        Self { framing: request.framing, expects_continue: request.expects_continue(), stream }
    }
}
