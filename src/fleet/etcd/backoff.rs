//! The pause between attempts to reach a server.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(100);
/// The longest pause, without its random part.
const LONGEST: Duration = Duration::from_secs(5);

/// Pauses that double from 100 ms to 5 s, each with a random part of up to a half, so that the replicas of a fleet do not
/// return at one instant.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        let mut random = [0; 1];
        // Without random numbers the pause is the whole one.
        let part = getrandom::fill(&mut random).map_or(0, |()| u32::from(random[0]));
        pause + pause * part / 512
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut backoff = Backoff::default();
        for ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let pause = backoff.pause();
            let whole = Duration::from_millis(ms);
            assert!(whole <= pause && pause < whole * 3 / 2, "{ms}: {pause:?}");
        }
        backoff.reset();
        assert!(backoff.pause() < Duration::from_millis(150));
    }
}
