//! An answer over HTTP/2 that its client may not take.
//!
//! hyper asks an answer for its next piece once the last one has gone out. While the client keeps the window of
//! the stream shut nobody polls the answer, so that its own deadlines sleep, and the socket is not blocked either.
//! A task beside it watches for that, from the second piece on, and gives up the upstream's connection. The stream
//! ends when its client next takes something; until then it holds one piece.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep_until};

use super::body::BodyError;
use super::upstream::UpstreamBody;
use crate::time;

/// The body of an answer, given up if it is not taken for too long.
#[derive(Debug)]
pub(super) struct Untaken {
    shared: Rc<Shared>,
    watch: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// None once it was given up.
    body: RefCell<Option<UpstreamBody>>,
    /// When the last piece was handed over, if it is the client whom we wait for.
    since: Cell<Option<Instant>>,
}

impl Untaken {
    pub(super) fn new(body: UpstreamBody) -> Self {
        let shared = Shared { body: RefCell::new(Some(body)), since: Cell::new(None) };
        Self { shared: Rc::new(shared), watch: None }
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut body = self.shared.body.borrow_mut();
        let Some(body) = &mut *body else {
            return Poll::Ready(Some(Err("the client did not take the answer in time".into())));
        };
        let polled = body.poll_frame(cx);
        let has_more = polled.is_ready() && !body.is_end_stream();
        self.shared.since.set(has_more.then(time::instant_now));
        if has_more && self.watch.is_none() {
            self.watch = Some(spawn_local(watch(Rc::downgrade(&self.shared), body.body_idle(), body.total_at())));
        }
        polled
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.shared.body.borrow().as_ref().is_some_and(UpstreamBody::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.shared.body.borrow().as_ref().map(UpstreamBody::size_hint).unwrap_or_default()
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// Gives the body up once its client has taken nothing for `idle`, or at `total_at`. While the upstream is waited
/// for, it looks again later: that wait has deadlines of its own.
async fn watch(shared: Weak<Shared>, idle: Duration, total_at: Option<Instant>) {
    loop {
        let Some(since) = shared.upgrade().map(|shared| shared.since.get()) else { return };
        let now = time::instant_now();
        let idle_at = since.unwrap_or(now) + idle;
        let total_at = total_at.filter(|total_at| since.is_some() || *total_at > now);
        let at = total_at.map_or(idle_at, |total_at| total_at.min(idle_at));
        if at <= now {
            if let Some(shared) = shared.upgrade() {
                shared.body.take();
            }
            return;
        }
        sleep_until(at).await;
    }
}
