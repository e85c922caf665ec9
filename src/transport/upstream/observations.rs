//! What only operators see of an endpoint: when and why its state changed, and its counters in the last minute.
//!
//! Not here: the state that follows (`status`).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::base::telemetry::{EndpointCells, EndpointResult, HistogramSnapshot};
use crate::base::time;

/// The counters of an endpoint at one moment, or their growth in some time.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// Requests with a result.
    pub(crate) requests: u64,
    /// Requests that failed.
    pub(crate) errors: u64,
    /// Seconds from the start of forwarding to the response head.
    pub(crate) latency: HistogramSnapshot,
}

impl Figures {
    pub(super) fn of(cells: &EndpointCells) -> Self {
        let errors = cells.counted(EndpointResult::Failed);
        let requests = cells.counted(EndpointResult::Answered) + errors;
        Self { requests, errors, latency: cells.latency.observed() }
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            errors: self.errors.saturating_sub(before.errors),
            latency: self.latency.since(&before.latency),
        }
    }
}

/// What only operators see of an endpoint. Requests do not come here, except one that ejects the endpoint.
#[derive(Debug)]
pub(super) struct Observations(Mutex<Observed>);

/// See [`Observations`].
#[derive(Debug)]
pub(super) struct Observed {
    /// When the health changed, and why it is bad.
    pub(super) health: (Instant, Option<String>),
    /// When the last ejection began, and the failure that caused it.
    pub(super) ejection: Option<(Instant, String)>,
    /// When the last drain ended; at first, since when the endpoint is known.
    pub(super) undrained: Instant,
    /// The figures at the last samples, the oldest first.
    pub(super) samples: VecDeque<(Instant, Figures)>,
}

/// Samples of a minute, at the interval of [`Observations::sample`].
const SAMPLES_MAX: usize = 12;

impl Observations {
    /// Those of an endpoint that is known since now.
    pub(super) fn new(cells: &EndpointCells) -> Self {
        let now = time::instant_now();
        let samples = VecDeque::from([(now, Figures::of(cells))]);
        Self(Mutex::new(Observed { health: (now, None), ejection: None, undrained: now, samples }))
    }

    /// The observations, locked.
    pub(super) fn observed(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sample to the last minute. To be called every five seconds.
    pub(super) fn sample(&self, cells: &EndpointCells) {
        let samples = &mut self.observed().samples;
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back((time::instant_now(), Figures::of(cells)));
    }
}
