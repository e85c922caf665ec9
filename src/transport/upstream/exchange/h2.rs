//! One exchange over HTTP/2, on a stream of a shared connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};

use super::error::{Cause, Disconnect, PIECE_MAX, Progress, TransportError};
use super::h2_body::OutgoingBody;
use super::head::{self, RequestHead};
use super::upload::{RequestTraits, Upload};
use crate::base::fields::{FieldBuf, Fields, parse_length};
use crate::transport::http1::encode::Encoder;
use crate::transport::http1::{FIELDS_MAX, Framing, ResponseFault, ResponseHead};
use crate::transport::upstream::h2::connection::STREAM_WINDOW;
use crate::transport::upstream::pool::streams::StreamPermit;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct H2Transport {
    /// None once the stream has ended.
    permit: Option<StreamPermit>,
    /// The body of the request.
    pub(crate) out: OutgoingBody,
    /// None once the response head has arrived.
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    /// The fields of the last response head.
    fields: FieldBuf,
    trailers: FieldBuf,
    /// The remaining bytes of the body; none if unknown.
    remaining: Option<u64>,
    pub(super) has_ended: bool,
    /// Why the request could not begin.
    fault: Option<TransportError>,
}

impl H2Transport {
    /// Begins the request on a new stream; `host` is that of the endpoint.
    pub(crate) fn new(permit: StreamPermit, head: &impl RequestHead, host: &str, request: RequestTraits) -> Self {
        let mut transport = Self::default();
        transport.begin(permit, head, host, request);
        transport
    }

    fn begin(&mut self, permit: StreamPermit, head: &impl RequestHead, host: &str, request: RequestTraits) {
        let Some(head) = head::encode_h2(head, host, permit.scheme()) else {
            self.fault = Some(TransportError::Unencodable);
            return;
        };
        match permit.send(head, !request.has_body) {
            Ok((response, stream)) => {
                self.response = Some(response);
                self.out.begin(stream, request.has_body);
                self.permit = Some(permit);
            }
            // The connection has closed since it was chosen.
            Err(error) => {
                let error = io::Error::other(error);
                let disconnect = Disconnect { error, was_idle: true, may_retry: true, may_succeed: true };
                self.fault = Some(TransportError::Disconnected(disconnect));
            }
        }
    }

    /// Sends the request again on another stream, with the part of the body that was already taken from the client.
    pub(crate) fn reopen(
        &mut self,
        permit: StreamPermit,
        head: &impl RequestHead,
        host: &str,
        request: RequestTraits,
        upload: &mut Upload,
    ) {
        if self.out.rewind() {
            upload.resume(self.out.is_whole());
        } else {
            upload.restart(request);
        }
        self.begin(permit, head, host, request);
    }

