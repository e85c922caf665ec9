//! `fleet.members` with `etcd`: its servers, and the registration of this replica.

use http::uri::Authority;

use super::etcd_url::server;
use super::store::login;
use super::tls;
use crate::config::diagnostics::Problem;
use crate::config::reader::units::Fault;
use crate::config::reader::{Located, Table};
use crate::fleet::etcd::EtcdServers;
use crate::fleet::grpc::fleet::settings::EtcdMembers;
use crate::transport::net::{ListenAddress, Protocol};

/// The options that have an effect with `etcd` only.
const WITH_ETCD: [&str; 4] = ["prefix", "user", "password", "tls"];

/// Notes options of `fleet.members` that have no effect without `etcd`.
pub(super) fn note_without_etcd(members: &Table<'_>) {
    for key in WITH_ETCD {
        if let Some(value) = members.get(key) {
            let fault = Fault::new("has no effect without `fleet.members.etcd`");
            members.fault(key, value.span(), Fault { absence: true, ..fault });
        }
    }
}

/// Compiles `fleet.members` of a replica that listens at `listen`.
pub(super) fn etcd_members(
    members: &Table<'_>,
    listen: Option<&ListenAddress>,
    advertise: Option<Box<str>>,
) -> Option<EtcdMembers> {
    let servers = servers(members);
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
        members.fault("etcd", members.span(), Fault { absence: true, ..fault });
        return None;
    }
    let servers = EtcdServers { addresses, tls, login: login? };
    Some(EtcdMembers { servers, prefix: prefix?.into_inner(), advertise, port })
}

/// Reads the URLs of `etcd`, and whether they have TLS.
fn servers(members: &Table<'_>) -> Option<(Vec<Authority>, bool)> {
    let written = members.get("etcd").map_or(0, |value| value.get_ref().as_array().map_or(1, |items| items.len()));
    let all = members.list("etcd", server)?;
    let (first, rest) = all.split_first()?;
    let is_tls = first.get_ref().1;
    if let Some(other) = rest.iter().find(|server| server.get_ref().1 != is_tls) {
        let problem = Problem::new(other.span(), "`fleet.members.etcd`: `http://` and `https://` are mixed");
        members.context.note(problem.also(first.span(), "unlike this one"));
        return None;
    }
    // Invalid URLs are noted, and missing here.
    (all.len() == written)
        .then(|| (all.into_iter().map(Located::into_inner).map(|(server, _)| server).collect(), is_tls))
}

fn prefix(text: &str) -> Result<Box<str>, Fault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
    let is_good = (2..=128).contains(&text.len()) && text.bytes().all(is_plain);
    if is_good && text.starts_with('/') && !text.ends_with('/') && !text.contains("//") {
        return Ok(text.into());
    }
    Err(Fault::new(format!("`{text}` is not a key such as `/weir`, of `A-Z a-z 0-9 _ - . : /`")))
}
