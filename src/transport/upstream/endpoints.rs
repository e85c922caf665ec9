//! One upstream in one worker: a pool for each endpoint, and the choice of the endpoint that gets a request.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::balance::choose::{self, Candidate, Candidates};
use super::balance::ejection::TrafficFraction;
use super::pool::checkout::{Checkout, PooledConnection, Requirements};
use super::pool::endpoint_pool::{Pool, PoolSpec};
use super::pool::queue::{Queue, WorkerNotify};
use super::pool::usage::WorkerRequests;
use super::settings::{Balance, Cap, Upstream};
use super::state::{EndpointState, UNNAMED, UpstreamState};
use crate::base::split_mix::random;
use crate::base::telemetry::{Counter, EndpointResult};
use crate::engine::policy::upgrades::Upgrades;
use crate::engine::policy::{Facts, affinity};
use crate::transport::net::Protocol;
use crate::transport::net::buffer::BufferPool;
use crate::transport::net::proxy_protocol::Version;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Endpoints {
    settings: Upstream,
    connect_timeout: Duration,
    /// In the order of the configuration; at least one.
    pools: Vec<Rc<Pool>>,
    /// The index at which round robin continues.
    turn: Cell<usize>,
    queue: Arc<Queue>,
    worker: WorkerNotify,
    worker_requests: Rc<WorkerRequests>,
    broken_answers: Counter,
    untaken_answers: Counter,
    buffers: Rc<BufferPool>,
}

/// What a worker's upstreams share.
#[derive(Debug)]
pub(crate) struct WorkerResources {
    pub(crate) broken_answers: Counter,
    pub(crate) untaken_answers: Counter,
    pub(crate) buffers: Rc<BufferPool>,
    pub(crate) worker: WorkerNotify,
    pub(crate) requests: Rc<WorkerRequests>,
}

impl Endpoints {
    /// One worker's pools for the endpoints in `state`. Pools of `before` whose settings stay are kept.
    pub(crate) fn new(
        settings: &Upstream,
        state: &UpstreamState,
        connect_timeout: Duration,
        before: Option<&Self>,
        resources: &WorkerResources,
    ) -> Self {
        let queue = &state.queue;
        queue.register(&resources.worker);
        let known = before.map_or(&[][..], |before| &before.pools);
        let pool = |state: &Arc<EndpointState>| {
            let &Upstream { max_idle, idle_timeout, protocol, .. } = settings;
            let (endpoint, tls) = (state.endpoint.clone(), settings.tls.clone());
            let spec = PoolSpec { endpoint, tls, protocol, max_idle, idle_timeout, connect_timeout };
            if let Some(same) = known.iter().find(|pool| pool.spec == spec && Arc::ptr_eq(&pool.state, state)) {
                return Rc::clone(same);
            }
            let (worker, buffers) = (Arc::clone(&resources.worker), Rc::clone(&resources.buffers));
            Rc::new(Pool::new(spec, Arc::clone(state), Arc::clone(queue), worker, buffers))
        };
        let pools = state.endpoints.iter().map(pool).collect();
        let endpoints = Self {
            settings: settings.clone(),
            connect_timeout,
            pools,
            turn: Cell::new(before.map_or(0, |before| before.turn.get())),
            queue: Arc::clone(queue),
            worker: Arc::clone(&resources.worker),
            worker_requests: Rc::clone(&resources.requests),
            broken_answers: resources.broken_answers.clone(),
            untaken_answers: resources.untaken_answers.clone(),
            buffers: Rc::clone(&resources.buffers),
        };
        queue.set_capacity(endpoints.request_capacity());
        endpoints
    }

    /// Whether [`Endpoints::new`] with these arguments would make an equal value.
    pub(crate) fn is_same(&self, settings: &Upstream, state: &UpstreamState, connect_timeout: Duration) -> bool {
        let mut states = self.pools.iter().map(|pool| &pool.state);
        self.settings == *settings
            && self.connect_timeout == connect_timeout
            && state.endpoints.iter().all(|state| states.next().is_some_and(|known| Arc::ptr_eq(known, state)))
            && states.next().is_none()
    }

    /// The name in the configuration; none for `[upstream]`.
    pub(crate) fn name(&self) -> Option<&str> {
        self.settings.name.as_deref()
    }

    /// Its name in metrics and logs.
    pub(crate) fn label(&self) -> &str {
        self.name().unwrap_or(UNNAMED)
    }

    /// The hash that selects the endpoint of a request; 0 unless the upstream balances by hash.
    pub(crate) fn affinity(&self, facts: &Facts<'_>) -> u64 {
        match &self.settings.balance {
            Balance::Hash(part) => affinity::affinity(part, facts),
            _ => 0,
        }
    }

    /// Whether the endpoint's host replaces the client's `Host`.
    pub(crate) fn rewrites_host(&self) -> bool {
        self.settings.rewrite_host
    }

    /// The version of the PROXY header with which connections begin; none if they begin without.
    pub(crate) fn proxy_protocol(&self) -> Option<Version> {
        self.settings.proxy_protocol
    }

