//! Names of endpoints, looked up again and again on the control runtime; each address is an endpoint of its own.
//!
//! Until a name has been looked up, and while it cannot be, what was known before stays: at first the name itself, which
//! the system then looks up for each connection. The places of a service are not known before. Not here: how a name
//! is looked up in the DNS.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::directory::{Directory, InForce};
use super::names::{self, Place, Rank, Said};
use super::settings::{Address, Endpoint, Resolve, Upstream};
use super::state;
use crate::telemetry::Metrics;

/// Addresses of one name; beyond these none are used.
const ADDRESSES_MAX: usize = 64;
/// Resolvers have retries and deadlines of their own; this is for one that hangs.
const LOOKUP_AT_MOST: Duration = Duration::from_secs(15);
/// Between two look-ups, however short an answer is good for: also one that is not to be kept at all.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The same, however long: what an operator changes should be seen, also in `/etc/hosts`, which says nothing of time.
const PAUSE_MAX: Duration = Duration::from_mins(5);
/// After a look-up that failed, or that found nothing.
const PAUSE_FAILED: Duration = Duration::from_secs(5);

/// A name that is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    upstream: Box<str>,
    endpoint: Endpoint,
    resolve: Resolve,
    servers: Arc<[SocketAddr]>,
}

/// What is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sought<'e> {
    Host(&'e str, u16),
    Service(&'e str),
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
pub(crate) async fn resolve_names(directory: Arc<impl Directory>, metrics: Arc<Metrics>) {
    let mut changes = directory.changes();
    let mut running: Vec<Lookups> = Vec::new();
    loop {
        let InForce { settings, name_servers, .. } = directory.in_force();
        let wanted: Vec<Name> = settings.iter().flat_map(|upstream| names(upstream, &name_servers)).collect();
        running.retain(|one| wanted.contains(&one.name));
        for name in wanted {
            if running.iter().all(|one| one.name != name) {
                let task =
                    tokio::spawn(keep_looking(Arc::clone(&directory), Arc::clone(&metrics), name.clone(), lookup))
                        .abort_handle();
                running.push(Lookups { name, task });
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn names<'u>(upstream: &'u Upstream, servers: &'u Arc<[SocketAddr]>) -> impl Iterator<Item = Name> + 'u {
    let known = upstream.name.as_ref().filter(|_| upstream.resolve != Resolve::Off);
    let named = upstream.endpoints.iter().filter(|endpoint| sought(endpoint).is_some());
    named.filter_map(move |endpoint| {
        Some(Name {
            upstream: known?.clone(),
            endpoint: endpoint.clone(),
            resolve: upstream.resolve,
            servers: Arc::clone(servers),
        })
    })
}

/// What is to be looked up; none if it is an address already.
fn sought(endpoint: &Endpoint) -> Option<Sought<'_>> {
    let authority = match &endpoint.address {
        Address::Tcp(authority) => authority,
        Address::Srv(name) => return Some(Sought::Service(name)),
        Address::Unix(_) => return None,
    };
    let (host, port) = (authority.host(), endpoint.port());
    let is_address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
    (!is_address).then_some(Sought::Host(host, port))
}

async fn lookup(name: Name) -> io::Result<Said> {
    let looking = async {
        match (sought(&name.endpoint), name.resolve) {
            (Some(Sought::Service(service)), _) => names::service(service, &name.servers).await,
            (Some(Sought::Host(host, port)), Resolve::Ttl) => names::host(host, port, &name.servers).await,
            (Some(Sought::Host(host, port)), _) => by_system(host, port).await,
            (None, _) => Err(io::ErrorKind::InvalidInput.into()),
        }
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "nobody knew in time");
    timeout(LOOKUP_AT_MOST, looking).await.map_err(late)?
}

/// In the order of addresses, so that it is the same each time.
async fn by_system(host: &str, port: u16) -> io::Result<Said> {
    let found = tokio::net::lookup_host((host, port)).await?;
    let mut places: Vec<_> = found.map(|address| Place { rank: Rank::default(), address }).collect();
    places.sort();
    places.dedup();
    Ok(Said { places, good_for: None })
}

/// Looks one name up for ever.
async fn keep_looking<F: Future<Output = io::Result<Said>>>(
    directory: Arc<impl Directory>,
    metrics: Arc<Metrics>,
    name: Name,
    lookup: impl Fn(Name) -> F,
) {
    loop {
        let (mut good_for, endpoint) = (None, &name.endpoint);
        match lookup(name.clone()).await {
            Ok(Said { mut places, good_for: said }) if !places.is_empty() => {
                places.truncate(ADDRESSES_MAX);
                publish(&*directory, &metrics, &name, &places);
                good_for = Some(said.unwrap_or(PAUSE_MAX));
            }
            Ok(_) => tracing::warn!(%endpoint, "a name has no address; what was known stays"),
            Err(error) => tracing::warn!(%endpoint, %error, "a name cannot be looked up; what was known stays"),
        }
        sleep(pause(name.resolve, good_for)).await;
    }
}

/// How long to wait after a look-up, whose answer is good for so long; none if it failed.
fn pause(resolve: Resolve, good_for: Option<Duration>) -> Duration {
    match (resolve, good_for) {
        (Resolve::Every(every), _) => every,
        (_, Some(good_for)) => good_for.clamp(PAUSE_MIN, PAUSE_MAX),
        (_, None) => PAUSE_FAILED,
    }
}

/// Makes these the places of a name, if any address is different. Nothing here waits, so no reload comes in between.
fn publish(directory: &impl Directory, metrics: &Metrics, name: &Name, places: &[Place]) {
    let before = directory.in_force().states;
    let Some(states) = state::with_addresses(&before, &name.upstream, &name.endpoint, places, metrics) else { return };
    tracing::info!(endpoint = %name.endpoint, ?places, "a name has other addresses");
    directory.replace_states(states);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::sync::Mutex;

    use tokio::sync::watch;

    use super::super::ceiling::Ceiling;
    use super::super::settings::{Balance, Cap};
    use super::super::state::{EndpointState, UpstreamState};
    use super::*;
    use crate::net::Protocol;
    use crate::net::tls::ServerName;
    use crate::policy::upgrades::Upgrades;
    use crate::time;

    fn endpoint(authority: &str) -> Endpoint {
        Endpoint { address: Address::Tcp(authority.parse().unwrap()), host: authority.into(), server_name: None }
    }

    /// A directory without a configuration behind it.
    struct Fixed {
        in_force: Mutex<InForce>,
        changes: watch::Sender<()>,
    }

    impl Directory for Fixed {
        fn changes(&self) -> watch::Receiver<()> {
            self.changes.subscribe()
        }

        fn in_force(&self) -> InForce {
            self.in_force.lock().unwrap().clone()
        }

        fn replace_states(&self, states: Vec<UpstreamState>) {
            self.in_force.lock().unwrap().states = states;
            self.changes.send_replace(());
        }
    }

    /// The upstream `a`, which is at these authorities.
    fn directory(authorities: &[&str], metrics: &Metrics) -> Arc<Fixed> {
        let second = Duration::from_secs(1);
        let settings = vec![Upstream {
            name: Some("a".into()),
            endpoints: authorities.iter().map(|authority| endpoint(authority)).collect(),
            tls: None,
            protocol: Protocol::Http1,
            balance: Balance::RoundRobin,
            health: None,
            eject: None,
            resolve: Resolve::Ttl,
            cap: Cap { max_connections: None, max_queued: 1, queue_timeout: second },
            rewrite_host: false,
            max_idle: Some(1),
            idle_timeout: second,
            proxy_protocol: None,
            upgrades: Upgrades::default(),
        }];
        let states = UpstreamState::of_all(&settings, &[], metrics, &Arc::new(Ceiling::new(1, 1)));
        let in_force = Mutex::new(InForce { settings, states, name_servers: Arc::default() });
        Arc::new(Fixed { in_force, changes: watch::Sender::new(()) })
    }

    /// The addresses that requests can go to, with their ranks; those that are no names are what they are.
    fn known(directory: &Fixed) -> Vec<String> {
        let state = |state: &Arc<EndpointState>| {
            let Rank { priority, weight } = state.rank();
            let place = |address: SocketAddr| format!("{address} {priority} {weight}");
            state.resolved.map_or_else(|| state.endpoint.host.to_string(), place)
        };
        directory.in_force().states[0].endpoints.iter().map(state).collect()
    }

    /// `address priority weight`.
    fn place(text: &str) -> Place {
        let mut words = text.split(' ');
        let address = words.next().unwrap().parse().unwrap();
        let mut number = || words.next().unwrap().parse().unwrap();
        Place { address, rank: Rank { priority: number(), weight: number() } }
    }

    fn name(authority: &str, resolve: Resolve) -> Name {
        Name { upstream: "a".into(), endpoint: endpoint(authority), resolve, servers: Arc::default() }
    }

    /// An answer, or none; how long it is good for; when it is asked again; and what is known then.
    type Row = (Option<&'static [&'static str]>, Option<u64>, u64, &'static [&'static str]);

    #[tokio::test(start_paused = true)]
    async fn addresses_come_and_go_and_what_is_known_of_them_stays() {
        let metrics = Arc::new(Metrics::new("", "").unwrap());
        let directory = directory(&["127.0.0.1:82", "app.test:81", "other.test"], &metrics);
        let rows: [Row; 9] = [
            (None, None, 5, &["app.test:81"]),
            (Some(&["10.0.0.1:81 0 0"]), Some(30), 30, &["10.0.0.1:81 0 0"]),
            (Some(&["10.0.0.1:81 0 0", "10.0.0.2:81 0 0"]), Some(0), 1, &["10.0.0.1:81 0 0", "10.0.0.2:81 0 0"]),
            (None, None, 5, &["10.0.0.1:81 0 0", "10.0.0.2:81 0 0"]),
            (Some(&[]), None, 5, &["10.0.0.1:81 0 0", "10.0.0.2:81 0 0"]),
            (Some(&["10.0.0.2:81 0 0"]), Some(86_400), 300, &["10.0.0.2:81 0 0"]),
            (Some(&["10.0.0.2:81 1 7"]), None, 300, &["10.0.0.2:81 1 7"]),
            (None, None, 5, &["10.0.0.2:81 1 7"]),
            (Some(&["10.0.0.2:81 0 1"]), Some(2), 2, &["10.0.0.2:81 0 1"]),
        ];
        let (script, asked) = (RefCell::new(rows.iter()), RefCell::new(Vec::new()));
        let lookup = |name: Name| {
            assert_eq!(sought(&name.endpoint), Some(Sought::Host("app.test", 81)));
            asked.borrow_mut().push(time::instant_now());
            let said = script.borrow_mut().next().and_then(|(places, good_for_s, ..)| {
                let places = places.as_ref()?.iter().map(|text| place(text)).collect();
                Some(Said { places, good_for: good_for_s.map(Duration::from_secs) })
            });
            async move { said.ok_or_else(|| io::Error::other("no such name")) }
        };
        let mut looking =
            pin!(keep_looking(Arc::clone(&directory), metrics, name("app.test:81", Resolve::Ttl), lookup));
        let changes = directory.changes();
        let mut second = None;
        for (turn, (_, _, pause_s, expected)) in rows.iter().enumerate() {
            // Until just before it looks again.
            let until = Duration::from_millis(pause_s * 1000 - 1);
            assert!(timeout(until, &mut looking).await.is_err(), "it looks for ever");
            assert_eq!(asked.borrow().len(), turn + 1, "row {turn}");
            let all: Vec<&str> = [&["127.0.0.1:82"], *expected, &["other.test"]].concat();
            assert_eq!(known(&directory), all, "row {turn}");
            let state = directory.in_force().states[0].endpoints.iter().rev().nth(1).cloned();
            match turn {
                2 => second = state,
                3.. => assert!(Arc::ptr_eq(state.as_ref().unwrap(), second.as_ref().unwrap()), "row {turn}"),
                _ => {}
            }
            assert!(timeout(Duration::from_millis(1), &mut looking).await.is_err());
        }
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn a_fixed_time_is_fixed() {
        let every = Resolve::Every(Duration::from_secs(30));
        for good_for_s in [None, Some(1), Some(1000)] {
            assert_eq!(pause(every, good_for_s.map(Duration::from_secs)), Duration::from_secs(30));
        }
    }

    #[test]
    fn only_names_are_looked_up() {
        for (authority, expected) in [
            ("app.test:81", Some(Sought::Host("app.test", 81))),
            ("app.test", Some(Sought::Host("app.test", 80))),
            ("10.0.0.1.test", Some(Sought::Host("10.0.0.1.test", 80))),
            ("10.0.0.1:81", None),
            ("[::1]:81", None),
        ] {
            assert_eq!(sought(&endpoint(authority)), expected, "{authority}");
        }
        let tls = Endpoint { server_name: ServerName::new("app.test"), ..endpoint("app.test") };
        assert_eq!(sought(&tls), Some(Sought::Host("app.test", 443)));
        let unix = Endpoint { address: Address::Unix("/a".into()), host: "localhost".into(), server_name: None };
        assert_eq!(sought(&unix), None);
        let service = Endpoint { address: Address::Srv("_a._tcp.test".into()), ..unix };
        assert_eq!(sought(&service), Some(Sought::Service("_a._tcp.test")));
        let directory = directory(&["a.test", "10.0.0.1", "b.test"], &Metrics::new("", "").unwrap());
        let upstream = &directory.in_force().settings[0];
        let servers = Arc::<[SocketAddr]>::default();
        assert_eq!(names(upstream, &servers).count(), 2);
        assert_eq!(names(&Upstream { resolve: Resolve::Off, ..upstream.clone() }, &servers).count(), 0);
    }
}
