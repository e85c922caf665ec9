//! Changes of overrides on their way to the owner of the configuration.
//!
//! The owner receives each [`Change`], and answers when the change is in force, and on disk if the
//! overrides have a file.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::engine::policy::overrides::{Override, OverrideEdit, OverrideError};

/// Changes that may wait for an earlier change.
const WAITING_MAX: usize = 16;
/// The bound on the wait for earlier changes. Far longer than it takes to read and write the file.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Edits that were made; or why no edit was made.
pub type Outcome = Result<Changed, OverrideError>;

/// Edits that were made.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// For each edit, the allowance before the edit.
    pub before: Vec<Option<Value>>,
    /// Why the overrides end with the process; `None` if they outlive it.
    pub not_kept: Option<Arc<str>>,
}

/// Edits that are made together or not at all.
#[derive(Debug)]
pub struct Change {
    /// The edits, in the order in which they are made.
    pub edits: Vec<OverrideEdit>,
    /// Receives the begin of the change. It is closed if the change must not be made any more.
    pub begin: oneshot::Sender<()>,
    /// Receives the outcome.
    pub answer: oneshot::Sender<Outcome>,
}

/// The overrides in force, and the channel for changes of them.
#[derive(Clone, Debug)]
pub struct Overrides {
    /// The overrides of the configuration in force.
    pub in_force: Arc<ArcSwap<Vec<Override>>>,
    changes: mpsc::Sender<Change>,
}

impl Overrides {
    /// Begins with `in_force`. Returns the receiver of changes; without a receiver, overrides cannot be changed.
    pub fn new(in_force: Vec<Override>) -> (Self, mpsc::Receiver<Change>) {
        let (changes, receiver) = mpsc::channel(WAITING_MAX);
        (Self { in_force: Arc::new(ArcSwap::from_pointee(in_force)), changes }, receiver)
    }

    /// Sends edits, and waits for their outcome. A change that has begun has no timeout, because the caller must learn
    /// of it.
    pub(super) async fn change(&self, edits: Vec<OverrideEdit>) -> Outcome {
        let ((begin, begun), (answer, outcome)) = (oneshot::channel(), oneshot::channel());
        let waiting = async {
            let sent = self.changes.send(Change { edits, begin, answer }).await;
            sent.map_err(|_| OverrideError::Off)?;
            begun.await.map_err(|_| OverrideError::Timeout)
        };
        timeout(TIMEOUT, waiting).await.unwrap_or(Err(OverrideError::Timeout))?;
        outcome.await.unwrap_or(Err(OverrideError::Timeout))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_that_does_not_begin_has_a_timeout() {
        let (overrides, mut changes) = Overrides::new(Vec::new());
        // No receiver takes the changes, and the last one waits for capacity in the channel.
        let many = (0..=WAITING_MAX).map(|_| overrides.change(Vec::new()));
        for outcome in futures(many).await {
            assert_eq!(outcome, Err(OverrideError::Timeout));
        }
        // After the timeout the owner must not begin.
        for _ in 0..WAITING_MAX {
            assert!(changes.recv().await.unwrap().begin.send(()).is_err());
        }
        let made = Changed { before: vec![None], not_kept: None };
        let (outcome, ()) = tokio::join!(overrides.change(Vec::new()), async {
            let Change { begin, answer, .. } = changes.recv().await.unwrap();
            begin.send(()).unwrap();
            tokio::time::sleep(TIMEOUT * 2).await;
            answer.send(Ok(made.clone())).unwrap();
        });
        assert_eq!(outcome, Ok(made.clone()));
        let (outcome, ()) = tokio::join!(overrides.change(Vec::new()), async { drop(changes.recv().await) });
        assert_eq!(outcome, Err(OverrideError::Timeout));
        drop(changes);
        assert_eq!(overrides.change(Vec::new()).await, Err(OverrideError::Off));
    }

    /// Polls all futures at once, and collects their outcomes.
    async fn futures(all: impl Iterator<Item = impl Future<Output = Outcome>>) -> Vec<Outcome> {
        let mut all: Vec<_> = all.map(Box::pin).collect();
        let mut done = Vec::new();
        std::future::poll_fn(|cx| {
            all.retain_mut(|one| match one.as_mut().poll(cx) {
                Poll::Ready(outcome) => {
                    done.push(outcome);
                    false
                }
                Poll::Pending => true,
            });
            if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        done
    }
}
