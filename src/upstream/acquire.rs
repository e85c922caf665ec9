//! How a request gets a connection: an open one, a new one, or a wait in the queue.

use std::rc::Rc;

use tokio::time::timeout_at;

use super::endpoints::Endpoints;
use super::h2::pending::PendingConnection;
use super::pool::ceiling::AllowanceWaiter;
use super::pool::checkout::{Checkout, PooledConnection, Requirements};
use super::pool::connection::ConnectError;
use super::pool::permit::ConnectionPermit;
use super::pool::usage::ActiveRequest;
use crate::net::client_usage::ClientHandle;
use crate::telemetry::EndpointResult;
use crate::time;

/// The capacity that a request has found.
#[derive(Debug)]
enum Capacity {
    /// A connection that is open.
    Open(Checkout),
    /// The right to open a connection to the endpoint at this index.
    New(usize, ConnectionPermit),
    /// A connection that is being opened to the endpoint at this index.
    Pending(usize, Rc<PendingConnection>),
}

/// Endpoints on which one request is tried. Each attempt may last as long as the connect timeout.
const ATTEMPTS_MAX: usize = 3;

type AttemptedEndpoints = smallvec::SmallVec<[usize; ATTEMPTS_MAX]>;

impl Endpoints {
    /// Checks out an open connection without waiting. Errs with the index of the endpoint that gets the request if the
    /// request needs a new connection, and with none if it may have to wait.
    pub(crate) fn check_out(&self, requirements: &Requirements) -> Result<Checkout, Option<usize>> {
        if self.queue().has_waiters() {
            return Err(None);
        }
        let index = if self.has_others() && self.is_bounded() {
            self.choose_among(requirements.affinity, &[]).ok_or(None)?
        } else {
            self.choose(requirements.affinity, &[])
        };
        let active = self.begin(requirements).ok_or(Some(index))?;
        self.open_connection(index, requirements).map(|checkout| checkout.counted(active)).ok_or(Some(index))
    }

    /// Opens a connection to the endpoint at `first`, or to another one if that cannot be reached. Waits in the queue if
    /// no connection may be opened.
    pub(crate) async fn connect(
        &self,
        requirements: &Requirements,
        first: Option<usize>,
    ) -> Result<Checkout, ConnectError> {
        // Boxed, because it is rare and larger than all other state of a request.
        Box::pin(async {
            let (active, has_waited) = self.begin_in_turn(requirements).await?;
            let checkout = self.acquire(requirements, first, AttemptedEndpoints::new()).await?;
            let was_queued = has_waited || checkout.was_queued;
            Ok(checkout.counted(active).queued(was_queued))
        })
        .await
    }

    /// A connection for a retry: to an endpoint other than the one at `index`, if there are several.
    pub(super) async fn connect_elsewhere(
        &self,
        requirements: &Requirements,
        index: usize,
    ) -> Result<Checkout, ConnectError> {
        let attempted: AttemptedEndpoints = Some(index).filter(|_| self.has_others()).into_iter().collect();
        let next = self.choose(requirements.affinity, &attempted);
        Box::pin(self.acquire(requirements, Some(next), attempted)).await
    }

    async fn acquire(
        &self,
        requirements: &Requirements,
        mut first: Option<usize>,
        mut attempted: AttemptedEndpoints,
    ) -> Result<Checkout, ConnectError> {
        loop {
            let index = first.take();
            let capacity = if self.queue().has_waiters() {
                None // requests that wait are served first
            } else {
                let at_first = index.and_then(|index| self.capacity_at(index, requirements));
                at_first.or_else(|| self.capacity(requirements, &attempted))
            };
            let was_queued = capacity.is_none();
            let capacity = match capacity {
                Some(capacity) => capacity,
                None => self.wait(requirements, &attempted).await?,
            };
            let (index, connected) = match capacity {
                Capacity::Open(checkout) => return Ok(checkout.queued(was_queued)),
                Capacity::New(index, permit) => (index, self.open(index, permit, requirements).await),
                Capacity::Pending(index, pending) => {
                    let stream = self.pools()[index].stream_on(&pending).await;
                    (index, stream.map(|stream| stream.map(PooledConnection::H2)))
                }
            };
            let error = match connected {
                Ok(Some(connection)) => return Ok(self.checked_out(connection, index).queued(was_queued)),
                Ok(None) => continue,
                Err(error) => error,
            };
            let pool = &self.pools()[index];
            self.record_at(pool, EndpointResult::Failed);
            attempted.push(index);
            if attempted.len() >= ATTEMPTS_MAX.min(self.pools().len()) {
                return Err(error);
            }
            tracing::debug!(endpoint = %pool.spec.endpoint, ?error, "cannot connect; trying another endpoint");
        }
    }

    /// Opens a connection to the endpoint at `index`, which holds `permit`. None if other requests took all its streams.
    async fn open(
        &self,
        index: usize,
        permit: ConnectionPermit,
        requirements: &Requirements,
    ) -> Result<Option<PooledConnection>, ConnectError> {
        let pool = &self.pools()[index];
        if pool.is_shared() {
            let stream = pool.stream_on(&pool.open_h2(permit)).await?;
            return Ok(stream.map(PooledConnection::H2));
        }
        let connection = pool.connect(permit, requirements.preamble.as_deref()).await?;
        Ok(Some(PooledConnection::H1(connection)))
    }

