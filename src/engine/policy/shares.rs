//! Rules that follow what changes at run time: the number of members that share limits, the wall clock for ramps, and
//! the signals of limits that adapt.
//!
//! Not here: the number of members (`grpc::fleet`), the steps of a ramp (`ramp`), the signals (`limit::adaptive_rate`), and
//! the states of keys, which a change of it keeps (`gate`).

use std::collections::HashMap;
use std::sync::Arc;

use super::allowed::{Allowed, Shares};
use super::compiled::Policy;
use super::limit::Limit;
use super::strategy::Strategy;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Scale};

impl Policy {
    /// Lets the rules follow ramps and signals, and shares limits by so many members, if their number is known at run time.
    /// All limits must have the rules of the whole fleet, as written.
    pub fn shared_by(self, members: Option<u64>) -> Self {
        let counts_alone = |limit: &Limit| matches!(limit.strategy, Strategy::Local | Strategy::Stream);
        let members = members.map(|members| members.max(1)).filter(|_| !self.limits.iter().all(counts_alone));
        let is_split = |limit: &Limit| matches!(limit.strategy, Strategy::Split(_)) && members.is_some();
        let is_scaled = |limit: &Limit| limit.ramp.is_some() || limit.adapt.is_some();
        let whole = |limit: &Limit| (is_scaled(limit) || is_split(limit)).then(|| limit.allowed.clone());
        if members.is_none() && !self.limits.iter().any(is_scaled) {
            return self;
        }
        let whole = self.limits.iter().map(whole).collect();
        self.with_shares(Shares { members, whole }, |_, _| {})
    }

    /// This policy for another number of members; `None` if the number is the same, or does not matter.
    pub fn resized(&self, members: u64) -> Option<Self> {
        let (shares, before) = (self.shares.as_ref()?, self.members()?);
        let members = members.max(1);
        (before != members).then(|| self.with_shares(Shares { members: Some(members), ..shares.clone() }, |_, _| {}))
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
        Some(self.with_shares(shares, |_, limit| {
            limit.ramp_steps = limit.ramp.as_ref().map_or(limit.ramp_steps, |ramp| ramp.reached(now));
        }))
    }

    /// Whether a limit follows a signal.
    pub fn adapts(&self) -> bool {
        self.limits.iter().any(|limit| limit.adapt.is_some())
    }

    /// This policy with other parts of the numbers of limits that follow a signal, in thousandths; `None` if all are equal.
    pub fn adapted(&self, part: impl Fn(usize, &Limit) -> Option<u64>) -> Option<Self> {
        let adaptive = self.limits.iter().enumerate().filter(|(_, limit)| limit.adapt.is_some());
        let changed = adaptive.filter_map(|(index, limit)| Some((index, part(index, limit)?)));
        let changed: HashMap<usize, u64> =
            changed.filter(|(index, part)| *part != self.limits[*index].adapted).collect();
        let shares = self.shares.clone().filter(|_| !changed.is_empty())?;
        let adapted = |index: usize, limit: &mut Limit| {
            limit.adapted = changed.get(&index).copied().unwrap_or(limit.adapted);
        };
        Some(self.with_shares(shares, adapted))
    }

    /// The next step of a ramp after `now`.
    pub fn next_step(&self, now: Timestamp) -> Option<Timestamp> {
        self.limits.iter().filter_map(|limit| limit.ramp.as_ref()?.next(now)).min()
    }

    /// The rules of `shares`, once `change` has changed each limit.
    fn with_shares(&self, shares: Shares, change: impl Fn(usize, &mut Limit)) -> Self {
        let limits = self.limits.iter().zip(&*shares.whole).enumerate().map(|(index, (before, whole))| {
            let mut limit = before.clone();
            change(index, &mut limit);
            let scaled = whole.as_ref().map(|whole| match limit.scale() {
                Some(scale) => whole.scaled(scale),
                None => whole.clone(),
            });
            let is_split = matches!(limit.strategy, Strategy::Split(_));
            let share = match (scaled, shares.members.filter(|_| is_split)) {
                (Some(whole), Some(members)) => Some(whole.shared(members)),
                (scaled, _) => scaled,
            };
            let strategy = shares.members.map_or(limit.strategy, |members| limit.strategy.with_replicas(members));
            Limit { allowed: share.unwrap_or(limit.allowed), strategy, ..limit }
        });
        let shared = Self::new(limits.collect(), Arc::clone(&self.identities), self.client_ip.clone());
        Self {
            free_preflights: self.free_preflights.clone(),
            client_api: self.client_api.clone(),
            refusal_log: self.refusal_log,
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
