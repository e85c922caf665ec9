//! Who is at the other end of a client's connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use super::clients::Entered;
use super::proxy_protocol::{self, Version};
use crate::policy::Certificate;

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// IPv4 if it is one.
    pub(crate) ip: IpAddr,
    /// The same, as X-Forwarded-For has it.
    pub(crate) text: Box<str>,
    /// Where it connects from.
    pub(crate) address: SocketAddr,
    /// What it connected to, if that was asked for when it did.
    pub(crate) local: Option<SocketAddr>,
    /// Whether it speaks TLS.
    pub(crate) is_tls: bool,
    /// What its certificate says of it, if it has shown one.
    pub(crate) certificate: Option<Box<Certificate>>,
    /// What it counts as; none if it passes on what others ask for.
    pub(crate) client: Option<Rc<Entered>>,
}

impl Peer {
    /// What it connected to; nowhere in particular if that is not known.
    fn to(&self) -> SocketAddr {
        let unknown = if self.ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        self.local.unwrap_or(SocketAddr::new(unknown, 0))
    }

    /// What tells a service that a connection is this one's.
    pub(crate) fn header(&self, version: Version) -> Rc<[u8]> {
        let mut header = Vec::new();
        proxy_protocol::write(&mut header, version, self.address, self.to());
        header.into()
    }
}
