//! The configuration of a service: its endpoints, its protocol, and the bounds on its connections.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::{Authority, Scheme};

use super::balance::ejection::Eject;
use crate::engine::policy::KeyPart;
use crate::engine::policy::upgrades::Upgrades;
use crate::transport::net::Protocol;
use crate::transport::net::proxy_protocol::Version;
use crate::transport::net::tls::{ClientTls, ServerName};

/// A service behind Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Unique among the upstreams; none for `[upstream]`.
    pub name: Option<Box<str>>,
    /// At least one; no duplicates.
    pub endpoints: Vec<Endpoint>,
    /// The TLS settings; present if any endpoint uses TLS.
    pub tls: Option<ClientTls>,
    /// The HTTP version of its connections.
    pub protocol: Protocol,
    /// How an endpoint is chosen for a request.
    pub balance: Balance,
    /// The active health checks; none if there are none.
    pub health: Option<Health>,
    /// When an endpoint that keeps failing is ejected; none if never.
    pub eject: Option<Eject>,
    /// Whether [`Endpoint::host`] replaces the client's `Host`.
    pub rewrite_host: bool,
    /// When names of endpoints are looked up.
    pub resolve: Resolve,
    /// The bounds on connections and on the queue.
    pub cap: Cap,
    /// Idle connections of each worker to each endpoint; none for as many as were in use at once.
    pub max_idle: Option<usize>,
    /// How long a connection may be idle.
    pub idle_timeout: Duration,
    /// The version of the PROXY header with which each connection begins; none for no header.
    pub proxy_protocol: Option<Version>,
    /// The protocols to which clients may change, unless their route names others.
    pub upgrades: Upgrades,
}

/// When names of endpoints are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// By the system, for each connection.
    Off,
    /// By the DNS, when the time to live of the last answer has passed.
    Ttl,
    /// At this interval: hosts by the system, services (SRV) by the DNS.
    Every(Duration),
}

/// How an endpoint is chosen for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// One after another.
    RoundRobin,
    /// The endpoint with the fewest active requests.
    LeastConnections,
    /// The less loaded of two random endpoints.
    P2c,
    /// One endpoint for all requests with an equal value of this.
    Hash(KeyPart),
}

/// The bounds on the connections of an upstream and on its queue, over all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Connections of each endpoint, idle ones included; none for the bound of the process alone.
    pub max_connections: Option<usize>,
    /// Requests that may wait for a connection, over all endpoints.
    pub max_queued: usize,
    /// How long a request may wait.
    pub queue_timeout: Duration,
}

impl Cap {
    /// The number of connections that an endpoint may have.
    pub(crate) fn most(&self) -> usize {
        self.max_connections.unwrap_or(usize::MAX)
    }
}

/// Active health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The target of the request.
    pub path: Box<str>,
    /// The time between two checks.
    pub interval: Duration,
    /// The timeout of one check: connecting and the response head.
    pub timeout: Duration,
    /// Successes in a row after which an endpoint is healthy again.
    pub healthy_after: u16,
    /// Failures in a row after which an endpoint is unhealthy.
    pub unhealthy_after: u16,
}

/// One address at which a service runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Where to connect.
    pub address: Address,
    /// Its host and port, for `Host`.
    pub host: Box<str>,
    /// The name that its certificate must have; none if it does not use TLS.
    pub server_name: Option<ServerName>,
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Host and port; names are resolved when connecting.
    Tcp(Authority),
    /// A Unix socket.
    Unix(PathBuf),
    /// The name of a service, whose addresses are in SRV records (RFC 2782).
    Srv(Box<str>),
}

/// The default ports of URLs.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

impl Endpoint {
    /// The scheme of its URLs.
    pub(crate) fn scheme(&self) -> Scheme {
        if self.server_name.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// The TCP port to connect to.
    pub(crate) fn port(&self) -> u16 {
        let usual = if self.server_name.is_some() { HTTPS_PORT } else { HTTP_PORT };
        match &self.address {
            Address::Tcp(authority) => authority.port_u16().unwrap_or(usual),
            Address::Unix(_) | Address::Srv(_) => usual,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp(authority) if self.server_name.is_some() => write!(f, "https://{authority}"),
            Address::Tcp(authority) => write!(f, "http://{authority}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Srv(name) if self.server_name.is_some() => write!(f, "srv+https://{name}"),
            Address::Srv(name) => write!(f, "srv+http://{name}"),
        }
    }
}
