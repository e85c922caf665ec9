//! Sizes: numbers of bytes.

use super::time_units::Number;
use super::units::Fault;

/// Parses a number of bytes, with or without a unit. Errs for a unit of one letter: `10m` is 10 MiB in nginx, and 10 MB
/// elsewhere.
pub(in crate::config) fn size(text: &str) -> Result<u64, Fault> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ' ');
    if let ("k" | "m" | "g" | "t" | "p", letter) = (&*unit.to_ascii_lowercase(), unit.to_ascii_uppercase()) {
        let number = text[..text.len() - unit.len()].trim_end();
        let (decimal, binary) =
            (if letter == "K" { "kB".to_owned() } else { format!("{letter}B") }, format!("{letter}iB"));
        let help = format!("write `{number}{binary}` (powers of 1024) or `{number}{decimal}` (powers of 1000)");
        return Err((format!("`{text}` can mean two sizes"), help).into());
    }
    bytes(text[..text.len() - unit.len()].trim_end(), &unit.to_ascii_lowercase())
        .ok_or_else(|| Fault::new(format!("`{text}` is not a size")).help("write it like \"64KiB\" or \"10MiB\""))
}

/// The bytes of `number` units, rounded down. `unit` is in lower case. `None` if either is invalid, or if it does not fit.
fn bytes(number: &str, unit: &str) -> Option<u64> {
    let prefix = unit.strip_suffix('b').unwrap_or(unit);
    let (letter, base) = prefix.strip_suffix('i').map_or((prefix, 1000), |letter| (letter, 1024_u64));
    let power = match letter {
        "" if base == 1000 => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    Number::parse(number)?.times(base.pow(power)).map(Number::floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("64KiB", 64 << 10),
            ("10MiB", 10 << 20),
            ("10 mib", 10 << 20),
            ("1.5GB", 1_500_000_000),
            ("0.3KiB", 307),
            ("8192", 8192),
            ("1kB", 1000),
            ("2PiB", 2 << 50),
            ("0B", 0),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "-1", "big", "1KiX", "10m", "10M", "1k", "1 g", "KiB", "1iB", "1.2.3kB", "1e3", "99999PiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
