//! `Expect: 100-continue`: the body waits until the upstream asks for it (RFC 9110, section 10.1.1).
//!
//! The client is told to go on when the body is first read, which hyper does by itself. An upstream that
//! knows nothing of this is sent the body after a second, as the RFC allows a client to.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::HeaderMap;
use http::header::EXPECT;
use tokio::time::{Sleep, sleep};

const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the body may go.
#[derive(Debug)]
pub(super) struct Continuation {
    asked: Arc<Mutex<Asked>>,
    patience: Pin<Box<Sleep>>,
}

/// Whether the upstream has asked for the body.
#[derive(Debug, Default)]
pub(super) struct Asked {
    yes: bool,
    waker: Option<Waker>,
}

impl Asked {
    /// It has.
    pub(super) fn answer(asked: &Mutex<Self>) {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.yes = true;
        if let Some(waker) = asked.waker.take() {
            waker.wake();
        }
    }
}

impl Continuation {
    /// One for a request with these headers, if it says `Expect: 100-continue`.
    pub(super) fn wanted_by(headers: &HeaderMap) -> Option<Self> {
        let expects = headers.get(EXPECT)?.as_bytes();
        let is_wanted = expects.eq_ignore_ascii_case(b"100-continue");
        is_wanted.then(|| Self { asked: Arc::default(), patience: Box::pin(sleep(PATIENCE)) })
    }

    /// Where the upstream's asking is noted.
    pub(super) fn asked(&self) -> Arc<Mutex<Asked>> {
        Arc::clone(&self.asked)
    }

    /// Ready once the upstream has sent 100, or has not for too long.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.yes {
            return Poll::Ready(());
        }
        asked.waker = Some(cx.waker().clone());
        drop(asked);
        self.patience.as_mut().poll(cx)
    }
}
