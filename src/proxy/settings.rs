//! What the data path is told: by the command at start, and by each reload.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::http1::Underscores;
use crate::net::tls::Tls;
use crate::net::{Listen, Timeouts};
use crate::policy::route::Routes;
use crate::respond::Profiles;
use crate::upstream::settings::Upstream;

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
