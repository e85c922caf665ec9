//! The body of an answer over HTTP/2, which its client may not take.
//!
//! hyper asks an answer for its next piece once the last one has gone out. While the client keeps the window of
//! the stream shut nobody polls the answer, so that its own deadlines sleep, and the socket is not blocked either.
//! A task beside it watches for that, from the second piece on, and gives up the upstream's connection. The stream
//! ends when its client next takes something; until then it holds one piece.
//!
//! For the same reason what is left of the request has a task of its own: a client may send all it has before it takes
//! anything, and the upstream may answer meanwhile.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep_until};

use super::super::over_h2::StreamBody;
use super::super::untaken::Place;
use super::InFlight;
use super::piece::{Piece, Queue};
use crate::gate::Bill;
use crate::http1::encode::Encoder;
use crate::http1::hop;
use crate::net::deadline::Deadline;
use crate::time;
use crate::upstream::Exchange;

/// Why a body broke off.
type BodyError = Box<dyn Error + Send + Sync>;

/// What the client gets.
#[derive(Debug)]
pub(in super::super) struct AnswerBody {
    source: Source,
    /// The request is in flight for as long as its answer is.
    in_flight: InFlight,
    /// The last piece, until the next one is asked for.
    untaken: Option<Place>,
}

#[derive(Debug)]
enum Source {
    Own(Option<Bytes>),
    Upstream {
        shared: Rc<Shared>,
        watch: Option<JoinHandle<()>>,
        /// Sends what is left of the request.
        upload: Option<JoinHandle<()>>,
    },
}

/// An answer of the upstream, and who watches whether it is taken.
#[derive(Debug)]
struct Shared {
    /// None once it was given up.
    relay: RefCell<Option<Relay>>,
    /// When the last piece has to have been taken, if it is the client whom we wait for.
    due: Cell<Option<Instant>>,
    /// Who waits for a piece while the request is still being sent.
    waits: RefCell<Option<Waker>>,
}

/// Both bodies on their way.
#[derive(Debug)]
struct Relay {
    exchange: Exchange,
    bill: Option<Bill>,
    deadline: Deadline,
    /// The body is done, but its trailers are not.
    owes_trailers: bool,
    /// Why it broke off after the piece that was last handed over.
    broken: Option<&'static str>,
    /// What was handed over and has not gone out.
    queue: Rc<Queue>,
}

/// Pieces of the upstream's are put together up to this much, as far as they are there: each costs a frame and a
/// write. The largest frame unless the client says otherwise (RFC 9113, section 6.5.2).
const PIECE: usize = 16 * 1024;

impl AnswerBody {
    /// An answer of our own.
    pub(in super::super) fn own(bytes: Bytes, in_flight: InFlight) -> Self {
        Self { source: Source::Own(Some(bytes).filter(|bytes| !bytes.is_empty())), in_flight, untaken: None }
    }

    /// The upstream's answer.
    pub(in super::super) fn upstream(
        exchange: Exchange,
        request: StreamBody,
        bill: Option<Bill>,
        in_flight: InFlight,
    ) -> Self {
        if exchange.has_ended() {
            return Self::own(Bytes::new(), in_flight);
        }
        let has_sent = exchange.has_sent();
        let (deadline, queue) = (Deadline::default(), Rc::default());
        let relay = Relay { exchange, bill, deadline, owes_trailers: false, broken: None, queue };
        let shared =
            Rc::new(Shared { relay: RefCell::new(Some(relay)), due: Cell::new(None), waits: RefCell::default() });
        let upload = (!has_sent).then(|| spawn_local(send_on(Rc::downgrade(&shared), request)));
        Self { source: Source::Upstream { shared, watch: None, upload }, in_flight, untaken: None }
    }
}

