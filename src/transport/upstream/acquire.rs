//! How a request gets a connection: an open one, a new one, or a wait in the queue.

use std::io;
use std::rc::Rc;

use tokio::time::timeout_at;

use super::endpoints::Endpoints;
use super::h2::pending::PendingConnection;
use super::pool::ceiling::AllowanceWaiter;
use super::pool::checkout::{Checkout, PooledConnection, Requirements};
use super::pool::connection::ConnectError;
use super::pool::permit::ConnectionPermit;
use super::pool::queue::{QueueBound, UpstreamRequest};
use super::pool::usage::ActiveRequest;
use crate::base::telemetry::EndpointResult;
use crate::base::time;
use crate::transport::net::client_usage::ClientHandle;

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

/// A request without an open connection. It keeps its counts until it connects, so that no other takes its turn.
#[derive(Debug, Default)]
pub(crate) struct Unconnected {
    /// The endpoint that gets it, if it needs a new connection; none if it may have to wait.
    first: Option<usize>,
    active: Option<ActiveRequest>,
    upstream: Option<UpstreamRequest>,
}

/// Endpoints on which one request is tried. Each attempt may last as long as the connect timeout.
const ATTEMPTS_MAX: usize = 3;

type AttemptedEndpoints = smallvec::SmallVec<[usize; ATTEMPTS_MAX]>;

/// The state of the search for a connection.
struct Attempt {
    /// The request already counts at the upstream.
    is_counted: bool,
    /// The count at the upstream that it has since it looked for an open connection.
    begun: Option<UpstreamRequest>,
    /// The endpoint to try first, unless it has been drained meanwhile.
    first: Option<usize>,
    /// Endpoints that could not be reached.
    attempted: AttemptedEndpoints,
    /// The first error of one that did not just refuse: it says more, such as why TLS failed.
    telling: Option<ConnectError>,
    /// The endpoint whose connection broke. It gets the retry only if no other one has capacity.
    avoided: Option<usize>,
}

impl Attempt {
    /// The endpoints that were tried.
    fn tried(&self) -> AttemptedEndpoints {
        self.attempted.iter().copied().chain(self.avoided).collect()
    }
}

impl Endpoints {
    /// Checks out an open connection without waiting.
    pub(crate) fn check_out(&self, requirements: &Requirements) -> Result<Checkout, Unconnected> {
        if let Some(checkout) = self.pinned_connection(requirements) {
            return Ok(checkout);
        }
        if self.queue().has_waiters() {
            return Err(Unconnected::default());
        }
        let index = self.choose(requirements.affinity, &[]).ok_or_else(Unconnected::default)?;
        let first = Some(index);
        let active = self.begin(requirements).ok_or(Unconnected { first, ..Unconnected::default() })?;
        let upstream = self.begin_at_upstream(requirements).ok_or_else(Unconnected::default)?;
        match self.open_connection(index, requirements) {
            Some(checkout) => Ok(checkout.counted(active.at_upstream(upstream))),
            None => Err(Unconnected { first, active: Some(active), upstream: Some(upstream) }),
        }
    }

    /// Opens a connection to the endpoint that gets the request, or to another one if that cannot be reached. Waits in the
    /// queue if no connection may be opened.
    pub(crate) async fn connect(
        &self,
        requirements: &Requirements,
        Unconnected { first, active, upstream }: Unconnected,
    ) -> Result<Checkout, ConnectError> {
        // Boxed, because it is rare and larger than all other state of a request.
        Box::pin(async {
            let (active, has_waited) = match active {
                Some(active) => (active, false),
                None => self.begin_in_turn(requirements).await?,
            };
            let attempted = AttemptedEndpoints::new();
            let mut attempt =
                Attempt { is_counted: false, begun: upstream, first, attempted, telling: None, avoided: None };
            let (checkout, upstream) = self.acquire(requirements, &mut attempt).await?;
            let was_queued = has_waited || checkout.was_queued;
            Ok(checkout.counted(active.at_upstream(upstream)).queued(was_queued))
        })
        .await
    }

    /// A connection for a retry: to an endpoint other than the one at `index`, if another one gets traffic and has
    /// capacity. The request is counted already.
    pub(super) async fn connect_elsewhere(
        &self,
        requirements: &Requirements,
        index: usize,
    ) -> Result<Checkout, ConnectError> {
        let avoided = Some(index).filter(|index| self.has_others(&[*index]));
        let first = self.choose(requirements.affinity, avoided.as_slice());
        let attempted = AttemptedEndpoints::new();
        let mut attempt = Attempt { is_counted: true, begun: None, first, attempted, telling: None, avoided };
        let (checkout, _) = Box::pin(self.acquire(requirements, &mut attempt)).await?;
        Ok(checkout)
    }

