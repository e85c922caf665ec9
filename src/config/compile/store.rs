//! `[store.NAME]`: the Redis servers, the limiter service, or the etcd, that have the state of limits which replicas share.

use std::sync::Arc;
use std::time::Duration;

use super::identity::secret_of;
use super::tls;
use super::urls::{self, LimiterUrl, Node, REDIS_PORT, SENTINEL_PORT};
use crate::config::reader::{Fault, Located, Optional, Problem, Table, did_you_mean, nearest, units, whole};
use crate::config::schema::words;
use crate::engine::store::backend::OnFailure;
use crate::fleet::stores::driver::{Login, NodeAddress, Password, RemoteSettings, Servers, Topology};
use crate::transport::net::tls::StoreTls;

/// The most stores: each worker has connections to all servers of all stores.
pub(super) const STORES_MAX: usize = 16;

/// The most addresses of one store.
const NODES_MAX: usize = 64;

/// The default timeouts. An etcd writes each loan to the disks of a majority.
const TIMEOUT: Duration = Duration::from_millis(10);
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
    let tls = store_tls(table, servers.as_ref().map(|(_, has_tls)| *has_tls));
    let timeout =
        if table.has("timeout") { table.duration("timeout") } else { Some(default_timeout(table.has("etcd"))) };
    let prefix: Option<Arc<str>> = table.parsed("prefix", prefix);
    let on_failure = table.choice("on_failure", &words::ON_FAILURE);
    if let (Some((kind, false)), Some(login)) = (&servers, &login) {
        warn_of_plain_password(table, kind, login);
    }
    let settings = || {
        let servers = match servers?.0 {
            ServerKind::Redis(topology) => Servers::Redis { topology, login: login?, prefix: prefix? },
            ServerKind::Service(LimiterUrl { host, port, .. }) => Servers::Service { host, port },
            ServerKind::Etcd(members) => Servers::Etcd { members, login: login?, prefix: prefix? },
        };
        Some(RemoteSettings { name: name?, servers, tls: tls?, timeout: timeout?, on_failure: on_failure? })
    };
    (if table.is_broken() { None } else { settings() }, on_failure)
}

/// The settings of a limiter that is only an address. Its name is `host:port`, which no table of `[store]` can have.
pub(super) fn limiter(LimiterUrl { host, port, has_tls }: LimiterUrl) -> RemoteSettings {
    let name = Arc::from(NodeAddress::tcp(&*host, port).to_string());
    let tls = has_tls.then(|| StoreTls::new(None, None));
    let servers = Servers::Service { host, port };
    RemoteSettings { name, servers, tls, timeout: TIMEOUT, on_failure: OnFailure::default() }
}

/// The timeout of a store that has none, by whether it is an etcd.
pub(in crate::config) fn default_timeout(is_etcd: bool) -> Duration {
    if is_etcd { ETCD_TIMEOUT } else { TIMEOUT }
}

fn store_name(name: &Located<String>, table: &Table<'_>) -> Option<Arc<str>> {
    let text = name.get_ref().as_str();
    if !units::is_name(text) {
        let title = format!("`store`: `{text}` is not 1 to 64 of `A-Z a-z 0-9 _ -`");
        table.context.note(Problem::new(name.span(), title));
        return None;
    }
    Some(text.into())
}

fn prefix(text: &str) -> Result<Arc<str>, Fault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(text.into());
    }
    Err(format!("`{text}` is not 1 to 64 of `A-Z a-z 0-9 _ - . : /`").into())
}

/// The addresses of a store.
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

/// The servers of a store, and whether they have TLS.
fn servers(name: &str, table: &Table<'_>) -> Option<(ServerKind, bool)> {
    if table.is_broken() {
        return None;
    }
    let written: Vec<_> = KINDS.into_iter().filter_map(|key| Some((key, table.get(key)?.span()))).collect();
    let mut all: Vec<_> = written.iter().map(|(key, _)| servers_of(table, key)).collect();
    match &written[..] {
        [_] => all.pop()?,
        [] => {
            let title = format!("store `{name}` has none of `redis`, `cluster`, `sentinel`, `service` and `etcd`");
            let help = "name its servers, as in `redis = [\"redis://127.0.0.1:6379\"]`";
            table.context.note(Problem::new(table.span(), title).help(help).absence());
            None
        }
        [(one, first), (other, second), ..] => {
            let title = format!("store `{name}` has both `{one}` and `{other}`");
            let problem = Problem::new(second.clone(), title).also(first.clone(), "the other one");
            table.context.note(problem.help("a store has exactly one kind of servers"));
            None
        }
    }
}

