//! The settings of one store: its servers, how Weir logs in to them, and what follows when they fail.
//!
//! `config` builds the settings. A reload compares them with `==`, and keeps a store whose settings are equal.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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

/// TLS to servers of a store. All contents are valid PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreTls {
    /// Certificates of the authorities that sign the certificates of servers; `None` for those of the system.
    pub authorities: Option<Arc<[u8]>>,
    /// The certificate that Weir shows.
    pub own: Option<OwnCertificate>,
}

/// A certificate with its key. The `Debug` form does not show the key.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnCertificate {
    /// The certificate in PEM, followed by the certificates of its issuers.
    pub chain: Arc<[u8]>,
    /// The private key in PEM.
    pub key: Arc<[u8]>,
}

/// What decides about a key while its server is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Each replica, by its share of the limit.
    #[default]
    Split,
    /// Each replica, by the whole limit.
    Local,
    /// Every request is refused.
    Reject,
    /// Every request is admitted, and charged nothing.
    Allow,
}

impl OnFailure {
    /// The word in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Local => "local",
            Self::Reject => "reject",
            Self::Allow => "allow",
        }
    }
}

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

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnCertificate")
    }
}

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
        let own = OwnCertificate { chain: Arc::from(*b"chain"), key: Arc::from(*b"key") };
        assert_eq!(
            format!("{login:?} {own:?}"),
            "Login { user: Some(\"weir\"), password: Some(Password) } OwnCertificate"
        );
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
