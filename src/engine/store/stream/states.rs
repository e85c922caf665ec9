//! The states of the keys that owe, for a peer that lacks charges.

use crate::base::time::Timestamp;
use crate::engine::limit::{Algorithm, AnyState, Key};
use crate::engine::store::Table;

use super::message::{LimitStates, keys};

/// Keys of a part, about.
const PART_KEYS: u64 = 4096;

/// Numbers of a part at most, unless a single key has more: about 1 MB.
const PART_NUMBERS_MAX: usize = 1 << 18;

/// The states of keys of `limit` whose second number is `from` or more, as many as a part holds. `rule` is the rule of a
/// key. Returns them, and the least second number of the next part; `None` if there is none.
pub fn pack_states<'r>(
    limit: &str,
    table: &Table,
    from: u64,
    rule: impl Fn(Key) -> Option<&'r Algorithm>,
    now: Timestamp,
) -> (LimitStates, Option<u64>) {
    let parts = table.len() as u64 / PART_KEYS + 1;
    let mut span = u64::MAX / parts;
    loop {
        // Both inclusive.
        let to = from.saturating_add(span);
        let states = pack_between(limit, table, from, to, &rule, now);
        if states.numbers.len() <= PART_NUMBERS_MAX || states.keys.len() <= 2 || span == 0 {
            return (states, to.checked_add(1));
        }
        span /= 2;
    }
}

fn pack_between<'r>(
    limit: &str,
    table: &Table,
    from: u64,
    to: u64,
    rule: impl Fn(Key) -> Option<&'r Algorithm>,
    now: Timestamp,
) -> LimitStates {
    let mut states = LimitStates { limit: limit.into(), ..LimitStates::default() };
    table.each_state(now, |key, state| {
        let wanted = (from..=to).contains(&key.second) && states.numbers.len() <= PART_NUMBERS_MAX;
        let Some(rule) = rule(key).filter(|_| wanted) else { return };
        let numbers = state.export(rule, now).concat();
        states.keys.extend([key.first, key.second]);
        states.numbers.push(numbers.len() as u64);
        states.numbers.extend(numbers);
    });
    states
}

/// Replaces the states of all keys in `table` that have spent less than in `states`. `rule` is the rule of a key.
pub fn merge_states<'r>(
    states: &LimitStates,
    table: &Table,
    rule: impl Fn(Key) -> Option<&'r Algorithm>,
    now: Timestamp,
) {
    let mut rest = &*states.numbers;
    for key in keys(&states.keys) {
        let Some((numbers, behind)) = split(rest) else { return };
        rest = behind;
        let Some(rule) = rule(key) else { continue };
        if let Some(state) = AnyState::import(rule, &mut numbers.iter().copied(), now) {
            table.raise(key, rule, &state, now);
        }
    }
}

/// The numbers of the first state, and all others.
fn split(numbers: &[u64]) -> Option<(&[u64], &[u64])> {
    let (count, rest) = numbers.split_first()?;
    rest.split_at_checked(usize::try_from(*count).ok()?)
}
