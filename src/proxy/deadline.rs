//! One timer that serves deadline after deadline.
//!
//! Most deadlines move on before they are reached. So the timer is left where it is when a deadline moves
//! later: it fires early, finds that it did, and is armed anew. A busy connection touches the timer wheel
//! about once a deadline's length, not once a message.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::time;

/// A reusable timer for one task; idle until first polled.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Ready once `at` has passed. `at` may differ from call to call; the task may not.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let (sleep, is_armed) = match &mut self.sleep {
            Some(sleep) => (sleep, true),
            none => (none.insert(Box::pin(sleep_until(at))), false),
        };
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        } else if is_armed && !sleep.is_elapsed() {
            return Poll::Pending; // it will wake the task, who then looks again
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if time::instant_now() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(at);
        }
        Poll::Pending
    }
}
