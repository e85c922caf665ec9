//! One exchange over HTTP/1, on a connection of its own. Only the exchange polls the connection.

use std::io;
use std::task::{Context, Poll, ready};

use super::error::{Cause, Disconnect, PIECE_MAX, Progress, TransportError, closed};
use super::upload::{BodySink, RequestTraits, Upload};
use crate::base::fields::FieldBuf;
use crate::transport::http1::encode::Encoder;
use crate::transport::http1::{self, BodyStep, Decoder, ResponseHead};
use crate::transport::net::buffer::BufferPool;
use crate::transport::upstream::pool::connection::H1Connection;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct H1Transport {
    /// None once it has been given back.
    pub(crate) connection: Option<Box<H1Connection>>,
    pub(crate) decoder: Decoder,
}

impl H1Transport {
    /// An exchange on a connection whose `out` has the request head.
    pub(crate) fn new(connection: Box<H1Connection>) -> Self {
        Self { connection: Some(connection), decoder: Decoder::none() }
    }

    /// Polls for the next response head. Errs if the connection ends or the head is malformed.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestTraits,
        upload: &Upload,
        buffers: &BufferPool,
    ) -> Poll<Result<ResponseHead, TransportError>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Err(TransportError::closed())) };
        if upload.has_ended() {
            // A retry encodes the head again, so the sent bytes are not needed while the upstream works.
            connection.out.release(buffers);
        }
        loop {
            let H1Connection { input, spans, .. } = &mut **connection;
            if !input.is_empty() {
                match http1::parse_response(input.unread_mut(), request.is_head, spans) {
                    Ok(Some(head)) => {
                        self.decoder = Decoder::of_response(head.framing);
                        return Poll::Ready(Ok(head));
                    }
                    Ok(None) => {}
                    Err(fault) => return Poll::Ready(Err(TransportError::Malformed(fault))),
                }
            }
            let error = match ready!(connection.input.poll_fill(cx, &mut connection.stream, buffers)) {
                Ok(1..) => continue,
                Ok(0) => closed(),
                Err(error) => error,
            };
            return Poll::Ready(Err(TransportError::Disconnected(Disconnect {
                error,
                // The end of a new connection is a failure of its endpoint; an idle one may close at any time.
                was_idle: connection.idle_since.take().is_some(),
                may_retry: (request.may_retry || !upload.is_touched) && connection.input.is_empty(),
                may_succeed: false,
            })));
        }
    }

    /// As [`Transport::poll_body`](super::transport::Transport::poll_body).
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        buffers: &BufferPool,
        progress: &mut Progress,
    ) -> Poll<Result<bool, Cause>> {
        let before = out.len();
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(false)) };
        loop {
            match self.decoder.next(connection.input.unread()) {
                BodyStep::Data { skipped, len } => {
                    encoder.data(out, &connection.input.unread()[skipped..skipped + len]);
                    connection.input.consume(skipped + len);
                    progress.bytes += len as u64;
                    if out.len() - before >= PIECE_MAX && !self.decoder.has_ended() {
                        return Poll::Ready(Ok(true));
                    }
                }
                BodyStep::End(len) => {
                    connection.input.consume(len);
                    encoder.end(out, self.decoder.trailers());
                    return Poll::Ready(Ok(false));
                }
                BodyStep::Broken(_) => return Poll::Ready(Err("a chunk has wrong framing")),
                BodyStep::More => {
                    connection.input.consume(connection.input.unread().len());
                    if out.len() > before {
                        return Poll::Ready(Ok(true));
                    }
                    match ready!(connection.input.poll_fill(cx, &mut connection.stream, buffers)) {
                        Ok(1..) => progress.has_moved = true,
                        Ok(0) if self.decoder.end() => {}
                        Ok(0) => return Poll::Ready(Err("the connection ended")),
                        Err(_) => return Poll::Ready(Err("the connection broke")),
                    }
                }
            }
        }
    }
}

impl BodySink for H1Connection {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.stream.poll_send(cx, &mut self.out);
        self.is_flushed = sent.is_ready();
        sent
    }

    fn is_untouched(&self) -> bool {
        self.out.is_untouched()
    }

    fn next_piece(&mut self) -> &mut Vec<u8> {
        self.out.clear();
        self.out.bytes()
    }

    /// The framing of the last piece contains the end and the trailers.
    fn end(&mut self, _trailers: Option<&FieldBuf>) {}
}
