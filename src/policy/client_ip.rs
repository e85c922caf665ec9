//! Whose address.
use http::HeaderMap;
use ipnet::IpNet;
use std::net::IpAddr;
/// Rules.
#[derive(Clone, Debug)]
pub struct ClientIpRules {
    /// Trusted.
    pub trusted: Vec<IpNet>,
    /// Bits.
    pub ipv6_prefix: u8,
}
impl ClientIpRules {
    /// The client's address.
    pub fn client_ip(&self, peer: IpAddr, _headers: &HeaderMap) -> IpAddr {
        peer
    }
}
