//! Parses rates and durations. Both share one grammar of numbers and units of time.
//!
//! A duration is one or several pairs of a number and a unit: `90s`, `1h 30min`. A rate is a count for each period:
//! `100/min`, `5/15min`. Numbers are whole. The error for a fraction suggests an equal value in whole numbers.

use std::fmt;
use std::time::Duration;

use super::units::Fault;
use crate::base::fields::decimal;
use crate::config::diagnostics::{did_you_mean, nearest};
use crate::config::schema::help_for_rate;
use crate::engine::limit::{Rate, Unit};

const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_DAY: u64 = 86_400 * NS_PER_S;

/// A unit of time and its spellings.
#[derive(Debug)]
struct TimeUnit {
    name: &'static str,
    others: &'static [&'static str],
    /// Length in nanoseconds; `None` if the length depends on the calendar.
    ns: Option<u64>,
    /// The unit in rates; `None` if rates cannot use the unit.
    of_rates: Option<Unit>,
}

const UNITS: [TimeUnit; 10] = [
    unit("ns", &["nsec", "nanosecond", "nanoseconds"], Some(1), None),
    unit("us", &["usec", "microsecond", "microseconds"], Some(1000), None),
    unit("ms", &["msec", "msecs", "millis", "millisecond", "milliseconds"], Some(1_000_000), Some(Unit::Millisecond)),
    unit("s", &["sec", "secs", "second", "seconds"], Some(NS_PER_S), Some(Unit::Second)),
    unit("min", &["m", "mins", "minute", "minutes"], Some(60 * NS_PER_S), Some(Unit::Minute)),
    unit("h", &["hr", "hrs", "hour", "hours"], Some(3600 * NS_PER_S), Some(Unit::Hour)),
    unit("day", &["d", "days"], Some(NS_PER_DAY), Some(Unit::Day)),
    unit("week", &["w", "wk", "wks", "weeks"], Some(7 * NS_PER_DAY), Some(Unit::Week)),
    unit("month", &["months"], None, Some(Unit::Month)),
    unit("year", &["y", "yr", "yrs", "years"], Some(365 * NS_PER_DAY), None),
];

const fn unit(
    name: &'static str,
    others: &'static [&'static str],
    ns: Option<u64>,
    of_rates: Option<Unit>,
) -> TimeUnit {
    TimeUnit { name, others, ns, of_rates }
}

/// Spellings that can mean several units, and the correction of each.
const AMBIGUOUS: [(&str, &str); 4] = [
    ("M", "write `min` for minutes or `month` for months"),
    ("mn", "did you mean `min`?"),
    ("mo", "write `month`"),
    ("mon", "write `month`"),
];

impl TimeUnit {
    fn spellings(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.others.iter().copied())
    }

    /// The name of the next smaller unit.
    fn next_smaller(&self) -> &'static str {
        UNITS.iter().take_while(|unit| unit.name != self.name).last().map_or(self.name, |unit| unit.name)
    }

    /// Finds the unit of a spelling, among the units of rates or of durations. Errs for an unknown spelling.
    fn find(text: &str, is_of_rate: bool) -> Result<&'static Self, Fault> {
        let known = || UNITS.iter().filter(|unit| if is_of_rate { unit.of_rates.is_some() } else { true });
        if let Some(unit) = known().find(|unit| unit.spellings().any(|name| name == text)) {
            return Ok(unit);
        }
        let names: Vec<_> = known().map(|unit| unit.name).collect();
        let what = format!("unknown unit `{text}`; units are {}", names.join(", "));
        let ambiguous = AMBIGUOUS.iter().find(|(name, _)| *name == text).map(|(_, help)| (*help).to_owned());
        let lower = text.to_lowercase();
        let by_case = known().find(|unit| unit.spellings().any(|name| name == lower)).map(|unit| unit.name);
        let suggestion = by_case.or_else(|| nearest(&lower, known().flat_map(TimeUnit::spellings)));
        Err((what, ambiguous.or_else(|| did_you_mean(suggestion))).into())
    }
}

/// A number of at least zero, as a fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    numerator: u64,
    denominator: u64,
}

impl Number {
    const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// Reduces the fraction. `None` if a part of it does not fit 64 bits.
    fn new(numerator: u128, denominator: u128) -> Option<Self> {
        let (mut divisor, mut rest) = (numerator, denominator);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        let divisor = divisor.max(1);
        let reduced = |part: u128| u64::try_from(part / divisor).ok();
        Some(Self { numerator: reduced(numerator)?, denominator: reduced(denominator)? })
    }

