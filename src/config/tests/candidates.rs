//! `limit.candidate`: its limit, its share, and what is wrong with it.

use super::*;
use crate::engine::policy::{Limit, Mode, Strategy};

fn with(limit: &str, candidate: &str) -> String {
    format!("{UPSTREAM}[[limit]]\nname = 'a'\nkey = []\n{limit}\ncandidate = {{ {candidate} }}\n")
}

fn limits(text: &str) -> Vec<Limit> {
    let config = compile(text).unwrap_or_else(|problems| panic!("{problems}"));
    config.policy.limits().to_vec()
}

#[test]
fn candidates_are_behind_all_limits() {
    let first =
        with("rate = '10/s'\nplans = { free = '1/s' }\nban = { after = '1/s', for = '1s' }", "rate = ['5/s', '9/min']");
    let text = format!(
        "[plans]\nfrom = 'header:x-plan'\n{first}[[limit]]\nname = 'b'\nkey = []\nrate = '1/s'\ncandidate = {{ rate = '2/s', burst = 9 }}"
    );
    let limits = limits(&text);
    let shown = |limit: &Limit| {
        let rule = limit.allowed.written.usual.text(None).unwrap();
        (limit.name.to_string(), limit.mode, limit.candidate_of, limit.allowed.usual.capacity(), rule)
    };
    let expected = [
        ("a", Mode::Enforce, None, 10, "10/s, token bucket"),
        ("b", Mode::Enforce, None, 1, "1/s, token bucket"),
        ("a.candidate", Mode::Shadow, Some(0), 5, "5/s and 9/min, token bucket"),
        ("b.candidate", Mode::Shadow, Some(1), 9, "2/s, burst 9, token bucket"),
    ];
    let expected = expected.map(|(name, mode, of, units, rule)| (name.to_owned(), mode, of, units, rule.to_owned()));
    assert_eq!(limits.iter().map(shown).collect::<Vec<_>>(), expected);
    let [_, _, candidate, _] = &limits[..] else { panic!() };
    assert!(candidate.ban.is_none());
    // The rules of plans have the form of the candidate's rule: a list of windows.
    let rules = [&candidate.allowed.usual, candidate.allowed.plans[0].1.as_ref().unwrap()];
    assert_eq!(rules.map(|rule| rule.rates().len()), [2, 1]);
}

/// The state of a candidate of a day survives a restart beside a limit of a second. A limit that is off has none.
#[test]
fn candidates_persist_by_their_own_numbers() {
    let snapshot = "[snapshot]\npath = '/tmp/none/weir.snapshot'\n";
    for (mode, is_kept) in [(Mode::Enforce, [false, true]), (Mode::Off, [false, true])] {
        let limit = with(&format!("rate = '10/s'\nmode = '{}'", mode.word()), "rate = '3/day'");
        let limits = limits(&format!("{limit}{snapshot}"));
        assert_eq!([0, 1].map(|index: usize| limits[index].persist), is_kept);
        assert_eq!(limits[1].mode, if mode == Mode::Off { Mode::Off } else { Mode::Shadow });
    }
}

/// No store decides about a candidate.
#[test]
fn replicas_count_candidates_by_their_share() {
    let fleet = "[fleet]\nstrategy = 'local'\nreplicas = 2\nsecret = { env = 'WEIR_FLEET_SECRET' }\n[store.s]\nredis = 'redis://127.0.0.1:1'\n";
    for (strategy, expected, capacities) in [
        ("local", Strategy::Local, [10, 20]),
        ("split", Strategy::Split(2), [5, 10]),
        ("redis", Strategy::Split(2), [10, 10]),
        ("lease", Strategy::Split(2), [10, 10]),
    ] {
        let limit = with(&format!("rate = '10/s'\nstrategy = '{strategy}'"), "rate = '20/s'");
        for on_failure in ["split", "local", "reject"] {
            let limits = limits(&format!("{limit}{fleet}on_failure = '{on_failure}'\n"));
            assert_eq!(limits[1].strategy, expected, "{strategy}");
            assert_eq!([0, 1].map(|index: usize| limits[index].allowed.usual.capacity()), capacities, "{strategy}");
        }
    }
}

#[test]
fn wrong_candidates() {
    let ramp = "rate = '10/s'\nramp = { from = '2027-01-01', to = '2027-01-02', to_rate = '0/s' }";
    for (limit, candidate, expected) in [
        ("rate = '10/s'", "", "`limit.candidate.rate` is missing"),
        ("rate = '10/s'", "max = 3", "`limit.candidate.max`"),
        ("algorithm = 'concurrency'\nmax = 3", "rate = '1/s'", "`limit.candidate.rate`"),
        ("rate = '10/s'", "rate = '0/s'", "`limit.candidate.rate`: a rate of zero would never admit a request"),
        ("rate = '10/s'\ncost = 7", "rate = '6/s'", "the burst of the candidate"),
        ("rate = '10/s'", "rate = '1/s', mode = 'shadow'", "unknown key `mode`"),
        (ramp, "rate = '1/s'", "`limit.candidate`: does not go with `ramp`"),
        ("algorithm = 'concurrency'\nmax = 3", "max = 4", "`limit.candidate.max`: is above `max` of the limit"),
    ] {
        let error = compile(&with(limit, candidate)).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let shared = "rate = '100/s'\ncost = 7\nstrategy = 'redis'";
    let fleet = "[fleet]\nstrategy = 'local'\nreplicas = 4\nsecret = { env = 'WEIR_FLEET_SECRET' }\n[store.s]\nredis = 'redis://127.0.0.1:1'\n";
    let error = compile(&format!("{}{fleet}", with(shared, "rate = '20/s'"))).unwrap_err().to_string();
    assert!(error.contains("the burst of the candidate"), "a share of 5: {error}");
    let mapped = "[[grpc.check]]\nscope = 'x'\nlimits = { 'a.candidate' = {} }\n[grpc]\nlisten = '127.0.0.1:0'\n";
    let error = compile(&format!("{}{mapped}", with("rate = '10/s'", "rate = '1/s'"))).unwrap_err().to_string();
    assert!(error.contains("there is no limit `a.candidate`"), "{error}");
    let of_callers = with("rate = '10/s'", "rate = '1/s'").replace("key = []", "key = ['name:seller']");
    let error = compile(&format!("{of_callers}[grpc]\nlisten = '127.0.0.1:0'\n")).unwrap_err().to_string();
    assert!(error.contains("`limit.candidate`: needs a limit of requests"), "{error}");
}
