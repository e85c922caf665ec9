//! `[upstream]` and `[upstreams.NAME]`: the services behind Weir, and their addresses.

use std::net::{AddrParseError, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use http::uri::Authority;

use super::identity::check_request_header;
use super::key::part;
use super::tls::{self, server_name};
use crate::config::diagnostics::{Problem, did_you_mean, nearest};
use crate::config::reader::context::Context;
use crate::config::reader::time_units;
use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};
use crate::config::schema;
use crate::config::schema::RESOLVE;
use crate::engine::policy::KeyPart;
use crate::engine::policy::upgrades::Upgrades;
use crate::transport::net::ListenAddress;
use crate::transport::net::Protocol;
use crate::transport::net::proxy_protocol::Version;
use crate::transport::upstream::Eject;
use crate::transport::upstream::settings::{Address, Balance, Cap, Endpoint, Health, Resolve, Upstream};

/// All upstreams.
pub(super) struct CompiledUpstreams {
    /// `None` if one has an error.
    pub(super) upstreams: Option<Vec<Upstream>>,
    /// The names of all upstreams, including invalid upstreams.
    pub(super) names: Vec<Located<String>>,
    /// For each name, whether the upstream uses HTTP/2.
    pub(super) speak_h2: Vec<bool>,
}

/// Whether there is no upstream on purpose: Weir only answers checks or callers.
pub(super) fn is_omitted(root: &Table<'_>) -> bool {
    let has_any = ["upstream", "upstreams", "route"].iter().any(|table| root.has(table));
    let server = root.get("server").and_then(|value| value.get_ref().as_table());
    (root.has("check") || root.has("grpc")) && !has_any && server.is_none_or(|server| !server.contains_key("listen"))
}

pub(super) fn upstreams(root: &Table<'_>, listen: Option<&[Located<ListenAddress>]>) -> CompiledUpstreams {
    let (one, many) = (root.table("upstream"), root.table("upstreams"));
    if is_omitted(root) {
        return CompiledUpstreams { upstreams: Some(Vec::new()), names: Vec::new(), speak_h2: Vec::new() };
    }
    if !many.is_present() {
        return CompiledUpstreams {
            upstreams: only(&one, listen).map(|one| vec![one]),
            names: Vec::new(),
            speak_h2: Vec::new(),
        };
    }
    if one.is_present() {
        let problem = Problem::new(one.span(), "there are both `[upstream]` and `[upstreams]`");
        let help = "`[upstream]` is for one service; move it to `[upstreams.NAME]`";
        root.context.note(problem.also(many.span(), "and here").help(Some(help.to_owned())));
    }
    let tables = many.named_tables();
    if tables.is_empty() && !many.is_broken() {
        many.context.note(Problem::new(many.span(), "`[upstreams]` has no upstream").absence());
    }
    let names = tables.iter().map(|(name, _)| name.clone()).collect();
    let read = |(name, table): &(Located<String>, Table<'_>)| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let is_good = (1..=64).contains(&name.get_ref().len()) && name.get_ref().bytes().all(is_plain);
        if !is_good {
            let title = format!("`upstreams`: `{}` is not 1 to 64 of `A-Z a-z 0-9 _ -`", name.get_ref());
            root.context.note(Problem::new(name.span(), title));
        }
        let endpoints = endpoints(table, listen);
        let (balance, health, eject) = (balance(table), health(&table.table("health")), eject(&table.table("eject")));
        let resolve = resolve(table, endpoints.as_deref());
        let upstream = upstream(table, endpoints)?;
        let name = Some(name.get_ref().as_str().into()).filter(|_| is_good);
        Some(Upstream {
            name: Some(name?),
            balance: balance?,
            health: health?,
            eject: eject?,
            resolve: resolve?,
            ..upstream
        })
    };
    let upstreams: Vec<_> = tables.iter().map(read).collect();
    let is_h2 = |upstream: &Option<Upstream>| upstream.as_ref().is_some_and(|one| one.protocol == Protocol::H2);
    let speak_h2 = upstreams.iter().map(is_h2).collect();
    CompiledUpstreams { upstreams: upstreams.into_iter().collect(), names, speak_h2 }
}

