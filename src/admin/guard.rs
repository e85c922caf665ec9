//! Refuses requests that a web page can make a browser send to the admin listener.
//!
//! A form or a script sends its `Origin`, and cannot send JSON or TOML without a CORS preflight. A form has a content type,
//! also without fields, so a request without both body and content type is of no form. In DNS rebinding the name of the
//! page resolves to this listener, and the browser sends that name as `Host`. The listener accepts only its addresses and
//! the configured names.

use std::net::{IpAddr, SocketAddr};

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, ORIGIN, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, StatusCode};

use super::answer::{Answer, problem};
use crate::engine::policy::host::{host, is_authority};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns the refusal of a request to `listen` that a web page may have caused.
pub(super) fn refuse(head: &Parts, listen: SocketAddr, hosts: &[Box<str>]) -> Option<Answer> {
    if let Some(refusal) = refuse_host(head, listen, hosts) {
        return Some(refusal);
    }
    if head.headers.contains_key(ORIGIN) {
        return Some(problem(StatusCode::FORBIDDEN, "Origin: requests of web pages are refused"));
    }
    let mut kinds = head.headers.get_all(CONTENT_TYPE).iter().map(|value| value.to_str().unwrap_or(""));
    let is_toml = ["/v1/config/check", "/v1/config/diff"].contains(&head.uri.path());
    let expected = if is_toml { "application/toml" } else { "application/json" };
    let is_right = match (kinds.next(), kinds.next()) {
        (None, _) => has_no_body(head) && !is_of_other_site(head),
        (Some(kind), None) => is_kind(kind, expected),
        (Some(_), Some(_)) => false,
    };
    if head.method == Method::POST && !is_right {
        return Some(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("Content-Type: expected {expected}")));
    }
    None
}

/// Returns the refusal of a request to `listen` under a name that the listener does not have.
pub(super) fn refuse_host(head: &Parts, listen: SocketAddr, hosts: &[Box<str>]) -> Option<Answer> {
    let mut host_fields = head.headers.get_all(HOST).iter().map(|value| value.to_str().unwrap_or(""));
    let target = head.uri.authority().map(http::uri::Authority::as_str);
    let host = host_fields.next().filter(|host| is_known(host, listen, hosts));
    if host.is_none() || host_fields.next().is_some() || target.is_some_and(|target| !is_known(target, listen, hosts)) {
        return Some(problem(
            StatusCode::FORBIDDEN,
            "Host: expected the address of this listener, or one of admin.hosts",
        ));
    }
    None
}

/// Whether a page of this listener sent the request, by what the browser says (Fetch, sections 3.2 and 3.8). A browser
/// sends `Origin` with each form.
pub(super) fn is_same_origin(head: &Parts) -> bool {
    let field = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    let (host, origin) = (field(HOST), field(ORIGIN));
    let authority =
        origin.and_then(|origin| origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://")));
    let is_of_host = host.zip(authority).is_some_and(|(host, authority)| host.eq_ignore_ascii_case(authority));
    is_of_host && field(FETCH_SITE).is_none_or(|site| site == "same-origin")
}

/// Whether a browser says that a page of another site sent the request.
fn is_of_other_site(head: &Parts) -> bool {
    head.headers.get(FETCH_SITE).is_some_and(|site| site != "same-origin" && site != "none")
}

pub(super) fn has_no_body(head: &Parts) -> bool {
    let length = head.headers.get(CONTENT_LENGTH);
    length.is_none_or(|length| length == "0") && !head.headers.contains_key(TRANSFER_ENCODING)
}

fn is_known(authority: &str, listen: SocketAddr, hosts: &[Box<str>]) -> bool {
    if !is_authority(authority) {
        return false;
    }
    let name = host(authority);
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&name);
    match bare.parse::<IpAddr>() {
        // DNS rebinding needs a name. A listener on all addresses does not know its own addresses.
        Ok(ip) => ip.to_canonical().is_loopback() || ip == listen.ip() || listen.ip().is_unspecified(),
        Err(_) => name == "localhost" || hosts.iter().any(|known| **known == *name),
    }
}

