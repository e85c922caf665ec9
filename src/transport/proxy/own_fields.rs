//! The fields of a request that services get from Weir, in place of those of the client.

use super::request::HttpVersion;
use super::request_id::REQUEST_ID;
use super::trace_context::{TRACEPARENT, TRACESTATE};
use crate::transport::http1::hop;

/// Whether a field is not copied: Weir writes it itself, or it must not come from an untrusted client.
#[inline]
pub(super) fn is_ours(name: &[u8], version: HttpVersion, keeps_x: bool) -> bool {
    let is = |lower: &[u8]| name.eq_ignore_ascii_case(lower);
    match name.len() {
        4 => is(b"host"),
        6 if version == HttpVersion::Http2 => is(b"cookie"),
        6 if version == HttpVersion::Http10 => is(b"expect"), // RFC 9110, section 10.1.1
        9 => is(b"forwarded"),
        14 => is(b"content-length"),
        15 => is(b"x-forwarded-for"),
        16 => !keeps_x && is(b"x-forwarded-host"),
        17 => !keeps_x && is(b"x-forwarded-proto"),
        _ => false,
    }
}

/// Whether services get a field of this name from Weir, in place of that of the client.
pub(super) fn is_written(lower_name: &[u8]) -> bool {
    is_ours(lower_name, HttpVersion::Http10, false)
        || hop::is_hop_by_hop(lower_name)
        || [REQUEST_ID, TRACEPARENT, TRACESTATE].iter().any(|name| name.as_bytes() == lower_name)
}
