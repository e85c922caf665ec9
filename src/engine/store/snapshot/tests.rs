//! A restored table decides as the original does, and a damaged file is not restored.

use proptest::prelude::*;

use super::blocks::MAGIC;
use super::{Restored, Secret, Snapshot, SnapshotError, restore};
use crate::base::time::Timestamp;
use crate::engine::limit::{
    Algorithm, Allowance, Key, OnFull, Quota, Rate, ban, fixed_window, sliding_log, sub_window,
};
use crate::engine::store::{Bans, Table};

const SECOND_NS: u64 = 1_000_000_000;
const SECRET: Secret = *b"0123456789abcdef";

fn at(second: u64) -> Timestamp {
    Timestamp::from_ns((1_700_000_000 + second) * SECOND_NS)
}

/// Keys 4096 apart share a bucket of the overflow.
fn key(number: u64) -> Key {
    Key::of_hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number.rotate_right(8))
}

fn rate(count: u64, seconds: u64) -> Rate {
    Rate { count, period_ns: seconds * SECOND_NS }
}

fn bucket() -> Algorithm {
    Algorithm::TokenBucket(Quota::new(rate(2, 10), 4).unwrap())
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let several = [Algorithm::SlidingWindow(Allowance::new(rate(3, 60)).unwrap()), bucket()];
    prop_oneof![
        3 => Just(bucket()),
        1 => Just(Algorithm::FixedWindow(fixed_window::Rule::from_first(rate(3, 20)).unwrap())),
        1 => Just(Algorithm::SlidingLog(sliding_log::Rule::new(rate(3, 20)).unwrap())),
        1 => Just(Algorithm::SubWindow(sub_window::Rule::new(rate(4, 20), 5).unwrap())),
        1 => Just(Algorithm::Several(several.into())),
    ]
}

fn ban_rule() -> ban::Rule {
    ban::Rule::new(rate(2, 10), 5 * SECOND_NS, 20 * SECOND_NS).unwrap()
}

/// A snapshot of one limit, written at these instants of Weir's clock and of the system's.
fn written_by(name: &str, table: &Table, bans: &Bans, now: Timestamp, system: Timestamp) -> Vec<u8> {
    let mut snapshot = Snapshot::begin(Vec::new(), &SECRET, now, system).unwrap();
    snapshot.limit(name, table, bans, |_| None).unwrap();
    snapshot.finish().unwrap()
}

fn written(table: &Table, bans: &Bans, now: Timestamp) -> Vec<u8> {
    written_by("a", table, bans, now, now)
}

fn read(bytes: &[u8], now: Timestamp) -> Result<Restored, SnapshotError> {
    restore(bytes, now, |_| None)
}

/// The one limit in `bytes`.
fn only(bytes: &[u8], now: Timestamp) -> (Table, Bans) {
    let mut limits = read(bytes, now).unwrap().limits;
    assert_eq!(limits.len(), 1);
    let limit = limits.remove(0);
    (limit.table, limit.bans)
}

/// Requests: seconds since the request before, a key, a cost.
fn traces() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    prop::collection::vec((prop_oneof![5 => Just(0_u64), 1 => 1_u64..6], 0_u64..12, 0_u64..4), 1..80)
}

proptest! {
    #[test]
    fn what_is_restored_goes_on(
        rule in algorithms(), first in traces(), then in traces(), max_keys in 1_usize..12, sketch in any::<bool>(),
    ) {
        let on_full = if sketch { OnFull::Sketch } else { OnFull::Shared };
        let (table, bans) = (Table::new(&rule, max_keys, on_full), Bans::default());
        let mut second = 0;
        for (seconds, number, cost) in first {
            second += seconds;
            if !table.admit(key(number), &rule, cost, at(second)).is_admitted() {
                bans.refused(key(number), &ban_rule(), 100, at(second));
            }
        }
        let (restored, restored_bans) = only(&written(&table, &bans, at(second)), at(second));
        restored.set_bound(max_keys, on_full);
        table.sweep(at(second));
        bans.sweep(at(second), 0);
        prop_assert_eq!(restored.len(), table.len());
        prop_assert_eq!(restored_bans.banned(at(second)), bans.banned(at(second)));
        for (seconds, number, cost) in then {
            second += seconds;
            let (now, key) = (at(second), key(number));
            prop_assert_eq!(restored_bans.banned_ns(key, now), bans.banned_ns(key, now));
            let decided = table.admit(key, &rule, cost, now).decision;
            prop_assert_eq!(restored.admit(key, &rule, cost, now).decision, decided);
            if !decided.is_admitted() {
                let banned = bans.refused(key, &ban_rule(), 100, now);
                prop_assert_eq!(restored_bans.refused(key, &ban_rule(), 100, now), banned);
            }
        }
    }
}

