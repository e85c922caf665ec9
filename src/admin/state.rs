//! The state behind the admin listener.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Extension;
use axum::extract::FromRequestParts;
use axum::extract::rejection::ExtensionRejection;
use http::request::Parts;
use tokio::time::timeout;

use super::access::{Access, Operator};
use super::audit::{self, AuditFile, Audited};
use super::ban_file::BanFile;
use super::change::Overrides;
use super::reloads::{ConfigReader, Reloads};
use super::series::History;
use crate::base::telemetry::{Metrics, Taps};
use crate::base::time::Timestamp;
use crate::engine::gate::{Gate, Live, NewestLive, Routing, StoreTasks, StoredKey, hear_stores};
use crate::engine::policy::api_keys::{EditedKeys, KeyEdit, KeyEditError};
use crate::fleet::grpc::fleet::Hub;
use crate::transport::net::ListenAddress;
use crate::transport::upstream::Directory;

/// Edits the file of API keys at a path.
pub type EditKeys = fn(&Path, &KeyEdit, Timestamp) -> Result<EditedKeys, KeyEditError>;

/// The state behind the admin listener.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The metrics that /metrics shows.
    pub metrics: Arc<Metrics>,
    /// The taps of operators.
    pub taps: Arc<Taps>,
    /// The last hour, as [`super::keep_history`] samples it.
    pub history: Arc<History>,
    /// The gate. Its gauges are updated for each scrape.
    pub gate: Arc<Gate>,
    /// The policy in force, with its state.
    pub live: NewestLive,
    /// Asks the stores of limits.
    pub stores: StoreTasks,
    /// Whether /readyz answers 200.
    pub ready: Arc<AtomicBool>,
    /// The listener's address.
    pub address: SocketAddr,
    /// Whether the listener speaks TLS.
    pub is_tls: bool,
    /// The addresses for requests, with the ports that the system chose.
    pub services: Vec<ListenAddress>,
    /// The conditions that a request must meet.
    pub access: Arc<ArcSwap<Access>>,
    /// The upstreams in force.
    pub(crate) upstreams: Arc<dyn Directory>,
    /// The routes of the configuration in force.
    pub routing: Arc<ArcSwap<Routing>>,
    /// The configuration in force.
    pub configuration: Arc<dyn ConfigReader>,
    /// The last reloads.
    pub reloads: Reloads,
    /// Overrides set at run time.
    pub overrides: Overrides,
    /// The other replicas; `None` without connections to them.
    pub fleet: Option<Arc<Hub>>,
    /// The file of bans that operators set.
    pub bans: Arc<BanFile>,
    /// Edits a file of API keys.
    pub edit_keys: EditKeys,
    /// The file of changes by operators.
    pub audit: Arc<AuditFile>,
}

/// The time for stores to say something. Each has a timeout of its own, but a worker may be busy.
const HEARD_TIMEOUT: Duration = Duration::from_secs(5);

/// A call of the API: the state, and the operator who makes it.
pub(super) struct Call(pub(super) Arc<Admin>, pub(super) Operator);

impl FromRequestParts<Arc<Admin>> for Call {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(head: &mut Parts, admin: &Arc<Admin>) -> Result<Self, ExtensionRejection> {
        let Extension(operator) = Extension::from_request_parts(head, admin).await?;
        Ok(Self(Arc::clone(admin), operator))
    }
}

impl Admin {
    /// Brings the newest states of the keys that `find` finds from their stores. Those of which a store says nothing stay as
    /// they are here.
    pub(super) async fn hear_stores(&self, find: impl FnOnce(&Live) -> Vec<StoredKey>) {
        let keys = {
            let live = self.live.load();
            if live.has_stores() { find(&live) } else { Vec::new() }
        };
        if !keys.is_empty() {
            let clock = self.gate.clock();
            let heard = self.stores.begin(move |stores| async move { hear_stores(&keys, &*stores, clock).await });
            // Nothing is heard without workers, or in time.
            let _ = timeout(HEARD_TIMEOUT, heard).await;
        }
    }

    /// Writes a line of the audit log for each of `changes`, which `operator` made.
    pub(super) async fn record(&self, operator: &Operator, changes: Vec<Audited>) {
        audit::record((&self.access.load_full(), &self.audit), Some(operator), changes).await;
    }
}
