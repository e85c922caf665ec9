//! The request body on an HTTP/2 stream.
//!
//! It takes one piece of the body at a time from the client, and gives the library as much as the upstream's windows
//! allow. Until the response head arrives it keeps the sent bytes, up to a bound: an upstream that closes the connection
//! may report that it has not processed the request, which can then be sent again.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::upload::BodySink;
use crate::base::fields::FieldBuf;
use crate::transport::http1::hop;

/// Bytes of a body that are kept for a retry.
const REPLAY_BYTES_MAX: usize = 64 * 1024;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct OutgoingBody {
    /// None before the stream begins, and after the body has ended.
    stream: Option<SendStream<Bytes>>,
    /// The stream has begun.
    has_begun: bool,
    /// The next piece, which the client may still extend.
    next: Vec<u8>,
    /// Pieces to be sent.
    pieces: VecDeque<Bytes>,
    /// The trailers, once the last piece is known; often empty.
    end: Option<HeaderMap>,
    /// All pieces so far, as long as they can be sent again.
    replay: Vec<Bytes>,
    /// Bytes of `replay`.
    replay_bytes: usize,
    /// The pieces exceed the bound, or no retry is possible any more.
    is_forgotten: bool,
}

impl OutgoingBody {
    /// Begins with `stream`, on which the request head was sent.
    pub(crate) fn begin(&mut self, stream: SendStream<Bytes>, has_body: bool) {
        self.has_begun = true;
        self.stream = Some(stream).filter(|_| has_body);
    }

    /// Whether all bytes taken from the client have been sent.
    pub(crate) fn has_flushed(&self) -> bool {
        self.next.is_empty() && self.pieces.is_empty() && (self.end.is_none() || self.stream.is_none())
    }

    /// Whether all bytes taken from the client can be sent again.
    pub(crate) fn can_rewind(&self) -> bool {
        !self.is_forgotten
    }

    /// Prepares to send all taken bytes again. Returns whether there are any.
    pub(crate) fn rewind(&mut self) -> bool {
        self.take_piece();
        self.pieces = self.replay.iter().cloned().collect();
        self.has_begun = false;
        !self.pieces.is_empty() || self.end.is_some()
    }

    /// Whether the last piece is known.
    pub(crate) fn is_whole(&self) -> bool {
        self.end.is_some()
    }

    /// Discards the bytes kept for a retry.
    pub(crate) fn forget(&mut self) {
        (self.replay, self.is_forgotten) = (Vec::new(), true);
    }

    /// Sends nothing more.
    pub(crate) fn end_stream(&mut self) {
        self.stream = None;
    }

    fn take_piece(&mut self) {
        if self.next.is_empty() {
            return;
        }
        let piece = Bytes::from(std::mem::take(&mut self.next));
        if !self.is_forgotten {
            self.replay_bytes += piece.len();
            if self.replay_bytes <= REPLAY_BYTES_MAX { self.replay.push(piece.clone()) } else { self.forget() }
        }
        self.pieces.push_back(piece);
    }

    fn poll_pieces(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        while let Some(piece) = self.pieces.front_mut() {
            stream.reserve_capacity(piece.len());
            while stream.capacity() == 0 {
                match ready!(stream.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Poll::Ready(Err(error)),
                    None => return Poll::Ready(Err(h2::Reason::STREAM_CLOSED.into())),
                }
            }
            let part = piece.split_to(stream.capacity().min(piece.len()));
            let is_done = piece.is_empty();
            let is_last = is_done && self.pieces.len() == 1 && self.end.as_ref().is_some_and(HeaderMap::is_empty);
            stream.send_data(part, is_last)?;
            if is_done {
                self.pieces.pop_front();
            }
            if is_last {
                self.stream = None;
                return Poll::Ready(Ok(()));
            }
        }
        if let Some(end) = &self.end {
            if end.is_empty() {
                stream.send_data(Bytes::new(), true)?;
            } else {
                stream.send_trailers(end.clone())?;
            }
            self.stream = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl BodySink for OutgoingBody {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.take_piece();
        self.poll_pieces(cx).map_err(io::Error::other)
    }

    fn is_untouched(&self) -> bool {
        !self.has_begun
    }

    fn next_piece(&mut self) -> &mut Vec<u8> {
        &mut self.next
    }

    fn end(&mut self, trailers: Option<&FieldBuf>) {
        self.end = Some(trailers.map(header_map).unwrap_or_default());
    }
}

/// The trailer fields that may be passed on.
fn header_map(trailers: &FieldBuf) -> HeaderMap {
    let pair = |(name, value): (&[u8], &[u8])| {
        let name = HeaderName::from_bytes(name).ok()?;
        HeaderValue::from_bytes(value).ok().map(|value| (name, value))
    };
    let fields = trailers.fields();
    fields.iter().filter(|(name, _)| hop::may_trail(name)).filter_map(pair).collect()
}
