//! Comparisons of two limits: whether one shadows the other, and whether one bounds the keys of the other.

use super::cost::Cost;
use super::keys::part::KeyPart;
use super::limit::{Limit, Mode, OnLimit, Stage};
use crate::engine::limit::OnFull;

impl Limit {
    /// Whether this limit refuses every request that `other` refuses. `false` also if that is unknown.
    pub fn shadows(&self, other: &Self) -> bool {
        let refuses_all_beyond = self.mode == Mode::Enforce
            && !matches!(self.on_limit, OnLimit::Delay(_))
            && self.on_full != OnFull::Allow
            && !self.allowed.is_special()
            && self.after.is_none();
        // A key with fewer parts is charged for at least as many requests.
        let is_charged_as_much = self.key.iter().all(|part| other.key.contains(part))
            && match (&self.cost, &other.cost) {
                (Cost::Units(own), Cost::Units(other)) => own >= other,
                _ => false,
            };
        let sees_as_much = (self.stage == other.stage || self.stage == Stage::Arrival)
            && self.except.is_within(&other.except)
            && self.matches.covers(&other.matches);
        let is_plain = other.mode == Mode::Enforce && !other.allowed.is_special() && other.after.is_none();
        // Replicas count alone, or together. Neither way is stricter in every case.
        let counts_alike =
            self.strategy == other.strategy || self.strategy.counts_alone() && other.strategy.counts_alone();
        refuses_all_beyond
            && is_plain
            && counts_alike
            && is_charged_as_much
            && sees_as_much
            && self.allowed.usual.is_within(&other.allowed.usual)
    }

    /// Whether this limit bounds the requests of each client address that `other` limits. A limit that only delays
    /// bounds nothing. A limit that counts some outcomes bounds only limits that count the same outcomes.
    pub fn bounds_addresses_of(&self, other: &Self) -> bool {
        let counts = |limit: &Self| limit.after.as_ref().and_then(|after| after.counts.clone());
        self.mode == Mode::Enforce
            && !matches!(self.on_limit, OnLimit::Delay(_))
            && self.key.iter().any(|part| matches!(part, KeyPart::Ip | KeyPart::Network { .. }))
            && self.key.iter().all(|part| matches!(part, KeyPart::Ip | KeyPart::Network { .. } | KeyPart::Route))
            && counts(self).is_none_or(|own| counts(other) == Some(own))
            && self.matches.covers(&other.matches)
    }
}
