//! `GET /v1/keys`: shows a key, or lists the keys that a limit refuses now.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answered, Refused, json};
use super::body::Parameters;
use super::explain::{BudgetBody, in_words};
use super::key;
use super::rates::units_in_words;
use super::state::Admin;
use super::times::rfc3339;
use crate::base::time::Timestamp;
use crate::engine::gate::{
    FoundKey, KeyError, KeyName, KeyOrder, KeyState, LimitedKey, LimitedKeysQuestion, ListPosition, Live,
};
use crate::engine::limit::Algorithm;
use crate::engine::policy::Variant;

/// The default number of keys of a page.
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1000;
/// The most limits that a refusal names.
const NAMED_MAX: usize = 20;
/// Most bytes of a search.
const SEARCH_BYTES_MAX: usize = 256;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct KeysQuery {
    /// The name of the limit.
    limit: String,
    /// The key: its text as in `overrides`, or a JSON object with its parts by name.
    key: Option<String>,
    /// The id of the key, in place of `key`.
    id: Option<String>,
    /// The plan by whose numbers the limit decides.
    plan: Option<String>,
    /// `true` lists the keys that the limit refuses one unit now, or on which requests wait.
    limited: Option<bool>,
    /// Of a list: `next` of the page before.
    after: Option<String>,
    /// Of a list: the number of keys, from 1 to 1000; 100 by default.
    n: Option<usize>,
    /// Of a list: a part of the name in any case, or the begin of the id. At most 256 bytes.
    search: Option<String>,
    /// Of a list: `waiting` (by default: the most waiting requests first, then the longest wait for one unit), `wait` (the
    /// longest wait first) or `name`.
    sort: Option<String>,
    /// Of a list: `true` lists keys with a name before all others.
    named_first: Option<bool>,
}

/// The state of one key.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Key)]
pub struct KeyBody {
    /// The name of the limit.
    pub limit: String,
    /// The id: a hash of the key, which is the same in all replicas of a fleet.
    pub id: String,
    /// The parts of the key by name, without secrets; `null` if only the id is known.
    pub key: Option<BTreeMap<String, String>>,
    /// `enforce`, `shadow` or `off`: the mode of the limit, for the key if its parts are known.
    #[serde(default)]
    pub mode: String,
    /// The rule in words; `null` if the key has no limit.
    pub rule: Option<String>,
    /// Where the rule is configured, as in an explanation.
    pub from: String,
    /// What the units are: `micro-usd`, `content-bytes` or `limit.unit_name`; absent if that is unknown.
    #[serde(default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Whole units that remain; `null` if the key has no limit.
    pub remaining: Option<u64>,
    /// Units charged beyond the limit and not yet paid.
    pub debt: u64,
    /// Milliseconds until the key has all units again; `null` if that is unknown.
    pub reset_after_ms: Option<u64>,
    /// Milliseconds until the limit admits one unit; `null` if it does now or never will, or the wait is unknown.
    pub retry_after_ms: Option<u64>,
    /// Whether the limit refuses one unit now, or requests wait.
    pub limited: bool,
    /// The rate that refuses one unit for longest, in words; `null` if none does, or only the store knows it.
    pub refusing: Option<String>,
    /// Whether Weir has no state of the key: it was never seen, or it has all units again.
    #[serde(default)]
    pub unused: bool,
    /// Requests that wait on the key.
    pub waiting: usize,
    /// The end of the ban of the key, or `for good`; `null` if it is not banned.
    pub banned_until: Option<String>,
    /// What decides if a store has the state of the limit; `null` if this process has it.
    pub decided_by: Option<String>,
    /// The age of the state of the store in milliseconds; `null` if it is unknown, or no store has the state.
    pub mirror_age_ms: Option<u64>,
}

impl KeyBody {
    pub(super) fn remaining_in_words(&self) -> String {
        let units = |units| units_in_words(units, self.unit.as_deref());
        self.remaining.map_or_else(|| "unlimited".to_owned(), units)
    }
}

/// A key that is limited now.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LimitedKey)]
pub struct LimitedBody {
    /// The id.
    pub id: String,
    /// The parts of the key without secrets, with `|` between them; `null` if only the id is known.
    pub key: Option<String>,
    /// Whole units that remain.
    pub remaining: u64,
    /// Milliseconds until the limit admits one unit; `null` if that is unknown, or never.
    pub retry_after_ms: Option<u64>,
    /// Requests that wait on the key.
    pub waiting: usize,
}

