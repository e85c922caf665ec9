//! A timer that serves one deadline after another.
//!
//! Most deadlines move before they expire. A deadline that moves later leaves the timer as it is: the timer fires early
//! and is armed again. A busy connection touches the timer wheel once per length of a deadline, not once per message.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::base::time;

/// A reusable timer for one task; idle until the first poll.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Ready once `at` has passed. `at` may differ from call to call; the task must not.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let (sleep, is_armed) = match &mut self.sleep {
            Some(sleep) => (sleep, true),
            none => (none.insert(Box::pin(sleep_until(at))), false),
        };
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        } else if is_armed && !sleep.is_elapsed() {
            return Poll::Pending; // the timer will wake the task, which polls again
        }
        // Unconstrained: a task without budget would not arm the timer, and no error would show it.
        while pin!(unconstrained(sleep.as_mut())).poll(cx).is_ready() {
            if time::instant_now() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::task::coop::{consume_budget, has_budget_remaining};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fires_although_its_task_had_no_budget_left() {
        let (mut deadline, began) = (Deadline::default(), time::instant_now());
        let at = began + Duration::from_secs(1);
        let mut is_first = true;
        let fired = poll_fn(|cx| {
            while std::mem::take(&mut is_first) && has_budget_remaining() {
                let _ = pin!(consume_budget()).poll(cx);
                is_first = has_budget_remaining();
            }
            deadline.poll(cx, at)
        });
        assert!(timeout(Duration::from_mins(1), fired).await.is_ok());
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn moves_later_and_sooner() {
        let (mut deadline, began) = (Deadline::default(), time::instant_now());
        for (first_ms, then_ms) in [(100, 300), (400, 350), (500, 500)] {
            let mut at = began + Duration::from_millis(first_ms);
            let mut polls = 0;
            poll_fn(|cx| {
                let polled = deadline.poll(cx, at);
                polls += 1;
                at = began + Duration::from_millis(then_ms);
                if polls == 1 {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                polled
            })
            .await;
            assert_eq!(began.elapsed(), Duration::from_millis(then_ms), "{first_ms} {then_ms}");
        }
    }
}
