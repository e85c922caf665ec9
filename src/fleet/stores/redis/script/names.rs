//! The names of keys in Redis.
//!
//! A key of a limit is `PREFIX:{LIMIT:HASH}`. The part in braces is the hash tag, by which a cluster selects the slot. So
//! all keys that begin alike are in one slot.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::engine::limit::{Algorithm, Key};

/// The names of the keys of one store.
#[derive(Clone, Debug)]
pub struct Names {
    /// Without braces, which would be a hash tag.
    prefix: Arc<str>,
}

impl Names {
    /// The names that begin with `prefix`.
    pub fn new(prefix: &str) -> Self {
        let mut escaped = String::with_capacity(prefix.len());
        push_escaped(&mut escaped, prefix);
        Self { prefix: escaped.into() }
    }

    /// The name of a key of `limit`.
    pub fn of_key(&self, limit: &str, key: Key) -> Box<str> {
        let mut name = String::with_capacity(self.prefix.len() + limit.len() + 36);
        name.push_str(&self.prefix);
        name.push_str(":{");
        push_escaped(&mut name, limit);
        // Writing to a string does not fail.
        let _ = write!(name, ":{:016x}{:016x}}}", key.first, key.second);
        name.into()
    }

    /// The name of the marker of a server's generation. `tag` selects its slot in a cluster.
    pub fn of_marker(&self, tag: u64) -> Box<str> {
        format!("{}:generation:{{{tag}}}", self.prefix).into()
    }

    /// The name of the key that notes the corrections of a replica.
    pub fn of_replica(&self, replica: u64) -> Box<str> {
        format!("{}:corrected:{replica:x}", self.prefix).into()
    }
}

/// The owner of the budget that a name of [`Names::of_key`], or of one of its rates, is made of.
pub fn key_of(store_key: &str) -> Option<Key> {
    let tag = store_key.split_once('{')?.1.split_once('}')?.0;
    let digits = tag.get(tag.len().checked_sub(32)?..)?;
    let half = |from: usize| u64::from_str_radix(digits.get(from..from + 16)?, 16).ok();
    Some(Key { first: half(0)?, second: half(16)? })
}

/// The name of the key that notes the corrections of a replica to one key, in the slot of that key.
pub(super) fn of_replica_at_key(store_key: &str, replica: u64) -> Box<str> {
    format!("{store_key}:corrected:{replica:x}").into()
}

/// The names of the rates of a key, one for each.
pub(super) fn of_rates(store_key: &str, rule: &Algorithm) -> impl Iterator<Item = Box<str>> {
    (0..rule.rates().len()).map(move |index| of_rate(store_key, index))
}

/// The name of one rate of a key. It is the same for rules with more rates and with fewer, so a key may change its plan.
pub(super) fn of_rate(store_key: &str, index: usize) -> Box<str> {
    if index == 0 { store_key.into() } else { format!("{store_key}:{index}").into() }
}

/// Appends a text without braces. Different texts stay different.
fn push_escaped(to: &mut String, text: &str) {
    for char in text.chars() {
        match char {
            '{' => to.push_str("%7B"),
            '}' => to.push_str("%7D"),
            '%' => to.push_str("%25"),
            char => to.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Names, key_of, of_rate, of_replica_at_key};
    use crate::engine::limit::Key;

    #[test]
    fn one_hash_tag_for_each_key() {
        let key = Key { first: 0x12, second: u64::MAX };
        let rows = [
            ("weir", "per-seller", "weir:{per-seller:0000000000000012ffffffffffffffff}"),
            ("a{b}c", "{}", "a%7Bb%7Dc:{%7B%7D:0000000000000012ffffffffffffffff}"),
            ("100%", "a b:c", "100%25:{a b:c:0000000000000012ffffffffffffffff}"),
        ];
        for (prefix, limit, name) in rows {
            assert_eq!(&*Names::new(prefix).of_key(limit, key), name);
            assert_eq!((key_of(name), key_of(&of_rate(name, 1))), (Some(key), Some(key)));
        }
        assert_eq!((key_of("w:{a:0}"), key_of("w"), key_of("{")), (None, None, None));
        assert_eq!(&*of_rate("w:{a:0}", 1), "w:{a:0}:1");
        assert_eq!(&*of_rate("w:{a:0}", 0), "w:{a:0}");
        assert_eq!(&*of_replica_at_key("w:{a:0}", 255), "w:{a:0}:corrected:ff");
        assert_eq!(&*Names::new("w").of_replica(255), "w:corrected:ff");
        assert_eq!(&*Names::new("w").of_marker(3), "w:generation:{3}");
    }
}
