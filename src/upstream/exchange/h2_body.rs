//! The half of an HTTP/2 stream that goes out.
//!
//! It asks for no more of a body than one piece, and gives the library no more than the upstream takes. Until a
//! response has come it keeps what it has sent, up to a bound: an upstream that goes away says of some requests that
//! it has not looked at them.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::upload::BodySink;
use crate::fields::FieldBuf;
use crate::http1::hop;

/// Bytes of a body that are kept to be sent again.
const REPLAY_BYTES_MAX: usize = 64 * 1024;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct OutgoingBody {
    /// None before it begins, and once it has ended.
    stream: Option<SendStream<Bytes>>,
    /// The request has begun.
    has_begun: bool,
    /// Where the next piece is put.
    next: Vec<u8>,
    /// What is still to be sent of the body.
    pieces: VecDeque<Bytes>,
    /// The trailers, once the last piece is there; seldom any.
    end: Option<HeaderMap>,
    /// All pieces so far; none if they are too many, or are needed no more.
    kept: Option<ReplayBuffer>,
}

#[derive(Debug, Default)]
struct ReplayBuffer {
    pieces: Vec<Bytes>,
    len: usize,
}

impl Default for OutgoingBody {
    fn default() -> Self {
        Self {
            stream: None,
            has_begun: false,
            next: Vec::new(),
            pieces: VecDeque::new(),
            end: None,
            kept: Some(ReplayBuffer::default()),
        }
    }
}

impl OutgoingBody {
    /// The head has gone out on `stream`.
    pub(crate) fn begin(&mut self, stream: SendStream<Bytes>, has_body: bool) {
        self.has_begun = true;
        self.stream = Some(stream).filter(|_| has_body);
    }

    /// Whether nothing that was taken waits to be sent.
    pub(crate) fn has_flushed(&self) -> bool {
        self.next.is_empty() && self.pieces.is_empty() && (self.end.is_none() || self.stream.is_none())
    }

    /// Whether all that was taken can be sent again.
    pub(crate) fn can_rewind(&self) -> bool {
        self.kept.is_some()
    }

    /// Makes all that was taken what is still to be sent. Says whether anything was.
    pub(crate) fn rewind(&mut self) -> bool {
        self.take_piece();
        let kept = self.kept.as_ref().map_or(&[][..], |kept| &kept.pieces);
        self.pieces = kept.iter().cloned().collect();
        self.has_begun = false;
        !self.pieces.is_empty() || self.end.is_some()
    }

    /// Whether the last piece is there.
    pub(crate) fn is_whole(&self) -> bool {
        self.end.is_some()
    }

    /// It will not be sent again.
    pub(crate) fn forget(&mut self) {
        self.kept = None;
    }

    /// Sends nothing more.
    pub(crate) fn let_go(&mut self) {
        self.stream = None;
    }

    fn take_piece(&mut self) {
        if self.next.is_empty() {
            return;
        }
        let piece = Bytes::from(std::mem::take(&mut self.next));
        if let Some(kept) = &mut self.kept {
            kept.len += piece.len();
            if kept.len <= REPLAY_BYTES_MAX { kept.pieces.push(piece.clone()) } else { self.kept = None }
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

/// What of the fields after a body goes on.
fn header_map(trailers: &FieldBuf) -> HeaderMap {
    let pair = |(name, value): (&[u8], &[u8])| {
        let name = HeaderName::from_bytes(name).ok()?;
        HeaderValue::from_bytes(value).ok().map(|value| (name, value))
    };
    let fields = trailers.fields();
    fields.iter().filter(|(name, _)| hop::may_trail(name)).filter_map(pair).collect()
}
