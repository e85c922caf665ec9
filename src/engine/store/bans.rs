//! The refusals of one limit's keys, and their bans.
//!
//! Only refusals write here. A request reads only while some key is banned, which one atomic count shows. A key is
//! forgotten when its state equals that of a key never refused. At the bound, refusals of new keys are not counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{io, mem};

use dashmap::mapref::one::RefMut;
use dashmap::{DashMap, Entry};

use super::snapshot::blocks::{Emit, Tag, entry};
use super::table::ranges::{BLOCK_BYTES, in_blocks};
use crate::base::time::Timestamp;
use crate::engine::limit::{Key, Packed, Unpacker, ban};

/// The refusals and bans of one limit's keys.
#[derive(Debug, Default)]
pub struct Bans {
    states: DashMap<Key, Refused>,
    /// The number of entries. The map's own length locks every shard.
    len: AtomicUsize,
    /// Entries whose ban was in force at the last look.
    banned: AtomicUsize,
    /// The keys with refusals that peers have not heard of. While it is locked, no lock of an entry is taken.
    untold: Mutex<Vec<Key>>,
}

#[derive(Debug, Default)]
struct Refused {
    state: ban::State,
    /// Refusals that peers have not heard of.
    untold: u32,
    /// Whether the count of banned keys includes it.
    is_counted: bool,
    /// The last change of the ban that replicas know of: when, and by which of them.
    changed: (Timestamp, u64),
    /// The instant until which it is remembered that the ban was lifted.
    lifted_until: Timestamp,
    /// The end of the last ban that a sweep has found.
    found_until: Timestamp,
    found: Found,
}

/// What a sweep has reported of the last ban that it has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Found {
    /// All, or there was no ban.
    #[default]
    All,
    /// Its beginning, as one of [`BanNews::more_begun`].
    Number,
    /// Its beginning, with its key.
    Key,
}

/// The bans that have begun and ended from one sweep to the next.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BanNews {
    /// Keys that were banned, and the nanoseconds until their bans end.
    pub begun: Vec<(Key, u64)>,
    /// Keys whose bans have ended; they were in `begun` before, or the bans are older than the process.
    pub ended: Vec<Key>,
    /// The number of other bans that have begun.
    pub more_begun: usize,
    /// The number of other bans that have ended.
    pub more_ended: usize,
}

/// A change of the ban of one key, which replicas tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBan {
    /// The key.
    pub key: Key,
    /// When it changed, and the replica that changed it. The last change counts.
    pub changed: (Timestamp, u64),
    /// The end of the ban. A lifted ban is remembered until then.
    pub until: Timestamp,
    /// The bans of the key so far; `None` if the ban was lifted.
    pub bans: Option<u32>,
}

impl Packed for Refused {
    fn pack(&self, bytes: &mut Vec<u8>) {
        self.state.pack(bytes);
    }

    fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
        // Any change that another replica knows is later.
        let changed = (Timestamp::from_ns(1), 0);
        let state = ban::State::unpack(from)?;
        let found_until = state.last_ban().0;
        Some(Self { state, changed, found_until, ..Self::default() })
    }
}

impl Refused {
    /// The instant from which the key is idle.
    fn idle_at(&self) -> Timestamp {
        self.state.idle_at().max(self.lifted_until)
    }

    /// Notes that `replica` changes the ban at `now`, or just after the last change that is known.
    fn stamp(&mut self, replica: u64, now: Timestamp) {
        self.changed = (now.max(self.changed.0.saturating_add_ns(1)), replica);
    }

    /// The last change of the ban; `None` if there is nothing that other replicas need to know at `now`.
    fn change(&self, key: Key, now: Timestamp) -> Option<KeyBan> {
        let ((until, bans), changed) = (self.state.last_ban(), self.changed);
        let is_banned = self.state.banned_ns(now).is_some();
        let is_lifted = self.lifted_until > now;
        match (is_banned, is_lifted) {
            (true, _) => Some(KeyBan { key, changed, until, bans: Some(bans) }),
            (false, true) => Some(KeyBan { key, changed, until: self.lifted_until, bans: None }),
            (false, false) => None,
        }
    }

    /// Adds a ban to `news` that has begun or ended since the last sweep; its key, unless there are `keys_max` keys. One of
    /// both may have been between two sweeps.
    fn report(&mut self, key: Key, now: Timestamp, keys_max: usize, news: &mut BanNews) {
        let (until, _) = self.state.last_ban();
        if until != self.found_until {
            self.report_end(key, keys_max, news);
            self.found_until = until;
            if until > Timestamp::ZERO {
                self.found = news.begin(key, until.ns_since(now), keys_max);
            }
        }
        if until <= now {
            self.report_end(key, keys_max, news);
        }
    }

