//! The members of one etcd, as all workers share them: their addresses, their health, and the login.
//!
//! One connection at a time goes to one member. Not here: the lease of this process (`monitor`).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::HeaderValue;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

use super::proto::etcdserverpb::{AuthenticateRequest, AuthenticateResponse, RangeRequest, RangeResponse};
use super::{AUTHENTICATE, RANGE};
use crate::engine::store::backend::Failure;
use crate::fleet::stores::driver::grpc::{self, Caller};
use crate::fleet::stores::driver::{
    CONNECT_MAX, ConnectError, Health, Login, NodeAddress, Opened, Server, StoreContext,
};

/// The longest time of a login. etcd hashes the password with bcrypt, which is slow on purpose.
const LOGIN_MAX: Duration = Duration::from_secs(5);

/// The members of one etcd.
pub(in crate::fleet::stores) struct Node {
    health: Health,
    servers: Vec<NodeAddress>,
    login: Login,
    /// `None` for plain connections.
    tls: Option<Arc<ClientConfig>>,
    /// The member that is asked first.
    first: AtomicUsize,
    /// A key that every user of the prefix may read.
    probe_key: Vec<u8>,
}

impl Node {
    /// An etcd that is believed to be up, and in which this process has no lease.
    pub(super) fn new(
        context: Arc<StoreContext>,
        tls: Option<Arc<ClientConfig>>,
        (servers, login): (Vec<NodeAddress>, Login),
        prefix: &str,
    ) -> Arc<Self> {
        let label = servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        Arc::new(Self {
            health: Health::new(context, &label),
            servers,
            login,
            tls,
            first: AtomicUsize::new(0),
            probe_key: format!("{prefix}/").into(),
        })
    }

    /// Asks the member after this one first, unless another one is asked first already: several connections may leave it.
    fn leave_member(&self, index: usize) {
        let next = (index + 1) % self.servers.len().max(1);
        let _ = self.first.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn log_in(&self, opened: Opened<Caller>) -> Result<Opened<Caller>, ConnectError> {
        let (Some(user), Some(password)) = (&self.login.user, &self.login.password) else { return Ok(opened) };
        let question = AuthenticateRequest { name: user.to_string(), password: password.reveal().to_owned() };
        let Opened { mut connection, mut driver } = opened;
        let answer: AuthenticateResponse = tokio::select! {
            answer = connection.call_within(LOGIN_MAX, AUTHENTICATE, &question) => {
                answer.map_err(|error| ConnectError { failure: Failure::Login, ..error })?
            }
            () = &mut driver => return Err(Failure::Broken.into()),
        };
        let token = HeaderValue::try_from(answer.token);
        let mut token = token.map_err(|_| ConnectError::of(Failure::Reply))?;
        token.set_sensitive(true);
        connection.token = Some(token);
        Ok(Opened { connection, driver })
    }
}

impl Deref for Node {
    type Target = Health;

    fn deref(&self) -> &Health {
        &self.health
    }
}

impl Server for Node {
    type Connection = Caller;

    fn address(&self) -> Option<NodeAddress> {
        self.servers.first().cloned()
    }

    /// Connects to the first member that accepts, and logs in.
    async fn open(&self) -> Result<Opened<Caller>, ConnectError> {
        let first = self.first.load(Ordering::Relaxed);
        let mut error = ConnectError::timeout();
        for index in (0..self.servers.len()).map(|turn| (first + turn) % self.servers.len()) {
            let Some(NodeAddress::Tcp { host, port }) = self.servers.get(index) else { continue };
            let opened = timeout(CONNECT_MAX, grpc::open((host, *port), self.tls.as_ref())).await;
            match opened.unwrap_or_else(|_| Err(ConnectError::timeout())) {
                Ok(mut opened) => {
                    opened.connection.server = index;
                    self.first.store(index, Ordering::Relaxed);
                    return self.log_in(opened).await.inspect_err(|_| self.leave_member(index));
                }
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    /// A member that hangs, or that has lost the others, keeps its connections. So all of them are checked.
    fn failed(&self, failure: Failure, text: &str) {
        match failure {
            Failure::Timeout | Failure::Connection => self.moved(),
            Failure::Broken => self.leave_member(self.first.load(Ordering::Relaxed)),
            _ => {}
        }
        self.call_failed(failure, text);
    }

    fn leave(&self, connection: &Caller) {
        self.leave_member(connection.server);
    }

    async fn answers(&self, connection: &Caller) -> bool {
        let question = RangeRequest { key: self.probe_key.clone(), range_end: Vec::new() };
        connection.call_within::<RangeResponse>(self.timeout() * 3, RANGE, &question).await.is_ok()
    }
}