    /// The protocols to which clients may change, unless their route names others.
    pub(crate) fn upgrades(&self) -> &Upgrades {
        &self.settings.upgrades
    }

    /// The bounds on connections and on the queue.
    pub(super) fn cap(&self) -> &Cap {
        &self.settings.cap
    }

    /// The number of requests that the upstream can have at once, as far as `max_connections` bounds it. None if that
    /// bound is no lower than the process ceiling, which bounds clients too.
    pub(super) fn request_capacity(&self) -> Option<usize> {
        let (max_connections, ceiling) = (self.cap().max_connections?, self.queue.ceiling.max());
        let connections = max_connections.saturating_mul(self.pools.len());
        if !self.is_shared() {
            return Some(connections).filter(|connections| *connections < ceiling);
        }
        let streams = self.pools.iter().map(|pool| pool.h2.expected_streams()).max()?;
        Some(connections.min(ceiling).saturating_mul(streams))
    }

    /// The connections that the endpoints which get traffic may have; 0 if requests share connections.
    pub(super) fn usable_connections(&self) -> usize {
        let usable = if self.is_shared() { 0 } else { self.in_use().count() };
        usable.saturating_mul(self.cap().most())
    }

    /// The endpoints that get traffic: those that are neither drained nor out, or else all that are not drained.
    fn in_use(&self) -> impl Iterator<Item = &Rc<Pool>> {
        let is_drained = |pool: &Rc<Pool>| pool.state.is_draining();
        let all_are_out = self.pools.iter().all(|pool| is_drained(pool) || self.is_out(pool));
        self.pools.iter().filter(move |pool| !is_drained(pool) && (all_are_out || !self.is_out(pool)))
    }

    /// Whether an endpoint is unhealthy or ejected.
    fn is_out(&self, pool: &Pool) -> bool {
        pool.state.traffic(self.settings.eject) == TrafficFraction::Nothing
    }

    /// Whether endpoints other than those at `attempted` get traffic.
    pub(super) fn has_others(&self, attempted: &[usize]) -> bool {
        self.in_use().any(|pool| !attempted.iter().any(|index| Rc::ptr_eq(pool, &self.pools[*index])))
    }

    /// Whether requests share its connections.
    pub(super) fn is_shared(&self) -> bool {
        self.settings.protocol == Protocol::H2
    }

    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    pub(super) fn worker_requests(&self) -> &Rc<WorkerRequests> {
        &self.worker_requests
    }

    pub(super) fn worker(&self) -> &WorkerNotify {
        &self.worker
    }

    pub(super) fn pools(&self) -> &[Rc<Pool>] {
        &self.pools
    }

    /// The buffers of the worker's connections.
    pub(super) fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    /// Records the outcome of a request at an endpoint. `failure` says why the request failed.
    pub(super) fn record(&self, pool: &Pool, reached: EndpointResult, failure: impl FnOnce() -> String) {
        pool.state.count(reached, self.settings.eject, failure);
    }

    /// An open connection to the endpoint at `index` that meets the requirements. A stream is never exclusive: requests of
    /// several clients share its connection.
    pub(super) fn open_connection(&self, index: usize, requirements: &Requirements) -> Option<Checkout> {
        let pool = &self.pools[index];
        let connection = if pool.is_shared() {
            pool.stream().map(PooledConnection::H2)
        } else if requirements.is_exclusive {
            None
        } else {
            pool.take().map(PooledConnection::H1)
        };
        connection.map(|connection| self.checked_out(connection, index))
    }

    /// The connection that is pinned to the client's connection, if it leads to this upstream.
    pub(super) fn pinned_connection(&self, requirements: &Requirements) -> Option<Checkout> {
        let (index, pinned) = requirements.pin.as_ref()?.take(&self.pools)?;
        if self.pools[index].state.is_draining() {
            return None;
        }
        Some(Checkout::pinned(pinned, &self.pools[index], index, self.counts_in_flight()))
    }

    pub(super) fn checked_out(&self, connection: PooledConnection, index: usize) -> Checkout {
        Checkout::new(connection, &self.pools[index], index, self.counts_in_flight())
    }

    /// Whether the balancing needs the number of active requests of each endpoint.
    fn counts_in_flight(&self) -> bool {
        matches!(self.settings.balance, Balance::LeastConnections | Balance::P2c)
    }

    /// The index of the endpoint that gets the next request, other than those at `attempted`. None if no endpoint has
    /// capacity, or if operators drain all others.
    pub(super) fn choose(&self, affinity: u64, attempted: &[usize]) -> Option<usize> {
        match &*self.pools {
            [only] => (!only.state.is_draining()).then_some(0),
            _ => self.choose_among(affinity, attempted),
        }
    }

    /// Whether each endpoint is drained or at `attempted`.
    pub(super) fn is_exhausted(&self, attempted: &[usize]) -> bool {
        let mut pools = self.pools.iter().enumerate();
        pools.all(|(index, pool)| pool.state.is_draining() || attempted.contains(&index))
    }