impl Relay {
    /// The next frame. After the upstream breaks off, everything that came from it is sent before the stream is reset.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        let cause = match self.broken {
            Some(cause) => cause,
            None => match ready!(self.poll_next(cx)) {
                Some(Err(cause)) => *self.broken.insert(cause),
                frame => return Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            },
        };
        if !self.queue.was_used() {
            // An empty piece, behind which the head has gone out.
            return Poll::Ready(Some(Ok(Frame::data(Piece::through(&self.queue, Bytes::new())))));
        }
        ready!(self.queue.poll_empty(cx));
        Poll::Ready(Some(Err(cause.into())))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, &'static str>>> {
        let Self { exchange, bill, deadline, owes_trailers, broken, queue } = self;
        if std::mem::take(owes_trailers) {
            return Poll::Ready(trailers(exchange).map(|trailers| Ok(Frame::trailers(trailers))));
        }
        if exchange.has_ended() {
            return Poll::Ready(None);
        }
        // An upstream that always has more would never be waited for.
        if exchange.total_at().is_some_and(|at| at <= time::instant_now()) {
            return Poll::Ready(Some(Err(exchange.give_up("it did not finish in time"))));
        }
        let mut out = Vec::new();
        let polled = loop {
            match exchange.poll_body(cx, &mut out, &Encoder::Raw) {
                Poll::Ready(Ok(true)) if out.len() < PIECE => {}
                Poll::Ready(Err(cause)) if !out.is_empty() => {
                    *broken = Some(cause);
                    break Poll::Ready(Ok(true));
                }
                Poll::Pending if !out.is_empty() => break Poll::Ready(Ok(true)),
                polled => break polled,
            }
        };
        match polled {
            Poll::Ready(Ok(has_more)) => {
                if let Some(bill) = bill {
                    bill.sent(exchange.body_bytes());
                }
                let trailers = if has_more { None } else { trailers(exchange) };
                match trailers {
                    Some(trailers) if out.is_empty() => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                    None if out.is_empty() => Poll::Ready(None),
                    trailers => {
                        *owes_trailers = trailers.is_some();
                        Poll::Ready(Some(Ok(Frame::data(Piece::through(queue, out.into())))))
                    }
                }
            }
            Poll::Ready(Err(cause)) => Poll::Ready(Some(Err(cause))),
            // Whoever waits for a request that has no end answers nothing more.
            Poll::Pending if exchange.is_cut() => Poll::Ready(Some(Err(exchange.give_up("its request was cut off")))),
            Poll::Pending => exchange.poll_overdue(cx, deadline).map(|cause| Some(Err(cause))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.has_ended() && !self.owes_trailers
    }

    fn size_hint(&self) -> SizeHint {
        self.exchange.remaining().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The fields after the upstream's body, as HTTP/2 has them.
fn trailers(exchange: &Exchange) -> Option<HeaderMap> {
    let fields = exchange.trailers()?.fields();
    let pair = |(name, value): (&[u8], &[u8])| {
        let name = HeaderName::from_bytes(name).ok()?;
        HeaderValue::from_bytes(value).ok().map(|value| (name, value))
    };
    let headers: HeaderMap = fields.iter().filter(|(name, _)| hop::may_trail(name)).filter_map(pair).collect();
    Some(headers).filter(|headers| !headers.is_empty())
}

impl Body for AnswerBody {
    type Data = Piece;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        let Self { source, in_flight, untaken } = &mut *self;
        *untaken = None;
        match source {
            Source::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(Piece::new(bytes))))),
            Source::Upstream { shared, watch, upload } => {
                let mut relay = shared.relay.borrow_mut();
                let Some(relay) = &mut *relay else {
                    return Poll::Ready(Some(Err("the client did not take the answer in time".into())));
                };
                let polled = relay.poll_frame(cx);
                let has_more = polled.is_ready() && !relay.is_end_stream();
                let len = match &polled {
                    Poll::Ready(Some(Ok(frame))) => frame.data_ref().map_or(0, Buf::remaining),
                    _ => 0,
                };
                if has_more || relay.broken.is_none() {
                    *untaken = (len > 0).then(|| in_flight.hold(len));
                    shared.due.set(has_more.then(|| time::instant_now() + relay.exchange.read_time(len)));
                }
                shared.waits.replace(Some(cx.waker().clone()).filter(|_| upload.is_some() && polled.is_pending()));
                if has_more && watch.is_none() {
                    let (idle, total_at) = (relay.exchange.read_time(0), relay.exchange.total_at());
                    *watch = Some(spawn_local(watch_over(Rc::downgrade(shared), idle, total_at)));
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(bytes) => bytes.is_none(),
            Source::Upstream { shared, .. } => shared.relay.borrow().as_ref().is_some_and(Relay::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Source::Upstream { shared, .. } => shared.relay.borrow().as_ref().map(Relay::size_hint).unwrap_or_default(),
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Source::Upstream { watch, upload, .. } = &self.source {
            watch.iter().chain(upload).for_each(JoinHandle::abort);
        }
    }
}

/// Sends what is left of the request, for as long as its answer is wanted.
async fn send_on(shared: Weak<Shared>, mut request: StreamBody) {
    poll_fn(|cx| {
        let Some(shared) = shared.upgrade() else { return Poll::Ready(()) };
        let mut relay = shared.relay.borrow_mut();
        let Some(Relay { exchange, .. }) = &mut *relay else { return Poll::Ready(()) };
        exchange.send(cx, &mut request);
        if !exchange.has_sent() {
            return Poll::Pending;
        }
        // It may have been cut off, which ends the answer too.
        if let Some(waits) = shared.waits.take() {
            waits.wake();
        }
        Poll::Ready(())
    })
    .await;
}

/// Gives the body up once its client has taken nothing for `idle`, or at `total_at`. While the upstream is waited
/// for, it looks again later: that wait has deadlines of its own.
async fn watch_over(shared: Weak<Shared>, idle: Duration, total_at: Option<Instant>) {
    loop {
        let Some(due) = shared.upgrade().map(|shared| shared.due.get()) else { return };
        let now = time::instant_now();
        let idle_at = due.unwrap_or(now + idle);
        let total_at = total_at.filter(|total_at| due.is_some() || *total_at > now);
        let at = total_at.map_or(idle_at, |total_at| total_at.min(idle_at));
        if at <= now {
            if let Some(mut relay) = shared.upgrade().and_then(|shared| shared.relay.take()) {
                relay.exchange.give_up_untaken();
                relay.queue.wake();
            }
            return;
        }
        sleep_until(at).await;
    }
}
