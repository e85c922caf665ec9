//! The pause between attempts to reach a server.

use std::time::Duration;

/// Pauses that double up to a bound, each with a random part, so that the replicas of a fleet do not return at one instant.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    halves: u32,
    next: Duration,
}

impl Default for Backoff {
    /// From 100 ms to 5 s, with a random part of up to a half.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(5), 1)
    }
}

impl Backoff {
    /// The first and the longest pause, without the random part of up to so many halves of the pause.
    pub const fn new(first: Duration, longest: Duration, halves: u32) -> Self {
        Self { first, longest, halves, next: first }
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        let mut random = [0; 1];
        // Without random numbers the pause has no random part.
        let part = getrandom::fill(&mut random).map_or(0, |()| u32::from(random[0]));
        pause + pause * self.halves * part / 512
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let of_peers = Backoff::new(Duration::from_millis(25), Duration::from_secs(1), 2);
        for (mut backoff, halves, least_ms) in [
            (Backoff::default(), 1, [100, 200, 400, 800, 1600, 3200, 5000, 5000]),
            (of_peers, 2, [25, 50, 100, 200, 400, 800, 1000, 1000]),
        ] {
            let bounds = least_ms.map(Duration::from_millis).map(|least| least..least + least * halves / 2);
            for bounds in &bounds {
                let pause = backoff.pause();
                assert!(bounds.contains(&pause), "{pause:?} {bounds:?}");
            }
            backoff.reset();
            assert!(bounds[0].contains(&backoff.pause()));
        }
    }
}
