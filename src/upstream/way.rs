//! How a request travels to its endpoint and its response back: over HTTP/1 or over HTTP/2.
//!
//! Not here: when a request goes out once more, and how long anything may take.

use std::io;
use std::task::{Context, Poll};

use super::lease::{Line, Origin};
use super::outcome::closed;
use super::upload::{Sent, Source, Upload};
use super::way_h1::WayH1;
use super::way_h2::WayH2;
use crate::fields::{FieldBuf, Fields};
use crate::http1::encode::Encoder;
use crate::http1::{ResponseFault, ResponseHead};
use crate::net::buffer::{Buffers, Out};

/// What is moved at once from the upstream to the client, about.
pub(super) const PIECE_MAX: usize = 64 * 1024;

/// See the [module](self).
#[derive(Debug)]
pub(super) enum Way {
    H1(WayH1),
    /// Boxed: it is larger.
    H2(Box<WayH2>),
}

/// Why no head came.
#[derive(Debug)]
pub(super) enum Lost {
    /// It cannot be read.
    Malformed(ResponseFault),
    /// The request cannot be said in this protocol.
    Unsayable,
    Broken(Broken),
}

/// How it broke off.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) error: io::Error,
    /// The connection had been used before, so that this says little of its endpoint: it may close at any time.
    pub(super) was_idle: bool,
    /// The request may go out once more.
    pub(super) may_repeat: bool,
    /// That may help also on a new connection to the same endpoint.
    pub(super) may_help: bool,
}

/// What a look at the body has come to.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes of it that were written.
    pub(super) bytes: u64,
    /// Something came from the upstream.
    pub(super) has_moved: bool,
}

/// What a body breaks off for.
pub(super) type Cause = &'static str;

impl Lost {
    /// There is no connection any more.
    pub(super) fn gone() -> Self {
        Self::Broken(Broken { error: closed(), was_idle: false, may_repeat: false, may_help: false })
    }
}

impl Way {
    /// One along `line`. `write` puts the request's head on it.
    pub(super) fn new(
        line: Line,
        origin: &Origin,
        request: Sent,
        buffers: &Buffers,
        write: impl FnOnce(&mut Vec<u8>, &str) -> Encoder,
    ) -> (Self, Encoder) {
        match line {
            Line::H1(mut connection) => {
                connection.out.prepare(buffers);
                let encoder = write(connection.out.bytes(), origin.host());
                (Self::H1(WayH1::new(connection)), encoder)
            }
            Line::H2(seat) => {
                let mut head = Vec::new();
                write(&mut head, origin.host());
                (Self::H2(Box::new(WayH2::new(seat, head, request))), Encoder::Raw)
            }
        }
    }

    /// Lets go of the line, and keeps the head that is on it.
    pub(super) fn take_head(&mut self) -> Out {
        match self {
            Self::H1(way) => way.connection.take().map(|connection| connection.out).unwrap_or_default(),
            Self::H2(way) => {
                way.let_go(false);
                Out::default() // it has a head of its own
            }
        }
    }

    /// Puts the same on another line, with the head that was [taken](Self::take_head).
    pub(super) fn reopen(&mut self, head: Out, line: Line, origin: &Origin, request: Sent, upload: &mut Upload) {
        match (self, line) {
            (Self::H1(way), Line::H1(connection)) => {
                way.reopen(head, connection, origin, request);
                upload.restart(request);
            }
            (Self::H2(way), Line::H2(seat)) => way.reopen(seat, origin, request, upload),
            // An upstream speaks one protocol; without a line the request is broken off.
            _ => {}
        }
    }

    /// Moves the request on as far as it goes now. Says whether anything of its body moved.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, upload: &mut Upload, source: &mut impl Source) -> bool {
        match self {
            Self::H1(way) => {
                way.connection.as_mut().is_some_and(|connection| upload.send(cx, &mut **connection, source))
            }
            Self::H2(way) => upload.send(cx, &mut way.out, source),
        }
    }

    /// Whether nothing that was taken of the request waits to be sent.
    pub(super) fn has_flushed(&self) -> bool {
        match self {
            Self::H1(way) => way.connection.as_ref().is_none_or(|connection| connection.out.pending() == 0),
            Self::H2(way) => way.out.has_flushed(),
        }
    }

    /// Looks for the head of the response, also an interim one.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: Sent,
        upload: &Upload,
        buffers: &Buffers,
    ) -> Poll<Result<ResponseHead, Lost>> {
        match self {
            Self::H1(way) => way.poll_head(cx, request, upload, buffers),
            Self::H2(way) => way.poll_head(cx, request),
        }
    }

    /// The head of `len` bytes is not needed any more.
    pub(super) fn drop_head(&mut self, len: usize) {
        if let Self::H1(WayH1 { connection: Some(connection), .. }) = self {
            connection.input.consume(len);
        }
    }

    /// The reason and the fields of the head that has come.
    pub(super) fn head<'w>(&'w self, head: &ResponseHead) -> Option<(&'w [u8], Fields<'w>)> {
        match self {
            Self::H1(way) => {
                let connection = way.connection.as_ref()?;
                let bytes = connection.input.unread();
                Some((bytes.get(head.reason.clone()).unwrap_or(&[]), connection.spans.of(bytes)))
            }
            Self::H2(way) => Some((reason(head.status), way.fields())),
        }
    }

    /// Writes what has come of the body to `out`, until there is enough. `false`: that was the end.
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        buffers: &Buffers,
        progress: &mut Progress,
    ) -> Poll<Result<bool, Cause>> {
        match self {
            Self::H1(way) => way.poll_body(cx, out, encoder, buffers, progress),
            Self::H2(way) => way.poll_body(cx, out, encoder, progress),
        }
    }

    /// Whether the response has ended.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::H1(way) => way.decoder.has_ended(),
            Self::H2(way) => way.has_ended(),
        }
    }

    /// The fields after the body, once that has ended.
    pub(super) fn trailers(&self) -> Option<&FieldBuf> {
        match self {
            Self::H1(way) => way.decoder.trailers(),
            Self::H2(way) => way.trailers(),
        }
    }

    /// How long the rest of the body is, if that is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Self::H1(way) => way.decoder.left(),
            Self::H2(way) => way.left(),
        }
    }

    /// Gives up what it goes by. `is_late`: because nothing came in time.
    pub(super) fn abandon(&mut self, is_late: bool) {
        match self {
            Self::H1(way) => way.connection = None,
            Self::H2(way) => way.let_go(is_late),
        }
    }

    /// Lets go of what it goes by, which is as it was before if `may_keep`.
    pub(super) fn give_back(&mut self, origin: &Origin, may_keep: bool) {
        match self {
            Self::H1(way) => {
                if let Some(connection) = way.connection.take().filter(|_| may_keep) {
                    origin.pool.put(connection);
                }
            }
            Self::H2(way) => way.let_go(false),
        }
    }
}

/// HTTP/2 has none, HTTP/1 has a place for one.
fn reason(status: u16) -> &'static [u8] {
    let status = http::StatusCode::from_u16(status).ok();
    status.and_then(|status| status.canonical_reason()).unwrap_or_default().as_bytes()
}

/// Puts another host into a head that names one.
pub(super) fn replace_host(head: &mut Vec<u8>, host: &str) {
    let Some(line) = memchr::memmem::find(head, b"\r\nhost: ") else { return };
    let start = line + b"\r\nhost: ".len();
    let Some(len) = memchr::memchr(b'\r', &head[start..]) else { return };
    head.splice(start..start + len, host.bytes());
}
