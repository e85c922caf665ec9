//! Rows with time or dates as a column.

use crate::engine::limit::tests::{check, tables};

tables! {
    from_the_first_request: "fixed_window 3/1m from first" => "
        # at      cost  decision  remaining  reset  retry
          10s     0     admit     3          0s     -
          10s     1     admit     2          60s    -
          69s     2     admit     0          1s     -
          69s     1     deny      0          1s     1s
          69s     4     deny      0          1s     never
        # its edge: six within two seconds
          70s     3     admit     0          60s    -
          70s     wait 0 1 60s
          70s     wait 3 1 120s
          70s     wait 1 2 120s
        # a window given back whole begins anew
          10m     2     admit     1          60s    -
          10m     refund 4
          11m     1     admit     2          60s    -
        # one given back in part does not
          12m     1     admit     2          60s    -
          750s    2     admit     0          30s    -
          751s    refund 6
          751s    1     admit     0          29s    -
        # after its window a charge is gone by itself
          13m     1     admit     2          60s    -
          781s    refund 7
          781s    0     admit     2          59s    -
    ";

    in_a_calendar: "fixed_window 2 per 15 min UTC" => "
        # at      cost  decision  remaining  reset  retry
          14m     1     admit     1          1m     -
          899s    1     admit     0          1s     -
          899s    1     deny      0          1s     1s
          15m     2     admit     0          15m    -
          16m     wait 2 1 29m
          16m     wait 3 1 29m
          16m     wait 4 1 44m
    ", "fixed_window 100 per 1 day Europe/Berlin" => "
        # at                          cost  decision  remaining  reset  retry
        # clocks are put forward on 31 March, so this day has 23 hours
          2024-03-30T23:59:59+01:00   100   admit     0          1s     -
          2024-03-30T23:59:59+01:00   1     deny      0          1s     1s
          2024-03-31T00:00:00+01:00   100   admit     0          23h    -
          2024-03-31T23:59:59+02:00   1     deny      0          1s     1s
          2024-04-01T00:00:00+02:00   1     admit     99         24h    -
        # and back on 27 October
          2024-10-27T00:00:00+02:00   1     admit     99         25h    -
          2024-10-27T02:30:00+02:00   1     admit     98         22h30m -
          2024-10-27T02:30:00+01:00   1     admit     97         21h30m -
    ", "fixed_window 1 per 1 month America/New_York" => "
        # at                          cost  decision  remaining  reset   retry
          2024-02-01T00:00:00-05:00   1     admit     0          29days  -
          2024-02-29T23:59:59-05:00   1     deny      0          1s      1s
          2024-03-01T00:00:00-05:00   1     admit     0          743h    -
    ";

    a_changed_rule_keeps_spent_units: "fixed_window 10/1m from first" => "
        # at      cost  decision  remaining  reset  retry
          0s      6     admit     4          60s    -
        rule fixed_window 8/1m from first
          1s      0     admit     2          59s    -
        rule fixed_window 5/1m from first
          2s      1     deny      0          58s    58s
        # longer: the window goes on
        rule fixed_window 10/1h from first
          3s      1     admit     3          3597s  -
        # shorter: it ends within one of its length
        rule fixed_window 10/10s from first
          4s      1     admit     2          10s    -
        rule fixed_window 10 per 1 h UTC
          5s      1     admit     1          3595s  -
        rule fixed_window 10/10s from first
          6s      1     admit     0          10s    -
          16s     1     admit     9          10s    -
    ";

    debt_ends_with_its_window: "fixed_window 5/10s from first" => "
        # at      cost  decision  remaining  reset  retry
          0s      1     admit     4          10s    -
          1s      settle 100 3
          1s      1     deny      0          9s     9s
          1s      settle -3 3
          1s      0     admit     0          9s     -
          1s      settle -2 3
          1s      2     admit     0          9s     -
          10s     5     admit     0          10s    -
          30s     settle 4 0
          31s     0     admit     1          9s     -
    ";
}
