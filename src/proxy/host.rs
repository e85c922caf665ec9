//! Which host a request is for, said once and without doubt (RFC 9112, section 3.2; RFC 9113, section 8.3.1).

use super::request::{Protocol, Request};
pub(super) use crate::policy::host::host;
use crate::policy::host::is_authority;

/// What is wrong with a request's host; the text is for the client.
pub(super) type BadHost = &'static str;

/// The host and port as sent; empty if an HTTP/1.0 request names none.
pub(super) fn authority<'b>(request: &Request<'b>) -> Result<&'b str, BadHost> {
    let mut lines = request.fields.all("host");
    let line = lines.next().map(|value| str::from_utf8(value).map_err(|_| "the host has characters that no host has"));
    if lines.next().is_some() {
        return Err("more than one host");
    }
    let authority = match (line.transpose()?, request.target.authority) {
        (Some(line), Some(target)) if !line.eq_ignore_ascii_case(target) => {
            return Err("the host is not that of the target");
        }
        (Some(authority), _) | (None, Some(authority)) => authority,
        (None, None) if request.protocol == Protocol::Http10 => return Ok(""),
        (None, None) => return Err("no host"),
    };
    if is_authority(authority) { Ok(authority) } else { Err("the host has characters that no host has") }
}
