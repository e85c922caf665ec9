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

    /// What etcd has under `rule`. A counter that no replica has written counts as none, and the next one replaces it. So do
    /// keys below it that are named after no replica.
    ///
    /// # Errors
    /// The key of a replica whose loans cannot be read.
    pub(super) fn read(&self, entries: Vec<KeyValue>, rule: &Algorithm) -> Result<Account, String> {
        let mut account = Account::default();
        for KeyValue { key, mod_revision, value } in entries {
            if key == self.counter.as_bytes() {
                account.revision = mod_revision;
                account.counter =
                    serde_json::from_slice(&value).ok().filter(|counter: &Counter| counter.state(rule).is_some());
                continue;
            }
            if !self.is_of_replica(&key) {
                continue;
            }
            let loans: Loans =
                serde_json::from_slice(&value).map_err(|_| String::from_utf8_lossy(&key).into_owned())?;
            if key == self.own.as_bytes() {
                account.own = loans;
            } else {
                account.others.extend(loans.loans);
            }
        }
        Ok(account)
    }

    /// Whether a key below that of the counter is named after a replica.
    fn is_of_replica(&self, key: &[u8]) -> bool {
        let name = key.strip_prefix(self.counter.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        name.is_some_and(|name| u64::from_str_radix(name, 16).is_ok_and(|replica| format!("{replica:x}") == name))
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

    /// The state with the spent units.
    pub(super) fn spent(&self, rule: &Algorithm) -> AnyState {
        let state = self.counter.as_ref().and_then(|counter| counter.state(rule));
        state.unwrap_or_else(|| AnyState::fresh(rule))
    }
}

impl Counter {
    /// The state under `rule`; `None` if the numbers are those of no state.
    fn state(&self, rule: &Algorithm) -> Option<AnyState> {
        let at = from_us(self.at_us);
        if self.rule != rule.digest() {
            return Some(AnyState::with_spent(rule, &self.spent, at));
        }
        AnyState::import(rule, &mut self.numbers.iter().copied(), at)
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limit::{Quota, Rate};

    #[test]
    fn foreign_values_count_as_none_but_for_the_loans_of_a_replica() {
        let rule = Algorithm::TokenBucket(Quota::new(Rate { count: 1, period_ns: 1_000_000_000 }, 100).unwrap());
        let keys = AccountKeys::new("weir", ("a", Key { first: 1, second: 2 }), 0xab);
        let now = Timestamp::from_ns(9_000_000_000);
        let written = Counter::new(&AnyState::fresh(&rule), &rule, now);
        let far = Counter { at_us: u64::MAX, numbers: Vec::new(), ..written.clone() };
        let loans = bytes_of(&Loans { write: 3, loans: vec![(8, 5)] });
        // the rest of the name, its value, and what is read: the time, own and other loans
        for (name, value, expected) in [
            ("", bytes_of(&written), Some((now, 0, 0))),
            ("", bytes_of(&far), Some((now, 0, 0))),
            ("", b"hello".to_vec(), Some((now, 0, 0))),
            ("/ab", loans.clone(), Some((now, 1, 0))),
            ("/cd", loans.clone(), Some((now, 0, 1))),
            ("/note", b"hello".to_vec(), Some((now, 0, 0))),
            ("/0cd", loans, Some((now, 0, 0))),
            ("/ab", b"hello".to_vec(), None),
            ("/cd", b"hello".to_vec(), None),
        ] {
            let key = format!("{}{name}", keys.counter).into_bytes();
            let entries = vec![KeyValue { key, mod_revision: 1, value }];
            let read = keys.read(entries, &rule).ok();
            let read = read.map(|account| (account.now(now), account.own.loans.len(), account.others.len()));
            assert_eq!(read, expected, "{name}");
        }
    }
}
