//! Taps: operators who watch requests as they end.
//!
//! A tap has a bounded queue. A request that finds the queue full is lost for this tap and counted, so no request waits
//! for a reader. Not here: the HTTP of a tap (admin), and the keys of a request (gate).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use ipnet::IpNet;
use prometheus::{IntCounter, IntGauge};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::factory::MetricFactory;
use super::outcome::RefusedBy;
use super::request::RequestRecord;
use crate::base::split_mix::mix;

/// Most taps at once.
pub const TAPS_MAX: usize = 8;
/// Most requests that wait for the reader of one tap.
const QUEUED_MAX: usize = 1024;

/// The requests that a tap gets. An empty filter takes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapFilter {
    /// A limit that applies to the request.
    pub limit: Option<String>,
    /// Limits with the hash of a key; the request has one of these keys, if there are any.
    pub keys: Vec<(String, [u64; 2])>,
    /// One of these verdicts, if there are any.
    pub verdicts: Vec<&'static str>,
    /// One of these reasons of a refusal, if there are any.
    pub refused_by: Vec<RefusedBy>,
    /// The network of the client.
    pub client: Option<IpNet>,
    /// One of so many requests that match otherwise, chosen evenly; 0 and 1 take all.
    pub sample: u64,
}

impl TapFilter {
    fn admits(&self, request: &RequestRecord) -> bool {
        let meets = |limit: &String| request.keys().any(|key| key.limit == *limit);
        let has =
            |(limit, hash): &(String, [u64; 2])| request.keys().any(|key| key.limit == *limit && key.hash == *hash);
        (self.verdicts.is_empty() || self.verdicts.contains(&request.outcome.verdict()))
            && (self.refused_by.is_empty()
                || request.outcome.refused_by().is_some_and(|by| self.refused_by.contains(&by)))
            && self.client.is_none_or(|network| network.contains(&request.client))
            && self.limit.as_ref().is_none_or(meets)
            && (self.keys.is_empty() || self.keys.iter().any(has))
    }
}

/// The metrics of taps.
#[derive(Clone, Debug)]
pub struct TapMetrics {
    open: IntGauge,
    events_lost: IntCounter,
}

impl TapMetrics {
    pub(super) fn new(make: &MetricFactory) -> Result<Self, prometheus::Error> {
        let lost = "Requests that taps lost, because their readers are slow.";
        Ok(Self {
            open: make.gauge("weir_taps", "Operators who watch requests now.")?,
            events_lost: make.counter("weir_tap_events_lost_total", lost)?,
        })
    }
}

/// The open taps.
#[derive(Debug)]
pub struct Taps {
    count: AtomicUsize,
    open: ArcSwap<Vec<Arc<TapState>>>,
    metrics: TapMetrics,
}

#[derive(Debug)]
struct TapState {
    filter: TapFilter,
    queue: Sender<Arc<RequestRecord>>,
    matched: AtomicU64,
    lost: AtomicU64,
}

/// An open tap. It closes on drop.
#[derive(Debug)]
pub struct Tap {
    taps: Arc<Taps>,
    state: Arc<TapState>,
    queue: Receiver<Arc<RequestRecord>>,
}

impl Taps {
    /// No tap. `metrics` count taps and lost requests.
    pub fn new(metrics: TapMetrics) -> Self {
        Self { count: AtomicUsize::new(0), open: ArcSwap::default(), metrics }
    }

    /// Whether there is a tap.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Opens a tap; `None` if [`TAPS_MAX`] taps are open.
    pub fn open(self: &Arc<Self>, filter: TapFilter) -> Option<Tap> {
        let (sender, queue) = channel(QUEUED_MAX);
        let [matched, lost] = [(); 2].map(|()| AtomicU64::new(0));
        let state = Arc::new(TapState { filter, queue: sender, matched, lost });
        let before = self.open.rcu(|open| {
            let has_room = open.len() < TAPS_MAX;
            open.iter().chain(has_room.then_some(&state)).map(Arc::clone).collect::<Vec<_>>()
        });
        if before.len() >= TAPS_MAX {
            return None;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.metrics.open.inc();
        Some(Tap { taps: Arc::clone(self), state, queue })
    }

    /// Gives a request to all taps that it concerns.
    pub fn publish(&self, request: RequestRecord) {
        let request = Arc::new(request);
        for tap in self.open.load().iter().filter(|tap| tap.filter.admits(&request)) {
            let matched = tap.matched.fetch_add(1, Ordering::Relaxed);
            // Every n-th request could always be of the same client.
            let is_sampled = mix(matched).is_multiple_of(tap.filter.sample.max(1));
            if is_sampled && tap.queue.try_send(Arc::clone(&request)).is_err() {
                tap.lost.fetch_add(1, Ordering::Relaxed);
                self.metrics.events_lost.inc();
            }
        }
    }
}

impl Tap {
    /// Waits for requests, and appends all that are queued to `requests`.
    pub async fn receive(&mut self, requests: &mut Vec<Arc<RequestRecord>>) {
        self.queue.recv_many(requests, QUEUED_MAX).await;
    }

