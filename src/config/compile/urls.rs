//! Addresses of servers: URLs, and hosts with ports.
//!
//! Messages do not repeat a URL, which may contain a password.

use std::path::Path;

use http::Uri;
use http::uri::Authority;

use crate::config::reader::{Fault, did_you_mean, units};
use crate::fleet::stores::driver::NodeAddress;
use crate::transport::net::tls::ServerName;
use crate::transport::upstream::settings::{Address, Endpoint};

/// The default ports of Redis, of its sentinels and of etcd.
pub(super) const REDIS_PORT: u16 = 6379;
pub(super) const SENTINEL_PORT: u16 = 26379;
const ETCD_PORT: u16 = 2379;

/// The path of OTLP over HTTP, for a URL without one.
const TRACES_PATH: &str = "/v1/traces";

const SCHEMES: &str = "must begin with `http://`, `https://` or `unix:`";

/// The address of a server of a store.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) address: NodeAddress,
    pub(super) has_tls: bool,
}

/// The address of a limiter service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LimiterUrl {
    /// A name in lower case, or an address without brackets.
    pub(super) host: Box<str>,
    pub(super) port: u16,
    pub(super) has_tls: bool,
}

/// Parses the name or the address that a certificate must have.
pub(super) fn server_name(host: &str) -> Result<ServerName, Fault> {
    let fault = "is neither a host name nor an address, so no certificate can contain it";
    ServerName::new(host).ok_or_else(|| fault.into())
}

/// Splits a URL into one of two schemes and the rest.
fn split<'u>(url: &'u str, [plain, tls]: [&str; 2]) -> Result<(&'u str, &'u str), Fault> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let is_known = [plain, tls].contains(&scheme);
    is_known.then_some((scheme, rest)).ok_or_else(|| format!("must begin with `{plain}://` or `{tls}://`").into())
}

/// Parses `host` or `host:port`, which follows `scheme://`.
fn authority(scheme: &str, rest: &str) -> Result<Authority, Fault> {
    if rest.contains('@') {
        return Err("must not contain a user or a password".into());
    }
    if let Some((host, _)) = rest.split_once(['/', '?', '#']) {
        let suggestion = is_authority(host).then(|| format!("{scheme}://{host}"));
        return Err(("must end after the host or port", did_you_mean(suggestion.as_deref())).into());
    }
    let parsed = rest.parse().ok().filter(|_| is_authority(rest));
    parsed.ok_or_else(|| format!("is not `{scheme}://host` or `{scheme}://host:port`").into())
}

fn is_authority(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    let after_host = text.strip_prefix(authority.host());
    let port_is_good = authority.port_u16().is_some_and(|port| port > 0);
    !authority.host().is_empty() && !text.contains('@') && (port_is_good || after_host == Some(""))
}

/// The host in lower case, without brackets.
pub(super) fn bare_host(authority: &Authority) -> String {
    authority.host().trim_matches(['[', ']']).to_ascii_lowercase()
}

/// Parses `redis[s]://host[:port]`.
pub(super) fn redis_node(url: &str, default_port: u16) -> Result<Node, Fault> {
    let (scheme, rest) = split(url, ["redis", "rediss"])?;
    if rest.contains('@') {
        let help = "use `user`, and `password = { env = \"NAME\" }`";
        return Err(("must not contain a user or a password", help).into());
    }
    node(&authority(scheme, rest)?, default_port, scheme == "rediss")
}

fn node(authority: &Authority, default_port: u16, has_tls: bool) -> Result<Node, Fault> {
    let host = bare_host(authority);
    if has_tls {
        server_name(&host)?;
    }
    Ok(Node { address: NodeAddress::tcp(host, authority.port_u16().unwrap_or(default_port)), has_tls })
}

/// Parses an address as [`redis_node`] does, or `unix:` with an absolute path.
pub(super) fn independent_node(text: &str) -> Result<Node, Fault> {
    let Some(path) = text.strip_prefix("unix:") else {
        let has_scheme = ["redis://", "rediss://"].iter().any(|scheme| text.starts_with(scheme));
        let unknown = "must begin with `redis://`, `rediss://` or `unix:`";
        return if has_scheme { redis_node(text, REDIS_PORT) } else { Err(unknown.into()) };
    };
    if !path.starts_with('/') {
        return Err("write the absolute path of the Unix socket, as in `unix:/run/redis/redis.sock`".into());
    }
    let path = units::socket_path(path.into())?;
    Ok(Node { address: NodeAddress::Unix(path.into()), has_tls: false })
}

/// Parses `http[s]://host[:port]` of a member of an etcd, and whether it has TLS.
pub(super) fn etcd_server(url: &str) -> Result<(Authority, bool), Fault> {
    let (scheme, rest) = split(url, ["http", "https"])?;
    let server = authority(scheme, rest.strip_suffix('/').unwrap_or(rest))?;
    let server = match server.port_u16() {
        Some(_) => server,
        None => format!("{server}:{ETCD_PORT}").parse().map_err(|_| Fault::new("is not a host and port"))?,
    };
    Ok((server, scheme == "https"))
}

/// Parses an address as [`etcd_server`] does, for a store.
pub(super) fn etcd_node(url: &str) -> Result<Node, Fault> {
    let (server, has_tls) = etcd_server(url)?;
    node(&server, ETCD_PORT, has_tls)
}

