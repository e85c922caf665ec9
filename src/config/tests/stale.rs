//! `limit.stale`: its values, and what is wrong with it.

use super::*;
use crate::engine::policy::StaleRule;

fn with(limit: &str) -> String {
    format!("{UPSTREAM}[[limit]]\nname = 'a'\nkey = []\nrate = '1/s'\n{limit}\n")
}

#[test]
fn stored_answers_of_limits() {
    let plain = StaleRule { max_age_ns: 600_000_000_000, max_bytes: 64 << 20, causes: [true, false, false] };
    for (limit, expected) in [
        ("", None),
        ("stale = {}", Some(plain)),
        ("stale = { max_age = '10min', max_bytes = '64MiB' }\nstale_on = 'refused'", Some(plain)),
        ("stale = { max_age = '7day' }", Some(StaleRule { max_age_ns: 604_800_000_000_000, ..plain })),
        ("stale = { max_bytes = '64KiB' }", Some(StaleRule { max_bytes: 64 << 10, ..plain })),
        ("stale = {}\nstale_on = ['upstream_error']", Some(StaleRule { causes: [false, false, true], ..plain })),
        (
            "stale = {}\nstale_on = ['upstream_429', 'upstream_error', 'refused']",
            Some(StaleRule { causes: [true; 3], ..plain }),
        ),
        ("stale = {}\nmatch = { method = ['POST', 'GET'] }\nmode = 'shadow'", Some(plain)),
    ] {
        let config = compile(&with(limit)).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(config.policy.limits()[0].stale, expected, "{limit}");
    }
}

#[test]
fn wrong_stored_answers() {
    for (limit, expected) in [
        ("stale = true", "`limit.stale`"),
        ("stale = { age = '1s' }", "unknown key `age` in `[limit.stale]`"),
        ("stale = { max_age = '999ms' }", "`limit.stale.max_age`: expected duration from 1s to 604800s"),
        ("stale = { max_age = '8day' }", "`limit.stale.max_age`: expected duration from 1s to 604800s"),
        ("stale = { max_bytes = '63KiB' }", "`limit.stale.max_bytes`: expected size from 64KiB to 16GiB"),
        ("stale = { max_bytes = '17GiB' }", "`limit.stale.max_bytes`: expected size from 64KiB to 16GiB"),
        ("stale = { max_bytes = '-1' }", "`limit.stale.max_bytes`"),
        ("stale_on = ['refused']", "`limit.stale_on`: has an effect only with `stale`"),
        ("stale = {}\nstale_on = []", "`limit.stale_on`"),
        ("stale = {}\nstale_on = ['upstream']", "`upstream` is not one of `refused`, `upstream_429`, `upstream_error`"),
        ("stale = {}\nstale_on = ['refused', 'refused']", "`limit.stale_on`"),
        ("stale = {}\nstage = 'arrival'", "`limit.stale`: needs a limit of stage `identified`"),
        ("stale = {}\nmatch = { method = ['POST', 'PUT'] }", "`limit.stale`: stores answers to GET only"),
        ("stale = {}\nmatch = { method = 'HEAD' }", "`limit.stale`: stores answers to GET only"),
    ] {
        let problems = compile(&with(limit)).map(|_| ()).unwrap_err().to_string();
        assert!(problems.contains(expected), "{limit}\n{problems}");
    }
    let callers = format!(
        "{UPSTREAM}[[limit]]\nname = 'a'\nkey = ['name:x']\nrate = '1/s'\nstale = {{}}\n[grpc]\nlisten = '127.0.0.1:0'\n"
    );
    let problems = compile(&callers).map(|_| ()).unwrap_err().to_string();
    assert!(problems.contains("callers of the limiter service make none"), "{problems}");
}
