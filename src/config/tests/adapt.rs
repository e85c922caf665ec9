//! `limit.adapt`: its rule, and what is wrong with it.

use super::*;
use crate::engine::limit::adaptive_rate::{Rule, Signal};
use crate::engine::policy::Limit;

/// What other strategies need.
const FLEET: &str = "[fleet]\nstrategy = 'local'\nreplicas = 5\nsecret = { env = 'WEIR_FLEET_SECRET' }
[store.s]\nredis = 'redis://127.0.0.1:1'\n";

fn with(limit: &str, adapt: &str) -> String {
    format!("{UPSTREAM}[[limit]]\nname = 'a'\nkey = []\n{limit}\nadapt = {{ {adapt} }}\n")
}

fn limit(text: &str) -> Limit {
    compile(text).unwrap_or_else(|problems| panic!("{problems}")).policy.limits()[0].clone()
}

#[test]
fn rates_follow_a_signal() {
    for (adapt, signal, target, parts, capacity) in [
        ("by = 'cpu', target = '80%'", Signal::Cpu, 800, (200, 1000), 100),
        ("by = 'upstream_errors', target = '1%', floor = '5%'", Signal::UpstreamErrors, 10, (50, 1000), 100),
        ("by = 'upstream_p90', target = '1s 50ms'", Signal::UpstreamP90, 1_050_000_000, (200, 1000), 100),
        ("by = 'queue_delay', target = '5ms', ceiling = '50%'", Signal::QueueDelay, 5_000_000, (200, 500), 50),
    ] {
        let limit = limit(&with("rate = '100/s'", adapt));
        let (floor, ceiling) = parts;
        assert_eq!(limit.adapt, Some(Rule { signal, target, floor, ceiling }), "{adapt}");
        assert_eq!((limit.adapted, limit.allowed.usual.capacity()), (ceiling, capacity), "{adapt}");
        // Answers are read only for a signal that needs them.
        assert_eq!(limit.after.is_some(), signal != Signal::Cpu, "{adapt}");
    }
    for limit_of in [
        "rate = ['10/s', '100/min']\nmode = 'shadow'",
        "rate = '10/day'\non_limit = 'hold'",
        "rate = '10/s'\nalgorithm = 'sliding_log'\nstage = 'arrival'",
    ] {
        limit(&with(limit_of, "by = 'cpu', target = '80%'"));
    }
    let split = with("rate = '100/s'\nstrategy = 'split'", "by = 'cpu', target = '80%', ceiling = '50%'");
    assert_eq!(limit(&(split + FLEET)).allowed.usual.capacity(), 10);
}

#[test]
fn errors_of_adapt_name_their_option() {
    let p90 = "by = 'upstream_p90', target = '200ms'";
    let rate = "rate = '10/s'";
    for (limit, adapt, expected) in [
        (rate, "", &["`limit.adapt.by` is missing", "`limit.adapt.target` is missing"][..]),
        (rate, "by = 'cpus', target = '80%'", &["`limit.adapt.by`: ", "did you mean `cpu`?"]),
        (rate, "by = 'cpu', target = 80", &["`limit.adapt.target`: expected "]),
        (
            rate,
            "by = 'cpu', target = '0%'",
            &["`limit.adapt.target`: `0%` is not a whole percentage from `1%` to `99%`"],
        ),
        (rate, "by = 'cpu', target = '100%'", &["which `by = \"cpu\"` needs"]),
        (rate, "by = 'upstream_errors', target = '5ms'", &["`5ms` is not a whole percentage"]),
        (rate, "by = 'upstream_p90', target = '5%'", &["`5%` is not a duration such as `200ms`"]),
        (rate, "by = 'queue_delay', target = '0s'", &["`limit.adapt.target`: must be longer than zero"]),
        (rate, "by = 'queue_delay', target = 'soon'", &["`limit.adapt.target`: `soon` is not a duration"]),
        (
            rate,
            "by = 'cpu', target = '80%', floor = '0%', ceiling = '101%'",
            &[
                "`limit.adapt.floor`: `0%` is not a whole percentage from `1%` to `100%`",
                "`limit.adapt.ceiling`: `101%` is not",
            ],
        ),
        (
            rate,
            "by = 'cpu', target = '80%', floor = '50%', ceiling = '50%'",
            &["`limit.adapt.floor`: must be less than `ceiling`"],
        ),
        (rate, "by = 'cpu', target = '80%', ceiling = '20%'", &["`limit.adapt.floor`: must be less than `ceiling`"]),
        (rate, "by = 'cpu', target = '80%', probe = true", &["unknown key `probe` in `[limit.adapt]`"]),
        (
            "algorithm = 'concurrency'\nmax = 5",
            p90,
            &["`limit.algorithm`: `adapt` changes a rate, and `concurrency` has none"],
        ),
        (
            "rate = ['10/s', '100/h']\nalgorithm = 'sliding_window'",
            p90,
            &["`limit.rate`: a window of more than five seconds cannot follow `adapt`"],
        ),
        (
            "rate = '10/s'\nramp = { from = '2027-01-01', to = '2027-02-01', to_rate = '0/s' }",
            p90,
            &["`limit.ramp`: does not go with `adapt`"],
        ),
        ("rate = '10/s'\ncandidate = { rate = '5/s' }", p90, &["`limit.candidate`: does not go with `adapt`"]),
        ("rate = '10/s'\nstrategy = 'redis'", p90, &["`limit.strategy`: each replica adapts its own share by `adapt`"]),
        (
            "rate = '10/s'\nstage = 'arrival'",
            p90,
            &["`limit.adapt.by`: needs answers, which a limit of stage `arrival`"],
        ),
        ("rate = '10/s'\ncost = 3", "by = 'cpu', target = '80%'", &["`limit.cost`: ", "the burst at `adapt.floor`"]),
        // Errors of other options are reported too.
        (
            "rate = '10/x'\nmax_keys = 0",
            "by = 'gpu', target = '1%'",
            &["`limit.rate`: ", "`limit.max_keys`: ", "`limit.adapt.by`: "],
        ),
        ("rate = '10/s'\ncost = 0", "by = 'cpu', target = 'x'", &["`limit.cost`: ", "`limit.adapt.target`: "]),
    ] {
        let text = with(limit, adapt) + FLEET;
        let Err(problems) = compile(&text) else { panic!("{text}") };
        let said = problems.to_string();
        assert!(expected.iter().all(|expected| said.contains(expected)), "{text}\n{said}");
    }
}
