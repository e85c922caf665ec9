//! Fetches the key sets of `jwks_url` periodically, in the background.
//!
//! The last valid key set stays in force until a fetch returns another valid key set, also across reloads. [`Schedule`]
//! computes when a fetch is due; `fetch` makes the HTTP request.

mod fetch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;
use tokio::time::{MissedTickBehavior, interval};

use super::fetch::Trust;
use crate::base::telemetry::FetchMetrics;
use crate::base::time::Timestamp;
use crate::engine::policy::Policy;
use crate::transport::proxy::SharedState;

const SECOND_NS: u64 = 1_000_000_000;
/// Interval between fetches if no fetch fails. It bounds the time for which Weir accepts a withdrawn key.
const EVERY_NS: u64 = 600 * SECOND_NS;
/// Delay after a failure, or before a fetch for an unknown key, if a key set is in force. Clients that send unknown key
/// ids cannot cause more fetches.
const AGAIN_NS: u64 = 60 * SECOND_NS;
/// First delay after a failure if no key set is in force. It doubles with each failure, up to `AGAIN_NS`.
const FIRST_AGAIN_NS: u64 = SECOND_NS;
/// Interval between checks for due fetches.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// The fetched key sets, by their URLs.
#[derive(Default)]
pub(super) struct Jwks {
    /// Locked for short reads and writes, never during a fetch. Requests do not lock it.
    known: Mutex<HashMap<Uri, FetchedSet>>,
}

#[derive(Default)]
struct FetchedSet {
    jwks: Option<Arc<[u8]>>,
    /// When this process last fetched it, by the clock of the system.
    fetched: Option<Timestamp>,
    schedule: Schedule,
}

/// The state that decides when the next fetch of a key set is due.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    /// The time of the last attempt.
    tried: Option<Timestamp>,
    has_keys: bool,
    /// Consecutive failures.
    failures: u32,
}

impl Schedule {
    /// Whether a fetch is due at `now`. `is_wanted` if a token names a key that is not in the set.
    fn is_due(&self, is_wanted: bool, now: Timestamp) -> bool {
        let Some(tried) = self.tried else { return true };
        let after_ns = match (self.has_keys, self.failures) {
            (true, 0) if !is_wanted => EVERY_NS,
            (true, _) => AGAIN_NS,
            (false, failures) => FIRST_AGAIN_NS.saturating_mul(1 << failures.saturating_sub(1).min(6)).min(AGAIN_NS),
        };
        now.ns_since(tried) >= after_ns
    }

    /// Records an attempt.
    fn tried(&mut self, is_good: bool, now: Timestamp) {
        self.tried = Some(now);
        self.has_keys |= is_good;
        self.failures = if is_good { 0 } else { self.failures.saturating_add(1) };
    }
}

impl Jwks {
    /// The last valid key sets with their URLs.
    pub(super) fn fetched(&self) -> Vec<(String, String)> {
        let text = |jwks: &Arc<[u8]>| String::from_utf8(jwks.to_vec()).ok();
        let known = self.lock();
        known.iter().filter_map(|(url, known)| Some((url.to_string(), text(known.jwks.as_ref()?)?))).collect()
    }

    /// Takes over the key sets that another process fetched. [`run`](Self::run) fetches them again at once.
    pub(super) fn inherit(&self, fetched: Vec<(String, String)>) {
        let mut known = self.lock();
        for (url, jwks) in fetched {
            let Ok(url) = url.parse() else { continue };
            let schedule = Schedule { has_keys: true, ..Schedule::default() };
            known.insert(url, FetchedSet { jwks: Some(jwks.into_bytes().into()), fetched: None, schedule });
        }
    }

