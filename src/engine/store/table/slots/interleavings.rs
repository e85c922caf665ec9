//! All orders in which threads can charge, add, move, drop and take keys. A group has two slots here, and there are two.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Slots;
use crate::engine::limit::Key;
use crate::engine::limit::token_bucket::State;
use crate::engine::store::table::map::Map;

/// What one thread does. Returns a number for the check at the end.
type Change = fn(&Slots) -> u64;

/// A key by its group of two, its group of three, and a number that tells alike ones apart.
type Named = (usize, usize, u64);

const STAYS: Named = (0, 0, 1);
const STAYS_TOO: Named = (0, 0, 2);
const SPILLED: Named = (0, 0, 3);
const MOVES: Named = (0, 2, 4);
const OTHER: Named = (1, 1, 5);

fn key((before, after, second): Named) -> Key {
    let is_there = |key: &Key| Slots::index(*key, 2) == before && Slots::index(*key, 3) == after;
    (0..64).map(|first| Key { first: first << 2, second }).find(is_there).unwrap()
}

fn units(state: &State) -> u64 {
    state.to_words()[0]
}

fn add_unit(state: &mut State) {
    *state = State::from_words([units(state) + 1, 0]);
}

/// Charges a unit, as a table does: at the first look, or else under the lock of the stripe.
fn charge(slots: &Slots, charged: Named) -> u64 {
    if slots.find_fast(key(charged), add_unit).is_none() {
        slots.entry(key(charged), |known| match known {
            Some(known) => (None, add_unit(known)),
            None => (Some(State::from_words([1, 0])), ()),
        });
    }
    0
}

/// Notes a pending unit. Returns how many it could not note.
fn add_pending(slots: &Slots, charged: Named) -> u64 {
    u64::from(slots.add_pending(key(charged), 1).is_none())
}

/// Takes the pending units.
fn take_pending(slots: &Slots) -> u64 {
    let mut taken = 0;
    slots.take_pending(usize::MAX, |_, units| taken += units.unsigned_abs());
    taken
}

/// Lets two threads change slots to which the keys `known` were charged, in all orders with at most two preemptions.
/// `check` sees the slots afterwards, and the sum of what the threads returned.
fn threads(known: &'static [Named], changes: [Change; 2], check: impl Fn(&Slots, u64) + Send + Sync + 'static) {
    let mut search = loom::model::Builder::new();
    search.preemption_bound = Some(2);
    search.check(move || {
        let slots = Arc::new(Slots::new(0));
        // Threads that only meet at a `OnceLock` are not ordered in the search.
        for index in 0..4 {
            slots.pending(index);
        }
        drop(slots.stripe(0));
        for key in known {
            charge(&slots, *key);
        }
        let started = changes.map(|change| {
            let slots = Arc::clone(&slots);
            loom::thread::spawn(move || change(&slots))
        });
        let sum = started.into_iter().map(|thread| thread.join().unwrap()).sum();
        check(&slots, sum);
    });
}

/// Checks the units of all keys.
fn check_units(slots: &Slots, expected: &[(Named, u64)]) {
    let mut found = Vec::new();
    slots.visit(|key, state| found.push((key.second, units(state))));
    found.sort_unstable();
    let expected: Vec<_> = expected.iter().map(|((_, _, number), units)| (*number, *units)).collect();
    assert_eq!((found, slots.len()), (expected.clone(), expected.len()));
}

#[test]
fn charges_of_a_key_add_up() {
    let charges: Change = |slots| charge(slots, STAYS);
    threads(&[], [charges; 2], |slots, _| check_units(slots, &[(STAYS, 2)]));
    threads(&[STAYS], [charges; 2], |slots, _| check_units(slots, &[(STAYS, 3)]));
}

/// The third key splits a group. A key of that group moves, is charged meanwhile, and exists once.
#[test]
fn a_key_that_moves_keeps_its_charges() {
    let (adds, charges): (Change, Change) = (|slots| charge(slots, OTHER), |slots| charge(slots, MOVES));
    threads(&[STAYS, MOVES], [adds, charges], |slots, _| {
        check_units(slots, &[(STAYS, 1), (MOVES, 2), (OTHER, 1)]);
        assert_eq!(slots.groups.load(Ordering::Relaxed), 3);
    });
}

/// A key that does not fit into its group is charged while a sweep makes room for it there.
#[test]
fn a_key_outside_of_its_group_keeps_its_charges() {
    let sweeps: Change = |slots| slots.retain(|state| units(state) != 3) as u64;
    let charges: Change = |slots| charge(slots, SPILLED);
    threads(&[STAYS, STAYS, STAYS, STAYS_TOO, SPILLED], [sweeps, charges], |slots, dropped| {
        assert_eq!(dropped, 1);
        check_units(slots, &[(STAYS_TOO, 1), (SPILLED, 2)]);
    });
}

/// A sweep drops a key before its charge, or sees the charge.
#[test]
fn a_sweep_drops_no_charge() {
    let sweeps: Change = |slots| slots.retain(|state| units(state) != 1) as u64;
    threads(&[STAYS], [sweeps, |slots| charge(slots, STAYS)], |slots, dropped| {
        check_units(slots, &[(STAYS, 2 - dropped)]);
    });
}

/// A unit that peers have not heard of is taken once, also if its key moves. A key with such a unit is not dropped.
#[test]
fn pending_units_are_taken_once() {
    let adds: Change = |slots| add_pending(slots, MOVES);
    let splits: Change = |slots| charge(slots, OTHER);
    let sweeps: Change = |slots| {
        slots.retain(|_| false);
        0
    };
    for (changes, all) in [([adds, adds], 2), ([adds, take_pending], 1), ([adds, splits], 1), ([adds, sweeps], 1)] {
        threads(&[STAYS, MOVES], changes, move |slots, counted| assert_eq!(counted + take_pending(slots), all));
    }
    for other in [take_pending as Change, splits, sweeps] {
        let takes: Change = |slots| add_pending(slots, MOVES) + take_pending(slots);
        threads(&[STAYS, MOVES], [takes, other], |slots, counted| assert_eq!(counted + take_pending(slots), 1));
    }
}
