//! The refusals of one limit's keys, and their bans.
//!
//! Only refusals write here. A request reads only while some key is banned, which one atomic count shows. A key is
//! forgotten when its state equals that of a key never refused. At the bound, refusals of new keys are not counted.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::{DashMap, Entry};

use super::snapshot::blocks::{Emit, Tag, entry};
use super::table::ranges::{BLOCK_BYTES, in_blocks};
use crate::limit::{Key, Packed, Unpacker, ban};
use crate::time::Timestamp;

/// The refusals and bans of one limit's keys.
#[derive(Debug, Default)]
pub struct Bans {
    states: DashMap<Key, Refused>,
    /// The number of entries. The map's own length locks every shard.
    len: AtomicUsize,
    /// Entries whose ban was in force at the last look.
    banned: AtomicUsize,
}

#[derive(Debug, Default)]
struct Refused {
    state: ban::State,
    /// Whether the count of banned keys includes it.
    is_counted: bool,
}

impl Packed for Refused {
    fn pack(&self, bytes: &mut Vec<u8>) {
        self.state.pack(bytes);
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        Some(Self { state: ban::State::unpack(from)?, is_counted: false })
    }
}

impl Refused {
    /// Updates the count of banned keys, and returns whether this one is banned.
    fn count(&mut self, banned: &AtomicUsize, now: Timestamp) -> bool {
        let is_banned = self.state.banned_ns(now).is_some();
        match (self.is_counted, is_banned) {
            (false, true) => banned.fetch_add(1, Ordering::Release),
            (true, false) => banned.fetch_sub(1, Ordering::Release),
            _ => 0,
        };
        self.is_counted = is_banned;
        is_banned
    }
}

impl Bans {
    /// Nanoseconds from `now` until the ban of `key` ends; `None` if it is not banned.
    #[inline]
    pub fn banned_ns(&self, key: Key, now: Timestamp) -> Option<u64> {
        if self.banned.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.states.get(&key)?.state.banned_ns(now)
    }

    /// Counts a refusal of `key`. If that bans the key, returns the length of the ban in nanoseconds. Beyond `max_keys`
    /// keys, refusals of new keys are not counted; each concurrent thread may exceed the bound by one.
    pub fn refused(&self, key: Key, rule: &ban::Rule, max_keys: usize, now: Timestamp) -> Option<u64> {
        let mut refused = match self.states.entry(key) {
            Entry::Occupied(entry) => entry.into_ref(),
            Entry::Vacant(_) if self.len.load(Ordering::Relaxed) >= max_keys => return None,
            Entry::Vacant(entry) => {
                self.len.fetch_add(1, Ordering::Relaxed);
                entry.insert(Refused::default())
            }
        };
        let length_ns = refused.state.refused(rule, now);
        refused.count(&self.banned, now);
        length_ns
    }

    /// Drops every key that is idle at `now`. Locks one shard at a time.
    pub fn sweep(&self, now: Timestamp) {
        let mut idle = 0;
        self.states.retain(|_, refused| {
            let stays = refused.count(&self.banned, now) || refused.state.idle_at() > now;
            idle += usize::from(!stays);
            stays
        });
        self.len.fetch_sub(idle, Ordering::Relaxed);
    }

    /// Packs all keys that are not idle at `now`, block by block. Locks one shard at a time.
    pub(super) fn pack(&self, now: Timestamp, emit: &mut Emit<'_>) -> io::Result<()> {
        let is_known = |refused: &Refused| refused.state.idle_at() > now;
        in_blocks(&self.states, BLOCK_BYTES, is_known, |bytes| emit(Tag::Bans, bytes))
    }

    /// Adds the keys of a block that are not idle at `now`.
    pub(super) fn unpack(&self, from: &mut Unpacker<'_>, now: Timestamp) -> Option<()> {
        while !from.is_empty() {
            let (key, mut refused) = entry::<Refused>(from)?;
            if refused.state.idle_at() > now {
                refused.count(&self.banned, now);
                if self.states.insert(key, refused).is_none() {
                    self.len.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Some(())
    }

    /// The number of keys that are banned at `now`. Looks at all keys if any is banned.
    pub fn banned(&self, now: Timestamp) -> usize {
        if self.banned.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.states.iter().filter(|refused| refused.state.banned_ns(now).is_some()).count()
    }

    /// Calls `seen` with each key that is banned at `now`, and with the nanoseconds until its ban ends. Locks one shard at
    /// a time.
    pub fn each_banned(&self, now: Timestamp, mut seen: impl FnMut(Key, u64)) {
        if self.banned.load(Ordering::Acquire) == 0 {
            return;
        }
        for refused in &self.states {
            if let Some(ns) = refused.state.banned_ns(now) {
                seen(*refused.key(), ns);
            }
        }
    }

    /// Ends the ban of `key` and forgets its refusals. Returns the nanoseconds that were left; `None` if it is not banned.
    pub fn pardon(&self, key: Key, now: Timestamp) -> Option<u64> {
        let mut refused = self.states.get_mut(&key)?;
        let left_ns = refused.state.banned_ns(now)?;
        refused.state.pardon();
        refused.count(&self.banned, now);
        Some(left_ns)
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_ns((1_000_000 + seconds) * SECOND_NS)
    }

    fn key(number: u64) -> Key {
        Key { first: number, second: number }
    }

    /// Two refusals within ten seconds ban for five, then ten, at most twenty.
    fn rule() -> ban::Rule {
        ban::Rule::new(Rate { count: 2, period_ns: 10 * SECOND_NS }, 5 * SECOND_NS, 20 * SECOND_NS).unwrap()
    }

    #[test]
    fn keys_are_banned_apart_and_forgotten_in_the_end() {
        let bans = Bans::default();
        // at, key, refused or asked, banned for, keys banned, keys remembered
        let rows = [
            (0, 1, "refused", None, 0, 1),
            (1, 1, "refused", Some(5), 1, 1),
            (1, 1, "asked", Some(5), 1, 1),
            (1, 2, "asked", None, 1, 1),
            (2, 2, "refused", None, 1, 2),
            (4, 1, "refused", None, 1, 2),
            (5, 1, "asked", Some(1), 1, 2),
            (6, 1, "asked", None, 0, 2),
            (7, 1, "refused", None, 0, 2),
            (8, 1, "refused", Some(10), 1, 2),
            // a window of ten seconds is over, and a ban is remembered for twenty seconds after it
            (12, 0, "swept", None, 1, 1),
            (37, 0, "swept", None, 0, 1),
            (38, 0, "swept", None, 0, 0),
        ];
        for (second, number, what, said, banned, known) in rows {
            let found = match what {
                "refused" => bans.refused(key(number), &rule(), 10, at(second)),
                "asked" => bans.banned_ns(key(number), at(second)),
                _ => {
                    bans.sweep(at(second));
                    None
                }
            };
            let row = format!("{second} s: {number} {what}");
            assert_eq!(found, said.map(|seconds: u64| seconds * SECOND_NS), "{row}");
            assert_eq!((bans.banned(at(second)), bans.len.load(Ordering::Relaxed)), (banned, known), "{row}");
        }
        assert!(bans.is_empty() && bans.states.is_empty());
        assert_eq!(bans.banned.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let bans = Bans::default();
        for number in 0..100 {
            bans.refused(key(number), &rule(), 3, at(0));
        }
        assert_eq!(bans.states.len(), 3);
        assert!((0..100).all(|number| bans.refused(key(number), &rule(), 3, at(1)).is_some() == (number < 3)));
    }
}
