//! Single keys, as operators see and reset them, and the keys that a limit denies now.
//!
//! A table knows a key by its hash only. So a listed key has a name only if an override names it, or if it is among the
//! keys that were refused most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasherDefault;

use super::check::{Check, Checked as _, LimitCheck, banned_ns};
use super::explain::{BudgetExplanation, budget_of, retry_ns};
use super::lookup::{KeyError, texts, texts_of};
use super::named_charge::{ChargeError, RESET_UNITS};
use super::queue::wait::UNKNOWN_NS;
use super::state::{Gate, Live};
use super::stored_key::StoredKey;
use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, Decision, Key, KeyHasher, Retry};
use crate::engine::policy::{Applied, Mode, Strategy, key_of_marked_id};
use crate::engine::store::Charge;

/// The name of a key.
#[derive(Clone, Debug)]
pub enum KeyName {
    /// The texts of its parts, with `|` between them, or `#` and its id, as an override has them.
    Text(String),
    /// The parts with their names, in any order.
    Parts(Vec<(String, String)>),
    /// Its hash.
    Hash(Key),
}

/// A key of one limit. It belongs to the [`Live`] that it was found in.
#[derive(Clone, Debug)]
pub struct FoundKey {
    /// The hash.
    pub key: Key,
    pub(super) limit: usize,
    /// The names and texts of its parts without secrets; `None` if only the hash is known.
    pub shown: Option<Vec<(String, String)>>,
    /// The texts of its parts; `None` if only the hash is known.
    pub texts: Option<Vec<String>>,
}

impl FoundKey {
    /// The names and the texts of its parts; `None` if only the hash is known.
    pub fn pairs(self) -> Option<Vec<(String, String)>> {
        let names = self.shown?.into_iter().map(|(name, _)| name);
        Some(names.zip(self.texts?).collect())
    }
}

/// The state of one key.
#[derive(Clone, Debug)]
pub struct KeyState<'l> {
    /// The budget. Its cost is 0, and its retry is that of one unit.
    pub budget: BudgetExplanation<'l>,
    /// The mode of the limit for the key, if its texts are known.
    pub mode: Mode,
    /// Nanoseconds until the ban of the key ends; `None` if it is not banned.
    pub banned_ns: Option<u64>,
    /// Whether the limit denies one unit now, or requests wait already.
    pub is_limited: bool,
    /// The rate that refuses one unit for longest, with its position; `None` if none does, or only the store knows it.
    pub refusing: Option<(usize, &'l Algorithm)>,
}

/// A key that its limit refuses one unit, or on which requests wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedKey {
    /// The hash.
    pub key: Key,
    /// The parts without secrets, with `|` between them; `None` if the name is not known.
    pub shown: Option<Box<str>>,
    /// The position in the list.
    pub position: ListPosition,
    /// Requests that wait on the key.
    pub waiting: usize,
    /// The instant from which the limit admits one unit; `None` if that is unknown, or never.
    pub until: Option<Timestamp>,
    /// Whole units that remain.
    pub remaining: u64,
}

/// The order of a list of limited keys. Keys that are equal in it come by their hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// The most waiting requests first, then the longest wait for one unit.
    #[default]
    Waiting,
    /// The longest wait for one unit first.
    Wait,
    /// By the name; keys without a name last.
    Name,
}

/// A question for limited keys.
#[derive(Clone, Debug, Default)]
pub struct LimitedKeysQuestion<'q> {
    /// A part of the name in any case, or the begin of the id; empty for all keys.
    pub search: &'q str,
    /// The order.
    pub order: KeyOrder,
    /// Whether keys with a name come before all others.
    pub is_named_first: bool,
    /// The position after which the list begins.
    pub after: Option<ListPosition>,
    /// Most keys of the answer.
    pub n: usize,
}

/// A position in a list of limited keys, under the order of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPosition {
    /// Whether the key comes after all keys with a name.
    pub is_unnamed: bool,
    /// The name, in a list by name.
    pub name: Option<Box<str>>,
    /// Requests that wait on the key, in a list by them.
    pub waiting: Reverse<usize>,
    /// The instant from which the limit admits one unit; `NEVER` if that is unknown, or never.
    pub until: Reverse<Timestamp>,
    /// The hash.
    pub key: Key,
}