/// Compiles the upstream of `[upstream]`.
fn only(table: &Table<'_>, listen: Option<&[Located<ListenAddress>]>) -> Option<Upstream> {
    if let Some(url) = table.get("url").filter(|url| url.get_ref().as_str().is_some_and(|url| url.contains('@'))) {
        // The text before the `@` may be a password.
        table.context.hide(url.span());
    }
    if !table.has("url")
        && !table.is_broken()
        && let Some(option) = schema::find("upstream.url")
    {
        table.note_missing(option);
    }
    let url = table.parsed("url", |url| match endpoint(url)? {
        Endpoint { address: Address::Srv(_), .. } => {
            let help = "use `[upstreams.NAME]`; its `endpoints` accept `dns+` and `srv+`";
            Err(Fault::new("must be one service at one address").help(Some(help.to_owned())))
        }
        endpoint => Ok(endpoint),
    });
    if let Some(url) = &url {
        note_own(table, "url", url, listen);
    }
    upstream(table, url.map(|url| vec![url.into_inner()]))
}

fn endpoints(table: &Table<'_>, listen: Option<&[Located<ListenAddress>]>) -> Option<Vec<Endpoint>> {
    let written = table.get("endpoints");
    let items = written.map_or(Vec::new(), |value| match value.get_ref().as_array() {
        Some(items) => items.iter().collect(),
        None => vec![value],
    });
    for item in &items {
        if item.get_ref().as_str().is_some_and(|url| url.contains('@')) {
            table.context.hide(item.span());
        }
    }
    let endpoints = table.list("endpoints", endpoint)?;
    for endpoint in &endpoints {
        note_own(table, "endpoints", endpoint, listen);
    }
    // Invalid endpoints are noted and missing here.
    (endpoints.len() == items.len()).then(|| endpoints.into_iter().map(Located::into_inner).collect())
}

/// The addresses of the DNS servers.
pub(super) fn name_servers(table: &Table<'_>) -> Option<Arc<[SocketAddr]>> {
    let server = |text: &str| {
        let address = text.parse().or_else(|_| text.parse().map(|ip| SocketAddr::new(ip, DNS_PORT)));
        address.map_err(|_: AddrParseError| Fault::new(format!("`{text}` is not an address, as in `10.0.0.53`")))
    };
    let servers = table.list("servers", server)?;
    Some(servers.into_iter().map(Located::into_inner).collect())
}

/// RFC 1035, section 4.2.
const DNS_PORT: u16 = 53;

/// Compiles the schedule of DNS lookups. Notes SRV names without lookups.
fn resolve(table: &Table<'_>, endpoints: Option<&[Endpoint]>) -> Option<Resolve> {
    let resolve = table.parsed("resolve", |text| match (text, time_units::duration(text)) {
        ("ttl", _) => Ok(Resolve::Ttl),
        ("off", _) => Ok(Resolve::Off),
        (_, Ok(every)) => Ok(Resolve::Every(every)),
        (_, Err(fault)) => match nearest(text, RESOLVE.iter().copied()) {
            Some(word) => Err(fault.help(did_you_mean(Some(word)))),
            None => Err(fault),
        },
    })?;
    let has_service =
        endpoints.is_some_and(|all| all.iter().any(|endpoint| matches!(endpoint.address, Address::Srv(_))));
    if *resolve.get_ref() == Resolve::Off && has_service {
        let fault = Fault::new("Weir finds the endpoints of `srv+` only by DNS lookups");
        table.fault("resolve", resolve.span(), Fault { absence: true, ..fault });
        return None;
    }
    Some(resolve.into_inner())
}