/// A table with keys, shared buckets and bans, in a few hundred bytes.
fn some() -> Vec<u8> {
    let (table, bans) = (Table::new(&bucket(), 3, OnFull::Shared), Bans::default());
    for number in 0..5 {
        table.admit(key(number), &bucket(), 1, at(0));
        bans.refused(key(number), &ban_rule(), 2, at(0));
    }
    written(&table, &bans, at(0))
}

#[test]
fn what_is_cut_short_anywhere_is_refused() {
    let whole = some();
    assert!(read(&whole, at(0)).is_ok());
    for length in 0..whole.len() {
        assert!(matches!(read(&whole[..length], at(0)), Err(SnapshotError::Damaged(_))), "{length}");
    }
}

#[test]
fn a_bit_that_is_wrong_anywhere_is_noticed() {
    let whole = some();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match read(&bytes, at(0)) {
            Err(SnapshotError::Version(_)) => assert!((8..12).contains(&(bit / 8)), "{bit}"),
            Err(SnapshotError::Damaged(_)) => {}
            other => panic!("{bit}: {other:?}"),
        }
    }
}

#[test]
fn what_is_too_long_or_of_another_version_is_refused() {
    let mut longer = some();
    longer.push(0);
    assert_eq!(read(&longer, at(0)).unwrap_err().to_string(), "is damaged: there is data after its end");
    let mut newer = some();
    newer[8] = 3;
    assert_eq!(read(&newer, at(0)).unwrap_err().to_string(), "has version 3, and only version 2 is known");
    assert_eq!(
        read(b"[server]\n    ", at(0)).unwrap_err().to_string(),
        "is damaged: it does not begin like a snapshot"
    );
}

/// The checksums are right, and the content is malformed.
#[test]
fn what_no_snapshot_says_is_refused() {
    use super::blocks::{BlockWriter, Tag};
    let start = [&SECRET[..], &[0; 16]].concat();
    let limit = [&[1, b'a', 0][..], &[9, 0, 0, 0, 0, 0, 0, 0]].concat();
    let cases: [&[(Tag, &[u8])]; 8] = [
        &[(Tag::End, &[])],
        &[(Tag::Start, &start[1..]), (Tag::End, &[])],
        &[(Tag::Start, &start), (Tag::Start, &start), (Tag::End, &[])],
        &[(Tag::Start, &start), (Tag::Keys, &[]), (Tag::End, &[])],
        &[(Tag::Start, &start), (Tag::Limit, &limit[1..]), (Tag::End, &[])],
        &[(Tag::Start, &start), (Tag::Limit, &limit), (Tag::Keys, &[1; 17]), (Tag::End, &[])],
        &[(Tag::Start, &start), (Tag::Limit, &limit), (Tag::Sketch, &[1; 12]), (Tag::End, &[])],
        &[(Tag::Start, &start), (Tag::Limit, &limit), (Tag::Shared, &[255; 20]), (Tag::End, &[])],
    ];
    let with = |blocks: &[(Tag, &[u8])]| {
        let mut writer = BlockWriter::new(Vec::new()).unwrap();
        for (tag, payload) in blocks {
            writer.block(*tag, payload).unwrap();
        }
        read(&writer.finish().unwrap(), at(0))
    };
    assert!(with(&[(Tag::Start, &start), (Tag::Limit, &limit), (Tag::End, &[])]).is_ok());
    for blocks in cases {
        assert!(matches!(with(blocks), Err(SnapshotError::Damaged(_))), "{blocks:?}");
    }
}

