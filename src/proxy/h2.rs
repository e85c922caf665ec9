//! What HTTP/2 can say that HTTP/1 must not be told.
//!
//! hyper reads an HTTP/2 head without the guard that stands before HTTP/1, and the upstream speaks HTTP/1. So what
//! the guard refuses and hyper does not is refused here. Not here: pseudo-headers and connection-specific headers,
//! which hyper refuses itself.

use http::header::{CONTENT_LENGTH, COOKIE, HeaderMap, HeaderValue};
use http::{Method, Request, Uri};

use super::h1::HeadFault;
use super::settings::Bounds;

/// What is wrong with a head; as on HTTP/1.
pub(super) fn fault<B>(request: &Request<B>, bounds: &Bounds) -> Option<HeadFault> {
    let (uri, headers) = (request.uri(), request.headers());
    if uri.path_and_query().is_some_and(|target| target.as_str().len() > bounds.max_uri_bytes) {
        return Some(HeadFault::UriTooLong);
    }
    if headers.len() > bounds.max_headers {
        return Some(HeadFault::TooLarge);
    }
    if headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        // hyper takes equal ones, and would send all of them on.
        return Some(HeadFault::AmbiguousFraming("more than one content-length"));
    }
    (!is_target(request.method(), uri)).then_some(HeadFault::Malformed("target"))
}

/// Whether HTTP/1 could say it: the path is normalised later, the query is sent as it is.
fn is_target(method: &Method, uri: &Uri) -> bool {
    let is_query = uri.query().is_none_or(|query| query.bytes().all(|byte| byte.is_ascii_graphic()));
    is_query && (uri.path() != "*" || *method == Method::OPTIONS)
}

/// Makes one line of the several that HTTP/2 may split cookies into (RFC 9113, section 8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else { return };
    let lines: Vec<_> = [first, second].into_iter().chain(lines).collect();
    if let Ok(line) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, line);
    }
}
