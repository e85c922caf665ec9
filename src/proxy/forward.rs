//! The request as the upstream gets it, edited in place.

use std::fmt::Write;
use std::net::IpAddr;

use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Uri, Version};

use super::hop;
use super::settings::Settings;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Who sent the request to us, and as what.
pub(super) struct Sender<'a> {
    /// Its address, IPv4 if it is one.
    pub(super) peer: IpAddr,
    /// The same as text.
    pub(super) peer_text: &'a HeaderValue,
    /// Whether what it says about those before it is believed.
    pub(super) is_trusted: bool,
    /// Host and port as sent; may be empty.
    pub(super) authority: &'a str,
    /// The normalised path.
    pub(super) path: &'a str,
}

/// Makes `request` one to the upstream. Fails only if the path cannot be written as a target.
pub(super) fn prepare<B>(
    request: &mut Request<B>,
    sender: &Sender<'_>,
    settings: &Settings,
) -> Result<(), http::Error> {
    if let Some(target) = target(request.uri(), sender.path)? {
        *request.uri_mut() = target;
    }
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    hop::strip(headers);
    if !headers.contains_key(HOST) && !sender.authority.is_empty() {
        headers.insert(HOST, HeaderValue::from_str(sender.authority)?);
    }
    forwarded(headers, sender, settings.forwarded);
    if settings.upstream.rewrite_host || sender.authority.is_empty() {
        headers.insert(HOST, HeaderValue::from_str(settings.upstream.authority.as_str())?);
    }
    Ok(())
}

/// The target in origin form with the path that was matched; none if it is that already.
fn target(uri: &Uri, path: &str) -> Result<Option<Uri>, http::Error> {
    if uri.authority().is_none() && uri.path() == path {
        return Ok(None);
    }
    let target = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}"))?,
        None => PathAndQuery::try_from(path)?,
    };
    Ok(Some(Uri::from(target)))
}

/// Tells the upstream whom it serves. What a peer says that is not trusted is replaced, not continued.
fn forwarded(headers: &mut HeaderMap, sender: &Sender<'_>, rfc7239: bool) {
    if sender.is_trusted && headers.contains_key(X_FORWARDED_FOR) {
        let mut list = take_list(headers, &X_FORWARDED_FOR, true);
        let _ = write!(list, "{}", sender.peer);
        insert(headers, X_FORWARDED_FOR, list);
    } else {
        headers.insert(X_FORWARDED_FOR, sender.peer_text.clone());
    }
    if !sender.is_trusted || !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    if !sender.is_trusted || !headers.contains_key(X_FORWARDED_HOST) {
        match headers.get(HOST).cloned() {
            Some(host) => headers.insert(X_FORWARDED_HOST, host),
            None => headers.remove(X_FORWARDED_HOST),
        };
    }
    let mut list = take_list(headers, &FORWARDED, sender.is_trusted);
    if rfc7239 {
        add_element(&mut list, sender);
        insert(headers, FORWARDED, list);
    }
}

/// All lines of a list, joined and ready for one more element; empty if they are not to be kept.
fn take_list(headers: &mut HeaderMap, name: &HeaderName, is_kept: bool) -> String {
    let mut list = String::new();
    if is_kept {
        for line in headers.get_all(name).iter().filter_map(|line| line.to_str().ok()) {
            list.push_str(line);
            list.push_str(", ");
        }
    }
    headers.remove(name);
    list
}

/// Our element (RFC 7239, section 4): IPv6 addresses and hosts are quoted.
fn add_element(list: &mut String, sender: &Sender<'_>) {
    let _ = match sender.peer {
        IpAddr::V4(ip) => write!(list, "for={ip}"),
        IpAddr::V6(ip) => write!(list, "for=\"[{ip}]\""),
    };
    let _ = write!(list, ";host=\"{}\";proto=http", sender.authority);
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: String) {
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(name, value);
    }
}