    /// Capacity at any endpoint other than those at `attempted`. None if all have as many connections as they may have.
    fn capacity(&self, requirements: &Requirements, attempted: &[usize]) -> Option<Capacity> {
        // Another worker may take the capacity that this one sees, so it looks as often as there are endpoints.
        for _ in self.pools() {
            let index = self.choose_among(requirements.affinity, attempted)?;
            let open = self.open_connection(index, requirements).map(Capacity::Open);
            let capacity = open.or_else(|| self.new_capacity(index, requirements));
            if capacity.is_some() {
                return capacity;
            }
        }
        None
    }

    /// Capacity at the endpoint at `index`, where the request has already looked for an idle HTTP/1 connection.
    fn capacity_at(&self, index: usize, requirements: &Requirements) -> Option<Capacity> {
        let is_shared = self.pools()[index].is_shared();
        let open = if is_shared { self.open_connection(index, requirements) } else { None };
        open.map(Capacity::Open).or_else(|| self.new_capacity(index, requirements))
    }

    /// A new connection to the endpoint at `index` if it may have one more, or one that is being opened.
    fn new_capacity(&self, index: usize, requirements: &Requirements) -> Option<Capacity> {
        let pool = &self.pools()[index];
        if let Some(pending) = pool.h2.pending() {
            return Some(Capacity::Pending(index, pending));
        }
        let max_connections = self.cap().most();
        let mut permit = ConnectionPermit::new(&pool.state, self.queue(), max_connections);
        if permit.is_none() && requirements.is_exclusive {
            // An idle connection does not meet the requirements, but its permit does.
            drop(pool.take());
            permit = ConnectionPermit::new(&pool.state, self.queue(), max_connections);
        }
        permit.map(|permit| Capacity::New(index, permit))
    }

    /// Whether a request without capacity has to wait for the ceiling. This is also true if it had to wait a moment ago:
    /// another upstream may have closed a connection since, and notified no waiter.
    fn waits_for_ceiling(&self, requirements: &Requirements, attempted: &[usize]) -> bool {
        self.queue().ceiling.is_full() || self.choose_among(requirements.affinity, attempted).is_some()
    }

    /// Waits in the queue until the request is first and there is capacity. Errs if the queue is full or the wait too
    /// long.
    async fn wait(&self, requirements: &Requirements, attempted: &[usize]) -> Result<Capacity, ConnectError> {
        let (cap, queue) = (self.cap(), self.queue());
        let Some(ticket) = queue.join(self.worker(), cap.max_queued) else {
            queue.metrics.queue_full.inc();
            return Err(ConnectError::Busy);
        };
        let until = time::instant_now() + cap.queue_timeout;
        let (mut has_notified, mut ceiling_waiter) = (false, None);
        loop {
            if ticket.is_front() {
                if let Some(capacity) = self.capacity(requirements, attempted) {
                    return Ok(capacity);
                }
                if ceiling_waiter.is_none() && self.waits_for_ceiling(requirements, attempted) {
                    ceiling_waiter = Some(ticket.wait_for_ceiling());
                    continue;
                }
                if !std::mem::replace(&mut has_notified, true) {
                    ticket.notify_other_workers();
                }
            }
            if timeout_at(until, ticket.woken()).await.is_err() {
                queue.metrics.queue_timeout.inc();
                return Err(ConnectError::Busy);
            }
        }
    }

    /// Counts a request as active. None if it has to wait until others of its client end.
    fn begin(&self, requirements: &Requirements) -> Option<ActiveRequest> {
        let client = requirements.client.as_ref();
        if client.is_some_and(|client| client.has_waiters()) { None } else { self.begin_next(client) }
    }

    fn begin_next(&self, client: Option<&Rc<ClientHandle>>) -> Option<ActiveRequest> {
        ActiveRequest::new(client, self.worker_requests(), self.is_shared())
    }

    /// Counts a request as active, after a wait if its client may have no more. Returns the count and whether the
    /// request waited.
    async fn begin_in_turn(&self, requirements: &Requirements) -> Result<(ActiveRequest, bool), ConnectError> {
        if let Some(active) = self.begin(requirements) {
            return Ok((active, false));
        }
        let client = requirements.client.as_ref();
        let Some(waiting) = client.and_then(|client| client.wait()) else { return Err(ConnectError::TooMany) };
        // Ended requests of other clients raise the allowance too.
        let _waiter = (!self.is_shared()).then(|| AllowanceWaiter::new(&self.queue().ceiling, waiting.notify()));
        let until = time::instant_now() + self.cap().queue_timeout;
        loop {
            if let Some(active) = self.begin_next(client) {
                return Ok((active, true)); // dropping `waiting` wakes the next request: there may be capacity for several
            }
            if timeout_at(until, waiting.woken()).await.is_err() {
                self.queue().metrics.queue_timeout.inc();
                return Err(ConnectError::Busy);
            }
        }
    }
}
