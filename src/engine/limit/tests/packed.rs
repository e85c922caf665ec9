//! Unpacked states equal packed ones; damage is noticed or harmless; a clock that was set refills nothing.

use proptest::prelude::*;

use super::properties::{after, algorithms, instants, singles, start, tick_ns, traces};
use super::{START_NS, at, ns, rate};
use crate::base::time::Timestamp;
use crate::engine::limit::sketch::Sketch;
use crate::engine::limit::state::State as _;
use crate::engine::limit::{Algorithm, AnyState, ClockShift, Key, Packed, Quota, Unpacker, ban, fixed_window};

const STILL: ClockShift = ClockShift { by_ns: 0, now: Timestamp::ZERO };

fn packed(what: &impl Packed) -> Vec<u8> {
    let mut bytes = Vec::new();
    what.pack(&mut bytes);
    bytes
}

/// Packs a state and unpacks it, with no bytes left over.
fn through<T: Packed>(what: &T, moved: ClockShift) -> T {
    let bytes = packed(what);
    let mut from = Unpacker::new(&bytes, moved);
    let back = T::unpack(&mut from).unwrap();
    assert!(from.is_empty());
    back
}

/// Whether its windows are the same for all keys.
fn is_cut_by_date(rule: &Algorithm) -> bool {
    match rule {
        Algorithm::FixedWindow(rule) => matches!(rule.windows(), fixed_window::Windows::Calendar(_)),
        Algorithm::SubWindow(_) => true,
        _ => false,
    }
}

proptest! {
    #[test]
    fn a_state_goes_on_as_if_nothing_had_been(rule in algorithms(), first in traces(), then in traces()) {
        let (mut state, end) = after(&rule, &first, true);
        let mut restored = through(&state, STILL);
        prop_assert_eq!(restored.idle_at(), state.idle_at());
        for (now, cost) in instants(&rule, &then, end) {
            prop_assert_eq!(restored.peek(&rule, cost, now), state.peek(&rule, cost, now));
            prop_assert_eq!(restored.wait(&rule, 3, cost, now), state.wait(&rule, 3, cost, now));
            prop_assert_eq!(restored.admit(&rule, cost, now), state.admit(&rule, cost, now));
            prop_assert_eq!(restored.over(&rule, now), state.over(&rule, now));
        }
    }

    /// Under another rule, as after a reload.
    #[test]
    fn a_state_adopts_another_rule_as_it_would_have(old in algorithms(), new in algorithms(), trace in traces()) {
        let (state, now) = after(&old, &trace, true);
        let mut restored = through(&state, STILL);
        let mut state = state;
        prop_assert_eq!(restored.admit(&new, 1, now), state.admit(&new, 1, now));
    }

    #[test]
    fn a_clock_that_was_set_refills_nothing(
        rule in singles(), trace in traces(), set_ns in -40_i64 * 86_400_000_000_000..40 * 86_400_000_000_000,
    ) {
        let (state, now) = after(&rule, &trace, true);
        let then = now.as_ns().checked_add_signed(set_ns).map(Timestamp::from_ns).unwrap();
        let restored = through(&state, ClockShift { by_ns: set_ns, now: then });
        let (before, behind) = (state.peek(&rule, 0, now), restored.peek(&rule, 0, then));
        prop_assert!(behind.remaining <= before.remaining, "{:?} {:?}", before, behind);
        prop_assert_eq!(restored.over(&rule, then), state.over(&rule, now));
        if is_cut_by_date(&rule) {
            prop_assert_eq!(behind.remaining, before.remaining);
        } else {
            prop_assert_eq!(behind, before);
        }
    }

    #[test]
    fn truncated_bytes_are_refused(rule in algorithms(), trace in traces(), cut in any::<prop::sample::Index>()) {
        let bytes = packed(&after(&rule, &trace, true).0);
        let short = &bytes[..cut.index(bytes.len())];
        prop_assert!(AnyState::unpack(&mut Unpacker::new(short, STILL)).is_none());
    }

    /// Checksums keep damage out. Bytes that are made on purpose must not crash a process either.
    #[test]
    fn whatever_is_unpacked_can_be_asked(
        rule in algorithms(), trace in traces(), place in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let (state, now) = after(&rule, &trace, true);
        let mut bytes = packed(&state);
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Some(mut state) = AnyState::unpack(&mut Unpacker::new(&bytes, STILL)) {
            for ticks in [0, 1, 40, 400] {
                let now = now.saturating_add_ns(ticks * tick_ns(&rule));
                state.peek(&rule, 1, now);
                state.admit(&rule, 2, now);
                state.wait(&rule, 2, 1, now);
                state.settle(&rule, -1, 3, now);
                state.idle_at();
            }
        }
    }

    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let from = Unpacker::new(&bytes, ClockShift { by_ns: -1, now: start() });
        let _ = AnyState::unpack(&mut from.clone());
        let _ = Sketch::unpack(&mut from.clone());
        let _ = ban::State::unpack(&mut from.clone());
    }

    #[test]
    fn a_sketch_goes_on(asked in prop::collection::vec((0_u64..200, 1_u64..4), 1..200), set_ns in any::<i32>()) {
        let quota = Quota::new(rate("3/1s"), 5).unwrap();
        let mut sketch = Sketch::new(64, &quota);
        let key = |number: u64| Key { first: number.wrapping_mul(0x9e37_79b9_7f4a_7c15), second: number << 20 };
        let (early, late) = asked.split_at(asked.len() / 2);
        for (number, cost) in early {
            sketch.admit(key(*number), &quota, *cost, start());
        }
        let then = Timestamp::from_ns(START_NS.saturating_add_signed(set_ns.into()));
        let mut restored = through(&sketch, ClockShift { by_ns: set_ns.into(), now: then });
        for (number, cost) in late {
            let decided = sketch.admit(key(*number), &quota, *cost, start()).0;
            prop_assert_eq!(restored.admit(key(*number), &quota, *cost, then).0, decided);
        }
    }
}

#[test]
fn a_ban_goes_on() {
    let rule = ban::Rule::new(rate("2/1min"), ns("10min"), ns("1day")).unwrap();
    let mut state = ban::State::default();
    assert_eq!((state.refused(&rule, at("0s")), state.refused(&rule, at("1s"))), (None, Some(ns("10min"))));
    let mut restored = through(&state, STILL);
    assert_eq!(restored, state);
    assert_eq!(restored.banned_ns(at("2min")), Some(ns("8min 1s")));
    assert_eq!((restored.refused(&rule, at("1h")), restored.refused(&rule, at("1h"))), (None, Some(ns("20min"))));

    let day_ns = i64::try_from(ns("1day")).unwrap();
    let earlier = through(&state, ClockShift { by_ns: -day_ns, now: at("0s") });
    assert_eq!(earlier.banned_ns(at("0s").saturating_sub_ns(ns("1day"))), Some(ns("10min 1s")));
}

#[test]
fn requests_in_flight_end_with_the_process() {
    let rule = super::algorithm("concurrency 3");
    let mut state = AnyState::fresh(&rule);
    state.admit(&rule, 2, at("0s"));
    assert_eq!(through(&state, STILL).peek(&rule, 0, at("0s")).remaining, 3);
}
