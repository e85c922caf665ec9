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
use crate::telemetry::{Outcome, RequestRecord, Tap, TapFilter, Text};
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
    requests: VecDeque<Arc<RequestRecord>>,
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
    pub(super) seconds: Vec<DecidedSecond>,
}

/// The requests that ended within one second.
pub(super) struct DecidedSecond {
    pub(super) at: String,
    pub(super) requests: Vec<DecisionRow>,
}

/// A request in words.
pub(super) struct DecisionRow {
    /// The milliseconds after the begin of the second.
    pub(super) ms: u64,
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
    let filter = TapFilter { keys: vec![(limit.to_owned(), [key.first, key.second])], ..TapFilter::default() };
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
    fn add(&mut self, requests: Vec<Arc<RequestRecord>>, lost: u64) {
        self.count = self.count.saturating_add(requests.len() as u64).saturating_add(lost);
        let skipped = requests.len().saturating_sub(KEPT_MAX);
        self.requests.extend(requests.into_iter().skip(skipped));
        let forgotten = self.requests.len().saturating_sub(KEPT_MAX);
        self.requests.drain(..forgotten);
    }

    fn shown(&self) -> Decisions {
        let requests: Vec<_> = self.requests.iter().rev().collect();
        let seconds = requests.chunk_by(|one, next| one.at.as_secs() == next.at.as_secs());
        let second = |requests: &[&Arc<RequestRecord>]| DecidedSecond {
            at: requests.first().map(|request| words::instant(&rfc3339(request.at))).unwrap_or_default(),
            requests: requests.iter().map(|request| DecisionRow::of(request)).collect(),
        };
        Decisions {
            since: words::instant(&rfc3339(self.since)),
            count: self.count,
            seconds: seconds.map(second).collect(),
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl DecisionRow {
    fn of(request: &RequestRecord) -> Self {
        Self {
            ms: request.at.as_ns() / 1_000_000 % 1000,
            request: format!("{} {}{}", request.text(Text::Method), request.text(Text::Host), request.text(Text::Path)),
            client: request.client.to_string(),
            status: request.status,
            verdict: request.outcome.verdict(),
            is_forwarded: request.outcome.refused_by().is_none() && request.outcome != Outcome::Abandoned,
            by: request.text(Text::Limit).to_owned(),
            held: if request.held.is_zero() { "–".to_owned() } else { words::duration(request.held) },
            took: words::duration(request.duration),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_requests_are_kept_and_all_are_counted() {
        let request = |number: usize| {
            let mut request = RequestRecord {
                at: Timestamp::from_ns(1_500_000_000 + number as u64 * 100_000_000),
                client: "192.0.2.1".parse().unwrap(),
                status: 200,
                outcome: Outcome::Forwarded,
                duration: Duration::from_millis(12),
                ..RequestRecord::default()
            };
            request.set(Text::Method, "GET");
            request.set(Text::Host, "shop");
            request.set(Text::Path, &format!("/{number}"));
            Arc::new(request)
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
            let rows: Vec<_> = shown.seconds.iter().flat_map(|second| &second.requests).collect();
            let ends = |row: Option<&&DecisionRow>| row.map(|row| row.request.clone()).unwrap_or_default();
            assert_eq!(
                (shown.count, ends(rows.first()), ends(rows.last())),
                (count, newest.to_owned(), oldest.to_owned())
            );
        }
        // The requests 201 to 250 end every 100 ms from 21.6 s on.
        let shown = followed.shown();
        let second = |second: &DecidedSecond| (second.at.clone(), second.requests.len(), second.requests[0].ms);
        let at = |second: usize| format!("1970-01-01 00:00:{second} UTC");
        assert_eq!(
            shown.seconds.iter().map(second).collect::<Vec<_>>(),
            [
                (at(26), 6, 500),
                (at(25), 10, 900),
                (at(24), 10, 900),
                (at(23), 10, 900),
                (at(22), 10, 900),
                (at(21), 4, 900),
            ]
        );
    }
}
