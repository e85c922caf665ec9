//! A bearer token: one shared secret that a client shows in `Authorization` (RFC 6750).

use http::HeaderMap;
use http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

use crate::base::opaque::opaque_debug;

/// The shared secret. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(Box<[u8]>);

/// The shortest token, in bytes: 128 random bits cannot be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;

impl BearerToken {
    /// Returns `None` if `bytes` are fewer than [`TOKEN_BYTES_MIN`], or not all visible ASCII.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_visible = bytes.iter().all(u8::is_ascii_graphic);
        (bytes.len() >= TOKEN_BYTES_MIN && is_visible).then(|| Self(bytes.into()))
    }

    /// Whether the only `Authorization` of a request has this token. The time that this takes depends on the length of
    /// the token only.
    pub fn is_shown(&self, headers: &HeaderMap) -> bool {
        let mut shown = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (shown.next(), shown.next()) else { return false };
        let Some((scheme, rest)) = value.as_bytes().split_at_checked(BEARER.len()) else { return false };
        scheme.eq_ignore_ascii_case(BEARER) && self.is(rest.trim_ascii())
    }

    /// Whether `shown` is the token. The time that this takes depends on the length of the token only.
    pub fn is(&self, shown: &[u8]) -> bool {
        shown.ct_eq(&self.0).into()
    }
}

const BEARER: &[u8] = b"Bearer ";

opaque_debug!(BearerToken);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_the_token() {
        let token = BearerToken::new(b"0123456789abcdef").unwrap();
        for (lines, is_shown) in [
            (&["Bearer 0123456789abcdef"][..], true),
            (&["bearer  0123456789abcdef"], true),
            (&[], false),
            (&["0123456789abcdef"], false),
            (&["Bearer"], false),
            (&["Bearer "], false),
            (&["Bearer 0123456789abcde"], false),
            (&["Bearer 0123456789abcdeF"], false),
            (&["Bearer 0123456789abcdef0"], false),
            (&["Basic 0123456789abcdef"], false),
            (&["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"], false),
        ] {
            let headers = lines.iter().map(|line| (AUTHORIZATION, line.parse().unwrap())).collect();
            assert_eq!(token.is_shown(&headers), is_shown, "{lines:?}");
        }
        assert_eq!(format!("{token:?}"), "BearerToken");
        for bytes in [&b"0123456789abcde"[..], b"", b"0123456789abc def", b"0123456789abcdef\n", &[200; 20]] {
            assert!(BearerToken::new(bytes).is_none());
        }
    }
}
