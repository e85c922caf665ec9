//! Settings of the connections between replicas: `[fleet]` with `listen`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::store::stream::Timing;
use crate::fleet::etcd::EtcdServers;
use crate::transport::net::tls::PeerTls;

/// The addresses of the members as host and port, perhaps with that of this replica among them.
pub type Members = Arc<[Box<str>]>;

/// The source of the addresses of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberSource {
    /// The configuration.
    Static(Members),
    /// All addresses of a name.
    Dns {
        /// The name.
        host: Box<str>,
        /// The port of all members.
        port: u16,
        /// The name servers; those of the system if there are none.
        servers: Arc<[SocketAddr]>,
    },
    /// The replicas that are registered in etcd.
    Etcd(Arc<EtcdMembers>),
}

/// Membership in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdMembers {
    /// The servers of etcd.
    pub servers: EtcdServers,
    /// The start of all keys, without a slash at its end. Members are below `members/`.
    pub prefix: Box<str>,
    /// The address at which members reach this replica; otherwise the address from which it reaches etcd, with `port`.
    pub advertise: Option<Box<str>>,
    /// The port of this replica for other replicas.
    pub port: u16,
}

/// Settings that a reload changes.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSettings {
    /// Where the addresses of the members come from.
    pub members: MemberSource,
    /// The address at which members reach this replica, if it is known.
    pub advertise: Option<Box<str>>,
    /// TLS with certificates on both sides; none for plain TCP.
    pub tls: Option<PeerTls>,
    /// The times of streams.
    pub timing: Timing,
    /// `fleet.replicas`, if it is set.
    pub replicas: Option<u64>,
    /// The bound on the number of replicas, this one included.
    pub max_replicas: usize,
    /// The time for which a member counts after it has left.
    pub leave_after: Duration,
}

impl FleetSettings {
    /// The replicas until the members are known, this one included: `fleet.replicas`, or as many as the configuration lists.
    pub fn named_replicas(&self) -> Option<u64> {
        let listed = match &self.members {
            MemberSource::Static(all) if !all.is_empty() => Some(all.len() as u64),
            _ => None,
        };
        self.replicas.or(listed)
    }
}