/// Parses `http[s]://host:port` of a limiter service.
pub(super) fn limiter_url(url: &str) -> Result<LimiterUrl, Fault> {
    let (scheme, rest) = split(url, ["http", "https"])?;
    let (authority, has_tls) = (authority(scheme, rest)?, scheme == "https");
    let host = bare_host(&authority);
    let Some(port) = authority.port_u16() else {
        let help = format!("add the port of its `grpc.listen`, as in `{scheme}://{host}:8081`");
        return Err(("must have a port", help).into());
    };
    if has_tls {
        server_name(&host)?;
    }
    Ok(LimiterUrl { host: host.into(), port, has_tls })
}

/// Parses `http[s]://host[:port]` of a service, `unix:/path`, or an SRV name.
pub(super) fn endpoint(url: &str) -> Result<Endpoint, Fault> {
    if let Some(path) = url.strip_prefix("unix:") {
        if !Path::new(path).is_absolute() {
            return Err("write the absolute path of the Unix socket, as in `unix:/run/app.sock`".into());
        }
        let address = Address::Unix(units::socket_path(path.into())?);
        return Ok(Endpoint { address, host: "localhost".into(), server_name: None });
    }
    if let Some((scheme, name)) = url.strip_prefix("srv+").and_then(|rest| rest.split_once("://")) {
        return service(scheme, name);
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        let suggestion = is_authority(url).then(|| format!("http://{url}"));
        return Err((SCHEMES, did_you_mean(suggestion.as_deref())).into());
    };
    if !["http", "https"].contains(&scheme) {
        return Err(SCHEMES.into());
    }
    let authority = authority(scheme, rest)?;
    let server_name = (scheme == "https").then(|| server_name(authority.host())).transpose()?;
    Ok(Endpoint { host: authority.as_str().into(), address: Address::Tcp(authority), server_name })
}

/// Parses the `_service._proto.name` of `srv+http[s]://`. Its certificate must have the configured name, not a name from
/// an answer of the DNS (RFC 6125, section 6.2.1).
fn service(scheme: &str, name: &str) -> Result<Endpoint, Fault> {
    let mut labels = name.splitn(3, '.');
    let [service, proto, host] = [(); 3].map(|()| labels.next().unwrap_or_default());
    let is_label = |label: &str| label.len() > 1 && label.starts_with('_');
    let is_host = is_authority(host) && !host.contains([':', '[']);
    if !["http", "https"].contains(&scheme) || !is_label(service) || !is_label(proto) || !is_host {
        return Err("is not an SRV name, as in `srv+http://_http._tcp.example.com`".into());
    }
    let host = host.trim_end_matches('.');
    let server_name = (scheme == "https").then(|| server_name(host)).transpose()?;
    Ok(Endpoint { address: Address::Srv(name.into()), host: host.into(), server_name })
}

/// Parses a host and a port.
pub(super) fn host_and_port(text: &str) -> Result<(Box<str>, u16), Fault> {
    let authority = text.parse::<Authority>().ok().filter(|_| !text.contains('@'));
    let parts = authority.and_then(|authority| Some((authority.host().into(), authority.port_u16()?)));
    let parts = parts.filter(|(host, port): &(Box<str>, u16)| !host.is_empty() && *port != 0);
    let help = "write it like \"10.0.0.1:8082\" or \"weir.internal:8082\"";
    parts.ok_or_else(|| (format!("`{text}` is not a host with a port"), help).into())
}

/// Parses the URL of a collector of traces. A URL without a path gets that of OTLP.
pub(super) fn collector(text: &str) -> Result<Uri, Fault> {
    let fault = |what: &str| Err((what, "write a URL such as `http://127.0.0.1:4318`").into());
    let Ok(url) = text.parse::<Uri>() else { return fault("is not a URL") };
    let (Some("http" | "https"), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return fault("must begin with `http://` or `https://`, and a host");
    };
    if authority.as_str().contains('@') || text.contains(['#', '?']) {
        return fault("must not contain a user, a password, a query or a fragment");
    }
    if url.path() != "/" {
        return Ok(url);
    }
    format!("{}{TRACES_PATH}", text.trim_end_matches('/')).parse().map_err(|_| "is not a URL".into())
}

/// Parses a URL of keys.
pub(super) fn jwks_url(text: &str) -> Result<Uri, Fault> {
    https_url(text, "an attacker who can change the fetched keys can sign tokens")
}

/// Parses a URL of `https`, or of `http` on this machine. `danger` is the reason against `http` elsewhere.
pub(super) fn https_url(text: &str, danger: &str) -> Result<Uri, Fault> {
    let fault = |what: &str| Err(what.into());
    let Ok(url) = text.parse::<Uri>() else { return fault("is not a URL") };
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return fault("must begin with `https://` and a host");
    };
    match scheme {
        _ if authority.as_str().contains('@') => fault("must not contain a user or a password"),
        _ if text.contains('#') => fault("must not have a fragment"),
        "https" => Ok(url),
        "http" if units::is_here(authority.host().trim_matches(['[', ']'])) => Ok(url),
        "http" => Err(format!("must be `https`: {danger}").into()),
        _ => fault("must begin with `https://`"),
    }
}
