//! What HTTP/2 needs beside hyper: a socket with deadlines, bodies of answers, and a second look at heads.
//!
//! hyper reads an HTTP/2 head by rules of its own, and the upstream speaks HTTP/1. So what is refused over HTTP/1 and
//! what hyper lets through is refused here. Not here: pseudo-headers and connection-specific headers, which hyper
//! refuses itself.

mod answer;
mod io;
mod piece;
mod streams;
mod tunnel;

pub(super) use answer::AnswerBody;
pub(super) use io::FrameIo;
pub(super) use streams::{InFlight, Streams};
pub(super) use tunnel::StreamEnd;

use http::header::{CONTENT_LENGTH, TE, TRAILER};
use http::{HeaderMap, Method, Uri};

use super::settings::Bounds;
use crate::http1::{self, HeadFault, MEMBERS_MAX};

/// What is wrong with a head; as on HTTP/1.
pub(super) fn fault(method: &Method, uri: &Uri, headers: &HeaderMap, bounds: &Bounds) -> Option<HeadFault> {
    if uri.path_and_query().is_some_and(|target| target.as_str().len() > bounds.max_uri_bytes) {
        return Some(HeadFault::UriTooLong);
    }
    if headers.len() > bounds.max_headers {
        return Some(HeadFault::TooLarge);
    }
    // Those of Connection and Upgrade are refused by hyper.
    let lists = [TE, TRAILER].into_iter().flat_map(|name| headers.get_all(name));
    if lists.map(|list| 1 + memchr::memchr_iter(b',', list.as_bytes()).count()).sum::<usize>() > MEMBERS_MAX {
        return Some(HeadFault::TooLarge);
    }
    if !http1::is_method(method.as_str().as_bytes()) {
        return Some(HeadFault::Malformed("method"));
    }
    if let Some(fault) = headers.keys().find_map(|name| bounds.underscores.allows(name.as_str().as_bytes()).err()) {
        return Some(fault);
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if lengths.next().is_some_and(|value| http1::parse_length(value.as_bytes()).is_none()) {
        // hyper takes an empty one for 0.
        return Some(HeadFault::Malformed("content-length"));
    }
    if lengths.next().is_some() {
        // hyper takes equal ones, and all of them would be sent on.
        return Some(HeadFault::AmbiguousFraming("more than one content-length"));
    }
    (!is_target(method, uri)).then_some(HeadFault::Malformed("target"))
}

/// Whether HTTP/1 could send it. Path and query are escaped later; the http crate has refused some bytes already.
fn is_target(method: &Method, uri: &Uri) -> bool {
    let is_query = uri.query().is_none_or(|query| http1::is_text(query.as_bytes()));
    is_query && (uri.path() != "*" || *method == Method::OPTIONS)
}
