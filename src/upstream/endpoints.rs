//! One upstream as one worker has it: a pool for each endpoint, and whose turn it is.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::balance::{self, Candidate, Candidates};
use super::ceiling::Hands;
use super::connection::ConnectError;
use super::ejection::Share;
use super::lease::{Lease, Line, Origin, Wanted};
use super::pool::{Pool, PoolSpec};
use super::queue::{Queue, Slot, WorkerBell};
use super::room::{Room, has_room};
use super::settings::{Balance, Cap, Upstream};
use super::state::{EndpointState, UpstreamState};
use crate::net::Protocol;
use crate::net::buffer::Buffers;
use crate::net::proxy_protocol::Version;
use crate::policy::upgrades::Upgrades;
use crate::policy::{Facts, affinity};
use crate::telemetry::{Counter, EndpointResult};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Endpoints {
    settings: Upstream,
    connect_timeout: Duration,
    /// In the order of the configuration; at least one.
    pools: Vec<Rc<Pool>>,
    /// Some are places of a service, of which the DNS says how much they get.
    is_ranked: bool,
    /// Whose turn it is.
    turn: Cell<usize>,
    /// The state of a random generator.
    chance: Cell<u64>,
    queue: Arc<Queue>,
    worker: WorkerBell,
    hands: Rc<Hands>,
    broken_answers: Counter,
    untaken_answers: Counter,
    buffers: Rc<Buffers>,
}

/// What a worker gives to all of them.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) broken_answers: Counter,
    pub(crate) untaken_answers: Counter,
    pub(crate) buffers: Rc<Buffers>,
    pub(crate) worker: WorkerBell,
    pub(crate) hands: Rc<Hands>,
}

/// Endpoints that one request is tried on. Each may take as long as a connection may take to open.
const TRIES_MAX: usize = 3;

type Tried = smallvec::SmallVec<[usize; TRIES_MAX]>;

impl Endpoints {
    /// Those of `settings`, with the pools of `before` that stay as they are.
    pub(crate) fn new(
        settings: &Upstream,
        state: &UpstreamState,
        connect_timeout: Duration,
        before: Option<&Self>,
        own: &Own,
    ) -> Self {
        let queue = &state.queue;
        queue.register(&own.worker);
        let known = before.map_or(&[][..], |before| &before.pools);
        let pool = |state: &Arc<EndpointState>| {
            let &Upstream { max_idle, idle_timeout, protocol, .. } = settings;
            let (endpoint, tls) = (state.endpoint.clone(), settings.tls.clone());
            let spec = PoolSpec { endpoint, tls, protocol, max_idle, idle_timeout, connect_timeout };
            if let Some(same) = known.iter().find(|pool| pool.spec == spec && Arc::ptr_eq(&pool.state, state)) {
                return Rc::clone(same);
            }
            let (worker, buffers) = (Arc::clone(&own.worker), Rc::clone(&own.buffers));
            Rc::new(Pool::new(spec, Arc::clone(state), Arc::clone(queue), worker, buffers))
        };
        let pools = state.endpoints.iter().map(pool).collect();
        Self {
            settings: settings.clone(),
            connect_timeout,
            is_ranked: state.endpoints.iter().any(|state| state.is_ranked()),
            pools,
            turn: Cell::new(before.map_or(0, |before| before.turn.get())),
            chance: Cell::new(seed()),
            queue: Arc::clone(queue),
            worker: Arc::clone(&own.worker),
            hands: Rc::clone(&own.hands),
            broken_answers: own.broken_answers.clone(),
            untaken_answers: own.untaken_answers.clone(),
            buffers: Rc::clone(&own.buffers),
        }
    }

    /// Whether nothing of it would be different.
    pub(crate) fn is_same(&self, settings: &Upstream, state: &UpstreamState, connect_timeout: Duration) -> bool {
        let mut states = self.pools.iter().map(|pool| &pool.state);
        self.settings == *settings
            && self.connect_timeout == connect_timeout
            && state.endpoints.iter().all(|state| states.next().is_some_and(|known| Arc::ptr_eq(known, state)))
            && states.next().is_none()
    }

    /// Its name in the configuration.
    pub(crate) fn name(&self) -> Option<&str> {
        self.settings.name.as_deref()
    }

    /// What decides where a request goes, if anything of it does.
    pub(crate) fn affinity(&self, facts: &Facts<'_>) -> u64 {
        match &self.settings.balance {
            Balance::Hash(part) => affinity::affinity(part, facts),
            _ => 0,
        }
    }

    /// Whether clients' `Host` is replaced by the endpoint's.
    pub(crate) fn rewrites_host(&self) -> bool {
        self.settings.rewrite_host
    }

    /// With which header connections begin, if with any.
    pub(crate) fn proxy_protocol(&self) -> Option<Version> {
        self.settings.proxy_protocol
    }

    /// What clients may change to, where their route says nothing else.
    pub(crate) fn upgrades(&self) -> &Upgrades {
        &self.settings.upgrades
    }

