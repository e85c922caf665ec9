//! `Expect: 100-continue`: the body waits until the upstream asks for it (RFC 9110, section 10.1.1).
//!
//! The client is told to go on when the body is first read, which hyper does by itself. An upstream that
//! knows nothing of this is sent the body after a second, as the RFC allows a client to.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::{EXPECT, HeaderValue};
use http::{Request, StatusCode};
use tokio::time::{Sleep, sleep};

use super::body::RequestBody;

const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the body may go.
#[derive(Debug)]
pub(super) struct Continuation {
    asked: Arc<Mutex<Asked>>,
    patience: Pin<Box<Sleep>>,
}

#[derive(Debug, Default)]
struct Asked {
    yes: bool,
    waker: Option<Waker>,
}

impl Continuation {
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

/// Makes the body of a request that says `Expect: 100-continue` wait, and the upstream's 100 let it go.
pub(super) fn attach(request: &mut Request<RequestBody>) {
    let expects = request.headers().get(EXPECT).map(HeaderValue::as_bytes);
    if !expects.is_some_and(|expects| expects.eq_ignore_ascii_case(b"100-continue")) {
        return;
    }
    let asked = Arc::<Mutex<Asked>>::default();
    request.body_mut().wait_for(Continuation { asked: Arc::clone(&asked), patience: Box::pin(sleep(PATIENCE)) });
    hyper::ext::on_informational(request, move |response| {
        if response.status() == StatusCode::CONTINUE {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.yes = true;
            if let Some(waker) = asked.waker.take() {
                waker.wake();
            }
        }
    });
}
