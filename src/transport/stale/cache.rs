//! The stored answers of one limit, least recently used last, with a bound on their memory.
//!
//! The bound is strict: an answer takes its bytes while it arrives, and gives them back when it is dropped. So evicted
//! answers count until the last client has got them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use smallvec::SmallVec;

use super::answer::StoredAnswer;
use super::reservation::Reservation;
use super::rules::{self, Reuse};
use crate::base::fields::Fields;
use crate::base::telemetry::StaleMetrics;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::policy::{StaleCause, StaleRule};

/// The most answers of one key, which differ in fields that Vary names.
const VARIANTS_MAX: usize = 8;

/// A body takes at most this part of a cache, and all answers that are being recorded this one.
const BODY_PART: usize = 8;
const RECORDED_PART: usize = 4;

/// Resources share the instants of their last change, which take this part of a cache beside it, within these numbers.
const CHANGES_PART: usize = 16;
const CHANGES_MIN: usize = 1 << 9;
const CHANGES_MAX: usize = 1 << 20;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct AnswerCache {
    pub(super) rule: StaleRule,
    metrics: StaleMetrics,
    /// Bytes that are taken.
    bytes: Arc<AtomicUsize>,
    /// Those of answers that are being recorded.
    recorded: Arc<AtomicUsize>,
    /// Locked for a lookup, never while an answer is judged or sent.
    entries: Mutex<Entries>,
    /// The nanoseconds at which a resource last changed, by a part of its key.
    changes: Box<[AtomicU64]>,
}

#[derive(Debug)]
struct Entries {
    /// The newest variant first.
    by_key: LruCache<Key, Variants>,
    /// All variants of all keys.
    count: usize,
}

type Variants = SmallVec<[Arc<StoredAnswer>; 1]>;

/// A stored answer for a request.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) answer: Arc<StoredAnswer>,
    pub(crate) reuse: Reuse,
}

impl AnswerCache {
    pub(super) fn new(rule: StaleRule, metrics: StaleMetrics) -> Arc<Self> {
        let changes = (rule.max_bytes / CHANGES_PART / size_of::<AtomicU64>()).clamp(CHANGES_MIN, CHANGES_MAX);
        let changes = (0..changes).map(|_| AtomicU64::new(0)).collect();
        let entries = Mutex::new(Entries { by_key: LruCache::unbounded(), count: 0 });
        Arc::new(Self { rule, metrics, bytes: Arc::default(), recorded: Arc::default(), entries, changes })
    }

    /// When answers are used.
    pub(crate) fn rule(&self) -> &StaleRule {
        &self.rule
    }

    /// The most bytes of one body.
    pub(super) fn max_body(&self) -> usize {
        self.rule.max_bytes / BODY_PART
    }

    /// The newest answer with this key that `request` may get at `now`.
    pub(crate) fn find(&self, key: Key, request: Fields<'_>, now: Timestamp) -> Option<Found> {
        let mut entries = self.lock();
        let variants = entries.by_key.get(&key).cloned()?;
        if variants.iter().all(|answer| self.is_expired(answer, now)) {
            entries.remove(key);
            self.metrics.evicted_for_age.inc_by(variants.len() as u64);
        }
        drop(entries);
        let usable = variants.into_iter().filter(|answer| !self.is_expired(answer, now) && !self.has_changed(answer));
        let mut found = usable.filter_map(|answer| {
            let reuse = rules::reuse(&answer, request, now)?;
            Some(Found { answer, reuse })
        });
        found.next()
    }

    /// Counts an answer that a client gets.
    pub(crate) fn count(&self, cause: StaleCause) {
        self.metrics.answers[cause as usize].inc();
    }

