//! `[server.tls]`: the server certificates, and the CA certificates for clients. `tls` of upstreams: the CA certificates
//! for the upstream, and the client certificate. `tls` of stores and of `[fleet]` has the same options.

use super::identity::key_file;
use crate::config::diagnostics::Problem;
use crate::config::reader::Table;
use crate::config::reader::units::Fault;
use crate::transport::net::Protocol;
use crate::transport::net::tls::{
    CertificateProblem, ClientAuth, ClientTls, OwnCertificate, PeerTls, ServerCertificate, ServerName, ServerTls,
    StoreTls,
};

/// Compiles the table. Returns `None` if it is absent, or notes an error and returns `None`.
pub(super) fn tls(table: &Table<'_>) -> Option<ServerTls> {
    if !table.is_present() || table.is_broken() {
        return None;
    }
    let certificates = certificates(table);
    let is_required = table.choice("client_auth", &[("required", true), ("optional", false)]);
    let clients = if table.has("client_ca") {
        Some(client_auth(table, is_required.unwrap_or(true))?)
    } else {
        if let Some(value) = table.get("client_auth") {
            let fault = Fault { absence: true, ..Fault::new("has no effect without `client_ca`") };
            table.fault("client_auth", value.span(), fault);
        }
        None
    };
    let tls = ServerTls::new(certificates?, clients);
    tls.map_err(|what| table.context.note(Problem::new(table.span(), format!("`{}`: {what}", table.path())))).ok()
}

/// Compiles all certificates; `None` if one has an error.
fn certificates(table: &Table<'_>) -> Option<Vec<ServerCertificate>> {
    let Some(value) = table.get("certificates") else {
        // Reading it notes that it is required.
        table.text("certificates");
        return None;
    };
    let items = table.tables("certificates");
    if items.is_empty() && value.get_ref().as_array().is_some() {
        table.fault("certificates", value.span(), Fault::new("TLS needs at least one certificate"));
        return None;
    }
    let certificates = items.iter().map(|item| certificate(item).map(|(certificate, _)| certificate));
    certificates.collect::<Vec<_>>().into_iter().collect()
}

/// Reads `cert` and `key`. Returns their contents, too.
fn certificate(table: &Table<'_>) -> Option<(ServerCertificate, OwnCertificate)> {
    if table.is_broken() {
        return None;
    }
    let (chain, key) = (key_file(table, "cert"), key_file(table, "key"));
    let fault = |name: &str, what: String| {
        let span = table.get(name).map_or(table.span(), toml::Spanned::span);
        table.fault(name, span, Fault::new(what));
    };
    let (chain, key) = (chain?, key?);
    match ServerCertificate::new(&chain, &key) {
        Ok(certificate) => Some((certificate, OwnCertificate { chain: chain.into(), key: key.into() })),
        Err(problem) => {
            match problem {
                CertificateProblem::Certificate(what) => fault("cert", what),
                CertificateProblem::Key(what) => fault("key", what),
            }
            None
        }
    }
}

fn client_auth(table: &Table<'_>, is_required: bool) -> Option<ClientAuth> {
    let authorities = key_file(table, "client_ca")?;
    let span = table.get("client_ca").map_or(table.span(), toml::Spanned::span);
    ClientAuth::new(&authorities, is_required).map_err(|what| table.fault("client_ca", span, Fault::new(what))).ok()
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
    let span = table.get("ca").map_or(table.span(), toml::Spanned::span);
    PeerTls::new(own, &authorities).map_err(|what| table.fault("ca", span, Fault::new(what))).ok()
}

fn client_with_files(table: &Table<'_>, protocol: Protocol) -> Option<(ClientTls, StoreTls)> {
    let authorities = if table.has("ca") { Some(key_file(table, "ca")?) } else { None };
    let (own, own_files) = match (table.has("cert"), table.has("key")) {
        (false, false) => (None, None),
        (true, true) => certificate(table).map(|(own, files)| (Some(own), Some(files)))?,
        (has_cert, _) => {
            let (there, absent) = if has_cert { ("cert", "key") } else { ("key", "cert") };
            let fault = Fault { absence: true, ..Fault::new(format!("needs `{absent}` beside it")) };
            table.fault(there, table.get(there).map_or(table.span(), toml::Spanned::span), fault);
            return None;
        }
    };
    let span = table.get("ca").map_or(table.span(), toml::Spanned::span);
    let tls = ClientTls::new(authorities.as_deref(), own, protocol);
    let tls = tls.map_err(|what| table.fault("ca", span, Fault::new(what))).ok()?;
    Some((tls, StoreTls { authorities: authorities.map(Into::into), own: own_files }))
}

pub(super) fn server_name(host: &str) -> Result<ServerName, Fault> {
    ServerName::new(host)
        .ok_or_else(|| Fault::new("is neither a host name nor an address, so no certificate can contain it"))
}
