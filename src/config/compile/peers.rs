//! `[fleet]` with `listen`: the connections between replicas, and the registration of this replica in an etcd.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use http::uri::Authority;

use super::store::login;
use super::tls::{self, peer_tls};
use super::urls::{etcd_server, host_and_port};
use crate::base::time::saturating_ns;
use crate::config::reader::{Fault, Located, Optional, Problem, Table, units, whole};
use crate::engine::store::stream::Timing;
use crate::fleet::etcd::EtcdServers;
use crate::fleet::grpc::fleet::settings::{EtcdMembers, FleetSettings, MemberSource};
use crate::transport::net::{ListenAddress, Protocol};

/// The connections between replicas.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// The address of the listener. Fixed at start.
    pub listen: ListenAddress,
    /// The settings that a reload changes.
    pub settings: FleetSettings,
}

/// The options that have an effect with `listen` only.
const WITH_LISTEN: [&str; 8] =
    ["members", "advertise", "tls", "insecure", "interval", "isolate_after", "max_replicas", "leave_after"];

/// The options of `members` that have an effect with `etcd` only.
const WITH_ETCD: [&str; 4] = ["prefix", "user", "password", "tls"];

/// Intervals in `isolate_after` at least. A batch is sent again in this time.
const INTERVALS_MIN: u32 = 5;

/// Compiles the address of the listener; the inner option is `None` without `listen`.
pub(super) fn listener(fleet: &Table<'_>) -> Optional<Located<ListenAddress>> {
    if !fleet.has("listen") {
        let what = "has no effect without `fleet.listen`, the address for other replicas";
        for key in WITH_LISTEN {
            fleet.fault_if_present(key, Fault::new(what).absence());
        }
        return Some(None);
    }
    let address = fleet.parsed_at("listen", |text| units::address(text).map(ListenAddress::Tcp))?;
    if !fleet.has("secret") {
        let help = "add `secret = { env = \"WEIR_FLEET_SECRET\" }` to `[fleet]`, with the same value on every replica";
        let fault = Fault::new("replicas prove to each other that they know `fleet.secret`").help(help);
        fleet.fault("listen", address.span(), fault.absence());
    }
    Some(Some(address))
}

/// Compiles the settings of a fleet that listens at `listen`; the inner option is `None` without a listener.
pub(super) fn peers(
    fleet: &Table<'_>,
    replicas: Option<u64>,
    listen: Optional<Located<ListenAddress>>,
    name_servers: Option<&Arc<[SocketAddr]>>,
) -> Optional<PeerSettings> {
    if !fleet.has("listen") {
        return Some(None);
    }
    let advertise = fleet.optional("advertise", |key| fleet.parsed(key, member));
    let address = listen.as_ref().and_then(|listen| Some(listen.as_ref()?.get_ref()));
    let members = members(fleet, name_servers, (address, advertise.as_ref()));
    let (tls_table, is_insecure) = (fleet.table("tls"), fleet.switch("insecure"));
    let plain_members = members.as_ref().map(|members| (members.span(), are_here(members.get_ref())));
    let settings = whole!(FleetSettings {
        timing: timing(fleet),
        replicas: Some(replicas),
        max_replicas: fleet.count("max_replicas"),
        leave_after: fleet.duration("leave_after"),
        members: members.map(Located::into_inner),
        advertise,
        tls: tls_table.if_present(peer_tls),
    });
    let listen = listen??;
    if is_insecure == Some(false) && !tls_table.is_present() {
        check_plain(fleet, &listen, plain_members);
    }
    is_insecure?;
    Some(Some(PeerSettings { listen: listen.into_inner(), settings: settings? }))
}

/// Notes that plain text would leave the machine. `members` are the position of members, and whether all are here.
fn check_plain(fleet: &Table<'_>, listen: &Located<ListenAddress>, members: Option<(Range<usize>, bool)>) {
    let help = "add `tls = { cert = \"weir.pem\", key = \"weir.key\", ca = \"fleet.pem\" }` to `[fleet]`, or `insecure = \
                true` if that network is trusted";
    let note = |key, span, what: &str| fleet.fault(key, span, Fault::new(what).help(help).absence());
    match members {
        _ if units::is_elsewhere(listen.get_ref()) => {
            note("listen", listen.span(), "other machines can reach this address, and it has no TLS");
        }
        Some((span, false)) => note("members", span, "charges would go to other machines without TLS"),
        _ => {}
    }
}

/// Whether all members are on this machine, as far as it is known.
fn are_here(members: &MemberSource) -> bool {
    let host = |member: &str| member.parse::<Authority>().map(|all| all.host().trim_matches(['[', ']']).to_owned());
    match members {
        MemberSource::Static(all) => all.iter().all(|member| host(member).is_ok_and(|host| units::is_here(&host))),
        MemberSource::Dns { .. } => false,
        // Addresses of members are known at run time only. A listener on this machine is reached from here only.
        MemberSource::Etcd(_) => true,
    }
}

