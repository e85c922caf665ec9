//! What the DNS says of a name: the addresses of a host, or the places of a service.
//!
//! Asked anew each time, without a memory of its own: how long an answer is good for decides when it is asked again, and
//! what the system says of name servers and of hosts (`/etc/resolv.conf`, `/etc/hosts`) is read again too.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use hickory_resolver::system_conf::read_system_conf;

/// Places of one service that are looked up; beyond these none are.
const TARGETS_MAX: usize = 64;

/// How long a name server that was named here may take, each of the two times that it is asked.
const ANSWER_AT_MOST: Duration = Duration::from_secs(2);

/// Where something runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) rank: Rank,
    pub(super) address: SocketAddr,
}

/// Which place of a service comes first (RFC 2782).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// The lowest is asked, if any place of it can be.
    pub(super) priority: u16,
    /// How much of what that priority gets.
    pub(super) weight: u16,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// In an order that is the same each time.
    pub(super) places: Vec<Place>,
    /// How long it is good for, if anything says so.
    pub(super) good_for: Option<Duration>,
}

impl Rank {
    /// Both in one word.
    pub(super) fn word(self) -> u32 {
        u32::from(self.priority) << 16 | u32::from(self.weight)
    }

    /// That of a word.
    pub(super) fn of(word: u32) -> Self {
        let half = |bits: u32| u16::try_from(bits & 0xffff).unwrap_or_default();
        Self { priority: half(word >> 16), weight: half(word) }
    }
}

impl Said {
    /// These, the same each time that they are.
    fn new(mut places: Vec<Place>, ttl_s: Option<u32>) -> Self {
        places.sort_unstable();
        places.dedup_by_key(|place| place.address);
        Self { places, good_for: ttl_s.map(|ttl_s| Duration::from_secs(ttl_s.into())) }
    }
}

/// The addresses of a host.
pub(super) async fn host(name: &str, port: u16, servers: &[SocketAddr]) -> io::Result<Said> {
    let (places, ttl_s) = addresses(&resolver(servers)?, name, port, Rank::default()).await?;
    Ok(Said::new(places, ttl_s))
}

/// The places of a service.
pub(super) async fn service(name: &str, servers: &[SocketAddr]) -> io::Result<Said> {
    let resolver = resolver(servers)?;
    let answer = match resolver.lookup(name, RecordType::SRV).await {
        Ok(answer) => answer,
        Err(error) => return nothing(error),
    };
    let mut ttl_s = ttl(answer.answers());
    let (mut places, mut failed) = (Vec::new(), None);
    let found = answer.answers().iter().filter_map(|record| match &record.data {
        RData::SRV(found) if !found.target.is_root() => Some(found),
        _ => None,
    });
    for found in found.take(TARGETS_MAX) {
        let rank = Rank { priority: found.priority, weight: found.weight };
        match addresses(&resolver, &found.target.to_ascii(), found.port, rank).await {
            Ok((more, its_ttl_s)) => {
                places.extend(more);
                ttl_s = ttl_s.into_iter().chain(its_ttl_s).min();
            }
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        // Half an answer would take the other half out.
        Some(error) => Err(error),
        None => Ok(Said::new(places, ttl_s)),
    }
}

async fn addresses(
    resolver: &TokioResolver,
    name: &str,
    port: u16,
    rank: Rank,
) -> io::Result<(Vec<Place>, Option<u32>)> {
    match resolver.lookup_ip(name).await {
        Ok(found) => {
            let places = found.iter().map(|ip| Place { rank, address: SocketAddr::new(ip, port) }).collect();
            Ok((places, ttl(found.as_lookup().answers())))
        }
        Err(error) => nothing(error).map(|said| (said.places, None)),
    }
}

/// An answer that there is nothing is one; anything else is none.
fn nothing(error: NetError) -> io::Result<Said> {
    if error.is_no_records_found() { Ok(Said::new(Vec::new(), None)) } else { Err(io::Error::other(error)) }
}

/// How long all of these are good for.
fn ttl(records: &[Record]) -> Option<u32> {
    records.iter().map(|record| record.ttl).min()
}

/// One that asks `servers`, or else those whom the system asks.
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
        // Short names are completed as the system does it, if it does.
        let search = read_system_conf().map_or(Vec::new(), |(config, _)| config.search().to_vec());
        let servers = servers.iter().map(server).collect();
        let mut options = ResolverOpts::default();
        options.timeout = ANSWER_AT_MOST;
        (ResolverConfig::from_parts(None, search, servers), options)
    };
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Always;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder.build().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_a_word() {
        for (priority, weight) in [(0, 0), (1, 65_535), (65_535, 1)] {
            let rank = Rank { priority, weight };
            assert_eq!(Rank::of(rank.word()), rank);
        }
    }
}
