//! The keys that etcd has of one key of a limit, and their values.
//!
//! `PREFIX/LIMIT/HASH` is the counter, and `PREFIX/LIMIT/HASH/REPLICA` has the loans of one replica. Values are JSON, so that
//! operators can read them with etcdctl. A time is in microseconds since 1970, by the time that all replicas share (`clock`).

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::proto::etcdserverpb::RangeRequest;
use super::proto::mvccpb::KeyValue;
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState, Key};

const NS_PER_US: u64 = 1000;

/// The spent units of a key, as etcd has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counter {
    /// The digest of the rule.
    rule: u64,
    /// The instant for which the numbers hold.
    at_us: u64,
    /// The spent units of each rate, which another rule takes over.
    spent: Vec<u64>,
    /// The state as [`AnyState::export`] has it.
    numbers: Vec<u64>,
}

/// The loans of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loans {
    /// The number of the transaction that wrote them. A process never uses one twice.
    pub(super) write: u64,
    /// The time and the units of each loan.
    pub(super) loans: Vec<(u64, u64)>,
}

/// What etcd has of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// The revision of the last change of the counter; 0 if there is none.
    pub(super) revision: i64,
    pub(super) counter: Option<Counter>,
    /// The loans of this replica.
    pub(super) own: Loans,
    /// The loans of all other replicas.
    pub(super) others: Vec<(u64, u64)>,
}

/// The names of the keys of one account.
#[derive(Clone, Debug)]
pub(super) struct AccountKeys {
    pub(super) counter: String,
    pub(super) own: String,
}

impl AccountKeys {
    /// The names for `key` of `limit`, and for the loans of the process `replica`.
    pub(super) fn new(prefix: &str, (limit, key): (&str, Key), replica: u64) -> Self {
        let counter = format!("{prefix}/{limit}/{}", key.id());
        let own = format!("{counter}/{replica:x}");
        Self { counter, own }
    }

    /// The question for the counter and all loans.
    pub(super) fn range(&self) -> RangeRequest {
        // `0` follows `/`.
        RangeRequest { key: self.counter.clone().into(), range_end: format!("{}0", self.counter).into() }
    }

    /// What etcd has; `None` if a value is none of a replica.
    pub(super) fn read(&self, entries: Vec<KeyValue>) -> Option<Account> {
        let mut account = Account::default();
        for KeyValue { key, mod_revision, value } in entries {
            if key == self.counter.as_bytes() {
                account.revision = mod_revision;
                account.counter = Some(serde_json::from_slice(&value).ok()?);
                continue;
            }
            let loans: Loans = serde_json::from_slice(&value).ok()?;
            if key == self.own.as_bytes() {
                account.own = loans;
            } else {
                account.others.extend(loans.loans);
            }
        }
        Some(account)
    }
}

impl Account {
    /// The instant for which the counter holds.
    pub(super) fn counted_at(&self) -> Option<Timestamp> {
        self.counter.as_ref().map(|counter| from_us(counter.at_us))
    }

    /// `now`, or the time of the counter if that is later: time never goes back for a key.
    pub(super) fn now(&self, now: Timestamp) -> Timestamp {
        let whole = from_us(to_us(now));
        self.counted_at().map_or(whole, |at| at.max(whole))
    }

    /// The state with the spent units; `None` if the counter has numbers of no state.
    pub(super) fn spent(&self, rule: &Algorithm) -> Option<AnyState> {
        let Some(counter) = &self.counter else { return Some(AnyState::fresh(rule)) };
        let at = from_us(counter.at_us);
        if counter.rule == rule.digest() {
            return AnyState::import(rule, &mut counter.numbers.iter().copied(), at);
        }
        Some(AnyState::with_spent(rule, &counter.spent, at))
    }
}

impl Counter {
    /// The value for a state under `rule`.
    pub(super) fn new(state: &AnyState, rule: &Algorithm, now: Timestamp) -> Self {
        let spent: SmallVec<[u64; 1]> = state.spent(rule, now);
        let numbers = state.export(rule, now).concat();
        Self { rule: rule.digest(), at_us: to_us(now), spent: spent.to_vec(), numbers }
    }
}

/// The bytes of a value.
pub(super) fn bytes_of(value: &impl Serialize) -> Vec<u8> {
    // Numbers and lists always have a form.
    serde_json::to_vec(value).unwrap_or_default()
}

pub(super) const fn to_us(at: Timestamp) -> u64 {
    at.as_ns() / NS_PER_US
}

pub(super) const fn from_us(us: u64) -> Timestamp {
    Timestamp::from_ns(us.saturating_mul(NS_PER_US))
}
