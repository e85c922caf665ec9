//! Bodies on their way through: the request's to the upstream, the answer's to the client.
//!
//! Neither is ever buffered whole; what is not asked for is not read.

use std::cell::Cell;
use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::continuation::Continuation;
use super::hop;
use super::untaken::Untaken;
use super::upstream::UpstreamBody;
use super::wire::InFlight;

/// Why a body broke off.
pub(super) type BodyError = Box<dyn Error + Send + Sync>;

/// What the upstream gets.
#[derive(Debug)]
pub(super) struct RequestBody {
    incoming: Option<Incoming>,
    progress: Rc<Progress>,
    /// With `Expect: 100-continue`: when the upstream wants it.
    continuation: Option<Continuation>,
}

/// How far a request's body has come, as its exchange sees it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Pieces handed on.
    pub(super) frames: Cell<u64>,
    /// Nothing more will come.
    pub(super) ended: Cell<bool>,
    /// The last that was asked for has not come from the client.
    pub(super) awaits_client: Cell<bool>,
    /// It broke off, or its framing did.
    pub(super) is_broken: Cell<bool>,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming) -> Self {
        let incoming = Some(incoming).filter(|incoming| !incoming.is_end_stream());
        let ended = Cell::new(incoming.is_none());
        Self { incoming, progress: Rc::new(Progress { ended, ..Progress::default() }), continuation: None }
    }

    /// None at all.
    pub(super) fn empty() -> Self {
        let progress = Progress { ended: Cell::new(true), ..Progress::default() };
        Self { incoming: None, progress: Rc::new(progress), continuation: None }
    }

    /// Nothing is sent before `continuation` is ready.
    pub(super) fn wait_for(&mut self, continuation: Continuation) {
        self.continuation = Some(continuation);
    }

    /// How far it has come.
    pub(super) fn progress(&self) -> &Rc<Progress> {
        &self.progress
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        if let Some(continuation) = &mut this.continuation {
            std::task::ready!(continuation.poll(cx));
            this.continuation = None;
        }
        let Some(incoming) = &mut this.incoming else { return Poll::Ready(None) };
        let mut polled = Pin::new(incoming).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            hop::strip_trailers(trailers);
        }
        this.progress.awaits_client.set(polled.is_pending());
        match &polled {
            Poll::Ready(Some(Ok(_))) => {
                this.progress.frames.set(this.progress.frames.get() + 1);
                this.progress.ended.set(this.is_end_stream());
            }
            Poll::Ready(None) => this.progress.ended.set(true),
            Poll::Ready(Some(Err(_))) => this.progress.is_broken.set(true),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// What the client gets.
#[derive(Debug)]
pub(super) struct AnswerBody {
    source: Source,
    /// The request is in flight for as long as its answer is.
    _in_flight: InFlight,
}

#[derive(Debug)]
enum Source {
    Own(Option<Bytes>),
    Upstream(Box<UpstreamBody>),
    Untaken(Untaken),
}

impl AnswerBody {
    /// An answer of our own.
    pub(super) fn own(bytes: Bytes, in_flight: InFlight) -> Self {
        Self { source: Source::Own(Some(bytes).filter(|bytes| !bytes.is_empty())), _in_flight: in_flight }
    }

    /// The upstream's answer.
    pub(super) fn upstream(body: UpstreamBody, in_flight: InFlight) -> Self {
        let is_watched = !in_flight.is_h1() && !body.is_end_stream();
        let source = if is_watched { Source::Untaken(Untaken::new(body)) } else { Source::Upstream(Box::new(body)) };
        Self { source, _in_flight: in_flight }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.source {
            Source::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Source::Upstream(body) => body.poll_frame(cx),
            Source::Untaken(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(bytes) => bytes.is_none(),
            Source::Upstream(body) => body.is_end_stream(),
            Source::Untaken(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Source::Upstream(body) => body.size_hint(),
            Source::Untaken(body) => body.size_hint(),
        }
    }
}
