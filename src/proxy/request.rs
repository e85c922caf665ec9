//! A request as the data path sees it, whichever protocol it came by.

use http::{Method, Uri};

use super::upgrade::Upgrade;
use crate::fields::Fields;
use crate::http1::{self, Framing, Head};

/// The protocol that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http10,
    Http11,
    Http2,
}

/// What is asked for. Borrowed from the bytes that came.
#[derive(Clone, Debug)]
pub(super) struct Request<'b> {
    pub(super) protocol: Protocol,
    pub(super) method: Method,
    pub(super) target: Target<'b>,
    pub(super) fields: Fields<'b>,
    /// How its body ends, as it is sent on.
    pub(super) framing: Framing,
    /// What an extended CONNECT asks for (RFC 8441), if it may; then the rest is that of a GET.
    pub(super) connect: Option<Box<Upgrade<'static>>>,
}

/// A request target, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'b> {
    /// As sent; `/` if an absolute target has none.
    pub(super) path: &'b str,
    /// As sent, without `?`.
    pub(super) query: Option<&'b str>,
    /// Of an absolute target, or `:authority`.
    pub(super) authority: Option<&'b str>,
    /// The scheme of that.
    pub(super) scheme: Option<&'b str>,
}

impl<'b> Request<'b> {
    /// The request of an HTTP/1 head in `bytes`. The origin of an absolute target is kept in `uri`.
    pub(super) fn of_h1(head: &Head, bytes: &'b [u8], fields: Fields<'b>, uri: &'b mut Uri) -> Option<Self> {
        let text = str::from_utf8(bytes.get(head.target.clone())?).ok()?;
        let target = if text.starts_with('/') || text == "*" {
            Target::in_origin_form(text)
        } else {
            let (origin, rest) = text.split_at_checked(http1::origin_len(text.as_bytes()))?;
            *uri = origin.parse().ok()?;
            let Target { path, query, .. } = Target::in_origin_form(rest);
            let path = if path.is_empty() { "/" } else { path };
            Target { path, query, ..Target::of(uri) }
        };
        Some(Self {
            protocol: if head.is_http_11 { Protocol::Http11 } else { Protocol::Http10 },
            method: method(bytes.get(head.method.clone())?)?,
            target,
            fields,
            framing: head.framing,
            connect: None,
        })
    }

    /// Whether it has no body.
    pub(super) fn is_bodyless(&self) -> bool {
        self.framing == Framing::Length(0)
    }
}

fn method(name: &[u8]) -> Option<Method> {
    if name == b"GET" {
        return Some(Method::GET); // most are
    }
    Method::from_bytes(name).ok()
}

impl<'b> Target<'b> {
    fn in_origin_form(text: &'b str) -> Self {
        let path_len = memchr::memchr(b'?', text.as_bytes()).unwrap_or(text.len());
        Self { path: &text[..path_len], query: text.get(path_len + 1..), authority: None, scheme: None }
    }

    /// The target of a parsed URI.
    pub(super) fn of(uri: &'b Uri) -> Self {
        let authority = uri.authority().map(http::uri::Authority::as_str);
        Self { path: uri.path(), query: uri.query(), authority, scheme: uri.scheme_str() }
    }
}
