//! Rows with time as a column. Sub-windows begin at whole parts of periods since the start.

use super::{NUMBER_MAX, Rule, SUB_WINDOWS_MAX, State};
use crate::engine::limit::QuotaError::{TooMany, Zero};
use crate::engine::limit::tests::{check, rate, tables};
use crate::engine::limit::{ClockShift, Packed as _, Unpacker};

tables! {
    sub_windows_are_forgotten_one_by_one: "sub_window 10/10s in 5" => "
        # at      cost  decision  remaining  reset  retry
          1s      4     admit     6          9s     -
          3s      5     admit     1          9s     -
          3s      2     deny      1          9s     7s
          3s      7     deny      1          9s     9s
          3s      11    deny      1          9s     never
          9999ms  2     deny      1          2001ms 1ms
          10s     5     admit     0          10s    -
          10s     wait 0 2 2s
          10s     wait 4 2 10s
          10s     wait 8 2 10s
          10s     wait 10 2 12s
          12s     0     admit     5          8s     -
          40s     10    admit     0          10s    -
    ";

    refunds_are_exact_in_any_order: "sub_window 10/10s in 5" => "
        # at      cost  decision  remaining  reset  retry
          1s      4     admit     6          9s     -
          3s      5     admit     1          9s     -
          5s      1     admit     0          9s     -
          6s      refund 2
          6s      0     admit     5          8s     -
          6s      refund 3
          6s      0     admit     6          4s     -
          12s     refund 1
          12s     0     admit     10         0s     -
    ";

    a_changed_rule_keeps_spent_units: "sub_window 10/10s in 5" => "
        # at      cost  decision  remaining  reset  retry
          1s      8     admit     2          9s     -
        rule sub_window 5/10s in 5
          2s      1     deny      0          8s     8s
        rule sub_window 10/1m in 6
          2s      1     admit     1          58s    -
        rule sub_window 10/1m in 2
          3s      1     admit     0          57s    -
    ";
}

#[test]
fn rules_that_cannot_be() {
    let rows = [(0, Some(Zero)), (1, None), (SUB_WINDOWS_MAX, None), (SUB_WINDOWS_MAX + 1, Some(TooMany))];
    for (n, error) in rows {
        assert_eq!(Rule::new(rate("5/1s"), n).err(), error);
    }
    assert_eq!(Rule::new(rate("5/10ns"), 3).unwrap().length_ns(), 12);
}

#[test]
fn packed_states_that_cannot_be() {
    for (newest, n, is_state) in [
        (0, 0, true),
        (0, 1, true),
        (0, SUB_WINDOWS_MAX, true),
        (0, SUB_WINDOWS_MAX + 1, false),
        (NUMBER_MAX, SUB_WINDOWS_MAX, true),
        (NUMBER_MAX, SUB_WINDOWS_MAX + 1, false),
        (NUMBER_MAX + 1, 1, false),
        (u64::MAX, 1, false),
    ] {
        let ring = vec![0; 8 * n as usize];
        let bytes = [&1_000_u64.to_le_bytes()[..], &newest.to_le_bytes(), &n.to_le_bytes(), &ring].concat();
        let state = State::unpack(&mut Unpacker::new(&bytes, ClockShift::default()));
        assert_eq!(state.is_some(), is_state, "{newest} {n}");
    }
}