/// The names of keys.
type KeyNames = HashMap<Key, Box<str>, BuildHasherDefault<KeyHasher>>;

/// Most keys of a limit with a store, or of a limit that the replicas of a fleet split, that are reset together. The store
/// or the replicas hear of each of them, and 65,536 reports wait at most.
const RESETS_MAX: usize = 50_000;

/// The end of time.
const NEVER: Timestamp = Timestamp::from_ns(u64::MAX);

impl Gate {
    /// The key of this name.
    ///
    /// # Errors
    /// Why no request can have the key.
    pub fn find_key(&self, live: &Live, limit: &str, name: &KeyName) -> Result<FoundKey, KeyError> {
        let Applied { index, limit, .. } = live.policy.by_name(limit).ok_or(KeyError::UnknownLimit)?;
        let texts = match name {
            KeyName::Hash(key) => return Ok(FoundKey { key: *key, limit: index, shown: None, texts: None }),
            KeyName::Text(text) => match key_of_marked_id(text).filter(|_| !limit.key.is_empty()) {
                Some(key) => return Ok(FoundKey { key, limit: index, shown: None, texts: None }),
                None => texts_of(live, index, text)?,
            },
            KeyName::Parts(named) => texts(live, index, named)?,
        };
        let parts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let key = self.secret.key_of_texts(&limit.key, &parts, live.policy.client_ip.prefixes, &live.policy.identities);
        let key = key.ok_or_else(|| KeyError::BadPart("ip".to_owned()))?;
        let part =
            |(part, text)| (live.policy.part_name(part).into_owned(), live.policy.shown_text(&self.secret, part, text));
        let shown = limit.key.iter().zip(parts).map(part).collect();
        Ok(FoundKey { key, limit: index, shown: Some(shown), texts: Some(texts) })
    }

