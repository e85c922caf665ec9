//! Estimates of waits: sharers may come and go.

use super::{Asker, PATIENCE_NS, Pool, Sharer, ns, reserve, units};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Quota, Retry};

/// An estimate of a wait considers so many sharers that will leave before it ends. With more it is too short: all others
/// leave then. So a request that waits looks again in time.
const LEAVING_MAX: usize = 64;

impl Pool {
    /// The wait behind requests of the same sharer that take `ahead` units, if no other sharer is charged meanwhile.
    pub(in crate::engine::limit::fair_share) fn wait(
        &self,
        asker: Asker,
        quota: &Quota,
        ahead: u64,
        cost: u64,
        now: Timestamp,
    ) -> Retry {
        let of_bucket = self.bucket.wait(quota, ahead, cost, now);
        of_bucket.max(Retry::AfterNs(self.ns_among(
            asker,
            quota,
            (ahead, cost),
            (self.weights_with(asker), Sharer::waits),
            now,
        )))
    }

    /// Nanoseconds until the sharer may owe `cost` units more, if nobody is charged meanwhile. Refused sharers count as long
    /// as they wait.
    pub(super) fn ns_until_within(&self, asker: Asker, quota: &Quota, cost: u64, now: Timestamp) -> u64 {
        let weights = self.weights_with(asker);
        let forgiven_ns = self.all_paid_at.saturating_add_ns(PATIENCE_NS).ns_since(now);
        let with_all = self.ns_among(asker, quota, (0, cost), (weights, Sharer::waits), now).min(forgiven_ns);
        let (left, leaving) = if self.waiting.len() > LEAVING_MAX {
            (0.0, self.waiting.iter().nth(LEAVING_MAX))
        } else {
            let others = self.waiting.iter().filter_map(|(_, id)| self.sharers.get(id));
            let idle = others.filter(|sharer| sharer.paid_at <= self.clock).map(|sharer| u64::from(sharer.weight));
            (weights - units(idle.sum()), self.waiting.first())
        };
        let Some((until, _)) = leaving else { return with_all };
        let without = self.ns_among(asker, quota, (0, cost), (left, |_| false), now);
        with_all.min(without.max(until.ns_since(self.at)))
    }

    /// Nanoseconds until the sharer, after `ahead` units more, may owe `cost` units, among sharers with these weights. Each
    /// that has paid, and does not stay, leaves larger parts to the others. The last one has what the bucket has.
    fn ns_among(
        &self,
        asker: Asker,
        quota: &Quota,
        (ahead, cost): (u64, u64),
        (weights, stays): (f64, fn(&Sharer) -> bool),
        now: Timestamp,
    ) -> u64 {
        let own = f64::from(asker.weight.max(1));
        let paid_at = self.clock + (self.owed(asker) + units(ahead)) / own;
        let target = |weights: f64| paid_at - (Self::part(asker, quota, weights) - units(cost)).max(0.0) / own;
        let (mut clock, mut weights, mut all) = (self.clock, weights.max(own), 0.0);
        let mut others = self.owing.iter().filter(|(_, id)| *id != asker.id);
        for (bits, id) in others.by_ref().take(LEAVING_MAX) {
            let next = f64::from_bits(*bits);
            if next >= target(weights) {
                break;
            }
            all += (next - clock) * weights;
            let leaving = self.sharers.get(id).filter(|sharer| !stays(sharer));
            let weight = leaving.map_or(0.0, |sharer| f64::from(sharer.weight));
            (clock, weights) = (next, (weights - weight).max(own));
        }
        if others.next().is_some_and(|(bits, _)| f64::from_bits(*bits) < target(weights)) {
            weights = own;
        }
        let by_part_ns = ns(all + (target(weights) - clock).max(0.0) * weights, quota);
        let is_within = self.owed(asker) <= units(quota.burst());
        match self.bucket.wait(quota, ahead.saturating_add(self.reserved(quota, now)), cost, now) {
            Retry::AfterNs(bucket_ns) if weights <= own && is_within && cost <= quota.burst() - reserve(quota) => {
                by_part_ns.min(bucket_ns.max(ns(all, quota)))
            }
            _ => by_part_ns,
        }
    }
}
