//! One request out, one response back.
//!
//! Both bodies may run at once: whoever waits for the response also sends the request's body. Nothing is read that
//! cannot be written yet. Dropping an exchange tells the upstream: over HTTP/1 its connection closes, over HTTP/2 its
//! stream is reset.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::deadlines::Deadlines;
use super::error::{Progress, TransportError, closed};
use super::outcome::{self, ExchangeError, ResponseEvent};
use super::transport::Transport;
use super::upload::{BodyFault, RequestTraits, Source, Upload};
use crate::fields::{FieldBuf, Fields};
use crate::http1::ResponseHead;
use crate::http1::encode::Encoder;
use crate::http1::hop;
use crate::net::Timeouts;
use crate::net::buffer::Buffer;
use crate::net::deadline::Deadline;
use crate::net::pace::Pace;
use crate::telemetry::EndpointResult;
use crate::time;
use crate::upstream::endpoints::Endpoints;
use crate::upstream::location::LocationRewrite;
use crate::upstream::pool::checkout::{Checkout, PoolHandle, Requirements, UpgradedConnection};

/// A request on its way and its response.
#[derive(Debug)]
pub(crate) struct Exchange {
    upstream: Rc<Endpoints>,
    transport: Transport,
    /// None once it was given back.
    handle: Option<PoolHandle>,
    /// The connection that broke off had been used before.
    was_idle: bool,
    /// The request has gone out once more.
    was_repeated: bool,
    upload: Upload,
    request: RequestTraits,
    /// How places that the answer names are changed back.
    back: Option<Box<LocationRewrite>>,
    requirements: Requirements,
    head: Option<ResponseHead>,
    /// The response broke off.
    is_broken: bool,
    /// Bytes of the response's body so far.
    body_bytes: u64,
    handed_over: Instant,
    /// When something last moved.
    moved_at: Instant,
    /// How fast the response is taken.
    taking: Pace,
    deadlines: Deadlines,
}

impl Exchange {
    /// One on the line of `checkout`, which `write` puts the request's head on, as HTTP/1 has it; it is told what the
    /// endpoint is called.
    pub(crate) fn new(
        upstream: &Rc<Endpoints>,
        checkout: Checkout,
        request: RequestTraits,
        requirements: Requirements,
        timeouts: &Timeouts,
        write: impl FnOnce(&mut Vec<u8>, &str) -> Encoder,
    ) -> Self {
        let Checkout { connection, handle, .. } = checkout;
        let (transport, encoder) = Transport::new(connection, &handle, request, upstream.buffers(), write);
        let now = time::instant_now();
        Self {
            upstream: Rc::clone(upstream),
            transport,
            handle: Some(handle),
            was_idle: false,
            was_repeated: false,
            upload: Upload::new(request, encoder),
            request,
            back: None,
            requirements,
            head: None,
            is_broken: false,
            body_bytes: 0,
            handed_over: now,
            moved_at: now,
            taking: Pace::default(),
            deadlines: Deadlines::new(timeouts, now),
        }
    }

    /// The same, and how places that the answer names are changed back.
    pub(crate) fn with_locations(self, back: LocationRewrite) -> Self {
        Self { back: Some(Box::new(back)), ..self }
    }

    /// How places that the answer names are changed back, and what the endpoint is called.
    pub(crate) fn back(&self) -> Option<(&LocationRewrite, &str)> {
        Some((self.back.as_deref()?, self.handle.as_ref()?.host()))
    }

    /// Sends the same once more, on another connection.
    pub(crate) async fn reopen(&mut self) -> Result<(), ExchangeError> {
        self.was_repeated = true;
        // Given up first: there may be no other connection left.
        let Some(PoolHandle { index, active, .. }) = self.handle.take() else {
            return Err(ExchangeError::Broken(closed()));
        };
        let head = self.transport.take_head();
        let Checkout { connection, mut handle, .. } =
            self.upstream.connect_elsewhere(&self.requirements, index).await?;
        handle.active = active;
        self.transport.reopen(head, connection, &handle, self.request, &mut self.upload);
        self.handle = Some(handle);
        self.moved_at = time::instant_now();
        self.handed_over = self.moved_at;
        Ok(())
    }

