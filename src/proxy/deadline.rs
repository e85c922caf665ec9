//! One timer that serves deadline after deadline.
//!
//! Most deadlines move on before they are reached. So the timer is left where it is when a deadline moves
//! later: it fires early, finds that it did, and is armed anew. A busy connection touches the timer wheel
//! about once a deadline's length, not once a message.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::time;

/// A reusable timer; idle until first polled.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Ready once `at` has passed. `at` may differ from call to call.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if time::instant_now() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(at);
        }
        Poll::Pending
    }

    /// Wakes the task once in each `period`, so that it looks whether something is due. Reads the clock as often.
    pub(super) fn tick(&mut self, cx: &mut Context<'_>, period: Duration) {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(time::instant_now() + period)));
        while sleep.as_mut().poll(cx).is_ready() {
            sleep.as_mut().reset(time::instant_now() + period);
        }
    }
}
