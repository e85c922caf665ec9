//! Rules that follow what changes at run time: the number of members that share limits, and the wall clock for ramps.
//!
//! Not here: the number of members (`grpc::fleet`), the steps of a ramp (`ramp`), and the states of keys, which a change of it keeps (`gate`).

use std::sync::Arc;

use super::allowed::{Allowed, Shares};
use super::compiled::Policy;
use super::limit::Limit;
use super::strategy::Strategy;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Scale};

impl Policy {
    /// Lets the rules follow ramps, and shares limits by so many members, if their number is known at run time. All limits
    /// must have the rules of the whole fleet, as written.
    pub fn shared_by(self, members: Option<u64>) -> Self {
        let counts_alone = |limit: &Limit| matches!(limit.strategy, Strategy::Local | Strategy::Stream);
        let members = members.map(|members| members.max(1)).filter(|_| !self.limits.iter().all(counts_alone));
        let is_split = |limit: &Limit| matches!(limit.strategy, Strategy::Split(_)) && members.is_some();
        let whole = |limit: &Limit| (limit.ramp.is_some() || is_split(limit)).then(|| limit.allowed.clone());
        if members.is_none() && self.limits.iter().all(|limit| limit.ramp.is_none()) {
            return self;
        }
        let whole = self.limits.iter().map(whole).collect();
        self.with_shares(Shares { members, whole }, None)
    }

    /// This policy for another number of members; `None` if the number is the same, or does not matter.
    pub fn resized(&self, members: u64) -> Option<Self> {
        let (shares, before) = (self.shares.as_ref()?, self.members()?);
        let members = members.max(1);
        (before != members).then(|| self.with_shares(Shares { members: Some(members), ..shares.clone() }, None))
    }

    /// The number of members that share limits; `None` if no limit follows it.
    pub fn members(&self) -> Option<u64> {
        self.shares.as_ref()?.members
    }

    /// The limits that have a rule with fewer units than members. Each member admits one of these units.
    pub fn scarce_limits(&self) -> impl Iterator<Item = &str> {
        let shares = self.shares.iter().filter_map(|shares| Some((shares.members?, &shares.whole)));
        let split =
            shares.flat_map(|(members, whole)| self.limits.iter().zip(&**whole).map(move |each| (members, each)));
        let scarce = split.filter(|(members, (limit, whole))| {
            let mut rules = whole.iter().flat_map(Allowed::rules);
            matches!(limit.strategy, Strategy::Split(_)) && rules.any(|rule| rule.share(*members).is_err())
        });
        scarce.map(|(_, (limit, _))| &*limit.name)
    }

    /// This policy at `now` by the wall clock; `None` if no ramp has made a step since its numbers.
    pub fn ramped(&self, now: Timestamp) -> Option<Self> {
        let mut ramps = self.limits.iter().filter_map(|limit| Some((limit.ramp.as_ref()?, limit.ramp_steps)));
        let is_behind = ramps.any(|(ramp, reached)| ramp.reached(now) != reached);
        let shares = self.shares.clone().filter(|_| is_behind)?;
        Some(self.with_shares(shares, Some(now)))
    }

    /// The next step of a ramp after `now`.
    pub fn next_step(&self, now: Timestamp) -> Option<Timestamp> {
        self.limits.iter().filter_map(|limit| limit.ramp.as_ref()?.next(now)).min()
    }

    /// The rules of `shares`, at `now` or as far along their ramps as before.
    fn with_shares(&self, shares: Shares, now: Option<Timestamp>) -> Self {
        let limits = self.limits.iter().zip(&*shares.whole).map(|(limit, whole)| {
            let reached = limit.ramp.as_ref().zip(now).map_or(limit.ramp_steps, |(ramp, now)| ramp.reached(now));
            let ramped = whole.as_ref().map(|whole| match &limit.ramp {
                Some(ramp) => whole.scaled(ramp.scale(reached)),
                None => whole.clone(),
            });
            let is_split = matches!(limit.strategy, Strategy::Split(_));
            let share = match (ramped, shares.members.filter(|_| is_split)) {
                (Some(whole), Some(members)) => Some(whole.shared(members)),
                (ramped, _) => ramped,
            };
            let allowed = share.unwrap_or_else(|| limit.allowed.clone());
            let strategy = shares.members.map_or(limit.strategy, |members| limit.strategy.with_replicas(members));
            Limit { allowed, ramp_steps: reached, strategy, ..limit.clone() }
        });
        let shared = Self::new(limits.collect(), Arc::clone(&self.identities), self.client_ip.clone());
        Self {
            free_preflights: self.free_preflights.clone(),
            paths: self.paths,
            access: self.access.clone(),
            plans: self.plans.clone(),
            identity_headers: Arc::clone(&self.identity_headers),
            priorities: self.priorities.clone(),
            overload: self.overload,
            beyond_limits: self.beyond_limits,
            descriptors: self.descriptors.clone(),
            shares: Some(shares),
            ..shared
        }
    }
}

impl Allowed {
    /// All rules, without those of keys and plans that are unlimited.
    pub fn rules(&self) -> impl Iterator<Item = &Algorithm> {
        let special = self.plans.iter().chain(&self.overrides).filter_map(|(_, rule)| rule.as_ref());
        std::iter::once(&self.usual).chain(special)
    }

    /// All rules times `scale`. A rule that is too slow for its algorithm admits nothing.
    fn scaled(&self, scale: Scale) -> Self {
        let nothing = Scale { numerator: 0, ..scale };
        let scaled = |rule: &Algorithm| rule.scaled(scale).or_else(|_| rule.scaled(nothing));
        let mut allowed = self.map(|rule| scaled(rule).unwrap_or_else(|_| rule.clone()));
        if scale.numerator != scale.denominator {
            allowed.written = allowed.written.scaled(scale);
        }
        allowed
    }

    /// The share of one of `replicas`. A rule with fewer units has one.
    pub fn shared(&self, replicas: u64) -> Self {
        self.map(|rule| share(rule, replicas))
    }

    /// These rules, each changed by `change`.
    fn map(&self, change: impl Fn(&Algorithm) -> Algorithm) -> Self {
        let all = |rules: &[(Box<str>, Option<Algorithm>)]| {
            rules.iter().map(|(name, rule)| (name.clone(), rule.as_ref().map(&change))).collect()
        };
        Self { usual: change(&self.usual), plans: all(&self.plans), overrides: all(&self.overrides), ..self.clone() }
    }
}

/// The share of one of `members`. If a rule has fewer units than members, the share has one.
fn share(rule: &Algorithm, members: u64) -> Algorithm {
    let share = (1..=members).rev().find_map(|members| rule.share(members).ok());
    share.unwrap_or_else(|| rule.clone())
}

#[cfg(test)]
mod tests;
