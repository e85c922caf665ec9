//! `[fleet]`, and the strategy of each limit: how replicas share limits.

use std::ops::Range;

use super::identity::secret_of;
use super::store::{CompiledStores, unknown_store};
use crate::config::diagnostics::Problem;
use crate::config::reader::units::{self, Fault};
use crate::config::reader::{Located, Table};
use crate::limit::LeaseUnits;
use crate::policy::{FleetSecret, Strategy};
use crate::store::redis::settings::OnFailure;

/// The words of `strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StrategyWord {
    Local,
    Split,
    Redis,
    Lease,
    Stream,
}

const STRATEGY_WORDS: [(&str, StrategyWord); 5] = [
    ("local", StrategyWord::Local),
    ("split", StrategyWord::Split),
    ("redis", StrategyWord::Redis),
    ("lease", StrategyWord::Lease),
    ("stream", StrategyWord::Stream),
];

/// A strategy, and its effect on the rules of a limit.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    pub(super) strategy: Strategy,
    /// The number of replicas that each rule must have a unit for; 1 if each replica has the whole limit.
    pub(super) shares: u64,
    /// The position of the units of a lease, if they are a number.
    pub(super) units: Option<Range<usize>>,
}

/// A compiled `[fleet]`.
pub(super) struct Fleet<'s> {
    /// The strategy of limits without one; `None` after an error.
    default: Option<Sharing>,
    replicas: Option<u64>,
    /// Whether `replicas` is written, also with an error.
    has_replicas: bool,
    secret: SecretOption,
    /// Whether replicas connect to each other.
    has_listen: bool,
    stores: &'s CompiledStores,
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
pub(super) fn fleet<'s>(table: &Table<'_>, stores: &'s CompiledStores) -> Fleet<'s> {
    if !table.is_present() {
        let (default, secret) = (Some(Sharing::local()), SecretOption::Absent);
        return Fleet { default, replicas: None, has_replicas: false, secret, has_listen: false, stores };
    }
    let replicas = table.count("replicas").map(Located::into_inner);
    let secret = if table.has("secret") {
        secret(table).map_or(SecretOption::Broken, SecretOption::Read)
    } else {
        SecretOption::Absent
    };
    let (has_replicas, has_listen) = (table.has("replicas"), table.has("listen"));
    let fleet = Fleet { default: None, replicas, has_replicas, secret, has_listen, stores };
    Fleet { default: fleet.sharing(table), ..fleet }
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

    /// The names of all stores.
    pub(super) fn store_names(&self) -> &[Located<String>] {
        &self.stores.names
    }

    /// The secret of the fleet; `Some(None)` without one.
    #[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
    pub(super) fn into_secret(self) -> Option<Option<FleetSecret>> {
        match self.secret {
            SecretOption::Absent => Some(None),
            SecretOption::Broken => None,
            SecretOption::Read(secret) => Some(Some(secret)),
        }
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
        let is_remote = matches!(word, StrategyWord::Redis | StrategyWord::Lease);
        let is_misplaced = note_misplaced(own, "store", is_remote, "belongs to `redis` and `lease`")
            | note_misplaced(own, "units", word == StrategyWord::Lease, "belongs to `lease`");
        let store = if is_remote { Some(self.store(&option, own, store)?) } else { None };
        let sharing = match (word, store) {
            (StrategyWord::Split, _) => {
                let replicas = self.replicas(&option, "each replica gets an equal share of the limit")?;
                Sharing { strategy: Strategy::Split(replicas), shares: replicas, units: None }
            }
            (StrategyWord::Stream, _) => {
                self.need_secret(&option);
                if !self.has_listen {
                    option.note_need("`fleet.listen`: replicas tell each other what they charge", ADD_LISTEN);
                }
                matches!(self.secret, SecretOption::Read(_)).then_some(())?;
                Sharing { strategy: Strategy::Stream, shares: 1, units: None }
            }
            (StrategyWord::Redis, Some(FoundStore { store, replicas, shares })) => {
                Sharing { strategy: Strategy::Redis { store, replicas }, shares, units: None }
            }
            (StrategyWord::Lease, Some(FoundStore { store, replicas, shares })) => {
                let (span, units) = match lease_units {
                    Some(read) => (Some(read.span()), read.into_inner()),
                    None if own.is_some_and(|own| own.has("units")) => return None,
                    None => (None, None),
                };
                let span = span.filter(|_| units.is_some());
                let units = units.map_or(LeaseUnits::Auto, LeaseUnits::Fixed);
                Sharing { strategy: Strategy::Lease { store, replicas, units }, shares, units: span }
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
        let names = &self.stores.names;
        let index = match (own.filter(|own| own.has("store")), &names[..]) {
            (Some(own), _) => {
                let named = named?;
                let index = names.iter().position(|name| name.get_ref() == named.get_ref());
                if index.is_none() {
                    own.fault("store", named.span(), unknown_store(names, named.get_ref()));
                }
                index?
            }
            (None, [_]) => 0,
            (None, []) => {
                option.note_need("a store", ADD_STORE);
                return None;
            }
            (None, [first, ..]) => {
                let help = format!("write it like `{{ use = \"redis\", store = \"{}\" }}`", first.get_ref());
                option.note_need(&format!("the name of a store: there are {}", names.len()), &help);
                return None;
            }
        };
        let why = "each replica decides by an equal share of the limit while the store has lost its keys, and by \
                   default while the store is down";
        let replicas = self.replicas(option, why)?;
        // After an error in `on_failure`, no share is checked.
        let is_split = self.stores.on_failure.get(index).copied().flatten() == Some(OnFailure::Split);
        let found = FoundStore { store: index, replicas, shares: if is_split { replicas } else { 1 } };
        matches!(self.secret, SecretOption::Read(_)).then_some(found)
    }

    /// Notes that `option` needs a secret, if there is none.
    fn need_secret(&self, option: &StrategyOption<'_, '_>) {
        if matches!(self.secret, SecretOption::Absent) {
            option.note_need("`fleet.secret`: all replicas must hash keys alike", ADD_SECRET);
        }
    }

    /// The number of replicas. Notes that `option` needs it.
    fn replicas(&self, option: &StrategyOption<'_, '_>, why: &str) -> Option<u64> {
        if self.replicas.is_none() && !self.has_replicas {
            let help = format!("add `replicas = 3` to `[fleet]`: {why}");
            option.note_need("the number of replicas", &help);
        }
        self.replicas
    }
}

impl Sharing {
    fn local() -> Self {
        Self { strategy: Strategy::Local, shares: 1, units: None }
    }
}

const ADD_SECRET: &str =
    "add `secret = { env = \"WEIR_FLEET_SECRET\" }` to `[fleet]`, with the same value on every replica";
const ADD_LISTEN: &str =
    "add `listen = \"0.0.0.0:8082\"` and `members = { dns = \"weir.internal:8082\" }` to `[fleet]`";
const ADD_STORE: &str = "add `[store.main]` with `redis = [\"redis://127.0.0.1:6379\"]`";

/// The word of a strategy, and its place.
struct StrategyOption<'o, 'a> {
    table: &'o Table<'a>,
    key: &'static str,
    span: Range<usize>,
}

impl StrategyOption<'_, '_> {
    /// Notes that the strategy needs something that the configuration does not have.
    fn note_need(&self, need: &str, help: &str) {
        let word = self.table.get(self.key).and_then(|value| value.get_ref().as_str()).unwrap_or_default();
        let fault = Fault::new(format!("`{word}` needs {need}")).help(help.to_owned());
        self.table.fault(self.key, self.span.clone(), Fault { absence: true, ..fault });
    }
}

/// Notes an option of the table of a strategy that the strategy does not have. Returns whether it did.
fn note_misplaced(own: Option<&Table<'_>>, key: &str, is_allowed: bool, what: &str) -> bool {
    let Some((own, value)) = own.and_then(|own| Some((own, own.get(key)?))).filter(|_| !is_allowed) else {
        return false;
    };
    own.fault(key, value.span(), Fault::new(what));
    true
}
