//! `[server.tls]`: the server certificates, and the CA certificates for clients. `tls` of upstreams: the CA certificates
//! for the upstream, and the client certificate. `tls` of stores and of `[fleet]` has the same options.

use super::acme;
use super::identity::key_file;
use crate::config::reader::{Fault, Located, Optional, Problem, Table};
use crate::config::schema::words;
use crate::transport::net::tls::{
    AcmeSettings, CertificateProblem, ClientAuth, ClientTls, OwnCertificate, PeerTls, ServerCertificate, ServerTls,
    StoreTls,
};
use crate::transport::net::{ListenAddress, Protocol};
use crate::transport::proxy::settings::PlainListeners;

/// Compiles a table without `acme`. Returns `None` if it is absent, or notes an error and returns `None`.
pub(super) fn tls(table: &Table<'_>) -> Option<ServerTls> {
    if !table.is_present() || table.is_broken() {
        return None;
    }
    tls_with(table, certificates(table), Some(None))
}

/// Compiles `[server.tls]`. `listeners` are those of `server.listen` and of `server.tls.listen`.
pub(super) fn server(table: &Table<'_>, listeners: [Option<&[Located<ListenAddress>]>; 2]) -> Option<ServerTls> {
    if !table.is_present() || table.is_broken() {
        return None;
    }
    if !table.has("acme") {
        if !table.has("certificates") {
            let help =
                "add `certificates` with a file of a certificate and one of its key, or `acme`, which orders one";
            let title = format!("`{}` needs `certificates` or `acme`", table.path());
            table.context.note(Problem::new(table.span(), title).help(help).absence());
            return None;
        }
        return tls(table);
    }
    let listeners = if table.has("listen") { listeners[1] } else { listeners[0] };
    let acme = acme::acme(&table.table("acme"), listeners.unwrap_or_default());
    let certificates = if table.has("certificates") { certificates(table) } else { Some(Vec::new()) };
    tls_with(table, certificates, acme.map(Some))
}

fn tls_with(
    table: &Table<'_>,
    certificates: Option<Vec<ServerCertificate>>,
    acme: Optional<AcmeSettings>,
) -> Option<ServerTls> {
    let is_required = table.choice("client_auth", &words::CLIENT_AUTH).unwrap_or(true);
    if !table.has("client_ca") {
        table.fault_if_present("client_auth", Fault::new("has no effect without `client_ca`").absence());
    }
    let clients = table.optional("client_ca", |key| {
        let authorities = key_file(table, key)?;
        ClientAuth::new(&authorities, is_required).map_err(|what| table.fault_at(key, what)).ok()
    })?;
    let tls = ServerTls::new(certificates?, clients, acme?);
    tls.map_err(|what| table.context.note(Problem::new(table.span(), format!("`{}`: {what}", table.path())))).ok()
}

/// Compiles the listeners of `server.listen` where `server.tls.listen` has those with TLS; the inner option is `None` if
/// all listeners are alike.
pub(super) fn plain(table: &Table<'_>) -> Optional<PlainListeners> {
    if !table.has("listen") {
        let fault = Fault::new("needs `listen`: without it all requests have TLS").absence();
        table.fault_if_present("redirect_port", fault);
        return Some(None);
    }
    let redirect_port = table.optional("redirect_port", |key| table.count(key))?;
    Some(Some(PlainListeners { redirect_port }))
}

/// Compiles all certificates; `None` if one has an error.
fn certificates(table: &Table<'_>) -> Option<Vec<ServerCertificate>> {
    let items = table.some_tables("certificates", "TLS needs at least one certificate")?;
    let certificates = items.iter().map(|item| certificate(item).map(|(certificate, _)| certificate));
    certificates.collect::<Vec<_>>().into_iter().collect()
}

/// Reads `cert` and `key`. Returns their contents, too.
fn certificate(table: &Table<'_>) -> Option<(ServerCertificate, OwnCertificate)> {
    if table.is_broken() {
        return None;
    }
    let (chain, key) = (key_file(table, "cert"), key_file(table, "key"));
    let (chain, key) = (chain?, key?);
    let own = ServerCertificate::new(&chain, &key).map_err(|problem| match problem {
        CertificateProblem::Certificate(what) => table.fault_at("cert", what),
        CertificateProblem::Key(what) => table.fault_at("key", what),
    });
    Some((own.ok()?, OwnCertificate { chain: chain.into(), key: key.into() }))
}

/// Compiles `tls` of an upstream with at least one endpoint that has TLS.
pub(super) fn client(table: &Table<'_>, protocol: Protocol) -> Option<ClientTls> {
    client_with_files(table, protocol).map(|(tls, _)| tls)
}

/// Compiles `tls` of a store with TLS. The client of the store reads the files itself; here they are checked.
pub(super) fn store(table: &Table<'_>) -> Option<StoreTls> {
    client_with_files(table, Protocol::Http1).map(|(_, files)| files)
}

/// Compiles `tls` of the connections between replicas: all three files.
pub(super) fn peer_tls(table: &Table<'_>) -> Option<PeerTls> {
    let (own, authorities) = (certificate(table), key_file(table, "ca"));
    let (own, authorities) = (own?.0, authorities?);
    PeerTls::new(own, &authorities).map_err(|what| table.fault_at("ca", what)).ok()
}

fn client_with_files(table: &Table<'_>, protocol: Protocol) -> Option<(ClientTls, StoreTls)> {
    let authorities = table.optional("ca", |key| key_file(table, key))?;
    let (own, own_files) = match (table.has("cert"), table.has("key")) {
        (false, false) => None,
        (true, true) => Some(certificate(table)?),
        (has_cert, _) => {
            let (there, absent) = if has_cert { ("cert", "key") } else { ("key", "cert") };
            table.fault_at(there, Fault::new(format!("needs `{absent}` beside it")).absence());
            return None;
        }
    }
    .unzip();
    let tls = ClientTls::new(authorities.as_deref(), own, protocol);
    let tls = tls.map_err(|what| table.fault_at("ca", what)).ok()?;
    Some((tls, StoreTls::new(authorities.map(Into::into), own_files)))
}
