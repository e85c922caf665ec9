//! `[store.NAME]`: the Redis servers, the limiter service, or the etcd, that have the state of limits which replicas share.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::etcd_url::server;
use super::identity::secret_of;
use super::service::{self, LimiterUrl};
use super::tls::{self, server_name};
use super::upstream::authority;
use crate::config::diagnostics::{Problem, did_you_mean, nearest};
use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};
use crate::engine::store::backend::OnFailure;
use crate::fleet::stores::RemoteSettings;
use crate::fleet::stores::driver::{Login, NodeAddress, Password};
use crate::fleet::stores::etcd::settings::EtcdSettings;
use crate::fleet::stores::redis::settings::{StoreSettings, Topology};
use crate::fleet::stores::service::settings::LimiterSettings;
use crate::transport::net::tls::StoreTls;

/// The most stores: each worker has connections to all servers of all stores.
pub(super) const STORES_MAX: usize = 16;

/// The most addresses of one store.
const NODES_MAX: usize = 64;

/// The default ports of Redis and of its sentinels.
const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The default timeout of etcd, which writes each loan to the disks of a majority.
const ETCD_TIMEOUT: Duration = Duration::from_millis(250);

/// The kinds of servers.
const KINDS: [&str; 5] = ["redis", "cluster", "sentinel", "service", "etcd"];

/// What the servers of a store are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    Redis,
    Service,
    Etcd,
}

/// All stores.
pub(super) struct CompiledStores {
    /// `None` if one has an error.
    pub(super) stores: Option<Vec<RemoteSettings>>,
    /// The names of all stores, also of those with an error.
    pub(super) names: Vec<Located<String>>,
    /// The `on_failure` of each store; `None` after an error.
    pub(super) on_failure: Vec<Option<OnFailure>>,
    /// The kind of each store.
    pub(super) kinds: Vec<StoreKind>,
}

/// Compiles `[store]`.
pub(super) fn stores(table: &Table<'_>) -> CompiledStores {
    let tables = table.named_tables();
    if table.is_present() && tables.is_empty() && !table.is_broken() {
        table.context.note(Problem::new(table.span(), "`[store]` has no store").absence());
    }
    if let Some((name, _)) = tables.get(STORES_MAX) {
        table.context.note(Problem::new(name.span(), format!("there are at most {STORES_MAX} stores")));
    }
    let names = tables.iter().map(|(name, _)| name.clone()).collect();
    let (stores, on_failure): (Vec<_>, _) = tables.iter().map(|(name, table)| store(name, table)).unzip();
    let kind = |table: &Table<'_>| match (table.has("service"), table.has("etcd")) {
        (true, _) => StoreKind::Service,
        (false, true) => StoreKind::Etcd,
        (false, false) => StoreKind::Redis,
    };
    let kinds = tables.iter().map(|(_, table)| kind(table)).collect();
    CompiledStores { stores: stores.into_iter().collect(), names, on_failure, kinds }
}

/// Compiles one store. Returns its `on_failure` also if something else has an error.
fn store(name: &Located<String>, table: &Table<'_>) -> (Option<RemoteSettings>, Option<OnFailure>) {
    let servers = servers(name.get_ref(), table);
    let name = store_name(name, table);
    let login = login(table);
    let tls = store_tls(table, servers.as_ref());
    let timeout = timeout(table);
    let prefix = table.parsed("prefix", prefix);
    let on_failure = table.choice("on_failure", &ON_FAILURE);
    if let (Some(Servers { kind, has_tls: false }), Some(login)) = (&servers, &login) {
        warn_of_plain_password(table, kind, login);
    }
    let settings = || {
        let (name, tls, timeout, on_failure) = (name?, tls?, timeout?, on_failure?);
        Some(match servers?.kind {
            ServerKind::Redis(topology) => {
                let (login, prefix) = (login?, prefix?.into_inner());
                RemoteSettings::Redis(StoreSettings { name, topology, login, tls, timeout, prefix, on_failure })
            }
            ServerKind::Service(LimiterUrl { host, port, .. }) => {
                RemoteSettings::Service(LimiterSettings { name, host, port, tls, timeout, on_failure })
            }
            ServerKind::Etcd(servers) => {
                let (login, prefix) = (login?, prefix?.into_inner());
                RemoteSettings::Etcd(EtcdSettings { name, servers, login, tls, timeout, prefix, on_failure })
            }
        })
    };
    (if table.is_broken() { None } else { settings() }, on_failure)
}

fn timeout(table: &Table<'_>) -> Option<Duration> {
    if table.has("timeout") { table.duration_in("timeout") } else { Some(default_timeout(table.has("etcd"))) }
}

/// The timeout of a store that has none, by whether it is an etcd.
pub(super) fn default_timeout(is_etcd: bool) -> Duration {
    if is_etcd { ETCD_TIMEOUT } else { service::TIMEOUT }
}

const ON_FAILURE: [(&str, OnFailure); 4] = [
    ("split", OnFailure::Split),
    ("local", OnFailure::Local),
    ("reject", OnFailure::Reject),
    ("allow", OnFailure::Allow),
];

