//! Policy and state together: what requests are decided by.
//!
//! The state of a limit outlives its policies. Not here: how a request is decided.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwapOption;

use super::adaptation::Adaptation;
use super::listeners::Listeners;
use super::operator_bans::OperatorBans;
use super::queue::capacity::{Footprint, HoldCapacity, HoldCaps};
use super::queue::jitter::Jitter;
use super::queue::locked::LockedQueues;
use super::rate_adaptation::RateAdaptation;
use super::refusal_log::RefusalLog;
use super::streamed::Streamed;
use super::top_keys::{RefusedKeys, RefusedNetworks};
use crate::base::telemetry::{LimitMetrics, Metrics};
use crate::base::time::{Clock, Timestamp};
use crate::engine::limit::{Algorithm, BACKDATE_NS_MAX, Key};
use crate::engine::policy::jwt::Claimed;
use crate::engine::policy::{Applied, Facts, KeySecret, Limit, Mode, Policy, Strategy, Variant};
use crate::engine::store::stream::Link;
use crate::engine::store::{Bans, RemoteLimit, RemoteStore, Table, TokenCache};

/// The state that outlives every policy: the keys' secret, the state of all limits, and waiting requests.
#[derive(Debug)]
pub struct Gate {
    pub(super) clock: Clock,
    pub(super) secret: KeySecret,
    pub(super) metrics: Arc<Metrics>,
    /// The next rank of a waiting request.
    pub(super) ranks: AtomicU64,
    pub(super) capacity: HoldCapacity,
    /// The level of shedding.
    pub(super) overload: AtomicU64,
    /// The delays of questions to stores, and the random choice of shed requests.
    pub(super) jitter: Jitter,
    /// CORS preflights by client address; made for the first preflight.
    pub(super) preflights: OnceLock<Table>,
    /// Requests for the limits of clients by their addresses; made for the first such request.
    pub(super) own_limits_asked: OnceLock<Table>,
    closed: AtomicBool,
    pub(super) listeners: Arc<Listeners>,
    pub(super) operator_bans: Arc<OperatorBans>,
    /// The networks of clients whose requests limits and bans refused or held.
    pub(super) refused_networks: RefusedNetworks,
    pub(super) refusal_log: Arc<RefusalLog>,
    /// By name. The lock is taken when a policy is installed and by sweeps, never by a request.
    pub(super) states: Mutex<HashMap<Box<str>, Arc<LimitState>>>,
}

/// One policy with the state of its limits. Immutable; replaced as a whole by a reload.
#[derive(Debug)]
pub struct Live {
    /// The policy.
    pub policy: Policy,
    /// The state of each limit of the policy, in its order.
    pub(super) states: Vec<Arc<LimitState>>,
    /// How replicas share each limit whose state is in a store, in the order of the limits.
    pub(super) remotes: Vec<Option<Arc<RemoteLimit>>>,
    /// Whether any limit may need the identity or the plan of a request.
    pub(super) needs_identity: bool,
    /// The overrides of each limit, by key.
    pub(super) overrides: Vec<Arc<Overrides>>,
    /// Tokens verified under this policy's keys.
    pub tokens: Arc<TokenCache<Claimed>>,
    pub(super) caps: HoldCaps,
}

/// The rules that a limit has for single keys.
type Overrides = HashMap<Key, Variant>;

/// A limit of the newest policy. A waiting request finds its rule by key and plan: an index into the rules of an older
/// policy may belong to another key in this one.
#[derive(Debug)]
pub(super) struct Newest {
    limit: Limit,
    /// How replicas share the limit, if its state is in a store.
    pub(super) remote: Option<Arc<RemoteLimit>>,
    overrides: Arc<Overrides>,
    /// The numbers of its plans, by which peers hear of charges; empty if it was never shared by streams.
    pub(super) plan_numbers: Box<[u16]>,
}

impl Deref for Newest {
    type Target = Limit;

    fn deref(&self) -> &Limit {
        &self.limit
    }
}

impl Newest {
    /// The rule for this key and plan.
    pub(super) fn variant(&self, key: Key, plan: Option<&str>) -> Variant {
        variant(&self.limit, &self.overrides, key, plan)
    }