/// Compiles where the addresses of members come from. This replica has the addresses `own`.
fn members(
    fleet: &Table<'_>,
    name_servers: Option<&Arc<[SocketAddr]>>,
    own: (Option<&ListenAddress>, Option<&Option<Box<str>>>),
) -> Option<Located<MemberSource>> {
    let table = fleet.table("members");
    if table.is_broken() {
        return None;
    }
    let span = if table.is_present() { table.span() } else { fleet.span() };
    if !table.has("etcd") {
        let what = "has no effect without `fleet.members.etcd`";
        for key in WITH_ETCD {
            table.fault_if_present(key, Fault::new(what).absence());
        }
    }
    let found = match [table.has("static"), table.has("dns"), table.has("etcd")] {
        [true, false, false] => MemberSource::Static(table.list("static", member)?.into()),
        [false, false, true] => {
            let (listen, advertise) = own;
            MemberSource::Etcd(Arc::new(etcd_members(&table, listen, advertise?.clone())?))
        }
        [false, true, false] => {
            let (host, port) = table.parsed("dns", host_and_port)?;
            MemberSource::Dns { host, port, servers: Arc::clone(name_servers?) }
        }
        _ => {
            let help = "write `members = { static = [\"10.0.0.1:8082\", \"10.0.0.2:8082\"] }`, `members = { dns = \
                        \"weir.internal:8082\" }` or `members = { etcd = [\"http://127.0.0.1:2379\"] }`";
            let fault = Fault::new("needs exactly one of `static`, `dns` and `etcd`").help(help);
            fleet.fault("members", span, fault.absence());
            return None;
        }
    };
    Some(Located::new(span, found))
}

/// Compiles `members` with `etcd`, of a replica that listens at `listen`.
fn etcd_members(
    members: &Table<'_>,
    listen: Option<&ListenAddress>,
    advertise: Option<Box<str>>,
) -> Option<EtcdMembers> {
    let servers = etcd_servers(members);
    let (login, prefix) = (login(members), members.parsed("prefix", prefix));
    let (addresses, is_tls) = servers?;
    let tls_table = members.table("tls");
    if tls_table.is_present() && !is_tls {
        let problem = Problem::new(tls_table.span(), "`fleet.members.tls` has no effect without `https://`");
        members.context.note(problem.absence());
    }
    let tls = if is_tls { Some(tls::client(&tls_table, Protocol::H2)?) } else { None };
    let port = match listen? {
        ListenAddress::Tcp(address) => address.port(),
        ListenAddress::Unix(_) => 0,
    };
    if port == 0 && advertise.is_none() {
        let fault = Fault::new("needs `fleet.advertise`, because the port of `fleet.listen` is not fixed");
        members.fault("etcd", members.span(), fault.absence());
        return None;
    }
    let servers = EtcdServers { addresses, tls, login: login? };
    Some(EtcdMembers { servers, prefix: prefix?, advertise, port })
}

/// Reads the URLs of `etcd`, and whether they have TLS.
fn etcd_servers(members: &Table<'_>) -> Option<(Vec<Authority>, bool)> {
    let (all, is_whole) = members.counted_list("etcd", etcd_server)?;
    let first = all.first()?;
    let is_tls = first.get_ref().1;
    if let Some(other) = all.iter().find(|server| server.get_ref().1 != is_tls) {
        let problem = Problem::new(other.span(), "`fleet.members.etcd`: `http://` and `https://` are mixed");
        members.context.note(problem.also(first.span(), "unlike this one"));
        return None;
    }
    is_whole.then(|| (all.into_iter().map(|server| server.into_inner().0).collect(), is_tls))
}

fn prefix(text: &str) -> Result<Box<str>, Fault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
    let is_good = (2..=128).contains(&text.len()) && text.bytes().all(is_plain);
    if is_good && text.starts_with('/') && !text.ends_with('/') && !text.contains("//") {
        return Ok(text.into());
    }
    Err(format!("`{text}` is not a key such as `/weir`, of `A-Z a-z 0-9 _ - . : /`").into())
}

fn timing(fleet: &Table<'_>) -> Option<Timing> {
    let (interval, isolate_after) = (fleet.duration("interval"), fleet.duration("isolate_after"));
    let (interval, isolate_after) = (interval?, isolate_after?);
    if isolate_after < interval * INTERVALS_MIN {
        let what = format!("must be at least {INTERVALS_MIN} times `fleet.interval`, which is {interval:?}");
        fleet.fault_at("isolate_after", what);
        return None;
    }
    Some(Timing { interval_ns: saturating_ns(interval), isolate_after_ns: saturating_ns(isolate_after) })
}

/// Parses the address of a member: a host and a port.
fn member(text: &str) -> Result<Box<str>, Fault> {
    host_and_port(text).map(|_| text.to_ascii_lowercase().into())
}