fn store_name(name: &Located<String>, table: &Table<'_>) -> Option<Arc<str>> {
    let text = name.get_ref().as_str();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_good = (1..=64).contains(&text.len()) && text.bytes().all(is_plain);
    if !is_good {
        let title = format!("`store`: `{text}` is not 1 to 64 of `A-Z a-z 0-9 _ -`");
        table.context.note(Problem::new(name.span(), title));
    }
    is_good.then(|| text.into())
}

fn prefix(text: &str) -> Result<Arc<str>, Fault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(text.into());
    }
    Err(Fault::new(format!("`{text}` is not 1 to 64 of `A-Z a-z 0-9 _ - . : /`")))
}

/// The servers of a store.
struct Servers {
    kind: ServerKind,
    /// Whether their addresses begin with `rediss://` or `https://`.
    has_tls: bool,
}

enum ServerKind {
    Redis(Topology),
    Service(LimiterUrl),
    Etcd(Vec<NodeAddress>),
}

impl ServerKind {
    /// The servers that get the password of the store.
    fn nodes(&self) -> &[NodeAddress] {
        match self {
            Self::Redis(topology) => topology.nodes(),
            Self::Etcd(nodes) => nodes,
            Self::Service(_) => &[],
        }
    }
}

fn servers(name: &str, table: &Table<'_>) -> Option<Servers> {
    if table.is_broken() {
        return None;
    }
    let given: Vec<_> = KINDS.into_iter().filter_map(|key| Some((key, table.get(key)?.span()))).collect();
    let read = |key| match key {
        "redis" => nodes(table, key, |text| independent_node(text, REDIS_PORT))
            .map(|(nodes, has_tls)| of_redis(Topology::Ring(nodes), has_tls)),
        "cluster" => nodes(table, key, |text| node(text, REDIS_PORT))
            .map(|(nodes, has_tls)| of_redis(Topology::Cluster(nodes), has_tls)),
        "sentinel" => sentinel(&table.table(key)).map(|(topology, has_tls)| of_redis(topology, has_tls)),
        "etcd" => {
            nodes(table, key, etcd_node).map(|(nodes, has_tls)| Servers { kind: ServerKind::Etcd(nodes), has_tls })
        }
        _ => {
            service::note_redis_options(table);
            table.parsed(key, service::limiter_url).map(|url| {
                let url = url.into_inner();
                Servers { has_tls: url.has_tls, kind: ServerKind::Service(url) }
            })
        }
    };
    let all: Vec<_> = given.iter().map(|(key, _)| read(key)).collect();
    match &given[..] {
        [_] => all.into_iter().next().flatten(),
        [] => {
            let title = format!("store `{name}` has none of `redis`, `cluster`, `sentinel`, `service` and `etcd`");
            let help = "name its servers, as in `redis = [\"redis://127.0.0.1:6379\"]`".to_owned();
            table.context.note(Problem::new(table.span(), title).help(help).absence());
            None
        }
        [(one, first), (other, second), ..] => {
            let title = format!("store `{name}` has both `{one}` and `{other}`");
            let problem = Problem::new(second.clone(), title).also(first.clone(), "the other one");
            table.context.note(problem.help("a store has exactly one kind of servers".to_owned()));
            None
        }
    }
}

fn of_redis(topology: Topology, has_tls: bool) -> Servers {
    Servers { kind: ServerKind::Redis(topology), has_tls }
}

fn sentinel(table: &Table<'_>) -> Option<(Topology, bool)> {
    if table.is_broken() {
        return None;
    }
    let master = table.text("master").map(|master| master.into_inner().into_boxed_str());
    let nodes = nodes(table, "nodes", |text| node(text, SENTINEL_PORT));
    let login = login(table);
    let (nodes, has_tls) = nodes?;
    Some((Topology::Sentinel { master: master?, nodes, login: login? }, has_tls))
}

/// Reads a list of addresses. Returns whether they have TLS, too.
fn nodes(table: &Table<'_>, key: &str, read: impl Fn(&str) -> Result<Node, Fault>) -> Option<(Vec<NodeAddress>, bool)> {
    let written = table.get(key).map_or(0, |value| value.get_ref().as_array().map_or(1, |items| items.len()));
    let nodes = table.list(key, read)?;
    if let Some(node) = nodes.get(NODES_MAX) {
        table.fault(key, node.span(), Fault::new(format!("has at most {NODES_MAX} addresses")));
        return None;
    }
    let (first, _) = nodes.split_first()?;
    let has_tls = first.get_ref().has_tls;
    if let Some(other) = nodes.iter().find(|node| node.get_ref().has_tls != has_tls) {
        let title = format!("`{}`: addresses with TLS and without are mixed", table.path_of(key));
        table.context.note(Problem::new(other.span(), title).also(first.span(), "unlike this one"));
        return None;
    }
    // Invalid addresses are noted, and missing here.
    let nodes: Vec<_> = nodes.into_iter().map(|node| node.into_inner().address).collect();
    (nodes.len() == written).then_some((nodes, has_tls))
}

/// An address as it is written.
#[derive(PartialEq, Eq, Hash)]
struct Node {
    address: NodeAddress,
    has_tls: bool,
}