    fn report_end(&mut self, key: Key, keys_max: usize, news: &mut BanNews) {
        match mem::take(&mut self.found) {
            Found::All => {}
            Found::Key if news.ended.len() < keys_max => news.ended.push(key),
            Found::Key | Found::Number => news.more_ended += 1,
        }
    }

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

impl BanNews {
    fn begin(&mut self, key: Key, left_ns: u64, keys_max: usize) -> Found {
        if self.begun.len() < keys_max {
            self.begun.push((key, left_ns));
            Found::Key
        } else {
            self.more_begun += 1;
            Found::Number
        }
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
        let mut refused = self.entry(key, max_keys)?;
        let length_ns = refused.state.refused(rule, now);
        refused.count(&self.banned, now);
        length_ns
    }

    /// As [`Bans::refused`], and peers are to hear of the refusal. If it bans the key, they hear of the ban instead.
    pub fn refused_here(&self, key: Key, rule: &ban::Rule, max_keys: usize, now: Timestamp) -> Option<u64> {
        let mut refused = self.entry(key, max_keys)?;
        let length_ns = refused.state.refused(rule, now);
        if !refused.count(&self.banned, now) {
            if refused.untold == 0 {
                self.untold.lock().unwrap_or_else(PoisonError::into_inner).push(key);
            }
            refused.untold = refused.untold.saturating_add(1);
        }
        length_ns
    }

    /// Counts refusals of `key` by a peer at `at`, as [`Bans::refused`] does.
    pub fn refused_there(
        &self,
        key: Key,
        (refusals, at): (u32, Timestamp),
        rule: &ban::Rule,
        max_keys: usize,
        now: Timestamp,
    ) -> Option<u64> {
        let mut refused = self.entry(key, max_keys)?;
        let length_ns = refused.state.refused_at(rule, refusals.into(), at, now);
        refused.count(&self.banned, now);
        length_ns
    }

    /// Calls `seen` with the refusals that peers have not heard of, by key, and takes them.
    pub fn take_untold(&self, mut seen: impl FnMut(Key, u32)) {
        let keys = mem::take(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner));
        for key in keys {
            let untold = self.states.get_mut(&key).map_or(0, |mut refused| mem::take(&mut refused.untold));
            if untold > 0 {
                seen(key, untold);
            }
        }
    }