    /// Gives the known key sets to a policy that is about to be in force.
    pub(super) fn adopt(&self, policy: &Policy, metrics: &FetchMetrics) {
        let mut known = self.lock();
        for (name, keys) in policy.fetched_keys() {
            let Some(FetchedSet { jwks: Some(jwks), fetched, .. }) = known.get(keys.url()) else { continue };
            // The set was valid. With other algorithms it may be invalid; the next fetch reports that.
            if let (Ok(_), Some(fetched)) = (keys.replace(jwks), fetched) {
                metrics.set_time(name, *fetched);
            }
        }
        // Removes key sets that the policy does not use.
        known.retain(|url, _| policy.fetched_keys().any(|(_, keys)| keys.url() == url));
    }

    /// Fetches due key sets until it is dropped.
    pub(super) async fn run(self: Arc<Self>, shared: Arc<SharedState>) {
        let mut ticks = interval(CHECK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.fetch_due(&shared, shared.gate.clock().now()).await;
        }
    }

    /// Fetches the key sets that are due at `now`.
    async fn fetch_due(&self, shared: &SharedState, now: Timestamp) {
        let trust = Trust::default(); // what the system trusts may have changed
        let date = now.moved(shared.gate.clock().set_since_start());
        let live = Arc::clone(&shared.running_config.load());
        let wanted: Vec<(&str, Uri)> = {
            let mut known = self.lock();
            let due = live.live.policy.fetched_keys().filter(|(_, keys)| {
                let schedule = known.entry(keys.url().clone()).or_default().schedule;
                schedule.is_due(keys.is_wanted(), now)
            });
            due.map(|(name, keys)| (name, keys.url().clone())).collect()
        };
        for (name, url) in wanted {
            let fetched = fetch::fetch(&url, &trust).await;
            let taken = fetched.and_then(|jwks| self.take(shared, (name, &url), jwks, date));
            if let Some(known) = self.lock().get_mut(&url) {
                known.schedule.tried(taken.is_ok(), now);
            }
            // A reload during the fetch may have removed the identity with its metrics.
            if shared.running_config.load().live.policy.fetched_keys().any(|(known, _)| known == name) {
                shared.metrics.jwks.count(name, taken.is_ok());
            }
            match taken {
                Ok(true) => tracing::info!(identity = name, "keys fetched"),
                Ok(false) => tracing::debug!(identity = name, "keys fetched; they are unchanged"),
                Err(error) => {
                    tracing::error!(identity = name, %error, "keys cannot be fetched; the known keys stay in force");
                }
            }
        }
    }

    /// Puts a key set that was fetched at `date` in force under the newest policy, for all identities of its URL. Returns
    /// whether it differs from the known set. Errs if it is invalid for the identity `asking`; others take it nevertheless.
    fn take(
        &self,
        shared: &SharedState,
        (asking, url): (&str, &Uri),
        jwks: Vec<u8>,
        date: Timestamp,
    ) -> Result<bool, String> {
        let mut known = self.lock();
        let config = shared.running_config.load();
        let is_new = known.get(url).is_none_or(|known| known.jwks.as_deref() != Some(&jwks));
        let (mut is_valid, mut taken) = (false, Ok(is_new));
        for (name, keys) in config.live.policy.fetched_keys().filter(|(_, keys)| keys.url() == url) {
            match keys.replace(&jwks) {
                Ok(skipped) => {
                    is_valid = true;
                    shared.metrics.jwks.set_time(name, date);
                    // One warning for each new version of the set.
                    if let Some(skipped) = skipped.filter(|_| is_new) {
                        tracing::warn!(identity = name, %skipped, "keys skipped");
                    }
                }
                Err(problem) if name == asking => taken = Err(problem.to_string()),
                Err(_) => {} // reported when it asks
            }
        }
        if is_new && is_valid {
            // Tokens of withdrawn keys are invalid now.
            config.live.tokens.clear();
        }
        if is_valid {
            let set = known.entry(url.clone()).or_default();
            (set.jwks, set.fetched) = (Some(jwks.into()), Some(date));
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uri, FetchedSet>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
