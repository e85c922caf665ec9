//! The limiter, as all workers share it: its address, its health, and the process that has the states.
//!
//! Not here: connections to it (`backend::link`), and probes (`monitor`).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

use super::JOIN;
use super::proto::{JoinRequest, JoinResponse};
use crate::engine::limit::Key;
use crate::engine::store::backend::grpc::{self, Caller};
use crate::engine::store::backend::{CONNECT_MAX, ConnectError, Health, NodeAddress, Opened, Server, StoreContext};

/// A limiter.
pub(super) struct Node {
    health: Health,
    host: Box<str>,
    port: u16,
    /// `None` for plain connections.
    tls: Option<Arc<ClientConfig>>,
    /// Shows that both sides hash keys alike.
    proof: Key,
    /// This process.
    pub(super) replica: u64,
    /// The replicas that a limiter without states waits for.
    replicas: AtomicU64,
    /// The process of the limiter that decides; 0 if none does yet.
    process: AtomicU64,
    /// The last process that decided; 0 if there was none.
    last_process: AtomicU64,
}

impl Node {
    /// A limiter that is believed to be up, and whose process is unknown.
    pub(super) fn new(
        context: Arc<StoreContext>,
        (host, port): (&str, u16),
        tls: Option<Arc<ClientConfig>>,
        (proof, replica): (Key, u64),
    ) -> Arc<Self> {
        Arc::new(Self {
            health: Health::new(context, &NodeAddress::tcp(host, port).to_string()),
            host: host.into(),
            port,
            tls,
            proof,
            replica,
            replicas: AtomicU64::new(1),
            process: AtomicU64::new(0),
            last_process: AtomicU64::new(0),
        })
    }

    /// The process that decides; `None` while none does.
    pub(super) fn process(&self) -> Option<u64> {
        Some(self.process.load(Ordering::Relaxed)).filter(|process| *process != 0)
    }

    /// The last process that decided; 0 if there was none.
    pub(super) fn last_process(&self) -> u64 {
        self.last_process.load(Ordering::Relaxed)
    }

    /// Lets a process of the limiter decide.
    pub(super) fn warmed(&self, process: u64) {
        self.last_process.store(process, Ordering::Relaxed);
        self.process.store(process, Ordering::Relaxed);
        self.set_warm(true);
    }

    /// The process `asked` does not decide, or not any more.
    pub(super) fn is_cold(&self, process: u64) {
        if self.process.compare_exchange(process, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.set_warm(false);
        }
    }

    /// Sets the number of replicas that a limiter without states waits for.
    pub(super) fn set_replicas(&self, replicas: u64) {
        self.replicas.store(replicas.max(1), Ordering::Relaxed);
    }

    /// What this process says to join, without states.
    pub(super) fn joining(&self) -> JoinRequest {
        let Self { proof, replica, .. } = *self;
        let replicas = self.replicas.load(Ordering::Relaxed);
        JoinRequest { proof: Some(proof.into()), replica, replicas, states: Vec::new(), is_complete: false }
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
        Some(NodeAddress::tcp(&*self.host, self.port))
    }

    async fn open(&self) -> Result<Opened<Caller>, ConnectError> {
        let opened = grpc::open((&self.host, self.port), self.tls.as_ref());
        timeout(CONNECT_MAX, opened).await.unwrap_or_else(|_| Err(ConnectError::timeout()))
    }

    async fn answers(&self, connection: &Caller) -> bool {
        let joining = self.joining();
        connection.call_within::<JoinResponse>(self.timeout() * 3, JOIN, &joining).await.is_ok()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("health", &self.health).finish_non_exhaustive()
    }
}