    /// The state of `key`; `None` if it has none, and there are `max_keys` keys.
    fn entry(&self, key: Key, max_keys: usize) -> Option<RefMut<'_, Key, Refused>> {
        match self.states.entry(key) {
            Entry::Occupied(entry) => Some(entry.into_ref()),
            Entry::Vacant(_) if self.len.load(Ordering::Relaxed) >= max_keys => None,
            Entry::Vacant(entry) => {
                self.len.fetch_add(1, Ordering::Relaxed);
                Some(entry.insert(Refused::default()))
            }
        }
    }

    /// Drops every key that is idle at `now`. Returns the bans that have begun and ended since the last sweep, with at most
    /// `keys_max` keys of each kind. Locks one shard at a time.
    pub fn sweep(&self, now: Timestamp, keys_max: usize) -> BanNews {
        let (mut idle, mut news) = (0, BanNews::default());
        self.states.retain(|key, refused| {
            refused.report(*key, now, keys_max, &mut news);
            let stays = refused.count(&self.banned, now) || refused.idle_at() > now;
            idle += usize::from(!stays);
            stays
        });
        self.len.fetch_sub(idle, Ordering::Relaxed);
        news
    }

    /// Packs all keys that are not idle at `now`, block by block. Locks one shard at a time.
    pub(super) fn pack(&self, now: Timestamp, emit: &mut Emit<'_>) -> io::Result<()> {
        let is_known = |refused: &Refused| refused.idle_at() > now;
        in_blocks(&self.states, BLOCK_BYTES, is_known, |bytes| emit(Tag::Bans, bytes))
    }

    /// Adds the keys of a block that are not idle at `now`.
    pub(super) fn unpack(&self, from: &mut Unpacker<'_>, now: Timestamp) -> Option<()> {
        while !from.is_empty() {
            let (key, mut refused) = entry::<Refused>(from)?;
            if refused.idle_at() > now {
                // A ban that continues has begun before; the process before has reported those that have ended.
                if refused.count(&self.banned, now) {
                    refused.found = Found::Key;
                }
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

    /// Ends the ban of `key` and forgets its refusals. No sweep reports this end. Returns the nanoseconds that were left;
    /// `None` if it is not banned. If the bans are shared, `replica` lifts it for all.
    pub fn pardon(&self, key: Key, replica: Option<u64>, now: Timestamp) -> Option<u64> {
        let mut refused = self.states.get_mut(&key)?;
        let left_ns = refused.state.banned_ns(now)?;
        if let Some(replica) = replica {
            refused.lifted_until = now.saturating_add_ns(left_ns);
            refused.stamp(replica, now);
        }
        refused.state.pardon();
        refused.untold = 0;
        (refused.found_until, refused.found) = (Timestamp::ZERO, Found::All);
        refused.count(&self.banned, now);
        Some(left_ns)
    }

    /// Notes that `replica` has just banned `key`.
    pub fn stamp(&self, key: Key, replica: u64, now: Timestamp) {
        if let Some(mut refused) = self.states.get_mut(&key) {
            refused.lifted_until = Timestamp::ZERO;
            refused.stamp(replica, now);
        }
    }

    /// The last change of the ban of `key`; `None` if there is nothing that other replicas need to know.
    pub fn change(&self, key: Key, now: Timestamp) -> Option<KeyBan> {
        self.states.get(&key)?.change(key, now)
    }

    /// Calls `seen` with the last change of each ban that other replicas need to know. Locks one shard at a time.
    pub fn each_change(&self, now: Timestamp, seen: impl FnMut(KeyBan)) {
        if self.len.load(Ordering::Relaxed) > 0 {
            self.states.iter().filter_map(|refused| refused.change(*refused.key(), now)).for_each(seen);
        }
    }

    /// Takes a change over that another replica made, unless a later one is known. Returns whether it did. Beyond
    /// `max_keys` keys, changes of new keys are ignored.
    pub fn hear(&self, ban: &KeyBan, rule: &ban::Rule, max_keys: usize, now: Timestamp) -> bool {
        if ban.until <= now {
            return false;
        }
        let Some(mut refused) = self.entry(ban.key, max_keys) else { return false };
        if ban.changed <= refused.changed {
            return false;
        }
        refused.changed = ban.changed;
        if let Some(bans) = ban.bans {
            refused.lifted_until = Timestamp::ZERO;
            refused.state.hold(rule, ban.until, bans, now);
        } else {
            refused.lifted_until = ban.until.min(now.saturating_add_ns(rule.longest_ns()));
            refused.state.pardon();
        }
        refused.count(&self.banned, now);
        true
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limit::ClockShift;
    use crate::engine::limit::Rate;

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
                    bans.sweep(at(second), 0);
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

    /// The begin and the end of each ban are reported once, also if both are between two sweeps.
    #[test]
    fn sweeps_report_bans_that_begin_and_end() {
        let bans = Bans::default();
        let ban = |number, second| (0..2).for_each(|_| _ = bans.refused(key(number), &rule(), 10, at(second)));
        let news = |second| {
            let BanNews { begun, ended, more_begun, more_ended, .. } = bans.sweep(at(second), 2);
            let begun: Vec<_> = begun.iter().map(|(key, left_ns)| (key.first, left_ns / SECOND_NS)).collect();
            (begun, ended.iter().map(|key| key.first).collect::<Vec<_>>(), more_begun, more_ended)
        };
        let (none, nothing) = (Vec::new(), (Vec::new(), Vec::new(), 0, 0));
        ban(4, 0);
        assert_eq!(news(1), (vec![(4, 4)], vec![], 0, 0));
        assert_eq!(news(4), nothing);
        assert_eq!(news(5), (none.clone(), vec![4], 0, 0));
        assert_eq!(news(6), nothing);
        // The second ban of ten seconds ends, and the third begins, between two sweeps.
        ban(4, 6);
        assert_eq!(news(7), (vec![(4, 9)], vec![], 0, 0));
        ban(4, 16);
        assert_eq!(news(17), (vec![(4, 19)], vec![4], 0, 0));
        // An operator who lifts a ban has a line for it.
        assert!(bans.pardon(key(4), None, at(18)).is_some());
        assert_eq!(news(19), nothing);
        // A ban that is over before the first sweep.
        ban(8, 20);
        assert_eq!(news(26), (vec![(8, 0)], vec![8], 0, 0));
        // A flood: keys have two lines, and the others are numbers.
        (10..15).for_each(|number| ban(4 * number, 100));
        let (begun, ended, more_begun, more_ended) = news(101);
        assert_eq!((begun.len(), ended.len(), more_begun, more_ended), (2, 0, 3, 0));
        let (begun, ended, more_begun, more_ended) = news(105);
        assert_eq!((begun.len(), ended.len(), more_begun, more_ended), (0, 2, 0, 3));
    }

    /// A process reports the end of bans that it has taken over and that continue, and of no other key.
    #[test]
    fn restored_bans_end_once() {
        let before = Bans::default();
        let ban = |number| (0..2).for_each(|_| _ = before.refused(key(number), &rule(), 10, at(0)));
        ban(4);
        before.refused(key(8), &rule(), 10, at(3));
        ban(12);
        before.pardon(key(12), None, at(1));
        for (second, ended) in [(3, vec![4]), (5, vec![])] {
            let mut packed = Vec::new();
            let pack = &mut |_: Tag, bytes: &[u8]| -> io::Result<()> {
                packed.extend_from_slice(bytes);
                Ok(())
            };
            before.pack(at(second), pack).unwrap();
            let bans = Bans::default();
            bans.unpack(&mut Unpacker::new(&packed, ClockShift::default()), at(second)).unwrap();
            let ends: Vec<_> = (second..20).flat_map(|second| bans.sweep(at(second), 9).ended).collect();
            assert_eq!(ends.iter().map(|key| key.first).collect::<Vec<_>>(), ended, "from {second} s");
        }
    }

    /// Three replicas hear changes in any order, twice, and agree.
    #[test]
    fn the_last_change_of_a_ban_counts() {
        let change = |second, replica, until, bans| KeyBan {
            key: key(1),
            changed: (at(second), replica),
            until: at(until),
            bans,
        };
        // changes, the instant of the look, the end of the ban
        let rows: [(&[KeyBan], u64, Option<u64>); 6] = [
            (&[change(1, 1, 6, Some(1))], 2, Some(6)),
            (&[change(1, 1, 6, Some(1)), change(2, 2, 6, None)], 3, None),
            (&[change(1, 1, 6, Some(1)), change(2, 2, 6, None), change(3, 3, 8, Some(1))], 4, Some(8)),
            (&[change(1, 1, 6, Some(1)), change(1, 2, 7, Some(1))], 2, Some(7)),
            (&[change(1, 1, 6, Some(1))], 7, None),
            // no longer than the longest ban of the rule
            (&[change(1, 1, 900, Some(1))], 1, Some(21)),
        ];
        for (changes, look, until) in rows {
            for order in 0..6 {
                let bans = Bans::default();
                let mut changes = changes.to_vec();
                let count = changes.len();
                changes.rotate_left(order % count);
                if order > 2 {
                    changes.reverse();
                }
                changes.iter().chain(&changes.clone()).for_each(|one| _ = bans.hear(one, &rule(), 10, at(1)));
                let left = until.map(|until| (until - look) * SECOND_NS);
                assert_eq!(bans.banned_ns(key(1), at(look)), left, "{changes:?}");
                bans.sweep(at(200), 0);
                assert!(bans.is_empty() && bans.banned.load(Ordering::Relaxed) == 0);
            }
        }
        assert!(!Bans::default().hear(&change(1, 1, 6, Some(1)), &rule(), 0, at(1)), "beyond the bound");
    }

    /// A replica whose clock is behind lifts the ban of another one, and the key can be banned again.
    #[test]
    fn a_change_is_later_than_what_it_changes() {
        let (here, there) = (Bans::default(), Bans::default());
        let tell = |from: &Bans, to: &Bans| {
            let change = from.change(key(1), at(0)).unwrap();
            assert!(to.hear(&change, &rule(), 10, at(0)));
            assert!(!to.hear(&change, &rule(), 10, at(0)), "twice");
        };
        (0..2).for_each(|_| _ = here.refused(key(1), &rule(), 10, at(3)));
        here.stamp(key(1), 7, at(3));
        tell(&here, &there);
        assert_eq!(there.banned_ns(key(1), at(3)), Some(5 * SECOND_NS));
        there.pardon(key(1), Some(5), at(0));
        tell(&there, &here);
        assert_eq!([here.banned(at(3)), there.banned(at(3))], [0, 0]);
        here.sweep(at(4), 0);
        assert!(here.change(key(1), at(4)).is_some(), "that it was lifted is remembered as long as the ban");
        (0..2).for_each(|_| _ = there.refused(key(1), &rule(), 10, at(0)));
        there.stamp(key(1), 5, at(0));
        tell(&there, &here);
        assert_eq!(here.banned_ns(key(1), at(3)), Some(2 * SECOND_NS));
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
