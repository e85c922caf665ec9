//! Signals that other servers know do not end Weir.

use crate::support::{Client, Upstream, Weir};

/// Signals without an effect, by name or number.
const IGNORED: [&str; 20] = [
    "USR2", "WINCH", "ALRM", "VTALRM", "PROF", "IO", "PWR", "STKFLT", "XCPU", "XFSZ", "PIPE", "URG", "CHLD", "CONT",
    "35", "36", "45", "50", "63", "64",
];

#[test]
fn a_signal_of_another_server_does_not_end_weir() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, "");
    for (count, signal) in IGNORED.into_iter().enumerate() {
        weir.signal(signal);
        weir.signal("USR1");
        weir.wait_for_lines("SIGUSR1", count + 1);
        assert_eq!(Client::connect(weir.address()).get("/").status, 200, "{signal}");
    }
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
}
