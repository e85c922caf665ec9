//! Headers that are for one connection only (RFC 9110, section 7.6.1).

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use smallvec::SmallVec;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Removes them, also those that Connection names, except the ones a message cannot do without. A request's
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

/// Removes from trailers what an upstream that merges them into the headers would take for our word, or for that
/// of the connection (RFC 9110, section 6.5.1). What frames a message hyper's encoder removes.
pub(super) fn strip_trailers(trailers: &mut HeaderMap) {
    for name in [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, PROXY_AUTHORIZATION, UPGRADE, EXPECT, COOKIE, FORWARDED] {
        trailers.remove(name);
    }
    for name in ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"] {
        trailers.remove(name);
    }
}

/// What Connection names, apart from headers that say where a message goes and where it ends, and TE, which is
/// dealt with by itself.
fn named(headers: &HeaderMap) -> SmallVec<[HeaderName; 4]> {
    tokens(headers, &CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .filter(|name| ![HOST, CONTENT_LENGTH, TE].contains(name))
        .collect()
}

fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let lines = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|token| token.split(';').next().unwrap_or("").trim_ascii())
}
