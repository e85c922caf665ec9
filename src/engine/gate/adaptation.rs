//! What the rules of a limit share with those of its earlier policies: the controller of a bound that follows its service,
//! with what it learns from answers, and the pool of fair shares.
//!
//! Not here: the controller (`limit::concurrency::adaptive`), and the pool (`limit::fair_share`).

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::base::fields::Fields;
use crate::base::time::Timestamp;
use crate::engine::limit::Algorithm;
use crate::engine::limit::concurrency::adaptive::{Bound, Controller};
use crate::engine::limit::fair_share::SharedPool;

/// The controller and the pool of a limit. They outlive the policies of the limit, as the state of keys does.
#[derive(Debug, Default)]
pub(super) struct Adaptation {
    adapted: OnceLock<Mutex<Adapted>>,
    shares: OnceLock<SharedPool>,
}

#[derive(Debug)]
struct Adapted {
    controller: Controller,
    /// The bound in the rule of the newest policy.
    bound: Arc<Bound>,
}

/// The end of a request's time in the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceOutcome {
    /// It was answered.
    Answered,
    /// The service refused it or failed.
    Failed,
    /// It says nothing: the answer is a stream, or no HTTP.
    Stream,
}

impl ServiceOutcome {
    /// The outcome of an answer with this head.
    pub(super) fn of(status: u16, fields: Fields<'_>) -> Self {
        let is_stream = || {
            let media_type = fields.first("content-type").unwrap_or_default();
            let name = b"text/event-stream";
            media_type.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        match status {
            // As for endpoints: 500 is an answer.
            502..=504 => Self::Failed,
            ..200 => Self::Stream,
            _ if is_stream() => Self::Stream,
            _ => Self::Answered,
        }
    }
}

/// The bound in a rule, if it follows the service.
pub(super) fn bound(rule: &Algorithm) -> Option<&Arc<Bound>> {
    match rule {
        Algorithm::Concurrency(rule) => rule.bound(),
        _ => None,
    }
}

impl Adaptation {
    /// Lets a rule of a new policy go on with the bound or the pool that is known.
    pub(super) fn follow(&self, rule: &Algorithm, now: Timestamp) {
        if let Algorithm::FairShare(rule) = rule {
            rule.join(&self.shares);
        }
        let Some(bound) = bound(rule) else { return };
        let first = || {
            let controller = Controller::new(bound.range(), now);
            Mutex::new(Adapted { controller, bound: Arc::clone(bound) })
        };
        let mut adapted = self.adapted.get_or_init(first).lock().unwrap_or_else(PoisonError::into_inner);
        adapted.controller.set_range(bound.range(), now);
        adapted.bound = Arc::clone(bound);
        bound.set(adapted.controller.bound());
    }

    /// Notes the outcome of a request that began at `began`, and moves the bound. `is_full`: the bound is reached. Returns
    /// whether the bound has risen.
    #[inline(never)]
    pub(super) fn adapt(&self, began: Timestamp, outcome: ServiceOutcome, is_full: bool, now: Timestamp) -> bool {
        let Some(adapted) = self.adapted.get() else { return false };
        // Held for some arithmetic.
        let mut adapted = adapted.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            ServiceOutcome::Answered => adapted.controller.answered(now.ns_since(began), is_full, now),
            ServiceOutcome::Failed => adapted.controller.failed(now),
            ServiceOutcome::Stream => {}
        }
        let (before, after) = (adapted.bound.units(), adapted.controller.bound());
        if before != after {
            adapted.bound.set(after);
        }
        before < after
    }
}
