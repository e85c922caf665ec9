//! Settlements, and what sharers owe beyond the bucket.

use super::{Asker, Pool, Sharer, reserve, units, whole};
use crate::base::time::Timestamp;
use crate::engine::limit::Quota;
use crate::engine::limit::state::State as _;

impl Pool {
    /// Charges units whether they fit or not, or gives back what the sharer owes: first what is beyond the bucket. Returns the
    /// units.
    pub(in crate::engine::limit::fair_share) fn settle(
        &mut self,
        asker: Asker,
        (extra, max_debt): (i64, u64),
        now: Timestamp,
    ) -> i64 {
        let (quota, owed) = (self.quota, self.owed(asker)); // the rule of the charge may be that of an earlier policy
        let settled = if extra < 0 {
            -units(extra.unsigned_abs()).min(owed)
        } else {
            units(extra.unsigned_abs()).min((units(quota.burst().saturating_add(max_debt)) - owed).max(0.0))
        };
        let magnitude = i64::try_from(whole(settled.abs().round())).unwrap_or(i64::MAX);
        let rounded = if extra < 0 { -magnitude } else { magnitude };
        let (full_at, settled_ns) =
            (self.bucket_full_at(now), rounded.unsigned_abs().saturating_mul(quota.interval_ns()));
        if extra < 0 {
            let returned = (-settled - self.overdraft(asker)).min(self.taken_by(asker, now)).max(0.0);
            let returned = i64::try_from(whole(returned.round())).unwrap_or(i64::MAX);
            self.bucket.settle(&quota, -returned, 0, now);
            self.all_paid_at = self.all_paid_at.saturating_sub_ns(settled_ns).max(self.bucket_full_at(now));
            self.charge(asker, settled, settled);
        } else {
            self.bucket.settle(&quota, rounded, 0, now);
            self.all_paid_at = self.all_paid_at.max(now).saturating_add_ns(settled_ns);
            let taken = units(self.bucket_full_at(now).ns_since(full_at)) / units(quota.interval_ns());
            self.charge(asker, settled, (settled - taken).max(0.0));
        }
        rounded
    }

    /// The instant at which the bucket is full, not before `now`.
    pub(super) fn bucket_full_at(&self, now: Timestamp) -> Timestamp {
        self.bucket.peek(&self.quota, 0, now).full_at(now)
    }

    /// The time in which all units beyond the bucket are paid, once it is full.
    pub(super) fn overdraft_ns(&self, now: Timestamp) -> u64 {
        self.all_paid_at.ns_since(self.bucket_full_at(now))
    }

    /// The units of the bucket that are not for a sharer that is alone: those for others, and those that it owes beyond the
    /// bucket.
    pub(super) fn reserved(&self, quota: &Quota, now: Timestamp) -> u64 {
        reserve(quota).saturating_add(self.overdraft_ns(now).div_ceil(self.quota.interval_ns()))
    }

    /// The units beyond the bucket that the sharer owes.
    pub(super) fn overdraft(&self, asker: Asker) -> f64 {
        self.sharers.get(&asker.id).map_or(0.0, |sharer| sharer.overdraft.min(self.owed(asker)))
    }

    /// The units that the bucket lacks and the other sharers do not owe it.
    fn taken_by(&self, asker: Asker, now: Timestamp) -> f64 {
        let lacking = units(self.bucket_full_at(now).ns_since(now)) / units(self.quota.interval_ns());
        let of_bucket = |(id, sharer): (&u64, &Sharer)| {
            let other = Asker { id: *id, weight: sharer.weight };
            self.owed(other) - self.overdraft(other)
        };
        lacking - self.sharers.iter().filter(|(id, _)| **id != asker.id).map(of_bucket).sum::<f64>()
    }
}
