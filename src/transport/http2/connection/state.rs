//! The state of a connection: what both directions share, and how it ends.

use super::super::error::{ErrorCode, Fatal};
use super::super::flow::{ReceiveWindow, SendWindow, WINDOW_INITIAL};
use super::super::frame;
use super::super::head::Head;
use super::super::hpack::Decoder;
use super::super::settings::Config;
use super::super::stream::{Key, Side, Streams};
use crate::base::fields::FieldBuf;

/// Requests that a client may abandon on one connection beside as many as it lets be answered. Beyond, the connection ends:
/// such a client makes Weir and the service work for nothing, faster than a bound on open streams can tell (CVE-2023-44487).
const ABANDONED_MAX: u32 = 100;

/// Errors of streams that a connection may have beside as many answers. One stream more than may be open is the most usual:
/// a client may open many before it knows how many. Beyond, the connection ends (CVE-2025-8671).
const ERRORS_MAX: u32 = 256;

/// Frames in a row that neither ask for anything nor carry a body, while no response moves. Beyond, the connection ends
/// (CVE-2019-9512, -9515 and -9518).
pub const IDLE_FRAMES_MAX: u32 = 10_000;

/// What follows a frame: an event, or nothing more.
pub(super) type Handled = Result<Option<Event<'static>>, Fatal>;

pub(super) const FRAME_SIZE: Fatal = Fatal::new(ErrorCode::FrameSize, "a frame of a wrong length");
pub(super) const WRONG_STREAM: Fatal = Fatal::protocol("a frame on a stream that cannot have it");
pub(super) const BROKEN_BLOCK: Fatal = Fatal::protocol("a header block that is not continued");

/// Bytes of all bodies that a client may send before they are consumed.
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;

/// Bytes of one body that a client may send before they are consumed, once half of the initial window was. It is a part of
/// the connection's window, so that a service that does not read one body does not stop the others.
const STREAM_WINDOW: u32 = CONNECTION_WINDOW / 4;

/// The largest identifier: a GOAWAY with it says that another one follows (RFC 9113, section 6.8).
const STREAM_ID_MAX: u32 = 0x7fff_ffff;

/// A step of reading.
#[derive(Debug)]
pub struct Step<'i> {
    /// Bytes that were taken of the input. 0 without an event: more input is needed.
    pub consumed: usize,
    /// What they say.
    pub event: Option<Event<'i>>,
}

/// What the peer says.
#[derive(Debug)]
pub enum Event<'i> {
    /// A request. Its stream has an owner from now on, until [`Connection::release`].
    Head {
        /// The stream.
        key: Key,
        /// The head, which may have a fault.
        head: Head,
        /// No body follows.
        has_ended: bool,
    },
    /// A piece of a body; it is to be [consumed](Connection::consume).
    Data {
        /// The stream.
        key: Key,
        /// May be empty at the end.
        data: &'i [u8],
        /// It is the last one.
        has_ended: bool,
    },
    /// The fields behind a body, and its end.
    Trailers {
        /// The stream.
        key: Key,
        /// In order.
        trailers: FieldBuf,
    },
    /// A stream was reset, by the peer or because of its mistake.
    Reset {
        /// The stream.
        key: Key,
    },
    /// More may be sent.
    WindowOpened {
        /// On this stream; none for all together.
        key: Option<Key>,
    },
    /// Each stream may send more, or less, than before.
    WindowsChanged,
    /// The answer to a PING.
    Pong,
    /// The peer opens no more streams.
    GoAway,
}

/// What is read next.
#[derive(Debug)]
pub(super) enum Reading {
    Preface,
    /// The header of a frame, and its payload if that has to be whole.
    Frame,
    /// The payload of DATA; for no stream it is dropped.
    Data {
        key: Option<Key>,
        remaining: usize,
        padding: usize,
        ends: bool,
    },
    /// Bytes without meaning.
    Skip(usize),
    /// CONTINUATION.
    Block(Box<HeaderBlock>),
}

/// A header block of several frames.
#[derive(Debug)]
pub(super) struct HeaderBlock {
    pub(super) head: BlockHead,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u32,
}

/// What the first frame of a header block says.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockHead {
    pub(super) stream: u32,
    pub(super) ends: bool,
    /// It depends on itself (RFC 7540, section 5.3.1).
    pub(super) is_circular: bool,
}

/// A connection of a server. `S` is what the owner of each stream keeps with it.
#[derive(Debug)]
pub struct Connection<S> {
    pub(super) config: Config,
    pub(super) decoder: Decoder,
    /// Bytes of the send window of new streams.
    pub(super) initial_window: u32,
    pub(super) streams: Streams<S>,
    /// The largest identifier of a stream that the peer opened.
    pub(super) last_id: u32,
    /// Streams above this are ignored.
    pub(super) last_served_id: u32,
    pub(super) send: SendWindow,
    pub(super) receive: ReceiveWindow,
    pub(super) reading: Reading,
    pub(super) has_settings: bool,
    /// The first block of this side has been written.
    pub(super) has_encoded: bool,
    pub(super) answered: u32,
    pub(super) abandoned: u32,
    pub(super) errors: u32,
    pub(super) idle_frames: u32,
    /// The size of the last head: the next one is often alike.
    pub(super) head_bytes: usize,
    pub(super) head_fields: usize,
}