    /// Stores an answer, in place of the one to a request with equal fields.
    pub(super) fn insert(&self, key: Key, answer: Arc<StoredAnswer>) {
        let mut entries = self.lock();
        entries.count += 1;
        let mut replaced = None; // dropped after the lock is released
        if let Some(variants) = entries.by_key.get_mut(&key) {
            let equal = variants.iter().position(|known| known.varies_as(&answer));
            if let Some(at) = equal.or_else(|| Some(variants.len() - 1).filter(|last| *last + 1 >= VARIANTS_MAX)) {
                replaced = Some(variants.remove(at));
                self.metrics.evicted_for_size.inc_by(u64::from(equal.is_none()));
            }
            variants.insert(0, answer);
        } else {
            entries.by_key.put(key, Variants::from_elem(answer, 1));
        }
        entries.count -= usize::from(replaced.is_some());
        drop(entries);
        self.metrics.stored.inc();
    }

    /// Records that the resource has changed at `now`: earlier answers are not used any more (RFC 9111, section 4.4).
    pub(crate) fn change(&self, resource: Key, now: Timestamp) {
        self.changed(resource).fetch_max(now.as_ns(), Ordering::Relaxed);
    }

    /// Evicts the answers at the end that are too old at `now`, and brings the gauges up to date.
    pub(super) fn sweep(&self, now: Timestamp) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let mut entries = self.lock();
        while let Some((_, variants)) = entries.by_key.peek_lru()
            && variants.iter().all(|answer| self.is_expired(answer, now))
        {
            self.metrics.evicted_for_age.inc_by(entries.pop().map_or(0, |variants| variants.len() as u64));
        }
        self.metrics.count.set(gauge(entries.count));
        drop(entries);
        self.metrics.bytes.set(gauge(self.bytes.load(Ordering::Relaxed)));
    }

    /// Takes `bytes`, for which it evicts answers. `None` if that is not enough.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        self.take(bytes).then(|| Reservation::new(&self.bytes, bytes))
    }

    /// Takes `bytes` of those for answers that are being recorded. `None` if there are not enough.
    pub(super) fn reserve_recording(&self, bytes: usize) -> Option<Reservation> {
        let mut reserved = Reservation::new(&self.recorded, 0);
        self.resize_recording(&mut reserved, bytes).then_some(reserved)
    }

    /// Takes as many of these bytes as `reserved` needs to have `bytes`. Returns whether it has them.
    pub(super) fn resize_recording(&self, reserved: &mut Reservation, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(reserved.bytes());
        let most = self.rule.max_bytes / RECORDED_PART;
        let within = |taken: usize| taken.checked_add(missing).filter(|taken| *taken <= most);
        let is_taken = self.recorded.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok();
        reserved.has_taken(if is_taken { missing } else { 0 });
        is_taken
    }

    /// Takes as many bytes as `reserved` needs to have `bytes`, or gives the others back. Returns whether it has them.
    pub(super) fn resize(&self, reserved: &mut Reservation, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(reserved.bytes());
        if missing > 0 && !self.take(missing) {
            return false;
        }
        reserved.has_taken(missing);
        reserved.shrink_to(bytes);
        true
    }

    fn take(&self, bytes: usize) -> bool {
        let within = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.rule.max_bytes);
        while self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_err() {
            let evicted = self.lock().pop();
            let Some(variants) = evicted else { return false };
            self.metrics.evicted_for_size.inc_by(variants.len() as u64);
        }
        true
    }

    fn is_expired(&self, answer: &StoredAnswer, now: Timestamp) -> bool {
        now.ns_since(answer.at) > self.rule.max_age_ns
    }

    fn has_changed(&self, answer: &StoredAnswer) -> bool {
        self.changed(answer.resource).load(Ordering::Relaxed) >= answer.at.as_ns()
    }

    fn changed(&self, resource: Key) -> &AtomicU64 {
        &self.changes[usize::try_from(resource.first % self.changes.len() as u64).unwrap_or(0)]
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are taken.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Entries {
    fn remove(&mut self, key: Key) {
        self.count -= self.by_key.pop(&key).map_or(0, |variants| variants.len());
    }

    /// Removes the answers of the key that was used least recently.
    fn pop(&mut self) -> Option<Variants> {
        let (_, variants) = self.by_key.pop_lru()?;
        self.count -= variants.len();
        Some(variants)
    }
}

impl Drop for AnswerCache {
    fn drop(&mut self) {
        self.metrics.count.set(0);
        self.metrics.bytes.set(0);
    }
}
