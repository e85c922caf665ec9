//! Frames to the peer: heads, data and trailers, straight into the bytes that go out.

use super::super::frame::{self, HEADER_LEN, Kind, PAYLOAD_MAX, flag};
use super::super::hpack;
use super::super::stream::Key;
use super::state::Connection;

/// A header block that is being written.
#[derive(Debug)]
pub struct Block<'o> {
    out: &'o mut Vec<u8>,
}

impl Block<'_> {
    /// Adds a field. Upper-case letters of the name become lower-case.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        hpack::field(self.out, name, value);
    }
}

impl<S> Connection<S> {
    /// Writes the head of a response, or of an interim one. A stream that cannot take it stays as it is.
    pub fn write_head(
        &mut self,
        key: Key,
        out: &mut Vec<u8>,
        status: u16,
        has_ended: bool,
        write: impl FnOnce(&mut Block<'_>),
    ) {
        let Some(stream) = self.streams.get_mut(key).filter(|stream| stream.may_send() && !stream.is_answered) else {
            return;
        };
        stream.is_sending = !has_ended;
        if status >= 200 {
            stream.is_answered = true;
            self.answered = self.answered.saturating_add(1);
        }
        self.write_block(key, out, has_ended, |out| {
            hpack::status(out, status);
            write(&mut Block { out });
        });
    }

    /// Writes the fields after a body, which end the stream.
    pub fn write_trailers(&mut self, key: Key, out: &mut Vec<u8>, write: impl FnOnce(&mut Block<'_>)) {
        let Some(stream) = self.streams.get_mut(key).filter(|stream| stream.may_send()) else { return };
        stream.is_sending = false;
        self.write_block(key, out, true, |out| write(&mut Block { out }));
    }

    fn write_block(&mut self, key: Key, out: &mut Vec<u8>, ends: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        if !std::mem::replace(&mut self.has_encoded, true) {
            out.push(hpack::NO_TABLE);
        }
        write(out);
        let end_stream = if ends { flag::END_STREAM } else { 0 };
        let pieces = insert_headers(out, start);
        for (piece, (at, len)) in pieces.iter_pieces().enumerate() {
            let is_first = piece == 0;
            let kind = if is_first { Kind::Headers } else { Kind::Continuation };
            let last = if piece + 1 == pieces.count { flag::END_HEADERS } else { 0 };
            let flags = if is_first { end_stream } else { 0 } | last;
            out[at..at + HEADER_LEN].copy_from_slice(&frame::header(kind, flags, key.id(), len));
        }
    }

    /// Bytes of DATA that the windows allow on a stream.
    pub fn window(&self, key: Key) -> usize {
        let stream = self.streams.get(key).filter(|stream| stream.may_send());
        stream.map_or(0, |stream| stream.send.available().min(self.send.available()))
    }

    /// Whether the window of the connection lets something through.
    pub fn has_window(&self) -> bool {
        self.send.available() > 0
    }

    /// Whether it is the window of the stream itself that lets nothing through.
    pub fn is_exhausted(&self, key: Key) -> bool {
        self.streams.get(key).is_some_and(|stream| stream.send.available() == 0)
    }

    /// Begins DATA: what is appended to `out` from now on is its payload, up to [`Connection::end_data`], which gets what
    /// this returns.
    pub fn begin_data(out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&[0; HEADER_LEN]);
        out.len() - HEADER_LEN
    }

    /// Ends DATA that began at `start`. What the windows do not allow moves to `rest`; the stream ends with it if
    /// `is_last` and nothing does. Returns how many bytes were taken.
    pub fn end_data(&mut self, key: Key, out: &mut Vec<u8>, start: usize, is_last: bool, rest: &mut Vec<u8>) -> usize {
        let (window, payload) = (self.window(key), start + HEADER_LEN);
        let len = (out.len() - payload).min(window);
        let Some(stream) = self.streams.get_mut(key).filter(|stream| stream.may_send()) else {
            out.truncate(start);
            return 0;
        };
        rest.extend_from_slice(&out[payload + len..]);
        out.truncate(payload + len);
        let ends = is_last && rest.is_empty();
        if len == 0 && !ends {
            out.truncate(start);
            return 0;
        }
        stream.send.spend(len);
        stream.is_sending = !ends;
        self.send.spend(len);
        self.idle_frames = 0;
        let pieces = insert_headers(out, start);
        for (piece, (at, len)) in pieces.iter_pieces().enumerate() {
            let flags = if ends && piece + 1 == pieces.count { flag::END_STREAM } else { 0 };
            out[at..at + HEADER_LEN].copy_from_slice(&frame::header(Kind::Data, flags, key.id(), len));
        }
        len
    }

    /// Writes as much of `data` as the windows allow, at most `most` bytes, and ends the stream with it if `is_last` and
    /// nothing is left. Returns how many bytes were taken.
    pub fn write_data(&mut self, key: Key, out: &mut Vec<u8>, data: &[u8], most: usize, is_last: bool) -> usize {
        let len = data.len().min(most).min(self.window(key));
        let start = Self::begin_data(out);
        out.extend_from_slice(&data[..len]);
        self.end_data(key, out, start, is_last && len == data.len(), &mut Vec::new())
    }
}

/// Frames in a row, each but the last one as long as can be.
struct Pieces {
    start: usize,
    len: usize,
    count: usize,
}

impl Pieces {
    /// Where each frame begins, and how long its payload is.
    fn iter_pieces(&self) -> impl Iterator<Item = (usize, usize)> {
        let Self { start, len, count } = *self;
        (0..count).map(move |piece| {
            (start + piece * (HEADER_LEN + PAYLOAD_MAX), (len - piece * PAYLOAD_MAX).min(PAYLOAD_MAX))
        })
    }
}

/// Makes room for the headers of further frames in a payload that is too long for one. `out[start..]` begins with the room
/// for the first header.
fn insert_headers(out: &mut Vec<u8>, start: usize) -> Pieces {
    let len = out.len() - start - HEADER_LEN;
    let count = len.div_ceil(PAYLOAD_MAX).max(1);
    out.resize(out.len() + (count - 1) * HEADER_LEN, 0);
    for piece in (1..count).rev() {
        let from = start + HEADER_LEN + piece * PAYLOAD_MAX;
        let piece_len = (len - piece * PAYLOAD_MAX).min(PAYLOAD_MAX);
        out.copy_within(from..from + piece_len, from + piece * HEADER_LEN);
    }
    Pieces { start, len, count }
}