    /// Parses digits with an optional decimal fraction. `None` for a sign, for an exponent and for too many digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| decimal(text.as_bytes()).filter(|number| *number < u64::MAX).map(u128::from);
        let denominator = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let numerator = digits(whole)?.checked_mul(denominator)?.checked_add(digits(fraction)?)?;
        Self::new(numerator, denominator)
    }

    /// The number, if it is whole.
    fn whole(self) -> Option<u64> {
        (self.denominator == 1).then_some(self.numerator)
    }

    /// The number, rounded down.
    pub(super) fn floor(self) -> u64 {
        self.numerator / self.denominator
    }

    /// The product with `count`. `None` if a part of it does not fit 64 bits.
    pub(super) fn times(self, count: u64) -> Option<Self> {
        Self::new(u128::from(self.numerator) * u128::from(count), u128::from(self.denominator))
    }

    /// The quotient. `None` if a part of it does not fit 64 bits.
    fn over(self, other: Self) -> Option<Self> {
        let wide = |a: u64, b: u64| u128::from(a) * u128::from(b);
        Self::new(wide(self.numerator, other.denominator), wide(self.denominator, other.numerator))
    }
}

/// Splits `text` into its first number, its first unit and the rest. Each part may be empty.
fn split(text: &str) -> (&str, &str, &str) {
    let is_of_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let number = text.bytes().take_while(|byte| is_of_number(*byte)).count();
    let (number, rest) = text.split_at(number);
    let rest = rest.trim_start();
    let unit = rest.find(|c: char| c.is_whitespace() || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit);
    (number, unit, rest.trim_start())
}

/// A rate as the configuration writes it: `count` units in each period of `every` times `unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::config) struct WrittenRate {
    /// Units; at least 1.
    pub(in crate::config) count: u64,
    /// Units of time in a period; at least 1.
    pub(in crate::config) every: u64,
    /// The unit of time.
    pub(in crate::config) unit: Unit,
    /// Length of the period in nanoseconds; `None` if it depends on the calendar.
    period_ns: Option<u64>,
}

impl WrittenRate {
    /// Whether both periods are of one length.
    pub(in crate::config) fn is_as_long_as(&self, other: &Self) -> bool {
        match (self.period_ns, other.period_ns) {
            (None, None) => self.every == other.every,
            (one, other) => one == other,
        }
    }

    /// This rate as a part of `other`, in lowest terms. `None` if periods do not compare, or for numbers beyond 2^32.
    pub(in crate::config) fn as_part_of(&self, other: &Self) -> Option<(u64, u64)> {
        let (own_ns, other_ns) = match (self.period_ns, other.period_ns) {
            (Some(own_ns), Some(other_ns)) => (own_ns, other_ns),
            _ if self.is_as_long_as(other) => (1, 1),
            _ => return None,
        };
        let wide = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let part = Number::new(wide(self.count, other_ns), wide(other.count, own_ns))?;
        let is_small = part.numerator.max(part.denominator) < 1 << 32;
        is_small.then_some((part.numerator, part.denominator))
    }

    /// Returns the rate over a fixed period. Errs if the length of the period depends on the calendar.
    pub(in crate::config) fn rate(&self) -> Result<Rate, Fault> {
        let period_ns = self.period_ns.ok_or_else(|| {
            let help =
                "only `algorithm = \"fixed_window\"` with `align = \"calendar\"` can count months; otherwise write `30day`";
            Fault::new("a month has no fixed length").help(help)
        })?;
        Ok(Rate { count: self.count, period_ns })
    }
}

impl fmt::Display for WrittenRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|unit| unit.of_rates == Some(self.unit)).map_or("", |unit| unit.name);
        match self.every {
            1 => write!(f, "{}/{unit}", self.count),
            every => write!(f, "{}/{every}{unit}", self.count),
        }
    }
}

/// A factor of the numbers of a limit: `x2` or `x0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) struct Factor(Number);

/// The largest factor; the smallest is its reciprocal.
const FACTOR_MAX: u64 = 1_000_000;

