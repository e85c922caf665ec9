//! What a web page could make its reader's browser ask of an admin listener that the browser can reach.
//!
//! A request that a page sends by a form or a script says its `Origin`, and cannot say that its content is JSON without
//! asking first. A page that has its own name point here (DNS rebinding) sends that name as `Host`: only addresses and
//! names that the configuration knows are taken.

use std::net::{IpAddr, SocketAddr};

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{Method, StatusCode};

use super::answer::{Answer, problem};
use crate::policy::host::{host, is_authority};

/// The answer to a request to `listen` that its sender's user may not have meant.
pub(super) fn refuse(head: &Parts, listen: SocketAddr, hosts: &[Box<str>]) -> Option<Answer> {
    let mut named = head.headers.get_all(HOST).iter().map(|value| value.to_str().unwrap_or(""));
    let target = head.uri.authority().map(http::uri::Authority::as_str);
    let host = named.next().filter(|host| is_known(host, listen, hosts));
    if host.is_none() || named.next().is_some() || target.is_some_and(|target| !is_known(target, listen, hosts)) {
        return Some(problem(StatusCode::FORBIDDEN, "Host: neither this address nor one of admin.hosts"));
    }
    if head.headers.contains_key(ORIGIN) {
        return Some(problem(StatusCode::FORBIDDEN, "Origin: web pages are not answered"));
    }
    let mut kinds = head.headers.get_all(CONTENT_TYPE).iter().map(|value| value.to_str().unwrap_or(""));
    if head.method == Method::POST && !(kinds.next().is_some_and(is_json) && kinds.next().is_none()) {
        return Some(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type: only application/json"));
    }
    None
}

fn is_known(authority: &str, listen: SocketAddr, hosts: &[Box<str>]) -> bool {
    if !is_authority(authority) {
        return false;
    }
    let name = host(authority);
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&name);
    match bare.parse::<IpAddr>() {
        // To an address a name cannot be rebound; on all of them it is not known which are ours.
        Ok(ip) => ip.to_canonical().is_loopback() || ip == listen.ip() || listen.ip().is_unspecified(),
        Err(_) => name == "localhost" || hosts.iter().any(|known| **known == *name),
    }
}

fn is_json(kind: &str) -> bool {
    kind.split(';').next().is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn only_what_no_page_can_send() {
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
            ("127.0.0.1:9", "POST", &["host: localhost"], 415),
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
            let told = refuse(&head, listen.parse().unwrap(), &["weir.internal".into()]);
            assert_eq!(told.map_or(200, |answer| answer.status().as_u16()), status, "{listen} {lines:?}");
        }
        let head = Request::get("http://evil.example/v1/x").header("host", "localhost").body(()).unwrap();
        assert!(refuse(&head.into_parts().0, "127.0.0.1:9".parse().unwrap(), &[]).is_some());
    }
}
