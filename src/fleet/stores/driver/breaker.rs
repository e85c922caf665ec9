//! When a node is asked, and when it is left alone until a probe has shown that it answers again.
//!
//! A pure state machine: the caller passes `now`, reports each result, and sends the probes. An open breaker begins with a
//! probe soon, and doubles the pause between probes up to [`PAUSE_MAX_NS`].

use crate::base::time::Timestamp;
use crate::engine::store::backend::Failure;

/// Failures in a row that open a breaker.
const FAILURES: u32 = 3;

/// The first pause before a probe. Connections that broke once are whole again by then.
const PAUSE_MIN_NS: u64 = 50_000_000;

/// The longest pause before a probe. A probe takes a second at most, so a breaker closes within 2 s of recovery.
const PAUSE_MAX_NS: u64 = 500_000_000;

/// The breaker of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fleet::stores) struct Breaker {
    state: State,
    /// The pause before the next probe.
    pause_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Requests go to the node.
    Closed { failures: u32 },
    /// No request goes to the node.
    Open { since: Timestamp, probe_at: Timestamp },
    /// A probe is on its way, and no request goes to the node.
    HalfOpen { since: Timestamp },
}

impl Breaker {
    /// A closed breaker.
    pub(in crate::fleet::stores) const fn new() -> Self {
        Self { state: State::Closed { failures: 0 }, pause_ns: PAUSE_MIN_NS }
    }

    /// Whether requests go to the node.
    #[cfg(test)]
    pub(in crate::fleet::stores) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// A request succeeded. A late success does not close an open breaker: a probe must be in time.
    pub(in crate::fleet::stores) fn succeeded(&mut self) {
        if let State::Closed { failures } = &mut self.state {
            *failures = 0;
        }
    }

    /// A request failed. Returns whether this opened the breaker.
    pub(in crate::fleet::stores) fn failed(&mut self, weight: Weight, now: Timestamp) -> bool {
        let State::Closed { failures } = &mut self.state else { return false };
        *failures += match weight {
            Weight::None => 0,
            Weight::One => 1,
            Weight::All => FAILURES,
        };
        if *failures < FAILURES {
            return false;
        }
        self.pause_ns = PAUSE_MIN_NS;
        self.state = State::Open { since: now, probe_at: now.saturating_add_ns(self.pause_ns) };
        true
    }

    /// When to send the next probe; `None` if the breaker is closed.
    pub(in crate::fleet::stores) fn probe_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Open { probe_at, .. } => Some(probe_at),
            State::HalfOpen { .. } => Some(Timestamp::ZERO),
            State::Closed { .. } => None,
        }
    }

    /// A probe is sent.
    pub(in crate::fleet::stores) fn probing(&mut self) {
        if let State::Open { since, .. } = self.state {
            self.state = State::HalfOpen { since };
        }
    }

    /// A probe got an answer in time, or failed. Returns for how many nanoseconds the breaker was open if this closed it.
    pub(in crate::fleet::stores) fn probed(&mut self, is_good: bool, now: Timestamp) -> Option<u64> {
        let State::HalfOpen { since } = self.state else { return None };
        self.pause_ns = (self.pause_ns * 2).min(PAUSE_MAX_NS);
        if is_good {
            self.state = State::Closed { failures: 0 };
            return Some(now.ns_since(since));
        }
        self.state = State::Open { since, probe_at: now.saturating_add_ns(self.pause_ns) };
        None
    }
}

/// How much one failure counts for a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fleet::stores) enum Weight {
    /// It says nothing about the node.
    None,
    /// Some in a row open the breaker.
    One,
    /// It opens the breaker.
    All,
}

impl Failure {
    /// The share of the breaker's patience that one failure uses up.
    pub(in crate::fleet::stores) fn weight(self) -> Weight {
        match self {
            // Of one key, of one limit, or of one connection: the attempts to connect again count.
            Self::Moving | Self::Limit | Self::Rule | Self::Value | Self::Broken => Weight::None,
            Self::Timeout | Self::Connection | Self::ClusterDown | Self::Busy | Self::Reply | Self::Other => {
                Weight::One
            }
            // The next call fails too.
            Self::Loading
            | Self::OutOfMemory
            | Self::ReadOnly
            | Self::MasterDown
            | Self::Login
            | Self::Permission
            | Self::Persistence => Weight::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line is an instant in milliseconds, an event, and the state after it: `closed`, or `open` with the instant of
    /// the next probe, or `half`.
    fn check(table: &str) {
        let mut breaker = Breaker::new();
        let start = 1_000_000_000_000;
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let [at, event, expected]: [&str; 3] = line.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
            let now = Timestamp::from_ns(start + at.parse::<u64>().unwrap() * 1_000_000);
            let failed = |breaker: &mut Breaker, failure: Failure| _ = breaker.failed(failure.weight(), now);
            match event {
                "ok" => breaker.succeeded(),
                "timeout" => failed(&mut breaker, Failure::Timeout),
                "refused" => failed(&mut breaker, Failure::Connection),
                "broken" => failed(&mut breaker, Failure::Broken),
                "login" => failed(&mut breaker, Failure::Login),
                "readonly" => failed(&mut breaker, Failure::ReadOnly),
                "loading" => failed(&mut breaker, Failure::Loading),
                "oom" => failed(&mut breaker, Failure::OutOfMemory),
                "moving" => failed(&mut breaker, Failure::Moving),
                "probe" => breaker.probing(),
                "good" => _ = breaker.probed(true, now),
                "bad" => _ = breaker.probed(false, now),
                other => panic!("{other}"),
            }
            let state = match (&breaker.state, breaker.probe_at()) {
                (State::Closed { .. }, None) => "closed".to_owned(),
                (State::HalfOpen { .. }, Some(Timestamp::ZERO)) => "half".to_owned(),
                (State::Open { .. }, Some(at)) => format!("open:{}", (at.as_ns() - start) / 1_000_000),
                other => panic!("{line}: {other:?}"),
            };
            assert_eq!(state, expected, "{line}");
            assert_eq!(breaker.is_closed(), state == "closed", "{line}");
        }
    }

    #[test]
    fn some_failures_in_a_row_open() {
        check(
            "0   timeout  closed
             1   timeout  closed
             2   ok       closed
             3   timeout  closed
             4   refused  closed
             5   timeout  open:55
             6   timeout  open:55
             7   ok       open:55",
        );
    }

    #[test]
    fn lasting_failures_open_at_once() {
        for failure in ["login", "readonly", "loading", "oom"] {
            check(&format!("0 {failure} open:50"));
        }
        for failure in ["moving", "broken"] {
            check(&[0, 1, 2, 3].map(|at| format!("{at} {failure} closed")).join("\n"));
        }
    }

    #[test]
    fn a_probe_in_time_closes() {
        check(
            "0    login  open:50
             50   probe  half
             51   ok     half
             52   login  half
             55   good   closed
             60   good   closed
             61   bad    closed
             62   probe  closed",
        );
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        check(
            "0     login  open:50
             50    probe  half
             60    bad    open:160
             160   probe  half
             170   bad    open:370
             370   probe  half
             380   bad    open:780
             780   probe  half
             790   bad    open:1290
             1290  probe  half
             1300  bad    open:1800",
        );
    }

    /// Each outage makes replicas admit units that others may have from the store.
    #[test]
    fn a_relapse_begins_with_a_short_pause() {
        check(
            "0     login  open:50
             50    probe  half
             60    bad    open:160
             160   probe  half
             170   good   closed
             180   login  open:230",
        );
    }
}
