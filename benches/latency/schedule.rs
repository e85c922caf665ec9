//! When each request should start. Pure: it is told the time.

use std::time::{Duration, Instant};

/// One thread's part of a constant rate: of every `step` requests the one numbered `first`.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// When request 0 of all is due.
    pub start: Instant,
    /// Requests per second, over all threads; not 0.
    pub rate: u32,
    /// The number of this thread's first request.
    pub first: u32,
    /// Threads that share the rate; not 0.
    pub step: u32,
    /// How many of all requests are due at once, when the first of them is; not 0.
    pub group: u32,
}

impl Schedule {
    /// When this thread's request number `index`, from 0, is due. Each is computed from the start, so that rounding
    /// does not add up.
    pub fn due(&self, index: u64) -> Instant {
        let number = u64::from(self.first) + index * u64::from(self.step);
        let number = number - number % u64::from(self.group);
        let (whole_s, rest) = (number / u64::from(self.rate), number % u64::from(self.rate));
        self.start + Duration::from_secs(whole_s) + Duration::from_nanos(rest * 1_000_000_000 / u64::from(self.rate))
    }

    /// How many of this thread's requests are due within `length` of the start, which is whole seconds.
    pub fn count(&self, length: Duration) -> u64 {
        let all = length.as_secs() * u64::from(self.rate);
        all.saturating_sub(self.first.into()).div_ceil(self.step.into())
    }
}
