//! `[fleet]` with `listen`: the connections between replicas.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use http::uri::Authority;

use super::etcd_members::{etcd_members, note_without_etcd};
use super::tls::peer_tls;
use crate::base::time::saturating_ns;
use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};
use crate::engine::store::stream::Timing;
use crate::fleet::grpc::fleet::settings::{FleetSettings, MemberSource};
use crate::transport::net::ListenAddress;

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

/// Intervals in `isolate_after` at least. A batch is sent again in this time.
const INTERVALS_MIN: u32 = 5;

/// Compiles the address of the listener; the inner option is `None` without `listen`.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
pub(super) fn listener(fleet: &Table<'_>) -> Option<Option<Located<ListenAddress>>> {
    if !fleet.has("listen") {
        for key in WITH_LISTEN {
            if let Some(value) = fleet.get(key) {
                let fault = Fault::new("has no effect without `fleet.listen`, the address for other replicas");
                fleet.fault(key, value.span(), Fault { absence: true, ..fault });
            }
        }
        return Some(None);
    }
    let address = fleet.parsed("listen", |text| units::address(text).map(ListenAddress::Tcp))?;
    if !fleet.has("secret") {
        let help = "add `secret = { env = \"WEIR_FLEET_SECRET\" }` to `[fleet]`, with the same value on every replica";
        let fault = Fault::new("replicas prove to each other that they know `fleet.secret`");
        fleet.fault("listen", address.span(), Fault { absence: true, ..fault.help(help.to_owned()) });
    }
    Some(Some(address))
}

/// Compiles the settings of a fleet that listens at `listen`; the inner option is `None` without a listener.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
pub(super) fn peers(
    fleet: &Table<'_>,
    listen: Option<Option<Located<ListenAddress>>>,
    name_servers: Option<&Arc<[SocketAddr]>>,
) -> Option<Option<PeerSettings>> {
    if !fleet.has("listen") {
        return Some(None);
    }
    let advertise = if fleet.has("advertise") { fleet.parsed("advertise", member).map(Some) } else { Some(None) };
    let advertise = advertise.map(|own| own.map(Located::into_inner));
    let address = listen.as_ref().and_then(|listen| Some(listen.as_ref()?.get_ref()));
    let members = members(fleet, name_servers, (address, advertise.as_ref()));
    let timing = timing(fleet);
    let max_replicas = fleet.count("max_replicas");
    let leave_after = fleet.duration("leave_after");
    let tls_table = fleet.table("tls");
    let tls = if tls_table.is_present() { peer_tls(&tls_table).map(Some) } else { Some(None) };
    let is_insecure = fleet.switch("insecure");
    let listen = listen??;
    if is_insecure == Some(false) && !tls_table.is_present() {
        check_plain(fleet, &listen, members.as_ref());
    }
    let settings = FleetSettings {
        members: members?.into_inner(),
        advertise: advertise?,
        tls: tls?,
        timing: timing?,
        max_replicas: max_replicas?.into_inner(),
        leave_after: leave_after?,
    };
    is_insecure.map(|_| Some(PeerSettings { listen: listen.into_inner(), settings }))
}

/// Notes that plain text would leave the machine.
fn check_plain(fleet: &Table<'_>, listen: &Located<ListenAddress>, members: Option<&Located<MemberSource>>) {
    let help = "add `tls = { cert = \"weir.pem\", key = \"weir.key\", ca = \"fleet.pem\" }` to `[fleet]`, or `insecure = \
                true` if that network is trusted";
    let note = |key: &str, span: Range<usize>, what: &str| {
        fleet.fault(key, span, Fault { absence: true, ..Fault::new(what).help(help.to_owned()) });
    };
    let is_here = matches!(listen.get_ref(), ListenAddress::Tcp(address) if address.ip().to_canonical().is_loopback());
    if !is_here {
        return note("listen", listen.span(), "other machines can reach this address, and it has no TLS");
    }
    let Some(members) = members else { return };
    let all_here = match members.get_ref() {
        MemberSource::Static(all) => all.iter().all(|member| is_loopback(member)),
        MemberSource::Dns { .. } => false,
        // Addresses of members are known at run time only. A listener on this machine is reached from here only.
        MemberSource::Etcd(_) => true,
    };
    if !all_here {
        note("members", members.span(), "charges would go to other machines without TLS");
    }
}

/// Whether the address is on this machine.
fn is_loopback(member: &str) -> bool {
    let host = member.parse::<Authority>().map(|authority| authority.host().trim_matches(['[', ']']).to_owned());
    host.is_ok_and(|host| {
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    })
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
        note_without_etcd(&table);
    }
    let found = match [table.has("static"), table.has("dns"), table.has("etcd")] {
        [true, false, false] => {
            let all = table.list("static", member)?;
            MemberSource::Static(all.into_iter().map(Located::into_inner).collect())
        }
        [false, false, true] => {
            let (listen, advertise) = own;
            MemberSource::Etcd(Arc::new(etcd_members(&table, listen, advertise?.clone())?))
        }
        [false, true, false] => {
            let (host, port) = table.parsed("dns", host_and_port)?.into_inner();
            MemberSource::Dns { host, port, servers: Arc::clone(name_servers?) }
        }
        _ => {
            let help = "write `members = { static = [\"10.0.0.1:8082\", \"10.0.0.2:8082\"] }`, `members = { dns = \
                        \"weir.internal:8082\" }` or `members = { etcd = [\"http://127.0.0.1:2379\"] }`";
            let fault = Fault::new("needs exactly one of `static`, `dns` and `etcd`").help(help.to_owned());
            fleet.fault("members", span, Fault { absence: true, ..fault });
            return None;
        }
    };
    Some(Located::new(span, found))
}

fn timing(fleet: &Table<'_>) -> Option<Timing> {
    let (interval, isolate_after) = (fleet.duration_in("interval"), fleet.duration_in("isolate_after"));
    let (interval, isolate_after) = (interval?, isolate_after?);
    if isolate_after < interval * INTERVALS_MIN {
        let what = format!("must be at least {INTERVALS_MIN} times `fleet.interval`, which is {interval:?}");
        let span = fleet.get("isolate_after").map_or(fleet.span(), toml::Spanned::span);
        fleet.fault("isolate_after", span, Fault::new(what));
        return None;
    }
    Some(Timing { interval_ns: saturating_ns(interval), isolate_after_ns: saturating_ns(isolate_after) })
}

/// Parses a host and a port.
fn host_and_port(text: &str) -> Result<(Box<str>, u16), Fault> {
    let authority = text.parse::<Authority>().ok().filter(|_| !text.contains('@'));
    let parts = authority.and_then(|authority| Some((authority.host().into(), authority.port_u16()?)));
    let parts = parts.filter(|(host, port): &(Box<str>, u16)| !host.is_empty() && *port != 0);
    parts.ok_or_else(|| {
        let help = "write it like \"10.0.0.1:8082\" or \"weir.internal:8082\"".to_owned();
        Fault::new(format!("`{text}` is not a host with a port")).help(help)
    })
}

/// Parses the address of a member: a host and a port.
fn member(text: &str) -> Result<Box<str>, Fault> {
    host_and_port(text).map(|_| text.to_ascii_lowercase().into())
}
