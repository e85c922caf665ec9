//! What the data path is told: by the command at start, and by each reload.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use ipnet::IpNet;

pub use super::h1::Underscores;
use super::listener::Listen;
pub use super::pace::MinRate;
use super::proxy_protocol::Version;
use super::tls::{ClientTls, ServerName, Tls};
pub use super::upstream::Eject;
use crate::policy::KeyPart;
use crate::policy::route::Routes;
use crate::policy::upgrades::Upgrades;
use crate::respond::Profiles;

/// What only a restart changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Where to accept; at least one place.
    pub listen: Vec<Listen>,
    /// Permissions of the files of Unix sockets.
    pub unix_mode: u32,
    /// Where the next process asks to take over, if it may: the file of a Unix socket.
    pub takeover: Option<PathBuf>,
    /// Threads, each with a listener and an upstream pool of its own.
    pub workers: usize,
    /// Connections open at once, over all workers; none for what the descriptors suffice for.
    pub max_connections: Option<usize>,
    /// How long what runs may go on after a signal to stop.
    pub shutdown_grace: Duration,
}

/// What a reload changes, for requests that arrive after it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Peers that say with a PROXY header whose connection they pass on.
    pub proxied_from: Box<[IpNet]>,
    /// What clients that connect are met with; none for plain TCP.
    pub tls: Option<Tls>,
    /// Where requests can go; at least one.
    pub upstreams: Vec<Upstream>,
    /// Who is asked for their names; those whom the system asks, if this is empty.
    pub name_servers: Arc<[SocketAddr]>,
    /// Which of them a request goes to; none if all go to the first.
    pub routes: Option<Arc<Routes>>,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// What one client or one connection may spend.
    pub bounds: Bounds,
    /// Whether `Forwarded` (RFC 7239) is sent beside X-Forwarded-*.
    pub forwarded: bool,
    /// Which limit headers clients get.
    pub profiles: Profiles,
}

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

/// What is spoken with a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1: one request at a time on a connection.
    Http1,
    /// HTTP/2: many at once; by ALPN where there is TLS, else because both sides know.
    H2,
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
    pub(super) fn most(&self) -> usize {
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
    pub(super) fn scheme(&self) -> Scheme {
        if self.server_name.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// The port to connect to, if it has one.
    pub(super) fn port(&self) -> u16 {
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

/// Deadlines; each restarts where its text says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request to the end of its head. Past it: 408.
    pub request_head: Duration,
    /// Between requests on one connection. Past it, and before twice that: closed.
    pub keep_alive: Duration,
    /// To connect to the upstream. Past it: 504.
    pub connect: Duration,
    /// From the last progress of the request to the head of the response. Past it: 504; 408 if the client stalls.
    pub response_head: Duration,
    /// Between two pieces of a body, in either direction. Past it: 408 or a broken connection.
    pub body_idle: Duration,
    /// What a client has to send of a body while that is waited for, until the response begins. Below it: 408.
    pub min_send: Option<MinRate>,
    /// What a client has to take of a response while there is something to take. Below it: a broken connection.
    pub min_read: Option<MinRate>,
    /// From the hand-over to the upstream to the end of the response; `None` for no bound. Past it: 504 or a broken connection.
    pub total: Option<Duration>,
    /// Between two bytes on an upgraded connection, in either direction. Past it: closed.
    pub upgraded_idle: Duration,
}

/// What one connection may spend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a request's head (431).
    pub max_head_bytes: usize,
    /// Headers of a request (431).
    pub max_headers: usize,
    /// Bytes of a request's target (414).
    pub max_uri_bytes: usize,
    /// Bytes of a request's body, where its route says nothing else; `u64::MAX` for no bound (413).
    pub max_body_bytes: u64,
    /// Requests on a connection; after the last it is closed.
    pub max_requests: u32,
    /// Connections of one client.
    pub max_per_ip: usize,
    /// Requests of one client that upstreams have in hand or that wait for that (429).
    pub max_requests_per_ip: usize,
    /// Bytes of answers that wait for their clients, over all of them.
    pub max_untaken_bytes: usize,
    /// HTTP/2 streams open at once on a connection.
    pub max_h2_streams: u32,
    /// What becomes of fields whose names have `_`.
    pub underscores: Underscores,
}
