//! Limits that are shared by the members of a fleet, whose number is known at run time.
//!
//! Not here: the number of members (`grpc::fleet`), and the states of keys, which a change of it keeps (`gate`).

use std::sync::Arc;

use super::allowed::{Allowed, Shares};
use super::compiled::Policy;
use super::limit::Limit;
use super::strategy::Strategy;
use crate::engine::limit::Algorithm;

impl Policy {
    /// Shares limits by so many members, instead of a fixed number of replicas. Limits with the strategy `split` must
    /// have the rules of the whole fleet.
    pub fn shared_by(self, members: u64) -> Self {
        if self.limits.iter().all(|limit| matches!(limit.strategy, Strategy::Local | Strategy::Stream)) {
            return self;
        }
        let is_split = |limit: &&Limit| matches!(limit.strategy, Strategy::Split(_));
        let whole = |limit: &Limit| Some(limit).filter(is_split).map(|limit| limit.allowed.clone());
        let whole = self.limits.iter().map(whole).collect();
        self.with_shares(Shares { members: members.max(1), whole })
    }

    /// This policy for another number of members; `None` if the number is the same, or does not matter.
    pub fn resized(&self, members: u64) -> Option<Self> {
        let shares = self.shares.as_ref()?;
        let members = members.max(1);
        (shares.members != members).then(|| self.with_shares(Shares { members, ..shares.clone() }))
    }

    /// The number of members that share limits; `None` if no limit follows it.
    pub fn members(&self) -> Option<u64> {
        self.shares.as_ref().map(|shares| shares.members)
    }

    /// The limits that have a rule with fewer units than members. Each member admits one of these units.
    pub fn scarce_limits(&self) -> impl Iterator<Item = &str> {
        let shares = self.shares.iter().flat_map(|shares| shares.whole.iter().map(|whole| (shares.members, whole)));
        let scarce = self.limits.iter().zip(shares).filter(|(_, (members, whole))| {
            let mut rules = whole.iter().flat_map(Allowed::rules);
            rules.any(|rule| rule.share(*members).is_err())
        });
        scarce.map(|(limit, _)| &*limit.name)
    }

    fn with_shares(&self, shares: Shares) -> Self {
        let limits = self.limits.iter().zip(&*shares.whole).map(|(limit, whole)| {
            let share = whole.as_ref().map(|whole| whole.shared(shares.members));
            let allowed = share.unwrap_or_else(|| limit.allowed.clone());
            Limit { allowed, strategy: limit.strategy.with_replicas(shares.members), ..limit.clone() }
        });
        let shared = Self::new(limits.collect(), Arc::clone(&self.identities), self.client_ip.clone());
        Self {
            free_preflights: self.free_preflights.clone(),
            paths: self.paths,
            access: self.access.clone(),
            plans: self.plans.clone(),
            identity_headers: Arc::clone(&self.identity_headers),
            descriptors: self.descriptors.clone(),
            shares: Some(shares),
            ..shared
        }
    }
}

impl Allowed {
    /// All rules, without those of keys and plans that are unlimited.
    fn rules(&self) -> impl Iterator<Item = &Algorithm> {
        let special = self.plans.iter().chain(&self.overrides).filter_map(|(_, rule)| rule.as_ref());
        std::iter::once(&self.usual).chain(special)
    }

    /// What one of `members` may spend alone.
    fn shared(&self, members: u64) -> Self {
        let of_all = |rules: &[(Box<str>, Option<Algorithm>)]| {
            let share = |rule: &Option<Algorithm>| rule.as_ref().map(|rule| share(rule, members));
            rules.iter().map(|(name, rule)| (name.clone(), share(rule))).collect()
        };
        Self {
            usual: share(&self.usual, members),
            plans: of_all(&self.plans),
            overrides: of_all(&self.overrides),
            set_from: self.set_from,
            assigned: self.assigned.clone(),
            written: self.written.clone(),
        }
    }
}

/// The share of one of `members`. If a rule has fewer units than members, the share has one.
fn share(rule: &Algorithm, members: u64) -> Algorithm {
    let share = (1..=members).rev().find_map(|members| rule.share(members).ok());
    share.unwrap_or_else(|| rule.clone())
}
