//! `Expect: 100-continue`: the body waits until the upstream asks for it (RFC 9110, section 10.1.1).
//!
//! The client is told to go on when the body is first read, which hyper does by itself. An upstream that
//! knows nothing of this is sent the body after a second, as the RFC allows a client to.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, StatusCode};
use tokio::time::{Sleep, sleep};

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

    pub(super) fn new() -> (Self, ContinueSignal) {
        let asked = Arc::<Mutex<Asked>>::default();
        let signal = ContinueSignal(Arc::clone(&asked));
        (Self { asked, patience: Box::pin(sleep(PATIENCE)) }, signal)
    }
}

/// Lets the body go when the upstream asks for it.
pub(super) struct ContinueSignal(Arc<Mutex<Asked>>);

impl ContinueSignal {
    /// Listens on the way that `request` will go.
    pub(super) fn attach<B>(self, request: &mut Request<B>) {
        hyper::ext::on_informational(request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                asked.yes = true;
                if let Some(waker) = asked.waker.take() {
                    waker.wake();
                }
            }
        });
    }
}