/// Keys that are limited now, in the order that was asked for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LimitedKeys)]
pub struct LimitedPage {
    /// The name of the limit.
    pub limit: String,
    /// The number of limited keys after `after`.
    pub count: usize,
    /// The keys of this page.
    pub keys: Vec<LimitedBody>,
    /// `after` of the next page; `null` if this is the last.
    pub next: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Keys)]
enum KeysBody {
    One(Box<KeyBody>),
    Page(LimitedPage),
}

/// One key, or the keys that a limit refuses now.
#[utoipa::path(
    get,
    path = "/v1/keys",
    params(KeysQuery),
    responses(
        (status = 200, body = KeysBody, description = "the key; with `limited`, a page of keys"),
        (status = 404, description = "the limit does not exist"),
    )
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<KeysQuery>) -> Answered {
    let shown = match asked.limited {
        Some(true) if asked.key.is_none() && asked.id.is_none() => KeysBody::Page(page(admin, asked).await?),
        Some(true) => return Err("limited: excludes `key` and `id`".to_owned().into()),
        _ => {
            let KeysQuery { limit, key, id, plan, .. } = asked;
            hear(&admin, &limit, (key.as_deref(), id.as_deref()), plan.as_deref()).await;
            let (live, now) = (admin.live.load(), admin.gate.clock().now());
            check_plan(&live, &limit, plan.as_deref())?;
            let found = find(&admin, &live, &limit, (key.as_deref(), id.as_deref()))?;
            KeysBody::One(Box::new(state(&admin, &live, (&limit, &found), plan.as_deref(), now)?))
        }
    };
    Ok(json(StatusCode::OK, &shown))
}

/// The key that `key` or `id` names. Without both, the only key of a limit whose key has no parts.
pub(super) fn find(
    admin: &Admin,
    live: &Live,
    limit: &str,
    (key, id): (Option<&str>, Option<&str>),
) -> Result<FoundKey, Refused> {
    let name = match (key, id) {
        (Some(_), Some(_)) => return Err("id: excludes `key`".to_owned().into()),
        (None, Some(id)) => key::name_of_id(id),
        (Some(key), None) => key::name_of_text(key),
        (None, None) => Ok(KeyName::Parts(Vec::new())),
    };
    admin.gate.find_key(live, limit, &name?).map_err(|error| refused(live, &error))
}

/// Brings the newest state of the key that [`find`] finds from its store.
pub(super) async fn hear(admin: &Admin, limit: &str, name: (Option<&str>, Option<&str>), plan: Option<&str>) {
    let stored = |live: &Live| admin.gate.stored_key(live, &find(admin, live, limit, name).ok()?, plan);
    admin.hear_stores(|live| stored(live).into_iter().collect()).await;
}

pub(super) fn refused(live: &Live, error: &KeyError) -> Refused {
    if *error == KeyError::UnknownLimit { unknown_limit(live) } else { error.to_string().into() }
}

/// Refuses a name that no limit has, and names the limits.
pub(super) fn unknown_limit(live: &Live) -> Refused {
    let limits: Vec<_> = live.policy.nameable_limits().collect();
    let mut names: Vec<_> = limits.iter().take(NAMED_MAX).map(|limit| format!("`{limit}`")).collect();
    names.extend((limits.len() > NAMED_MAX).then(|| format!("{} more", limits.len() - NAMED_MAX)));
    Refused(StatusCode::NOT_FOUND, format!("{}; there are {}", KeyError::UnknownLimit, names.join(", ")))
}

pub(super) fn state(
    admin: &Admin,
    live: &Live,
    (limit, found): (&str, &FoundKey),
    plan: Option<&str>,
    now: Timestamp,
) -> Result<KeyBody, Refused> {
    let state = admin.gate.key_state(live, found, plan, now).ok_or_else(|| unknown_limit(live))?;
    let KeyState { budget, mode, banned_ns, is_limited, refusing } = state;
    let capacity = budget.rule.map(Algorithm::capacity);
    let refusing = refusing.map(|(index, rate)| in_words(budget.written, Some(index), rate));
    let BudgetBody {
        rule,
        from,
        unit,
        remaining,
        debt,
        reset_after_ms,
        retry_after_ms,
        waiting,
        decided_by,
        mirror_age_ms,
        ..
    } = BudgetBody::of(budget);
    Ok(KeyBody {
        limit: limit.to_owned(),
        id: found.key.id(),
        key: found.shown.clone().map(|parts| parts.into_iter().collect()),
        mode: mode.word().to_owned(),
        rule,
        from,
        unit,
        remaining: capacity.and(Some(remaining)),
        debt,
        reset_after_ms,
        retry_after_ms,
        limited: is_limited,
        refusing,
        unused: capacity == Some(remaining) && reset_after_ms == Some(0) && debt == 0 && waiting == 0,
        waiting,
        banned_until: banned_ns.map(|ns| banned_until(ns, now)),
        decided_by,
        mirror_age_ms,
    })
}

