//! The body of a response, which drives its connection until it ends and then gives it back.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::super::body::{BodyError, Progress};
use super::connection::Connection;
use super::pool::Pool;
use crate::time;

/// A response's body on its way. Dropping it early closes the connection, which tells the upstream.
#[derive(Debug)]
pub(in super::super) struct UpstreamBody {
    incoming: Incoming,
    /// Until the body has ended.
    connection: Option<Box<Connection>>,
    pool: Rc<Pool>,
    /// Of the request's body, without whose end the connection cannot be used again.
    request: Rc<Progress>,
    body_idle: Duration,
    total_at: Option<Instant>,
    waiting_since: Option<Instant>,
    /// Pieces of the request's body that had gone out by then: a client that still sends is not idle.
    sent: u64,
}

impl UpstreamBody {
    pub(super) fn new(
        incoming: Incoming,
        connection: Box<Connection>,
        pool: Rc<Pool>,
        request: Rc<Progress>,
        body_idle: Duration,
        total_at: Option<Instant>,
    ) -> Self {
        let connection = Some(connection);
        let mut body = Self { incoming, connection, pool, request, body_idle, total_at, waiting_since: None, sent: 0 };
        if body.incoming.is_end_stream() {
            body.give_back();
        }
        body
    }

    pub(in super::super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // An upstream that always has more would never be waited for.
        if self.connection.is_some() && self.total_at.is_some_and(|at| at <= time::instant_now()) {
            return Poll::Ready(Some(Err(self.give_up())));
        }
        // Asking first tells the connection that the next piece is wanted.
        let mut polled = Pin::new(&mut self.incoming).poll_frame(cx);
        if let (Poll::Pending, Some(connection)) = (&polled, &mut self.connection) {
            connection.drive(cx);
            polled = Pin::new(&mut self.incoming).poll_frame(cx);
        }
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.waiting_since = None;
                if self.incoming.is_end_stream() {
                    self.give_back();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.pool.count_broken(&error);
                self.connection = None;
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                self.give_back();
                Poll::Ready(None)
            }
            Poll::Pending => self.poll_overdue(cx).map(|()| Some(Err(self.give_up()))),
        }
    }

    pub(in super::super) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    pub(in super::super) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    /// How long it may stand still.
    pub(in super::super) fn body_idle(&self) -> Duration {
        self.body_idle
    }

    /// When it must have ended.
    pub(in super::super) fn total_at(&self) -> Option<Instant> {
        self.total_at
    }

    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else { return Poll::Pending };
        let sent = self.request.frames.get();
        if self.waiting_since.is_none() || self.sent != sent {
            self.sent = sent;
            self.waiting_since = Some(time::instant_now());
        }
        let idle_at = self.waiting_since.map_or_else(time::instant_now, |since| since + self.body_idle);
        let at = self.total_at.map_or(idle_at, |total_at| total_at.min(idle_at));
        connection.poll_deadline(cx, at)
    }

    fn give_up(&mut self) -> BodyError {
        self.connection = None;
        let error = BodyError::from("the upstream did not finish in time");
        self.pool.count_broken(&*error);
        error
    }

    fn give_back(&mut self) {
        if let Some(connection) = self.connection.take().filter(|_| self.request.ended.get()) {
            self.pool.put(connection);
        }
    }
}
