//! Settings of the data path: those of the start, and those of each reload.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use ipnet::IpNet;

use crate::engine::policy::route::Routes;
use crate::transport::http1::Underscores;
use crate::transport::net::tls::ServerTls;
use crate::transport::net::{ListenAddress, Timeouts};
use crate::transport::respond::Profiles;
use crate::transport::upstream::settings::Upstream;

/// Settings that only a restart changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupSettings {
    /// Addresses to accept requests on; none if Weir only answers checks.
    pub listen: Vec<ListenAddress>,
    /// Addresses to accept requests over TLS on, if `listen` has no TLS.
    pub tls_listen: Vec<ListenAddress>,
    /// Permissions of the files of Unix sockets.
    pub unix_mode: u32,
    /// Path of the Unix socket on which a successor asks to take over, if it may.
    pub takeover: Option<PathBuf>,
    /// Number of threads, each with its own listeners and connection pools.
    pub workers: usize,
    /// The most open connections of all workers; none for as many as the descriptors allow.
    pub max_connections: Option<usize>,
    /// Time that open requests may take after a signal to stop.
    pub shutdown_grace: Duration,
    /// Whether changes of files and new versions are read by themselves. A reload changes this.
    pub watches: bool,
}

/// The listener for checks of other proxies. Only a restart changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckListener {
    /// The address.
    pub listen: ListenAddress,
    /// The most open connections of all workers.
    pub max_connections: usize,
}

/// Settings of the listener for checks that a reload changes.
#[derive(Clone, Debug)]
pub struct CheckSettings {
    /// The headers that describe a request.
    pub headers: CheckHeaders,
    /// TLS for other proxies; none for plain TCP.
    pub tls: Option<ServerTls>,
}

/// The headers in which another proxy describes a request. Weir reads no others: a proxy replaces the headers that it
/// knows, and passes the rest on as its client wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckHeaders {
    /// `X-Forwarded-Method`, `X-Forwarded-Uri`, `X-Forwarded-Host`, as Traefik and Caddy write them.
    XForwarded,
    /// `X-Original-Method`, `X-Original-URI`, `X-Original-Host`, as configurations of nginx write them.
    XOriginal,
}

/// Settings that a reload changes, for requests that arrive after it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Peers that send a PROXY header before each connection.
    pub proxied_from: Box<[IpNet]>,
    /// TLS for clients; none for plain TCP.
    pub tls: Option<ServerTls>,
    /// The listeners without TLS; none if all are alike.
    pub plain: Option<PlainListeners>,
    /// The upstreams; none if Weir only answers checks.
    pub upstreams: Vec<Upstream>,
    /// The name servers that resolve their names; those of the system if empty.
    pub name_servers: Arc<[SocketAddr]>,
    /// The routes to upstreams; none if all requests go to the first.
    pub routes: Option<Arc<Routes>>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Bounds of one client or connection.
    pub bounds: Bounds,
    /// Whether `Forwarded` (RFC 7239) is sent beside X-Forwarded-*.
    pub forwarded: bool,
    /// Whether requests have ids.
    pub request_id: bool,
    /// The export of traces; none without it.
    pub traces: Option<TraceSettings>,
    /// The limit headers in responses.
    pub profiles: Profiles,
    /// Checks of other proxies; none if Weir answers none.
    pub check: Option<CheckSettings>,
}

/// The listeners without TLS beside those with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainListeners {
    /// The port of `https` to which their requests are redirected; none if they are served.
    pub redirect_port: Option<u16>,
}

/// The export of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// The URL of the collector.
    pub endpoint: Uri,
    /// `service.name` of the spans.
    pub service_name: Box<str>,
    /// One of so many traces is recorded.
    pub sample: u64,
}

/// Bounds of one client or connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a request head (431).
    pub max_head_bytes: usize,
    /// Header fields of a request (431).
    pub max_headers: usize,
    /// Bytes of a request target (414).
    pub max_uri_bytes: usize,
    /// Bytes of a request body, unless its route has another bound; `u64::MAX` for none (413).
    pub max_body_bytes: u64,
    /// Requests on a connection, which closes after the last.
    pub max_requests: u32,
    /// Connections of one client.
    pub max_per_ip: usize,
    /// Requests of one client in flight to upstreams, or waiting for that (429).
    pub max_requests_per_ip: usize,
    /// Bytes of responses that wait for their clients, of all clients together.
    pub max_untaken_bytes: usize,
    /// Open HTTP/2 streams of a connection.
    pub max_h2_streams: u32,
    /// Treatment of fields whose names have other signs than `-`.
    pub underscores: Underscores,
}
