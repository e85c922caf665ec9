//! Which outages of a node have lines in the log. A node that fails again and again has lines about one outage in a minute.
//! A node that has lost its keys and does not decide yet has an outage of another kind.
//!
//! Pure. An outage that lasts gets its line late rather than never, so the last line about a node says whether it answers.

use crate::base::time::Timestamp;

/// The shortest time from the first line about one outage to the first line about the next, in nanoseconds.
const PAUSE_NS: u64 = 60_000_000_000;

/// The outages of one node, as its log lines tell them.
#[derive(Debug, Default)]
pub(in crate::fleet::stores) struct OutageLog {
    /// The time of the last first line; `None` before there was one.
    logged_at: Option<Timestamp>,
    is_out: bool,
    /// Whether the present outage has a line.
    is_logged: bool,
    /// Outages without a line since the last one with a line.
    skipped: u64,
}

impl OutageLog {
    /// An outage began, unless there is one. Returns how many before it had no line, if it gets one now.
    pub(in crate::fleet::stores) fn began(&mut self, now: Timestamp) -> Option<u64> {
        self.skipped += u64::from(!self.is_out);
        self.is_out = true;
        self.goes_on(now)
    }

    /// The outage goes on. Returns how many before it had no line, if it gets one now.
    pub(in crate::fleet::stores) fn goes_on(&mut self, now: Timestamp) -> Option<u64> {
        if self.is_logged || self.logged_at.is_some_and(|at| now.ns_since(at) < PAUSE_NS) {
            return None;
        }
        (self.logged_at, self.is_logged) = (Some(now), true);
        Some(std::mem::take(&mut self.skipped).saturating_sub(1))
    }

    /// The outage ended. Returns whether its end gets a line.
    pub(in crate::fleet::stores) fn ended(&mut self) -> bool {
        self.is_out = false;
        std::mem::take(&mut self.is_logged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line is a time in seconds, an event, and what the log says: `-`, or how many outages it skipped, or `end`.
    fn check(table: &str) {
        let mut log = OutageLog::default();
        for line in table.lines().map(str::trim) {
            let mut cells = line.split_whitespace();
            let mut cell = || cells.next().unwrap_or_default();
            let (at, event, expected) = (cell(), cell(), cell());
            let now = Timestamp::from_ns((1_700_000_000 + at.parse::<u64>().unwrap_or_default()) * 1_000_000_000);
            let logged = match event {
                "fails" => log.began(now).map(|skipped| skipped.to_string()),
                "probe" => log.goes_on(now).map(|skipped| skipped.to_string()),
                _ => log.ended().then(|| "end".to_owned()),
            };
            assert_eq!(logged.as_deref().unwrap_or("-"), expected, "{line}");
        }
    }

    #[test]
    fn an_outage_has_two_lines() {
        check(
            "0   fails   0
             1   probe   -
             500 probe   -
             501 answers end
             502 fails   0
             503 answers end",
        );
    }

    /// A node may lose its keys again before it decides.
    #[test]
    fn an_outage_that_begins_twice_is_one() {
        check(
            "0   fails   0
             1   fails   -
             2   answers end
             3   fails   -
             4   fails   -
             5   answers -
             60  fails   1
             61  fails   -
             62  answers end",
        );
    }

    #[test]
    fn a_node_that_flaps_has_two_lines_in_a_minute() {
        check(
            "0   fails   0
             1   answers end
             2   fails   -
             3   answers -
             4   fails   -
             59  answers -
             60  fails   2
             61  answers end
             62  fails   -
             63  answers -
             200 fails   1
             201 answers end",
        );
    }

    #[test]
    fn an_outage_that_lasts_gets_its_line() {
        check(
            "0   fails   0
             1   answers end
             2   fails   -
             3   answers -
             4   fails   -
             5   probe   -
             59  probe   -
             60  probe   1
             61  probe   -
             300 answers end",
        );
    }
}
