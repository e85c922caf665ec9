//! The compiled policy: all that is decided about requests, prepared for lookups.

use http::Method;

use super::access::Access;
use super::facts::Facts;
use super::identity::client_ip::ClientIpRules;
use super::identity::jwt::FetchedKeys;
use super::identity::sources::{Identity, IdentitySource, OnMissing};
use super::keys::part::KeyPart;
use super::limit::{Limit, Mode, OnLimit, Stage};
use super::matching::conditions::Match;
use super::matching::matcher::Matcher;
use super::matching::path;
use super::plan::PlanSource;
use crate::limit::Algorithm;

/// Everything that is decided about requests, as the configuration says it.
#[derive(Debug)]
pub struct Policy {
    pub(super) limits: Vec<Limit>,
    /// In the order of `limits`.
    pub(super) traits: Vec<LimitTraits>,
    /// Of the limits of each stage, but of those that are off.
    pub(super) matchers: [Matcher; 2],
    /// Who a request says it is from; named by [`KeyPart::Identity`] through its index here.
    pub identities: Vec<Identity>,
    /// Whose address counts as the client's.
    pub client_ip: ClientIpRules,
    /// How many CORS preflights of a client address are free of most limits; `None` if none is.
    pub free_preflights: Option<Algorithm>,
    /// How paths are read.
    pub paths: path::PathRules,
    /// Who is shut out, who is free of limits, and what needs a plan.
    pub access: Option<Box<Access>>,
    /// Where a request's plan is found.
    pub plans: Option<PlanSource>,
}

/// What is known of a limit before any request.
#[derive(Clone, Copy, Debug)]
pub struct LimitTraits {
    /// It looks at nothing but the path.
    path_only: bool,
    /// Two limits for which this is the same number have the same key for one request.
    pub keyed_as: usize,
    /// It may ask for more than to be charged: it holds, delays or bans, or is not the same for all.
    pub is_unusual: bool,
}

/// A limit that applies to a request.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'p> {
    /// Its place in [`Policy::limits`].
    pub index: usize,
    /// The limit.
    pub limit: &'p Limit,
    /// What is known of it anyway.
    pub traits: &'p LimitTraits,
    /// The pattern of its `match.path` that matched, as written; empty if it has none.
    pub route: &'p str,
}

impl Policy {
    /// A policy over `limits`, in the order they are written.
    pub fn new(limits: Vec<Limit>, identities: Vec<Identity>, client_ip: ClientIpRules) -> Self {
        let traits = (0..limits.len()).map(|index| LimitTraits::of(&limits, index)).collect();
        let matchers = [Stage::Arrival, Stage::Identified].map(|stage| matcher(&limits, stage));
        let (free_preflights, paths, access, plans) = (None, path::PathRules::default(), None, None);
        Self { limits, traits, matchers, identities, client_ip, free_preflights, paths, access, plans }
    }

    /// Sets the rate per client address up to which CORS preflights are free; `None` charges all of them.
    pub fn with_free_preflights(self, free_preflights: Option<Algorithm>) -> Self {
        Self { free_preflights, ..self }
    }

    /// Sets the rules by which paths are read.
    pub fn with_paths(self, paths: path::PathRules) -> Self {
        Self { paths, ..self }
    }

    /// Sets the access lists and the source of plans.
    pub fn with_access(self, access: Option<Access>, plans: Option<PlanSource>) -> Self {
        Self { access: access.map(Box::new), plans, ..self }
    }

    /// A policy whose answers list the rates of all limits, or of none.
    pub fn with_listed(mut self, is_listed: bool) -> Self {
        self.limits.iter_mut().for_each(|limit| limit.is_listed = is_listed);
        self
    }

    /// All limits, also those that are off.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The keys of identities that are fetched while this is in force, with the name of the identity.
    pub fn fetched_keys(&self) -> impl Iterator<Item = (&str, &FetchedKeys)> {
        self.identities.iter().filter_map(|identity| match &identity.source {
            IdentitySource::Jwt { verifier, .. } => Some((&*identity.name, verifier.fetched()?)),
            _ => None,
        })
    }

    /// The limit of this name, as one that applies whatever its path.
    pub fn named(&self, name: &str) -> Option<Applied<'_>> {
        let index = self.limits.iter().position(|limit| *limit.name == *name)?;
        Some(Applied { index, limit: self.limits.get(index)?, traits: self.traits.get(index)?, route: "" })
    }

    /// Whether any limit is decided at arrival.
    pub fn has_arrival(&self) -> bool {
        !self.matchers[Stage::Arrival as usize].is_empty()
    }

    /// Calls `each` with every limit of `stage` that applies to the request, in no particular order.
    #[inline]
    pub fn for_each_applied<'p>(&'p self, stage: Stage, facts: &Facts<'_>, mut each: impl FnMut(Applied<'p>)) {
        self.matchers[stage as usize].for_each_path_match(facts.path, |index, route| {
            let (limit, traits) = (&self.limits[index], &self.traits[index]);
            if facts.is_free_preflight && self.frees(limit, facts) {
                return;
            }
            if traits.path_only || limit.applies_beyond_path(facts) {
                each(Applied { index, limit, traits, route });
            }
        });
    }

    /// Whether `limit` does not apply to a free CORS preflight. Limits of the arrival stage and limits that name OPTIONS
    /// apply. Concurrency limits apply too, unless they would answer 401: a preflight has no credentials.
    #[cold]
    pub(super) fn frees(&self, limit: &Limit, preflight: &Facts<'_>) -> bool {
        let names_options = || limit.matches.methods.contains(&Method::OPTIONS) || limit.cost.names_options(preflight);
        let is_held = || matches!(limit.allowed.usual, Algorithm::Concurrency(_)) && !self.rejects_anonymous(limit);
        limit.stage == Stage::Identified && !names_options() && !is_held()
    }

    /// Whether `limit` needs an identity without which requests are rejected.
    fn rejects_anonymous(&self, limit: &Limit) -> bool {
        let rejects =
            |index: &usize| self.identities.get(*index).is_some_and(|one| one.on_missing == OnMissing::Reject);
        let by_plan = matches!(&self.plans, Some(PlanSource::Claim(index)) if rejects(index));
        limit.key.iter().any(|part| matches!(part, KeyPart::Identity(index) if rejects(index)))
            || by_plan && !limit.allowed.plans.is_empty()
    }
}

/// The limits of `stage` by path, but those that are off.
fn matcher(limits: &[Limit], stage: Stage) -> Matcher {
    let is_decided = |limit: &Limit| limit.stage == stage && limit.mode != Mode::Off;
    let decided = limits.iter().enumerate().filter(|(_, limit)| is_decided(limit));
    Matcher::of(decided.map(|(index, limit)| (index, &limit.matches)))
}

impl LimitTraits {
    fn of(limits: &[Limit], index: usize) -> Self {
        let limit = &limits[index];
        let Match { hosts, methods, headers, .. } = &limit.matches;
        let path_only = hosts.is_empty() && methods.is_empty() && headers.is_empty() && limit.except.is_empty();
        // Two limits may match the same request by different patterns.
        let has_own_key = limit.key.contains(&KeyPart::Route);
        let alike = limits[..index].iter().position(|other| !has_own_key && other.key == limit.key);
        let is_unusual = limit.allowed.is_special() || limit.ban.is_some() || limit.on_limit != OnLimit::Reject;
        Self { path_only, keyed_as: alike.unwrap_or(index), is_unusual }
    }
}