impl Factor {
    /// Parses a factor. `None` if the text is not like one; errs if it is like one and wrong.
    pub(in crate::config) fn parse(text: &str) -> Option<Result<Self, Fault>> {
        const SIGNS: [char; 4] = ['x', 'X', '*', '\u{d7}'];
        let number = text.strip_prefix(SIGNS).or_else(|| text.strip_suffix(SIGNS))?.trim();
        if !number.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+')) {
            return None;
        }
        let parsed = Number::parse(number).filter(|_| text.strip_prefix('x') == Some(number));
        let is_within = |Number { numerator, denominator }: &Number| {
            *numerator > 0 && *denominator <= FACTOR_MAX && numerator.div_ceil(*denominator) <= FACTOR_MAX
        };
        let help = "write it like \"x2\" or \"x0.5\", from \"x0.000001\" to \"x1000000\"";
        let fault = || Fault::new(format!("`{text}` is not a factor")).help(help);
        Some(parsed.filter(is_within).map(Self).ok_or_else(fault))
    }

    /// `count` times the factor, rounded down; 0 below one unit.
    pub(in crate::config) fn of_count(self, count: u64) -> Option<u64> {
        self.0.times(count).map(Number::floor)
    }

    /// The rate times the factor. A count that is not whole is rounded down, or has a longer period if `is_continuous`.
    /// Errs if nothing of the rate remains, or if the numbers are too large.
    pub(in crate::config) fn of_rate(self, rate: &WrittenRate, is_continuous: bool) -> Result<WrittenRate, Fault> {
        let too_large = || Fault::new(format!("this factor of `{rate}` is too large"));
        let scaled = self.0.times(rate.count).ok_or_else(too_large)?;
        let (count, longer) = match scaled {
            Number { numerator, denominator } if is_continuous => (numerator, denominator),
            Number { numerator, denominator } => (numerator / denominator, 1),
        };
        if count == 0 {
            let help = Some("write the rate itself, as in \"100/min\"".to_owned());
            return Err((format!("this factor of `{rate}` is less than one unit"), help).into());
        }
        let every = rate.every.checked_mul(longer).ok_or_else(too_large)?;
        let period_ns = rate.period_ns.map(|ns| ns.checked_mul(longer).ok_or_else(too_large)).transpose()?;
        Ok(WrittenRate { count, every, period_ns, ..*rate })
    }
}

/// Parses COUNT `/` [N] UNIT.
pub(in crate::config) fn rate(text: &str) -> Result<WrittenRate, Fault> {
    let shape = || {
        let help = match Factor::parse(text) {
            Some(_) => "a factor such as \"x2\" stands alone, as the whole value of a plan or an override",
            None => "write it like \"100/min\" or \"5/15min\"",
        };
        let help = help_for_rate(text).unwrap_or_else(|| help.to_owned());
        Fault::new(format!("`{text}` is not a rate")).help(help)
    };
    let (count, period) = text.split_once('/').ok_or_else(shape)?;
    let period = period.trim();
    let (every, unit, rest) = split(period);
    let count = Number::parse(count.trim()).ok_or_else(shape)?;
    let every = if every.is_empty() { Number::ONE } else { Number::parse(every).ok_or_else(shape)? };
    let unit = TimeUnit::find(unit, true)?;
    if !rest.is_empty() {
        return Err(shape());
    }
    if count.numerator == 0 || every.numerator == 0 {
        return Err("a rate of zero would never admit a request".into());
    }
    let (Some(whole_count), Some(whole_every), Some(of_rates)) = (count.whole(), every.whole(), unit.of_rates) else {
        let whole = count.over(every).map(|Number { numerator, denominator }| match denominator {
            1 => format!("write `{numerator}/{}`", unit.name),
            every => format!("write `{numerator}/{every}{}`", unit.name),
        });
        return Err((format!("`{text}` has a fraction; a rate has whole numbers"), whole).into());
    };
    let too_long = || Fault::new(format!("the period `{period}` is too long"));
    let period_ns = unit.ns.map(|ns| whole_every.checked_mul(ns).ok_or_else(too_long)).transpose()?;
    Ok(WrittenRate { count: whole_count, every: whole_every, unit: of_rates, period_ns })
}

/// The longest duration. Timers can still represent an instant that far ahead.
const DURATION_MAX: Duration = Duration::from_hours(366 * 24);

/// Parses a duration longer than zero.
pub(in crate::config) fn duration(text: &str) -> Result<Duration, Fault> {
    match duration_or_zero(text)? {
        Duration::ZERO => Err("must be longer than zero".into()),
        some => Ok(some),
    }
}

