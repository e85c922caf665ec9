//! How a request travels to its endpoint and its response back: over HTTP/1 or over HTTP/2.
//!
//! Not here: when a request goes out once more, and how long anything may take.

use std::task::{Context, Poll};

use super::error::{Cause, Progress, TransportError};
use super::h1::H1Transport;
use super::h2::H2Transport;
use super::upload::{RequestTraits, Source, Upload};
use crate::fields::{FieldBuf, Fields};
use crate::http1::ResponseHead;
use crate::http1::encode::Encoder;
use crate::net::buffer::{Buffers, Out};
use crate::upstream::pool::checkout::{PoolHandle, PooledConnection};

/// See the [module](self).
#[derive(Debug)]
pub(crate) enum Transport {
    H1(H1Transport),
    /// Boxed: it is larger.
    H2(Box<H2Transport>),
}

impl Transport {
    /// One along `connection`. `write` puts the request's head on it.
    pub(crate) fn new(
        connection: PooledConnection,
        handle: &PoolHandle,
        request: RequestTraits,
        buffers: &Buffers,
        write: impl FnOnce(&mut Vec<u8>, &str) -> Encoder,
    ) -> (Self, Encoder) {
        match connection {
            PooledConnection::H1(mut connection) => {
                connection.out.prepare(buffers);
                let encoder = write(connection.out.bytes(), handle.host());
                (Self::H1(H1Transport::new(connection)), encoder)
            }
            PooledConnection::H2(permit) => {
                let mut head = Vec::new();
                write(&mut head, handle.host());
                (Self::H2(Box::new(H2Transport::new(permit, head, request))), Encoder::Raw)
            }
        }
    }

    /// Lets go of the connection, and keeps the head that is on it.
    pub(crate) fn take_head(&mut self) -> Out {
        match self {
            Self::H1(transport) => transport.connection.take().map(|connection| connection.out).unwrap_or_default(),
            Self::H2(transport) => {
                transport.let_go(false);
                Out::default() // it has a head of its own
            }
        }
    }

    /// Puts the same on another connection, with the head that was [taken](Self::take_head).
    pub(crate) fn reopen(
        &mut self,
        head: Out,
        connection: PooledConnection,
        handle: &PoolHandle,
        request: RequestTraits,
        upload: &mut Upload,
    ) {
        match (self, connection) {
            (Self::H1(transport), PooledConnection::H1(connection)) => {
                transport.reopen(head, connection, handle, request);
                upload.restart(request);
            }
            (Self::H2(transport), PooledConnection::H2(permit)) => transport.reopen(permit, handle, request, upload),
            // An upstream speaks one protocol; without a connection the request is broken off.
            _ => {}
        }
    }

    /// Moves the request on as far as it goes now. Says whether anything of its body moved.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, upload: &mut Upload, source: &mut impl Source) -> bool {
        match self {
            Self::H1(transport) => {
                transport.connection.as_mut().is_some_and(|connection| upload.send(cx, &mut **connection, source))
            }
            Self::H2(transport) => upload.send(cx, &mut transport.out, source),
        }
    }

    /// Whether nothing that was taken of the request waits to be sent.
    pub(crate) fn has_flushed(&self) -> bool {
        match self {
            Self::H1(transport) => transport.connection.as_ref().is_none_or(|connection| connection.out.pending() == 0),
            Self::H2(transport) => transport.out.has_flushed(),
        }
    }

    /// Looks for the head of the response, also an interim one.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestTraits,
        upload: &Upload,
        buffers: &Buffers,
    ) -> Poll<Result<ResponseHead, TransportError>> {
        match self {
            Self::H1(transport) => transport.poll_head(cx, request, upload, buffers),
            Self::H2(transport) => transport.poll_head(cx, request),
        }
    }

    /// The head of `len` bytes is not needed any more.
    pub(crate) fn drop_head(&mut self, len: usize) {
        if let Self::H1(H1Transport { connection: Some(connection), .. }) = self {
            connection.input.consume(len);
        }
    }

    /// The reason and the fields of the head that has come.
    pub(crate) fn head<'w>(&'w self, head: &ResponseHead) -> Option<(&'w [u8], Fields<'w>)> {
        match self {
            Self::H1(transport) => {
                let connection = transport.connection.as_ref()?;
                let bytes = connection.input.unread();
                Some((bytes.get(head.reason.clone()).unwrap_or(&[]), connection.spans.of(bytes)))
            }
            Self::H2(transport) => Some((reason(head.status), transport.fields())),
        }
    }

    /// Writes what has come of the body to `out`, until there is enough. `false`: that was the end.
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        buffers: &Buffers,
        progress: &mut Progress,
    ) -> Poll<Result<bool, Cause>> {
        match self {
            Self::H1(transport) => transport.poll_body(cx, out, encoder, buffers, progress),
            Self::H2(transport) => transport.poll_body(cx, out, encoder, progress),
        }
    }

    /// Whether the response has ended.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::H1(transport) => transport.decoder.has_ended(),
            Self::H2(transport) => transport.has_ended(),
        }
    }

    /// The fields after the body, once that has ended.
    pub(crate) fn trailers(&self) -> Option<&FieldBuf> {
        match self {
            Self::H1(transport) => transport.decoder.trailers(),
            Self::H2(transport) => transport.trailers(),
        }
    }

    /// How long the rest of the body is, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            Self::H1(transport) => transport.decoder.remaining(),
            Self::H2(transport) => transport.left(),
        }
    }

    /// Gives up what it goes by. `is_late`: because nothing came in time.
    pub(crate) fn abandon(&mut self, is_late: bool) {
        match self {
            Self::H1(transport) => transport.connection = None,
            Self::H2(transport) => transport.let_go(is_late),
        }
    }

    /// Lets go of what it goes by, which is as it was before if `may_keep`.
    pub(crate) fn give_back(&mut self, handle: &PoolHandle, may_keep: bool) {
        match self {
            Self::H1(transport) => {
                if let Some(connection) = transport.connection.take().filter(|_| may_keep) {
                    handle.pool.put(connection);
                }
            }
            Self::H2(transport) => transport.let_go(false),
        }
    }
}

/// HTTP/2 has none, HTTP/1 has a place for one.
fn reason(status: u16) -> &'static [u8] {
    let status = http::StatusCode::from_u16(status).ok();
    status.and_then(|status| status.canonical_reason()).unwrap_or_default().as_bytes()
}
