//! `[fleet]`, and the strategy of each limit: how replicas share limits.

use std::cell::RefCell;
use std::ops::Range;

use super::identity::secret_of;
use super::store::{self, CompiledStores, STORES_MAX, StoreKind, unknown_store};
use super::urls::limiter_url;
use crate::config::reader::{Fault, Located, Optional, Table, units};
use crate::config::schema::words::{STRATEGIES, StrategyWord};
use crate::engine::limit::LeaseUnits;
use crate::engine::policy::{FleetSecret, Strategy};
use crate::engine::store::backend::OnFailure;
use crate::fleet::grpc::fleet::settings::FleetSettings;
use crate::fleet::stores::driver::{RemoteSettings, Servers};

/// A strategy, and its effect on the rules of a limit.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    pub(super) strategy: Strategy,
    /// The number of replicas that each rule must have a unit for; 1 if each replica has the whole limit.
    pub(super) shares: u64,
    /// The position of the units of a lease, if they are a number.
    pub(super) units: Option<Range<usize>>,
    /// Whether an etcd lends the units of a lease.
    pub(super) is_etcd: bool,
}

/// A compiled `[fleet]`.
pub(super) struct Fleet<'s> {
    /// The strategy of limits without one; `None` after an error.
    default: Option<Sharing>,
    replicas: Option<u64>,
    /// Whether `replicas` is written, also with an error.
    has_replicas: bool,
    /// `None` after an error; the inner option is `None` without a secret.
    pub(super) secret: Optional<FleetSecret>,
    /// The members until their number is known at run time; `None` if replicas do not connect to each other, and limits do
    /// not follow it.
    pub(super) members: Option<u64>,
    pub(super) stores: &'s CompiledStores,
    /// Limiters that strategies name by their address. Their indices follow those of the stores.
    pub(super) limiters: RefCell<Vec<RemoteSettings>>,
}

/// The store of a remote strategy.
struct FoundStore {
    /// Its index.
    store: usize,
    replicas: u64,
    /// The number of replicas that share a limit while the store is down; 1 if they do not share it.
    shares: u64,
}

/// Reads `[fleet]` with these `replicas`. Without it each replica decides alone.
pub(super) fn fleet<'s>(
    table: &Table<'_>,
    replicas: Option<u64>,
    stores: &'s CompiledStores,
    peers: Option<&FleetSettings>,
) -> Fleet<'s> {
    if !table.is_present() {
        let (default, secret) = (Some(Sharing::local()), Some(None));
        let limiters = RefCell::default();
        return Fleet { default, replicas: None, has_replicas: false, secret, members: None, stores, limiters };
    }
    let read_secret = |bytes: Vec<u8>| FleetSecret::new(&bytes).map_err(|weak| weak.to_string());
    let secret = table.optional("secret", |key| secret_of(table, key, read_secret));
    let named = peers.map_or(replicas, FleetSettings::named_replicas);
    let most = peers.map_or(u64::MAX, |settings| settings.max_replicas as u64);
    let members = table.has("listen").then(|| named.unwrap_or(1).min(most).max(1));
    let (has_replicas, limiters) = (table.has("replicas"), RefCell::default());
    let fleet = Fleet { default: None, replicas, has_replicas, secret, members, stores, limiters };
    Fleet { default: fleet.sharing(table), ..fleet }
}

