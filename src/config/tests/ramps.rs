//! `limit.ramp`: its instants, its end, and what is wrong with it.

use super::*;
use crate::base::time::Timestamp;
use crate::engine::limit::Scale;
use crate::engine::policy::Ramp;

fn with(limit: &str, ramp: &str) -> String {
    format!("{UPSTREAM}[[limit]]\nname = 'a'\nkey = []\n{limit}\nramp = {{ {ramp} }}\n")
}

fn ramp(limit: &str, options: &str) -> std::sync::Arc<Ramp> {
    let config = compile(&with(limit, options)).unwrap_or_else(|problems| panic!("{problems}"));
    config.policy.limits()[0].ramp.clone().unwrap()
}

/// The instants in Unix seconds, and the percentages from then on.
fn schedule(ramp: &Ramp) -> Vec<(u64, u64)> {
    let percent = |Scale { numerator, denominator }: Scale| numerator * 100 / denominator;
    ramp.schedule().map(|(at, scale)| (at.as_ns() / 1_000_000_000, percent(scale))).collect()
}

#[test]
fn instants_of_ramps() {
    const DAY: u64 = 86_400;
    // 2027-01-01 in UTC.
    const BEGIN: u64 = 1_798_761_600;
    let zero = "to_rate = '0/s'";
    let days = |from, to, more: &str| {
        schedule(&ramp("rate = '100/min'", &format!("from = '{from}', to = '{to}', {zero}{more}")))
    };
    assert_eq!(
        days("2027-01-01", "2027-01-05", ", step = '1day'"),
        [(0, 100), (1, 75), (2, 50), (3, 25), (4, 0)].map(|(day, percent)| (BEGIN + day * DAY, percent))
    );
    // The last step may be shorter.
    assert_eq!(
        days("2027-01-01T00:00:00Z", "2027-01-01T00:00:10+00:00", ", step = '4s'"),
        [(0, 100), (4, 66), (8, 33), (10, 0)].map(|(s, percent)| (BEGIN + s, percent))
    );
    // Clocks go forward on 2027-03-28, so this day has 23 hours.
    let berlin = days("2027-03-27", "2027-03-30", ", step = '1day', time_zone = 'Europe/Berlin'");
    let steps: Vec<_> = berlin.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert_eq!((berlin[0].0, steps), (1_806_102_000, vec![DAY, DAY - 3600, DAY]));
    let even = days("2027-01-01", "2027-02-01", "");
    assert_eq!(
        (even.len(), even[0], even[500], even[1000]),
        (1001, (BEGIN, 100), (BEGIN + 31 * DAY / 2, 50), (BEGIN + 31 * DAY, 0))
    );
    assert_eq!(days("2027-01-01", "2027-01-01T00:00:03", "").len(), 4, "a step takes a second at least");
}

#[test]
fn ends_of_ramps() {
    for (limit, to_rate, units, expected) in [
        ("rate = '90/min'", "30/min", 90, 30),
        ("rate = '90/min'", "1/s", 90, 60),
        ("rate = '10/s'", "25/s", 10, 25),
        ("rate = '7/month'\nalgorithm = 'fixed_window'", "3/month", 7, 3),
        ("rate = ['10/s', '90/min']", "0/s", 10, 0),
        ("max = 5\nalgorithm = 'concurrency'", "0/day", 5, 0),
    ] {
        let ramp =
            ramp(limit, &format!("from = '2027-01-01', to = '2027-01-02', step = '1day', to_rate = '{to_rate}'"));
        assert_eq!(ramp.scale(2).units(units), expected, "{limit} {to_rate}");
        assert_eq!(ramp.retirement.is_some(), expected == 0, "{limit}");
    }
    let options = "from = '2027-01-01', to = '2027-02-01', to_rate = '0/s', at_zero = 'limited', successor = '/v2'";
    let retirement = ramp("rate = '1/s'", options).retirement.clone().unwrap();
    assert_eq!(&*retirement.deprecation, "@1798761600");
    assert_eq!(&*retirement.sunset, "Mon, 01 Feb 2027 00:00:00 GMT");
    assert_eq!((retirement.link.as_deref(), retirement.is_gone), (Some("</v2>; rel=\"successor-version\""), false));
}

#[test]
fn wrong_ramps() {
    let dates = "from = '2027-01-01', to = '2027-02-01'";
    let plain = "rate = '100/min'";
    for (limit, options, expected) in [
        (plain, dates.to_owned(), "`limit.ramp.to_rate` is missing"),
        (plain, "to = '2027-02-01', to_rate = '0/s'".to_owned(), "`limit.ramp.from` is missing"),
        (plain, "from = 'soon', to = '2027-02-01', to_rate = '0/s'".to_owned(), "`soon` is not a date or a time"),
        (plain, "from = '1969-01-01', to = '2027-02-01', to_rate = '0/s'".to_owned(), "is not a date or a time"),
        (plain, "from = '2027-02-01', to = '2027-02-01', to_rate = '0/s'".to_owned(), "is not after `from`"),
        (plain, format!("{dates}, to_rate = '0/x'"), "unknown unit `x`"),
        (plain, format!("{dates}, to_rate = '0'"), "`0` is not a rate"),
        (plain, format!("{dates}, to_rate = '1/min', time_zone = 'Mars'"), "`Mars` is no time zone"),
        (plain, format!("{dates}, to_rate = '0/s', step = '1min'"), "makes more than 1000 steps"),
        (plain, format!("{dates}, to_rate = '1/min', successor = '/v2'"), "has an effect only at zero"),
        (plain, format!("{dates}, to_rate = '1/min', at_zero = 'gone'"), "has an effect only at zero"),
        (plain, format!("{dates}, to_rate = '0/s', at_zero = '410'"), "`410`"),
        (plain, format!("{dates}, to_rate = '0/s', successor = '/v2>'"), "is not a URL or a path"),
        (plain, format!("{dates}, to_rate = '20000000/s'"), "a step with numbers that this limit cannot count"),
        (
            "rate = '1/day'",
            format!("{dates}, to_rate = '1/60000day'"),
            "a step with numbers that this limit cannot count",
        ),
        (
            "rate = '1/h'\nalgorithm = 'fixed_window'",
            format!("{dates}, to_rate = '4294967296/h'"),
            "cannot be compared with",
        ),
        ("rate = ['1/s', '9/min']", format!("{dates}, to_rate = '1/min'"), "needs a limit with one rate"),
        ("max = 3\nalgorithm = 'concurrency'", format!("{dates}, to_rate = '1/s'"), "needs a limit with one rate"),
        (
            "rate = '3/month'\nalgorithm = 'fixed_window'",
            format!("{dates}, to_rate = '1/day'"),
            "cannot be compared with",
        ),
    ] {
        let problems = compile(&with(limit, &options)).map(|_| ()).unwrap_err().to_string();
        assert!(problems.contains(expected), "{limit} {options}\n{problems}");
    }
}

/// The rules are those that are written, until the clock is asked.
#[test]
fn a_configuration_has_the_rules_that_are_written() {
    let options = "from = '2000-01-01', to = '2000-02-01', to_rate = '0/s'";
    let config = compile(&with("rate = '100/min'", options)).unwrap();
    assert_eq!(config.policy.limits()[0].allowed.usual.capacity(), 100);
    assert!(config.proxy.profiles.retirements);
    let now = config.policy.ramped(Timestamp::from_ns(1_800_000_000_000_000_000)).unwrap();
    assert_eq!(now.limits()[0].allowed.usual.capacity(), 0);
}
