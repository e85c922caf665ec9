//! Settings that stores of all kinds have: the addresses of servers, TLS to them, and what follows when they fail.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

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

impl fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnCertificate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown() {
        let own = OwnCertificate { chain: Arc::from(*b"chain"), key: Arc::from(*b"key") };
        assert_eq!(format!("{own:?}"), "OwnCertificate");
    }

    #[test]
    fn an_address_is_shown_with_its_port() {
        for (host, port, shown) in [("10.0.0.1", 6379, "10.0.0.1:6379"), ("::1", 1, "[::1]:1"), ("a.b", 2, "a.b:2")] {
            assert_eq!(NodeAddress::tcp(host, port).to_string(), shown);
        }
        assert_eq!(NodeAddress::Unix(Path::new("/run/redis.sock").into()).to_string(), "unix:/run/redis.sock");
    }
}
