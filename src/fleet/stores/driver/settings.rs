//! The settings of a store: its servers, how Weir logs in to them, and what follows when they fail.
//!
//! `config` builds the settings. A reload compares them with `==`, and keeps a store whose settings are equal.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::opaque::opaque_debug;
use crate::engine::store::backend::OnFailure;
use crate::transport::net::tls::StoreTls;

/// A `[store.NAME]`, or a limiter service that a strategy names by its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSettings {
    /// The name of the table, which is 1 to 64 of `A-Z a-z 0-9 _ -`, or the address.
    pub name: Arc<str>,
    /// The servers.
    pub servers: Servers,
    /// TLS to all servers; `None` for plain connections.
    pub tls: Option<StoreTls>,
    /// The time after which a call has failed.
    pub timeout: Duration,
    /// What decides while a server is down.
    pub on_failure: OnFailure,
}

/// The servers of a store, by their kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// Redis.
    Redis {
        /// The servers.
        topology: Topology,
        /// The credentials for the servers that hold keys.
        login: Login,
        /// The first part of every key.
        prefix: Arc<str>,
    },
    /// The limiter service of another Weir.
    Service {
        /// A name in lower case, or an address without brackets.
        host: Box<str>,
        /// The port.
        port: u16,
    },
    /// One etcd.
    Etcd {
        /// Its members; at least one, with host and port.
        members: Vec<NodeAddress>,
        /// User and password. Without a user etcd gets none.
        login: Login,
        /// The first part of every key.
        prefix: Arc<str>,
    },
}

/// The servers of a store of Redis. No list is empty, and no list has an address twice.
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

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeAddress {
    /// A host and a port.
    Tcp {
        /// A host name, in lower case, or an IP address without brackets.
        host: Box<str>,
        /// The port.
        port: u16,
    },
    /// A Unix socket of this machine, by its absolute path.
    Unix(Box<Path>),
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

opaque_debug!(Password);

impl NodeAddress {
    /// The server at this port of `host`.
    pub fn tcp(host: impl Into<Box<str>>, port: u16) -> Self {
        Self::Tcp { host: host.into(), port }
    }

    /// The host; `None` for a Unix socket.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp { host, .. } => Some(host),
            Self::Unix(_) => None,
        }
    }
}

/// `host:port` or `unix:/path`, as labels of metrics and logs show it.
impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
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

    #[test]
    fn an_address_is_shown_with_its_port() {
        for (host, port, shown) in [("10.0.0.1", 6379, "10.0.0.1:6379"), ("::1", 1, "[::1]:1"), ("a.b", 2, "a.b:2")] {
            assert_eq!(NodeAddress::tcp(host, port).to_string(), shown);
        }
        assert_eq!(NodeAddress::Unix(Path::new("/run/redis.sock").into()).to_string(), "unix:/run/redis.sock");
    }
}
