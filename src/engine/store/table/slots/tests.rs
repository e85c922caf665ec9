//! A key that was added is found, also while other threads move it.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::{Group, KEYS_PER_STRIPE, SLOTS, SLOTS_PER_KEYS, STRIPES_MAX, STRIPES_MIN, Slots};
use crate::engine::limit::Key;
use crate::engine::limit::token_bucket::State;
use crate::engine::store::table::map::Map;

/// A key; with `crowded`, one of many keys of the same group.
fn key(number: u64, crowded: bool) -> Key {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    Key { first: if crowded { mixed << 40 } else { mixed ^ mixed >> 32 }, second: mixed.rotate_left(23) }
}

/// A state that holds a number.
fn state(number: u64) -> State {
    State::from_words([number, number << 32])
}

fn number(state: &State) -> u64 {
    state.to_words()[0]
}

/// Adds one to the number of a key, which is 0 if there is none.
fn count(slots: &Slots, key: Key) -> u64 {
    slots.entry(key, |known| match known {
        Some(known) => {
            *known = state(number(known) + 1);
            (None, number(known))
        }
        None => (Some(state(1)), 1),
    })
}

/// The number of spilled keys.
fn spilled(slots: &Slots) -> usize {
    slots.stripes().iter().map(|stripe| stripe.lock().len()).sum()
}

fn groups(slots: &Slots) -> usize {
    slots.groups.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn every_key_is_found_while_the_groups_become_more() {
    for crowded in [false, true] {
        let (slots, all) = (Slots::new(0), 20_000_u64);
        for added in 0..all {
            assert_eq!(count(&slots, key(added, crowded)), 1);
            // A key that was added before, and a key that will be added.
            let before = added / 2;
            assert_eq!(slots.find(key(before, crowded), |found| number(found)).ok(), Some(1), "{before} of {added}");
            assert!(slots.find(key(added + 1, crowded), |_| ()).is_err());
        }
        assert_eq!(slots.len() as u64, all);
        for added in 0..all {
            assert_eq!(slots.find(key(added, crowded), |found| number(found)).ok(), Some(1), "{added}");
        }
        assert_eq!(slots.retain(|_| false) as u64, all);
        assert_eq!((slots.len(), spilled(&slots)), (0, 0));
        assert!(slots.find(key(0, crowded), |_| ()).is_err());
    }
}

/// The module's doc has the fraction of spilled keys, and the memory of a key.
#[test]
fn few_are_spilled_and_few_slots_are_empty() {
    let slots = Slots::new(100 * KEYS_PER_STRIPE);
    let mut most = 0.0_f64;
    for added in 0..200_000_u32 {
        count(&slots, key(added.into(), false));
        if added > 5000 && added % 1000 == 0 {
            let part = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / f64::from(added);
            most = most.max(part(spilled(&slots)));
            let bytes = part(groups(&slots) * size_of::<Group>());
            assert!(bytes < 60.0 || groups(&slots) == slots.stripe_count, "{bytes} bytes a key with {added} keys");
        }
    }
    assert!(most < 0.05, "{most} of the keys are spilled");
}

#[test]
fn as_many_groups_as_the_keys_need() {
    let (slots, (numerator, denominator)) = (Slots::new(0), SLOTS_PER_KEYS);
    assert_eq!(groups(&slots), STRIPES_MIN);
    (0..10_000).for_each(|added| _ = count(&slots, key(added, false)));
    assert_eq!(groups(&slots), (10_000 * numerator).div_ceil(denominator * SLOTS));
}

#[test]
fn memory_is_taken_for_the_first_key() {
    let slots = Slots::new(usize::MAX);
    assert!(slots.find_fast(key(0, false), |_| ()).is_none());
    slots.visit(|_, _| ());
    assert_eq!((slots.retain(|_| false), slots.stripes().len()), (0, 0));
    count(&slots, key(0, false));
    assert_eq!(slots.stripes().len(), STRIPES_MAX);
}

/// Each index has a group of its own, in no more memory than the indices need.
#[test]
fn each_index_has_its_group() {
    let slots = Slots::new(0);
    let indices = STRIPES_MIN * 8;
    let groups: HashSet<_> = (0..indices).map(|index| std::ptr::from_ref(slots.group(index))).collect();
    assert_eq!(groups.len(), indices);
    let segments = slots.segments.iter().filter_map(|segment| Some(segment.get()?.len()));
    assert_eq!(segments.collect::<Vec<_>>(), [STRIPES_MIN, STRIPES_MIN, 2 * STRIPES_MIN, 4 * STRIPES_MIN]);
}

/// Threads count the same keys while other keys come and go and a thread sweeps: no count is lost or made twice.
#[test]
fn threads_lose_no_count() {
    const KEYS: u64 = 3000;
    const ROUNDS: u64 = 20;
    const THREADS: u64 = 4;
    let slots = &Slots::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    for step in 0..KEYS {
                        let counted = key((step * 7 + thread * 1000 + round) % KEYS, step % 2 == 0);
                        let fast = slots.find_fast(counted, |found| *found = state(number(found) + 1));
                        if fast.is_none() {
                            count(slots, counted);
                        }
                        // A key of this thread only, to be swept.
                        let own = key(KEYS * (thread + 1) + (step + round * KEYS) % 20_000, false);
                        slots.entry(own, |_| (Some(state(0)), ()));
                    }
                    slots.retain(|found| number(found) > 0);
                }
            });
        }
    });
    slots.retain(|found| number(found) > 0);
    let counts = (0..KEYS).flat_map(|kept| [key(kept, false), key(kept, true)]);
    let counts: Vec<u64> = counts.filter_map(|kept| slots.find(kept, |found| number(found)).ok()).collect();
    assert_eq!(counts.iter().sum::<u64>(), KEYS * ROUNDS * THREADS);
    assert_eq!(counts.len(), slots.len());
}