    /// The rule for this key without a plan; `None` if the key has no limit.
    pub(super) fn usual_rule(&self, key: Key) -> Option<&Algorithm> {
        self.limit.allowed.rule(self.variant(key, None))
    }
}

fn variant(limit: &Limit, overrides: &Overrides, key: Key, plan: Option<&str>) -> Variant {
    let special = overrides.get(&key).copied();
    special.unwrap_or_else(|| plan.map_or(Variant::Usual, |plan| limit.allowed.plan(plan)))
}

/// The state in place of an old one, `kept` for the first waiting request; `None` if it was gone by then.
#[derive(Debug)]
pub(super) struct Successor {
    pub(super) state: Weak<LimitState>,
    pub(super) kept: OnceLock<Option<Arc<LimitState>>>,
}

/// The state of one limit, which outlives its policies.
#[derive(Debug)]
pub struct LimitState {
    pub(super) clock: Clock,
    pub(super) name: Box<str>,
    pub(super) table: Table,
    pub(super) queues: Arc<LockedQueues>,
    /// Delayed requests. They have no turns: these queues count them and wake them all.
    pub(super) delays: Arc<LockedQueues>,
    pub(super) bans: Arc<Bans>,
    pub(super) refused: RefusedKeys,
    pub(super) refusal_log: Arc<RefusalLog>,
    pub(super) adaptation: Adaptation,
    pub(super) rate: RateAdaptation,
    pub(super) metrics: LimitMetrics,
    /// The limit of the newest policy, for waiting requests; none once the limit is gone.
    pub(super) newest: ArcSwapOption<Newest>,
    /// The state that has replaced this one, because the limit has another algorithm, for waiting requests.
    pub(super) replaced_by: OnceLock<Successor>,
    /// The store that has the state, according to the last policy that has the limit. The table is its mirror.
    pub(super) remote: ArcSwapOption<RemoteLimit>,
    /// Whether the state persists when the process ends, according to the last policy that has the limit.
    pub(super) persists: AtomicBool,
    pub(super) listeners: Arc<Listeners>,
    /// Present once replicas shared the limit by streams.
    pub(super) streamed: OnceLock<Arc<Streamed>>,
    operator_bans: Arc<OperatorBans>,
    /// Whether an operator bans a key of the limit.
    pub(super) has_operator_bans: AtomicBool,
}

impl Gate {
    /// A gate without a policy, which hashes keys under `secret`.
    pub fn new(clock: Clock, secret: [u8; 16], metrics: Arc<Metrics>) -> Self {
        Self {
            clock,
            secret: KeySecret::new(secret),
            metrics,
            ranks: AtomicU64::new(0),
            capacity: HoldCapacity::default(),
            overload: AtomicU64::default(),
            jitter: Jitter::new(clock.now().as_ns()),
            preflights: OnceLock::new(),
            own_limits_asked: OnceLock::new(),
            closed: AtomicBool::new(false),
            listeners: Arc::default(),
            operator_bans: Arc::default(),
            refused_networks: RefusedNetworks::default(),
            refusal_log: Arc::default(),
            states: Mutex::new(HashMap::new()),
        }
    }

    /// The clock of decisions.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The link between requests and the connections to peers.
    pub fn link(&self) -> &Arc<Link> {
        &self.listeners.link
    }

    /// Installs `policy`, also for waiting requests. No bucket is refilled.
    pub fn install(&self, policy: Policy, caps: HoldCaps, max_tokens: usize) -> Live {
        self.install_with(policy, caps, Arc::new(TokenCache::new(max_tokens)), &[])
    }