impl Fleet<'_> {
    /// The strategy of the limit `table`; `None` if it cannot be read.
    pub(super) fn strategy(&self, table: &Table<'_>) -> Option<Sharing> {
        if table.has("strategy") { self.sharing(table) } else { self.default.clone() }
    }

    fn has_secret(&self) -> bool {
        matches!(self.secret, Some(Some(_)))
    }

    /// Reads `strategy` of `table`: a word, or a table. Notes what the strategy needs and the configuration lacks.
    fn sharing(&self, table: &Table<'_>) -> Option<Sharing> {
        let is_table = table.get("strategy").is_some_and(|value| value.get_ref().is_table());
        let own = is_table.then(|| table.table("strategy"));
        let (holder, key) = own.as_ref().map_or((table, "strategy"), |own| (own, "use"));
        let word = holder.parsed_at(key, units::one_of(&STRATEGIES))?;
        let option = StrategyOption { table: holder, key, span: word.span() };
        let word = word.into_inner();
        let own = own.as_ref();
        let (store, lease_units) =
            (own.and_then(|own| own.text_at("store")), own.and_then(|own| own.count_or("units")));
        let is_service = word == StrategyWord::Service;
        let is_remote = is_service || matches!(word, StrategyWord::Redis | StrategyWord::Lease);
        let is_misplaced = note_misplaced(own, "store", is_remote, "belongs to `redis`, `lease` and `service`")
            | note_misplaced(own, "units", word == StrategyWord::Lease, "belongs to `lease`")
            | note_misplaced(own, "url", is_service, "belongs to `service`");
        let store = match own.filter(|own| is_service && own.has("url")) {
            Some(own) => Some(self.limiter(&option, own)?),
            None if is_remote => Some(self.store(&option, own, store)?),
            None => None,
        };
        let shared = |strategy, shares| Sharing { strategy, shares, ..Sharing::local() };
        let sharing = match word {
            StrategyWord::Local => Sharing::local(),
            StrategyWord::Split => {
                let replicas = self.replicas(&option, "each replica gets an equal share of the limit")?;
                shared(Strategy::Split(replicas), self.shares(replicas))
            }
            StrategyWord::Stream => {
                self.need_secret(&option);
                if self.members.is_none() {
                    option.note_need::<()>("`fleet.listen`: replicas tell each other what they charge", ADD_LISTEN);
                }
                self.has_secret().then_some(shared(Strategy::Stream, 1))?
            }
            StrategyWord::Redis | StrategyWord::Service | StrategyWord::Lease => {
                let FoundStore { store, replicas, shares } = store?;
                match word {
                    StrategyWord::Redis => shared(Strategy::Redis { store, replicas }, shares),
                    StrategyWord::Service => shared(Strategy::Service { store, replicas }, shares),
                    _ => {
                        let units = own.filter(|own| own.has("units")).map_or(Some(None), |_| lease_units.map(Some))?;
                        let span = units.as_ref().filter(|units| units.get_ref().is_some()).map(Located::span);
                        let units = units.and_then(Located::into_inner).map_or(LeaseUnits::Auto, LeaseUnits::Fixed);
                        let is_etcd = self.stores.kinds.get(store) == Some(&StoreKind::Etcd);
                        Sharing { strategy: Strategy::Lease { store, replicas, units }, shares, units: span, is_etcd }
                    }
                }
            }
        };
        (!is_misplaced).then_some(sharing)
    }

    /// Finds the store of a remote strategy.
    fn store(
        &self,
        option: &StrategyOption<'_, '_>,
        own: Option<&Table<'_>>,
        named: Option<Located<String>>,
    ) -> Option<FoundStore> {
        self.need_secret(option);
        let (names, is_service) = (&self.stores.names, option.word() == "service");
        let kind = |index: &usize| self.stores.kinds.get(*index).copied();
        let fits = |index: &usize| match kind(index) {
            Some(StoreKind::Redis) => !is_service,
            Some(StoreKind::Service) => is_service,
            Some(StoreKind::Etcd) => option.word() == "lease",
            None => false,
        };
        let fitting: Vec<usize> = (0..names.len()).filter(fits).collect();
        let index = match (own.filter(|own| own.has("store")), &fitting[..]) {
            (Some(own), _) => {
                let named = named?;
                let index = names.iter().position(|name| name.get_ref() == named.get_ref());
                match index {
                    None => own.fault("store", named.span(), unknown_store(names, named.get_ref())),
                    Some(index) if !fits(&index) => {
                        own.fault("store", named.span(), other_kind(&named, kind(&index), is_service));
                    }
                    Some(_) => {}
                }
                index.filter(fits)?
            }
            (None, [only]) => *only,
            (None, []) if is_service => option.note_need("a limiter", ADD_LIMITER)?,
            (None, []) if !names.is_empty() && self.stores.kinds.contains(&StoreKind::Etcd) => {
                let help = "an etcd lends units but decides no request: use `lease`, or add a store with `redis`";
                option.note_need("a store of Redis", help)?
            }
            (None, []) => option.note_need("a store", ADD_STORE)?,
            (None, [first, ..]) => {
                let (word, first) = (option.word(), names.get(*first).map_or("", |name| name.get_ref()));
                let help = format!("write it like `{{ use = \"{word}\", store = \"{first}\" }}`");
                option.note_need(&format!("the name of a store: there are {}", fitting.len()), &help)?
            }
        };
        // After an error in `on_failure`, no share is checked.
        let is_split = self.stores.on_failure.get(index).copied().flatten() == Some(OnFailure::Split);
        self.found(option, index, is_split)
    }

    /// The limiter that a strategy names by its address.
    fn limiter(&self, option: &StrategyOption<'_, '_>, own: &Table<'_>) -> Option<FoundStore> {
        self.need_secret(option);
        if own.has("store") {
            own.fault_at("store", "excludes `url`, which names the limiter");
            return None;
        }
        let url = own.parsed("url", limiter_url)?;
        let servers = Servers::Service { host: url.host.clone(), port: url.port };
        let mut limiters = self.limiters.borrow_mut();
        let known = limiters.iter().position(|known| known.servers == servers && known.tls.is_some() == url.has_tls);
        let index = known.unwrap_or(limiters.len());
        if index == limiters.len() {
            if index == STORES_MAX {
                own.fault_at("url", format!("there are at most {STORES_MAX} limiters"));
                return None;
            }
            limiters.push(store::limiter(url));
        }
        self.found(option, self.stores.names.len() + index, true)
    }

    /// The store at `index`. `is_split` says whether replicas share a limit while it is down.
    fn found(&self, option: &StrategyOption<'_, '_>, index: usize, is_split: bool) -> Option<FoundStore> {
        let why = "each replica decides by an equal share of the limit while the store has lost its keys, and by \
                   default while the store is down";
        let replicas = self.replicas(option, why)?;
        let found = FoundStore { store: index, replicas, shares: if is_split { self.shares(replicas) } else { 1 } };
        self.has_secret().then_some(found)
    }

    /// Notes that `option` needs a secret, if there is none.
    fn need_secret(&self, option: &StrategyOption<'_, '_>) {
        if matches!(self.secret, Some(None)) {
            option.note_need::<()>("`fleet.secret`: all replicas must hash keys alike", ADD_SECRET);
        }
    }

    /// The number of replicas that each rule must have a unit for. Of a number that is known at run time only, the rules
    /// of the whole fleet are compiled.
    fn shares(&self, replicas: u64) -> u64 {
        if self.members.is_some() { 1 } else { replicas }
    }

    /// The number of replicas by which rules of a limit with a store are divided if the store does not decide; 1 without a
    /// store.
    pub(super) fn remote_shares(&self, strategy: Strategy) -> u64 {
        if strategy.is_remote() { self.shares(strategy.replicas()) } else { 1 }
    }

    /// The number of replicas. Notes that `option` needs it.
    fn replicas(&self, option: &StrategyOption<'_, '_>, why: &str) -> Option<u64> {
        if self.members.is_some() {
            return self.members;
        }
        if self.replicas.is_none() && !self.has_replicas {
            let help = format!("add `replicas = 3` to `[fleet]`: {why}");
            option.note_need::<()>("the number of replicas", &help);
        }
        self.replicas
    }
}

