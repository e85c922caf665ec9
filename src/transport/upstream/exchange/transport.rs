//! The transport of one exchange: an HTTP/1 connection or an HTTP/2 stream.
//!
//! Not here: retries and timeouts.

use std::task::{Context, Poll};

use super::error::{Cause, Progress, TransportError};
use super::h1::H1Transport;
use super::h2::H2Transport;
use super::head::{self, RequestHead};
use super::upload::{RequestTraits, Source, Upload};
use crate::base::fields::{FieldBuf, Fields};
use crate::transport::http1::encode::Encoder;
use crate::transport::http1::{Decoder, ResponseHead};
use crate::transport::net::buffer::BufferPool;
use crate::transport::upstream::pool::checkout::{PoolHandle, PooledConnection};
use crate::transport::upstream::pool::connection::H1Connection;

/// See the [module](self).
#[derive(Debug)]
pub(crate) enum Transport {
    H1(H1Transport),
    /// Boxed, because it is larger.
    H2(Box<H2Transport>),
}

impl Transport {
    /// Begins the request with `head` on `connection`. Also returns how the body is framed.
    pub(crate) fn new(
        connection: PooledConnection,
        handle: &PoolHandle,
        head: &impl RequestHead,
        request: RequestTraits,
    ) -> (Self, Encoder) {
        match connection {
            PooledConnection::H1(mut connection) => {
                connection.out.prepare(handle.pool.buffers());
                let encoder = head::encode_h1(connection.out.bytes(), head, handle.host());
                (Self::H1(H1Transport::new(connection)), encoder)
            }
            PooledConnection::H2(permit) => {
                let transport = H2Transport::new(permit, head, handle.host(), request);
                (Self::H2(Box::new(transport)), Encoder::Raw)
            }
        }
    }

    /// Sends the request again, with `head` on another connection.
    pub(crate) fn reopen(
        &mut self,
        connection: PooledConnection,
        handle: &PoolHandle,
        head: &impl RequestHead,
        request: RequestTraits,
        upload: &mut Upload,
    ) {
        match (self, connection) {
            (Self::H1(transport), PooledConnection::H1(mut connection)) => {
                connection.out.prepare(handle.pool.buffers());
                head::encode_h1(connection.out.bytes(), head, handle.host());
                *transport = H1Transport::new(connection);
                upload.restart(request);
            }
            (Self::H2(transport), PooledConnection::H2(permit)) => {
                transport.reopen(permit, head, handle.host(), request, upload);
            }
            // All connections of an upstream have one protocol. Without a connection the request fails.
            _ => {}
        }
    }

    /// Sends as much of the request as is possible now. Returns whether bytes of its body moved.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, upload: &mut Upload, source: &mut impl Source) -> bool {
        match self {
            Self::H1(transport) => {
                transport.connection.as_mut().is_some_and(|connection| upload.send(cx, &mut **connection, source))
            }
            Self::H2(transport) => upload.send(cx, &mut transport.out, source),
        }
    }

    /// Whether all bytes taken from the client have been sent.
    pub(crate) fn has_flushed(&self) -> bool {
        match self {
            Self::H1(transport) => transport.connection.as_ref().is_none_or(|connection| connection.has_flushed()),
            Self::H2(transport) => transport.out.has_flushed(),
        }
    }

    /// Polls for the next response head, interim or final.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestTraits,
        upload: &Upload,
        buffers: &BufferPool,
    ) -> Poll<Result<ResponseHead, TransportError>> {
        match self {
            Self::H1(transport) => transport.poll_head(cx, request, upload, buffers),
            Self::H2(transport) => transport.poll_head(cx, request),
        }
    }

    /// Discards a response head of `len` bytes.
    pub(crate) fn drop_head(&mut self, len: usize) {
        if let Self::H1(H1Transport { connection: Some(connection), .. }) = self {
            connection.input.consume(len);
        }
    }

    /// The reason phrase and the fields of the last response head.
    pub(crate) fn head<'t>(&'t self, head: &ResponseHead) -> Option<(&'t [u8], Fields<'t>)> {
        match self {
            Self::H1(transport) => {
                let connection = transport.connection.as_ref()?;
                let bytes = connection.input.unread();
                Some((bytes.get(head.reason.clone()).unwrap_or(&[]), connection.spans.of(bytes)))
            }
            Self::H2(transport) => Some((reason(head.status), transport.fields())),
        }
    }

    /// Appends received bytes of the response body to `out`, up to about [`PIECE_MAX`](super::error::PIECE_MAX). Returns
    /// false at the end of the body. Errs if the body ends early.
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        buffers: &BufferPool,
        progress: &mut Progress,
    ) -> Poll<Result<bool, Cause>> {
        match self {
            Self::H1(transport) => transport.poll_body(cx, out, encoder, buffers, progress),
            Self::H2(transport) => transport.poll_body(cx, out, encoder, progress),
        }
    }

    /// Bytes of memory in which more of the response waits, or comes to wait if none is taken.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::H1(transport) => transport.connection.as_ref().map_or(0, |connection| connection.input.memory()),
            Self::H2(transport) => transport.memory(),
        }
    }

    /// Whether the response has ended.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::H1(transport) => transport.decoder.has_ended(),
            Self::H2(transport) => transport.has_ended(),
        }
    }

    /// The trailer fields, once the body has ended.
    pub(crate) fn trailers(&self) -> Option<&FieldBuf> {
        match self {
            Self::H1(transport) => transport.decoder.trailers(),
            Self::H2(transport) => transport.trailers(),
        }
    }

    /// The remaining bytes of the body; none if unknown.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match self {
            Self::H1(transport) => transport.decoder.remaining(),
            Self::H2(transport) => transport.remaining(),
        }
    }

    /// Closes the connection, or ends the stream. `is_late`: because no byte arrived in time.
    pub(crate) fn abandon(&mut self, is_late: bool) {
        match self {
            Self::H1(transport) => transport.connection = None,
            Self::H2(transport) => transport.end_stream(is_late),
        }
    }

    /// Ends the response before the upstream does. Its connection closes, or its stream is reset.
    pub(crate) fn end_early(&mut self) {
        self.abandon(false);
        match self {
            Self::H1(transport) => transport.decoder = Decoder::none(),
            Self::H2(transport) => transport.has_ended = true,
        }
    }

    /// Takes the HTTP/1 connection out of the exchange. None for a stream.
    pub(crate) fn take_connection(&mut self) -> Option<Box<H1Connection>> {
        match self {
            Self::H1(transport) => transport.connection.take(),
            Self::H2(_) => None,
        }
    }

    /// Returns the connection to its pool, or closes it unless `is_reusable`; ends a stream.
    pub(crate) fn give_back(&mut self, handle: &PoolHandle, is_reusable: bool) {
        match self {
            Self::H1(transport) => {
                if let Some(connection) = transport.connection.take().filter(|_| is_reusable) {
                    handle.pool.put(connection);
                }
            }
            Self::H2(transport) => transport.end_stream(false),
        }
    }
}

/// The usual reason phrase of a status. HTTP/2 has none, and HTTP/1 may have one.
fn reason(status: u16) -> &'static [u8] {
    let status = http::StatusCode::from_u16(status).ok();
    status.and_then(|status| status.canonical_reason()).unwrap_or_default().as_bytes()
}
