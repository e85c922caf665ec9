//! Asks the DNS for the addresses of a host or of a service.
//!
//! Answers are not cached here: the time to live of an answer decides when `resolve` asks again. The system's name
//! servers and hosts (`/etc/resolv.conf`, `/etc/hosts`) are read again for each lookup.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use hickory_resolver::system_conf::read_system_conf;

use super::address::{Preference, ResolvedAddress};

/// SRV targets of one service that are looked up; further ones are ignored.
const TARGETS_MAX: usize = 64;

/// How long a configured name server may take for each of its two attempts.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer to a lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LookupAnswer {
    /// Sorted, so that equal answers are equal.
    pub(crate) addresses: Vec<ResolvedAddress>,
    /// The time to live; none if the source has none.
    pub(crate) ttl: Option<Duration>,
    /// What the DNS did not answer.
    pub(crate) unanswered: Unanswered,
}

/// The families of addresses without an answer, neither addresses nor that there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl Unanswered {
    /// Whether nothing is known of the family of `address`.
    pub(crate) fn has(self, address: IpAddr) -> bool {
        if address.is_ipv4() { self.v4 } else { self.v6 }
    }
}

impl LookupAnswer {
    fn sorted(mut self) -> Self {
        self.addresses.sort_unstable();
        self.addresses.dedup_by_key(|resolved| resolved.address);
        self
    }

    /// Adds the answer about a further host.
    fn add(&mut self, other: Self) {
        self.addresses.extend(other.addresses);
        self.ttl = self.ttl.into_iter().chain(other.ttl).min();
        self.unanswered.v4 |= other.unanswered.v4;
        self.unanswered.v6 |= other.unanswered.v6;
    }
}

/// Looks up the addresses of a host. Errs if the DNS gives no answer; an answer without addresses is no error.
pub(crate) async fn host(name: &str, port: u16, servers: &[SocketAddr]) -> io::Result<LookupAnswer> {
    Ok(addresses(&resolver(servers)?, name, port, Preference::default()).await?.sorted())
}

/// Looks up the SRV records of a service and the addresses of their targets. Errs if any of these lookups fails: a partial
/// answer would take the other endpoints out.
pub(crate) async fn service(name: &str, servers: &[SocketAddr]) -> io::Result<LookupAnswer> {
    let resolver = resolver(servers)?;
    let answer = match resolver.lookup(name, RecordType::SRV).await {
        Ok(answer) => answer,
        Err(error) => return no_records(error),
    };
    let mut found = LookupAnswer { ttl: ttl(answer.answers()), ..LookupAnswer::default() };
    let mut failed = None;
    let targets = answer.answers().iter().filter_map(|record| match &record.data {
        RData::SRV(target) if !target.target.is_root() => Some(target),
        _ => None,
    });
    for target in targets.take(TARGETS_MAX) {
        let preference = Preference { priority: target.priority, weight: target.weight };
        match addresses(&resolver, &target.target.to_ascii(), target.port, preference).await {
            Ok(more) => found.add(more),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or_else(|| Ok(found.sorted()), Err)
}

/// The addresses of a host. The resolver looks both families up together, and tells nothing of one that fails.
async fn addresses(
    resolver: &TokioResolver,
    name: &str,
    port: u16,
    preference: Preference,
) -> io::Result<LookupAnswer> {
    let found = match resolver.lookup_ip(name).await {
        Ok(found) => found,
        Err(error) if has_none(&error) => {
            // This is the error of the A records.
            let of_v6 = resolver.lookup(name, RecordType::AAAA).await.err();
            return no_records(of_v6.filter(|error| !has_none(error)).unwrap_or(error));
        }
        Err(error) => return Err(io::Error::other(error)),
    };
    let (lookup, mut unanswered) = (found.as_lookup(), Unanswered::default());
    for (kind, is_absent, is_unanswered) in [
        (RecordType::A, !found.iter().any(|ip| ip.is_ipv4()), &mut unanswered.v4),
        (RecordType::AAAA, !found.iter().any(|ip| ip.is_ipv6()), &mut unanswered.v6),
    ] {
        if is_absent {
            let again = resolver.lookup(lookup.query().name().clone(), kind).await;
            *is_unanswered = !again.is_err_and(|error| has_none(&error));
        }
    }
    let resolved = |ip| ResolvedAddress { preference, address: SocketAddr::new(ip, port) };
    Ok(LookupAnswer { addresses: found.iter().map(resolved).collect(), ttl: ttl(lookup.answers()), unanswered })
}

/// An answer without addresses if the DNS says that there are no records, else the error.
fn no_records(error: NetError) -> io::Result<LookupAnswer> {
    if has_none(&error) { Ok(LookupAnswer::default()) } else { Err(io::Error::other(error)) }
}

/// Whether the DNS says that there are no such records, or no such name. A server that refuses to answer says nothing.
fn has_none(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return false };
    matches!(none.response_code, ResponseCode::NoError | ResponseCode::NXDomain)
}

/// The shortest time to live of the records.
fn ttl(records: &[Record]) -> Option<Duration> {
    records.iter().map(|record| Duration::from_secs(record.ttl.into())).min()
}

/// A resolver that asks `servers`, or the system's name servers if there are none.
fn resolver(servers: &[SocketAddr]) -> io::Result<TokioResolver> {
    let (config, mut options) = if servers.is_empty() {
        read_system_conf().map_err(io::Error::other)?
    } else {
        let server = |server: &SocketAddr| {
            let mut config = NameServerConfig::udp_and_tcp(server.ip());
            for connection in &mut config.connections {
                connection.port = server.port();
            }
            config
        };
        // Short names get the search domains of the system.
        let search = read_system_conf().map_or(Vec::new(), |(config, _)| config.search().to_vec());
        let servers = servers.iter().map(server).collect();
        let mut options = ResolverOpts::default();
        options.timeout = ATTEMPT_TIMEOUT;
        (ResolverConfig::from_parts(None, search, servers), options)
    };
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Always;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder.build().map_err(io::Error::other)
}