/// The end of a ban of so many nanoseconds. The most stand for a ban for good.
pub(super) fn banned_until(ban_ns: u64, now: Timestamp) -> String {
    if ban_ns == u64::MAX { "for good".to_owned() } else { rfc3339(now.saturating_add_ns(ban_ns)) }
}

/// A page of limited keys. The search takes a thread of its own, because a limit may have millions of keys.
async fn page(admin: Arc<Admin>, asked: KeysQuery) -> Result<LimitedPage, Refused> {
    let KeysQuery { limit, after, n, search, sort, named_first, .. } = asked;
    let n = n.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&n) {
        return Err(format!("n: expected a whole number from 1 to {PAGE_MAX}").into());
    }
    let after = after.map(|text| position_of(&text).ok_or_else(|| "after: expected `next` of a page".to_owned()));
    let after = after.transpose()?;
    let search = search.unwrap_or_default();
    if search.len() > SEARCH_BYTES_MAX {
        return Err(format!("search: expected at most {SEARCH_BYTES_MAX} bytes").into());
    }
    let order = match sort.as_deref() {
        None | Some("waiting") => KeyOrder::Waiting,
        Some("wait") => KeyOrder::Wait,
        Some("name") => KeyOrder::Name,
        Some(_) => return Err("sort: expected `waiting`, `wait` or `name`".to_owned().into()),
    };
    let list = move || {
        let (now, live) = (admin.gate.clock().now(), admin.live.load());
        let is_named_first = named_first.unwrap_or_default();
        let asked = LimitedKeysQuestion { search: &search, order, is_named_first, after, n };
        let (keys, count) =
            admin.gate.limited_keys(&live, &limit, &asked, now).map_err(|error| refused(&live, &error))?;
        let next = keys.last().filter(|_| keys.len() < count).map(|last| text_of(&last.position));
        let keys = keys.into_iter().map(|key| limited_body(key, now)).collect();
        Ok(LimitedPage { limit, count, keys, next })
    };
    spawn_blocking(list).await?
}

/// Refuses a plan that the limit does not have.
fn check_plan(live: &Live, limit: &str, plan: Option<&str>) -> Result<(), Refused> {
    let Some((plan, applied)) = plan.zip(live.policy.by_name(limit)) else { return Ok(()) };
    let plans = &applied.limit.allowed.plans;
    if applied.limit.allowed.plan(plan) != Variant::Usual {
        return Ok(());
    }
    let names: Vec<_> = plans.iter().map(|(name, _)| format!("`{name}`")).collect();
    let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(format!("plan: the limit has no plan `{plan}`; it has {has}").into())
}

fn limited_body(LimitedKey { key, shown, waiting, until, remaining, .. }: LimitedKey, now: Timestamp) -> LimitedBody {
    LimitedBody {
        id: key.id(),
        key: shown.map(Into::into),
        remaining,
        retry_after_ms: until.map(|until| until.ns_since(now).div_ceil(1_000_000)),
        waiting,
    }
}

/// A position in the list as the text of `next`. The name is last, because it may have any character.
fn text_of(position: &ListPosition) -> String {
    let ListPosition { is_unnamed, name, waiting, until, key } = position;
    let name = name.as_ref().map_or_else(String::new, |name| format!("-{name}"));
    format!("{}-{}-{}-{}{name}", u8::from(*is_unnamed), waiting.0, until.0.as_ns(), key.id())
}

fn position_of(text: &str) -> Option<ListPosition> {
    let mut parts = text.splitn(5, '-');
    let is_unnamed = parts.next()?.parse::<u8>().ok()? > 0;
    let (waiting, until) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let KeyName::Hash(key) = key::name_of_id(parts.next()?).ok()? else { return None };
    let (waiting, until) = (Reverse(waiting), Reverse(Timestamp::from_ns(until)));
    Some(ListPosition { is_unnamed, name: parts.next().map(Into::into), waiting, until, key })
}
