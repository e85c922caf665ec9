//! Charges that a caller names: all or none, at once, with stores and without.
//!
//! The answer to a row `check` has the units that remain of the decisive limit. `KEY*UNITS@COUNT/PERIOD` requests a rate.

use super::{CAPS, check, install, limit, new_gate, pairs_of, scripts};
use crate::engine::gate::lookup::KeyError;
use crate::engine::gate::named_charge::ChargeError;
use crate::engine::limit::Rate;
use crate::engine::policy::{KeyPart, Limit, Match, Mode, OnLimit};

scripts! {
    all_limits_are_charged_or_none: "
        limit a 10 1s 5 reject
        limit b 1 1s 2 reject
        0s check both a=1 b=1    > pass/1
        0s check again a=1 b=1   > pass/0
        0s check one a=1 b=1     > Limit/0 1s
        0s check only-a a=1      > pass/2
        0s check more a=1*5      > Limit/2 300ms
        1s check later a=1*2 b=1 > pass/0
    ";

    charges_of_one_key_are_added: "
        limit a 1 1h 5 reject
        limit s 1 1h 5 reject redis=1
        0s  check first a=1*2 a=1*2 a=2 > pass/1
        0s  check second a=1 a=1        > Limit/1 1h
        0s  check looks a=1*0 a=1*0 a=1 > pass/0
        5ms check stored s=1*2 s=1*2    > pass/1
        6ms remain s=1 1
    ";
}

/// A look asks the store also if the limit lends units: another replica may have spent all.
#[tokio::test(start_paused = true)]
async fn a_look_asks_the_store_of_a_lease() {
    for strategy in ["redis=2", "lease=2,4"] {
        check(&format!(
            "
            limit a 1 1h 10 reject {strategy}
            0ms check look a=1*0       > pass/10
            1ms remain a=1 10
            1ms elsewhere a=1 4
            2ms check less a=1*0       > pass/6
            3ms elsewhere a=1 6
            4ms check none a=1*0       > Limit/0 3599997ms
            5ms check none-again a=1*0 > Limit/0 3599996ms
            6ms calls 4
            7ms elsewhere a=1 -1
            8ms check one a=1*0        > pass/1
            ",
        ))
        .await;
    }
    // Units at hand can be spent.
    check(
        "
        limit a 1 1h 10 reject lease=2,4
        0ms check spend a=1  > pass/9
        1ms elsewhere a=1 6
        2ms check look a=1*0 > pass/3
        3ms check rest a=1*3 > pass/0
        4ms check none a=1*0 > Limit/0 3599996ms
        ",
    )
    .await;
}