    /// Installs `policy` with tokens that were verified under its identities. `stores` are in the order of the
    /// configuration.
    pub fn install_with(
        &self,
        policy: Policy,
        caps: HoldCaps,
        tokens: Arc<TokenCache<Claimed>>,
        stores: &[RemoteStore],
    ) -> Live {
        self.refusal_log.follow(policy.refusal_log);
        let overrides: Vec<_> = policy.limits().iter().map(|limit| Arc::new(self.overrides(limit, &policy))).collect();
        let mut known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let part = |limit: &Limit| Some(known.get(&limit.name)?.rate.follow(limit.adapt?));
        let policy = policy.adapted(|_, limit| part(limit)).unwrap_or(policy);
        let (mut states, mut remotes) = (Vec::new(), Vec::new());
        for (limit, overrides) in policy.limits().iter().zip(&overrides) {
            let new = || {
                self.state(&limit.name, Table::new(&limit.allowed.usual, limit.max_keys, limit.on_full), Arc::default())
            };
            let state = known.entry(limit.name.clone()).or_insert_with(|| Arc::new(new()));
            let mut replaced = None;
            if !state.table.fits(&limit.allowed.usual) {
                state.keep_pending();
                self.end_leases(state, false);
                let next = Arc::new(new().in_place_of(state));
                replaced = Some(std::mem::replace(state, next));
            }
            state.table.set_bound(limit.max_keys, limit.on_full);
            state.show_body_units(limit);
            state.persists.store(limit.persist, Ordering::Relaxed);
            state.queues.set_priorities(policy.priorities.as_ref().map(|rules| rules.min_share_percent));
            state.queues.set_shared(matches!(limit.allowed.usual, Algorithm::FairShare(_)));
            state.adaptation.follow(&limit.allowed.usual, self.clock.now());
            let remote = self.remote(limit, stores).map(Arc::new);
            if let Some(before) = state.remote.swap(remote.clone())
                && !remote.as_ref().is_some_and(|remote| remote.lends_as(&before))
            {
                self.end_leases(state, remote.as_ref().is_some_and(|remote| remote.lease.is_some()));
                if remote.is_none() && limit.allowed.usual.is_released() {
                    state.table.leave_store();
                }
            }
            let plan_numbers = state.follow_strategy(limit, || self.metrics.streamed_units(&limit.name));
            let (limit, overrides) = (limit.clone(), Arc::clone(overrides));
            let newest = Newest { limit, remote: remote.clone(), overrides, plan_numbers };
            state.newest.store(Some(Arc::new(newest)));
            // Only now, so that no waiting request finds a state without a limit.
            if let Some(old) = replaced {
                old.lead_to(state);
            }
            states.push(Arc::clone(state));
            remotes.push(remote);
        }
        self.listeners.set_streams(policy.limits().iter().any(|limit| limit.strategy == Strategy::Stream));
        // Only now, so that no waiting request takes a limit for gone that is not.
        let named: HashSet<&str> = policy.limits().iter().map(|limit| &*limit.name).collect();
        for state in known.values() {
            if !named.contains(&*state.name) {
                state.newest.store(None);
                self.publish_rule(state);
                self.end_leases(state, false);
            }
            state.wake_all();
        }
        let has_plans = policy.limits().iter().any(|limit| limit.allowed.has_plans());
        let needs_identity = has_plans || !policy.identities.is_empty();
        let live = Live { policy, states, remotes, needs_identity, overrides, tokens, caps };
        drop(known);
        self.adopt_operator_bans(&live);
        live
    }

    /// Installs `policy` in the place of that of `before`, which has the same limits and identities.
    pub fn replace(&self, before: &Live, policy: Policy, stores: &[RemoteStore]) -> Live {
        self.install_with(policy, before.caps, Arc::clone(&before.tokens), stores)
    }

    fn remote(&self, limit: &Limit, stores: &[RemoteStore]) -> Option<RemoteLimit> {
        let store = stores.get(limit.strategy.store()?)?.clone();
        let (lease, replicas) = (limit.strategy.lease(), limit.strategy.replicas());
        let metrics = self.metrics.remote_limit(&limit.name, lease.is_some());
        Some(RemoteLimit { name: limit.name.clone(), store, lease, replicas, metrics })
    }

    /// Gives the units that a limit has borrowed back. If the limit goes on with leases, it borrows others.
    fn end_leases(&self, state: &LimitState, goes_on: bool) {
        state.return_leases(true);
        if !goes_on {
            self.metrics.remove_lease_units(&state.name);
        }
    }

    fn overrides(&self, limit: &Limit, policy: &Policy) -> Overrides {
        let (prefixes, identities) = (policy.client_ip.prefixes, &policy.identities);
        let key = |text: &str| self.secret.key_of_text(&limit.key, text, prefixes, identities);
        let keys = limit.allowed.overrides.iter().map(|(text, _)| key(text));
        let variants = (0..=u16::MAX).map(Variant::Override);
        keys.zip(variants).filter_map(|(key, variant)| Some((key?, variant))).collect()
    }

