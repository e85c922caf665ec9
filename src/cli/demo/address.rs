//! The addresses of a demo.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::transport::net::ListenAddress;

/// A port that the system chooses.
pub(super) const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The URL of a TCP address.
pub(super) fn url(place: Option<&ListenAddress>) -> String {
    place.and_then(ListenAddress::reachable).map(|address| format!("http://{address}")).unwrap_or_default()
}
