//! The keys and the networks of clients that limits refused or held most of late.

use std::cmp::Reverse;

use super::fields::link;
use super::words;
use crate::engine::gate::TopKeys;
use crate::engine::limit::top::TopKey;

/// A key or a network with its refused or held requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RefusedKey {
    pub(super) name: String,
    pub(super) link: String,
    /// Empty for a network.
    pub(super) limit: String,
    /// The least number of its requests in the last minute, in words.
    pub(super) last_minute: String,
    /// The least number of its requests of late, in words.
    pub(super) at_least: String,
}

/// The `n` keys of all limits with the most requests in the last minute, then of late. A key without a request in the last
/// minute is left out if its count may be wrong by more than the half: it may have had no request at all.
pub(super) fn refused_most(tops: Vec<TopKeys>, n: usize) -> Vec<RefusedKey> {
    let of_limit = |top: TopKeys| {
        let limit = top.limit;
        top.keys.into_iter().map(move |key| (limit.clone(), key))
    };
    let least = |key: &TopKey| key.count.saturating_sub(key.error);
    let is_certain = |key: &TopKey| key.recent > 0 || least(key) > key.error;
    let mut keys: Vec<_> = tops.into_iter().flat_map(of_limit).filter(|(_, key)| is_certain(key)).collect();
    keys.sort_by_key(|(_, key)| Reverse((key.recent, least(key))));
    let row = |(limit, key): (Box<str>, TopKey)| RefusedKey {
        link: if limit.is_empty() {
            link("/bans", &[("address", &key.text)]) + "#add"
        } else {
            link("/key", &[("limit", &limit), ("id", &key.hash.id())])
        },
        last_minute: words::count(key.recent),
        at_least: words::count(least(&key)),
        name: key.text.into(),
        limit: limit.into(),
    };
    keys.into_iter().take(n).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limit::Key;

    #[test]
    fn counts_that_may_be_errors_are_left_out() {
        let key = |(name, count, error, recent): (&str, u64, u64, u64)| TopKey {
            hash: Key::of_hash(count, error),
            text: name.into(),
            count,
            error,
            recent,
        };
        let top = |limit: &str, keys: &[(&str, u64, u64, u64)]| TopKeys {
            limit: limit.into(),
            total: 0,
            missed: 0,
            keys: keys.iter().copied().map(key).collect(),
        };
        let tops = vec![
            top("a", &[("often", 90_000, 100, 2), ("rather", 30, 14, 0), ("half", 30, 15, 0), ("never", 3, 3, 0)]),
            top("b", &[("once", 1, 0, 0), ("most", 90_100, 0, 0), ("now", 1000, 990, 9)]),
            top("", &[("192.0.2.0/24", 7, 0, 7)]),
        ];
        let shown = |n| {
            let keys = refused_most(tops.clone(), n);
            keys.into_iter()
                .map(|key| format!("{} {}: {}, {}", key.limit, key.name, key.last_minute, key.at_least))
                .collect::<Vec<_>>()
        };
        let all = [
            "b now: 9, 10",
            " 192.0.2.0/24: 7, 7",
            "a often: 2, 89\u{202f}900",
            "b most: 0, 90\u{202f}100",
            "a rather: 0, 16",
            "b once: 0, 1",
        ];
        assert_eq!(shown(9), all);
        assert_eq!(shown(2), all[..2]);
        assert_eq!(refused_most(tops, 2)[1].link, "/bans?address=192.0.2.0%2F24#add");
    }
}
