//! One node of a store, as all workers share it: its address, its health, and the generation of its keys.
//!
//! Not here: connections to it (`link`), and probes (`monitor`).

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::time::timeout;

use super::connection::Connector;
use super::generation::Generation;
use super::receipt::RedisReceipt;
use crate::engine::store::backend::{
    Batch, CONNECT_MAX, ConnectError, Failure, Health, NodeAddress, Opened, Server, StoreContext,
};

/// What all nodes of a store share.
pub(super) struct Common {
    pub(super) context: Arc<StoreContext>,
    pub(super) connector: Connector,
}

/// One node.
pub(super) struct Node {
    common: Arc<Common>,
    health: Health,
    address: Mutex<Option<NodeAddress>>,
    /// The generation of the keys under which it decides; `None` if it does not decide yet.
    generation: ArcSwapOption<Generation>,
    /// The last generation under which it decided; 0 if there was none.
    last_generation: AtomicU64,
    /// Whether replies may have been lost with their charges.
    has_lost: AtomicBool,
    /// Reports that were sent without a reply, by the one task that sends.
    pub(super) unanswered: tokio::sync::Mutex<VecDeque<Batch<RedisReceipt>>>,
}

impl Deref for Common {
    type Target = StoreContext;

    fn deref(&self) -> &StoreContext {
        &self.context
    }
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
            common,
            address: Mutex::new(address),
            generation: ArcSwapOption::empty(),
            last_generation: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
            unanswered: tokio::sync::Mutex::default(),
        })
    }

    /// The generation under which the node decides; `None` while it is cold.
    pub(super) fn generation(&self) -> Option<Arc<Generation>> {
        self.generation.load_full()
    }

    /// Lets the node decide under this generation.
    pub(super) fn warmed(&self, generation: Generation) {
        self.last_generation.store(generation.begun_us, Ordering::Relaxed);
        self.generation.store(Some(Arc::new(generation)));
        self.set_warm(true);
    }

    /// The node has a generation that this process does not know. Logs it, unless it is the first one.
    pub(super) fn lost_keys(&self) {
        if self.last_generation() != 0 {
            self.health.lost_keys();
        }
    }

    /// The last generation under which the node decided; 0 if there was none.
    pub(super) fn last_generation(&self) -> u64 {
        self.last_generation.load(Ordering::Relaxed)
    }

    /// The node answered that `begun_us` is not the generation of its keys.
    pub(super) fn is_cold(&self, begun_us: u64) {
        let known = self.generation.load();
        if known.as_ref().is_some_and(|known| known.begun_us == begun_us) {
            self.generation.store(None);
            self.set_warm(false);
        }
    }

    /// Whether replies may have been lost since the last call.
    pub(super) fn take_lost(&self) -> bool {
        self.has_lost.swap(false, Ordering::Relaxed)
    }

    /// Follows the node to another address. Returns whether it is another one.
    pub(super) fn move_to(&self, address: &NodeAddress) -> bool {
        let mut known = self.address.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = known.as_ref() != Some(address);
        *known = Some(address.clone());
        drop(known);
        if is_new {
            self.moved();
        }
        is_new
    }

    /// A call failed.
    pub(super) fn failed(&self, failure: Failure, text: &str) {
        self.note_lost(failure);
        self.health.failed(failure, text);
    }

    fn note_lost(&self, failure: Failure) {
        if matches!(failure, Failure::Timeout | Failure::Connection) {
            self.has_lost.store(true, Ordering::Relaxed);
        }
    }
}

impl Server for Node {
    type Connection = MultiplexedConnection;

    fn address(&self) -> Option<NodeAddress> {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn open(&self) -> Result<Opened<MultiplexedConnection>, ConnectError> {
        let mut news = self.news();
        if self.address().is_none() {
            let _ = timeout(CONNECT_MAX, news.changed()).await;
        }
        let address = self.address().ok_or_else(ConnectError::no_address)?;
        let opened = timeout(CONNECT_MAX, self.common.connector.open(&address)).await;
        opened.unwrap_or_else(|_| Err(ConnectError::timeout()))
    }

    fn unreachable(&self, error: &ConnectError) {
        self.note_lost(error.failure);
        self.health.unreachable(error);
    }

    async fn answers(&self, connection: &MultiplexedConnection) -> bool {
        let mut connection = connection.clone();
        timeout(self.timeout() * 3, connection.send_packed_command(&cmd("PING"))).await.is_ok_and(|reply| reply.is_ok())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("health", &self.health).finish_non_exhaustive()
    }
}
