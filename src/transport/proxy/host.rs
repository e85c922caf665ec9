//! The host of a request, decided in one place (RFC 9112, section 3.2; RFC 9113, section 8.3.1).

use super::request::{HttpVersion, Request};
pub(super) use crate::engine::policy::host::host;
use crate::engine::policy::host::is_authority;

/// The fault of a host; the text is sent to the client.
pub(super) type BadHost = &'static str;

/// The host and port of a request, as sent. Empty if an HTTP/1.0 request has none.
///
/// Over HTTP/1 the authority of an absolute target replaces `Host` (RFC 9112, section 3.2.2). Over HTTP/2 the two must
/// be equal. Matching, keys and the service get the same value, so that no two readers can differ.
///
/// # Errors
///
/// If there is no host, more than one, an invalid one, or two that differ.
pub(super) fn authority<'b>(request: &Request<'b>) -> Result<&'b str, BadHost> {
    let mut lines = request.fields.all("host");
    let line = lines.next().map(|value| str::from_utf8(value).map_err(|_| BAD_BYTES)).transpose()?;
    if lines.next().is_some() {
        return Err("more than one host");
    }
    if line.is_some_and(|line| !is_authority(line)) {
        return Err(BAD_BYTES);
    }
    let target = request.target;
    let authority = match (line, target.authority) {
        (Some(line), Some(authority))
            if request.version == HttpVersion::Http2 && !are_equal(line, authority, target.scheme) =>
        {
            return Err("the host differs from that of the target");
        }
        (Some(line), None) => return Ok(line),
        (_, Some(authority)) => authority,
        (None, None) if request.version == HttpVersion::Http10 => return Ok(""),
        (None, None) => return Err("no host"),
    };
    if is_authority(authority) { Ok(authority) } else { Err(BAD_BYTES) }
}

const BAD_BYTES: BadHost = "the host has invalid characters";

/// Whether two authorities of this scheme are equal (RFC 9110, section 4.2.3).
fn are_equal(one: &str, other: &str, scheme: Option<&str>) -> bool {
    let default_port = if scheme == Some("https") { ":443" } else { ":80" };
    let [one, other] = [one, other].map(|authority| {
        authority.strip_suffix(default_port).or_else(|| authority.strip_suffix(':')).unwrap_or(authority)
    });
    one.eq_ignore_ascii_case(other)
}
