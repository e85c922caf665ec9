//! The Weirs that ask this one about keys: their calls, their batches of corrections, and the states that they bring.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::base::time::instant_now;
use crate::engine::gate::KeyedReceipt;
use crate::fleet::stores::service::calls::Calls;

/// The age of this process from which it decides, whether all have brought their states or not.
const WARM_AFTER: Duration = Duration::from_secs(2);

/// The time after which a silent worker or process is forgotten. Its batches are older than their sender keeps them.
const FORGET_AFTER: Duration = Duration::from_mins(10);

/// Workers whose calls are remembered at most, each with up to 100 KiB, and processes whose last batch is. A process has at
/// least one worker, so the calls of a process too many are refused before its corrections are.
const SESSIONS_MAX: usize = 1024;

/// What one call charged, by charge; `None` for a charge that was not made, or is given back.
pub(super) type Charged = Box<[Option<KeyedReceipt>]>;

/// All Weirs that ask this one.
#[derive(Debug)]
pub(super) struct Askers {
    /// This process. Another one has other states.
    pub(super) process: u64,
    started: Instant,
    /// The processes that have brought their states while this one did not decide.
    joined: Mutex<HashSet<u64>>,
    /// By worker. Held for one look.
    sessions: Mutex<HashMap<u64, Session>>,
    /// By process: the last batch that was made.
    batches: Mutex<HashMap<u64, LastBatch>>,
}

#[derive(Debug)]
struct Session {
    /// Held while one call is decided.
    calls: Arc<Mutex<Calls<Charged>>>,
    used: Instant,
}

#[derive(Debug)]
struct LastBatch {
    /// Held while a batch is made, so that it is not made twice at once.
    number: Arc<Mutex<u64>>,
    used: Instant,
}

impl Askers {
    /// Nobody has asked yet.
    pub(super) fn new(process: u64) -> Self {
        let (joined, sessions, batches) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { process, started: instant_now(), joined, sessions, batches }
    }

    /// A process is there, one of `replicas`. `is_complete` says whether it has brought all its states.
    pub(super) fn join(&self, replica: u64, is_complete: bool) {
        if is_complete && self.started.elapsed() < WARM_AFTER {
            lock(&self.joined).insert(replica);
        }
    }

    /// Whether this process decides for one of `replicas`.
    pub(super) fn is_ready(&self, replicas: u64) -> bool {
        self.started.elapsed() >= WARM_AFTER || lock(&self.joined).len() as u64 >= replicas.max(1)
    }

    /// The calls of a worker, which may be new; `None` if too many are known.
    pub(super) fn calls(&self, session: u64) -> Option<Arc<Mutex<Calls<Charged>>>> {
        let (mut sessions, now) = (lock(&self.sessions), instant_now());
        if !sessions.contains_key(&session) {
            sessions.retain(|_, session| now.saturating_duration_since(session.used) < FORGET_AFTER);
            if sessions.len() >= SESSIONS_MAX {
                return None;
            }
        }
        let new = || Session { calls: Arc::default(), used: now };
        let session = sessions.entry(session).or_insert_with(new);
        session.used = now;
        Some(Arc::clone(&session.calls))
    }

    /// The calls of a worker that is known.
    pub(super) fn known_calls(&self, session: u64) -> Option<Arc<Mutex<Calls<Charged>>>> {
        lock(&self.sessions).get(&session).map(|session| Arc::clone(&session.calls))
    }

    /// Calls `make` for a batch of a process, unless it was made before. Returns whether the batch is made; it is not if too
    /// many processes are known.
    #[must_use]
    pub(super) fn once(&self, replica: u64, batch: u64, make: impl FnOnce()) -> bool {
        let number = {
            let (mut batches, now) = (lock(&self.batches), instant_now());
            batches.retain(|_, last| now.saturating_duration_since(last.used) < FORGET_AFTER);
            if batches.len() >= SESSIONS_MAX && !batches.contains_key(&replica) {
                return false;
            }
            let last = batches.entry(replica).or_insert_with(|| LastBatch { number: Arc::default(), used: now });
            last.used = now;
            Arc::clone(&last.number)
        };
        let mut number = lock(&number);
        if *number < batch {
            *number = batch;
            make();
        }
        true
    }
}

/// Locks state that is whole even if a panic has poisoned it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_new_process_waits_for_all_or_two_seconds() {
        let askers = Askers::new(1);
        assert!(!askers.is_ready(1));
        askers.join(7, false);
        assert!(!askers.is_ready(1));
        for _ in 0..2 {
            askers.join(7, true);
        }
        assert!(askers.is_ready(1) && !askers.is_ready(2));
        askers.join(8, true);
        assert!(askers.is_ready(2) && !askers.is_ready(3));
        tokio::time::advance(WARM_AFTER).await;
        assert!(askers.is_ready(3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_workers_and_processes_is_bounded() {
        let askers = Askers::new(1);
        let mut made = 0;
        for number in 0..2 * SESSIONS_MAX as u64 {
            assert_eq!(askers.calls(number).is_some(), number < SESSIONS_MAX as u64);
            assert_eq!(askers.once(number, 1, || made += 1), number < SESSIONS_MAX as u64);
        }
        assert!(askers.known_calls(1).is_some() && askers.known_calls(SESSIONS_MAX as u64).is_none());
        assert_eq!(made, SESSIONS_MAX);
        tokio::time::advance(FORGET_AFTER).await;
        assert!(askers.calls(SESSIONS_MAX as u64).is_some() && askers.known_calls(1).is_none());
        assert!(askers.once(SESSIONS_MAX as u64, 1, || made += 1) && made == SESSIONS_MAX + 1, "sent again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_made_once() {
        let askers = Askers::new(1);
        let mut made = Vec::new();
        for (replica, batch) in [(7, 1), (7, 1), (8, 1), (7, 3), (7, 2), (7, 4)] {
            assert!(askers.once(replica, batch, || made.push((replica, batch))));
        }
        assert_eq!(made, [(7, 1), (8, 1), (7, 3), (7, 4)]);
    }
}
