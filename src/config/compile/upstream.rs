//! `[upstream]` and `[upstreams.NAME]`: the services behind Weir, and their addresses.

use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use super::identity::check_request_header;
use super::key::part;
use super::tls;
use super::urls::{bare_host, endpoint, server_name};
use crate::config::reader::context::Context;
use crate::config::reader::units::word_or;
use crate::config::reader::{Fault, Located, Problem, Table, did_you_mean, nearest, time_units, units, whole};
use crate::config::schema::{self, words};
use crate::engine::policy::KeyPart;
use crate::engine::policy::upgrades::Upgrades;
use crate::transport::net::{ListenAddress, Protocol};
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
    if is_omitted(root) || !many.is_present() {
        let upstreams = if is_omitted(root) { Some(Vec::new()) } else { only(&one, listen).map(|one| vec![one]) };
        return CompiledUpstreams { upstreams, names: Vec::new(), speak_h2: Vec::new() };
    }
    if one.is_present() {
        let problem = Problem::new(one.span(), "there are both `[upstream]` and `[upstreams]`");
        let help = "`[upstream]` is for one service; move it to `[upstreams.NAME]`";
        root.context.note(problem.also(many.span(), "and here").help(help));
    }
    let tables = many.named_tables();
    if tables.is_empty() && !many.is_broken() {
        many.context.note(Problem::new(many.span(), "`[upstreams]` has no upstream").absence());
    }
    let upstreams: Vec<_> = tables.iter().map(|(name, table)| one_of_several(name, table, listen)).collect();
    let is_h2 = |upstream: &Option<Upstream>| upstream.as_ref().is_some_and(|one| one.protocol == Protocol::H2);
    let speak_h2 = upstreams.iter().map(is_h2).collect();
    let names = tables.into_iter().map(|(name, _)| name).collect();
    CompiledUpstreams { upstreams: upstreams.into_iter().collect(), names, speak_h2 }
}

/// Compiles one of `[upstreams]`.
fn one_of_several(
    name: &Located<String>,
    table: &Table<'_>,
    listen: Option<&[Located<ListenAddress>]>,
) -> Option<Upstream> {
    let is_good = units::is_name(name.get_ref());
    if !is_good {
        let title = format!("`upstreams`: `{}` is not 1 to 64 of `A-Z a-z 0-9 _ -`", name.get_ref());
        table.context.note(Problem::new(name.span(), title));
    }
    let endpoints = endpoints(table, listen);
    let (balance, health) = (balance(table), table.table("health").if_present(health));
    let eject = table
        .table("eject")
        .if_present(|table| whole!(Eject { after: table.count("after"), duration: table.duration("for") }));
    let resolve = resolve(table, endpoints.as_deref());
    let upstream = upstream(table, endpoints)?;
    let name = is_good.then(|| Some(name.get_ref().as_str().into()));
    Some(Upstream { name: name?, balance: balance?, health: health?, eject: eject?, resolve: resolve?, ..upstream })
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
    let url = table.parsed_at("url", |url| match endpoint(url)? {
        Endpoint { address: Address::Srv(_), .. } => {
            let help = "use `[upstreams.NAME]`; its `endpoints` accept `srv+`";
            Err(("must be one service at one address", help).into())
        }
        endpoint => Ok(endpoint),
    });
    if let Some(url) = &url {
        note_own(table, "url", url, listen);
    }
    upstream(table, url.map(|url| vec![url.into_inner()]))
}

fn endpoints(table: &Table<'_>, listen: Option<&[Located<ListenAddress>]>) -> Option<Vec<Endpoint>> {
    for item in table.items("endpoints") {
        if item.get_ref().as_str().is_some_and(|url| url.contains('@')) {
            table.context.hide(item.span());
        }
    }
    let (endpoints, is_whole) = table.counted_list("endpoints", endpoint)?;
    for endpoint in &endpoints {
        note_own(table, "endpoints", endpoint, listen);
    }
    is_whole.then(|| endpoints.into_iter().map(Located::into_inner).collect())
}

/// The addresses of the DNS servers.
pub(super) fn name_servers(table: &Table<'_>) -> Option<Arc<[SocketAddr]>> {
    let server = |text: &str| {
        let address = text.parse().or_else(|_| text.parse().map(|ip| SocketAddr::new(ip, DNS_PORT)));
        address.map_err(|_: AddrParseError| Fault::new(format!("`{text}` is not an address, as in `10.0.0.53`")))
    };
    Some(table.list("servers", server)?.into())
}

/// RFC 1035, section 4.2.
const DNS_PORT: u16 = 53;

/// Compiles the schedule of DNS lookups. Notes SRV names without lookups.
fn resolve(table: &Table<'_>, endpoints: Option<&[Endpoint]>) -> Option<Resolve> {
    let read = |text: &str| word_or(text, &words::RESOLVE, |text| time_units::duration(text).map(Resolve::Every));
    let resolve = table.parsed("resolve", read)?;
    let has_service =
        endpoints.is_some_and(|all| all.iter().any(|endpoint| matches!(endpoint.address, Address::Srv(_))));
    if resolve == Resolve::Off && has_service {
        let fault = Fault::new("Weir finds the endpoints of `srv+` only by DNS lookups");
        table.fault_at("resolve", fault.absence());
        return None;
    }
    Some(resolve)
}

