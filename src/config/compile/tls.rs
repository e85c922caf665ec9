//! `[server.tls]`: the server certificates, and the CA certificates for clients. `tls` of upstreams: the CA certificates
//! for the upstream, and the client certificate.

use super::identity::key_file;
use crate::config::diagnostics::Problem;
use crate::config::reader::Table;
use crate::config::reader::units::Fault;
use crate::net::Protocol;
use crate::net::tls::{CertificateProblem, ClientAuth, ClientTls, ServerCertificate, ServerName, ServerTls};

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

/// All of them, if none has a problem.
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
    items.iter().map(certificate).collect::<Vec<_>>().into_iter().collect()
}

fn certificate(table: &Table<'_>) -> Option<ServerCertificate> {
    if table.is_broken() {
        return None;
    }
    let (chain, key) = (key_file(table, "cert"), key_file(table, "key"));
    let fault = |name: &str, what: String| {
        let span = table.get(name).map_or(table.span(), toml::Spanned::span);
        table.fault(name, span, Fault::new(what));
    };
    match ServerCertificate::new(&chain?, &key?) {
        Ok(certificate) => Some(certificate),
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

/// `tls` of an upstream of which there is something that speaks it.
pub(super) fn client(table: &Table<'_>, protocol: Protocol) -> Option<ClientTls> {
    let authorities = if table.has("ca") { Some(key_file(table, "ca")?) } else { None };
    let own = match (table.has("cert"), table.has("key")) {
        (false, false) => None,
        (true, true) => Some(certificate(table)?),
        (has_cert, _) => {
            let (there, absent) = if has_cert { ("cert", "key") } else { ("key", "cert") };
            let fault = Fault { absence: true, ..Fault::new(format!("needs `{absent}` beside it")) };
            table.fault(there, table.get(there).map_or(table.span(), toml::Spanned::span), fault);
            return None;
        }
    };
    let span = table.get("ca").map_or(table.span(), toml::Spanned::span);
    let tls = ClientTls::new(authorities.as_deref(), own, protocol);
    tls.map_err(|what| table.fault("ca", span, Fault::new(what))).ok()
}

pub(super) fn server_name(host: &str) -> Result<ServerName, Fault> {
    ServerName::new(host)
        .ok_or_else(|| Fault::new("is neither a host name nor an address, so no certificate can contain it"))
}
