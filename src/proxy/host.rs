//! Which host a request is for, said once and without doubt (RFC 9112, section 3.2; RFC 9113, section 8.3.1).

use super::request::{Protocol, Request};
pub(super) use crate::policy::host::host;
use crate::policy::host::is_authority;

/// What is wrong with a request's host; the text is for the client.
pub(super) type BadHost = &'static str;

/// The host and port as sent; empty if an HTTP/1.0 request names none.
///
/// Over HTTP/1 that of an absolute target counts and `Host` does not (RFC 9112, section 3.2.2). Matching, keys and the
/// service all get this one, so that no two readers behind this point can differ. Over HTTP/2 the two must agree.
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
            if request.protocol == Protocol::Http2 && !are_equal(line, authority, target.scheme) =>
        {
            return Err("the host is not that of the target");
        }
        (_, Some(authority)) | (Some(authority), None) => authority,
        (None, None) if request.protocol == Protocol::Http10 => return Ok(""),
        (None, None) => return Err("no host"),
    };
    if is_authority(authority) { Ok(authority) } else { Err(BAD_BYTES) }
}

const BAD_BYTES: BadHost = "the host has characters that no host has";

/// Whether two authorities of this scheme are the same (RFC 9110, section 4.2.3).
fn are_equal(one: &str, other: &str, scheme: Option<&str>) -> bool {
    let default_port = if scheme == Some("https") { ":443" } else { ":80" };
    let [one, other] = [one, other].map(|authority| {
        authority.strip_suffix(default_port).or_else(|| authority.strip_suffix(':')).unwrap_or(authority)
    });
    one.eq_ignore_ascii_case(other)
}
