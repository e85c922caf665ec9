//! `server.tls.acme`: a certificate from an authority with ACME.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::identity::{key_file, secret_of};
use super::urls;
use super::warnings::of_folder;
use crate::config::reader::{Fault, Located, Problem, Table, whole};
use crate::transport::net::tls::{AcmeSettings, ClientTls, ExternalAccount, ServerName};
use crate::transport::net::{ListenAddress, Protocol};

/// The most hosts of a certificate; Let's Encrypt has the same bound.
const DOMAINS_MAX: usize = 100;

/// Compiles the table. `listeners` are those with TLS.
pub(super) fn acme(table: &Table<'_>, listeners: &[Located<ListenAddress>]) -> Option<AcmeSettings> {
    if table.is_broken() {
        return None;
    }
    let domains = table.list("domains", domain);
    if domains.as_ref().is_some_and(|domains| domains.len() > DOMAINS_MAX) {
        table.fault_at("domains", format!("a certificate has at most {DOMAINS_MAX} hosts"));
    }
    if table.switch("agree_to_terms") == Some(false) {
        let help = "the authority issues certificates only to those who agree to its terms of service";
        table.fault_at("agree_to_terms", ("must be `true`", help));
    }
    if !listeners.iter().any(|place| matches!(place.get_ref(), ListenAddress::Tcp(_))) {
        let help = "the authority connects to port 443 of each host, and Weir must answer there";
        let title = format!("`{}`: no listener with TLS has a port", table.path());
        table.context.note(Problem::warning("acme_unreachable", table.span(), title).help(help));
    }
    let folder = table.text_at("folder").map(|folder| {
        let path = table.context.path(folder.get_ref());
        let needed = if path.is_dir() { path.join("lock") } else { path.clone() };
        of_folder(table, "folder", folder.span(), &needed);
        path
    });
    whole!(AcmeSettings {
        domains: domains.map(Vec::into_boxed_slice),
        contact: table.optional("contact", |key| table.parsed(key, contact)),
        directory: table.parsed("directory", |text| {
            urls::https_url(text, "an attacker on the way could choose the answers to challenges")
        }),
        folder,
        trust: table.optional("ca", |key| {
            let trust = ClientTls::new(Some(&key_file(table, key)?), None, Protocol::Http1);
            trust.map_err(|what| table.fault_at(key, what)).ok()
        }),
        external: table.table("external").if_present(external),
    })
}

fn external(table: &Table<'_>) -> Option<ExternalAccount> {
    if table.is_broken() {
        return None;
    }
    if !table.has("key") {
        table.context.note(Problem::new(table.span(), format!("`{}` needs `key`", table.path())).absence());
    }
    let key = secret_of(table, "key", |key| {
        let decoded = URL_SAFE_NO_PAD.decode(String::from_utf8_lossy(&key).trim_end_matches('='));
        let decoded = decoded.ok().filter(|key| !key.is_empty());
        decoded.ok_or_else(|| "this key is not base64url (RFC 4648, section 5)".into())
    });
    whole!(ExternalAccount { key_id: table.text("key_id"), key: key.map(Vec::into_boxed_slice) })
}

fn domain(text: &str) -> Result<String, Fault> {
    let name = text.to_ascii_lowercase();
    if name.starts_with("*.") {
        let help = "name each host, or write a certificate from elsewhere to `server.tls.certificates`";
        return Err((format!("`{text}` has a wildcard, which only the challenge dns-01 can prove"), help).into());
    }
    if name.parse::<std::net::IpAddr>().is_ok() {
        return Err(format!("`{text}` is an address; a certificate by ACME is for host names").into());
    }
    let is_name = ServerName::new(&name).is_some() && !name.ends_with('.') && !name.contains('[');
    is_name.then_some(name).ok_or_else(|| format!("`{text}` is not a host name").into())
}

fn contact(text: &str) -> Result<String, Fault> {
    let address = text.strip_prefix("mailto:").filter(|address| address.contains('@') && !address.contains([',', '?']));
    let help = "write it like \"mailto:ops@example.com\"";
    address.map(|_| text.to_owned()).ok_or_else(|| ("is not a `mailto:` URL of one address", help).into())
}
