//! The keys of a table under rules that have taken the place of others.

use super::dispatch::{Kind, Table, matched};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState, Key, token_bucket};

impl Table {
    /// Lets each key that is remembered exactly adopt the rule that `rule` selects, if any. `rule` gets the key, and a test
    /// whether its state is under a rule. Locks a few keys or a shard at a time.
    pub fn adopt_rules<'r>(
        &self,
        rule: impl Fn(Key, &dyn Fn(&Algorithm) -> bool) -> Option<&'r Algorithm>,
        now: Timestamp,
    ) {
        match &self.kind {
            Kind::Buckets(keys) => {
                let quota = |key, state: &token_bucket::State| {
                    let is_of = |rule: &_| matches!(rule, Algorithm::TokenBucket(quota) if state.is_under(quota));
                    if let Some(Algorithm::TokenBucket(quota)) = rule(key, &is_of) { Some(quota) } else { None }
                };
                keys.adopt_rules(quota, now);
            }
            Kind::Any(keys) => keys.adopt_rules(|key, state: &AnyState| rule(key, &|rule| state.is_of(rule)), now),
        }
    }

    /// Lets `key` adopt `rule`, if it is remembered exactly.
    pub fn adopt_rule(&self, key: Key, rule: &Algorithm, now: Timestamp) {
        matched!(&self.kind, rule, |keys, rule| keys.adopt_rule(key, rule, now), else {});
    }
}