    /// The state of a key under the rule of `plan`; `None` if `live` has no such limit.
    pub fn key_state<'l>(
        &self,
        live: &'l Live,
        found: &FoundKey,
        plan: Option<&str>,
        now: Timestamp,
    ) -> Option<KeyState<'l>> {
        let mut check = check(live, found, plan)?;
        let state = check.check.state;
        let mut budget = budget_of(found.shown.clone().unwrap_or_default(), &check, now);
        check.cost = 1;
        let one = budget.rule.map(|_| check.peek_anywhere(now));
        budget.retry_after_ns = one.and_then(|decision| decision.denied).and_then(retry_ns);
        let is_limited = budget.waiting > 0 || one.is_some_and(|decision| !decision.is_admitted());
        let refusing = budget.rule.filter(|_| is_limited).and_then(|rule| {
            let by_rate = state.table.remaining(found.key, rule, 1, now);
            let denying = rule.rates().iter().zip(by_rate).enumerate().filter(|(_, (_, rate))| rate.denied.is_some());
            denying.max_by_key(|(_, (_, rate))| rate.denied).map(|(index, (rate, _))| (index, rate))
        });
        let banned_ns = banned_ns(&check, now);
        Some(KeyState { budget, mode: check.check.mode(), banned_ns, is_limited, refusing })
    }

    /// A key under the rule of `plan`; `None` if no store has its state, or it has no limit.
    pub fn stored_key(&self, live: &Live, found: &FoundKey, plan: Option<&str>) -> Option<StoredKey> {
        StoredKey::of(&check(live, found, plan)?)
    }

    /// Gives all units of a key back, here, in its store and in other replicas. Does nothing to a key without a limit.
    ///
    /// # Errors
    /// The limit counts requests in flight.
    pub fn reset_key(
        &self,
        live: &Live,
        found: &FoundKey,
        plan: Option<&str>,
        now: Timestamp,
    ) -> Result<(), ChargeError> {
        let check = check(live, found, plan).ok_or(KeyError::UnknownLimit)?;
        let (limit, state) = (check.check.applied.limit, check.check.state);
        let Some(rule) = limit.allowed.rule(check.check.variant) else { return Ok(()) };
        if rule.is_released() {
            return Err(ChargeError::InFlight);
        }
        state.settle(found.key, rule, RESET_UNITS, 0, now);
        if matches!(limit.strategy, Strategy::Split(_)) {
            self.listeners.tell_reset(&limit.name, plan, found.key, RESET_UNITS);
        }
        Ok(())
    }

    /// Gives all units back to every key of a limit that this process remembers exactly, as [`Gate::reset_key`] does: at
    /// most 50,000 keys if a store or other replicas hear of it. Returns the numbers of reset keys and of others.
    ///
    /// # Errors
    /// There is no such limit, or it counts requests in flight.
    pub fn reset_all(&self, live: &Live, limit: &str, now: Timestamp) -> Result<(usize, usize), ChargeError> {
        let applied = live.policy.by_name(limit).ok_or(KeyError::UnknownLimit)?;
        let state = live.states.get(applied.index).ok_or(KeyError::UnknownLimit)?;
        if applied.limit.allowed.usual.is_released() {
            return Err(ChargeError::InFlight);
        }
        let rule = |key| applied.limit.allowed.rule(live.variant(&applied, key, None));
        let has_store = live.remotes.get(applied.index).is_some_and(Option::is_some);
        let is_split = matches!(applied.limit.strategy, Strategy::Split(_)) && self.listeners.replica().is_some();
        let most = if has_store || is_split { RESETS_MAX } else { usize::MAX };
        let mut used = HashSet::new();
        let mut see = |key, decision: Decision| {
            if decision.reset_after_ns > 0 {
                used.insert(key);
            }
        };
        state.table.each_used(rule, 0, now, &mut see);
        // A key may lack units under the rule of its plan only.
        for rule in applied.limit.allowed.plans.iter().filter_map(|(_, rule)| rule.as_ref()) {
            state.table.each_used(|_| Some(rule), 0, now, &mut see);
        }
        let others = used.len().saturating_sub(most);
        for key in used.iter().take(most) {
            let found = FoundKey { key: *key, limit: applied.index, shown: None, texts: None };
            self.reset_key(live, &found, None, now)?;
        }
        Ok((used.len() - others, others))
    }

    /// The limited keys that `asked` describes: the limit refuses them one unit at `now`, or requests wait on them. The
    /// second number counts all of them after `asked.after`. Looks at all keys of the limit, and locks a few of them at a
    /// time.
    ///
    /// # Errors
    /// There is no such limit.
    pub fn limited_keys(
        &self,
        live: &Live,
        limit: &str,
        asked: &LimitedKeysQuestion<'_>,
        now: Timestamp,
    ) -> Result<(Vec<LimitedKey>, usize), KeyError> {
        let applied = live.policy.by_name(limit).ok_or(KeyError::UnknownLimit)?;
        let state = live.states.get(applied.index).ok_or(KeyError::UnknownLimit)?;
        let (limit, waiting) = (applied.limit, state.queues.backlogs());
        let mut names = self.known_names(live, &applied);
        let search = KeySearch::of(asked.search);
        let rule = |key| limit.allowed.rule(live.variant(&applied, key, None));
        let (mut first, mut seen, mut count) = (BTreeMap::new(), HashSet::new(), 0);
        // The last position of a full page. Most keys of a large limit are behind it.
        let mut last: Option<ListPosition> = None;
        let mut add = |key: Key, until: Timestamp, remaining: u64| {
            let name = names.get(&key).map(AsRef::as_ref);
            if !search.finds(key, name) {
                return;
            }
            let waiting = waiting.get(&key).map_or(0, |backlog| backlog.waiting);
            let position = asked.position(key, name, waiting, until);
            if asked.after.as_ref().is_some_and(|after| position <= *after) {
                return;
            }
            count += 1;
            if last.as_ref().is_some_and(|last| position >= *last) {
                return;
            }
            first.insert(position, (waiting, until, remaining));
            if first.len() > asked.n {
                first.pop_last();
            }
            last = first.last_key_value().filter(|_| first.len() == asked.n).map(|(position, _)| position.clone());
        };
        let until = |decision: Decision| match decision.denied {
            Some(Retry::AfterNs(ns)) if ns < UNKNOWN_NS - 1 => now.saturating_add_ns(ns),
            Some(_) => NEVER,
            None => now,
        };
        state.table.each_used(rule, 1, now, |key, decision| {
            // A key that moves within the table meanwhile comes twice; so does one with waiting requests below.
            if !decision.is_admitted() && (!waiting.contains_key(&key) || seen.insert(key)) {
                add(key, until(decision), decision.remaining);
            }
        });
        for key in waiting.keys().filter(|key| !seen.contains(key)) {
            if let Some(rule) = rule(*key) {
                let decision = state.table.peek(*key, rule, 1, now);
                add(*key, until(decision), decision.remaining);
            }
        }
        let key = |(position, (waiting, until, remaining)): (ListPosition, (usize, Timestamp, u64))| LimitedKey {
            key: position.key,
            shown: names.remove(&position.key),
            position,
            waiting,
            until: Some(until).filter(|until| *until < NEVER && *until > now),
            remaining,
        };
        Ok((first.into_iter().map(key).collect(), count))
    }

    /// The names of the keys that overrides name, and of those that were refused most.
    pub(super) fn known_names(&self, live: &Live, applied: &Applied<'_>) -> KeyNames {
        let limit = applied.limit;
        let refused = live.states.get(applied.index).map(|state| state.refused.names()).unwrap_or_default();
        let mut names: KeyNames = refused.into_iter().collect();
        for (text, _) in &limit.allowed.overrides {
            if let Ok(found) = self.find_key(live, &limit.name, &KeyName::Text(text.to_string())) {
                let Some(shown) = found.shown else { continue };
                let texts: Vec<_> = shown.into_iter().map(|(_, text)| text).collect();
                names.entry(found.key).or_insert_with(|| texts.join("|").into());
            }
        }
        names
    }
}