#[test]
fn the_layout_is_that_of_version_2() {
    let (table, bans) = (Table::new(&bucket(), 258, OnFull::Shared), Bans::default());
    table.admit(Key { first: 4, second: 2 }, &bucket(), 1, Timestamp::from_ns(10));
    let bytes = written_by("ab", &table, &bans, Timestamp::from_ns(10), Timestamp::from_ns(11));
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut expected = [&MAGIC[..], &2_u32.to_le_bytes()].concat();
    // Five seconds: 26 bits, and the shift.
    let interval = (7 << 26) | u32::try_from((5 * SECOND_NS) >> 7).unwrap();
    let blocks: [(u8, Vec<u8>); 4] = [
        (1, [&SECRET[..], &10_u64.to_le_bytes(), &11_u64.to_le_bytes()].concat()),
        (2, [&[2, b'a', b'b', 0][..], &258_u64.to_le_bytes()].concat()),
        (3, {
            let key = [4_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat();
            let state = [&5_000_000_010_u64.to_le_bytes()[..], &interval.to_le_bytes(), &[0; 4]].concat();
            [key, state].concat()
        }),
        (7, Vec::new()),
    ];
    for (tag, payload) in blocks {
        expected.push(tag);
        expected.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        expected.extend(payload);
        let sum = crc32fast::hash(&expected);
        assert_eq!(number(expected.len()), sum);
        expected.extend(sum.to_le_bytes());
    }
    assert_eq!(bytes, expected);
}

/// A key that has spent its four units, of which one comes back every five seconds.
fn spent(now: u64, system: u64) -> Vec<u8> {
    let (table, bans) = (Table::new(&bucket(), 10, OnFull::Shared), Bans::default());
    table.admit(key(1), &bucket(), 4, at(now));
    bans.refused(key(1), &ban_rule(), 10, at(now));
    bans.refused(key(1), &ban_rule(), 10, at(now));
    written_by("a", &table, &bans, at(now), at(system))
}

#[test]
fn time_passes_as_the_clock_says_unless_it_was_set_back() {
    const DAY: u64 = 86_400;
    // at the time of writing: Weir's clock, the system's clock; then the system's clock, remaining units, seconds of the ban
    let rows = [
        (DAY, DAY, DAY, 0, Some(5)),
        (DAY, DAY, DAY + 5, 1, None),
        (DAY, DAY, DAY + 12, 2, None),
        // set back while Weir did not run: no time has passed
        (DAY, DAY, DAY - 3600, 0, Some(5)),
        (DAY, DAY, DAY - 3, 0, Some(5)),
        // set forward while it ran, or the machine slept
        (DAY, 2 * DAY, 2 * DAY, 0, Some(5)),
        (DAY, 2 * DAY, 2 * DAY + 5, 1, None),
        // set back while it ran
        (2 * DAY, DAY, DAY + 5, 1, None),
        (2 * DAY, DAY, DAY - 5, 0, Some(5)),
    ];
    for (now, system, then, left, banned) in rows {
        let row = format!("{now} {system} {then}");
        let (table, bans) = only(&spent(now, system), at(then));
        assert_eq!(table.peek(key(1), &bucket(), 0, at(then)).remaining, left, "{row}");
        assert_eq!(bans.banned_ns(key(1), at(then)), banned.map(|seconds: u64| seconds * SECOND_NS), "{row}");
    }
}

#[test]
fn a_table_has_room_as_the_configuration_says() {
    let bytes = spent(0, 0);
    assert_eq!(only(&bytes, at(0)).0.max_keys(), 10);
    let restored = restore(&bytes[..], at(0), |name| (name == "a").then_some(77)).unwrap();
    assert_eq!((restored.limits[0].table.max_keys(), restored.secret, restored.age_ns), (77, SECRET, 0));
}

#[test]
fn what_has_become_as_good_as_new_is_left_out() {
    assert_eq!(only(&spent(0, 0), at(3600)).0.len(), 0);
    let (table, bans) = (Table::new(&bucket(), 10, OnFull::Shared), Bans::default());
    table.admit(key(1), &bucket(), 4, at(0));
    assert_eq!(written(&table, &bans, at(3600)), written(&Table::new(&bucket(), 10, OnFull::Shared), &bans, at(3600)));
}

/// A writer that accepts a number of bytes and no more.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_is_full_is_an_error() {
    let (table, bans) = (Table::new(&bucket(), 10, OnFull::Shared), Bans::default());
    table.admit(key(1), &bucket(), 4, at(0));
    let length = written(&table, &bans, at(0)).len();
    let write = |room: usize| {
        let mut snapshot = Snapshot::begin(Full(room), &SECRET, at(0), at(0))?;
        snapshot.limit("a", &table, &bans, |_| None)?;
        snapshot.finish().map(drop)
    };
    assert!(write(length).is_ok());
    assert!((0..length).all(|room| write(room).is_err()));
}
