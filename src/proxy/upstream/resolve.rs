//! Names of endpoints, looked up every so often on the control runtime; each address is an endpoint of its own.
//!
//! Until a name has been looked up, and while it cannot be, what was known before stays: at first the name itself, which
//! the system then looks up for each connection.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::super::settings::{Address, Endpoint, Upstream};
use super::super::view::Current;
use super::super::worker::Shared;

/// Addresses of one name; beyond these none are used.
const ADDRESSES_MAX: usize = 64;
/// The system has retries and deadlines of its own; this is for one that hangs.
const LOOKUP_AT_MOST: Duration = Duration::from_secs(15);

/// A name that is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    upstream: Box<str>,
    endpoint: Endpoint,
    every: Duration,
}

/// Looks one up, for as long as this is kept.
struct Lookups {
    name: Name,
    task: AbortHandle,
}

impl Drop for Lookups {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Looks up whatever is configured to be looked up, also after each reload; until dropped. To be run on the runtime that
/// reloads, and only there.
pub async fn resolve_names(shared: Arc<Shared>) {
    let mut reloads = shared.reloads.subscribe();
    let mut running: Vec<Lookups> = Vec::new();
    loop {
        let current = shared.current.load_full();
        let wanted: Vec<Name> = current.settings.upstreams.iter().flat_map(names).collect();
        drop(current);
        running.retain(|one| wanted.contains(&one.name));
        for name in wanted {
            if running.iter().all(|one| one.name != name) {
                let task = tokio::spawn(keep_looking(Arc::clone(&shared), name.clone(), lookup)).abort_handle();
                running.push(Lookups { name, task });
            }
        }
        if reloads.changed().await.is_err() {
            return;
        }
    }
}

fn names(upstream: &Upstream) -> impl Iterator<Item = Name> {
    let known = upstream.name.as_ref().zip(upstream.resolve);
    let is_name = |endpoint: &&Endpoint| name_and_port(endpoint).is_some();
    let named = upstream.endpoints.iter().filter(is_name);
    named.filter_map(move |endpoint| {
        let (upstream, every) = known?;
        Some(Name { upstream: upstream.clone(), endpoint: endpoint.clone(), every })
    })
}

/// What is to be looked up; none if it is an address already.
fn name_and_port(endpoint: &Endpoint) -> Option<(&str, u16)> {
    let Address::Tcp(authority) = &endpoint.address else { return None };
    let (host, port) = (authority.host(), endpoint.port());
    let is_address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
    (!is_address).then_some((host, port))
}

/// By the system, in the order of addresses so that it is the same each time.
async fn lookup(name: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "nobody knew in time");
    let found = timeout(LOOKUP_AT_MOST, tokio::net::lookup_host((name, port))).await.map_err(late)??;
    let mut found: Vec<_> = found.collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// Looks one name up for ever.
async fn keep_looking<F: Future<Output = io::Result<Vec<SocketAddr>>>>(
    shared: Arc<Shared>,
    name: Name,
    lookup: impl Fn(String, u16) -> F,
) {
    let Some((host, port)) = name_and_port(&name.endpoint) else { return };
    let mut ticks = interval(name.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match lookup(host.to_owned(), port).await {
            Ok(mut found) if !found.is_empty() => {
                found.truncate(ADDRESSES_MAX);
                publish(&shared, &name, &found);
            }
            Ok(_) => tracing::warn!(endpoint = %name.endpoint, "a name has no address; what was known stays"),
            Err(error) => {
                tracing::warn!(endpoint = %name.endpoint, %error, "a name cannot be looked up; what was known stays");
            }
        }
    }
}

/// Makes these the addresses of a name, if anything is different. Nothing here waits, so no reload comes in between.
fn publish(shared: &Shared, name: &Name, found: &[SocketAddr]) {
    let before = shared.current.load_full();
    let Some(upstreams) =
        super::state::with_addresses(&before.upstreams, &name.upstream, &name.endpoint, found, &shared.metrics)
    else {
        return;
    };
    tracing::info!(endpoint = %name.endpoint, addresses = ?found, "a name has other addresses");
    let Current { live, settings, access_log, .. } = &*before;
    let next = Current { live: Arc::clone(live), settings: settings.clone(), access_log: *access_log, upstreams };
    shared.current.store(Arc::new(next));
    shared.reloads.send_replace(());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use arc_swap::ArcSwap;
    use tokio::sync::watch;

    use super::super::super::settings::{Balance, Bounds, Protocol, Settings, Timeouts};
    use super::super::super::tls::ServerName;
    use super::*;
    use crate::gate::{Gate, HoldCaps};
    use crate::policy::Policy;
    use crate::policy::client_ip::{AddressHeader, ClientIpRules};
    use crate::policy::upgrades::Upgrades;
    use crate::respond::Profiles;
    use crate::store::{Crowd, Share};
    use crate::telemetry::{AccessLog, Metrics};
    use crate::time::Clock;

    fn endpoint(authority: &str) -> Endpoint {
        Endpoint { address: Address::Tcp(authority.parse().unwrap()), host: authority.into(), server_name: None }
    }

    /// The state of a Weir in front of `a`, which is at these authorities.
    fn shared(authorities: &[&str]) -> Arc<Shared> {
        let metrics = Arc::new(Metrics::new("", "").unwrap());
        let gate = Arc::new(Gate::new(Clock::start(), [0; 16], Arc::clone(&metrics)));
        let second = Duration::from_secs(1);
        let upstream = Upstream {
            name: Some("a".into()),
            endpoints: authorities.iter().map(|authority| endpoint(authority)).collect(),
            tls: None,
            protocol: Protocol::Http1,
            balance: Balance::RoundRobin,
            health: None,
            eject: None,
            resolve: Some(EVERY),
            cap: None,
            rewrite_host: false,
            max_idle: 1,
            idle_timeout: second,
            proxy_protocol: None,
            upgrades: Upgrades::default(),
        };
        let timeouts = Timeouts {
            request_head: second,
            keep_alive: second,
            connect: second,
            response_head: second,
            body_idle: second,
            min_send: None,
            min_read: None,
            total: None,
            upgraded_idle: second,
        };
        let settings = Settings {
            proxied_from: Box::default(),
            tls: None,
            upstreams: vec![upstream],
            routes: None,
            timeouts,
            bounds: Bounds {
                max_head_bytes: 1,
                max_headers: 1,
                max_uri_bytes: 1,
                max_body_bytes: 1,
                max_requests: 1,
                max_per_ip: 1,
                max_h2_streams: 1,
            },
            forwarded: false,
            profiles: Profiles { x_ratelimit: true, ietf: false, wildberries: false },
        };
        let policy = Policy::new(
            Vec::new(),
            Vec::new(),
            ClientIpRules { trusted: Vec::new(), header: AddressHeader::XForwardedFor, ipv6_prefix: 64 },
            true,
        );
        let one = Share { count: 1, bytes: 1 };
        let live = gate.install(policy, HoldCaps { all: one, per_client: one }, 1);
        let current = Current::new(live, settings, AccessLog::Off, &metrics, None);
        Arc::new(Shared {
            gate,
            metrics,
            current: Arc::new(ArcSwap::from_pointee(current)),
            reloads: watch::Sender::new(()),
            connections: AtomicUsize::new(0),
            max_connections: 1,
            clients: Crowd::default(),
            draining: AtomicBool::new(false),
        })
    }

    const EVERY: Duration = Duration::from_secs(30);

    /// The addresses that requests can go to; those that are no names are what they are.
    fn known(shared: &Shared) -> Vec<String> {
        let state = |state: &Arc<super::super::state::EndpointState>| {
            state.resolved.map_or_else(|| state.endpoint.host.to_string(), |address| address.to_string())
        };
        shared.current.load().upstreams[0].endpoints.iter().map(state).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_come_and_go_and_what_is_known_of_them_stays() {
        let shared = shared(&["127.0.0.1:82", "app.test:81", "other.test"]);
        let answers: [Result<&[&str], ()>; 6] = [
            Err(()),
            Ok(&["10.0.0.1:81"]),
            Ok(&["10.0.0.1:81", "10.0.0.2:81"]),
            Err(()),
            Ok(&[]),
            Ok(&["10.0.0.2:81"]),
        ];
        let script = RefCell::new(answers.into_iter());
        let lookup = |host: String, port: u16| {
            assert_eq!((&*host, port), ("app.test", 81));
            let found = script.borrow_mut().next().unwrap_or(Err(()));
            let found = found.map(|found| found.iter().map(|address| address.parse().unwrap()).collect());
            async move { found.map_err(|()| io::Error::other("no such name")) }
        };
        let name = Name { upstream: "a".into(), endpoint: endpoint("app.test:81"), every: EVERY };
        let mut looking = pin!(keep_looking(Arc::clone(&shared), name, lookup));
        let reloads = shared.reloads.subscribe();
        let mut second = None;
        for (turn, expected) in [
            &["app.test:81"][..],
            &["10.0.0.1:81"],
            &["10.0.0.1:81", "10.0.0.2:81"],
            &["10.0.0.1:81", "10.0.0.2:81"],
            &["10.0.0.1:81", "10.0.0.2:81"],
            &["10.0.0.2:81"],
        ]
        .into_iter()
        .enumerate()
        {
            // Always just before it looks again.
            let soon = if turn == 0 { Duration::from_secs(29) } else { EVERY };
            assert!(timeout(soon, &mut looking).await.is_err(), "it looks for ever");
            let all: Vec<&str> = [&["127.0.0.1:82"], expected, &["other.test"]].concat();
            assert_eq!(known(&shared), all, "{turn}");
            let state = shared.current.load().upstreams[0].endpoints.iter().rev().nth(1).cloned();
            if turn == 2 {
                second = state.clone();
            }
            if turn > 2 {
                assert!(Arc::ptr_eq(state.as_ref().unwrap(), second.as_ref().unwrap()), "{turn}");
            }
        }
        assert!(reloads.has_changed().unwrap());
    }

    #[test]
    fn only_names_are_looked_up() {
        for (authority, expected) in [
            ("app.test:81", Some(("app.test", 81))),
            ("app.test", Some(("app.test", 80))),
            ("10.0.0.1.test", Some(("10.0.0.1.test", 80))),
            ("10.0.0.1:81", None),
            ("[::1]:81", None),
        ] {
            assert_eq!(name_and_port(&endpoint(authority)), expected, "{authority}");
        }
        let tls = Endpoint { server_name: ServerName::new("app.test"), ..endpoint("app.test") };
        assert_eq!(name_and_port(&tls), Some(("app.test", 443)));
        let unix = Endpoint { address: Address::Unix("/a".into()), host: "localhost".into(), server_name: None };
        assert_eq!(name_and_port(&unix), None);
        let shared = shared(&["a.test", "10.0.0.1", "b.test"]);
        let upstream = &shared.current.load().settings.upstreams[0];
        assert_eq!(names(upstream).count(), 2);
        assert_eq!(names(&Upstream { resolve: None, ..upstream.clone() }).count(), 0);
    }
}
