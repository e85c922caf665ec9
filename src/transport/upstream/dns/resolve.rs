//! Repeats the lookups of endpoints' names on the control runtime, and publishes each address as an endpoint of its own.
//!
//! The last known addresses stay until a lookup succeeds. Before the first answer, the name itself is the endpoint, and
//! the system resolves it for each connection; an SRV name has no endpoint until then. Not here: how to ask the DNS.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::address::{Preference, ResolvedAddress};
use super::lookup::{self, LookupAnswer};
use crate::base::telemetry::Metrics;
use crate::transport::upstream::directory::{Directory, InForce};
use crate::transport::upstream::settings::{Address, Endpoint, Resolve, Upstream};
use crate::transport::upstream::state;

/// Addresses of one name that are used; further ones are ignored.
const ADDRESSES_MAX: usize = 64;
/// The timeout of a whole lookup. Resolvers have their own retries and timeouts; this bounds one that hangs.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(15);
/// The shortest pause between two lookups, also for an answer with a time to live of 0.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause, so that changes by an operator take effect, also in `/etc/hosts`, which has no time to live.
const PAUSE_MAX: Duration = Duration::from_mins(5);
/// The pause after a lookup that failed or found no address.
const PAUSE_FAILED: Duration = Duration::from_secs(5);

/// A name that is looked up repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WatchedName {
    upstream: Box<str>,
    endpoint: Endpoint,
    resolve: Resolve,
    servers: Arc<[SocketAddr]>,
}