fn balance(table: &Table<'_>) -> Option<Balance> {
    let balance = table.choice("balance", &words::BALANCES);
    if !table.has("hash_by") {
        return balance;
    }
    let part = table.parsed("hash_by", |text| hash_by(table.context, text));
    if let Balance::Hash(_) = balance? {
        return part.map(Balance::Hash);
    }
    table.fault_at("hash_by", Fault::new("has no effect without `balance = \"hash\"`").absence());
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
            Err((format!("`{text}` is not a source of the hash"), help).into())
        }
    }
}

/// Compiles the health checks.
fn health(table: &Table<'_>) -> Option<Health> {
    let (interval, timeout) = (table.duration("interval"), table.duration("timeout"));
    let written = table.get("timeout").or(table.get("interval"));
    if let (Some(value), Some(timeout), Some(interval)) = (written, timeout, interval)
        && timeout > interval
    {
        let help = "a check begins when the one before it has ended; write a shorter `timeout`";
        let fault = ("is longer than `interval`, so a failing endpoint is noticed late", help);
        table.warn("timeout", value.span(), "late_check", fault);
    }
    whole!(Health {
        path: table.parsed("path", |text| {
            let is_target = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
            if is_target { Ok(text.into()) } else { Err("is not a request path, as in `/healthz`".into()) }
        }),
        interval,
        timeout,
        healthy_after: table.count("healthy_after"),
        unhealthy_after: table.count("unhealthy_after"),
    })
}

/// Compiles the options that both kinds of table have.
fn upstream(table: &Table<'_>, endpoints: Option<Vec<Endpoint>>) -> Option<Upstream> {
    let tls = table.table("tls");
    let own_name = tls.parsed("server_name", server_name);
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
    let protocol = table.choice("protocol", &words::PROTOCOLS);
    let proxy_protocol = table.choice("proxy_protocol", &words::PROXY_VERSIONS);
    let upgrades = upgrades(table);
    if protocol == Some(Protocol::H2) {
        if proxy_protocol.flatten().is_some() {
            let help = "clients share connections with `protocol = \"h2\"`, but a PROXY header names one client";
            let fault = Fault::new("cannot be used with `protocol = \"h2\"`").help(help);
            table.fault_at("proxy_protocol", fault.absence());
        }
        if upgrades.as_ref().is_some_and(|upgrades| !upgrades.is_empty()) {
            note_no_upgrades(table);
        }
    }
    whole!(Upstream {
        name: Some(None),
        endpoints,
        tls: if is_wanted { tls::client(&tls, protocol.unwrap_or(Protocol::Http1)).map(Some) } else { Some(None) },
        protocol,
        balance: Some(Balance::RoundRobin),
        health: Some(None),
        eject: Some(None),
        cap: whole!(Cap {
            max_connections: Some(table.count("max_connections")),
            max_queued: table.count("max_queued"),
            queue_timeout: table.duration("queue_timeout"),
        }),
        resolve: Some(Resolve::Off),
        rewrite_host: table.choice("host", &words::HOSTS),
        max_idle: Some(table.count("max_idle")),
        idle_timeout: table.duration("idle_timeout"),
        proxy_protocol,
        upgrades,
    })
}

/// Notes `upgrade` of an upstream or a route whose upstream uses HTTP/2, which has no upgrades.
pub(super) fn note_no_upgrades(table: &Table<'_>) {
    let help = "an upgrade takes a connection for itself; give such requests a route to an upstream with \
                `protocol = \"http1\"`";
    let fault = Fault::new("is not possible for an upstream with `protocol = \"h2\"`").help(help);
    table.fault_if_present("upgrade", fault.absence());
}

/// Compiles `upgrade` of an upstream or a route.
pub(super) fn upgrades(table: &Table<'_>) -> Option<Upgrades> {
    Some(Upgrades(table.list("upgrade", units::upgrade)?.into()))
}

/// Notes an endpoint that is an address of Weir itself: its requests would return to Weir.
fn note_own(table: &Table<'_>, key: &str, endpoint: &Located<Endpoint>, listen: Option<&[Located<ListenAddress>]>) {
    let port = endpoint.get_ref().port();
    let leads_to = |own: &ListenAddress| match &endpoint.get_ref().address {
        Address::Tcp(authority) => match &*bare_host(authority) {
            "localhost" => {
                own.takes((Ipv4Addr::LOCALHOST, port).into()) || own.takes((Ipv6Addr::LOCALHOST, port).into())
            }
            host => host.parse::<IpAddr>().is_ok_and(|ip| own.takes((ip, port).into())),
        },
        Address::Unix(path) => matches!(own, ListenAddress::Unix(own) if own == path),
        Address::Srv(_) => false,
    };
    if let Some(own) = listen.unwrap_or_default().iter().find(|own| leads_to(own.get_ref())) {
        let title = format!("`{}`: Weir itself listens on this address", table.path_of(key));
        table.context.note(Problem::new(endpoint.span(), title).also(own.span(), "here"));
    }
}
