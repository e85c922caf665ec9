//! The last requests of a client, as they end, while an operator looks at the client.
//!
//! The first look opens a tap. A task keeps the last requests of the tap, and closes it soon after the last look. So a
//! request costs nothing when nobody looks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::state::Admin;
use crate::base::telemetry::{RequestRecord, Tap, TapFilter};
use crate::base::time::Timestamp;

/// Most followed clients: half of all taps, so that others have the rest. One more client displaces the one whose last look
/// is longest ago.
const FOLLOWED_MAX: usize = 4;
/// Requests that are kept of one client.
const KEPT_MAX: usize = 50;
/// A client is no longer followed when nobody looks for this time.
const UNSEEN_NS_MAX: u64 = 30_000_000_000;
/// The shortest time between two looks of the task into its tap.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest time between them. The task finds then that nobody looks.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// The followed clients. The lock is held for one look, and never across an await.
#[derive(Default)]
pub(super) struct FollowedClients(Mutex<Vec<FollowedClient>>);

/// A client whose requests are kept.
struct FollowedClient {
    /// Selects its requests.
    filter: TapFilter,
    since: Timestamp,
    /// The last look.
    seen: Timestamp,
    requests: VecDeque<Arc<RequestRecord>>,
    /// Requests that ended since the begin, lost ones included.
    count: u64,
    /// It ends on drop.
    _task: JoinSet<()>,
}

/// The last requests of a client.
pub(super) struct Followed {
    /// The begin.
    pub(super) since: Timestamp,
    /// Requests that ended since the begin.
    pub(super) count: u64,
    /// The newest first.
    pub(super) requests: Vec<Arc<RequestRecord>>,
}

/// The requests that `filter` selects since the first look; `None` if all taps are open.
pub(super) fn look(
    admin: &Arc<Admin>,
    followed_clients: &Arc<FollowedClients>,
    filter: &TapFilter,
) -> Option<Followed> {
    let now = admin.gate.clock().now();
    let mut all = followed_clients.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(followed) = all.iter_mut().find(|one| one.filter == *filter) {
        followed.seen = now;
        return Some(followed.shown());
    }
    let tap = admin.taps.open(filter.clone())?;
    let state = (Arc::clone(admin), Arc::clone(followed_clients));
    let task = JoinSet::from_iter([collect(state, tap, filter.clone())]);
    if all.len() >= FOLLOWED_MAX {
        let longest_ago = all.iter().enumerate().min_by_key(|(_, one)| one.seen).map(|(index, _)| index);
        longest_ago.map(|index| all.swap_remove(index));
    }
    let (since, filter) = (now, filter.clone());
    let followed = FollowedClient { filter, since, seen: now, requests: VecDeque::new(), count: 0, _task: task };
    let shown = followed.shown();
    all.push(followed);
    Some(shown)
}

/// Keeps the requests of a tap until nobody looks.
async fn collect((admin, followed_clients): (Arc<Admin>, Arc<FollowedClients>), mut tap: Tap, filter: TapFilter) {
    loop {
        let mut requests = Vec::new();
        // Without a request there is nothing to keep, but perhaps nobody looks.
        let _ = timeout(SILENCE_MAX, tap.receive(&mut requests)).await;
        let (lost, now) = (tap.take_lost(), admin.gate.clock().now());
        {
            let mut all = followed_clients.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(index) = all.iter().position(|one| one.filter == filter) else { return };
            let Some(followed) = all.get_mut(index).filter(|one| now.ns_since(one.seen) < UNSEEN_NS_MAX) else {
                all.swap_remove(index);
                return;
            };
            followed.add(requests, lost);
        }
        sleep(PAUSE).await;
    }
}

impl FollowedClient {
    fn add(&mut self, requests: Vec<Arc<RequestRecord>>, lost: u64) {
        self.count = self.count.saturating_add(requests.len() as u64).saturating_add(lost);
        let skipped = requests.len().saturating_sub(KEPT_MAX);
        self.requests.extend(requests.into_iter().skip(skipped));
        let forgotten = self.requests.len().saturating_sub(KEPT_MAX);
        self.requests.drain(..forgotten);
    }

    fn shown(&self) -> Followed {
        Followed {
            since: self.since,
            count: self.count,
            requests: self.requests.iter().rev().map(Arc::clone).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::telemetry::Text;

    #[test]
    fn the_last_requests_are_kept_and_all_are_counted() {
        let request = |number: usize| {
            let mut request = RequestRecord::default();
            request.set(Text::Path, &format!("/{number}"));
            Arc::new(request)
        };
        let mut followed = FollowedClient {
            filter: TapFilter::default(),
            since: Timestamp::ZERO,
            seen: Timestamp::ZERO,
            requests: VecDeque::new(),
            count: 0,
            _task: JoinSet::new(),
        };
        for (numbers, lost, count, newest, oldest) in [
            (0..2, 0, 2, "/1", "/0"),
            (2..2, 7, 9, "/1", "/0"),
            (2..51, 0, 58, "/50", "/1"),
            (51..251, 0, 258, "/250", "/201"),
        ] {
            followed.add(numbers.map(request).collect(), lost);
            let shown = followed.shown();
            let path = |request: Option<&Arc<RequestRecord>>| request.unwrap().text(Text::Path).to_owned();
            let ends = (shown.count, path(shown.requests.first()), path(shown.requests.last()));
            assert_eq!(ends, (count, newest.to_owned(), oldest.to_owned()));
        }
    }
}