/// Parses a duration: `0`, or numbers with units.
pub(in crate::config) fn duration_or_zero(text: &str) -> Result<Duration, Fault> {
    let shape =
        || Fault::new(format!("`{text}` is not a duration")).help("write it like \"250ms\", \"10s\" or \"5min\"");
    let (mut total_ns, mut remaining, mut smaller) = (0_u128, text.trim(), "s");
    if remaining == "0" {
        return Ok(Duration::ZERO);
    }
    while !remaining.is_empty() || total_ns == 0 {
        let (number, unit, rest) = split(remaining);
        let parsed = Number::parse(number).ok_or_else(shape)?;
        if unit.is_empty() {
            let what = format!("`{text}` is not a duration: `{number}` has no unit");
            let before = text.trim().strip_suffix(number).unwrap_or_default().trim_end();
            let whole = if before.is_empty() { format!("{number}s") } else { format!("{before} {number}{smaller}") };
            return Err((what, did_you_mean(Some(&whole))).into());
        }
        let unit = TimeUnit::find(unit, false)?;
        let unit_ns = unit.ns.ok_or_else(|| {
            let days = parsed.whole().and_then(|months| months.checked_mul(30));
            Fault::new("a month has no fixed length").help(days.map(|days| format!("write `{days}day`")))
        })?;
        let Some(whole) = parsed.whole() else {
            let what = format!("`{text}` has a fraction; a duration has whole numbers");
            return Err((what, in_smaller_unit(parsed, unit_ns)).into());
        };
        smaller = unit.next_smaller();
        total_ns = total_ns.saturating_add(u128::from(whole) * u128::from(unit_ns));
        if rest.is_empty() {
            break;
        }
        remaining = rest;
    }
    match u64::try_from(total_ns).map(Duration::from_nanos) {
        Ok(duration) if duration <= DURATION_MAX => Ok(duration),
        _ => Err(format!("`{text}` is longer than a year").into()),
    }
}

