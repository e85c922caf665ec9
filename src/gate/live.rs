//! Policy and state together: what requests are decided by now.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwapOption;

use super::journal::Journal;
use super::line::Line;
use super::refused::RefusedKeys;
use super::room::Size;
use crate::limit::{BACKDATE_NS_MAX, Key};
use crate::policy::KeySecret;
use crate::policy::jwt::Claimed;
use crate::policy::{Applied, Facts, Limit, Policy, Variant};
use crate::store::{Bans, Crowd, Share, Table, TokenCache};
use crate::telemetry::{LimitMetrics, Metrics};
use crate::time::Clock;

/// How much may wait over all limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldCaps {
    /// Of all clients: requests, and bytes of their heads.
    pub all: Share,
    /// Of each.
    pub per_client: Share,
}

/// What outlives every policy: the keys' secret, the state of all limits, and who waits.
#[derive(Debug)]
pub struct Gate {
    pub(super) clock: Clock,
    pub(super) secret: KeySecret,
    pub(super) metrics: Arc<Metrics>,
    pub(super) ranks: AtomicU64,
    pub(super) waiting: AtomicUsize,
    pub(super) waiting_bytes: AtomicUsize,
    pub(super) waiting_clients: Crowd,
    /// Preflights of each client address; made for the first.
    pub(super) preflights: OnceLock<Table>,
    closed: AtomicBool,
    pub(super) journal: Arc<Journal>,
    /// By name. The lock is taken when a policy is installed and by sweeps, never by a request.
    pub(super) states: Mutex<HashMap<Box<str>, Arc<LimitState>>>,
}

/// One policy with the state of its limits. Immutable; replaced whole by a reload.
#[derive(Debug)]
pub struct Live {
    /// What is decided.
    pub policy: Policy,
    /// The state of each limit of the policy, in its order.
    pub(super) states: Vec<Arc<LimitState>>,
    /// Whether any limit may ask who a request is from, or which plan it has.
    pub(super) needs_identity: bool,
    /// The overrides of each limit, by key.
    overrides: Vec<Arc<Overrides>>,
    /// Tokens verified under this policy's keys.
    pub tokens: Arc<TokenCache<Claimed>>,
    pub(super) caps: HoldCaps,
}

/// Which rule a limit has for single keys.
type Overrides = HashMap<Key, Variant>;

/// A limit as the newest policy has it. Who waits finds its rule in it by key and plan: a place among the rules of an
/// older policy may be somebody else's in this one.
#[derive(Debug)]
pub(super) struct Newest {
    limit: Limit,
    overrides: Arc<Overrides>,
}

impl Deref for Newest {
    type Target = Limit;

    fn deref(&self) -> &Limit {
        &self.limit
    }
}

impl Newest {
    /// Which rule the one with this key and plan goes by.
    pub(super) fn variant(&self, key: Key, plan: Option<&str>) -> Variant {
        variant(&self.limit, &self.overrides, key, plan)
    }
}

fn variant(limit: &Limit, overrides: &Overrides, key: Key, plan: Option<&str>) -> Variant {
    let special = overrides.get(&key).copied();
    special.unwrap_or_else(|| plan.map_or(Variant::Usual, |plan| limit.allowed.plan(plan)))
}

/// What outlives a policy of one limit.
#[derive(Debug)]
pub struct LimitState {
    pub(super) clock: Clock,
    pub(super) name: Box<str>,
    pub(super) table: Table,
    pub(super) line: Line,
    /// Who is delayed. Nobody has a turn here: it counts them, and wakes them all.
    pub(super) delays: Line,
    pub(super) bans: Arc<Bans>,
    pub(super) refused: RefusedKeys,
    pub(super) metrics: LimitMetrics,
    /// The limit as the newest policy has it, for those who wait; none once it is gone.
    pub(super) rule: ArcSwapOption<Newest>,
    /// Whether its state is kept when the process ends, as the last policy with it has it.
    pub(super) persists: AtomicBool,
    pub(super) journal: Arc<Journal>,
}

impl Gate {
    /// A gate without a policy, which hashes keys under `secret`.
    pub fn new(clock: Clock, secret: [u8; 16], metrics: Arc<Metrics>) -> Self {
        Self {
            clock,
            secret: KeySecret::new(secret),
            metrics,
            ranks: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            waiting_clients: Crowd::default(),
            preflights: OnceLock::new(),
            closed: AtomicBool::new(false),
            journal: Arc::default(),
            states: Mutex::new(HashMap::new()),
        }
    }

    /// The clock that decisions are made by.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Makes `policy` what is decided from now on, also for those who wait. No bucket is refilled.
    pub fn install(&self, policy: Policy, caps: HoldCaps, max_tokens: usize) -> Live {
        self.install_with(policy, caps, Arc::new(TokenCache::new(max_tokens)))
    }

