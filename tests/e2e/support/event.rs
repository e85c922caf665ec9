//! Events between the threads of a test. Every wait is bounded by [`PATIENCE`].

use std::sync::{Condvar, Mutex};
use std::time::Instant;

use super::PATIENCE;

/// An event that happens once. Threads that wait for it go on, then and afterwards.
#[derive(Default)]
pub struct Event {
    has_happened: Mutex<bool>,
    happened: Condvar,
}

impl Event {
    /// The event happens.
    pub fn set(&self) {
        *self.has_happened.lock().unwrap() = true;
        self.happened.notify_all();
    }

    /// Waits for the event.
    pub fn wait(&self) {
        let has_happened = self.has_happened.lock().unwrap();
        drop(self.happened.wait_timeout_while(has_happened, PATIENCE, |has_happened| !*has_happened).unwrap());
    }
}

/// Changes of a recorded state, which tests wait for.
#[derive(Default)]
pub struct Changes {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Changes {
    /// The state has changed. No lock of the state may be held.
    pub fn notify(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    /// Waits until `is_so`, which is checked now and after each change. Returns whether it came true in time.
    pub fn wait_until(&self, is_so: impl Fn() -> bool) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            let seen = *self.count.lock().unwrap();
            if is_so() {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            let count = self.count.lock().unwrap();
            let waited = self.changed.wait_timeout_while(count, left, |count| *count == seen);
            if waited.unwrap().1.timed_out() {
                return is_so();
            }
        }
    }
}
