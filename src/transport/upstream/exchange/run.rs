//! One request to an endpoint and its response.
//!
//! Both bodies may move at once: polling for the response also sends the request body. No byte is read before there is
//! space to write it. Dropping an exchange cancels it: an HTTP/1 connection closes, an HTTP/2 stream is reset.

mod record;
mod report;
mod taps;

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use self::taps::BodyTaps;
use super::error::{Progress, TransportError, closed};
use super::head::RequestHead;
use super::outcome::{ExchangeError, ResponseEvent};
use super::transport::Transport;
use super::upload::{RequestTraits, Source, Upload};
use crate::base::fields::{FieldBuf, Fields};
use crate::base::time;
use crate::transport::http1::ResponseHead;
use crate::transport::http1::encode::Encoder;
use crate::transport::http1::hop;
use crate::transport::net::Timeouts;
use crate::transport::net::buffer::InputBuffer;
use crate::transport::net::deadline::Deadline;
use crate::transport::net::pace::Pace;
use crate::transport::upstream::endpoints::Endpoints;
use crate::transport::upstream::location::LocationRewrite;
use crate::transport::upstream::pool::checkout::{Checkout, PoolHandle, Requirements, UpgradedConnection};
use crate::transport::upstream::pool::pinned::PinnedConnection;

/// A request that has its connection, and its response.
#[derive(Debug)]
pub(crate) struct Exchange {
    upstream: Rc<Endpoints>,
    /// None once the connection has been given back. Dropped before the connection, so that a request that waits for
    /// the client's allowance can get it.
    handle: Option<PoolHandle>,
    transport: Transport,
    /// Another request had used the connection that ended.
    was_idle: bool,
    /// The request has been sent again.
    was_retried: bool,
    upload: Upload,
    request: RequestTraits,
    /// How `Location` fields of the response are rewritten, if at all.
    locations: Option<Box<LocationRewrite>>,
    /// What reads the body besides the client; none if nothing does.
    taps: Option<Box<BodyTaps>>,
    requirements: Requirements,
    head: Option<ResponseHead>,
    /// The response has ended early.
    is_broken: bool,
    /// Bytes of the response body so far.
    body_bytes: u64,
    /// When the connection got the request.
    handed_over: Instant,
    /// When bytes last moved.
    moved_at: Instant,
    /// How fast the client reads the response.
    reading: Pace,
    timeouts: Rc<Timeouts>,
    /// When the response must have ended; none if there is no such bound.
    total_at: Option<Instant>,
}

impl Exchange {
    /// Begins the request with `head` on the connection of `checkout`.
    pub(crate) fn new(
        upstream: &Rc<Endpoints>,
        checkout: Checkout,
        head: &impl RequestHead,
        request: RequestTraits,
        mut requirements: Requirements,
        timeouts: Rc<Timeouts>,
    ) -> Self {
        let Checkout { connection, handle, is_pinned, .. } = checkout;
        let (transport, encoder) = Transport::new(connection, &handle, head, request);
        requirements.pin = requirements.pin.filter(|_| is_pinned || request.authenticates_connection);
        let now = time::instant_now();
        Self {
            upstream: Rc::clone(upstream),
            transport,
            handle: Some(handle),
            was_idle: false,
            was_retried: false,
            upload: Upload::new(request, encoder),
            request,
            locations: None,
            taps: None,
            requirements,
            head: None,
            is_broken: false,
            body_bytes: 0,
            handed_over: now,
            moved_at: now,
            reading: Pace::default(),
            total_at: timeouts.total.map(|total| now + total),
            timeouts,
        }
    }

    /// Sets how `Location` fields of the response are rewritten.
    pub(crate) fn with_locations(self, locations: LocationRewrite) -> Self {
        Self { locations: Some(Box::new(locations)), ..self }
    }

    /// How `Location` fields of the response are rewritten, and the host of the endpoint.
    pub(crate) fn locations(&self) -> Option<(&LocationRewrite, &str)> {
        Some((self.locations.as_deref()?, self.handle.as_ref()?.host()))
    }

    /// Sends the request again with `head`, on another connection.
    pub(crate) async fn reopen(&mut self, head: &impl RequestHead) -> Result<(), ExchangeError> {
        self.was_retried = true;
        // The connection is closed first: its permit may be the last one.
        let Some(PoolHandle { index, active, .. }) = self.handle.take() else {
            return Err(ExchangeError::Broken(closed()));
        };
        self.transport.abandon(false);
        let Checkout { connection, mut handle, .. } =
            self.upstream.connect_elsewhere(&self.requirements, index).await?;
        handle.active = active;
        self.transport.reopen(connection, &handle, head, self.request, &mut self.upload);
        (self.handle, self.moved_at) = (Some(handle), time::instant_now());
        self.handed_over = self.moved_at;
        Ok(())
    }