    /// Polls for the next response head. Errs if the stream ends or the head is malformed.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestTraits,
    ) -> Poll<Result<ResponseHead, TransportError>> {
        if let Some(fault) = self.fault.take() {
            return Poll::Ready(Err(fault));
        }
        let Some(response) = &mut self.response else { return Poll::Ready(Err(TransportError::closed())) };
        let result = match response.poll_informational(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(interim))) => {
                let (parts, ()) = interim.into_parts();
                return Poll::Ready(self.interim(parts.status, &parts.headers));
            }
            Poll::Ready(Some(Err(error))) => Err(error),
            Poll::Ready(None) => ready!(Pin::new(response).poll(cx)),
        };
        self.response = None;
        Poll::Ready(match result {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                self.final_head(parts.status, &parts.headers, body, request)
            }
            Err(error) => Err(self.stream_error(error, request)),
        })
    }

    fn interim(&mut self, status: StatusCode, headers: &HeaderMap) -> Result<ResponseHead, TransportError> {
        self.take_fields(headers)?;
        Ok(head(status, Framing::Length(0)))
    }

    fn final_head(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
        body: RecvStream,
        request: RequestTraits,
    ) -> Result<ResponseHead, TransportError> {
        self.take_fields(headers)?;
        self.out.forget();
        let announced = content_length(headers)?.filter(|_| status != StatusCode::NO_CONTENT);
        let is_bodyless = request.is_head || matches!(status.as_u16(), 204 | 304);
        self.has_ended = is_bodyless || body.is_end_stream();
        let framing = match announced {
            _ if self.has_ended => Framing::Length(0),
            Some(length) => Framing::Length(length), // the library checks the body against it
            None => Framing::Chunked,
        };
        self.remaining = if let Framing::Length(length) = framing { Some(length) } else { None };
        // An HTTP/1 client needs an explicit length of 0.
        let length = announced.or((self.has_ended && !is_bodyless).then_some(0));
        self.body = Some(body);
        Ok(ResponseHead { length, ..head(status, framing) })
    }

    fn take_fields(&mut self, headers: &HeaderMap) -> Result<(), TransportError> {
        if headers.len() > FIELDS_MAX {
            return Err(TransportError::Malformed(ResponseFault("too many fields")));
        }
        self.fields = FieldBuf::from(headers);
        Ok(())
    }

    /// The meaning of a stream that ended without a response head.
    fn stream_error(&self, error: h2::Error, request: RequestTraits) -> TransportError {
        // The library has reset the stream: the response violates its bounds or the protocol.
        if error.is_library() && error.is_reset() {
            return TransportError::Malformed(match error.reason() {
                Some(Reason::REFUSED_STREAM) => ResponseFault("the head is too large"),
                _ => ResponseFault("a head or a body that HTTP/2 does not allow"),
            });
        }
        // The upstream has not processed the request (RFC 9113, sections 6.8 and 8.7).
        let is_unprocessed =
            error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM));
        let was_used = self.permit.as_ref().is_some_and(StreamPermit::was_used);
        let is_of_connection = !error.is_reset();
        TransportError::Disconnected(Disconnect {
            was_idle: was_used && is_of_connection,
            may_retry: if is_unprocessed { self.out.can_rewind() } else { request.may_retry && is_of_connection },
            may_succeed: is_unprocessed,
            error: io::Error::other(error),
        })
    }

    /// The fields of the last response head.
    pub(crate) fn fields(&self) -> Fields<'_> {
        self.fields.fields()
    }

    /// As [`Transport::memory`](super::transport::Transport::memory).
    pub(crate) fn memory(&self) -> usize {
        if self.has_ended {
            return 0;
        }
        let window = STREAM_WINDOW as usize;
        self.remaining.and_then(|remaining| usize::try_from(remaining).ok()).map_or(window, |all| all.min(window))
    }

    /// As [`Transport::poll_body`](super::transport::Transport::poll_body).
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        progress: &mut Progress,
    ) -> Poll<Result<bool, Cause>> {
        let before = out.len();
        while !self.has_ended {
            let Some(body) = &mut self.body else { return Poll::Ready(Err("the stream has been ended")) };
            match body.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    progress.has_moved = true;
                    progress.bytes += data.len() as u64;
                    // The data has been copied, so the upstream may send as much again.
                    let _ = body.flow_control().release_capacity(data.len());
                    self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(data.len() as u64));
                    if !data.is_empty() {
                        encoder.data(out, &data);
                    }
                    self.has_ended = body.is_end_stream();
                    if !self.has_ended && out.len() - before >= PIECE_MAX {
                        return Poll::Ready(Ok(true));
                    }
                }
                Poll::Ready(None) => match body.poll_trailers(cx) {
                    Poll::Ready(Ok(trailers)) => {
                        self.trailers = trailers.as_ref().map(FieldBuf::from).unwrap_or_default();
                        self.has_ended = true;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Err("the stream broke off")),
                    Poll::Pending if out.len() > before => return Poll::Ready(Ok(true)),
                    Poll::Pending => return Poll::Pending,
                },
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err("the stream broke off")),
                Poll::Pending if out.len() > before => return Poll::Ready(Ok(true)),
                Poll::Pending => return Poll::Pending,
            }
        }
        encoder.end(out, self.trailers());
        Poll::Ready(Ok(false))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The trailer fields, once the body has ended.
    pub(crate) fn trailers(&self) -> Option<&FieldBuf> {
        Some(&self.trailers).filter(|trailers| !trailers.is_empty())
    }

    /// The remaining bytes of the body; none if unknown.
    pub(crate) fn remaining(&self) -> Option<u64> {
        if self.has_ended { Some(0) } else { self.remaining }
    }

    /// Ends the stream: it is reset unless both directions have ended. `is_late`: no byte arrived in time, so the
    /// connection may be dead and sends a ping.
    pub(crate) fn end_stream(&mut self, is_late: bool) {
        if let Some(permit) = self.permit.take().filter(|_| is_late) {
            permit.request_ping();
        }
        self.out.end_stream();
        (self.response, self.body) = (None, None);
    }
}

fn head(status: StatusCode, framing: Framing) -> ResponseHead {
    ResponseHead { len: 0, status: status.as_u16(), reason: 0..0, framing, length: None, keeps_alive: true }
}

/// The length that the fields announce. Errs if several fields differ.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, TransportError> {
    let mut announced = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let length = parse_length(value.as_bytes()).filter(|length| announced.is_none_or(|before| before == *length));
        announced = Some(length.ok_or(TransportError::Malformed(ResponseFault("content-length")))?);
    }
    Ok(announced)
}
