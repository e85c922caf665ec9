//! Requests as the data path sees them, made of heads of HTTP/2.
//!
//! What HTTP/2 has in common with HTTP/1 is judged here by the functions that judge it there.

use http::Method;

use super::super::request::{HttpVersion, Request, Target};
use super::super::settings::Settings;
use super::super::upgrade::Upgrade;
use crate::transport::http1::{Framing, HeadFault, MEMBERS_MAX, Underscores, is_method, is_text};
use crate::transport::http2::{self, Head};

/// Checks a head, and removes the fields that are not to stay.
pub(super) fn check(head: &mut Head, settings: &Settings) -> Result<(), HeadFault> {
    let bounds = &settings.bounds;
    if let Some(fault) = head.fault {
        return Err(match fault {
            http2::HeadFault::Malformed(reason) => HeadFault::Malformed(reason),
            http2::HeadFault::Ambiguous => HeadFault::AmbiguousFraming("more than one content-length"),
            http2::HeadFault::TooLarge => HeadFault::TooLarge,
        });
    }
    if !is_method(head.method()) {
        return Err(HeadFault::Malformed("method"));
    }
    if head.method() == b"CONNECT" && head.protocol().is_none() {
        return Err(HeadFault::ConnectRefused);
    }
    if head.path().len() > bounds.max_uri_bytes {
        return Err(HeadFault::UriTooLong);
    }
    if !is_target(head) {
        return Err(HeadFault::Malformed("target"));
    }
    let lists = ["te", "trailer"].iter().flat_map(|name| head.fields().all(name));
    if lists.map(|list| 1 + memchr::memchr_iter(b',', list).count()).sum::<usize>() > MEMBERS_MAX {
        return Err(HeadFault::TooLarge);
    }
    if head.has_ambiguous_name && bounds.underscores != Underscores::Keep {
        let refused = head.fields().iter().find_map(|(name, _)| bounds.underscores.allows(name).err());
        if let Some(fault) = refused {
            return Err(fault);
        }
        head.retain(|name| bounds.underscores.allows(name) == Ok(true));
    }
    Ok(())
}

/// Whether `:path` is the target of a request line in origin-form, or `*`.
fn is_target(head: &Head) -> bool {
    match head.path() {
        path @ [b'/', ..] => is_text(path),
        path => path == b"*" && head.method() == b"OPTIONS",
    }
}

/// The request of a head that passed [`check`]; none if its host is no text.
pub(super) fn request<'h>(head: &'h Head, has_ended: bool, settings: &Settings) -> Option<Request<'h>> {
    let text = |bytes: &'h [u8]| str::from_utf8(bytes).ok();
    let Target { path, query, .. } = Target::in_origin_form(text(head.path())?);
    let authority = match head.authority() {
        Some(authority) => Some(text(authority)?),
        None => None,
    };
    let target = Target { path, query, authority, scheme: head.scheme().and_then(text) };
    let connect = head.protocol().and_then(text).and_then(|protocol| Upgrade::connect(protocol, settings));
    let method = if connect.is_some() { Method::GET } else { Method::from_bytes(head.method()).ok()? };
    let framing = match head.content_length {
        // What follows a CONNECT belongs to the tunnel.
        _ if has_ended || connect.is_some() => Framing::Length(0),
        Some(length) => Framing::Length(length),
        None => Framing::Chunked,
    };
    Some(Request { version: HttpVersion::Http2, method, target, fields: head.fields(), framing, connect })
}
