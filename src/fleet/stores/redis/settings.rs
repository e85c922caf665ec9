//! The settings of one store: its servers, how Weir logs in to them, and what follows when they fail.
//!
//! `config` builds the settings. A reload compares them with `==`, and keeps a store whose settings are equal.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::store::backend::OnFailure;
use crate::fleet::stores::driver::{Login, NodeAddress};
use crate::transport::net::tls::StoreTls;

/// A `[store.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// The name of the table: 1 to 64 of `A-Z a-z 0-9 _ -`.
    pub name: Arc<str>,
    /// The servers.
    pub topology: Topology,
    /// The credentials for the servers that hold keys.
    pub login: Login,
    /// TLS to all servers of the store; `None` for plain connections.
    pub tls: Option<StoreTls>,
    /// The time after which a call has failed.
    pub timeout: Duration,
    /// The first part of every key in Redis.
    pub prefix: Arc<str>,
    /// What decides while a server is down.
    pub on_failure: OnFailure,
}

/// The servers of a store. No list is empty, and no list has an address twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Independent servers, each with a part of the keys.
    Ring(Vec<NodeAddress>),
    /// Some servers of a Redis Cluster. They tell the addresses of the others.
    Cluster(Vec<NodeAddress>),
    /// Sentinels, which tell the address of one master.
    Sentinel {
        /// The name by which the sentinels know the master.
        master: Box<str>,
        /// The sentinels.
        nodes: Vec<NodeAddress>,
        /// The credentials for the sentinels.
        login: Login,
    },
}

impl Topology {
    /// The servers that the configuration names.
    pub fn nodes(&self) -> &[NodeAddress] {
        match self {
            Self::Ring(nodes) | Self::Cluster(nodes) | Self::Sentinel { nodes, .. } => nodes,
        }
    }
}
