//! Rows with time as a column, and properties of bans.

use proptest::prelude::*;

use super::{Rule, State};
use crate::engine::limit::QuotaError::{TooLong, Zero};
use crate::engine::limit::tests::{at, ns, rate};

fn rule(after: &str, length: &str, most: &str) -> Rule {
    Rule::new(rate(after), ns(length), ns(most)).unwrap()
}

/// Runs `AT refused TIMES BAN` (the last of these refusals starts a ban, or `-`), `AT heard TIMES SINCE BAN` (refusals of
/// `SINCE`) and `AT banned REMAINING`.
fn check(rule: &Rule, rows: &str) {
    let mut state = State::default();
    let duration = |text: &str| Some(text).filter(|text| *text != "-").map(ns);
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#')) {
        match row.split_whitespace().collect::<Vec<_>>()[..] {
            [when, "refused", times, ban] => {
                let times: u32 = times.parse().unwrap();
                let bans: Vec<_> = (0..times).map(|_| state.refused(rule, at(when))).collect();
                let (last, others) = bans.split_last().unwrap();
                assert!(others.iter().all(Option::is_none), "too early: {row}");
                assert_eq!(*last, duration(ban), "{row}");
            }
            [when, "heard", times, since, ban] => {
                let found = state.refused_at(rule, times.parse().unwrap(), at(since), at(when));
                assert_eq!(found, duration(ban), "{row}");
            }
            [when, "banned", left] => assert_eq!(state.banned_ns(at(when)), duration(left), "{row}"),
            [when, "ban", ban] => assert_eq!(Some(state.ban(rule, at(when))), duration(ban), "{row}"),
            [when, "idle"] => assert_eq!(state.idle_at(), at(when), "{row}"),
            ["pardon"] => state.pardon(),
            _ => panic!("not a row: {row}"),
        }
    }
}

/// A window begins with the earliest refusal in it.
#[test]
fn refusals_of_the_past_count_in_their_window() {
    check(
        &rule("3/1m", "10m", "30m"),
        "
          10s     heard    1  0s   -
          60s     heard    9  0s   -
          70s     refused  1  -
          80s     heard    1  30s  -
          90s     idle
          90s     refused  2  -
          100s    heard    1  95s  10m
          101s    heard    9  95s  -
        ",
    );
}

#[test]
fn bans_grow_and_are_forgotten() {
    check(
        &rule("3/1m", "10m", "30m"),
        "
        # two in one minute, two in the next
          0s      refused  2  -
          1m      idle
          60s     refused  2  -
          2m      idle
          61s     banned   -
          61s     refused  1  10m
          61s     banned   10m
        # knocking does not make it longer
          62s     refused  9  -
          660s    banned   1s
          661s    banned   -
        # each is twice as long, up to the most
          661s    refused  3  20m
          1861s   refused  3  30m
          3661s   refused  3  30m
        # forgotten half an hour after the last
          7261s   idle
          7260s   refused  2  -
          7261s   refused  1  10m
        # also while refusals are being counted
          7861s   ban  20m
          pardon
          7861s   banned  -
          7861s   refused  3  10m
        ",
    );
}

#[test]
fn rules_that_cannot_be() {
    let new = |after, for_ns, for_max_ns| Rule::new(rate(after), for_ns, for_max_ns).err();
    let rows =
        [("1/1s", 1, 1, None), ("0/1s", 1, 1, Some(Zero)), ("1/1s", 0, 1, Some(Zero)), ("1/1s", 2, 1, Some(TooLong))];
    for (after, for_ns, for_max_ns, error) in rows {
        assert_eq!(new(after, for_ns, for_max_ns), error);
    }
    assert_eq!(new("1/1s", 1, u64::MAX), Some(TooLong));
    assert_eq!(rule("1/1s", "1s", "24h").length_ns(u32::MAX), ns("24h"));
}

proptest! {
    #[test]
    fn never_for_fewer_and_always_for_twice_as_many(after in 1_u64..6, gaps_s in prop::collection::vec(0_u64..40, 1..80)) {
        let rule = rule(&format!("{after}/1m"), "10m", "24h");
        let mut state = State::default();
        let (mut now, mut counted) = (at("0s"), Vec::new());
        for gap_s in gaps_s {
            now = now.saturating_add_ns(gap_s * 1_000_000_000);
            if state.banned_ns(now).is_some() {
                continue;
            }
            counted.push(now);
            let recent = counted.iter().filter(|then| now.ns_since(**then) < ns("1m")).count() as u64;
            let is_banned = state.refused(&rule, now).is_some();
            prop_assert!(!is_banned || recent >= after);
            prop_assert!(is_banned || recent < 2 * after - 1);
            if is_banned {
                counted.clear();
            }
        }
    }

    #[test]
    fn idle_equals_fresh(gaps_s in prop::collection::vec(0_u64..900, 1..60), next in prop::collection::vec(0_u64..900, 1..60)) {
        let rule = rule("3/1m", "1m", "10m");
        let (mut state, mut now) = (State::default(), at("0s"));
        for gap_s in gaps_s {
            now = now.saturating_add_ns(gap_s * 1_000_000_000);
            state.refused(&rule, now);
        }
        let mut fresh = State::default();
        now = now.max(state.idle_at());
        for gap_s in next {
            now = now.saturating_add_ns(gap_s * 1_000_000_000);
            prop_assert_eq!(state.banned_ns(now), fresh.banned_ns(now));
            prop_assert_eq!(state.refused(&rule, now), fresh.refused(&rule, now));
        }
    }
}
