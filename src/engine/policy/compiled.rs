//! The compiled policy: limits, identities and access lists, prepared for lookups.

use std::sync::Arc;

use http::{HeaderName, Method};

use super::access::Access;
use super::allowed::{Shares, Variant};
use super::client_api::ClientApi;
use super::descriptors::Descriptors;
use super::facts::Facts;
use super::identity::api_keys::ApiKeys;
use super::identity::client_ip::ClientIpRules;
use super::identity::identity_header::{IdentityHeader, IdentityValue};
use super::identity::jwt::FetchedKeys;
use super::identity::sources::{Identity, IdentitySource, OnMissing};
use super::keys::part::KeyPart;
use super::limit::{Limit, Mode, OnLimit, Stage};
use super::matching::matcher::Matcher;
use super::matching::path;
use super::overload::Overload;
use super::plan::PlanSource;
use super::priority::Priorities;
use super::refusal_log_rules::RefusalLogRules;
use crate::engine::limit::Algorithm;
use crate::engine::units::RequestPointers;

/// All rules for requests, as configured.
#[derive(Debug)]
pub struct Policy {
    pub(super) limits: Vec<Limit>,
    /// The traits of each limit, in the order of `limits`.
    pub(super) traits: Vec<LimitTraits>,
    /// The matcher of each stage. It leaves out limits that are off.
    pub(super) matchers: [Matcher; 2],
    /// The matcher of limits that need an identity and may not decide: limits that are off, select or exempt clients, or look
    /// at bodies.
    pub(super) guards: Matcher,
    /// The identities; [`KeyPart::Identity`] has an index into them.
    pub identities: Arc<[Identity]>,
    /// The rules for the client's address.
    pub client_ip: ClientIpRules,
    /// The rate of free CORS preflights for each client address; `None` if limits charge all of them.
    pub free_preflights: Option<Algorithm>,
    /// The path under which clients see their own limits; `None` if there is none.
    pub client_api: Option<Arc<ClientApi>>,
    /// The bounds on kept refusals.
    pub refusal_log: RefusalLogRules,
    /// The rules for reading paths.
    pub paths: path::PathRules,
    /// The access lists.
    pub access: Option<Arc<Access>>,
    /// The source of the plan of a request.
    pub plans: Option<PlanSource>,
    /// The headers in which services get identities and the plan.
    pub identity_headers: Arc<[IdentityHeader]>,
    /// The rules for priorities; `None` if all requests have the same.
    pub priorities: Option<Arc<Priorities>>,
    /// The bounds beyond which requests are shed.
    pub overload: Option<Overload>,
    /// [`Policy::looks_beyond_limits`] for requests that limits decide about, and for free ones.
    pub(super) beyond_limits: [bool; 2],
    /// The limits of callers that have no request. Its indices are those of the limits.
    pub descriptors: Descriptors,
    /// The rules before they are shared and scaled; `None` if no limit follows the members of the fleet, a ramp or a signal.
    pub(super) shares: Option<Shares>,
    /// The indexes of limits whose overrides assign plans.
    pub assigning: Box<[usize]>,
    /// What limits read of bodies of requests; `None` if they read none.
    pub body_pointers: Option<Box<RequestPointers>>,
}

/// Properties of a limit that do not depend on a request.
#[derive(Clone, Copy, Debug)]
pub struct LimitTraits {
    /// The limit matches by the path alone.
    path_only: bool,
    /// Limits with equal numbers have equal keys for each request.
    pub keyed_as: usize,
    /// The limit holds, delays or bans, has rules for plans or single keys, or has its state in a store.
    pub is_unusual: bool,
}

/// A limit that applies to a request.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'p> {
    /// The index in [`Policy::limits`].
    pub index: usize,
    /// The limit.
    pub limit: &'p Limit,
    /// The traits of the limit.
    pub traits: &'p LimitTraits,
    /// The pattern of `match.path` that matched, as written; empty without `match.path`.
    pub route: &'p str,
}

impl Policy {
    /// A policy with `limits` in this order.
    pub fn new(limits: Vec<Limit>, identities: impl Into<Arc<[Identity]>>, client_ip: ClientIpRules) -> Self {
        let traits = (0..limits.len()).map(|index| LimitTraits::of(&limits, index)).collect();
        let matchers = [Stage::Arrival, Stage::Identified].map(|stage| matcher(&limits, stage));
        let guards = guards(&limits);
        let (free_preflights, paths, access, plans) = (None, path::PathRules::default(), None, None);
        let (body_pointers, assigning) = (body_pointers(&limits), assigning(&limits));
        let (identities, descriptors, shares) = (identities.into(), Descriptors::default(), None);
        let policy = Self {
            limits,
            traits,
            matchers,
            guards,
            identities,
            client_ip,
            free_preflights,
            client_api: None,
            refusal_log: RefusalLogRules::default(),
            paths,
            access,
            plans,
            identity_headers: Arc::default(),
            priorities: None,
            overload: None,
            beyond_limits: [false; 2],
            descriptors,
            shares,
            assigning,
            body_pointers,
        };
        policy.with_beyond_limits()
    }

