//! Asks the DNS for the addresses of a host or of a service.
//!
//! Answers are not cached here: the time to live of an answer decides when `resolve` asks again. The system's name
//! servers and hosts (`/etc/resolv.conf`, `/etc/hosts`) are read again for each lookup.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use hickory_resolver::system_conf::read_system_conf;

use super::address::{Preference, ResolvedAddress};

/// SRV targets of one service that are looked up; further ones are ignored.
const TARGETS_MAX: usize = 64;

/// How long a configured name server may take for each of its two attempts.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer to a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookupAnswer {
    /// Sorted, so that equal answers are equal.
    pub(crate) addresses: Vec<ResolvedAddress>,
    /// The time to live; none if the source has none.
    pub(crate) ttl: Option<Duration>,
}

impl LookupAnswer {
    fn new(mut addresses: Vec<ResolvedAddress>, ttl_s: Option<u32>) -> Self {
        addresses.sort_unstable();
        addresses.dedup_by_key(|resolved| resolved.address);
        Self { addresses, ttl: ttl_s.map(|ttl_s| Duration::from_secs(ttl_s.into())) }
    }
}

/// Looks up the addresses of a host. Errs if the DNS gives no answer; an answer without addresses is no error.
pub(crate) async fn host(name: &str, port: u16, servers: &[SocketAddr]) -> io::Result<LookupAnswer> {
    let (addresses, ttl_s) = addresses(&resolver(servers)?, name, port, Preference::default()).await?;
    Ok(LookupAnswer::new(addresses, ttl_s))
}

/// Looks up the SRV records of a service and the addresses of their targets. Errs if any of these lookups fails: a partial
/// answer would take the other endpoints out.
pub(crate) async fn service(name: &str, servers: &[SocketAddr]) -> io::Result<LookupAnswer> {
    let resolver = resolver(servers)?;
    let answer = match resolver.lookup(name, RecordType::SRV).await {
        Ok(answer) => answer,
        Err(error) => return no_records(error),
    };
    let mut ttl_s = ttl_s(answer.answers());
    let (mut found, mut failed) = (Vec::new(), None);
    let targets = answer.answers().iter().filter_map(|record| match &record.data {
        RData::SRV(target) if !target.target.is_root() => Some(target),
        _ => None,
    });
    for target in targets.take(TARGETS_MAX) {
        let preference = Preference { priority: target.priority, weight: target.weight };
        match addresses(&resolver, &target.target.to_ascii(), target.port, preference).await {
            Ok((more, target_ttl_s)) => {
                found.extend(more);
                ttl_s = ttl_s.into_iter().chain(target_ttl_s).min();
            }
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or_else(|| Ok(LookupAnswer::new(found, ttl_s)), Err)
}

async fn addresses(
    resolver: &TokioResolver,
    name: &str,
    port: u16,
    preference: Preference,
) -> io::Result<(Vec<ResolvedAddress>, Option<u32>)> {
    match resolver.lookup_ip(name).await {
        Ok(found) => {
            let resolved = |ip| ResolvedAddress { preference, address: SocketAddr::new(ip, port) };
            Ok((found.iter().map(resolved).collect(), ttl_s(found.as_lookup().answers())))
        }
        Err(error) => no_records(error).map(|answer| (answer.addresses, None)),
    }
}

/// An answer without addresses if the DNS says that there are no records, else the error.
fn no_records(error: NetError) -> io::Result<LookupAnswer> {
    if error.is_no_records_found() { Ok(LookupAnswer::new(Vec::new(), None)) } else { Err(io::Error::other(error)) }
}

/// The shortest time to live of the records, in seconds.
fn ttl_s(records: &[Record]) -> Option<u32> {
    records.iter().map(|record| record.ttl).min()
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
