//! The limiter, as all workers share it: its address, and what this process says to it. The process of the limiter is the
//! generation of its states.
//!
//! Not here: its health (`driver::health`), and connections to it (`driver::link`).

use std::ops::Deref;
use std::sync::Arc;

use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

use super::JOIN;
use super::proto::{JoinRequest, JoinResponse};
use crate::engine::limit::Key;
use crate::fleet::stores::driver::grpc::{self, Caller};
use crate::fleet::stores::driver::{CONNECT_MAX, ConnectError, Health, NodeAddress, Opened, Server, StoreContext};

/// A limiter.
pub(in crate::fleet::stores) struct Node {
    health: Health,
    host: Box<str>,
    port: u16,
    /// `None` for plain connections.
    tls: Option<Arc<ClientConfig>>,
    /// Shows that both sides hash keys alike.
    proof: Key,
    /// This process.
    pub(super) replica: u64,
}

impl Node {
    /// A limiter that is believed to be up, and whose process is unknown.
    pub(super) fn new(
        context: Arc<StoreContext>,
        (host, port): (Box<str>, u16),
        tls: Option<Arc<ClientConfig>>,
        (proof, replica): (Key, u64),
    ) -> Arc<Self> {
        Arc::new(Self {
            health: Health::new(context, &NodeAddress::tcp(&*host, port).to_string()),
            host,
            port,
            tls,
            proof,
            replica,
        })
    }

    /// What this process says to join, without states.
    pub(super) fn joining(&self) -> JoinRequest {
        let Self { proof, replica, .. } = *self;
        JoinRequest {
            proof: Some(proof.into()),
            replica,
            replicas: self.replicas(),
            states: Vec::new(),
            is_complete: false,
        }
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