    /// [`Endpoints::choose`] for several endpoints.
    #[inline(never)]
    pub(super) fn choose_among(&self, affinity: u64, attempted: &[usize]) -> Option<usize> {
        let candidate = |(index, pool): (usize, &Rc<Pool>)| {
            let state = &pool.state;
            Candidate { index, in_flight: state.in_flight(), id: state.id, preference: state.preference() }
        };
        let may_get = |(index, pool): &(usize, &Rc<Pool>)| !pool.state.is_draining() && !attempted.contains(index);
        let others = || self.pools.iter().enumerate().filter(may_get);
        let mut candidates: Candidates = others().filter(|(_, pool)| self.takes_part(pool)).map(candidate).collect();
        if candidates.is_empty() {
            // Those that get part of their traffic.
            candidates = others().filter(|(_, pool)| !self.is_out(pool)).map(candidate).collect();
        }
        if candidates.is_empty() {
            // If all endpoints are out, a request to any of them cannot make it worse.
            candidates = others().map(candidate).collect();
        }
        let first = candidates.first()?.preference;
        let has_preferences = candidates.iter().any(|candidate| candidate.preference != first);
        if has_preferences {
            choose::retain_lowest_priority(&mut candidates);
        }
        if self.is_bounded() {
            candidates.retain(|candidate| self.pools[candidate.index].has_capacity(self.cap()));
        }
        let turn = self.turn.get();
        let chosen = match self.settings.balance {
            Balance::RoundRobin if has_preferences => choose::by_weight(&candidates, turn, random()),
            Balance::RoundRobin => choose::round_robin(&candidates, turn),
            Balance::LeastConnections => choose::least_loaded(&candidates, turn),
            Balance::P2c => choose::less_loaded_of_two(&candidates, random()),
            Balance::Hash(_) => choose::rendezvous(&candidates, affinity),
        };
        let index = chosen?;
        self.turn.set(index + 1);
        Some(index)
    }

    /// Whether its endpoints have `max_connections`, so that one may be full while another is not.
    pub(super) fn is_bounded(&self) -> bool {
        self.cap().max_connections.is_some()
    }

    /// Whether an endpoint is a candidate. It is one at random if it gets only part of its traffic.
    fn takes_part(&self, pool: &Pool) -> bool {
        let part = match pool.state.traffic(self.settings.eject) {
            TrafficFraction::Full => return true,
            TrafficFraction::Of256(part) => part,
            TrafficFraction::Nothing => return false,
        };
        // An endpoint that returns has the fewest requests, so it wins all choices in which it takes part. These are as
        // many times its share of the requests: of n endpoints one in n, of pairs two in n.
        let advantage = match self.settings.balance {
            Balance::LeastConnections => self.in_use().count().max(1) as u64,
            Balance::P2c => 2,
            Balance::RoundRobin | Balance::Hash(_) => 1,
        };
        random() % (256 * advantage) < part
    }

    /// Counts a response that the upstream broke off.
    pub(super) fn count_broken(&self, cause: &str) {
        self.broken_answers.inc();
        tracing::debug!(upstream = self.label(), cause, "the upstream broke off within its answer");
    }

    /// Counts a response that the client did not read in time.
    pub(super) fn count_untaken(&self) {
        self.untaken_answers.inc();
        tracing::debug!(upstream = self.label(), "the client did not read its answer in time");
    }

    /// Closes connections for waiters of other workers and of other upstreams. A waiter of this upstream needs one to an
    /// endpoint that gets traffic.
    pub(crate) fn release_connections(&self) {
        let waiting = self.queue.waiting_elsewhere(&self.worker);
        if waiting > 0 {
            close_up_to(self.in_use(), waiting, Pool::close_one);
        }
        close_up_to(self.pools.iter(), self.queue.ceiling.waiting(), Pool::close_one_idle);
    }

    /// Closes the pools that no upstream of `next` uses.
    pub(crate) fn close_unused(&self, next: &[Rc<Self>]) {
        let stays = |pool: &Rc<Pool>| next.iter().any(|next| next.pools.iter().any(|other| Rc::ptr_eq(other, pool)));
        for pool in self.pools.iter().filter(|pool| !stays(pool)) {
            pool.close();
        }
    }

    /// Closes connections that have been idle for too long. To be called every [`SWEEP_EVERY`](super::SWEEP_EVERY).
    pub(crate) fn sweep(&self) {
        for pool in &self.pools {
            pool.sweep();
        }
        self.release_connections();
        let waiting = self.queue.waiting() + self.queue.ceiling.waiting();
        close_up_to(self.pools.iter(), waiting, Pool::close_one_pinned);
        // Endpoints may have recovered, or a reload may have raised the bound.
        self.queue.wake_front();
    }
}

/// Calls `close` on the pools in their order until it has closed `count` connections or no pool has any more.
fn close_up_to<'p>(pools: impl Iterator<Item = &'p Rc<Pool>>, count: usize, close: impl Fn(&Pool) -> bool) {
    let mut closed = 0;
    for pool in pools {
        while closed < count && close(pool) {
            closed += 1;
        }
    }
}