    /// Whether bytes of the request may have reached the upstream.
    pub(crate) fn is_touched(&self) -> bool {
        self.upload.is_touched
    }

    /// When the connection got the request.
    pub(crate) fn handed_over(&self) -> Instant {
        self.handed_over
    }

    /// When the response must have ended; none if there is no such bound.
    pub(crate) fn total_at(&self) -> Option<Instant> {
        self.total_at
    }

    /// Whether the request body ended early because of the client.
    pub(crate) fn is_cut(&self) -> bool {
        self.upload.fault().is_some()
    }

    /// Whether the whole request has been sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.upload.has_ended() && self.transport.has_flushed()
    }

    /// Whether no further byte of the request will be sent.
    pub(crate) fn has_sent(&self) -> bool {
        self.handle.is_none() || (self.upload.is_over() && (!self.upload.has_ended() || self.transport.has_flushed()))
    }

    /// Sends as much of the request as possible, and polls for the response head.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut impl Source,
        deadline: &mut Deadline,
    ) -> Poll<Result<ResponseEvent, ExchangeError>> {
        self.drop_interim();
        self.send(cx, source);
        if let Some(fault) = self.upload.fault() {
            return Poll::Ready(Err(fault.into()));
        }
        if let Poll::Ready(event) = self.poll_response(cx) {
            self.record(&event);
            return Poll::Ready(event);
        }
        let (allowed, error) = if self.upload.awaits_client {
            (self.timeouts.body_idle, ExchangeError::ClientTimeout)
        } else {
            (self.timeouts.response_head, ExchangeError::UpstreamTimeout)
        };
        let at = self.end_of(allowed);
        let rate = self.timeouts.min_send.filter(|_| self.upload.awaits_client);
        ready!(self.upload.pace.poll(cx, deadline, at, rate));
        let overdue = Err(error);
        self.record(&overdue);
        self.transport.abandon(!self.upload.awaits_client);
        Poll::Ready(overdue)
    }

    /// When a step ends that may take `allowed` since bytes last moved: then, or when the whole exchange must end.
    fn end_of(&self, allowed: Duration) -> Instant {
        let at = self.moved_at + allowed;
        self.total_at.map_or(at, |total_at| total_at.min(at))
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseEvent, ExchangeError>> {
        let polled = self.transport.poll_head(cx, self.request, &self.upload, self.upstream.buffers());
        let error = match ready!(polled) {
            Ok(head) => return Poll::Ready(self.head_arrived(head)),
            Err(error) => error,
        };
        Poll::Ready(match error {
            TransportError::Malformed(fault) => Err(ExchangeError::Malformed(fault)),
            TransportError::Unencodable => Err(ExchangeError::Unencodable),
            TransportError::Disconnected(disconnect) => {
                self.was_idle = disconnect.was_idle;
                let has_others = |handle: &PoolHandle| self.upstream.has_others(&[handle.index]);
                let may_succeed =
                    disconnect.may_succeed || self.was_idle || self.handle.as_ref().is_some_and(has_others);
                if may_succeed && disconnect.may_retry && !self.was_retried {
                    return Poll::Ready(Ok(ResponseEvent::Retry));
                }
                Err(ExchangeError::Broken(disconnect.error))
            }
        })
    }

    fn head_arrived(&mut self, head: ResponseHead) -> Result<ResponseEvent, ExchangeError> {
        let status = head.status;
        if status == 101 && !self.request.may_switch {
            return Err(ExchangeError::Switched);
        }
        if status == 100 {
            self.upload.go_on();
        }
        // An interim head may close the connection, whatever the final head says.
        if status < 200 && !head.keeps_alive {
            (self.requirements.is_exclusive, self.requirements.pin) = (true, None);
        }
        // The service may treat later requests on the connection as those of this client.
        self.requirements.is_exclusive |=
            self.transport.head(&head).is_some_and(|(_, fields)| hop::challenges_connection(fields));
        self.head = Some(head);
        Ok(match status {
            101 => ResponseEvent::Switch,
            ..200 => ResponseEvent::Interim,
            _ => ResponseEvent::Final,
        })
    }

    fn drop_interim(&mut self) {
        if let Some(head) = self.head.take_if(|head| head.status < 200) {
            self.transport.drop_head(head.len);
        }
    }

    /// The head that has arrived, its reason phrase and its fields. Only valid until the body is polled.
    pub(crate) fn response(&self) -> Option<(&ResponseHead, &[u8], Fields<'_>)> {
        let head = self.head.as_ref()?;
        self.transport.head(head).map(|(reason, fields)| (head, reason, fields))
    }

    /// Whether the status of the response is 2xx.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.head.as_ref().is_some_and(|head| (200..300).contains(&head.status))
    }

    /// The connection after a 101, and the bytes that arrived after the head.
    pub(crate) fn switch(mut self) -> Option<(UpgradedConnection, InputBuffer)> {
        let (head, handle) = (self.head.take()?, self.handle.take()?);
        let Transport::H1(mut transport) = self.transport else { return None };
        let mut connection = transport.connection.take()?;
        connection.input.consume(head.len);
        Some(UpgradedConnection::new(*connection, handle))
    }

    /// Discards the head. The body follows.
    pub(crate) fn begin_body(&mut self) {
        if let Some(head) = &self.head {
            self.transport.drop_head(head.len);
        }
        self.give_back_if_done();
    }

    /// Whether the response has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.transport.has_ended()
    }

    /// Whether the response has ended early.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The trailer fields, once the body has ended.
    pub(crate) fn trailers(&self) -> Option<&FieldBuf> {
        self.transport.trailers()
    }

    /// Bytes of the response body so far.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// The remaining bytes of the body; none if unknown.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.transport.remaining()
    }

    /// Appends received bytes of the response body to `out`. Returns false at the end of the body. Errs if it ends early.
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
    ) -> Poll<Result<bool, &'static str>> {
        let mut progress = Progress::default();
        let polled = if self.taps.is_none() {
            self.transport.poll_body(cx, out, encoder, self.upstream.buffers(), &mut progress)
        } else {
            self.poll_tapped(cx, out, encoder, &mut progress)
        };
        self.body_bytes += progress.bytes;
        if progress.has_moved {
            self.moved_at = time::instant_now();
        }
        match ready!(polled) {
            Ok(false) => self.give_back_if_done(),
            Ok(true) => return Poll::Ready(Ok(true)),
            Err(cause) => return Poll::Ready(Err(self.give_up(cause))),
        }
        Poll::Ready(Ok(false))
    }

    /// Ready when the upstream has sent no byte for too long, or the whole exchange takes too long.
    pub(crate) fn poll_overdue(&mut self, cx: &mut Context<'_>, deadline: &mut Deadline) -> Poll<&'static str> {
        ready!(deadline.poll(cx, self.end_of(self.timeouts.body_idle)));
        self.transport.abandon(true);
        Poll::Ready(self.give_up("the response did not end in time"))
    }

    /// Ready when the client has read no byte for too long, or reads too slowly.
    pub(crate) fn poll_untaken(&mut self, cx: &mut Context<'_>, deadline: &mut Deadline) -> Poll<()> {
        let at = self.end_of(self.timeouts.body_idle);
        self.reading.poll(cx, deadline, at, self.timeouts.min_read)
    }

    /// Ends the exchange because the client did not read the response.
    pub(crate) fn give_up_untaken(&mut self) {
        self.transport.abandon(false);
        self.handle = None;
        self.upstream.count_untaken();
    }

    /// Ends the exchange because the response ended early. Returns `cause`.
    pub(crate) fn give_up(&mut self, cause: &'static str) -> &'static str {
        self.transport.abandon(false);
        self.handle = None;
        self.is_broken = true;
        self.upstream.count_broken(cause);
        cause
    }

    /// Records that the client has read so many bytes of the response.
    pub(crate) fn taken(&mut self, bytes: usize) {
        self.moved_at = time::instant_now();
        self.reading.moved(bytes as u64);
    }

    /// Records that the client has read all bytes so far.
    pub(crate) fn all_taken(&mut self) {
        self.reading.rest();
    }

    /// Sends as much of the request as is possible now.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, source: &mut impl Source) {
        if self.transport.send(cx, &mut self.upload, source) {
            self.moved_at = time::instant_now();
        }
    }

    /// Gives the connection back once the response has ended.
    fn give_back_if_done(&mut self) {
        if !self.transport.has_ended() {
            return;
        }
        if let Some(recording) = self.taps.as_mut().and_then(|taps| taps.recording.take()) {
            recording.finish();
        }
        let is_complete = self.is_sent() && self.head.as_ref().is_some_and(|head| head.keeps_alive);
        let is_reusable = is_complete && !self.requirements.is_exclusive;
        if let Some(mut handle) = self.handle.take() {
            if let Some(pin) = self.requirements.pin.take().filter(|_| is_complete) {
                if let Some(connection) = self.transport.take_connection() {
                    let PoolHandle { pool, active, .. } = handle;
                    pin.put(pool, PinnedConnection { active, connection });
                }
                return;
            }
            // First, so that a request that waits for the client's allowance can get the connection.
            drop(handle.active.take());
            self.transport.give_back(&handle, is_reusable);
        }
    }
}
