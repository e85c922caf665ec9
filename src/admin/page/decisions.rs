//! The last requests of a key, as they end, while an operator looks at the page of the key.
//!
//! The first look opens a tap. A task keeps the last requests of the tap, and closes it soon after the last look. So a
//! request costs nothing when nobody looks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::words;
use crate::admin::state::Admin;
use crate::admin::times::rfc3339;
use crate::limit::Key;
use crate::telemetry::{Tap, TapFilter, TappedRequest};
use crate::time::Timestamp;

/// Most followed keys: half of all taps, so that the API has the others. One more key displaces the key whose last look
/// is longest ago.
const FOLLOWED_MAX: usize = 4;
/// Requests that are kept of one key.
const KEPT_MAX: usize = 50;
/// A key is no longer followed when nobody looks for this time.
const UNSEEN_NS_MAX: u64 = 30_000_000_000;
/// The shortest time between two looks of the task into its tap.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest time between them. The task finds then that nobody looks.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// The followed keys. The lock is held for one look, and never across an await.
#[derive(Default)]
pub(super) struct FollowedKeys(Mutex<Vec<FollowedKey>>);

/// A key whose requests are kept.
struct FollowedKey {
    limit: String,
    key: Key,
    since: Timestamp,
    /// The last look.
    seen: Timestamp,
    requests: VecDeque<Arc<TappedRequest>>,
    /// Requests that ended since the begin, lost ones included.
    count: u64,
    _task: Collector,
}

/// The task of a followed key. It ends on drop.
struct Collector(AbortHandle);

/// The last requests of a key, the newest first.
pub(super) struct Decisions {
    /// The begin.
    pub(super) since: String,
    /// Requests that ended since the begin.
    pub(super) count: u64,
    pub(super) requests: Vec<DecisionRow>,
}

/// A request in words.
pub(super) struct DecisionRow {
    pub(super) at: String,
    pub(super) request: String,
    pub(super) client: String,
    pub(super) status: u16,
    pub(super) verdict: &'static str,
    /// Whether the service got the request.
    pub(super) is_forwarded: bool,
    /// The limit that held or refused it; empty if none did.
    pub(super) by: String,
    pub(super) held: String,
    pub(super) took: String,
}

/// The requests of a key since the first look; `None` if all taps are open.
pub(super) fn look(
    (admin, followed_keys): (&Arc<Admin>, &Arc<FollowedKeys>),
    limit: &str,
    key: Key,
) -> Option<Decisions> {
    let now = admin.gate.clock().now();
    let mut all = followed_keys.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(followed) = all.iter_mut().find(|one| one.key == key && one.limit == limit) {
        followed.seen = now;
        return Some(followed.shown());
    }
    let filter =
        TapFilter { limit: Some(limit.to_owned()), key: Some([key.first, key.second]), ..TapFilter::default() };
    let tap = admin.taps.open(filter)?;
    let state = (Arc::clone(admin), Arc::clone(followed_keys));
    let task = Collector(tokio::spawn(collect(state, tap, (limit.to_owned(), key))).abort_handle());
    if all.len() >= FOLLOWED_MAX {
        let longest_ago = all.iter().enumerate().min_by_key(|(_, one)| one.seen).map(|(index, _)| index);
        longest_ago.map(|index| all.swap_remove(index));
    }
    let followed = FollowedKey {
        limit: limit.to_owned(),
        key,
        since: now,
        seen: now,
        requests: VecDeque::new(),
        count: 0,
        _task: task,
    };
    let shown = followed.shown();
    all.push(followed);
    Some(shown)
}

/// Keeps the requests of a tap until nobody looks.
async fn collect((admin, followed_keys): (Arc<Admin>, Arc<FollowedKeys>), mut tap: Tap, (limit, key): (String, Key)) {
    loop {
        let mut requests = Vec::new();
        // Without a request there is nothing to keep, but perhaps nobody looks.
        let _ = timeout(SILENCE_MAX, tap.receive(&mut requests)).await;
        let (lost, now) = (tap.take_lost(), admin.gate.clock().now());
        {
            let mut all = followed_keys.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(index) = all.iter().position(|one| one.key == key && one.limit == limit) else { return };
            let Some(followed) = all.get_mut(index).filter(|one| now.ns_since(one.seen) < UNSEEN_NS_MAX) else {
                all.swap_remove(index);
                return;
            };
            followed.add(requests, lost);
        }
        sleep(PAUSE).await;
    }
}

impl FollowedKey {
    fn add(&mut self, requests: Vec<Arc<TappedRequest>>, lost: u64) {
        self.count = self.count.saturating_add(requests.len() as u64).saturating_add(lost);
        let skipped = requests.len().saturating_sub(KEPT_MAX);
        self.requests.extend(requests.into_iter().skip(skipped));
        let forgotten = self.requests.len().saturating_sub(KEPT_MAX);
        self.requests.drain(..forgotten);
    }

    fn shown(&self) -> Decisions {
        let requests = self.requests.iter().rev().map(|request| DecisionRow::of(request)).collect();
        Decisions { since: words::instant(&rfc3339(self.since)), count: self.count, requests }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl DecisionRow {
    fn of(request: &TappedRequest) -> Self {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            at: words::instant(&rfc3339(request.at)),
            request: format!("{} {}{}", request.method, request.host, request.path),
            client: request.client.to_string(),
            status: request.status,
            verdict: request.verdict,
            is_forwarded: matches!(request.verdict, "forwarded" | "held"),
            by: request.limit.clone(),
            held: if request.held.is_zero() { "–".to_owned() } else { words::wait(Some(ms(request.held)), "–") },
            took: words::wait(Some(ms(request.duration)), "–"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_requests_are_kept_and_all_are_counted() {
        let request = |number: usize| {
            Arc::new(TappedRequest {
                at: Timestamp::from_ns(1_500_000_000),
                client: "192.0.2.1".parse().unwrap(),
                method: "GET".into(),
                host: "shop".into(),
                path: format!("/{number}"),
                status: 200,
                verdict: "forwarded",
                limit: String::new(),
                keys: Vec::new(),
                duration: Duration::from_millis(12),
                held: Duration::ZERO,
            })
        };
        let mut followed = FollowedKey {
            limit: "one".into(),
            key: Key::of_hash(1, 2),
            since: Timestamp::ZERO,
            seen: Timestamp::ZERO,
            requests: VecDeque::new(),
            count: 0,
            _task: Collector(tokio::spawn(async {}).abort_handle()),
        };
        for (numbers, lost, count, newest, oldest) in [
            (0..2, 0, 2, "GET shop/1", "GET shop/0"),
            (2..2, 7, 9, "GET shop/1", "GET shop/0"),
            (2..51, 0, 58, "GET shop/50", "GET shop/1"),
            (51..251, 0, 258, "GET shop/250", "GET shop/201"),
        ] {
            followed.add(numbers.map(request).collect(), lost);
            let shown = followed.shown();
            let ends = |row: Option<&DecisionRow>| row.map(|row| row.request.clone()).unwrap_or_default();
            assert_eq!(
                (shown.count, ends(shown.requests.first()), ends(shown.requests.last())),
                (count, newest.to_owned(), oldest.to_owned())
            );
        }
    }
}
