//! Headers that are for one connection only (RFC 9110, section 7.6.1).

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE,
};
use smallvec::SmallVec;

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
    // One look at each header is cheaper than one look-up for each name.
    let present: SmallVec<[HeaderName; 2]> = headers.keys().filter(|name| is_hop_by_hop(name)).cloned().collect();
    if present.contains(&CONNECTION) {
        for name in named(headers) {
            headers.remove(name);
        }
    }
    let has_trailers =
        present.contains(&TE) && tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    for name in present {
        headers.remove(name);
    }
    if has_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Removes from trailers what an upstream that merges them into the headers would take for our word, or for that
/// of the connection (RFC 9110, section 6.5.1). What frames a message hyper's encoder removes.
pub(super) fn strip_trailers(trailers: &mut HeaderMap) {
    let is_ours = |name: &HeaderName| is_hop_by_hop(name) || KEPT.contains(name) || [COOKIE, EXPECT].contains(name);
    let ours: SmallVec<[HeaderName; 2]> = trailers.keys().filter(|name| is_ours(name)).cloned().collect();
    for name in ours {
        trailers.remove(name);
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
