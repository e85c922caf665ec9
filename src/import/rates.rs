//! Durations and rates of other systems as text of Weir.

/// Units of time by their names in Go, protobuf and Weir, longest first, with their microseconds.
const UNITS: [(&str, &str, u64); 5] =
    [("h", "h", 3_600_000_000), ("m", "min", 60_000_000), ("s", "s", 1_000_000), ("ms", "ms", 1000), ("us", "us", 1)];

/// The microseconds of a duration such as `1h30m`, `0.5s` or `100ms`; `None` if it is none, or zero.
pub(super) fn duration_us(text: &str) -> Option<u64> {
    let (mut rest, mut total) = (text, 0_u64);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, after) = rest.split_at(end);
        let unit = &after[..after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len())];
        let (.., unit_us) = UNITS.iter().find(|(name, ..)| *name == unit)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let part: String = part.chars().take(6).collect();
        let scale = 10_u64.pow(u32::try_from(part.len()).ok()?);
        let part = if part.is_empty() { 0 } else { part.parse::<u64>().ok()? };
        let us = whole.parse::<u64>().ok()?.checked_mul(*unit_us)?.checked_add(part.checked_mul(*unit_us)? / scale)?;
        total = total.checked_add(us)?;
        rest = &after[unit.len()..];
    }
    (total > 0).then_some(total)
}

/// A duration of Weir.
pub(super) fn duration(us: u64) -> String {
    let (_, unit, unit_us) = UNITS.into_iter().find(|(.., unit_us)| us.is_multiple_of(*unit_us)).unwrap_or(UNITS[4]);
    format!("{}{unit}", us / unit_us)
}

/// The options of a limit that admits nothing.
pub(super) fn zero() -> Vec<(&'static str, String)> {
    // A rate is above zero, but a ramp may have ended there.
    let ramp = r#"{ from = "2000-01-01", to = "2000-01-02", to_rate = "0/s", step = "1day", at_zero = "limited" }"#;
    vec![("rate", "\"1/s\"".to_owned()), ("ramp", ramp.to_owned())]
}

/// A rate of Weir, of `count` in this time.
pub(super) fn rate(count: u64, period_us: u64) -> String {
    // A rate of Weir has periods of whole milliseconds.
    let scale = if period_us.is_multiple_of(1000) { 1 } else { 1000 };
    let period = duration(period_us.saturating_mul(scale));
    let is_one = period.starts_with('1') && !period[1..].starts_with(|c: char| c.is_ascii_digit());
    format!("{}/{}", count.saturating_mul(scale), if is_one { &period[1..] } else { &period })
}