    /// Forgets idle keys, and publishes the number of the others. For a thread that serves no requests.
    pub fn sweep(&self) {
        let now = self.clock.now();
        self.end_operator_bans(now);
        self.refused_networks.0.age(now);
        self.refusal_log.sweep(now);
        // A waiting request may still be decided as of this instant.
        let earliest = now.saturating_sub_ns(BACKDATE_NS_MAX);
        let states: Vec<_> =
            self.states.lock().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect();
        self.preflights.get().map(|table| table.sweep(earliest));
        self.own_limits_asked.get().map(|table| table.sweep(earliest));
        for state in states {
            let idle = state.table.sweep(earliest);
            state.metrics.evicted_idle.inc_by(idle as u64);
            state.sweep_bans(now);
            state.refused.age(now);
            state.publish();
        }
        let mut known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |state: &LimitState| state.table.is_idle(earliest) && state.bans.is_empty();
        known.retain(|_, state| state.newest.load().is_some() || !is_idle(state));
    }

    /// Refuses all waiting requests now, and lets none wait any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().for_each(|state| state.wake_all());
    }

    /// Whether [`Gate::close`] has been called.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Requests that wait now.
    pub fn waiting(&self) -> usize {
        self.capacity.waiting()
    }

    /// The state of a limit that no policy has yet.
    pub(super) fn state(&self, name: &str, table: Table, bans: Arc<Bans>) -> LimitState {
        LimitState {
            clock: self.clock,
            name: name.into(),
            table,
            queues: Arc::default(),
            delays: Arc::default(),
            bans,
            refused: RefusedKeys::default(),
            refusal_log: Arc::clone(&self.refusal_log),
            adaptation: Adaptation::default(),
            rate: RateAdaptation::default(),
            metrics: self.metrics.limit(name),
            newest: ArcSwapOption::empty(),
            replaced_by: OnceLock::new(),
            remote: ArcSwapOption::empty(),
            persists: AtomicBool::new(false),
            listeners: Arc::clone(&self.listeners),
            streamed: OnceLock::new(),
            operator_bans: Arc::clone(&self.operator_bans),
            has_operator_bans: AtomicBool::new(false),
        }
    }
}

impl Live {
    /// The capacity that a request takes while it waits.
    pub(super) fn footprint(&self, facts: &Facts<'_>, head_bytes: usize) -> Footprint {
        Footprint::of(facts, self.policy.client_ip.prefixes, head_bytes)
    }

    /// The override that the limit at `index` has for `key`, if any.
    pub(super) fn special(&self, index: usize, key: Key) -> Option<Variant> {
        self.overrides[index].get(&key).copied()
    }

    /// The rule of a limit for this key and plan.
    pub(super) fn variant(&self, applied: &Applied<'_>, key: Key, plan: Option<&str>) -> Variant {
        variant(applied.limit, &self.overrides[applied.index], key, plan)
    }
}

impl LimitState {
    /// Nanoseconds until the ban of `key`, for which the limit has this mode, ends; `None` if the key is not banned. A ban by
    /// an operator also holds for a key that `enforce` leaves out.
    #[inline]
    pub(super) fn banned_ns(&self, limit: &Limit, mode: Mode, key: Key, now: Timestamp) -> Option<u64> {
        if limit.mode != Mode::Enforce {
            return None;
        }
        let by_limit = if limit.ban.is_some() && mode == Mode::Enforce { self.bans.banned_ns(key, now) } else { None };
        let by_operator = if self.has_operator_bans() { self.operator_bans.key_ns(&self.name, key, now) } else { None };
        by_limit.max(by_operator)
    }

    /// Whether an operator may have banned a key of the limit.
    #[inline]
    pub(super) fn has_operator_bans(&self) -> bool {
        self.has_operator_bans.load(Ordering::Relaxed)
    }

    /// Wakes all requests that wait on the limit, to look at changed circumstances.
    fn wake_all(&self) {
        self.queues.wake_all();
        self.delays.wake_all();
    }
}