    /// The same, with tokens that were verified under the same identities.
    pub fn install_with(&self, policy: Policy, caps: HoldCaps, tokens: Arc<TokenCache<Claimed>>) -> Live {
        let prefix = policy.client_ip.ipv6_prefix;
        let overrides: Vec<_> = policy.limits().iter().map(|limit| Arc::new(self.overrides(limit, prefix))).collect();
        let mut known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let mut states = Vec::with_capacity(policy.limits().len());
        for (limit, overrides) in policy.limits().iter().zip(&overrides) {
            let new = |bans| {
                let table = Table::new(&limit.allowed.usual, limit.max_keys, limit.on_full);
                Arc::new(self.state(&limit.name, table, bans))
            };
            let state = known.entry(limit.name.clone()).or_insert_with(|| new(Arc::default()));
            if !state.table.fits(&limit.allowed.usual) {
                // Another algorithm begins anew, but for bans. Who waits on the old one is not stopped by it any more.
                let bans = Arc::clone(&state.bans);
                let old = std::mem::replace(state, new(bans));
                old.rule.store(None);
                old.wake_all();
            }
            state.table.set_bound(limit.max_keys, limit.on_full);
            state.persists.store(limit.persist, Ordering::Relaxed);
            let newest = Newest { limit: limit.clone(), overrides: Arc::clone(overrides) };
            state.rule.store(Some(Arc::new(newest)));
            states.push(Arc::clone(state));
        }
        // Only now, so that nobody who waits finds a limit gone that is not.
        let named: HashSet<&str> = policy.limits().iter().map(|limit| &*limit.name).collect();
        for state in known.values() {
            if !named.contains(&*state.name) {
                state.rule.store(None);
            }
            state.wake_all();
        }
        let limits = policy.limits();
        let has_plans = limits.iter().any(|limit| !limit.allowed.plans.is_empty());
        let needs_identity = has_plans || !policy.identities.is_empty();
        Live { policy, states, needs_identity, overrides, tokens, caps }
    }

    fn overrides(&self, limit: &Limit, ipv6_prefix: u8) -> Overrides {
        let keys =
            limit.allowed.overrides.iter().map(|(text, _)| self.secret.key_of_text(&limit.key, text, ipv6_prefix));
        let variants = (0..=u16::MAX).map(Variant::Override);
        keys.zip(variants).filter_map(|(key, variant)| Some((key?, variant))).collect()
    }

    /// Forgets what is as good as new, and publishes how many keys are left. For a thread without requests.
    pub fn sweep(&self) {
        let now = self.clock.now();
        // A waiting request may still be decided as of this instant.
        let earliest = now.saturating_sub_ns(BACKDATE_NS_MAX);
        let states: Vec<_> =
            self.states.lock().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect();
        self.preflights.get().map(|table| table.sweep(earliest));
        for state in states {
            let idle = state.table.sweep(earliest);
            state.metrics.evicted_idle.inc_by(idle as u64);
            state.bans.sweep(now);
            state.refused.age(now);
            state.publish();
        }
        let mut known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |state: &LimitState| state.table.is_idle(earliest) && state.bans.is_empty();
        known.retain(|_, state| state.rule.load().is_some() || !is_idle(state));
    }

    /// Brings the gauges up to date.
    pub fn publish(&self) {
        let known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().for_each(|state| state.publish());
    }

    /// Lets nobody wait any more: everyone who does is refused now.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().for_each(|state| state.wake_all());
    }

    /// Whether [`Gate::close`] has been called.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Requests waiting now.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// The state of a limit that no policy has yet.
    pub(super) fn state(&self, name: &str, table: Table, bans: Arc<Bans>) -> LimitState {
        LimitState {
            clock: self.clock,
            name: name.into(),
            table,
            line: Line::default(),
            delays: Line::default(),
            bans,
            refused: RefusedKeys::default(),
            metrics: self.metrics.limit(name),
            rule: ArcSwapOption::empty(),
            persists: AtomicBool::new(false),
            journal: Arc::clone(&self.journal),
        }
    }
}

impl Live {
    /// The room that a request takes while it waits.
    pub(super) fn size(&self, facts: &Facts<'_>, head_bytes: usize) -> Size {
        Size::of(facts, self.policy.client_ip.ipv6_prefix, head_bytes)
    }

    /// Which rule the limit at this place has for this key alone, if it has one.
    pub(super) fn special(&self, index: usize, key: Key) -> Option<Variant> {
        self.overrides[index].get(&key).copied()
    }

    /// Which rule of a limit the request with this key and plan goes by.
    pub(super) fn variant(&self, applied: &Applied<'_>, key: Key, plan: Option<&str>) -> Variant {
        variant(applied.limit, &self.overrides[applied.index], key, plan)
    }
}

impl LimitState {
    /// Wakes everyone who waits on it, to look at changed circumstances.
    fn wake_all(&self) {
        self.line.wake_all();
        self.delays.wake_all();
    }

    fn publish(&self) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.keys.set(gauge(self.table.len()));
        self.metrics.banned_keys.set(gauge(self.bans.banned(self.clock.now())));
        self.metrics.overflow.inc_by(self.table.take_overflowed());
    }
}