fn balance(table: &Table<'_>) -> Option<Balance> {
    let ways = [
        ("round_robin", Balance::RoundRobin),
        ("least_connections", Balance::LeastConnections),
        ("p2c", Balance::P2c),
        ("hash", Balance::Hash(KeyPart::Ip)),
    ];
    let words: Vec<_> = ways.iter().enumerate().map(|(index, (word, _))| (*word, index)).collect();
    let way = table.choice("balance", &words).and_then(|index| ways.into_iter().nth(index)).map(|(_, way)| way);
    let Some(value) = table.get("hash_by") else { return way };
    let part = table.parsed("hash_by", |text| hash_by(table.context, text));
    if let Balance::Hash(_) = way? {
        return Some(Balance::Hash(part?.into_inner()));
    }
    let fault = Fault { absence: true, ..Fault::new("has no effect without `balance = \"hash\"`") };
    table.fault("hash_by", value.span(), fault);
    None
}

fn hash_by(context: &Context<'_>, text: &str) -> Result<KeyPart, Fault> {
    match part(text, &[]) {
        Some(KeyPart::Header(name, several)) => {
            check_request_header(context, &name)?;
            Ok(KeyPart::Header(name, several))
        }
        Some(part @ (KeyPart::Ip | KeyPart::Path | KeyPart::Host | KeyPart::Query(..) | KeyPart::Cookie(..))) => {
            Ok(part)
        }
        _ => {
            let kinds = ["ip", "path", "host", "header:NAME", "query:NAME", "cookie:NAME"];
            let help = did_you_mean(nearest(text, kinds)).unwrap_or_else(|| format!("it can be {}", kinds.join(", ")));
            Err(Fault::new(format!("`{text}` is not a source of the hash")).help(Some(help)))
        }
    }
}

fn cap(table: &Table<'_>) -> Option<Cap> {
    let max_connections = table.count("max_connections").map(Located::into_inner);
    let (max_queued, queue_timeout) = (table.count("max_queued"), table.duration("queue_timeout"));
    Some(Cap { max_connections, max_queued: max_queued?.into_inner(), queue_timeout: queue_timeout? })
}

/// Compiles the health checks; the inner option is `None` if there are none.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
fn health(table: &Table<'_>) -> Option<Option<Health>> {
    if !table.is_present() {
        return Some(None);
    }
    let path = table.parsed("path", |text| {
        let is_target = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if is_target { Ok(text.into()) } else { Err(Fault::new("is not a request path, as in `/healthz`")) }
    });
    let (interval, timeout) = (table.duration("interval"), table.duration("timeout"));
    let written = table.get("timeout").or(table.get("interval"));
    if let (Some(value), Some(timeout), Some(interval)) = (written, timeout, interval)
        && timeout > interval
    {
        let fault = Fault::new("is longer than `interval`, so a failing endpoint is noticed late");
        let help = "a check begins when the one before it has ended; write a shorter `timeout`".to_owned();
        table.warn("timeout", value.span(), "late_check", fault.help(Some(help)));
    }
    let (healthy_after, unhealthy_after) = (table.count("healthy_after"), table.count("unhealthy_after"));
    Some(Some(Health {
        path: path?.into_inner(),
        interval: interval?,
        timeout: timeout?,
        healthy_after: healthy_after?.into_inner(),
        unhealthy_after: unhealthy_after?.into_inner(),
    }))
}

/// Compiles the ejection of failing endpoints; the inner option is `None` if there is none.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
fn eject(table: &Table<'_>) -> Option<Option<Eject>> {
    if !table.is_present() {
        return Some(None);
    }
    let (after, duration) = (table.count("after"), table.duration("for"));
    Some(Some(Eject { after: after?.into_inner(), duration: duration? }))
}