    /// How many connections each endpoint may have.
    pub(super) fn cap(&self) -> &Cap {
        &self.settings.cap
    }

    /// Whether requests share its connections.
    pub(super) fn is_shared(&self) -> bool {
        self.settings.protocol == Protocol::H2
    }

    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    pub(super) fn hands(&self) -> &Rc<Hands> {
        &self.hands
    }

    pub(super) fn worker(&self) -> &WorkerBell {
        &self.worker
    }

    /// How many endpoints there are.
    pub(super) fn len(&self) -> usize {
        self.pools.len()
    }

    pub(super) fn pool(&self, index: usize) -> &Rc<Pool> {
        &self.pools[index]
    }

    /// The memory of the worker's connections.
    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// An idle connection as it is wanted, or else the place of the endpoint that gets the request; none if it has to
    /// wait for one.
    pub(crate) fn take(&self, wanted: &Wanted) -> Result<Lease, Option<usize>> {
        if self.queue.has_waiters() {
            return Err(None);
        }
        let index = if self.pools.len() > 1 && self.has_bound() {
            self.choose_among(wanted.affinity, &[]).ok_or(None)?
        } else {
            self.choose(wanted.affinity, &[])
        };
        let in_hand = self.begin(wanted).ok_or(Some(index))?;
        self.idle(index, wanted).map(|lease| lease.counted(in_hand)).ok_or(Some(index))
    }

    /// A new connection to the endpoint at `first`, or if that cannot be reached, one to another.
    pub(crate) async fn connect(&self, wanted: &Wanted, first: Option<usize>) -> Result<Lease, ConnectError> {
        // Boxed, because it is rare and larger than all else that a request does.
        Box::pin(async {
            let (in_hand, has_waited) = self.turn(wanted).await?;
            let lease = self.connect_beside(wanted, first, Tried::new()).await?;
            let was_queued = has_waited || lease.was_queued;
            Ok(lease.counted(in_hand).queued(was_queued))
        })
        .await
    }

    /// A connection on which a request goes out once more, to another endpoint than the one at `index` if there is one.
    pub(super) async fn connect_elsewhere(&self, wanted: &Wanted, index: usize) -> Result<Lease, ConnectError> {
        let tried: Tried = Some(index).filter(|_| self.has_others()).into_iter().collect();
        let next = self.choose(wanted.affinity, &tried);
        Box::pin(self.connect_beside(wanted, Some(next), tried)).await
    }

    async fn connect_beside(
        &self,
        wanted: &Wanted,
        mut first: Option<usize>,
        mut tried: Tried,
    ) -> Result<Lease, ConnectError> {
        loop {
            let place = first.take();
            let room = if self.queue.has_waiters() {
                None // nobody is passed by
            } else {
                place.and_then(|index| self.open_at(index, wanted)).or_else(|| self.room(wanted, &tried))
            };
            let was_queued = room.is_none();
            let room = match room {
                Some(room) => room,
                None => self.wait(wanted, &tried).await?,
            };
            let (index, connected) = match room {
                Room::Idle(lease) => return Ok(lease.queued(was_queued)),
                Room::New(index, slot) => (index, self.line(index, slot, wanted).await),
                Room::Soon(index, opening) => (index, self.pools[index].seat_on(&opening).await),
            };
            let error = match connected {
                Ok(Some(line)) => return Ok(self.lease(line, index).queued(was_queued)),
                Ok(None) => continue,
                Err(error) => error,
            };
            let pool = &self.pools[index];
            self.count(pool, EndpointResult::Failed);
            tried.push(index);
            if tried.len() >= TRIES_MAX.min(self.pools.len()) {
                return Err(error);
            }
            tracing::debug!(endpoint = %pool.spec.endpoint, ?error, "cannot connect; trying another endpoint");
        }
    }

    /// A line on a new connection to the endpoint at `index`, which holds `slot`. None if others were faster.
    async fn line(&self, index: usize, slot: Slot, wanted: &Wanted) -> Result<Option<Line>, ConnectError> {
        let pool = &self.pools[index];
        if pool.is_shared() {
            return pool.seat_on(&pool.open_trunk(slot)).await;
        }
        pool.connect(slot, wanted.preamble.as_deref()).await.map(|connection| Some(Line::H1(connection)))
    }

    /// What became of a request at the endpoint of `origin`.
    pub(super) fn judge(&self, origin: &Origin, reached: EndpointResult) {
        self.count(&origin.pool, reached);
    }

    fn count(&self, pool: &Pool, reached: EndpointResult) {
        pool.state.count(reached, self.settings.eject);
    }

    /// An idle connection to the endpoint at `index`, if one will do.
    pub(super) fn idle(&self, index: usize, wanted: &Wanted) -> Option<Lease> {
        if wanted.is_alone {
            return None;
        }
        let pool = &self.pools[index];
        let line = if pool.is_shared() { pool.seat().map(Line::H2) } else { pool.take().map(Line::H1) };
        line.map(|line| self.lease(line, index))
    }