impl Sharing {
    fn local() -> Self {
        Self { strategy: Strategy::Local, shares: 1, units: None, is_etcd: false }
    }
}

const ADD_SECRET: &str =
    "add `secret = { env = \"WEIR_FLEET_SECRET\" }` to `[fleet]`, with the same value on every replica";
const ADD_LISTEN: &str =
    "add `listen = \"0.0.0.0:8082\"` and `members = { dns = \"weir.internal:8082\" }` to `[fleet]`";
const ADD_LIMITER: &str = "write it like `{ use = \"service\", url = \"https://limiter:8081\" }`";
const ADD_STORE: &str = "add `[store.main]` with `redis = [\"redis://127.0.0.1:6379\"]`";

/// The word of a strategy, and its place.
struct StrategyOption<'o, 'a> {
    table: &'o Table<'a>,
    key: &'static str,
    span: Range<usize>,
}

impl StrategyOption<'_, '_> {
    /// The word of the strategy.
    fn word(&self) -> &str {
        self.table.get(self.key).and_then(|value| value.get_ref().as_str()).unwrap_or_default()
    }

    /// Notes that the strategy needs something that the configuration does not have.
    fn note_need<T>(&self, need: &str, help: &str) -> Option<T> {
        let word = self.word();
        let fault = Fault::new(format!("`{word}` needs {need}")).help(help);
        self.table.fault(self.key, self.span.clone(), fault.absence());
        None
    }
}

/// The error of a store that is of another kind than the strategy needs.
fn other_kind(named: &Located<String>, kind: Option<StoreKind>, is_service: bool) -> Fault {
    let (what, help) = match kind {
        Some(StoreKind::Etcd) => ("an etcd, which lends units but decides no request", "use `lease`"),
        _ if is_service => ("no limiter service", "use `redis` or `lease`"),
        _ => ("a limiter service", "use `service`"),
    };
    (format!("`{}` is {what}", named.get_ref()), help).into()
}

/// Notes an option of the table of a strategy that the strategy does not have. Returns whether it did.
fn note_misplaced(own: Option<&Table<'_>>, key: &str, is_allowed: bool, what: &str) -> bool {
    let own = own.filter(|own| !is_allowed && own.has(key));
    own.inspect(|own| own.fault_at(key, what)).is_some()
}