    async fn acquire(
        &self,
        requirements: &Requirements,
        attempt: &mut Attempt,
    ) -> Result<(Checkout, UpstreamRequest), ConnectError> {
        loop {
            if self.is_exhausted(&attempt.attempted) {
                return Err(ConnectError::Drained);
            }
            let at_once = self.capacity_at_once(requirements, attempt);
            let was_queued = at_once.is_none();
            let (capacity, upstream) = match at_once {
                Some(found) => found,
                None => self.wait(requirements, attempt).await?,
            };
            let (index, connected) = match capacity {
                Capacity::Open(checkout) => return Ok((checkout.queued(was_queued), upstream)),
                Capacity::New(index, permit) => (index, self.open(index, permit, requirements).await),
                Capacity::Pending(index, pending) => {
                    let stream = self.pools()[index].stream_on(&pending).await;
                    (index, stream.map(|stream| stream.map(PooledConnection::H2)))
                }
            };
            let error = match connected {
                // An operator has drained the endpoint meanwhile.
                Ok(_) if self.pools()[index].state.is_draining() => continue,
                Ok(Some(connection)) => return Ok((self.checked_out(connection, index).queued(was_queued), upstream)),
                Ok(None) => continue,
                Err(error) => error,
            };
            let pool = &self.pools()[index];
            self.record(pool, EndpointResult::Failed, || error.to_string());
            attempt.attempted.push(index);
            if attempt.tried().len() >= ATTEMPTS_MAX || self.is_exhausted(&attempt.attempted) {
                return Err(attempt.telling.take().unwrap_or(error));
            }
            let (upstream, endpoint) = (&*pool.state.upstream, &pool.spec.endpoint);
            tracing::debug!(upstream, %endpoint, %error, "cannot connect; trying another endpoint");
            if matches!(&error, ConnectError::Failed(error) if error.kind() != io::ErrorKind::ConnectionRefused) {
                attempt.telling.get_or_insert(error);
            }
        }
    }

