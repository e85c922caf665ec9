//! The attempts of a task that follows keys over one connection after another.
//!
//! Not here: the connection (`session`), and the length of a pause (`backoff`).

use tokio::time::sleep;

use super::backoff::Backoff;

/// The attempts to follow keys. Each begins with another server, after a pause.
#[derive(Debug)]
pub struct FollowAttempts {
    /// The line of the log about a failed attempt.
    failure: &'static str,
    number: usize,
    backoff: Backoff,
    /// Why the last attempt failed, if none has succeeded since.
    last_reason: Option<String>,
}

impl FollowAttempts {
    /// The first attempt. `failure` is the line of the log about each one that fails.
    pub fn new(failure: &'static str) -> Self {
        Self { failure, number: 0, backoff: Backoff::default(), last_reason: None }
    }

    /// The number of the attempt, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The keys are followed.
    pub fn succeeded(&mut self) {
        self.backoff.reset();
        self.last_reason = None;
    }

    /// Logs a new reason, and waits until the next attempt is due.
    pub async fn failed(&mut self, reason: String) {
        if self.last_reason.as_ref() != Some(&reason) {
            tracing::warn!(reason, "{}", self.failure);
            self.last_reason = Some(reason);
        }
        self.number += 1;
        sleep(self.backoff.pause()).await;
    }
}
