//! The request as the upstream gets it, edited in place.

use std::fmt::Write;
use std::net::IpAddr;

use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Uri, Version};

use super::settings::Settings;
use super::{h2, hop};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Who sent the request to us, and as what.
pub(super) struct Sender<'a> {
    /// Its address, IPv4 if it is one.
    pub(super) peer: IpAddr,
    /// Whether what it says about those before it is believed.
    pub(super) is_trusted: bool,
    /// Host and port as sent; may be empty.
    pub(super) authority: &'a str,
    /// The normalised path.
    pub(super) path: &'a str,
}

/// Makes `parts` a request to the upstream. Fails only if the path cannot be written as a target.
pub(super) fn prepare(parts: &mut Parts, sender: &Sender<'_>, settings: &Settings) -> Result<(), http::Error> {
    parts.uri = target(&parts.uri, sender.path)?;
    if parts.version == Version::HTTP_2 {
        h2::join_cookies(&mut parts.headers);
    }
    parts.version = Version::HTTP_11;
    hop::strip(&mut parts.headers);
    forwarded(&mut parts.headers, sender, settings.forwarded);
    if settings.upstream.rewrite_host || sender.authority.is_empty() {
        parts.headers.insert(HOST, HeaderValue::from_str(settings.upstream.authority.as_str())?);
    } else if !parts.headers.contains_key(HOST) {
        parts.headers.insert(HOST, HeaderValue::from_str(sender.authority)?);
    }
    Ok(())
}

/// The target in origin form with the path that was matched.
fn target(uri: &Uri, path: &str) -> Result<Uri, http::Error> {
    if uri.authority().is_none() && uri.path() == path {
        return Ok(uri.clone()); // shares its bytes
    }
    let target = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}"))?,
        None => PathAndQuery::try_from(path)?,
    };
    Ok(Uri::from(target))
}

/// Tells the upstream whom it serves. What a peer says that is not trusted is replaced, not continued.
fn forwarded(headers: &mut HeaderMap, sender: &Sender<'_>, rfc7239: bool) {
    let mut list = take_list(headers, &X_FORWARDED_FOR, sender.is_trusted);
    let _ = write!(list, "{}", sender.peer);
    insert(headers, X_FORWARDED_FOR, list);
    if !sender.is_trusted || !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    if !sender.is_trusted || !headers.contains_key(X_FORWARDED_HOST) {
        insert(headers, X_FORWARDED_HOST, sender.authority.to_owned());
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
