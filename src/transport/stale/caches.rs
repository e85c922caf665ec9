//! The stored answers of all limits.

use std::sync::Arc;

use super::cache::AnswerCache;
use crate::base::telemetry::Metrics;
use crate::base::time::Timestamp;
use crate::engine::policy::{Limit, StaleCause};

/// The stored answers of all limits of one policy.
#[derive(Debug)]
pub struct AnswerCaches {
    /// In the order of the limits, each with the name of its limit.
    by_limit: Vec<Option<(Box<str>, Arc<AnswerCache>)>>,
}

impl AnswerCaches {
    /// The caches of `limits`; `None` if no limit stores answers. A limit keeps the answers that it has in `before`,
    /// unless its rule has changed.
    pub(crate) fn new(limits: &[Limit], before: Option<&Self>, metrics: &Metrics) -> Option<Arc<Self>> {
        let cache = |limit: &Limit| {
            let rule = limit.stale?;
            let known = || before?.all().find(|(name, cache)| **name == *limit.name && cache.rule == rule);
            let new = || AnswerCache::new(rule, metrics.stale(&limit.name, StaleCause::ALL.map(StaleCause::label)));
            let cache = known().map_or_else(new, |(_, cache)| Arc::clone(cache));
            Some((limit.name.clone(), cache))
        };
        let by_limit: Vec<_> = limits.iter().map(cache).collect();
        by_limit.iter().any(Option::is_some).then(|| Arc::new(Self { by_limit }))
    }

    /// The name and the cache of the limit at `index`.
    pub(crate) fn of_limit(&self, index: usize) -> Option<(&str, &Arc<AnswerCache>)> {
        self.by_limit.get(index)?.as_ref().map(|(name, cache)| (&**name, cache))
    }

    /// All caches, each with the name of its limit.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Arc<AnswerCache>)> {
        self.by_limit.iter().flatten().map(|(name, cache)| (&**name, cache))
    }

    /// Evicts answers that are too old at `now`, and brings the gauges up to date.
    pub fn sweep(&self, now: Timestamp) {
        self.all().for_each(|(_, cache)| cache.sweep(now));
    }
}
