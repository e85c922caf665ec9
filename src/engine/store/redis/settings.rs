//! The settings of one store: its servers, how Weir logs in to them, and what follows when they fail.
//!
//! `config` builds the settings. A reload compares them with `==`, and keeps a store whose settings are equal.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::store::backend::{NodeAddress, OnFailure, StoreTls};

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

/// The credentials for a server. Both are absent if it needs none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The user of the ACL; `None` for the default user.
    pub user: Option<Box<str>>,
    /// The password; always present if there is a user.
    pub password: Option<Password>,
}

/// A password. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<str>);

impl Password {
    /// Keeps `text` secret.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The password, for a login.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl Topology {
    /// The servers that the configuration names.
    pub fn nodes(&self) -> &[NodeAddress] {
        match self {
            Self::Ring(nodes) | Self::Cluster(nodes) | Self::Sentinel { nodes, .. } => nodes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let login = Login { user: Some("weir".into()), password: Some(Password::new("hunter2")) };
        assert_eq!(format!("{login:?}"), "Login { user: Some(\"weir\"), password: Some(Password) }");
        assert_eq!(login.password.map(|password| password.reveal().to_owned()).as_deref(), Some("hunter2"));
    }
}
