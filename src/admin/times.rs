//! Instants as texts.

use std::time::{Duration, SystemTime};

use crate::base::time::{Timestamp, saturating_ns};

/// An instant as RFC 3339 with milliseconds, in UTC.
pub fn rfc3339(at: Timestamp) -> String {
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + Duration::from_nanos(at.as_ns())).to_string()
}

/// The instant of such a text; `None` if it is none.
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let since = humantime::parse_rfc3339(text).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_ns(saturating_ns(since)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_rfc_3339() {
        assert_eq!(rfc3339(Timestamp::from_ns(1_500_000_000)), "1970-01-01T00:00:01.500Z");
        assert_eq!(parse_rfc3339("1970-01-01T00:00:01.500Z"), Some(Timestamp::from_ns(1_500_000_000)));
        assert_eq!(parse_rfc3339("soon"), None);
        assert_eq!(rfc3339(Timestamp::from_ns(u64::MAX)), "2554-07-21T23:34:33.709Z");
    }
}