    /// Whether bytes of the request may have reached the upstream.
    pub(crate) fn is_touched(&self) -> bool {
        self.upload.is_touched
    }

    /// When the request was handed to the connection.
    pub(crate) fn handed_over(&self) -> Instant {
        self.handed_over
    }

    /// When the response must have ended.
    pub(crate) fn total_at(&self) -> Option<Instant> {
        self.deadlines.total_at
    }

    /// Whether the client has cut its request short, or had it cut, so that the upstream waits for nothing.
    pub(crate) fn is_cut(&self) -> bool {
        self.upload.fault().is_some()
    }

    /// Whether the whole request has been taken and sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.upload.has_ended() && self.transport.has_flushed()
    }

    /// Whether there is nothing more to send.
    pub(crate) fn has_sent(&self) -> bool {
        self.handle.is_none() || (self.upload.is_over() && (!self.upload.has_ended() || self.transport.has_flushed()))
    }

    /// Sends what can be sent, and looks for the head of the response.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut impl Source,
        deadline: &mut Deadline,
    ) -> Poll<Result<ResponseEvent, ExchangeError>> {
        self.drop_interim();
        self.send(cx, source);
        match self.upload.fault() {
            Some(BodyFault::Broken) => return Poll::Ready(Err(ExchangeError::ClientBroken)),
            Some(BodyFault::TooLarge) => return Poll::Ready(Err(ExchangeError::BodyTooLarge)),
            None => {}
        }
        if let Poll::Ready(arrived) = self.poll_response(cx) {
            self.judge(&arrived);
            return Poll::Ready(arrived);
        }
        let (allowed, error) = if self.upload.awaits_client {
            (self.deadlines.body_idle, ExchangeError::ClientTimeout)
        } else {
            (self.deadlines.response_head, ExchangeError::UpstreamTimeout)
        };
        let at = self.deadlines.end(self.moved_at, allowed);
        let rate = self.deadlines.min_send.filter(|_| self.upload.awaits_client);
        ready!(self.upload.pace.poll(cx, deadline, at, rate));
        let overdue = Err(error);
        self.judge(&overdue);
        self.transport.abandon(!self.upload.awaits_client);
        Poll::Ready(overdue)
    }

    /// Counts what became of the request at its endpoint.
    fn judge(&self, arrived: &Result<ResponseEvent, ExchangeError>) {
        let status = self.head.as_ref().map_or(0, |head| head.status);
        if let (Some(handle), Some(reached)) = (&self.handle, outcome::reached(arrived, status, self.was_idle)) {
            self.upstream.record(handle, reached);
        }
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseEvent, ExchangeError>> {
        let polled = self.transport.poll_head(cx, self.request, &self.upload, self.upstream.buffers());
        let lost = match ready!(polled) {
            Ok(head) => return Poll::Ready(self.arrived(head)),
            Err(lost) => lost,
        };
        Poll::Ready(match lost {
            TransportError::Malformed(fault) => Err(ExchangeError::Malformed(fault)),
            TransportError::Unencodable => Err(ExchangeError::Unencodable),
            TransportError::Disconnected(lost) => {
                self.was_idle = lost.was_idle;
                let may_help = lost.may_succeed || self.was_idle || self.upstream.has_others();
                if may_help && lost.may_retry && !self.was_repeated {
                    return Poll::Ready(Ok(ResponseEvent::Retry));
                }
                Err(ExchangeError::Broken(lost.error))
            }
        })
    }

    fn arrived(&mut self, head: ResponseHead) -> Result<ResponseEvent, ExchangeError> {
        let status = head.status;
        if status == 101 && !self.request.may_switch {
            return Err(ExchangeError::Switched);
        }
        if status == 100 {
            self.upload.go_on();
        }
        // The final head cannot make up for what an interim one said.
        self.requirements.is_exclusive |= status < 200 && !head.keeps_alive;
        // What follows on the connection may be answered as if it came from this client.
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

    /// The head that has arrived, its reason and its fields. To be looked at before the body is asked for.
    pub(crate) fn response(&self) -> Option<(&ResponseHead, &[u8], Fields<'_>)> {
        let head = self.head.as_ref()?;
        let (reason, fields) = self.transport.head(head)?;
        Some((head, reason, fields))
    }

    /// Whether the head that has arrived is that of a 2xx.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.head.as_ref().is_some_and(|head| (200..300).contains(&head.status))
    }

    /// What the 101 that has come turned out to be says of the endpoint.
    pub(crate) fn record_switch(&self, is_agreed: bool) {
        if let Some(handle) = &self.handle {
            self.upstream.record(handle, if is_agreed { EndpointResult::Answered } else { EndpointResult::Failed });
        }
    }

    /// Gives HTTP up: the connection, and what has come after the head.
    pub(crate) fn switch(mut self) -> Option<(UpgradedConnection, Buffer)> {
        let (head, handle) = (self.head.take()?, self.handle.take()?);
        let Transport::H1(mut transport) = self.transport else { return None };
        let mut connection = transport.connection.take()?;
        connection.input.consume(head.len);
        Some(UpgradedConnection::new(*connection, handle))
    }

    /// The body follows from now on.
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

    /// Whether the response broke off before its end.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The fields after the body, once that has ended.
    pub(crate) fn trailers(&self) -> Option<&FieldBuf> {
        self.transport.trailers()
    }

    /// Bytes of the body that have been taken so far.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// How long the rest of the body is, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.transport.left()
    }

    /// Writes what has come of the response's body to `out`, until there is enough. `false`: that was the end.
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        encoder: &Encoder,
    ) -> Poll<Result<bool, &'static str>> {
        let mut progress = Progress::default();
        let polled = self.transport.poll_body(cx, out, encoder, self.upstream.buffers(), &mut progress);
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

    /// Ready once nothing has moved for too long, or the whole took too long; that is the upstream's fault.
    pub(crate) fn poll_overdue(&mut self, cx: &mut Context<'_>, deadline: &mut Deadline) -> Poll<&'static str> {
        ready!(deadline.poll(cx, self.deadlines.end(self.moved_at, self.deadlines.body_idle)));
        self.transport.abandon(true);
        Poll::Ready(self.give_up("it did not finish in time"))
    }

    /// The same while it is the client for whom we wait, who may also be too slow.
    pub(crate) fn poll_untaken(&mut self, cx: &mut Context<'_>, deadline: &mut Deadline) -> Poll<()> {
        let at = self.deadlines.end(self.moved_at, self.deadlines.body_idle);
        self.taking.poll(cx, deadline, at, self.deadlines.min_read)
    }

    /// The client did not take the answer.
    pub(crate) fn give_up_untaken(&mut self) {
        self.transport.abandon(false);
        self.handle = None;
        self.upstream.count_untaken();
    }

    /// How long the client may take for a piece of the response.
    pub(crate) fn read_time(&self, bytes: usize) -> Duration {
        self.deadlines.read_time(bytes)
    }

    /// The answer does not come to its end.
    pub(crate) fn give_up(&mut self, cause: &'static str) -> &'static str {
        self.transport.abandon(false);
        self.handle = None;
        self.is_broken = true;
        self.upstream.count_broken(cause);
        cause
    }

    /// The client has taken so many bytes of the response.
    pub(crate) fn taken(&mut self, bytes: usize) {
        self.moved_at = time::instant_now();
        self.taking.moved(bytes as u64);
    }

    /// The client has taken all there is.
    pub(crate) fn all_taken(&mut self) {
        self.taking.rest();
    }

    /// Moves the request on as far as it goes now.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, source: &mut impl Source) {
        if self.transport.send(cx, &mut self.upload, source) {
            self.moved_at = time::instant_now();
        }
    }

    /// The connection can be used again once both bodies have ended.
    fn give_back_if_done(&mut self) {
        if !self.transport.has_ended() {
            return;
        }
        let may_keep = self.is_sent() && !self.requirements.is_exclusive;
        let keeps_alive = may_keep && self.head.as_ref().is_some_and(|head| head.keeps_alive);
        if let Some(handle) = self.handle.take() {
            self.transport.give_back(&handle, keeps_alive);
        }
    }
}