    fn lease(&self, line: Line, index: usize) -> Lease {
        Lease::new(line, &self.pools[index], index, self.is_counted())
    }

    /// Whether it matters how many requests an endpoint has in hand.
    fn is_counted(&self) -> bool {
        matches!(self.settings.balance, Balance::LeastConnections | Balance::P2c)
    }

    /// The place of the endpoint that gets the next request, but those that were tried; there is another.
    fn choose(&self, affinity: u64, tried: &[usize]) -> usize {
        if self.pools.len() == 1 { 0 } else { self.choose_among(affinity, tried).unwrap_or(0) }
    }

    /// The same, if any of them has room.
    #[inline(never)]
    pub(super) fn choose_among(&self, affinity: u64, tried: &[usize]) -> Option<usize> {
        let candidate = |(place, pool): (usize, &Rc<Pool>)| {
            let state = &pool.state;
            Candidate { place, in_flight: state.in_flight(), id: state.id, rank: state.rank() }
        };
        let untried = || self.pools.iter().enumerate().filter(|(place, _)| !tried.contains(place));
        let mut candidates: Candidates = untried().filter(|(_, pool)| self.is_in(pool)).map(candidate).collect();
        if candidates.is_empty() {
            // If all are out, something else is wrong, or nothing could be worse.
            candidates = untried().map(candidate).collect();
        }
        if self.is_ranked {
            balance::keep_first(&mut candidates);
        }
        if self.has_bound() {
            candidates.retain(|candidate| has_room(&self.pools[candidate.place], self.cap()));
        }
        let turn = self.turn.get();
        let chosen = match self.settings.balance {
            Balance::RoundRobin if self.is_ranked => balance::by_weight(&candidates, turn, self.random()),
            Balance::RoundRobin => balance::in_turn(&candidates, turn),
            Balance::LeastConnections => balance::least_loaded(&candidates, turn),
            Balance::P2c => balance::of_two(&candidates, self.random()),
            Balance::Hash(_) => balance::suited(&candidates, affinity),
        };
        let place = chosen?;
        self.turn.set(place + 1);
        Some(place)
    }

    /// Whether an endpoint may be out of connections while others are not.
    fn has_bound(&self) -> bool {
        self.cap().max_connections.is_some()
    }

    /// Whether an endpoint takes part; by chance, if it has only part of its share.
    fn is_in(&self, pool: &Pool) -> bool {
        match pool.state.share(self.settings.eject) {
            Share::All => true,
            Share::Of256(part) => self.random() >> 56 < part,
            Share::Nothing => false,
        }
    }

    /// A number that nobody can foresee who need not; by `SplitMix64`.
    fn random(&self) -> u64 {
        self.chance.set(self.chance.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        balance::mixed(self.chance.get())
    }

    /// Whether there is another endpoint than the one in hand.
    pub(super) fn has_others(&self) -> bool {
        self.pools.len() > 1
    }

    /// An answer broke off on a connection that was taken from here.
    pub(super) fn count_broken(&self, cause: &str) {
        tracing::debug!(cause, "the upstream broke off within its answer");
        self.broken_answers.inc();
    }

    /// A client did not take an answer in time.
    pub(super) fn count_untaken(&self) {
        tracing::debug!("the client did not take its answer in time");
        self.untaken_answers.inc();
    }

    /// Closes idle connections that requests of other workers wait for.
    pub(crate) fn shed(&self) {
        let wanted = self.queue.waiting_beside(&self.worker);
        let idle = self.pools.iter().flat_map(|pool| std::iter::from_fn(|| pool.shed()));
        idle.take(wanted).for_each(drop);
        let idle = self.pools.iter().flat_map(|pool| std::iter::from_fn(|| pool.shed_idle()));
        idle.take(self.queue.ceiling.short_count()).for_each(drop);
    }

    /// Closes what is idle and not in `next`, and from now on all that is put back there.
    pub(crate) fn close_but(&self, next: &[Rc<Self>]) {
        let stays = |pool: &Rc<Pool>| next.iter().any(|one| one.pools.iter().any(|other| Rc::ptr_eq(other, pool)));
        for pool in self.pools.iter().filter(|pool| !stays(pool)) {
            pool.close();
        }
    }

    /// Closes what has been idle for too long; to be called every [`SWEEP_EVERY`](super::SWEEP_EVERY).
    pub(crate) fn sweep(&self) {
        for pool in &self.pools {
            pool.sweep();
        }
        self.shed();
        // Endpoints may have come back, or a reload may have raised the bound.
        self.queue.wake_front();
    }
}

/// Different for each worker, so that they do not pick in step.
fn seed() -> u64 {
    let mut seed = [0; 8];
    // Without it choices are less random, and no worse.
    let _ = getrandom::fill(&mut seed);
    u64::from_le_bytes(seed)
}