/// The pending units of up to `most` keys about, by key.
fn taken(slots: &Slots, most: usize) -> HashMap<Key, i64> {
    let mut sums = HashMap::new();
    slots.take_pending(most, |key, units| *sums.entry(key).or_default() += units);
    sums
}

#[test]
fn pending_units_are_added_up_and_taken_once() {
    let (slots, [one, two, unknown]) = (Slots::new(0), [0, 1, 2].map(|number| Group::stored(key(number, false))));
    for known in [one, two] {
        count(&slots, known);
    }
    let most = i64::from(i32::MAX);
    for (key, units, before) in [
        (one, 3, Some(0)),
        (unknown, 1, None),
        (one, -5, Some(3)),
        (two, most, Some(0)),
        (two, 1, None),
        (two, i64::MAX, None),
        (one, i64::MIN, None),
        (two, -1, Some(most)),
    ] {
        assert_eq!(slots.add_pending(key, units), before, "{units}");
    }
    assert_eq!(taken(&slots, 10), HashMap::from([(one, -2), (two, most - 1)]));
    assert_eq!(taken(&slots, 10), HashMap::new());
    assert_eq!(slots.add_pending(one, 7), Some(0));
    for (key, units, is_withdrawn) in
        [(one, 8, false), (one, 5, true), (one, 3, false), (one, u64::MAX, false), (two, 1, false), (unknown, 0, false)]
    {
        assert_eq!(slots.withdraw_pending(key, units), is_withdrawn, "{units}");
    }
    assert_eq!(taken(&slots, 10), HashMap::from([(one, 2)]));
    assert_eq!(slots.find(one, |found| number(found)).ok(), Some(1), "the state is as before");
}

