//! Fetches the key sets of `jwks_url` periodically, apart from requests.
//!
//! What was fetched last stays in force until something good takes its place, however long that takes; also over
//! reloads. When to fetch is arithmetic ([`Schedule`]); how is in `fetch`.

mod fetch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;
use tokio::time::{MissedTickBehavior, interval};

use crate::policy::Policy;
use crate::proxy::SharedState;
use crate::time::Timestamp;
use fetch::Trust;

const SECOND_NS: u64 = 1_000_000_000;
/// How often keys are fetched though nothing is wrong, so that those that are withdrawn go.
const EVERY_NS: u64 = 600 * SECOND_NS;
/// How soon for a key that is not there, or after a failure, once there are keys. Whoever sends tokens with made-up
/// keys causes no more than this.
const AGAIN_NS: u64 = 60 * SECOND_NS;
/// How soon after a failure while there is no key at all; it doubles up to `AGAIN_NS`.
const FIRST_AGAIN_NS: u64 = SECOND_NS;
/// How often it is looked whether something is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What was fetched, by its URL.
#[derive(Default)]
pub(super) struct Jwks {
    /// Locked for a look, never while something is fetched, and by no request.
    known: Mutex<HashMap<Uri, FetchedSet>>,
}

#[derive(Default)]
struct FetchedSet {
    jwks: Option<Arc<[u8]>>,
    schedule: Schedule,
}

/// When something is to be fetched.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    /// When it was last tried.
    tried: Option<Timestamp>,
    has_keys: bool,
    /// Failures one after another.
    failures: u32,
}

impl Schedule {
    /// Whether to fetch at `now`; `is_wanted` if a key is asked for that is not there.
    fn is_due(&self, is_wanted: bool, now: Timestamp) -> bool {
        let Some(tried) = self.tried else { return true };
        let after_ns = match (self.has_keys, self.failures) {
            (true, 0) if !is_wanted => EVERY_NS,
            (true, _) => AGAIN_NS,
            (false, failures) => FIRST_AGAIN_NS.saturating_mul(1 << failures.saturating_sub(1).min(6)).min(AGAIN_NS),
        };
        now.ns_since(tried) >= after_ns
    }

    fn tried(&mut self, is_good: bool, now: Timestamp) {
        self.tried = Some(now);
        self.has_keys |= is_good;
        self.failures = if is_good { 0 } else { self.failures.saturating_add(1) };
    }
}

impl Jwks {
    /// What was fetched last, by its URL.
    pub(super) fn fetched(&self) -> Vec<(String, String)> {
        let text = |jwks: &Arc<[u8]>| String::from_utf8(jwks.to_vec()).ok();
        let known = self.lock();
        known.iter().filter_map(|(url, known)| Some((url.to_string(), text(known.jwks.as_ref()?)?))).collect()
    }

    /// Knows what another process has fetched; it is fetched anew as soon as it is [run](Self::run).
    pub(super) fn inherit(&self, fetched: Vec<(String, String)>) {
        let mut known = self.lock();
        for (url, jwks) in fetched {
            let Ok(url) = url.parse() else { continue };
            let schedule = Schedule { has_keys: true, ..Schedule::default() };
            known.insert(url, FetchedSet { jwks: Some(jwks.into_bytes().into()), schedule });
        }
    }

    /// Gives a policy that is about to be in force the keys that are known.
    pub(super) fn adopt(&self, policy: &Policy) {
        let mut known = self.lock();
        for (_, keys) in policy.fetched_keys() {
            if let Some(jwks) = known.get(keys.url()).and_then(|known| known.jwks.clone()) {
                // It has been good before; under other algorithms it may not be, which the next fetch says.
                let _ = keys.replace(&jwks);
            }
        }
        // What no policy names is asked for no more.
        known.retain(|url, _| policy.fetched_keys().any(|(_, keys)| keys.url() == url));
    }

    /// Fetches what is due for as long as it is polled.
    pub(super) async fn run(self: Arc<Self>, shared: Arc<SharedState>) {
        let trust = Trust::default();
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look(&shared, &trust, shared.gate.clock().now()).await;
        }
    }

    /// Fetches what is due at `now`.
    async fn look(&self, shared: &SharedState, trust: &Trust, now: Timestamp) {
        let live = Arc::clone(&shared.current.load());
        let wanted: Vec<(&str, Uri)> = {
            let mut known = self.lock();
            let due = live.live.policy.fetched_keys().filter(|(_, keys)| {
                let schedule = known.entry(keys.url().clone()).or_default().schedule;
                schedule.is_due(keys.is_wanted(), now)
            });
            due.map(|(name, keys)| (name, keys.url().clone())).collect()
        };
        for (name, url) in wanted {
            let fetched = fetch::fetch(&url, trust).await;
            let taken = fetched.and_then(|jwks| self.take(shared, &url, jwks));
            if let Some(known) = self.lock().get_mut(&url) {
                known.schedule.tried(taken.is_ok(), now);
            }
            shared.metrics.jwks_fetched(name, taken.is_ok(), now);
            match taken {
                Ok(true) => tracing::info!(identity = name, "keys fetched"),
                Ok(false) => tracing::debug!(identity = name, "keys fetched; they are the same"),
                Err(error) => tracing::error!(identity = name, %error, "keys cannot be fetched; those known stay"),
            }
        }
    }

    /// Puts keys in force under the newest policy, and says whether they are other than before.
    fn take(&self, shared: &SharedState, url: &Uri, jwks: Vec<u8>) -> Result<bool, String> {
        let mut known = self.lock();
        let current = shared.current.load();
        let is_new = known.get(url).is_none_or(|known| known.jwks.as_deref() != Some(&jwks));
        for (name, keys) in current.live.policy.fetched_keys().filter(|(_, keys)| keys.url() == url) {
            let skipped = keys.replace(&jwks).map_err(|problem| problem.to_string())?;
            // Once for each version of the set, not for each fetch.
            if let Some(skipped) = skipped.filter(|_| is_new) {
                tracing::warn!(identity = name, %skipped, "keys skipped");
            }
        }
        if is_new {
            // Tokens whose key is gone are good no more.
            current.live.tokens.clear();
        }
        known.entry(url.clone()).or_default().jwks = Some(jwks.into());
        Ok(is_new)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uri, FetchedSet>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
