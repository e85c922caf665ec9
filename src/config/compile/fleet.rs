//! `[fleet]`, and the strategy of each limit: how replicas share limits.

use std::cell::RefCell;
use std::ops::Range;

use super::identity::secret_of;
use super::service;
use super::store::{CompiledStores, STORES_MAX, StoreKind, unknown_store};
use crate::config::diagnostics::Problem;
use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};
use crate::engine::limit::LeaseUnits;
use crate::engine::policy::{FleetSecret, Strategy};
use crate::engine::store::backend::OnFailure;
use crate::fleet::grpc::fleet::settings::{FleetSettings, MemberSource};
use crate::fleet::stores::service::settings::LimiterSettings;

/// The words of `strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StrategyWord {
    Local,
    Split,
    Redis,
    Lease,
    Stream,
    Service,
}

const STRATEGY_WORDS: [(&str, StrategyWord); 6] = [
    ("local", StrategyWord::Local),
    ("split", StrategyWord::Split),
    ("redis", StrategyWord::Redis),
    ("lease", StrategyWord::Lease),
    ("stream", StrategyWord::Stream),
    ("service", StrategyWord::Service),
];

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
    secret: SecretOption,
    /// The members until their number is known at run time; `None` if replicas do not connect to each other.
    members: Option<u64>,
    stores: &'s CompiledStores,
    /// Limiters that strategies name by their address. Their indices follow those of the stores.
    limiters: RefCell<Vec<LimiterSettings>>,
}

/// The store of a remote strategy.
struct FoundStore {
    /// Its index.
    store: usize,
    replicas: u64,
    /// The number of replicas that share a limit while the store is down; 1 if they do not share it.
    shares: u64,
}

/// The option `fleet.secret`.
enum SecretOption {
    Absent,
    /// An error is noted.
    Broken,
    Read(FleetSecret),
}

/// Reads `[fleet]`. Without it each replica decides alone.
pub(super) fn fleet<'s>(table: &Table<'_>, stores: &'s CompiledStores, peers: Option<&FleetSettings>) -> Fleet<'s> {
    if !table.is_present() {
        let (default, secret) = (Some(Sharing::local()), SecretOption::Absent);
        let limiters = RefCell::default();
        return Fleet { default, replicas: None, has_replicas: false, secret, members: None, stores, limiters };
    }
    let replicas = table.count("replicas").map(Located::into_inner);
    let secret = if table.has("secret") {
        secret(table).map_or(SecretOption::Broken, SecretOption::Read)
    } else {
        SecretOption::Absent
    };
    let members = table.has("listen").then(|| first_members(replicas, peers));
    let (has_replicas, limiters) = (table.has("replicas"), RefCell::default());
    let fleet = Fleet { default: None, replicas, has_replicas, secret, members, stores, limiters };
    Fleet { default: fleet.sharing(table), ..fleet }
}

/// The members until their number is known at run time: `replicas`, or as many as the configuration lists.
fn first_members(replicas: Option<u64>, peers: Option<&FleetSettings>) -> u64 {
    let listed = match peers.map(|settings| &settings.members) {
        Some(MemberSource::Static(all)) => all.len() as u64,
        Some(MemberSource::Dns { .. } | MemberSource::Etcd(_)) | None => 1,
    };
    let most = peers.map_or(u64::MAX, |settings| settings.max_replicas as u64);
    replicas.unwrap_or(listed).min(most).max(1)
}

fn secret(table: &Table<'_>) -> Option<FleetSecret> {
    let (span, bytes) = secret_of(table, "secret")?;
    FleetSecret::new(&bytes).map_err(|weak| table.context.note(Problem::new(span, weak.to_string()))).ok()
}

