//! The configuration of a service: where it runs, how it is spoken to, and what its connections may cost.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::{Authority, Scheme};

use super::Eject;
use crate::net::Protocol;
use crate::net::proxy_protocol::Version;
use crate::net::tls::{ClientTls, ServerName};
use crate::policy::KeyPart;
use crate::policy::upgrades::Upgrades;

/// A service behind Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Unique among the upstreams; none for that of `[upstream]`.
    pub name: Option<Box<str>>,
    /// Where it runs; at least one place, none twice.
    pub endpoints: Vec<Endpoint>,
    /// How those are met that speak TLS; there if any of them does.
    pub tls: Option<ClientTls>,
    /// What is spoken with them.
    pub protocol: Protocol,
    /// Which of them gets a request.
    pub balance: Balance,
    /// How they are asked whether they are well; none if they are not.
    pub health: Option<Health>,
    /// When one that keeps failing is passed by; none if it never is.
    pub eject: Option<Eject>,
    /// Whether `Host` becomes [`Endpoint::host`]; else the client's is kept.
    pub rewrite_host: bool,
    /// When names are looked up.
    pub resolve: Resolve,
    /// How many connections each endpoint may have, and what waits for one.
    pub cap: Cap,
    /// Idle connections kept by each worker to each endpoint; none for as many as were in use at once.
    pub max_idle: Option<usize>,
    /// How long a connection is kept idle.
    pub idle_timeout: Duration,
    /// With which header each connection begins, if with any.
    pub proxy_protocol: Option<Version>,
    /// What its clients may change to, where their route says nothing else.
    pub upgrades: Upgrades,
}

/// When names of endpoints are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// By the system, for each connection.
    Off,
    /// By the DNS, as often as what it said was good for.
    Ttl,
    /// So often: by the system, but places of a service by the DNS.
    Every(Duration),
}

/// Which endpoint gets a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// One after another.
    RoundRobin,
    /// The one with the fewest requests in hand.
    LeastConnections,
    /// The less loaded of two that chance picks.
    P2c,
    /// The same for requests that are alike in this.
    Hash(KeyPart),
}

/// How many connections an endpoint may have, over all workers, and who may wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Of each endpoint, idle ones included; none for as many as all upstreams may have together.
    pub max_connections: Option<usize>,
    /// Requests that wait at once, over all endpoints.
    pub max_queued: usize,
    /// How long one waits.
    pub queue_timeout: Duration,
}

impl Cap {
    /// Connections that an endpoint may have.
    pub(crate) fn most(&self) -> usize {
        self.max_connections.unwrap_or(usize::MAX)
    }
}

/// How endpoints are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The target of the request.
    pub path: Box<str>,
    /// Between two.
    pub interval: Duration,
    /// For a connection and the head of its answer.
    pub timeout: Duration,
    /// Good answers in a row after which an endpoint is well again.
    pub healthy_after: u16,
    /// Failures in a row after which it is not.
    pub unhealthy_after: u16,
}

/// One of the places where a service runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Where to connect.
    pub address: Address,
    /// What it is called in `Host`, with its port.
    pub host: Box<str>,
    /// The name that its certificate has to have, if it speaks TLS.
    pub server_name: Option<ServerName>,
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Host and port; names are resolved when connecting.
    Tcp(Authority),
    /// A Unix socket.
    Unix(PathBuf),
    /// The name of a service, of which the DNS knows the places (RFC 2782).
    Srv(Box<str>),
}

/// The ports of URLs that name none.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

impl Endpoint {
    /// By which scheme it is spoken to.
    pub(crate) fn scheme(&self) -> Scheme {
        if self.server_name.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// The port to connect to, if it has one.
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
