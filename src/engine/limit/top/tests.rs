//! The guarantees of Space-Saving, compared with exact counts.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{PIECES, TEXT_BYTES_MAX, Top, TopKey};
use crate::engine::limit::Key;

fn key(number: u64) -> Key {
    Key { first: number.wrapping_mul(0x9e37_79b9_7f4a_7c15), second: number }
}

fn rows(keys: &[TopKey]) -> Vec<(&str, u64, u64)> {
    keys.iter().map(|key| (&*key.text, key.count, key.error)).collect()
}

#[test]
fn a_new_key_takes_the_place_of_the_least() {
    let mut top = Top::new(3);
    for (number, name, times) in [(1, "one", 5), (2, "two", 2), (3, "three", 3)] {
        (0..times).for_each(|_| top.offer(key(number), || name));
    }
    assert_eq!(rows(&top.top(10)), [("one", 5, 0), ("three", 3, 0), ("two", 2, 0)]);
    top.offer(key(4), || "four");
    assert_eq!(rows(&top.top(10)), [("one", 5, 0), ("three", 3, 0), ("four", 3, 2)]);
    assert_eq!(top.top(1).len(), 1);
    assert_eq!(top.total(), 11);
    top.halve();
    assert_eq!(rows(&top.top(10)), [("one", 2, 0), ("three", 1, 0), ("four", 1, 1)]);
    assert_eq!(top.total(), 4);
    top.offer(key(2), || "two");
    assert_eq!(rows(&top.top(10)), [("one", 2, 0), ("three", 1, 0), ("two", 2, 1)]);
    top.halve();
    top.halve();
    assert!(top.is_empty() && top.top(9).is_empty() && top.total() == 0);
}

#[test]
fn texts_are_cut_between_characters() {
    let mut top = Top::new(0);
    top.offer(key(1), || "é".repeat(1 + TEXT_BYTES_MAX / 2));
    assert_eq!(top.top(1)[0].text.len(), TEXT_BYTES_MAX);
    top.offer(key(2), || "x".to_owned() + &"é".repeat(TEXT_BYTES_MAX));
    assert_eq!(top.top(2).len(), 1, "room for one at least");
    assert_eq!(top.top(1)[0].text.len(), TEXT_BYTES_MAX - 1);
}

#[test]
fn recent_offers_come_first_and_are_forgotten() {
    let mut top = Top::new(3);
    let offer = |top: &mut Top, number, times| (0..times).for_each(|_| top.offer(key(number), || number.to_string()));
    let recent = |top: &Top| {
        let row = |key: TopKey| format!("{}:{}/{}", key.text, key.recent, key.count);
        top.top(9).into_iter().map(row).collect::<Vec<_>>().join(" ")
    };
    offer(&mut top, 1, 9);
    assert_eq!(recent(&top), "1:9/9");
    top.turn();
    offer(&mut top, 2, 5);
    offer(&mut top, 1, 1);
    assert_eq!(recent(&top), "1:10/10 2:5/5");
    (1..PIECES).for_each(|_| top.turn());
    assert_eq!(recent(&top), "2:5/5 1:1/10");
    top.turn();
    offer(&mut top, 3, 2);
    // A key without a slot takes the place of the least, and inherits its count but none of its recent offers.
    offer(&mut top, 4, 1);
    assert_eq!(recent(&top), "4:1/3 1:0/10 2:0/5");
    top.halve();
    assert_eq!(recent(&top), "4:1/1 1:0/5 2:0/2");
    (0..PIECES).for_each(|_| top.turn());
    assert_eq!(recent(&top), "1:0/5 2:0/2 4:0/1");
}

proptest! {
    #[test]
    fn counts_are_right_within_their_errors(
        capacity in 1_usize..20, offers in prop::collection::vec(prop_oneof![0_u64..5, 0_u64..60], 1..600),
        halvings in prop::collection::vec(0_usize..600, 0..5),
    ) {
        let mut top = Top::new(capacity);
        let mut exact: HashMap<Key, u64> = HashMap::new();
        for (at, number) in offers.iter().enumerate() {
            top.offer(key(*number), || "");
            *exact.entry(key(*number)).or_default() += 1;
            if halvings.contains(&at) {
                top.halve();
                for count in exact.values_mut() {
                    *count /= 2;
                }
            }
        }
        let is_halved = halvings.iter().any(|at| *at < offers.len());
        let total = if is_halved { top.total() } else { offers.len() as u64 };
        let most_error = total / capacity as u64;
        let found = top.top(usize::MAX);
        prop_assert!(found.len() <= capacity);
        prop_assert!(found.is_sorted_by(|one, next| (one.recent, one.count) >= (next.recent, next.count)));
        prop_assert_eq!(found.iter().map(|top_key| top_key.count).sum::<u64>(), total);
        for top_key in &found {
            let exact = exact[&top_key.hash];
            prop_assert!(top_key.count - top_key.error <= exact && exact <= top_key.count);
            prop_assert!(is_halved || (top_key.recent <= exact && exact <= top_key.recent + top_key.error));
            prop_assert!(top_key.error <= most_error + u64::from(is_halved));
        }
        for (key, count) in exact {
            prop_assert!(count <= most_error || found.iter().any(|top_key| top_key.hash == key));
        }
    }
}
