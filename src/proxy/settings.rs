//! What the data path is told: by the command at start, and by each reload.

use std::time::Duration;

use http::uri::Authority;
use ipnet::IpNet;

use super::listener::Listen;
use super::proxy_protocol::Version;
use super::tls::Tls;
use crate::respond::Profiles;

/// What only a restart changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Where to accept; at least one place.
    pub listen: Vec<Listen>,
    /// Permissions of the files of Unix sockets.
    pub unix_mode: u32,
    /// Threads, each with a listener and an upstream pool of its own.
    pub workers: usize,
    /// Connections open at once, over all workers.
    pub max_connections: usize,
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
    /// Where requests go.
    pub upstream: Upstream,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// What one connection may spend.
    pub bounds: Bounds,
    /// Whether `Forwarded` (RFC 7239) is sent beside X-Forwarded-*.
    pub forwarded: bool,
    /// Which limit headers clients get.
    pub profiles: Profiles,
}

/// The service behind Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Host and port of its URL; names are resolved when connecting.
    pub authority: Authority,
    /// Whether `Host` becomes [`Upstream::authority`]; else the client's is kept.
    pub rewrite_host: bool,
    /// Idle connections kept by each worker.
    pub max_idle: usize,
    /// How long a connection is kept idle.
    pub idle_timeout: Duration,
    /// With which header each connection begins, if with any.
    pub proxy_protocol: Option<Version>,
    /// What its clients may change to.
    pub upgrades: Upgrades,
}

/// Protocols that a connection may change to, each as its name and perhaps `/` and a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upgrades(pub Box<[Box<str>]>);

impl Upgrades {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one that is asked for by this name; the case does not matter.
    pub(super) fn find(&self, wanted: &[u8]) -> Option<&str> {
        self.0.iter().find(|name| name.as_bytes().eq_ignore_ascii_case(wanted)).map(|name| &**name)
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
    /// HTTP/2 streams open at once on a connection.
    pub max_h2_streams: u32,
}
