//! The addresses of a demo.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::net::ListenAddress;

/// A port that the system chooses.
pub(super) const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The URL of a TCP address.
pub(super) fn url(place: Option<&ListenAddress>) -> String {
    match place {
        Some(ListenAddress::Tcp(address)) => format!("http://{}", reachable(*address)),
        _ => String::new(),
    }
}

/// The address that a client on this machine connects to. `address` may stand for all addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
        _ => address,
    }
}
