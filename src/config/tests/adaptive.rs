//! `max = "auto"` of a limit, and what is wrong with it.

use super::*;
use crate::engine::limit::Algorithm;
use crate::engine::limit::concurrency::Rule;
use crate::engine::limit::concurrency::adaptive::Range;

#[test]
fn a_bound_that_follows_its_service_needs_a_range_and_no_other_numbers() {
    let auto = "max = 'auto'\nalgorithm = 'concurrency'\nkey = []\n";
    let range = format!("{auto}floor = 2\nceiling = 9\n");
    for (limit, expected) in [
        (auto.to_owned(), &["`limit.floor` is missing", "`limit.ceiling` is missing"][..]),
        (format!("{auto}floor = 2"), &["`limit.ceiling` is missing"]),
        (format!("{auto}floor = 9\nceiling = 9"), &["`limit.ceiling`: must be more than `floor`"]),
        (format!("{auto}floor = 0\nceiling = 9"), &["`limit.floor`: "]),
        (format!("{auto}floor = 1\nceiling = 1000001"), &["`limit.ceiling`: "]),
        (range.replace("auto", "atuo"), &["`limit.max`: expected whole number from 1, or `auto`"]),
        (
            "max = 5\nfloor = 2\nalgorithm = 'concurrency'\nkey = []".to_owned(),
            &["`limit.floor`: has an effect only with `max = \"auto\"`"],
        ),
        (
            "rate = '1/s'\nceiling = 2\nkey = []".to_owned(),
            &["`limit.ceiling` belongs to `concurrency`, not to `token_bucket`"],
        ),
        (range.replace("[]", "['ip']"), &["`limit.key`: `max = \"auto\"` finds one bound for all requests"]),
        (
            range.clone() + "plans = { a = { max = 3 } }",
            &["`limit.plans`: does not go with `max = \"auto\"`, which has no numbers to change"],
        ),
        (range.clone() + "candidate = { max = 3 }", &["`limit.candidate`: does not go with `max = \"auto\"`"]),
        (range.clone() + "cost = 3", &["`limit.cost`: "]),
        (range.clone() + "on_limit = 'delay'", &["`limit.on_limit`: `delay` bounds no requests in flight"]),
        (
            "max = 5\nalgorithm = 'concurrency'\nkey = []\non_limit = 'delay'".to_owned(),
            &["`limit.on_limit`: `delay` bounds no requests in flight"],
        ),
        (
            range.clone() + "ramp = { from = '2027-01-01', to = '2027-02-01', to_rate = '0/s' }",
            &["`limit.ramp`: does not go with `max = \"auto\"`"],
        ),
        (
            range.clone() + "strategy = 'split'\n[fleet]\nreplicas = 2",
            &["`limit.strategy`: each replica finds the bound of `max = \"auto\"` by itself"],
        ),
    ] {
        let Err(problems) = compile(&format!("{UPSTREAM}[[limit]]\nname = 'a'\n{limit}")) else { panic!("{limit}") };
        let said = problems.to_string();
        assert!(expected.iter().all(|expected| said.contains(expected)), "{limit}\n{said}");
    }
    let config = compile(&format!("{UPSTREAM}[[limit]]\nname = 'a'\n{range}on_limit = 'hold'\ncost = 2"));
    let allowed = config.unwrap_or_else(|problems| panic!("{problems}")).policy.limits()[0].allowed.clone();
    assert_eq!(allowed.usual, Algorithm::Concurrency(Rule::adaptive(Range { floor: 2, ceiling: 9 })));
    assert_eq!(allowed.written.usual.text(None).as_deref(), Some("max auto from 2 to 9, concurrency"));
}