impl<S> Connection<S> {
    /// A connection of which nothing has been read, not even the preface. Writes its settings.
    pub fn new(config: Config, out: &mut Vec<u8>) -> Self {
        frame::settings(out, config.settings());
        let mut receive = ReceiveWindow::new(WINDOW_INITIAL);
        frame::window_update(out, 0, receive.enlarge(CONNECTION_WINDOW));
        Self {
            config,
            decoder: Decoder::default(),
            initial_window: WINDOW_INITIAL,
            streams: Streams::default(),
            last_id: 0,
            last_served_id: STREAM_ID_MAX,
            send: SendWindow::new(WINDOW_INITIAL),
            receive,
            reading: Reading::Preface,
            has_settings: false,
            has_encoded: false,
            answered: 0,
            abandoned: 0,
            errors: 0,
            idle_frames: 0,
            head_bytes: 0,
            head_fields: 0,
        }
    }

    /// What the owner of a stream keeps with it.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut S> {
        self.streams.get_mut(key).map(|stream| &mut stream.owner)
    }

    /// What the owners of all streams keep with them.
    pub fn owners_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.streams.iter_mut().map(|stream| &mut stream.owner)
    }

    /// Whether no stream has an owner.
    pub fn is_empty(&self) -> bool {
        self.streams.len() == 0
    }

    /// Whether a head has begun and not ended.
    pub fn is_in_head(&self) -> bool {
        matches!(self.reading, Reading::Block(_))
    }

    /// Whether the stream was reset.
    pub fn is_reset(&self, key: Key) -> bool {
        self.streams.get(key).is_none_or(|stream| stream.reset_by.is_some())
    }

    /// Bytes that were read from a stream have been passed on, so that as many more may come.
    pub fn consume(&mut self, key: Key, bytes: usize, out: &mut Vec<u8>) {
        self.consume_within(key, bytes, STREAM_WINDOW, out);
    }

    /// Bytes of a stream have been consumed. Its window then has `window` bytes, if that is more than before.
    pub(super) fn consume_within(&mut self, key: Key, bytes: usize, window: u32, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get_mut(key)
            && let Some(increment) = stream.receive.consume(bytes, window)
            && stream.is_receiving
            && stream.reset_by.is_none()
        {
            frame::window_update(out, key.id(), increment);
        }
        self.consume_connection(bytes, out);
    }

    pub(super) fn consume_connection(&mut self, bytes: usize, out: &mut Vec<u8>) {
        if let Some(increment) = self.receive.consume(bytes, CONNECTION_WINDOW) {
            frame::window_update(out, 0, increment);
        }
    }

    /// Resets a stream, unless it has ended or is reset already.
    pub fn reset(&mut self, key: Key, code: ErrorCode, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get_mut(key)
            && stream.reset_by.is_none()
        {
            stream.reset_by = Some(Side::Here);
            frame::rst_stream(out, key.id(), code);
        }
    }

    /// The owner leaves a stream. If the response has not ended, the stream is reset; if only the request has not, the
    /// peer is asked to send no more of it (RFC 9113, section 8.1).
    pub fn release(&mut self, key: Key, out: &mut Vec<u8>) -> Option<S> {
        let stream = self.streams.get(key)?;
        let mut unconsumed = stream.receive.unconsumed();
        if stream.is_open() {
            let code = if stream.is_sending { ErrorCode::Internal } else { ErrorCode::NoError };
            self.reset(key, code, out);
        }
        if let Reading::Data { key: reading, remaining, .. } = &mut self.reading
            && *reading == Some(key)
        {
            *reading = None;
            unconsumed = unconsumed.saturating_sub(*remaining);
        }
        self.consume_connection(unconsumed, out);
        self.streams.remove(key).map(|stream| stream.owner)
    }

    /// Tells the peer that no more streams will be served after those that are on their way.
    pub fn announce_end(&mut self, out: &mut Vec<u8>) {
        frame::goaway(out, STREAM_ID_MAX, ErrorCode::NoError);
    }

    /// Tells the peer which stream was the last one. Later ones are ignored.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        self.last_served_id = self.last_id;
        frame::goaway(out, self.last_id, ErrorCode::NoError);
    }

    /// Tells the peer why the connection ends.
    pub fn fail(&mut self, fatal: Fatal, out: &mut Vec<u8>) {
        frame::goaway(out, self.last_id, fatal.code);
    }

    /// Asks the peer whether it is there: a [`Event::Pong`] follows.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        frame::ping(out, [0; 8], false);
    }

    /// The stream of a frame from the peer is at fault. Resets it.
    pub(super) fn stream_error(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) -> Handled {
        frame::rst_stream(out, id, code);
        self.errors += 1;
        if self.errors > self.answered.saturating_add(ERRORS_MAX) {
            return Err(Fatal::STREAM_ERRORS);
        }
        let Some(key) = self.streams.find(id) else {
            self.streams.ended(id, true);
            return Ok(None);
        };
        self.abandon(key, Side::Here)
    }

    /// A stream is reset because of its peer.
    pub(super) fn abandon(&mut self, key: Key, side: Side) -> Handled {
        let Some(stream) = self.streams.get_mut(key).filter(|stream| stream.reset_by.is_none()) else {
            return Ok(None);
        };
        stream.reset_by = Some(side);
        if !stream.is_answered {
            self.abandoned += 1;
            if self.abandoned > self.answered.saturating_add(ABANDONED_MAX) {
                return Err(Fatal::ABANDONED);
            }
        }
        Ok(Some(Event::Reset { key }))
    }

    /// Counts a frame that brings nothing on.
    pub(super) fn idle_frame(&mut self) -> Result<(), Fatal> {
        self.idle_frames += 1;
        if self.idle_frames > IDLE_FRAMES_MAX {
            return Err(Fatal::IDLE_FRAMES);
        }
        Ok(())
    }

    /// Whether the peer has not opened the stream.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        id > self.last_id || id.is_multiple_of(2)
    }
}
