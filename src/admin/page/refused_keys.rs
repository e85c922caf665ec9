//! The keys that limits refused or held most of late.

use std::cmp::Reverse;

use super::fields::link;
use super::words;
use crate::gate::{TopKey, TopKeys};

/// A key with its refused or held requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RefusedKey {
    pub(super) name: String,
    pub(super) link: String,
    pub(super) limit: String,
    /// The least number of its requests, in words.
    pub(super) at_least: String,
    /// The largest number of its requests, in words.
    pub(super) at_most: String,
}

/// The `n` keys of all limits with the most requests. A key whose count may be wrong by more than the half is left out:
/// it may have had no request at all.
pub(super) fn refused_most(tops: Vec<TopKeys>, n: usize) -> Vec<RefusedKey> {
    let of_limit = |top: TopKeys| {
        let limit = top.limit;
        top.keys.into_iter().map(move |key| (limit.clone(), key))
    };
    let least = |key: &TopKey| key.count.saturating_sub(key.error);
    let mut keys: Vec<_> = tops.into_iter().flat_map(of_limit).filter(|(_, key)| least(key) > key.error).collect();
    keys.sort_by_key(|(_, key)| Reverse(least(key)));
    let row = |(limit, key): (Box<str>, TopKey)| RefusedKey {
        link: link("/key", &[("limit", &limit), ("id", &key.hash.id())]),
        at_least: words::count(least(&key)),
        at_most: words::count(key.count),
        name: key.key.into(),
        limit: limit.into(),
    };
    keys.into_iter().take(n).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Key;

    #[test]
    fn counts_that_may_be_errors_are_left_out() {
        let key = |(name, count, error): (&str, u64, u64)| TopKey {
            hash: Key::of_hash(count, error),
            key: name.into(),
            count,
            error,
        };
        let top = |limit: &str, keys: &[(&str, u64, u64)]| TopKeys {
            limit: limit.into(),
            total: 0,
            missed: 0,
            keys: keys.iter().copied().map(key).collect(),
        };
        let tops = vec![
            top("a", &[("often", 90_000, 100), ("rather", 30, 14), ("half", 30, 15), ("never", 3, 3)]),
            top("b", &[("once", 1, 0), ("most", 90_100, 0)]),
            top("c", &[]),
        ];
        let shown = |n| {
            let keys = refused_most(tops.clone(), n);
            keys.into_iter()
                .map(|key| format!("{} {}: {} to {}", key.limit, key.name, key.at_least, key.at_most))
                .collect::<Vec<_>>()
        };
        let all = [
            "b most: 90\u{202f}100 to 90\u{202f}100",
            "a often: 89\u{202f}900 to 90\u{202f}000",
            "a rather: 16 to 30",
            "b once: 1 to 1",
        ];
        assert_eq!(shown(9), all);
        assert_eq!(shown(2), all[..2]);
    }
}