/// Compiles the options that both kinds of table have.
fn upstream(table: &Table<'_>, endpoints: Option<Vec<Endpoint>>) -> Option<Upstream> {
    let tls = table.table("tls");
    let own_name = tls.parsed("server_name", server_name).map(Located::into_inner);
    let mut endpoints = endpoints;
    for name in endpoints.iter_mut().flatten().filter_map(|endpoint| endpoint.server_name.as_mut()) {
        if let Some(own_name) = &own_name {
            name.clone_from(own_name);
        }
    }
    let is_sealed = |endpoints: &Vec<Endpoint>| endpoints.iter().any(|endpoint| endpoint.server_name.is_some());
    let is_wanted = endpoints.as_ref().map_or(tls.is_present(), is_sealed);
    if tls.is_present() && !is_wanted {
        let problem = Problem::new(tls.span(), format!("`{}` has no effect without `https://`", table.path_of("tls")));
        table.context.note(problem.absence());
    }
    let protocol = protocol(table);
    let tls = if is_wanted { tls::client(&tls, protocol.unwrap_or(Protocol::Http1)).map(Some) } else { Some(None) };
    let rewrite_host = table.choice("host", &[("preserve", false), ("upstream", true)]);
    let cap = cap(table);
    let max_idle = table.count("max_idle");
    let idle_timeout = table.duration("idle_timeout");
    let versions = [("off", None), ("v1", Some(Version::V1)), ("v2", Some(Version::V2))];
    let proxy_protocol = table.choice("proxy_protocol", &versions);
    let upgrades = upgrades(table);
    if protocol == Some(Protocol::H2) {
        if let (Some(Some(_)), Some(value)) = (proxy_protocol, table.get("proxy_protocol")) {
            let help = "clients share connections with `protocol = \"h2\"`, but a PROXY header names one client";
            let fault = Fault { absence: true, ..Fault::new("cannot be used with `protocol = \"h2\"`") };
            table.fault("proxy_protocol", value.span(), fault.help(Some(help.to_owned())));
        }
        if upgrades.as_ref().is_some_and(|upgrades| !upgrades.is_empty()) {
            note_no_upgrades(table);
        }
    }
    Some(Upstream {
        name: None,
        endpoints: endpoints?,
        tls: tls?,
        protocol: protocol?,
        balance: Balance::RoundRobin,
        health: None,
        eject: None,
        cap: cap?,
        resolve: Resolve::Off,
        rewrite_host: rewrite_host?,
        max_idle: max_idle.map(Located::into_inner),
        idle_timeout: idle_timeout?,
        proxy_protocol: proxy_protocol?,
        upgrades: upgrades?,
    })
}

fn protocol(table: &Table<'_>) -> Option<Protocol> {
    table.choice("protocol", &[("http1", Protocol::Http1), ("h2", Protocol::H2)])
}

/// Notes `upgrade` of an upstream or a route whose upstream uses HTTP/2, which has no upgrades.
pub(super) fn note_no_upgrades(table: &Table<'_>) {
    let Some(value) = table.get("upgrade") else { return };
    let help = "an upgrade takes a connection for itself; give such requests a route to an upstream with \
                `protocol = \"http1\"`";
    let fault = Fault { absence: true, ..Fault::new("is not possible for an upstream with `protocol = \"h2\"`") };
    table.fault("upgrade", value.span(), fault.help(Some(help.to_owned())));
}

/// Compiles `upgrade` of an upstream or a route.
pub(super) fn upgrades(table: &Table<'_>) -> Option<Upgrades> {
    let names = table.list("upgrade", units::upgrade)?;
    Some(Upgrades(names.into_iter().map(Located::into_inner).collect()))
}

