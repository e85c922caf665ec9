//! Headers that are for one connection only (RFC 9110, section 7.6.1).

use http::header::{
    CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use smallvec::SmallVec;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What Connection cannot remove: where a message goes, where it ends, and whom it is from. A trusted proxy may
/// pass on what its client wrote, who must not be able to erase its own address. TE is dealt with by itself.
const KEPT: [HeaderName; 7] = [
    HOST,
    CONTENT_LENGTH,
    TE,
    FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-host"),
];

/// Removes them, also those that Connection names, except the ones that it cannot remove. A request's
/// `TE: trailers` stays, because it is renewed.
///
/// To be called before anything is added, so that nothing which is added can be named for removal.
pub(super) fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        for name in named(headers) {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    if headers.contains_key(TE) {
        let has_trailers = tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
        headers.remove(TE);
        if has_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
    }
}

/// What Connection names and may remove.
fn named(headers: &HeaderMap) -> SmallVec<[HeaderName; 4]> {
    tokens(headers, &CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .filter(|name| !KEPT.contains(name))
        .collect()
}

fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let lines = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|token| token.split(';').next().unwrap_or("").trim_ascii())
}
