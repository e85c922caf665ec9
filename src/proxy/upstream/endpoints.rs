//! One upstream as one worker has it: a pool for each endpoint, and whose turn it is.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::super::buffer::Buffers;
use super::super::settings::Upstream;
use super::connection::{ConnectError, Connection};
use super::pool::{Pool, PoolSpec};
use crate::telemetry::Counter;

/// See the [module](self).
#[derive(Debug)]
pub(in super::super) struct Endpoints {
    settings: Upstream,
    connect_timeout: Duration,
    /// In the order of the configuration; at least one.
    pools: Vec<Rc<Pool>>,
    /// Whose turn it is.
    turn: Cell<usize>,
    broken_answers: Counter,
    buffers: Rc<Buffers>,
}

/// A connection in hand, and where it came from.
#[derive(Debug)]
pub(in super::super) struct Lease {
    pub(super) connection: Box<Connection>,
    pub(super) pool: Rc<Pool>,
    /// The place of the pool among its upstream's.
    index: usize,
}

/// Endpoints that one request is tried on. Each may take as long as a connection may take to open.
const TRIES_MAX: usize = 3;

type Tried = smallvec::SmallVec<[usize; TRIES_MAX]>;

impl Lease {
    /// What the endpoint is called where the client's `Host` is not kept.
    pub(in super::super) fn host(&self) -> &str {
        &self.pool.spec.endpoint.host
    }

    /// The place of its endpoint among the upstream's.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Gives the connection back, to be used again.
    pub(super) fn give_back(self) {
        self.pool.put(self.connection);
    }
}

impl Endpoints {
    /// Those of `settings`, with the pools of `before` that stay as they are.
    pub(in super::super) fn new(
        settings: &Upstream,
        connect_timeout: Duration,
        before: Option<&Self>,
        broken_answers: Counter,
        buffers: &Rc<Buffers>,
    ) -> Self {
        let known = before.map_or(&[][..], |before| &before.pools);
        let pool = |endpoint: &super::super::settings::Endpoint| {
            let &Upstream { max_idle, idle_timeout, .. } = settings;
            let spec = PoolSpec { endpoint: endpoint.clone(), max_idle, idle_timeout, connect_timeout };
            let same = known.iter().find(|pool| pool.spec == spec);
            same.map_or_else(|| Rc::new(Pool::new(spec, Rc::clone(buffers))), Rc::clone)
        };
        Self {
            settings: settings.clone(),
            connect_timeout,
            pools: settings.endpoints.iter().map(pool).collect(),
            turn: Cell::new(before.map_or(0, |before| before.turn.get())),
            broken_answers,
            buffers: Rc::clone(buffers),
        }
    }

    /// Whether nothing of it would be different.
    pub(in super::super) fn is_same(&self, settings: &Upstream, connect_timeout: Duration) -> bool {
        self.settings == *settings && self.connect_timeout == connect_timeout
    }

    /// Its name in the configuration.
    pub(in super::super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Whether clients' `Host` is replaced by the endpoint's.
    pub(in super::super) fn rewrites_host(&self) -> bool {
        self.settings.rewrite_host
    }

    /// The memory of the worker's connections.
    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// An idle connection of the endpoint whose turn it is, or else the place of that.
    pub(in super::super) fn take(&self) -> Result<Lease, usize> {
        let index = self.choose(&[]);
        self.idle(index).ok_or(index)
    }

    /// A new connection to the endpoint at `first`, or if that cannot be reached, one to another.
    pub(in super::super) async fn connect(&self, first: usize) -> Result<Lease, ConnectError> {
        // Boxed, because it is rare and larger than all else that a request does.
        Box::pin(self.connect_beside(first, Tried::new())).await
    }

    /// A connection on which a request goes out once more, of another endpoint than `lease` if there is one.
    pub(super) async fn connect_elsewhere(&self, lease: Option<usize>) -> Result<Lease, ConnectError> {
        let tried: Tried = lease.filter(|_| self.pools.len() > 1).into_iter().collect();
        let next = self.choose(&tried);
        Box::pin(self.connect_beside(next, tried)).await
    }

    async fn connect_beside(&self, first: usize, mut tried: Tried) -> Result<Lease, ConnectError> {
        let mut index = first;
        loop {
            let pool = &self.pools[index];
            let error = match pool.connect().await {
                Ok(connection) => return Ok(Lease { connection, pool: Rc::clone(pool), index }),
                Err(error) => error,
            };
            tried.push(index);
            if tried.len() >= TRIES_MAX.min(self.pools.len()) {
                return Err(error);
            }
            tracing::debug!(endpoint = %pool.spec.endpoint, ?error, "cannot connect; trying another endpoint");
            index = self.choose(&tried);
            if let Some(lease) = self.idle(index) {
                return Ok(lease);
            }
        }
    }

    fn idle(&self, index: usize) -> Option<Lease> {
        let pool = &self.pools[index];
        let connection = pool.take()?;
        Some(Lease { connection, pool: Rc::clone(pool), index })
    }

    /// The place of the endpoint that gets the next request, but those that were tried; there is another.
    fn choose(&self, tried: &[usize]) -> usize {
        let count = self.pools.len();
        if count == 1 {
            return 0;
        }
        let turn = self.turn.get() % count;
        let mut places = (turn..count).chain(0..turn);
        let place = places.find(|place| !tried.contains(place)).unwrap_or(turn);
        self.turn.set(place + 1);
        place
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

    /// Closes what is idle and not in `next`, and from now on all that is put back there.
    pub(in super::super) fn close_but(&self, next: &[Rc<Self>]) {
        let stays = |pool: &Rc<Pool>| next.iter().any(|one| one.pools.iter().any(|other| Rc::ptr_eq(other, pool)));
        for pool in self.pools.iter().filter(|pool| !stays(pool)) {
            pool.close();
        }
    }

    /// Closes what has been idle for too long; to be called every [`SWEEP_EVERY`](super::SWEEP_EVERY).
    pub(in super::super) fn sweep(&self) {
        for pool in &self.pools {
            pool.sweep();
        }
    }
}