    /// The number of requests lost since the last call.
    pub fn take_lost(&self) -> u64 {
        self.state.lost.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.taps.open.rcu(|open| {
            open.iter().filter(|other| !Arc::ptr_eq(other, &self.state)).map(Arc::clone).collect::<Vec<_>>()
        });
        self.taps.count.fetch_sub(1, Ordering::Relaxed);
        self.taps.metrics.open.dec();
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::super::outcome::Outcome;
    use super::super::request::TappedKey;
    use super::*;

    const LIMITED: Outcome = Outcome::Refused(RefusedBy::Limit);

    fn request(outcome: Outcome, client: &str, keys: &[(&str, u64)]) -> RequestRecord {
        let mut request = RequestRecord { client: client.parse().unwrap(), outcome, ..RequestRecord::default() };
        for (limit, hash) in keys {
            let key = TappedKey { limit, hash: [*hash; 2], ..TappedKey::default() };
            request.add_key(key, |out| out.push('k'));
        }
        request
    }

    fn taps() -> Arc<Taps> {
        Arc::new(Taps::new(TapMetrics::new(&MetricFactory { registry: Registry::new() }).unwrap()))
    }

    #[test]
    fn filters_compare_limit_key_verdict_and_client() {
        let all = TapFilter::default();
        let limit = |limit: &str| TapFilter { limit: Some(limit.into()), ..TapFilter::default() };
        let keys = |keys: &[(&str, u64)]| TapFilter {
            keys: keys.iter().map(|(limit, hash)| ((*limit).to_owned(), [*hash; 2])).collect(),
            ..TapFilter::default()
        };
        let refused = TapFilter { verdicts: vec!["held", "refused"], ..TapFilter::default() };
        let by = |by: RefusedBy| TapFilter { refused_by: vec![RefusedBy::Access, by], ..TapFilter::default() };
        let client = |network: &str| TapFilter { client: Some(network.parse().unwrap()), ..TapFilter::default() };
        let seen = request(LIMITED, "10.0.0.1", &[("a", 1), ("b", 2)]);
        let other = request(Outcome::Forwarded, "10.0.0.2", &[]);
        for (filter, admits) in [
            (&all, [true, true]),
            (&limit("a"), [true, false]),
            (&limit("c"), [false, false]),
            (&keys(&[("a", 1)]), [true, false]),
            (&keys(&[("a", 2)]), [false, false]),
            (&keys(&[("a", 2), ("b", 2)]), [true, false]),
            (&refused, [true, false]),
            (&by(RefusedBy::Limit), [true, false]),
            (&by(RefusedBy::Ban), [false, false]),
            (&client("10.0.0.1/32"), [true, false]),
            (&client("10.0.0.0/30"), [true, true]),
            (&client("10.0.0.2/31"), [false, true]),
            (&client("::/1"), [false, false]),
        ] {
            assert_eq!([filter.admits(&seen), filter.admits(&other)], admits, "{filter:?}");
        }
    }

    #[tokio::test]
    async fn a_full_queue_loses_requests_and_counts_them() {
        let taps = taps();
        let mut tap = taps.open(TapFilter::default()).unwrap();
        for _ in 0..QUEUED_MAX + 3 {
            taps.publish(request(Outcome::Forwarded, "::1", &[]));
        }
        let mut requests = Vec::new();
        tap.receive(&mut requests).await;
        assert_eq!((requests.len(), tap.take_lost(), tap.take_lost()), (QUEUED_MAX, 3, 0));
        assert_eq!(taps.metrics.events_lost.get(), 3);
        taps.publish(request(Outcome::Held, "::1", &[]));
        tap.receive(&mut requests).await;
        assert_eq!(requests.last().map(|request| request.outcome), Some(Outcome::Held));
    }

    #[tokio::test]
    async fn a_sample_has_about_its_part_of_alternating_requests() {
        let taps = taps();
        let mut tap = taps.open(TapFilter { sample: 10, ..TapFilter::default() }).unwrap();
        for number in 0..4000 {
            taps.publish(request(if number % 2 == 0 { Outcome::Forwarded } else { LIMITED }, "::1", &[]));
        }
        let mut requests = Vec::new();
        tap.receive(&mut requests).await;
        let refused = requests.iter().filter(|request| request.outcome == LIMITED).count();
        assert!((300..500).contains(&requests.len()) && (150..250).contains(&refused), "{refused} {}", requests.len());
    }

    #[test]
    fn taps_are_bounded_and_close_on_drop() {
        let taps = taps();
        assert!(!taps.is_on());
        let mut open: Vec<_> = (0..TAPS_MAX).map(|_| taps.open(TapFilter::default()).unwrap()).collect();
        assert!(taps.is_on() && taps.open(TapFilter::default()).is_none());
        drop(open.swap_remove(3));
        open.push(taps.open(TapFilter::default()).unwrap());
        assert_eq!((taps.metrics.open.get(), taps.open.load().len()), (8, 8));
        drop(open);
        assert!(!taps.is_on() && taps.open.load().is_empty() && taps.metrics.open.get() == 0);
    }
}