/// Whether a `Content-Type` names a media type.
fn is_kind(kind: &str, expected: &str) -> bool {
    kind.split(';').next().is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(expected))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn refuses_requests_of_web_pages() {
        let json = "content-type: application/json";
        for (listen, method, lines, status) in [
            ("127.0.0.1:9", "GET", &["host: 127.0.0.1:9"][..], 200),
            ("127.0.0.1:9", "GET", &["host: LocalHost:9"], 200),
            ("127.0.0.1:9", "GET", &["host: [::1]:9"], 200),
            ("127.0.0.1:9", "GET", &["host: weir.internal"], 200),
            ("127.0.0.1:9", "GET", &["host: 192.0.2.1:9"], 403),
            ("192.0.2.1:9", "GET", &["host: 192.0.2.1:9"], 200),
            ("0.0.0.0:9", "GET", &["host: 192.0.2.1:9"], 200),
            ("0.0.0.0:9", "GET", &["host: evil.example:9"], 403),
            ("127.0.0.1:9", "GET", &["host: evil.example"], 403),
            ("127.0.0.1:9", "GET", &["host: 127.0.0.1.evil.example"], 403),
            ("127.0.0.1:9", "GET", &["host: localhost.evil.example"], 403),
            ("127.0.0.1:9", "GET", &["host: a@localhost"], 403),
            ("127.0.0.1:9", "GET", &["host: localhost", "host: evil.example"], 403),
            ("127.0.0.1:9", "GET", &[], 403),
            ("127.0.0.1:9", "GET", &["host: localhost", "origin: http://localhost"], 403),
            ("127.0.0.1:9", "POST", &["host: localhost", json], 200),
            ("127.0.0.1:9", "POST", &["host: localhost", "content-type: Application/JSON; charset=utf-8"], 200),
            ("127.0.0.1:9", "POST", &["host: localhost", json, "origin: null"], 403),
            ("127.0.0.1:9", "POST", &["host: localhost"], 200),
            ("127.0.0.1:9", "POST", &["host: localhost", "content-length: 0"], 200),
            ("127.0.0.1:9", "POST", &["host: localhost", "content-length: 2"], 415),
            ("127.0.0.1:9", "POST", &["host: localhost", "transfer-encoding: chunked"], 415),
            ("127.0.0.1:9", "POST", &["host: localhost", "content-length: 0", "content-type: text/plain"], 415),
            ("127.0.0.1:9", "POST", &["host: localhost", "origin: null"], 403),
            ("127.0.0.1:9", "POST", &["host: localhost", "sec-fetch-site: cross-site"], 415),
            ("127.0.0.1:9", "POST", &["host: localhost", "sec-fetch-site: same-site"], 415),
            ("127.0.0.1:9", "POST", &["host: localhost", "content-type: text/plain"], 415),
            ("127.0.0.1:9", "POST", &["host: localhost", "content-type: application/jsonp"], 415),
            ("127.0.0.1:9", "POST", &["host: localhost", json, "content-type: text/plain"], 415),
        ] {
            let mut request = Request::builder().method(method).uri("/v1/x");
            for line in lines {
                let (name, value) = line.split_once(": ").unwrap();
                request = request.header(name, value);
            }
            let head = request.body(()).unwrap().into_parts().0;
            let refusal = refuse(&head, listen.parse().unwrap(), &["weir.internal".into()]);
            assert_eq!(refusal.map_or(200, |answer| answer.status().as_u16()), status, "{listen} {lines:?}");
        }
        let head = Request::get("http://evil.example/v1/x").header("host", "localhost").body(()).unwrap();
        assert!(refuse(&head.into_parts().0, "127.0.0.1:9".parse().unwrap(), &[]).is_some());
    }
    #[test]
    fn forms_come_from_the_same_origin() {
        for (lines, is_same) in [
            (&["host: localhost:9901", "origin: http://localhost:9901"][..], true),
            (&["host: LOCALHOST:9901", "origin: http://localhost:9901", "sec-fetch-site: same-origin"], true),
            (&["host: weir.internal", "origin: https://weir.internal"], true),
            (&["host: localhost:9901", "origin: http://localhost:9901", "sec-fetch-site: cross-site"], false),
            (&["host: localhost:9901", "origin: http://localhost:9901", "sec-fetch-site: none"], false),
            (&["host: localhost:9901", "origin: http://localhost:8080"], false),
            (&["host: localhost:9901", "origin: http://localhost"], false),
            (&["host: localhost:9901", "origin: null"], false),
            (&["host: localhost:9901", "origin: "], false),
            (&["host: localhost:9901"], false),
            (&["origin: http://localhost:9901"], false),
        ] {
            let mut request = Request::builder();
            for line in lines {
                let (name, value) = line.split_once(": ").unwrap();
                request = request.header(name, value);
            }
            assert_eq!(is_same_origin(&request.body(()).unwrap().into_parts().0), is_same, "{lines:?}");
        }
    }
}
