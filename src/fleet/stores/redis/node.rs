//! One node of a store, as all workers share it: its address, and what it has not answered.
//!
//! Not here: its health (`driver::health`), and connections to it (`driver::link`).

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::time::timeout;

use super::connection::Connector;
use super::generation::Looks;
use crate::engine::store::backend::{Failure, RedisReceipt};
use crate::fleet::stores::driver::{
    Batch, CONNECT_MAX, ConnectError, Health, NodeAddress, Opened, Server, StoreContext,
};

/// What all nodes of a store share.
pub(super) struct Common {
    /// This replica in names of keys.
    pub(super) replica: Box<str>,
    pub(super) context: Arc<StoreContext>,
    pub(super) connector: Connector,
}

/// One node.
pub(in crate::fleet::stores) struct Node {
    common: Arc<Common>,
    health: Health,
    /// The address, or why it is not known.
    address: Mutex<Result<NodeAddress, ConnectError>>,
    /// Whether replies may have been lost with their charges, or units in flight may count twice.
    has_lost: AtomicBool,
    pub(super) looks: Looks,
    /// Reports that were sent without a reply, by the one task that sends.
    pub(super) unanswered: tokio::sync::Mutex<VecDeque<Batch<RedisReceipt>>>,
}

impl Deref for Node {
    type Target = Health;

    fn deref(&self) -> &Health {
        &self.health
    }
}

impl Node {
    /// A node that is believed to be up, and whose keys are unknown.
    pub(super) fn new(common: Arc<Common>, label: &str, address: Option<NodeAddress>) -> Arc<Self> {
        Arc::new(Self {
            health: Health::new(Arc::clone(&common.context), label),
            looks: Looks::new(&common.replica, common.context.clock),
            common,
            address: Mutex::new(address.ok_or_else(ConnectError::no_address)),
            // A server that was promoted may have charges whose replies were lost with the master.
            has_lost: AtomicBool::new(true),
            unanswered: tokio::sync::Mutex::default(),
        })
    }

    /// Whether the node may have more units in flight than it should since the last call.
    pub(super) fn take_lost(&self) -> bool {
        self.has_lost.swap(false, Ordering::Relaxed)
    }

    /// Follows the node to another address. Returns whether it is another one.
    pub(super) fn move_to(&self, address: &NodeAddress) -> bool {
        let mut known = self.locked_address();
        let is_new = known.as_ref().ok() != Some(address);
        *known = Ok(address.clone());
        drop(known);
        if is_new {
            self.moved();
        }
        is_new
    }

    /// Notes why no address was found. A known address stays.
    pub(super) fn not_found(&self, error: ConnectError) {
        let mut known = self.locked_address();
        if known.is_err() {
            *known = Err(error);
        }
    }

    fn locked_address(&self) -> MutexGuard<'_, Result<NodeAddress, ConnectError>> {
        self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next renewal is exact: the node got a report of units in flight, which a renewal before it may have had too, or an
    /// exact renewal may not have reached it.
    pub(super) fn note_inexact(&self) {
        self.has_lost.store(true, Ordering::Relaxed);
    }

    fn note_lost(&self, failure: Failure) {
        if matches!(failure, Failure::Timeout | Failure::Connection | Failure::Broken) {
            self.has_lost.store(true, Ordering::Relaxed);
        }
    }
}

impl Server for Node {
    type Connection = MultiplexedConnection;

    fn address(&self) -> Option<NodeAddress> {
        self.locked_address().clone().ok()
    }

    async fn open(&self) -> Result<Opened<MultiplexedConnection>, ConnectError> {
        let mut news = self.news();
        if self.address().is_none() {
            let _ = timeout(CONNECT_MAX, news.changed()).await;
        }
        let address = self.locked_address().clone()?;
        let opened = timeout(CONNECT_MAX, self.common.connector.open(&address)).await;
        opened.unwrap_or_else(|_| Err(ConnectError::timeout()))
    }

    fn failed(&self, failure: Failure, text: &str) {
        self.note_lost(failure);
        self.call_failed(failure, text);
    }

    fn unreachable(&self, error: &ConnectError) {
        self.note_lost(error.failure);
        self.connection_failed(error);
    }

    async fn answers(&self, connection: &MultiplexedConnection) -> bool {
        let mut connection = connection.clone();
        timeout(self.timeout() * 3, connection.send_packed_command(&cmd("PING"))).await.is_ok_and(|reply| reply.is_ok())
    }
}
