//! One request over HTTP/2: on a stream of a connection that it shares.

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
use super::h2_head::{self, replace_host};
use super::upload::{RequestTraits, Upload};
use crate::fields::{FieldBuf, Fields};
use crate::http1::encode::Encoder;
use crate::http1::{self, FIELDS_MAX, Framing, ResponseFault, ResponseHead};
use crate::upstream::pool::checkout::PoolHandle;
use crate::upstream::pool::streams::StreamPermit;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct H2Transport {
    /// None once it was given back.
    permit: Option<StreamPermit>,
    /// As HTTP/1 has it, to be sent again if it must.
    head: Vec<u8>,
    /// What of the request is still to be sent.
    pub(crate) out: OutgoingBody,
    /// Until the head of the response is there.
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    /// Those of the head that came last.
    fields: FieldBuf,
    trailers: FieldBuf,
    /// How long the rest of the body is, if that was said.
    left: Option<u64>,
    has_ended: bool,
    /// Why the request did not even begin.
    fault: Option<TransportError>,
}

impl H2Transport {
    /// One on a stream of the connection of `permit`.
    pub(crate) fn new(permit: StreamPermit, head: Vec<u8>, request: RequestTraits) -> Self {
        let mut way = Self {
            permit: None,
            head,
            out: OutgoingBody::default(),
            response: None,
            body: None,
            fields: FieldBuf::default(),
            trailers: FieldBuf::default(),
            left: None,
            has_ended: false,
            fault: None,
        };
        way.begin(permit, request);
        way
    }

    fn begin(&mut self, permit: StreamPermit, request: RequestTraits) {
        let Some(head) = h2_head::request(&self.head, permit.scheme()) else {
            self.fault = Some(TransportError::Unencodable);
            return;
        };
        match permit.send(head, !request.has_body) {
            Ok((response, stream)) => {
                self.response = Some(response);
                self.out.begin(stream, request.has_body);
                self.permit = Some(permit);
            }
            // It has closed since it was chosen.
            Err(error) => {
                let error = io::Error::other(error);
                self.fault = Some(TransportError::Disconnected(Disconnect {
                    error,
                    was_idle: true,
                    may_retry: true,
                    may_succeed: true,
                }));
            }
        }
    }

    /// Sends the same once more.
    pub(crate) fn reopen(
        &mut self,
        permit: StreamPermit,
        handle: &PoolHandle,
        request: RequestTraits,
        upload: &mut Upload,
    ) {
        if request.has_own_host {
            replace_host(&mut self.head, handle.host());
        }
        if self.out.rewind() {
            upload.resume(self.out.is_whole());
        } else {
            upload.restart(request);
        }
        self.begin(permit, request);
    }

    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestTraits,
    ) -> Poll<Result<ResponseHead, TransportError>> {
        if let Some(fault) = self.fault.take() {
            return Poll::Ready(Err(fault));
        }
        let Some(response) = &mut self.response else { return Poll::Ready(Err(TransportError::closed())) };
        let came = match response.poll_informational(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(interim))) => {
                let (parts, ()) = interim.into_parts();
                return Poll::Ready(self.interim(parts.status, &parts.headers));
            }
            Poll::Ready(Some(Err(error))) => Err(error),
            Poll::Ready(None) => ready!(Pin::new(response).poll(cx)),
        };
        self.response = None;
        Poll::Ready(match came {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                self.final_head(parts.status, &parts.headers, body, request)
            }
            Err(error) => Err(self.lost(error, request)),
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
            Some(length) => Framing::Length(length), // the library holds the body against it
            None => Framing::Chunked,
        };
        self.left = if let Framing::Length(length) = framing { Some(length) } else { None };
        // HTTP/1 needs to be told that a response has no body.
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

    /// What a stream that ended without a head says.
    fn lost(&self, error: h2::Error, request: RequestTraits) -> TransportError {
        // Its own bounds and rules; what the upstream did is only told by name.
        if error.is_library() && error.is_reset() {
            return TransportError::Malformed(match error.reason() {
                Some(Reason::REFUSED_STREAM) => ResponseFault("the head is too large"),
                _ => ResponseFault("a head or a body that HTTP/2 does not allow"),
            });
        }
        // RFC 9113, sections 6.8 and 8.7: nothing of it was processed.
        let is_untaken = error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM));
        let was_used = self.permit.as_ref().is_some_and(StreamPermit::was_used);
        let is_of_connection = is_untaken || !error.is_reset();
        TransportError::Disconnected(Disconnect {
            was_idle: was_used && is_of_connection,
            may_retry: if is_untaken { self.out.can_rewind() } else { request.may_repeat && is_of_connection },
            may_succeed: is_untaken,
            error: io::Error::other(error),
        })
    }

    /// The fields of the head that came last.
    pub(crate) fn fields(&self) -> Fields<'_> {
        self.fields.fields()
    }

    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
        progress: &mut Progress,
    ) -> Poll<Result<bool, Cause>> {
        let before = out.len();
        while !self.has_ended {
            let Some(body) = &mut self.body else { return Poll::Ready(Err("the stream was given up")) };
            match body.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    progress.has_moved = true;
                    progress.bytes += data.len() as u64;
                    // What is written on is not held any more, so that the upstream may send as much again.
                    let _ = body.flow_control().release_capacity(data.len());
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
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

    /// The fields after the body, once that has ended.
    pub(crate) fn trailers(&self) -> Option<&FieldBuf> {
        Some(&self.trailers).filter(|trailers| !trailers.is_empty())
    }

    /// How long the rest of the body is, if that was said.
    pub(crate) fn left(&self) -> Option<u64> {
        if self.has_ended { Some(0) } else { self.left }
    }

    /// Lets go of the stream, which is reset if it has not ended both ways. `is_late`: nothing came on it in time, so
    /// that its connection may be dead.
    pub(crate) fn let_go(&mut self, is_late: bool) {
        if let Some(permit) = self.permit.take().filter(|_| is_late) {
            permit.request_ping();
        }
        self.out.let_go();
        (self.response, self.body) = (None, None);
    }
}

fn head(status: StatusCode, framing: Framing) -> ResponseHead {
    ResponseHead { len: 0, status: status.as_u16(), reason: 0..0, framing, length: None, keeps_alive: true }
}

/// The one length that the fields announce.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, TransportError> {
    let mut all = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let length = http1::parse_length(value.as_bytes()).filter(|length| all.is_none_or(|before| before == *length));
        all = Some(length.ok_or(TransportError::Malformed(ResponseFault("content-length")))?);
    }
    Ok(all)
}
