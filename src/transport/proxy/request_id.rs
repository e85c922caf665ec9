//! The id of a request: that of a trusted proxy, or a UUID of version 7 (RFC 9562).

use crate::base::digits::hex;
use crate::base::fields::Fields;
use crate::base::split_mix::random;
use crate::base::time::Timestamp;

/// The field of the id.
pub(super) const REQUEST_ID: &str = "x-request-id";

/// The most bytes of an id that is accepted.
const ACCEPTED_MAX: usize = 128;

/// The id in `fields`, if there is one, and it is short and plain.
pub(super) fn accepted(fields: Fields<'_>) -> Option<&str> {
    let mut values = fields.all(REQUEST_ID);
    let value = values.next().filter(|value| (1..=ACCEPTED_MAX).contains(&value.len()))?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:/+=@".contains(byte);
    (values.next().is_none() && value.iter().all(is_plain)).then(|| str::from_utf8(value).ok())?
}

/// A new id of a request that began at `now`: ids sort by time.
pub(super) fn made(now: Timestamp) -> Box<str> {
    let ms = u128::from(now.as_ns() / 1_000_000);
    // The version is 7, the variant is 2; all other bits behind the time are random.
    let random = u128::from(random()) << 64 | u128::from(random());
    let bits = ms << 80 | 7 << 76 | (random >> 52 & 0xfff) << 64 | 2 << 62 | random & 0x3fff_ffff_ffff_ffff;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-").into()
}

/// A short random id of a refusal: hexadecimal digits.
pub(super) fn short() -> [u8; 16] {
    hex(random())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::FieldBuf;

    #[test]
    fn only_short_and_plain_ids_are_accepted() {
        let long = "a".repeat(128);
        for (values, expected) in [
            (&["abc-1_2.3~:/+=@"][..], Some("abc-1_2.3~:/+=@")),
            (&[&long], Some(&*long)),
            (&[&format!("{long}a")], None),
            (&[""], None),
            (&["a b"], None),
            (&["a\"b"], None),
            (&["a\u{e9}"], None),
            (&["a", "b"], None),
            (&[], None),
        ] {
            let fields: FieldBuf = values.iter().map(|value| ("X-Request-Id", *value)).collect();
            assert_eq!(accepted(fields.fields()), expected, "{values:?}");
        }
    }

    #[test]
    fn an_id_has_the_form_of_a_uuid_of_version_7() {
        let at = Timestamp::from_ns(0x0123_4567_89ab * 1_000_000 + 999_999);
        let ids = [(); 1000].map(|()| made(at));
        for id in &ids {
            let parts: Vec<_> = id.split('-').collect();
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{id}");
            assert!(id.starts_with("01234567-89ab-7") && b"89ab".contains(&id.as_bytes()[19]), "{id}");
        }
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len());
    }
}