    /// Sets the access lists and the source of plans.
    pub fn with_access(self, access: Option<Access>, plans: Option<PlanSource>) -> Self {
        Self { access: access.map(Arc::new), plans, ..self }.with_beyond_limits()
    }

    /// The headers from which identities and the plan are read.
    pub fn read_headers(&self) -> impl Iterator<Item = &HeaderName> {
        let plan = self.plans.iter().filter_map(|source| match source {
            PlanSource::Header(name) => Some(name),
            PlanSource::Claim(_) => None,
        });
        self.identities.iter().filter_map(|identity| identity.source.header()).chain(plan)
    }

    /// Sets the headers in which services get identities and the plan. Services get no header of API keys, unless it is
    /// to be forwarded.
    pub fn with_identity_headers(self, mut headers: Vec<IdentityHeader>) -> Self {
        for identity in &*self.identities {
            let IdentitySource::ApiKeys { header, is_forwarded: false, .. } = &identity.source else { continue };
            if !headers.iter().any(|known| known.is_read_from(header.as_str().as_bytes())) {
                headers.push(IdentityHeader { name: header.clone(), value: IdentityValue::Removed });
            }
        }
        Self { identity_headers: headers.into(), ..self }
    }

    /// Sets the rules for priorities, and the bounds beyond which requests are shed.
    pub fn with_priorities(self, priorities: Option<Priorities>, overload: Option<Overload>) -> Self {
        Self { priorities: priorities.map(Arc::new), overload, ..self }.with_beyond_limits()
    }

    fn with_beyond_limits(self) -> Self {
        let beyond_limits = |is_free: bool| {
            !self.guards.is_empty()
                || is_free && (!self.identities.is_empty() || self.plans.is_some())
                || self.access.as_ref().is_some_and(|access| access.looks_beyond_arrival())
                || self.overload.is_some()
        };
        Self { beyond_limits: [false, true].map(beyond_limits), ..self }
    }

    /// Sets for all limits whether responses list their rates. They list those that retire in any case.
    pub fn with_listed(mut self, is_listed: bool) -> Self {
        self.limits.iter_mut().for_each(|limit| limit.is_listed = is_listed || limit.retires());
        self
    }

    /// All limits, also limits that are off.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The names of limits that operators and callers can name, in order: all but candidates, which are the last ones.
    pub fn nameable_limits(&self) -> impl Iterator<Item = &str> {
        self.limits.iter().filter(|limit| limit.candidate_of.is_none()).map(|limit| &*limit.name)
    }

    /// The fetched keys of identities, each with the name of its identity.
    pub fn fetched_keys(&self) -> impl Iterator<Item = (&str, &FetchedKeys)> {
        self.identities.iter().filter_map(|identity| match &identity.source {
            IdentitySource::Jwt { verifier, .. } => Some((&*identity.name, verifier.fetched()?)),
            _ => None,
        })
    }

    /// The API keys of identities, each with the name of its identity.
    pub fn api_keys(&self) -> impl Iterator<Item = (&str, &ApiKeys)> {
        self.identities.iter().filter_map(|identity| match &identity.source {
            IdentitySource::ApiKeys { keys, .. } => Some((&*identity.name, &**keys)),
            _ => None,
        })
    }

    /// Whether a limit has a rule for this plan.
    pub fn has_plan(&self, plan: &str) -> bool {
        self.limits.iter().any(|limit| limit.allowed.plan(plan) != Variant::Usual)
    }