impl LimitedKeysQuestion<'_> {
    fn position(&self, key: Key, name: Option<&str>, waiting: usize, until: Timestamp) -> ListPosition {
        let is_by_name = self.order == KeyOrder::Name;
        ListPosition {
            is_unnamed: (self.is_named_first || is_by_name) && name.is_none(),
            name: name.filter(|_| is_by_name).map(Into::into),
            waiting: Reverse(if self.order == KeyOrder::Waiting { waiting } else { 0 }),
            until: Reverse(if is_by_name { NEVER } else { until }),
            key,
        }
    }
}

/// A text that names or ids contain.
struct KeySearch {
    /// In small letters; empty for all keys.
    text: String,
    /// The lowest and the highest key whose id begins with the text; `None` if no id does.
    ids: Option<(Key, Key)>,
}

impl KeySearch {
    fn of(text: &str) -> Self {
        let text = text.to_lowercase();
        let id = |fill: &str| Key::of_id(&format!("{text}{}", fill.repeat(ID_DIGITS.checked_sub(text.len())?)));
        Self { ids: id("0").zip(id("f")), text }
    }

    fn finds(&self, key: Key, name: Option<&str>) -> bool {
        self.text.is_empty()
            || self.ids.is_some_and(|(lowest, highest)| (lowest..=highest).contains(&key))
            || name.is_some_and(|name| name.to_lowercase().contains(&self.text))
    }
}

/// The length of the id of a key.
const ID_DIGITS: usize = 32;

/// A charge of no units to a key.
pub(super) fn check<'l>(live: &'l Live, found: &FoundKey, plan: Option<&str>) -> Option<Check<'l>> {
    let applied = live.policy.at(found.limit)?;
    let (limit, state) = (applied.limit, live.states.get(found.limit)?);
    let variant = live.variant(&applied, found.key, plan);
    let rule = limit.allowed.rule(variant).unwrap_or(&limit.allowed.usual);
    let texts = found.texts.as_deref().map(|texts| texts.iter().map(String::as_str).collect::<Vec<_>>());
    // The part of a key without texts is unknown.
    let percentile =
        texts.map_or(0, |texts| limit.percentile(&texts, live.policy.client_ip.prefixes, &live.policy.identities));
    let check = LimitCheck { state, applied, variant, is_queued: false, percentile };
    let is_enforced = check.mode() == Mode::Enforce;
    let mut check = Charge::new(&state.table, found.key, rule, 0, is_enforced, check);
    check.set_remote(live.remotes.get(found.limit)?.as_ref());
    Some(check)
}