/// Notes an endpoint that is an address of Weir itself: its requests would return to Weir.
fn note_own(table: &Table<'_>, key: &str, endpoint: &Located<Endpoint>, listen: Option<&[Located<ListenAddress>]>) {
    let place = match &endpoint.get_ref().address {
        Address::Tcp(authority) => authority.as_str().parse().map(ListenAddress::Tcp).ok(),
        Address::Unix(path) => Some(ListenAddress::Unix(path.clone())),
        Address::Srv(_) => None,
    };
    if let Some(own) = listen.unwrap_or_default().iter().find(|own| Some(own.get_ref()) == place.as_ref()) {
        let title = format!("`{}`: Weir itself listens on this address", table.path_of(key));
        table.context.note(Problem::new(endpoint.span(), title).also(own.span(), "here"));
    }
}

/// Parses `http[s]://host[:port]` or `unix:/path`. Messages do not repeat a URL, which may contain a password.
fn endpoint(url: &str) -> Result<Endpoint, Fault> {
    if let Some(path) = url.strip_prefix("unix:") {
        let path = Path::new(path);
        if !path.is_absolute() {
            return Err(Fault::new("write the absolute path of the Unix socket, as in `unix:/run/app.sock`"));
        }
        let address = Address::Unix(units::socket_path(path.to_owned())?);
        return Ok(Endpoint { address, host: "localhost".into(), server_name: None });
    }
    if let Some((scheme, name)) = url.strip_prefix("srv+").and_then(|rest| rest.split_once("://")) {
        return service(scheme, name);
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        let suggestion = rest_is_authority(url).then(|| format!("http://{url}"));
        return Err(Fault::new(SCHEMES).help(did_you_mean(suggestion.as_deref())));
    };
    let authority = match scheme {
        "http" | "https" => authority(scheme, rest)?,
        _ => return Err(Fault::new(SCHEMES)),
    };
    let server_name = (scheme == "https").then(|| server_name(authority.host())).transpose()?;
    Ok(Endpoint { host: authority.as_str().into(), address: Address::Tcp(authority), server_name })
}

const SCHEMES: &str = "must begin with `http://`, `https://` or `unix:`";

/// Parses the `_service._proto.name` of `srv+http[s]://`. Its certificate must have the configured name, not a name from
/// an answer of the DNS (RFC 6125, section 6.2.1).
fn service(scheme: &str, name: &str) -> Result<Endpoint, Fault> {
    let wrong = || Fault::new("is not an SRV name, as in `srv+http://_http._tcp.example.com`");
    let mut labels = name.splitn(3, '.');
    let [service, proto, host] = [(); 3].map(|()| labels.next().unwrap_or_default());
    let is_label = |label: &str| label.len() > 1 && label.starts_with('_');
    let is_host = rest_is_authority(host) && !host.contains([':', '[']);
    if !matches!(scheme, "http" | "https") || !is_label(service) || !is_label(proto) || !is_host {
        return Err(wrong());
    }
    let server_name = (scheme == "https").then(|| server_name(host.trim_end_matches('.'))).transpose()?;
    Ok(Endpoint { address: Address::Srv(name.into()), host: host.trim_end_matches('.').into(), server_name })
}

/// Parses `host` or `host:port`, which follows `scheme://`.
pub(super) fn authority(scheme: &str, rest: &str) -> Result<Authority, Fault> {
    if rest.contains('@') {
        return Err(Fault::new("must not contain a user or a password"));
    }
    if let Some((host, _)) = rest.split_once(['/', '?', '#']) {
        let suggestion = rest_is_authority(host).then(|| format!("{scheme}://{host}"));
        return Err(Fault::new("must end after the host or port").help(did_you_mean(suggestion.as_deref())));
    }
    let wrong = || Fault::new(format!("is not `{scheme}://host` or `{scheme}://host:port`"));
    if rest_is_authority(rest) { rest.parse().map_err(|_| wrong()) } else { Err(wrong()) }
}

fn rest_is_authority(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    let after_host = text.strip_prefix(authority.host());
    let port_is_good = authority.port_u16().is_some_and(|port| port > 0);
    !authority.host().is_empty() && !text.contains('@') && (port_is_good || after_host == Some(""))
}