/// Parses `redis[s]://host[:port]`. Messages do not repeat a URL, which may contain a password.
fn node(url: &str, default_port: u16) -> Result<Node, Fault> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    if !matches!(scheme, "redis" | "rediss") {
        return Err(Fault::new("must begin with `redis://` or `rediss://`"));
    }
    if rest.contains('@') {
        let fault = Fault::new("must not contain a user or a password");
        return Err(fault.help("use `user`, and `password = { env = \"NAME\" }`".to_owned()));
    }
    let authority = authority(scheme, rest)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    if scheme == "rediss" {
        server_name(&host)?;
    }
    let address = NodeAddress::tcp(host, authority.port_u16().unwrap_or(default_port));
    Ok(Node { address, has_tls: scheme == "rediss" })
}

/// Parses `http[s]://host[:port]` of a member of an etcd.
fn etcd_node(url: &str) -> Result<Node, Fault> {
    let (address, has_tls) = server(url)?;
    let host = address.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    if has_tls {
        server_name(&host)?;
    }
    Ok(Node { address: NodeAddress::tcp(host, address.port_u16().unwrap_or_default()), has_tls })
}

/// Parses an address as [`node`] does, or `unix:` with an absolute path.
fn independent_node(text: &str, default_port: u16) -> Result<Node, Fault> {
    let Some(path) = text.strip_prefix("unix:") else {
        let has_scheme = ["redis://", "rediss://"].iter().any(|scheme| text.starts_with(scheme));
        let unknown = || Fault::new("must begin with `redis://`, `rediss://` or `unix:`");
        return if has_scheme { node(text, default_port) } else { Err(unknown()) };
    };
    if !path.starts_with('/') {
        return Err(Fault::new("write the absolute path of the Unix socket, as in `unix:/run/redis/redis.sock`"));
    }
    let path = units::socket_path(path.into())?;
    Ok(Node { address: NodeAddress::Unix(path.into()), has_tls: false })
}

/// Reads `user` and `password`.
pub(super) fn login(table: &Table<'_>) -> Option<Login> {
    let user = table.text("user");
    let password = table.has("password").then(|| password(table));
    if let (Some(user), None) = (&user, &password) {
        let help = "add `password = { env = \"NAME\" }`".to_owned();
        table.fault("user", user.span(), Fault { absence: true, ..Fault::new("needs a password").help(help) });
    }
    if table.has("user") && user.is_none() {
        return None;
    }
    let password = password.map_or(Some(None), |password| password.map(Some))?;
    Some(Login { user: user.map(|user| user.into_inner().into()), password })
}

fn password(table: &Table<'_>) -> Option<Password> {
    let (span, bytes) = secret_of(table, "password")?;
    let what = match String::from_utf8(bytes) {
        Ok(text) if text.is_empty() => "this password is empty",
        Ok(text) => return Some(Password::new(text)),
        Err(_) => "this password is not UTF-8",
    };
    table.context.note(Problem::new(span, what));
    None
}

/// TLS to the servers; `Some(None)` for plain connections.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
fn store_tls(table: &Table<'_>, servers: Option<&Servers>) -> Option<Option<StoreTls>> {
    let tls = table.table("tls");
    let has_tls = servers.map_or(tls.is_present(), |servers| servers.has_tls);
    if tls.is_present() && !has_tls {
        let scheme = if table.has("service") || table.has("etcd") { "https" } else { "rediss" };
        let problem = Problem::new(tls.span(), format!("`{}` has no effect without `{scheme}://`", tls.path()));
        tls.context.note(problem.absence());
    }
    if has_tls { tls::store(&tls).map(Some) } else { Some(None) }
}

/// Warns of a password that crosses a network in plain text.
fn warn_of_plain_password(table: &Table<'_>, servers: &ServerKind, login: &Login) {
    let of_sentinels = match servers {
        ServerKind::Redis(Topology::Sentinel { login, .. }) => login.password.is_some(),
        _ => false,
    };
    let is_here = |node: &NodeAddress| {
        let Some(host) = node.host() else { return true };
        host.parse::<IpAddr>().map_or(host == "localhost", |address| address.to_canonical().is_loopback())
    };
    let has_password = login.password.is_some() || of_sentinels;
    if !has_password || servers.nodes().iter().all(is_here) {
        return;
    }
    let sentinel = table.table("sentinel");
    let holder = if login.password.is_some() { table } else { &sentinel };
    if let Some(value) = holder.get("password") {
        let fault = Fault::new("crosses the network in plain text");
        let scheme = if matches!(servers, ServerKind::Etcd(_)) { "https" } else { "rediss" };
        let help = format!("use `{scheme}://` addresses, or a network that nobody can listen to");
        holder.warn("password", value.span(), "plain_password", fault.help(help));
    }
}

/// The error of a name that no store has.
pub(super) fn unknown_store(names: &[Located<String>], text: &str) -> Fault {
    let help = did_you_mean(nearest(text, names.iter().map(|name| name.get_ref().as_str())));
    Fault::new(format!("there is no store `{text}`")).help(help)
}