/// Keys take their units along when a group is split, and are swept only without units.
#[test]
fn pending_units_stay_with_their_key() {
    for crowded in [false, true] {
        let (slots, all) = (Slots::new(0), 20_000_u64);
        let mut added = HashMap::new();
        for number in 0..all {
            count(&slots, key(number, crowded));
            for (number, units) in [(number, 1), (number / 2, 2)] {
                let key = Group::stored(key(number, crowded));
                if slots.add_pending(key, units).is_some() {
                    *added.entry(key).or_insert(0) += units;
                }
            }
        }
        assert_eq!(slots.retain(|_| false) + added.len(), usize::try_from(all).unwrap());
        assert!(crowded || added.len() > 18_000, "most keys are in slots, not {}", added.len());
        let mut left = added.len();
        while left > 0 {
            let part = taken(&slots, 100);
            assert!((1..100 + 64 * SLOTS).contains(&part.len()), "{}", part.len());
            left -= part.len();
            for (key, units) in part {
                assert_eq!(added.remove(&key), Some(units));
            }
        }
        slots.retain(|_| false);
        assert_eq!((slots.len(), spilled(&slots)), (0, 0));
    }
}

/// Threads add units to keys that are split and swept, and another thread takes them: none is lost or taken twice.
#[test]
fn threads_lose_no_pending_unit() {
    const KEYS: u64 = 2000;
    const ROUNDS: u64 = 30;
    let (slots, is_over) = (&Slots::new(0), &std::sync::atomic::AtomicBool::new(false));
    let (added, mut received) = std::thread::scope(|scope| {
        let taker = scope.spawn(move || {
            let mut received = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                received += taken(slots, 500).values().sum::<i64>();
            }
            received
        });
        let adders: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    let mut added = 0;
                    for step in 0..KEYS * ROUNDS {
                        let key = key((step * 7 + thread * 500) % KEYS + step / KEYS * 100, step % 5 == 0);
                        count(slots, key);
                        added += i64::from(slots.add_pending(key, 1).is_some());
                        if step % 1000 == 0 {
                            slots.retain(|_| false);
                        }
                    }
                    added
                })
            })
            .collect();
        let added: i64 = adders.into_iter().map(|adder| adder.join().unwrap()).sum();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        (added, taker.join().unwrap())
    });
    received += taken(slots, usize::MAX).values().sum::<i64>();
    assert_eq!(received, added);
    assert!(added > 0);
}

/// An operation on a key.
#[derive(Clone, Debug)]
enum Step {
    Count,
    Find,
    SweepBelow(u64),
}

/// A step and its key. One number for both costs less than a strategy of each.
fn step(number: u32) -> (Step, u64, bool) {
    let (number, is_crowded) = (u64::from(number / 2), number % 2 == 1);
    let (number, which) = (number / 400, number % 400);
    let step = match number % 13 {
        0..8 => Step::Count,
        8..12 => Step::Find,
        _ => Step::SweepBelow(1 + number / 13 % 3),
    };
    (step, which, is_crowded)
}

fn steps() -> impl Strategy<Value = Vec<(Step, u64, bool)>> {
    let numbers = prop::collection::vec(any::<u32>(), 1..2000);
    numbers.prop_map(|numbers| numbers.into_iter().map(step).collect())
}

proptest! {
    #[test]
    fn it_is_a_map(steps in steps()) {
        let (slots, mut map) = (Slots::new(0), HashMap::<(u64, bool), u64>::new());
        for (step, which, crowded) in steps {
            let at = key(which, crowded);
            match step {
                Step::Count => {
                    let counted = map.entry((which, crowded)).or_default();
                    *counted += 1;
                    prop_assert_eq!(count(&slots, at), *counted);
                }
                Step::Find => {
                    prop_assert_eq!(slots.find(at, |found| number(found)).ok(), map.get(&(which, crowded)).copied());
                }
                Step::SweepBelow(least) => {
                    let before = map.len();
                    map.retain(|_, counted| *counted >= least);
                    prop_assert_eq!(slots.retain(|found| number(found) >= least), before - map.len());
                }
            }
            prop_assert_eq!(slots.len(), map.len());
        }
    }
}