/// The servers that the option `key` names, and whether they have TLS.
fn servers_of(table: &Table<'_>, key: &str) -> Option<(ServerKind, bool)> {
    let node = |text: &str| urls::redis_node(text, REDIS_PORT);
    Some(match key {
        "redis" => {
            let (nodes, has_tls) = nodes(table, key, urls::independent_node)?;
            (ServerKind::Redis(Topology::Ring(nodes)), has_tls)
        }
        "cluster" => {
            let (nodes, has_tls) = nodes(table, key, node)?;
            (ServerKind::Redis(Topology::Cluster(nodes)), has_tls)
        }
        "sentinel" => {
            let (topology, has_tls) = sentinel(&table.table(key))?;
            (ServerKind::Redis(topology), has_tls)
        }
        "etcd" => {
            let (nodes, has_tls) = nodes(table, key, urls::etcd_node)?;
            (ServerKind::Etcd(nodes), has_tls)
        }
        _ => {
            for option in ["user", "password", "prefix"] {
                table.fault_if_present(option, "has no effect with `service`");
            }
            let url = table.parsed(key, urls::limiter_url)?;
            let has_tls = url.has_tls;
            (ServerKind::Service(url), has_tls)
        }
    })
}

fn sentinel(table: &Table<'_>) -> Option<(Topology, bool)> {
    if table.is_broken() {
        return None;
    }
    let master = table.text("master").map(String::into_boxed_str);
    let nodes = nodes(table, "nodes", |text| urls::redis_node(text, SENTINEL_PORT));
    let login = login(table);
    let (nodes, has_tls) = nodes?;
    Some((Topology::Sentinel { master: master?, nodes, login: login? }, has_tls))
}

/// Reads a list of addresses. Returns whether they have TLS, too.
fn nodes(table: &Table<'_>, key: &str, read: impl Fn(&str) -> Result<Node, Fault>) -> Option<(Vec<NodeAddress>, bool)> {
    let (nodes, is_whole) = table.counted_list(key, read)?;
    if let Some(node) = nodes.get(NODES_MAX) {
        table.fault(key, node.span(), format!("has at most {NODES_MAX} addresses"));
        return None;
    }
    let first = nodes.first()?;
    let has_tls = first.get_ref().has_tls;
    if let Some(other) = nodes.iter().find(|node| node.get_ref().has_tls != has_tls) {
        let title = format!("`{}`: addresses with TLS and without are mixed", table.path_of(key));
        table.context.note(Problem::new(other.span(), title).also(first.span(), "unlike this one"));
        return None;
    }
    is_whole.then(|| (nodes.into_iter().map(|node| node.into_inner().address).collect(), has_tls))
}

/// Reads `user` and `password`.
pub(super) fn login(table: &Table<'_>) -> Option<Login> {
    let login = whole!(Login {
        user: table.optional("user", |key| table.text(key).map(Into::into)),
        password: table.optional("password", |_| password(table)),
    })?;
    if login.user.is_some() && login.password.is_none() {
        let fault = Fault::new("needs a password").help("add `password = { env = \"NAME\" }`");
        table.fault_at("user", fault.absence());
    }
    Some(login)
}

fn password(table: &Table<'_>) -> Option<Password> {
    secret_of(table, "password", |bytes| match String::from_utf8(bytes) {
        Ok(text) if text.is_empty() => Err("this password is empty".into()),
        Ok(text) => Ok(Password::new(text)),
        Err(_) => Err("this password is not UTF-8".into()),
    })
}

/// TLS to the servers; `Some(None)` for plain connections.
fn store_tls(table: &Table<'_>, has_tls: Option<bool>) -> Optional<StoreTls> {
    let tls = table.table("tls");
    let has_tls = has_tls.unwrap_or(tls.is_present());
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
    let is_here = |node: &NodeAddress| node.host().is_none_or(units::is_here);
    let has_password = login.password.is_some() || of_sentinels;
    if !has_password || servers.nodes().iter().all(is_here) {
        return;
    }
    let sentinel = table.table("sentinel");
    let holder = if login.password.is_some() { table } else { &sentinel };
    let scheme = if matches!(servers, ServerKind::Etcd(_)) { "https" } else { "rediss" };
    let help = format!("use `{scheme}://` addresses, or a network that nobody can listen to");
    let fault = ("crosses the network in plain text", help);
    holder.warn("password", holder.span_of("password"), "plain_password", fault);
}

/// The error of a name that no store has.
pub(super) fn unknown_store(names: &[Located<String>], text: &str) -> Fault {
    let help = did_you_mean(nearest(text, names.iter().map(|name| name.get_ref().as_str())));
    Fault::new(format!("there is no store `{text}`")).help(help)
}