/// Suggests a whole number of a smaller unit for a fraction of a unit of `unit_ns` nanoseconds.
fn in_smaller_unit(number: Number, unit_ns: u64) -> Option<String> {
    UNITS.iter().rev().filter_map(|smaller| Some((smaller, smaller.ns?))).find_map(|(smaller, smaller_ns)| {
        let product = Number::new(u128::from(number.numerator) * u128::from(unit_ns), number.denominator.into())?;
        let denominator = u128::from(product.denominator) * u128::from(smaller_ns);
        let whole = Number::new(product.numerator.into(), denominator)?.whole()?;
        Some(format!("write `{whole}{}`", smaller.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_exact() {
        for (factor, of, continuous, whole) in [
            ("x2", "100/min", "200/min", Some("200/min")),
            ("x0.5", "100/min", "50/min", Some("50/min")),
            ("x0.5", "5/min", "5/2min", Some("2/min")),
            ("x0.5", "1/s", "1/2s", None),
            ("x1.25", "3/15min", "15/60min", Some("3/15min")),
            ("x0.000001", "1/h", "1/1000000h", None),
            ("x1000000", "7/day", "7000000/day", Some("7000000/day")),
            ("x10", "9000/month", "90000/month", Some("90000/month")),
        ] {
            let (factor, of) = (Factor::parse(factor).unwrap().unwrap(), rate(of).unwrap());
            let shown = |scaled: Result<WrittenRate, Fault>| scaled.ok().map(|rate| rate.to_string());
            assert_eq!(shown(factor.of_rate(&of, true)).as_deref(), Some(continuous), "{factor:?} {of}");
            assert_eq!(shown(factor.of_rate(&of, false)).as_deref(), whole, "{factor:?} {of}");
        }
        for text in
            ["2x", "X2", "*2", "\u{d7}2", "x 2", "x0", "x-1", "x+1", "x.5", "x1e3", "x2.", "x1000001", "x0.0000001"]
        {
            let fault = Factor::parse(text).unwrap().unwrap_err();
            assert!(fault.help.unwrap().contains("write it like \"x2\""), "{text}");
        }
        for text in ["", "x", "xy", "100/min", "unlimited", "max"] {
            assert!(Factor::parse(text).is_none(), "{text}");
        }
        assert!(rate("x2").unwrap_err().help.unwrap().contains("stands alone"));
    }

    #[test]
    fn rates() {
        for (text, count, period) in [
            ("100/min", 100, 60.),
            ("5/15min", 5, 900.),
            ("10/2s", 10, 2.),
            ("1/ms", 1, 0.001),
            (" 7 / 3 h ", 7, 10_800.),
            ("1/day", 1, 86_400.),
            ("2/week", 2, 604_800.),
            ("10/m", 10, 60.),
            ("10/hour", 10, 3600.),
            ("10/d", 10, 86_400.),
            ("2.0/s", 2, 1.),
        ] {
            let period_ns = Duration::from_secs_f64(period).as_nanos().try_into().unwrap();
            assert_eq!(rate(text).and_then(|rate| rate.rate()), Ok(Rate { count, period_ns }), "{text}");
        }
        for text in [
            "",
            "/",
            "5",
            "5/",
            "/s",
            "-1/s",
            "+1/s",
            "5/+2s",
            "0/s",
            "5/0s",
            "5/s/s",
            "5 per s",
            "5/1h30min",
            "5/ s x",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["99999999999999999999/s", "1/99999999999999999999s", "1/9999999999999999week", "1/us", "1/year"] {
            assert!(rate(text).is_err(), "{text}");
        }
        let months = rate("9/3month").unwrap();
        assert_eq!((months.count, months.every, months.unit), (9, 3, Unit::Month));
        assert!(months.rate().is_err());
    }

    /// Each spelling means one unit, in rates and in durations.
    #[test]
    fn spellings() {
        let mut seen = std::collections::HashSet::new();
        for unit in &UNITS {
            for name in unit.spellings() {
                assert!(seen.insert(name), "{name} is two units");
                if let Some(ns) = unit.ns {
                    assert_eq!(duration(&format!("1{name}")), Ok(Duration::from_nanos(ns)), "{name}");
                }
                if let (Some(ns), Some(_)) = (unit.ns, unit.of_rates) {
                    let rate = rate(&format!("1/{name}")).and_then(|rate| rate.rate());
                    assert_eq!(rate, Ok(Rate { count: 1, period_ns: ns }), "{name}");
                }
            }
        }
    }

    #[test]
    fn suggestions() {
        for (text, help) in [
            ("0.5/s", "write `1/2s`"),
            ("1.5/s", "write `3/2s`"),
            ("0.10/15min", "write `1/150min`"),
            ("10/0.5s", "write `20/s`"),
            ("5/M", "write `min` for minutes or `month` for months"),
            ("5/mn", "did you mean `min`?"),
            ("5/Hour", "did you mean `h`?"),
            ("5/minuts", "did you mean `minute`?"),
            ("5/secnds", "did you mean `seconds`?"),
            ("10r/s", "write `rate = \"10/s\"`"),
            ("10rps", "write `rate = \"10/s\"`"),
            ("600r/m", "write `rate = \"600/min\"`"),
            ("5/s burst=20", "write `rate = \"5/s\"`, and `burst = 20` as an option of its own"),
            ("5/s nodelay", "write `rate = \"5/s\"`, without `nodelay`: a limit refuses by default"),
            ("5/s at once", "write it like \"100/min\" or \"5/15min\""),
            ("5 per minute", "write it like \"100/min\" or \"5/15min\""),
        ] {
            assert_eq!(rate(text).unwrap_err().help.as_deref(), Some(help), "{text}");
        }
        for (text, help) in [
            ("5M", "write `min` for minutes or `month` for months"),
            ("1month", "write `30day`"),
            ("1.5s", "write `1500ms`"),
            ("0.5h", "write `30min`"),
            ("0.5day", "write `12h`"),
            ("10", "did you mean `10s`?"),
            ("1h30", "did you mean `1h 30min`?"),
            ("5min 30", "did you mean `5min 30s`?"),
            ("1day12", "did you mean `1day 12h`?"),
            ("10S", "did you mean `s`?"),
            ("ten", "write it like \"250ms\", \"10s\" or \"5min\""),
        ] {
            assert_eq!(duration(text).unwrap_err().help.as_deref(), Some(help), "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, ms) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5min", 300_000),
            ("1m", 60_000),
            ("2h", 7_200_000),
            ("1h 30min", 5_400_000),
            ("1m30s", 90_000),
            (" 2 hours ", 7_200_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(duration("1day"), Ok(Duration::from_hours(24)));
        for text in ["0s", "0", " 0 "] {
            assert_eq!(duration_or_zero(text), Ok(Duration::ZERO));
        }
        for text in
            ["", "10", "0s", "0s 0s", "-1s", "ten", "off", "s", "400days", "1s 5", "1.s", ".5s", "1..5s", "1e3s"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["99999999999999999999s", "18446744073709551615year", "1s18446744073709551615year"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