scripts! {
    a_look_charges_nothing: "
        limit a 10 1s 2 reject
        limit b 10 1s 2 reject
        0s    check look a=1*0        > pass/2
        0s    check look-again a=1*0  > pass/2
        0s    check all a=1*2         > pass/0
        0s    check empty a=1*0       > Limit/0 100ms
        0s    check mixed a=1*0 b=1*2 > Limit/0 100ms
        0s    check b b=1*2           > pass/0
        50ms  check soon a=1*0        > Limit/0 50ms
        100ms check one a=1*0         > pass/1
    ";

    a_cost_beyond_the_burst_never_passes: "
        limit a 10 1s 2 reject
        0s check much a=1*3 > Limit/2 never
        0s check rest a=1*2 > pass/0
    ";

    limits_that_hold_or_delay_refuse_at_once: "
        limit a 1 1s 1 hold=forever
        limit b 1 1s 1 delay=1s,9s
        0s    check first a=1 b=1 > pass/0
        0s    check a a=1         > Limit/0 1s
        0s    check b b=1         > Limit/0 1s
        0s    ask waits a=1       > 1s pass
        0s    ask waits-too a=1   > 2s pass
        0s    check behind a=1    > Limit/0 3s
        500ms check look a=1*0    > Limit/0 2500ms
    ";

    /// A key that gets no limit after its ban stays banned.
    a_ban_outweighs_an_override_without_a_limit: "
        limit a 1 1s 1 reject ban=1/1s,10s,1h
        0s check first a=k  > pass/0
        0s check second a=k > Limit/0 1s
        1s limit a 1 1s 1 reject ban=1/1s,10s,1h override=k,unlimited
        1s check banned a=k > Banned/1 9s
        2s check look a=k*0 > Banned/1 8s
        2s check other a=2  > pass/0
    ";

    refusals_lead_to_bans: "
        limit a 1 1h 1 reject ban=2/1min,10s,10s
        0s check first a=1  > pass/0
        0s check second a=1 > Limit/0 1h
        0s check third a=1  > Limit/0 1h
        1s check banned a=1 > Banned/0 9s
        1s check look a=1*0 > Banned/0 9s
        1s check other a=2  > pass/0
    ";

    plans_overrides_and_modes: "
        limit a 1 1s 1 reject plan=big,1,1s,5 plan=all,unlimited override=9,1,1s,3
        limit s 1 1s 1 reject shadow
        limit e 1 1s 1 reject enforce=28
        limit f 1 1s 1 reject enforce=29
        limit o 1 1s 1 reject off
        0s check big a=1 plan=big          > pass/4
        0s check unknown a=2 plan=unknown  > pass/0
        0s check free a=1 plan=all         > pass
        0s check own a=9                   > pass/2
        0s check shadow s=1*5              > pass
        0s check left-out e=k*5            > pass
        0s check part-of f=k*5             > Limit/1 never
        0s check off o=1                   > pass
        0s check shadow-and-more s=1*5 a=3 > pass/0
    ";

    /// A requested rate has a budget of its own for each period, and another number keeps what is spent, also later.
    requested_rates: "
        limit a 2 1h 2 reject window=fixed plan=big,1,1s,9 override=9,unlimited
        limit s 2 1h 2 reject window=sliding
        0s  check usual a=1*2                 > pass/0
        0s  check five a=1*3@5/1min           > pass/2
        0s  check more a=1*3@5/1min           > Limit/2 60s
        0s  check raised a=1*3@6/1min         > pass/0
        0s  check lowered a=1@5/1min          > Limit/0 60s
        0s  check hourly a=1*4@5/1h           > pass/1
        0s  check usual-again a=1             > Limit/0 1h
        0s  check plan a=2*2@3/1min plan=big  > pass/1
        0s  check override a=9*2@3/1min       > pass/1
        0s  check look a=1*0@10/1min          > pass/4
        0s  check sliding s=1*3@5/1min        > pass/2
        0s  check sliding-more s=1*6@5/1min   > Limit/2 never
        0s  check sliding-raised s=1*3@9/1min > pass/3
        0s  check sliding-usual s=1*2         > pass/0
        2s  check faster a=1*0@1000/1min      > pass/994
        4s  check slower a=1@5/1min           > Limit/0 56s
        60s check next-window a=1@6/1min      > pass/5
    ";

    /// Past `max_keys` a requested rate is refused, and returns nothing to other keys.
    requested_rates_past_max_keys: "
        limit a 2 24h 2 reject window=fixed max_keys=1
        0s check first a=1*2                    > pass/0
        0s check new a=2*2                      > Limit/0 1s
        0s check requested a=2@1000/1s          > Limit/0 1s
        2s check requested-of-first a=1@1000/1s > Limit/0 1s
        4s check first-again a=1                > Limit/0 86396s
        4s check new-again a=2                  > Limit/0 1s
    ";
}

#[tokio::test(start_paused = true)]
async fn charges_that_request_other_rates_contradict() {
    let gate = new_gate();
    let live = install(gate, [of_parts("all", Vec::new()), of_parts("other", Vec::new())], CAPS);
    let charge = |limit, rate: Option<(u64, u64)>| {
        let charge = gate.named_charge(live, limit, &[], None, 1).unwrap();
        let requested = |(count, period_ns)| gate.with_rate(live, charge.clone(), Rate { count, period_ns }).unwrap();
        rate.map_or_else(|| charge.clone(), requested)
    };
    let one = charge("all", Some((1, 60)));
    for (limit, rate, expected) in [
        ("all", None, false),
        ("all", Some((1, 60)), false),
        ("all", Some((2, 60)), true),
        ("all", Some((0, 60)), true),
        ("all", Some((2, 61)), false),
        ("other", Some((2, 60)), false),
    ] {
        let other = charge(limit, rate);
        assert_eq!((one.contradicts(&other), other.contradicts(&one)), (expected, expected), "{limit} {rate:?}");
    }
}