impl Fleet<'_> {
    /// The strategy of the limit `table`; `None` if it cannot be read.
    pub(super) fn strategy(&self, table: &Table<'_>) -> Option<Sharing> {
        if table.has("strategy") { self.sharing(table) } else { self.default.clone() }
    }

    /// The members until their number is known at run time; `None` if limits do not follow it.
    pub(super) fn members(&self) -> Option<u64> {
        self.members
    }

    /// The names of all stores.
    pub(super) fn store_names(&self) -> &[Located<String>] {
        &self.stores.names
    }

    /// The secret of the fleet, `Some(None)` without one, and the limiters that strategies name by their address.
    #[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
    pub(super) fn into_parts(self) -> (Option<Option<FleetSecret>>, Vec<LimiterSettings>) {
        let secret = match self.secret {
            SecretOption::Absent => Some(None),
            SecretOption::Broken => None,
            SecretOption::Read(secret) => Some(Some(secret)),
        };
        (secret, self.limiters.into_inner())
    }

    /// Reads `strategy` of `table`: a word, or a table. Notes what the strategy needs and the configuration lacks.
    fn sharing(&self, table: &Table<'_>) -> Option<Sharing> {
        let is_table = table.get("strategy").is_some_and(|value| value.get_ref().is_table());
        let own = is_table.then(|| table.table("strategy"));
        let (holder, key) = own.as_ref().map_or((table, "strategy"), |own| (own, "use"));
        let word = holder.parsed(key, units::one_of(&STRATEGY_WORDS))?;
        let option = StrategyOption { table: holder, key, span: word.span() };
        let word = word.into_inner();
        let own = own.as_ref();
        let (store, lease_units) = (own.and_then(|own| own.text("store")), own.and_then(|own| own.count_or("units")));
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
        let sharing = match (word, store) {
            (StrategyWord::Split, _) => {
                let replicas = self.replicas(&option, "each replica gets an equal share of the limit")?;
                let shares = self.shares(replicas);
                Sharing { strategy: Strategy::Split(replicas), shares, units: None, is_etcd: false }
            }
            (StrategyWord::Stream, _) => {
                self.need_secret(&option);
                if self.members.is_none() {
                    option.note_need("`fleet.listen`: replicas tell each other what they charge", ADD_LISTEN);
                }
                matches!(self.secret, SecretOption::Read(_)).then_some(())?;
                Sharing { strategy: Strategy::Stream, shares: 1, units: None, is_etcd: false }
            }
            (StrategyWord::Redis, Some(FoundStore { store, replicas, shares })) => {
                Sharing { strategy: Strategy::Redis { store, replicas }, shares, units: None, is_etcd: false }
            }
            (StrategyWord::Service, Some(FoundStore { store, replicas, shares })) => {
                Sharing { strategy: Strategy::Service { store, replicas }, shares, units: None, is_etcd: false }
            }
            (StrategyWord::Lease, Some(FoundStore { store, replicas, shares })) => {
                let (span, units) = match lease_units {
                    Some(read) => (Some(read.span()), read.into_inner()),
                    None if own.is_some_and(|own| own.has("units")) => return None,
                    None => (None, None),
                };
                let span = span.filter(|_| units.is_some());
                let units = units.map_or(LeaseUnits::Auto, LeaseUnits::Fixed);
                let is_etcd = self.stores.kinds.get(store) == Some(&StoreKind::Etcd);
                Sharing { strategy: Strategy::Lease { store, replicas, units }, shares, units: span, is_etcd }
            }
            _ => Sharing::local(),
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
            (None, []) if is_service => {
                option.note_need("a limiter", ADD_LIMITER);
                return None;
            }
            (None, []) if !names.is_empty() && self.stores.kinds.contains(&StoreKind::Etcd) => {
                let help = "an etcd lends units but decides no request: use `lease`, or add a store with `redis`";
                option.note_need("a store of Redis", help);
                return None;
            }
            (None, []) => {
                option.note_need("a store", ADD_STORE);
                return None;
            }
            (None, [first, ..]) => {
                let (word, first) = (option.word(), names.get(*first).map_or("", |name| name.get_ref()));
                let help = format!("write it like `{{ use = \"{word}\", store = \"{first}\" }}`");
                option.note_need(&format!("the name of a store: there are {}", fitting.len()), &help);
                return None;
            }
        };
        // After an error in `on_failure`, no share is checked.
        let is_split = self.stores.on_failure.get(index).copied().flatten() == Some(OnFailure::Split);
        self.found(option, index, is_split)
    }

    /// The limiter that a strategy names by its address.
    fn limiter(&self, option: &StrategyOption<'_, '_>, own: &Table<'_>) -> Option<FoundStore> {
        self.need_secret(option);
        if let Some(store) = own.get("store") {
            own.fault("store", store.span(), Fault::new("excludes `url`, which names the limiter"));
            return None;
        }
        let url = own.parsed("url", service::limiter_url)?;
        let settings = service::settings_of(url.get_ref().clone());
        let mut limiters = self.limiters.borrow_mut();
        let index = limiters.iter().position(|known| *known == settings).unwrap_or(limiters.len());
        if index == limiters.len() {
            if index == STORES_MAX {
                own.fault("url", url.span(), Fault::new(format!("there are at most {STORES_MAX} limiters")));
                return None;
            }
            limiters.push(settings);
        }
        self.found(option, self.stores.names.len() + index, true)
    }

    /// The store at `index`. `is_split` says whether replicas share a limit while it is down.
    fn found(&self, option: &StrategyOption<'_, '_>, index: usize, is_split: bool) -> Option<FoundStore> {
        let why = "each replica decides by an equal share of the limit while the store has lost its keys, and by \
                   default while the store is down";
        let replicas = self.replicas(option, why)?;
        let found = FoundStore { store: index, replicas, shares: if is_split { self.shares(replicas) } else { 1 } };
        matches!(self.secret, SecretOption::Read(_)).then_some(found)
    }

    /// Notes that `option` needs a secret, if there is none.
    fn need_secret(&self, option: &StrategyOption<'_, '_>) {
        if matches!(self.secret, SecretOption::Absent) {
            option.note_need("`fleet.secret`: all replicas must hash keys alike", ADD_SECRET);
        }
    }

    /// The number of replicas that each rule must have a unit for. Of a number that is known at run time only, the rules
    /// of the whole fleet are compiled.
    fn shares(&self, replicas: u64) -> u64 {
        if self.members.is_some() { 1 } else { replicas }
    }

    /// The number of replicas. Notes that `option` needs it.
    fn replicas(&self, option: &StrategyOption<'_, '_>, why: &str) -> Option<u64> {
        if self.members.is_some() {
            return self.members;
        }
        if self.replicas.is_none() && !self.has_replicas {
            let help = format!("add `replicas = 3` to `[fleet]`: {why}");
            option.note_need("the number of replicas", &help);
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
    fn note_need(&self, need: &str, help: &str) {
        let word = self.word();
        let fault = Fault::new(format!("`{word}` needs {need}")).help(help.to_owned());
        self.table.fault(self.key, self.span.clone(), Fault { absence: true, ..fault });
    }
}

/// The error of a store that is of another kind than the strategy needs.
fn other_kind(named: &Located<String>, kind: Option<StoreKind>, is_service: bool) -> Fault {
    let name = named.get_ref();
    if kind == Some(StoreKind::Etcd) {
        let what = format!("`{name}` is an etcd, which lends units but decides no request");
        return Fault::new(what).help("use `lease`".to_owned());
    }
    if is_service {
        return Fault::new(format!("`{name}` is no limiter service")).help("use `redis` or `lease`".to_owned());
    }
    Fault::new(format!("`{name}` is a limiter service")).help("use `service`".to_owned())
}

/// Notes an option of the table of a strategy that the strategy does not have. Returns whether it did.
fn note_misplaced(own: Option<&Table<'_>>, key: &str, is_allowed: bool, what: &str) -> bool {
    let Some((own, value)) = own.and_then(|own| Some((own, own.get(key)?))).filter(|_| !is_allowed) else {
        return false;
    };
    own.fault(key, value.span(), Fault::new(what));
    true
}