/// What the DNS is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookupTarget<'e> {
    Host(&'e str, u16),
    Service(&'e str),
}

/// The task that looks up one name; it ends when this is dropped.
struct LookupTask {
    name: WatchedName,
    _task: JoinSet<()>,
}

/// Looks up all configured names, also after each reload, until dropped. To be run only on the runtime that reloads.
pub(crate) async fn resolve_names(directory: Arc<impl Directory>, metrics: Arc<Metrics>) {
    let mut changes = directory.changes();
    let mut running: Vec<LookupTask> = Vec::new();
    loop {
        let InForce { settings, name_servers, .. } = directory.in_force();
        let names: Vec<WatchedName> = settings.iter().flat_map(|upstream| names(upstream, &name_servers)).collect();
        running.retain(|task| names.contains(&task.name));
        for name in names {
            if running.iter().all(|task| task.name != name) {
                let mut task = JoinSet::new();
                task.spawn(watch_name(Arc::clone(&directory), Arc::clone(&metrics), name.clone(), lookup));
                running.push(LookupTask { name, _task: task });
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn names<'u>(upstream: &'u Upstream, servers: &'u Arc<[SocketAddr]>) -> impl Iterator<Item = WatchedName> + 'u {
    let label = upstream.name.as_ref().filter(|_| upstream.resolve != Resolve::Off);
    let endpoints = upstream.endpoints.iter().filter(|endpoint| lookup_target(endpoint).is_some());
    endpoints.filter_map(move |endpoint| {
        Some(WatchedName {
            upstream: label?.clone(),
            endpoint: endpoint.clone(),
            resolve: upstream.resolve,
            servers: Arc::clone(servers),
        })
    })
}

/// The name to look up; none if the endpoint is an address already.
fn lookup_target(endpoint: &Endpoint) -> Option<LookupTarget<'_>> {
    let authority = match &endpoint.address {
        Address::Tcp(authority) => authority,
        Address::Srv(name) => return Some(LookupTarget::Service(name)),
        Address::Unix(_) => return None,
    };
    let (host, port) = (authority.host(), endpoint.port());
    let is_address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
    (!is_address).then_some(LookupTarget::Host(host, port))
}

async fn lookup(name: WatchedName) -> io::Result<LookupAnswer> {
    let answer = async {
        match (lookup_target(&name.endpoint), name.resolve) {
            (Some(LookupTarget::Service(service)), _) => lookup::service(service, &name.servers).await,
            (Some(LookupTarget::Host(host, port)), Resolve::Ttl) => lookup::host(host, port, &name.servers).await,
            (Some(LookupTarget::Host(host, port)), _) => lookup_by_system(host, port).await,
            (None, _) => Err(io::ErrorKind::InvalidInput.into()),
        }
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
    timeout(LOOKUP_TIMEOUT, answer).await.map_err(late)?
}

/// The addresses of a host by the name servers.
///
/// # Errors
/// If there is no answer in time.
pub(crate) async fn lookup_host(name: &str, port: u16, servers: &[SocketAddr]) -> io::Result<LookupAnswer> {
    timeout(LOOKUP_TIMEOUT, lookup::host(name, port, servers)).await.map_err(io::Error::from).flatten()
}

/// Asks the system. The addresses are sorted, so that equal answers are equal.
async fn lookup_by_system(host: &str, port: u16) -> io::Result<LookupAnswer> {
    let found = tokio::net::lookup_host((host, port)).await?;
    let resolved = |address| ResolvedAddress { preference: Preference::default(), address };
    let mut addresses: Vec<_> = found.map(resolved).collect();
    addresses.sort();
    addresses.dedup();
    Ok(LookupAnswer { addresses, ..LookupAnswer::default() })
}

/// Looks one name up repeatedly and never returns.
async fn watch_name<F: Future<Output = io::Result<LookupAnswer>>>(
    directory: Arc<impl Directory>,
    metrics: Arc<Metrics>,
    name: WatchedName,
    lookup: impl Fn(WatchedName) -> F,
) {
    loop {
        let (mut answer_ttl, upstream, endpoint) = (None, &*name.upstream, &name.endpoint);
        let known = || state::addresses(&directory.in_force().states, upstream, endpoint);
        let stays = || if known().is_empty() { "no address is known yet" } else { "the last known addresses stay" };
        match lookup(name.clone()).await {
            Ok(LookupAnswer { mut addresses, ttl, unanswered }) if !addresses.is_empty() => {
                let mut kept = known();
                kept.retain(|known| unanswered.has(known.address.ip()));
                if kept.is_empty() {
                    answer_ttl = Some(ttl.unwrap_or(PAUSE_MAX));
                } else {
                    tracing::warn!(upstream, %endpoint, ?kept, "a name is answered in part; the other addresses stay");
                    addresses.extend(kept);
                    addresses.sort_unstable();
                }
                addresses.truncate(ADDRESSES_MAX);
                publish(&*directory, &metrics, &name, &addresses);
            }
            Ok(_) => tracing::warn!(upstream, %endpoint, "a name has no address; {}", stays()),
            Err(error) => tracing::warn!(upstream, %endpoint, %error, "a name cannot be looked up; {}", stays()),
        }
        sleep(pause(name.resolve, answer_ttl)).await;
    }
}

/// The pause after a lookup whose answer has this time to live; none if the lookup failed.
fn pause(resolve: Resolve, ttl: Option<Duration>) -> Duration {
    match (resolve, ttl) {
        (Resolve::Every(every), _) => every,
        (_, Some(ttl)) => ttl.clamp(PAUSE_MIN, PAUSE_MAX),
        (_, None) => PAUSE_FAILED,
    }
}

/// Replaces the addresses of a name if any is different. Nothing here waits, so no reload happens in between.
fn publish(directory: &impl Directory, metrics: &Metrics, name: &WatchedName, addresses: &[ResolvedAddress]) {
    let before = directory.in_force().states;
    let states = state::with_addresses(&before, &name.upstream, &name.endpoint, addresses, metrics);
    let Some(states) = states else { return };
    tracing::info!(upstream = &*name.upstream, endpoint = %name.endpoint, ?addresses, "a name has other addresses");
    directory.replace_states(states);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::sync::Mutex;

    use tokio::sync::watch;

    use super::*;
    use crate::base::time::{self, Timestamp};
    use crate::engine::policy::upgrades::Upgrades;
    use crate::transport::net::Protocol;
    use crate::transport::net::tls::ServerName;
    use crate::transport::upstream::operate;
    use crate::transport::upstream::orders::{EndpointOrder, OrderError};
    use crate::transport::upstream::pool::ceiling::Ceiling;
    use crate::transport::upstream::settings::{Balance, Cap};
    use crate::transport::upstream::state::{EndpointState, UpstreamState};

    fn endpoint(authority: &str) -> Endpoint {
        Endpoint { address: Address::Tcp(authority.parse().unwrap()), host: authority.into(), server_name: None }
    }

    /// A directory without a configuration behind it.
    #[derive(Debug)]
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

    /// A directory with the upstream `a`, whose endpoints have these authorities.
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

    /// The series whose names begin like this, with their values.
    fn shown(metrics: &Metrics, name: &str) -> Vec<String> {
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        text.lines().filter(|line| line.starts_with(name)).map(String::from).collect()
    }

    /// The addresses to which requests can go, with their preferences; an endpoint without a known address by its host.
    fn known(directory: &Fixed) -> Vec<String> {
        let state = |state: &Arc<EndpointState>| {
            let Preference { priority, weight } = state.preference();
            let text = |address: SocketAddr| format!("{address} {priority} {weight}");
            state.resolved.map_or_else(|| state.endpoint.host.to_string(), text)
        };
        directory.in_force().states[0].endpoints.iter().map(state).collect()
    }

    /// Parses `address priority weight`.
    fn resolved(text: &str) -> ResolvedAddress {
        let mut words = text.split(' ');
        let address = words.next().unwrap().parse().unwrap();
        let mut number = || words.next().unwrap().parse().unwrap();
        ResolvedAddress { address, preference: Preference { priority: number(), weight: number() } }
    }

    fn name(authority: &str, resolve: Resolve) -> WatchedName {
        WatchedName { upstream: "a".into(), endpoint: endpoint(authority), resolve, servers: Arc::default() }
    }

    /// An answer, or none if the lookup fails; its time to live; the pause until the next lookup; the addresses known then.
    type Row = (Option<&'static [&'static str]>, Option<u64>, u64, &'static [&'static str]);

    #[tokio::test(start_paused = true)]
    async fn addresses_change_and_the_state_of_known_ones_stays() {
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
        let (script, lookups) = (RefCell::new(rows.iter()), RefCell::new(Vec::new()));
        let lookup = |name: WatchedName| {
            assert_eq!(lookup_target(&name.endpoint), Some(LookupTarget::Host("app.test", 81)));
            lookups.borrow_mut().push(time::instant_now());
            let answer = script.borrow_mut().next().and_then(|(addresses, ttl_s, ..)| {
                let addresses = addresses.as_ref()?.iter().map(|text| resolved(text)).collect();
                let ttl = ttl_s.map(Duration::from_secs);
                Some(LookupAnswer { addresses, ttl, ..LookupAnswer::default() })
            });
            async move { answer.ok_or_else(|| io::Error::other("no such name")) }
        };
        let mut looking = pin!(watch_name(Arc::clone(&directory), metrics, name("app.test:81", Resolve::Ttl), lookup));
        let changes = directory.changes();
        let mut second = None;
        for (turn, (_, _, pause_s, expected)) in rows.iter().enumerate() {
            // Until just before the next lookup.
            let until = Duration::from_millis(pause_s * 1000 - 1);
            assert!(timeout(until, &mut looking).await.is_err(), "it never returns");
            assert_eq!(lookups.borrow().len(), turn + 1, "row {turn}");
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
    fn an_order_about_a_name_is_about_its_addresses_now_and_later() {
        let metrics = Metrics::new("", "").unwrap();
        let directory = directory(&["app.test:81", "10.9.0.9:81"], &metrics);
        let learn = |addresses: &[&str]| {
            let addresses: Vec<_> = addresses.iter().map(|text| resolved(text)).collect();
            publish(&*directory, &metrics, &name("app.test:81", Resolve::Ttl), &addresses);
        };
        let give = |endpoint: &str, weight: Option<u16>, until: Option<Timestamp>, is_forced| {
            let InForce { settings, states, .. } = directory.in_force();
            let (upstream, endpoint, since) = ("a".into(), endpoint.into(), Timestamp::ZERO);
            let order = EndpointOrder { upstream, endpoint, weight, since, until, token: None, reason: None };
            operate::give((&settings, &states), order, is_forced).map(|(order, before)| (order.endpoint, before))
        };
        // Whether each endpoint is drained, and its weight.
        let seen = || {
            let InForce { states, .. } = directory.in_force();
            states[0].endpoints.iter().map(|one| (one.is_draining(), one.preference().weight)).collect::<Vec<_>>()
        };
        learn(&["10.0.0.1:81 0 3"]);
        assert_eq!(give("app.test:81", None, None, false), Ok(("http://app.test:81".into(), None)));
        assert_eq!(seen(), [(true, 3), (false, 1)]);
        learn(&["10.0.0.1:81 0 3", "10.0.0.2:81 1 7"]);
        assert_eq!(seen(), [(true, 3), (true, 7), (false, 1)]);
        assert_eq!(give("10.9.0.9:81", None, None, false), Err(OrderError::LastEndpoint));
        let end = Timestamp::from_ns(9);
        assert!(give("10.9.0.9:81", None, Some(end), true).is_ok());
        assert_eq!(seen(), [(true, 3), (true, 7), (true, 1)]);
        // The weight of one address stays when the DNS changes its own.
        assert!(give("10.0.0.2:81", Some(40), None, false).is_ok());
        learn(&["10.0.0.1:81 0 4", "10.0.0.2:81 1 8"]);
        assert_eq!(seen(), [(true, 4), (true, 40), (true, 1)]);
        let states = directory.in_force().states;
        assert_eq!(operate::end(&states, "a", "10.0.0.1:81", true), Err(OrderError::NoOrder), "its name is drained");
        assert!(operate::end(&states, "a", "app.test:81", true).is_ok());
        assert!(operate::end_over(&states, Timestamp::from_ns(8)).is_empty());
        assert_eq!(operate::end_over(&states, end).len(), 1);
        assert!(operate::end(&states, "a", "10.0.0.2:81", false).is_ok());
        assert_eq!(seen(), [(false, 4), (false, 8), (false, 1)]);
        assert_eq!(give("10.0.0.3:81", None, None, false).unwrap_err().to_string().matches("10.0.0.").count(), 2);
    }

    #[test]
    fn an_endpoint_whose_tls_name_changes_keeps_its_metrics() {
        let metrics = Metrics::new("", "").unwrap();
        let InForce { mut settings, mut states, .. } = directory(&[], &metrics).in_force();
        let rows = [(&["app.test"][..], "a.test"), (&["app.test"], "b.test"), (&["c.test"], "b.test"), (&[], "")];
        let mut in_use = Vec::new(); // by requests that began before a change
        for (authorities, name) in rows {
            let named = |authority: &&str| Endpoint { server_name: ServerName::new(name), ..endpoint(authority) };
            settings[0].endpoints = authorities.iter().map(named).collect();
            let next = UpstreamState::of_all(&settings, &states, &metrics, &Arc::new(Ceiling::new(1, 1)));
            in_use.push(std::mem::replace(&mut states, next));
            let series = |of: &&str| format!("weir_endpoint_healthy{{endpoint=\"https://{of}\",upstream=\"a\"}} 1");
            let expected: Vec<_> = authorities.iter().map(series).collect();
            assert_eq!(shown(&metrics, "weir_endpoint_healthy{"), expected, "{name}");
            // The checks of an endpoint may end after it has left.
            for failure in [Some(String::new()), None] {
                in_use
                    .iter()
                    .flat_map(|states| &states[0].endpoints)
                    .for_each(|state| state.set_health(failure.clone()));
                assert_eq!(shown(&metrics, "weir_endpoint_healthy{"), expected, "{name} {failure:?}");
            }
        }
        drop(in_use);
        assert_eq!(shown(&metrics, "weir_endpoint_healthy{"), [""; 0]);
    }

    #[test]
    fn an_address_that_its_name_has_no_more_does_not_count() {
        let metrics = Metrics::new("", "").unwrap();
        let directory = directory(&["app.test:81"], &metrics);
        let mut in_use = Vec::new(); // by requests that began before a change
        for addresses in [&["10.0.0.1:81 0 1", "10.0.0.2:81 0 1"][..], &["10.0.0.2:81 0 1", "10.0.0.3:81 0 1"]] {
            let addresses: Vec<_> = addresses.iter().map(|text| resolved(text)).collect();
            publish(&*directory, &metrics, &name("app.test:81", Resolve::Ttl), &addresses);
            let InForce { settings, states, .. } = directory.in_force();
            let (upstream, endpoint, since) = ("a".into(), "app.test:81".into(), Timestamp::ZERO);
            let drain =
                EndpointOrder { upstream, endpoint, weight: None, since, until: None, token: None, reason: None };
            operate::give((&settings, &states), drain, true).unwrap();
            in_use.push(states);
            for metric in ["weir_endpoint_healthy", "weir_endpoint_draining"] {
                let series = format!("{metric}{{endpoint=\"http://app.test:81\",upstream=\"a\"}} 2");
                assert_eq!(shown(&metrics, &format!("{metric}{{")), [series]);
            }
        }
    }

    #[test]
    fn a_configured_pause_does_not_depend_on_the_answer() {
        let every = Resolve::Every(Duration::from_secs(30));
        for ttl_s in [None, Some(1), Some(1000)] {
            assert_eq!(pause(every, ttl_s.map(Duration::from_secs)), Duration::from_secs(30));
        }
    }

    #[test]
    fn only_names_are_looked_up() {
        for (authority, expected) in [
            ("app.test:81", Some(LookupTarget::Host("app.test", 81))),
            ("app.test", Some(LookupTarget::Host("app.test", 80))),
            ("10.0.0.1.test", Some(LookupTarget::Host("10.0.0.1.test", 80))),
            ("10.0.0.1:81", None),
            ("[::1]:81", None),
        ] {
            assert_eq!(lookup_target(&endpoint(authority)), expected, "{authority}");
        }
        let tls = Endpoint { server_name: ServerName::new("app.test"), ..endpoint("app.test") };
        assert_eq!(lookup_target(&tls), Some(LookupTarget::Host("app.test", 443)));
        let unix = Endpoint { address: Address::Unix("/a".into()), host: "localhost".into(), server_name: None };
        assert_eq!(lookup_target(&unix), None);
        let service = Endpoint { address: Address::Srv("_a._tcp.test".into()), ..unix };
        assert_eq!(lookup_target(&service), Some(LookupTarget::Service("_a._tcp.test")));
        let directory = directory(&["a.test", "10.0.0.1", "b.test"], &Metrics::new("", "").unwrap());
        let upstream = &directory.in_force().settings[0];
        let servers = Arc::<[SocketAddr]>::default();
        assert_eq!(names(upstream, &servers).count(), 2);
        assert_eq!(names(&Upstream { resolve: Resolve::Off, ..upstream.clone() }, &servers).count(), 0);
    }
}
