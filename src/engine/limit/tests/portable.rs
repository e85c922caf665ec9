//! Portable states decide as the states that they were made of.

use proptest::prelude::*;

use super::algorithm;
use super::properties::{algorithms, instants, start, traces};
use crate::base::time::Timestamp;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState, PortableRate, Unportable};

/// Rounded down to microseconds, as instants of a store are.
fn whole(at: Timestamp) -> Timestamp {
    at.saturating_sub_ns(at.as_ns() % 1000)
}

fn numbers(state: &AnyState, rule: &Algorithm, now: Timestamp) -> Vec<u64> {
    state.export(rule, now).concat()
}

proptest! {
    #[test]
    fn an_imported_state_decides_alike(
        rule in algorithms(), trace in traces(), next in traces(), skew_us in 0_u64..10_000_000,
    ) {
        let Ok(rule) = rule.to_portable(20) else { return Ok(()) };
        let mut state = AnyState::fresh(&rule);
        let mut now = start();
        for (index, (at, cost)) in instants(&rule, &trace, start()).into_iter().enumerate() {
            now = whole(at);
            state.admit(&rule, cost, now);
            if index % 7 == 6 {
                state.settle(&rule, 5 - i64::try_from(cost * 2).unwrap(), 4, now);
            }
        }
        let exported = numbers(&state, &rule, now);
        let mut rest = exported.iter().copied();
        let mut imported = AnyState::import(&rule, &mut rest, now).unwrap();
        prop_assert_eq!(rest.next(), None, "all numbers are read");
        prop_assert_eq!(numbers(&imported, &rule, now), exported.clone());
        // By another clock it has as many units.
        let there = start().saturating_add_ns(skew_us * 1000);
        let elsewhere = AnyState::import(&rule, &mut exported.into_iter(), there).unwrap();
        prop_assert_eq!(elsewhere.over(&rule, there), state.over(&rule, now));
        prop_assert_eq!(elsewhere.peek(&rule, 0, there).remaining, state.peek(&rule, 0, now).remaining);
        for (at, cost) in instants(&rule, &next, now) {
            prop_assert_eq!(imported.admit(&rule, cost, whole(at)), state.admit(&rule, cost, whole(at)));
        }
    }

    #[test]
    fn the_largest_debt_is_the_last_that_fits(rule in algorithms()) {
        prop_assume!(rule.to_portable(0).is_ok());
        let most = rule.portable_debt_max().unwrap();
        prop_assert!(rule.to_portable(most).is_ok());
        prop_assert!(rule.to_portable(most + 1).is_err());
    }

    /// Foreign numbers make a state that can be asked, or none.
    #[test]
    fn any_numbers_are_a_state_or_none(
        rule in algorithms(), found in prop::collection::vec(prop_oneof![0_u64..40, any::<u64>(), 0_u64..1 << 53], 0..12),
        next in traces(),
    ) {
        let Ok(rule) = rule.to_portable(20) else { return Ok(()) };
        if let Some(mut state) = AnyState::import(&rule, &mut found.into_iter(), start()) {
            for (now, cost) in instants(&rule, &next, start()) {
                state.admit(&rule, cost, now);
                state.over(&rule, now);
                state.settle(&rule, 3, 20, now);
            }
        }
    }
}

#[test]
fn rules_that_have_no_portable_form() {
    let rows: [(&str, u64, Option<Unportable>); 12] = [
        ("token_bucket 1/1day burst 104", 0, None),
        ("token_bucket 1/1day burst 105", 0, Some(Unportable::TooLong)),
        ("token_bucket 1/1day burst 100", 4, None),
        ("leaky_bucket 1/1day burst 100", 5, Some(Unportable::TooLong)),
        ("fixed_window 5/1365days from first", 9, None),
        ("fixed_window 5/1500ns from first", 0, Some(Unportable::Fraction)),
        ("fixed_window 4503599627370496 per 1 day UTC", 0, None),
        ("fixed_window 4503599627370496 per 1 day UTC", 1, Some(Unportable::TooMany)),
        ("sliding_window 4503599627370497/1h", 0, Some(Unportable::TooMany)),
        ("sliding_log 5/1ms999us1ns", 0, Some(Unportable::Fraction)),
        ("concurrency 4503599627370497", 0, Some(Unportable::TooMany)),
        ("token_bucket 1/1s burst 1+token_bucket 1/1day burst 105", 0, Some(Unportable::TooLong)),
    ];
    for (rule, max_debt, expected) in rows {
        assert_eq!(algorithm(rule).to_portable(max_debt).err(), expected, "{rule}, {max_debt}");
    }
}

#[test]
fn the_numbers_of_a_rule() {
    let noon = super::at("2023-11-14T12:00:00Z");
    let us = |text: &str| i64::try_from(super::at(text).as_ns() / 1000).unwrap();
    let rows = [
        ("token_bucket 2/1s burst 5", 1, [5, 500_000_000, 500_000_000, 500_000_007, 0]),
        ("leaky_bucket 1/1us burst 3 shapes", 2, [3, 1000, 1000, 1000, 1]),
        ("fixed_window 5/1s from first", 3, [5, 1_000_000, 0, 0, 0]),
        ("sliding_log 5/1s", 4, [5, 1_000_000, 0, 0, 0]),
        ("sliding_window 5/1s", 5, [5, 1_000_000, 0, 0, 0]),
        ("sub_window 5/1s in 3", 6, [5, 1_000_002, 333_334, 0, 0]),
        ("concurrency 5", 7, [5, 0, 0, 0, 0]),
    ];
    for (rule, algorithm_number, numbers) in rows {
        let found = algorithm(rule).to_portable(0).unwrap().portable_rate(noon);
        assert_eq!(found, PortableRate { algorithm: algorithm_number, numbers }, "{rule}");
    }
    let day = algorithm("fixed_window 5 per 1 day Europe/Berlin").portable_rate(noon);
    let [count, hash, begins, ends, next] = day.numbers;
    assert_eq!((count, ends, next), (5, us("2023-11-14T23:00:00Z"), us("2023-11-15T23:00:00Z")));
    assert!(hash < 0 && begins <= us("2023-11-14T12:00:00Z"));
    assert_ne!(hash, algorithm("fixed_window 5 per 1 day UTC").portable_rate(noon).numbers[1]);
    let second = algorithm("fixed_window 5 per 1 s UTC").portable_rate(noon.saturating_add_ns(999_999_999));
    assert_eq!(
        second.numbers[2..],
        [us("2023-11-14T12:00:00Z"), us("2023-11-14T12:00:01Z"), us("2023-11-14T12:00:02Z")]
    );
}
