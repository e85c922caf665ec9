//! Rows with time as a column. Windows begin at whole periods since the start.

use crate::engine::limit::tests::{check, tables};

tables! {
    last_window_fades: "sliding_window 10/10s" => "
        # at      cost  decision  remaining  reset  retry
          4s      10    admit     0          16s    -
          4s      1     deny      0          16s    7s
          10s     1     deny      0          10s    1s
          11s     1     admit     0          19s    -
          11s     11    deny      0          19s    never
        # half of the ten, and the one
          15s     0     admit     4          15s    -
          15s     5     deny      4          15s    1s
          15s     wait 0 4 0s
          15s     wait 4 4 4s
        # all of the last must be gone, and then one tenth of this
          15s     10    deny      4          15s    15s
          16s     5     admit     0          14s    -
          36s     10    admit     0          14s    -
          36s     refund 4
          36s     0     admit     10         0s     -
    ";

    /// 1024 windows are counted: one of 10 units, and 9 in each after it. The other 1000 units count as 10 a window.
    a_long_queue_is_estimated: "sliding_window 10/10s" => "
          0s      wait 9216 1 10238888888889ns
          0s      wait 10217 1 11240s
        # by twos: 5 in the first window, 4 in each after it; then 1000 of them at 5 a window
          0s      wait 10194 2 12240s
    ";

    /// The clock is set back from 14 s to 8 s, before the window of the state.
    a_window_that_has_not_begun_is_waited_for: "sliding_window 10/10s" => "
          14s     10    admit     0          16s    -
          8s      1     deny      0          22s    13s
    ";

    products_beyond_64_bits_are_exact: "sliding_window 100000000000/10s" => "
          4s      100000000000  admit  0            16s  -
          15s     0             admit  50000000000  5s   -
    ";

    refunds_count_as_their_window_does: "sliding_window 10/10s" => "
        # at      cost  decision  remaining  reset  retry
          4s      4     admit     6          16s    -
          5s      2     admit     4          15s    -
          15s     1     admit     6          15s    -
          15s     refund 1
          15s     0     admit     8          15s    -
          25s     refund 2
          25s     0     admit     9          5s     -
    ";

    a_changed_rule_keeps_spent_units: "sliding_window 10/10s" => "
        # at      cost  decision  remaining  reset  retry
          5s      8     admit     2          15s    -
        rule sliding_window 4/10s
          5s      1     deny      0          15s    11250ms
        rule sliding_window 10/1m
          15s     1     admit     5          105s   -
        rule sliding_window 10/1s
          16s     1     admit     4          2s     -
    ";
}
