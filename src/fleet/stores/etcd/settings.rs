//! The settings of an etcd: its servers, and what follows when they fail.
//!
//! `config` builds the settings. A reload compares them with `==`, and keeps a store whose settings are equal.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::store::backend::OnFailure;
use crate::fleet::stores::driver::{Login, NodeAddress};
use crate::transport::net::tls::StoreTls;

/// A `[store.NAME]` with `etcd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The name of the table: 1 to 64 of `A-Z a-z 0-9 _ -`.
    pub name: Arc<str>,
    /// The members of one etcd; at least one, with host and port.
    pub servers: Vec<NodeAddress>,
    /// User and password. Without a user etcd gets none.
    pub login: Login,
    /// TLS to all servers; `None` for plain connections.
    pub tls: Option<StoreTls>,
    /// The time after which a decision has failed.
    pub timeout: Duration,
    /// The first part of every key.
    pub prefix: Arc<str>,
    /// What decides while etcd is down.
    pub on_failure: OnFailure,
}