    /// The limit of this name, as if it applied to a request.
    pub fn by_name(&self, name: &str) -> Option<Applied<'_>> {
        self.at(self.limits.iter().position(|limit| *limit.name == *name)?)
    }

    /// The limit at `index`, as if it applied to a request.
    pub fn at(&self, index: usize) -> Option<Applied<'_>> {
        Some(Applied { index, limit: self.limits.get(index)?, traits: self.traits.get(index)?, route: "" })
    }

    /// Whether the arrival stage has limits.
    pub fn has_arrival(&self) -> bool {
        !self.matchers[Stage::Arrival as usize].is_empty()
    }

    /// Calls `each` with every limit of `stage` that applies to the request, in no defined order.
    #[inline]
    pub fn for_each_applied<'p>(&'p self, stage: Stage, facts: &Facts<'_>, each: impl FnMut(Applied<'p>)) {
        self.for_each_fitting(stage, facts, |limit| limit.applies_beyond_path(facts), each);
    }

    /// Calls `each` with every limit of `stage` whose path, and whose preflights, are those of the request, and that
    /// `fits`.
    #[inline]
    pub(super) fn for_each_fitting<'p>(
        &'p self,
        stage: Stage,
        facts: &Facts<'_>,
        fits: impl Fn(&Limit) -> bool,
        mut each: impl FnMut(Applied<'p>),
    ) {
        self.matchers[stage as usize].for_each_candidate(facts, |leaf| {
            let index = leaf.number;
            let (limit, traits) = (&self.limits[index], &self.traits[index]);
            if facts.is_free_preflight && self.frees(limit, facts) {
                return;
            }
            if traits.path_only || fits(limit) {
                each(Applied { index, limit, traits, route: limit.matches.route(leaf.pattern) });
            }
        });
    }

    /// Whether identities may have to be verified that no deciding limit needs, or the request may be shed. `is_free` says
    /// that no limit decides about the request.
    #[inline]
    pub fn looks_beyond_limits(&self, is_free: bool) -> bool {
        self.beyond_limits[usize::from(is_free)]
    }

    /// Calls `each` with every limit that guards the request, but may not decide about it: it is off, selects or exempts
    /// clients, or looks at bodies.
    pub fn for_each_guard<'p>(&'p self, facts: &Facts<'_>, mut each: impl FnMut(&'p Limit)) {
        self.guards.for_each_candidate(facts, |leaf| {
            let limit = &self.limits[leaf.number];
            if limit.guards_beyond_path(facts) && !(facts.is_free_preflight && self.frees(limit, facts)) {
                each(limit);
            }
        });
    }

    /// Whether a free CORS preflight is exempt from `limit`. Limits of the arrival stage and limits that name OPTIONS
    /// charge it. Concurrency limits charge it too, unless they would answer 401: a preflight has no credentials.
    #[cold]
    pub(super) fn frees(&self, limit: &Limit, preflight: &Facts<'_>) -> bool {
        let names_options = || limit.matches.methods.contains(&Method::OPTIONS) || limit.cost.names_options(preflight);
        let is_held = || matches!(limit.allowed.usual, Algorithm::Concurrency(_)) && !self.rejects_anonymous(limit);
        limit.stage == Stage::Identified && !names_options() && !is_held()
    }

    /// Whether `limit` rejects requests without an identity.
    fn rejects_anonymous(&self, limit: &Limit) -> bool {
        let rejects =
            |index: &usize| self.identities.get(*index).is_some_and(|one| one.on_missing == OnMissing::Reject);
        let by_plan = matches!(&self.plans, Some(PlanSource::Claim(index)) if rejects(index));
        limit.key.iter().any(|part| matches!(part, KeyPart::Identity(index) if rejects(index)))
            || by_plan && limit.allowed.has_plans()
    }
}

/// The indexes of limits whose overrides assign plans.
fn assigning(limits: &[Limit]) -> Box<[usize]> {
    let all = limits.iter().enumerate().filter(|(_, limit)| !limit.allowed.assigned.is_empty());
    all.map(|(index, _)| index).collect()
}

/// The pointers of all limits into bodies of requests.
fn body_pointers(limits: &[Limit]) -> Option<Box<RequestPointers>> {
    RequestPointers::new(limits.iter().flat_map(Limit::body_pointers)).map(Box::new)
}

/// The matcher of the limits of `stage`, without limits that are off or for callers of the limiter service.
fn matcher(limits: &[Limit], stage: Stage) -> Matcher {
    let is_decided = |limit: &Limit| limit.stage == stage && limit.mode != Mode::Off && !limit.is_for_callers();
    let decided = limits.iter().enumerate().filter(|(_, limit)| is_decided(limit));
    Matcher::of(decided.map(|(index, limit)| (index, &limit.matches)))
}

/// The matcher of limits that need an identity and may not decide about a request.
fn guards(limits: &[Limit]) -> Matcher {
    let selects_clients = |limit: &Limit| !limit.except.networks.is_empty() || !limit.matches.networks.is_empty();
    let may_not_decide =
        |limit: &Limit| limit.mode == Mode::Off || selects_clients(limit) || !limit.matches.json.is_empty();
    let guards = limits.iter().enumerate().filter(|(_, limit)| limit.needs_identity() && may_not_decide(limit));
    Matcher::of(guards.map(|(index, limit)| (index, &limit.matches)))
}

impl LimitTraits {
    fn of(limits: &[Limit], index: usize) -> Self {
        let limit = &limits[index];
        let path_only = limit.matches.is_path_only() && limit.except.is_empty();
        // Two limits may match one request by different patterns.
        let has_own_key = limit.key.iter().any(|part| matches!(part, KeyPart::Route | KeyPart::Parameter(_)));
        let alike = limits[..index].iter().position(|other| !has_own_key && other.key == limit.key);
        let is_special = limit.allowed.is_special() || limit.ban.is_some() || limit.on_limit != OnLimit::Reject;
        let is_unusual = is_special || limit.strategy.is_remote() || limit.is_partly_enforced();
        Self { path_only, keyed_as: alike.unwrap_or(index), is_unusual }
    }
}
