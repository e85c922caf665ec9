//! The request as the upstream gets it, edited in place.

use std::fmt::Write;
use std::net::IpAddr;

use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{Request, Uri, Version};
use http_body::Body;

use super::settings::Settings;
use super::{h2, hop};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Who sent the request to us.
pub(super) struct Sender<'a> {
    /// Its address, IPv4 if it is one.
    pub(super) peer: IpAddr,
    /// The same as text.
    pub(super) peer_text: &'a HeaderValue,
    /// Whether what it says about those before it is believed.
    pub(super) is_trusted: bool,
}

/// Makes `request` one to the upstream, with this `target` if it is not what it should be already.
pub(super) fn prepare<B: Body>(
    request: &mut Request<B>,
    target: Option<Uri>,
    sender: &Sender<'_>,
    settings: &Settings,
) -> Result<(), http::Error> {
    let is_h2 = request.version() == Version::HTTP_2;
    // Without a length hyper takes a GET to have no body, whatever the client sent.
    let is_chunked = request.body().size_hint().exact().is_none();
    if !request.headers().contains_key(HOST)
        && let Some(authority) = request.uri().authority()
    {
        let host = HeaderValue::from_str(authority.as_str())?;
        request.headers_mut().insert(HOST, host);
    }
    if let Some(target) = target {
        *request.uri_mut() = target;
    }
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    if is_h2 {
        h2::join_cookies(headers);
    }
    hop::strip(headers);
    if is_chunked {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    forwarded(headers, sender, settings.forwarded);
    if settings.upstream.rewrite_host || !headers.contains_key(HOST) {
        headers.insert(HOST, HeaderValue::from_str(settings.upstream.authority.as_str())?);
    }
    Ok(())
}

/// The target in origin form with the path that was matched; none if it is that already. Fails only if the path
/// cannot be written as a target.
pub(super) fn target(uri: &Uri, path: &str) -> Result<Option<Uri>, http::Error> {
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
        add_element(&mut list, sender.peer, headers.get(HOST));
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
fn add_element(list: &mut String, peer: IpAddr, host: Option<&HeaderValue>) {
    let _ = match peer {
        IpAddr::V4(ip) => write!(list, "for={ip}"),
        IpAddr::V6(ip) => write!(list, "for=\"[{ip}]\""),
    };
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        let _ = write!(list, ";host=\"{host}\"");
    }
    list.push_str(";proto=http");
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: String) {
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(name, value);
    }
}
