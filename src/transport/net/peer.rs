//! The peer of a client's connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use super::client_usage::{ClientHandle, ProxiedClient};
use super::proxy_protocol::{self, Version};
use crate::engine::policy::Certificate;

/// The peer of a client's connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its address; IPv4-mapped addresses are IPv4.
    pub(crate) ip: IpAddr,
    /// The address as text, for X-Forwarded-For.
    pub(crate) text: Box<str>,
    /// Address and port that it connects from.
    pub(crate) address: SocketAddr,
    /// Address and port that it connected to; only if an upstream needs them.
    pub(crate) local_address: Option<SocketAddr>,
    /// Whether it uses TLS.
    pub(crate) is_tls: bool,
    /// The version of TLS; empty without TLS.
    pub(crate) tls_version: &'static str,
    /// The identity in its verified client certificate, if it has one.
    pub(crate) certificate: Option<Box<Certificate>>,
    /// Counts its requests; none for a trusted proxy, which forwards the requests of others.
    pub(crate) client: Option<Rc<ClientHandle>>,
    /// For a trusted proxy: counts the requests of the client that it named last.
    pub(crate) proxied: ProxiedClient,
}

impl Peer {
    /// The address that it connected to, or the unspecified address.
    fn destination(&self) -> SocketAddr {
        let unknown = if self.ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        self.local_address.unwrap_or(SocketAddr::new(unknown, 0))
    }

    /// The PROXY header that announces this peer to a service.
    pub(crate) fn header(&self, version: Version) -> Rc<[u8]> {
        let mut header = Vec::new();
        proxy_protocol::write(&mut header, version, self.address, self.destination());
        header.into()
    }
}