    /// Capacity for a request that has not waited. None if it has to wait.
    fn capacity_at_once(
        &self,
        requirements: &Requirements,
        attempt: &mut Attempt,
    ) -> Option<(Capacity, UpstreamRequest)> {
        let first = attempt.first.take().filter(|index| !self.pools()[*index].state.is_draining());
        let upstream = match attempt.begun.take() {
            Some(upstream) => upstream,
            None if self.queue().has_waiters() => return None, // requests that wait are served first
            None if attempt.is_counted => UpstreamRequest::default(),
            None => self.begin_at_upstream(requirements)?,
        };
        let at_first = first.and_then(|index| self.capacity_at(index, requirements));
        let capacity = at_first.or_else(|| self.capacity_for(requirements, attempt))?;
        Some((capacity, upstream))
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

    /// Capacity at any endpoint that can be tried: at one that was not tried yet, or else at the avoided one.
    fn capacity_for(&self, requirements: &Requirements, attempt: &Attempt) -> Option<Capacity> {
        let tried = attempt.avoided.map(|_| attempt.tried()).filter(|tried| self.has_others(tried));
        let untried = tried.and_then(|tried| self.capacity(requirements, &tried));
        untried.or_else(|| self.capacity(requirements, &attempt.attempted))
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
    async fn wait(
        &self,
        requirements: &Requirements,
        attempt: &Attempt,
    ) -> Result<(Capacity, UpstreamRequest), ConnectError> {
        let (cap, queue) = (self.cap(), self.queue());
        let client = requirements.client.as_ref().filter(|_| !attempt.is_counted).map(|client| client.ip());
        let bound = QueueBound { max_queued: cap.max_queued, connections: self.usable_connections() };
        let Some(ticket) = queue.join(self.worker(), client, bound) else {
            queue.metrics.queue_full.inc();
            return Err(ConnectError::Busy);
        };
        let until = time::instant_now() + cap.queue_timeout;
        let (mut has_notified, mut ceiling_waiter) = (false, None);
        loop {
            if self.is_exhausted(&attempt.attempted) {
                return Err(ConnectError::Drained);
            }
            if ticket.is_front() {
                if let Some(capacity) = self.capacity_for(requirements, attempt) {
                    let is_counted = attempt.is_counted || self.request_capacity().is_none();
                    return Ok((capacity, if is_counted { UpstreamRequest::default() } else { ticket.begin() }));
                }
                if ceiling_waiter.is_none() && self.waits_for_ceiling(requirements, &attempt.attempted) {
                    ceiling_waiter = Some(ticket.wait_for_ceiling());
                    continue;
                }
                if !std::mem::replace(&mut has_notified, true) {
                    ticket.notify_other_workers();
                    if !attempt.attempted.is_empty() {
                        ticket.let_others_pass(); // they may use the endpoints that this request could not reach
                    }
                }
            }
            if timeout_at(until, ticket.woken()).await.is_err() {
                queue.metrics.queue_timeout.inc();
                return Err(ConnectError::Busy);
            }
        }
    }

    /// Counts a request at the upstream. None if its client has to wait until it or others have fewer.
    fn begin_at_upstream(&self, requirements: &Requirements) -> Option<UpstreamRequest> {
        let Some(capacity) = self.request_capacity() else { return Some(UpstreamRequest::default()) };
        self.queue().begin(requirements.client.as_ref().map(|client| client.ip()), capacity)
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::Path;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::net::UnixListener;
    use tokio::task::LocalSet;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::base::telemetry::Metrics;
    use crate::engine::policy::upgrades::Upgrades;
    use crate::transport::net::Protocol;
    use crate::transport::net::client_usage::ClientUsage;
    use crate::transport::upstream::balance::ejection::Eject;
    use crate::transport::upstream::endpoints::WorkerResources;
    use crate::transport::upstream::pool::ceiling::Ceiling;
    use crate::transport::upstream::pool::queue::WorkerNotify;
    use crate::transport::upstream::pool::usage::WorkerRequests;
    use crate::transport::upstream::settings::{Address, Balance, Cap, Endpoint, Resolve, Upstream};
    use crate::transport::upstream::state::UpstreamState;

    const SECOND: Duration = Duration::from_secs(1);
    const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

    /// An upstream at a socket that does not exist, so that opening a connection fails at once.
    fn endpoints(ceiling: &Arc<Ceiling>) -> Endpoints {
        endpoints_at(Path::new("/nonexistent/weir-test"), Protocol::Http1, ceiling)
    }

    fn endpoints_at(path: &Path, protocol: Protocol, ceiling: &Arc<Ceiling>) -> Endpoints {
        endpoints_of(&[path], protocol, ceiling)
    }

    fn endpoints_of(paths: &[&Path], protocol: Protocol, ceiling: &Arc<Ceiling>) -> Endpoints {
        endpoints_with(&settings(paths, protocol), ceiling)
    }

    fn settings(paths: &[&Path], protocol: Protocol) -> Upstream {
        let endpoint = |path: &&Path| {
            let address = Address::Unix((*path).into());
            Endpoint { address, host: "a".into(), server_name: None }
        };
        Upstream {
            name: Some("a".into()),
            endpoints: paths.iter().map(endpoint).collect(),
            tls: None,
            protocol,
            balance: Balance::RoundRobin,
            health: None,
            eject: None,
            resolve: Resolve::Off,
            cap: Cap { max_connections: Some(1), max_queued: 10, queue_timeout: QUEUE_TIMEOUT },
            rewrite_host: false,
            max_idle: None,
            idle_timeout: SECOND,
            proxy_protocol: None,
            upgrades: Upgrades::default(),
        }
    }

    fn endpoints_with(settings: &Upstream, ceiling: &Arc<Ceiling>) -> Endpoints {
        let metrics = Metrics::new("", "").unwrap();
        let states = UpstreamState::of_all(std::slice::from_ref(settings), &[], &metrics, ceiling);
        let resources = WorkerResources {
            broken_answers: metrics.broken_answers(),
            untaken_answers: metrics.untaken_answers(),
            buffers: Rc::default(),
            worker: WorkerNotify::default(),
            requests: WorkerRequests::new(ceiling),
        };
        Endpoints::new(settings, &states[0], SECOND, None, &resources)
    }

    fn requirements(client: Option<Rc<ClientHandle>>) -> Requirements {
        Requirements { affinity: 0, is_exclusive: false, preamble: None, client, pin: None }
    }

    /// How long the request takes, and whether it got the right to open a connection, which then fails.
    async fn connect(endpoints: &Endpoints, requirements: &Requirements) -> (Duration, bool) {
        let began = time::instant_now();
        let result = endpoints.connect(requirements, Unconnected { first: Some(0), ..Unconnected::default() }).await;
        (began.elapsed(), matches!(result, Err(ConnectError::Failed(_))))
    }

    /// Waiters can use connections to endpoints that get traffic: those that are not out, or all if all are out.
    #[test]
    fn connections_are_counted_where_traffic_goes() {
        let paths = ["/nonexistent/a", "/nonexistent/b"].map(Path::new);
        let endpoints = endpoints_of(&paths, Protocol::Http1, &Arc::new(Ceiling::new(9, 1)));
        for (are_out, expected) in [([false, false], 2), ([true, false], 1), ([true, true], 2)] {
            for (pool, is_out) in endpoints.pools().iter().zip(are_out) {
                pool.state.set_health(is_out.then(|| "no".to_owned()));
            }
            assert_eq!(endpoints.usable_connections(), expected, "{are_out:?}");
        }
    }

    /// The endpoint of a retry, after the connection of the first one broke. Rows: endpoints that are full; endpoints that
    /// are out; the endpoint of the retry, or none if it waits in vain.
    #[tokio::test(start_paused = true)]
    async fn a_retry_prefers_another_endpoint_that_can_take_it() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let _listeners = paths.each_ref().map(|path| UnixListener::bind(path).unwrap());
        let paths = paths.each_ref().map(|path| &**path);
        for (full, out, expected) in [
            ([false, false], [false, false], Some(1)),
            ([false, true], [false, false], Some(0)),
            ([true, true], [false, false], None),
            ([false, false], [false, true], Some(0)),
            ([false, false], [true, false], Some(1)),
            ([false, true], [true, false], None),
            ([false, false], [true, true], Some(1)),
        ] {
            let endpoints = endpoints_of(&paths, Protocol::Http1, &Arc::new(Ceiling::new(9, 1)));
            let pools = || endpoints.pools().iter();
            let full = pools().zip(full).filter(|(_, is_full)| *is_full);
            let _permits: Vec<_> =
                full.map(|(pool, _)| ConnectionPermit::new(&pool.state, endpoints.queue(), 1).unwrap()).collect();
            pools().zip(out).for_each(|(pool, is_out)| pool.state.set_health(is_out.then(|| "no".to_owned())));
            let retry = endpoints.connect_elsewhere(&requirements(None), 0).await;
            assert_eq!(retry.ok().map(|checkout| checkout.handle.index), expected, "{out:?}");
        }
    }

    /// A request that could not reach one endpoint waits for the other one. The first one is back meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_one_endpoint_stops_no_request_to_another() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let paths = paths.each_ref().map(|path| &**path);
        let endpoints = endpoints_of(&paths, Protocol::Http1, &Arc::new(Ceiling::new(9, 1)));
        let _busy = ConnectionPermit::new(&endpoints.pools()[1].state, endpoints.queue(), 1).unwrap();
        let (queue, requirements) = (endpoints.queue(), requirements(None));
        let second = async {
            while !queue.has_waiters() {
                tokio::task::yield_now().await;
            }
            let _listener = UnixListener::bind(paths[0]).unwrap();
            let connected = endpoints.connect(&requirements, Unconnected::default()).await;
            (connected.map(|checkout| checkout.handle.index).ok(), queue.waiting())
        };
        let (first, second) = tokio::join!(connect(&endpoints, &requirements), second);
        assert_eq!((first, second), ((QUEUE_TIMEOUT, false), (Some(0), 1)));
    }

    /// An endpoint that returns has no requests, which the balancing by load prefers.
    #[tokio::test(start_paused = true)]
    async fn an_ejected_endpoint_returns_with_a_sixteenth_of_its_share() {
        let rule = Eject { after: 1, duration: SECOND };
        let paths = ["a", "b", "c", "d", "e", "f", "g", "h"].map(Path::new);
        for balance in [Balance::RoundRobin, Balance::LeastConnections, Balance::P2c] {
            let settings = Upstream { balance, eject: Some(rule), ..settings(&paths, Protocol::Http1) };
            let endpoints = endpoints_with(&settings, &Arc::new(Ceiling::new(9, 1)));
            let [returning, others @ ..] = endpoints.pools() else { unreachable!() };
            endpoints.record(returning, EndpointResult::Failed, String::new);
            for pool in others {
                (0..4).for_each(|_| pool.state.begin(true));
            }
            tokio::time::advance(SECOND).await;
            let chosen = (0..100_000).filter(|_| endpoints.choose(0, &[]) == Some(0)).count();
            assert!((600..1000).contains(&chosen), "{chosen} of 12500: {:?}", settings.balance);

            // While all others are out, it gets all requests.
            for pool in others {
                pool.state.set_health(Some("no".to_owned()));
            }
            assert!((0..100).all(|_| endpoints.choose(0, &[]) == Some(0)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_connection_of_another_upstream_wakes_the_first_waiter() {
        for (closes_after, expected) in [(3 * SECOND, (3 * SECOND, true)), (9 * SECOND, (QUEUE_TIMEOUT, false))] {
            let ceiling = Arc::new(Ceiling::new(1, 1));
            let endpoints = endpoints(&ceiling);
            assert!(ceiling.open());
            let close = async {
                sleep(closes_after).await;
                ceiling.close();
            };
            let requirements = requirements(None);
            let (connected, ()) = tokio::join!(connect(&endpoints, &requirements), close);
            assert_eq!(connected, expected);
        }
    }

    /// Another worker closes a connection after the first waiter has found no capacity and before it registers for the
    /// ceiling. That worker notifies no waiter, so the first waiter has to register and look again.
    #[test]
    fn a_connection_that_closes_before_the_waiter_registers_is_not_missed() {
        let ceiling = Arc::new(Ceiling::new(1, 1));
        let (endpoints, requirements) = (endpoints(&ceiling), requirements(None));
        assert!(ceiling.open());
        assert!(endpoints.capacity(&requirements, &[]).is_none());
        ceiling.close();
        assert!(!ceiling.is_full() && endpoints.waits_for_ceiling(&requirements, &[]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_beyond_its_clients_allowance_begins_when_others_end() {
        for (ends_after, expected) in [(2 * SECOND, (2 * SECOND, true)), (9 * SECOND, (QUEUE_TIMEOUT, false))] {
            let ceiling = Arc::new(Ceiling::new(100, 1));
            let endpoints = endpoints(&ceiling);
            let client = Rc::new(Arc::<ClientUsage>::default().enter([10, 0, 0, 1].into(), 1, 9).unwrap());
            let active = |client| ActiveRequest::new(client, endpoints.worker_requests(), false).unwrap();
            let _own = active(Some(&client));
            let mut others: Vec<_> = (0..95).map(|_| active(None)).collect();
            (0..97).for_each(|_| assert!(ceiling.open()));
            let end = async {
                sleep(ends_after).await;
                others.truncate(80);
            };
            let requirements = requirements(Some(Rc::clone(&client)));
            let (connected, ()) = tokio::join!(connect(&endpoints, &requirements), end);
            assert_eq!(connected, expected);
            assert!(!client.has_waiters());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_takes_the_turn_of_one_that_is_about_to_connect() {
        let endpoints = endpoints(&Arc::new(Ceiling::new(100, 1)));
        let client = Rc::new(Arc::<ClientUsage>::default().enter([10, 0, 0, 1].into(), 1, 9).unwrap());
        let requirements = requirements(Some(client));
        let [first, second] = [(); 2].map(|()| endpoints.check_out(&requirements).unwrap_err());
        let ended = RefCell::new(Vec::new());
        let connect = async |name, request| {
            let failed = endpoints.connect(&requirements, request).await;
            assert!(matches!(failed, Err(ConnectError::Failed(_))), "{name}: {failed:?}");
            ended.borrow_mut().push(name);
        };
        tokio::join!(connect("second", second), connect("first", first));
        assert_eq!(*ended.borrow(), ["first", "second"]);
    }

    /// A reload closes the pool while the connection is being opened, and no request waits for it any more.
    #[tokio::test]
    async fn a_connection_that_opens_in_a_closed_pool_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("service");
        let listener = UnixListener::bind(&path).unwrap();
        let ceiling = Arc::new(Ceiling::new(1, 1));
        let endpoints = endpoints_at(&path, Protocol::H2, &ceiling);
        let pool = &endpoints.pools()[0];
        let test = async {
            pool.open_h2(ConnectionPermit::new(&pool.state, endpoints.queue(), 1).unwrap());
            let (socket, _) = listener.accept().await.unwrap();
            pool.close();
            let mut service = h2::server::handshake(socket).await.unwrap();
            timeout(10 * SECOND, service.accept()).await.is_ok_and(|request| request.is_none())
        };
        assert!(LocalSet::new().run_until(test).await, "it stays open");
    }
}