scripts! {
    a_requested_rate_of_zero_refuses_all: "
        limit a 2 1h 2 reject window=fixed
        limit b 1 1h 2 reject
        limit m 2 1h 2 reject window=sliding shadow
        0s  check zero a=1@0/1min       > Limit/0 never
        0s  check look a=1*0@0/1min     > Limit/0 never
        0s  check both a=1@0/1min b=1   > Limit/0 never
        0s  check shadow m=1@0/1min b=1 > pass/1
        1ms check usual a=1 b=1         > pass/0
    ";

    bans_of_a_key_hold_for_requested_rates: "
        limit a 1 1h 1 reject window=fixed ban=1/1min,10s,10s
        0s check first a=1*2             > Limit/1 never
        0s check banned a=1@5/1min       > Banned/4 10s
        0s check other a=2*6@5/1min      > Limit/5 never
        0s check other-banned a=2@5/1min > Banned/4 10s
        0s check other-usual a=2         > pass/0
    ";

    stores_are_asked: "
        limit a 1 1s 10 reject redis=2
        limit b 1 1s 1 reject
        0s   store slow=2ms
        5ms  check first a=1*4 b=1  > 7ms pass/0
        10ms elsewhere a=1 3
        10ms check second a=1*4 b=2 > 12ms Limit/3 994ms
        20ms remain a=1 3
        20ms check second-b b=2     > pass/0
        20ms check look a=1*0       > 22ms pass/3
        30ms check rest a=1*3       > 32ms pass/0
        40ms check empty a=1*0      > 42ms Limit/0 964ms
        50ms remain a=1 0
    ";

    without_a_store_the_share_decides: "
        limit a 1 1h 10 reject redis=2
        0s store down
        0s check first a=1*3  > pass/4
        0s check second a=1*3 > Limit/2 2h
        0s check look a=1*0   > pass/4
        0s check third a=1*2  > pass/0
        0s check none a=1*0   > Limit/0 2h
    ";

    leases_are_spent: "
        limit a 1 1h 100 reject lease=1,10
        0s  check first a=1    > pass/99
        0s  check second a=1*4 > pass/95
        1ms calls 1
    ";
}

fn of_parts(name: &str, key: Vec<KeyPart>) -> Limit {
    let every = limit(name, 10, "1s", 10, OnLimit::Reject);
    Limit { matches: Match::default(), key, ..every }
}

#[tokio::test(start_paused = true)]
async fn keys_are_those_of_requests() {
    let gate = new_gate();
    let named = KeyPart::Named("seller".into());
    let limits = [
        of_parts("ip", vec![KeyPart::Ip]),
        of_parts("pair", vec![named, KeyPart::Path]),
        Limit { mode: Mode::Shadow, ..of_parts("all", Vec::new()) },
    ];
    let live = install(gate, limits, CAPS);
    let charge = |limit, key: &[(&str, &str)]| gate.named_charge(live, limit, &pairs_of(key), None, 1);
    let key = |limit, key: &[(&str, &str)]| charge(limit, key).unwrap().key;
    let error = |limit, key: &[(&str, &str)]| charge(limit, key).unwrap_err();
    assert_eq!(key("ip", &[("ip", "2001:db8::1")]), key("ip", &[("ip", "2001:db8::2")]));
    assert_eq!(
        key("pair", &[("path", "/a//b"), ("name:seller", "7")]),
        key("pair", &[("name:seller", "7"), ("path", "/a/b")])
    );
    assert_ne!(
        key("pair", &[("path", "/a"), ("name:seller", "7")]),
        key("pair", &[("path", "/a"), ("name:seller", "8")])
    );
    key("all", &[]);
    assert_eq!(error("none", &[]), ChargeError::Key(KeyError::UnknownLimit));
    assert_eq!(error("ip", &[("ip", "x")]), ChargeError::Key(KeyError::BadPart("ip".into())));
    assert_eq!(error("pair", &[("path", "/")]), ChargeError::Key(KeyError::MissingPart("name:seller".into())));
    let parts = |parts: [&str; 2]| {
        let parts = parts.map(str::to_owned).into_iter();
        gate.charge_of_parts(live, 1, parts, None, 1).map(|charge| charge.key)
    };
    assert_eq!(parts(["7", "/a"]).unwrap(), key("pair", &[("path", "/a"), ("name:seller", "7")]));
    // A caller passes on what its client sends: a query is no part of the path, and all that is no path is one.
    assert_eq!(parts(["7", "/a?b=%2F"]), parts(["7", "/a"]));
    assert_ne!(parts(["7", "/%zz"]), parts(["7", "/a"]));
    for other in ["/a%5Cb", "no path", ""] {
        assert_eq!(parts(["7", "/%zz"]).unwrap(), parts(["7", other]).unwrap(), "{other}");
    }
}
