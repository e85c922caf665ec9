//! The request that a check describes, in the headers of another proxy.

use std::borrow::Cow;
use std::net::IpAddr;

use http::Method;

use super::super::request::Target;
use super::super::settings::CheckHeaders;
use crate::base::fields::Fields;
use crate::engine::policy::client_ip::ClientIpRules;
use crate::engine::policy::host::is_authority;
use crate::transport::http1::{is_method, is_text};

/// The request that a check describes. It is decided, and never forwarded.
#[derive(Clone, Debug)]
pub(in crate::transport::proxy) struct DescribedRequest<'b> {
    pub(super) method: Method,
    pub(super) target: Target<'b>,
    /// With the port if there is one; may be empty, as in HTTP/1.0.
    pub(super) authority: &'b str,
    pub(super) client: IpAddr,
    /// The headers of the client, among others.
    pub(super) fields: Fields<'b>,
    /// The units that each limit takes, in place of its own cost.
    pub(super) cost: Option<u64>,
}

/// What is wrong with a description; the text is sent to the peer.
pub(in crate::transport::proxy) type BadDescription = Cow<'static, str>;

/// The texts of a description, each with the name by which messages call it.
pub(super) struct Texts<'b> {
    pub(super) method: (&'static str, &'b [u8]),
    pub(super) target: (&'static str, &'b [u8]),
    pub(super) authority: (&'static str, &'b [u8]),
}

impl<'b> Texts<'b> {
    /// The request of these texts.
    pub(super) fn request(
        self,
        client: IpAddr,
        fields: Fields<'b>,
        cost: Option<u64>,
    ) -> Result<DescribedRequest<'b>, BadDescription> {
        let wrong = |name: &str, what: &str| BadDescription::from(format!("{name}: {what}"));
        let (name, text) = self.method;
        let method = is_method(text).then(|| Method::from_bytes(text).ok()).flatten();
        let method = method.ok_or_else(|| wrong(name, "expected a method in upper-case letters"))?;
        let (name, text) = self.target;
        let is_target = text.first() == Some(&b'/') && is_text(text) || text == b"*" && method == Method::OPTIONS;
        let target = str::from_utf8(text).ok().filter(|_| is_target).map(Target::in_origin_form);
        let target = target.ok_or_else(|| wrong(name, "expected a path, with the query if there is one"))?;
        let (name, text) = self.authority;
        let authority = str::from_utf8(text).ok().filter(|text| text.is_empty() || is_authority(text));
        let authority = authority.ok_or_else(|| wrong(name, "expected a host, with the port if there is one"))?;
        Ok(DescribedRequest { method, target, authority, client, fields, cost })
    }
}

impl<'b> DescribedRequest<'b> {
    /// The request that the trusted proxy at `peer` describes in `fields`. The other fields are those of its client.
    pub(in crate::transport::proxy) fn of_fields(
        fields: Fields<'b>,
        headers: CheckHeaders,
        rules: &ClientIpRules,
        peer: IpAddr,
    ) -> Result<Self, BadDescription> {
        let [method, target, authority] = match headers {
            CheckHeaders::XForwarded => ["x-forwarded-method", "x-forwarded-uri", "x-forwarded-host"],
            CheckHeaders::XOriginal => ["x-original-method", "x-original-uri", "x-original-host"],
        };
        let method = (method, only(fields, method)?);
        let target = (target, only(fields, target)?);
        let authority = (authority, only(fields, authority)?);
        let address = rules.header.name();
        if !fields.contains(address) {
            return Err(missing(address));
        }
        Texts { method, target, authority }.request(rules.client_ip(peer, fields), fields, None)
    }
}

/// The only value of a field.
fn only<'b>(fields: Fields<'b>, name: &'static str) -> Result<&'b [u8], BadDescription> {
    let mut values = fields.all(name);
    let value = values.next().ok_or_else(|| missing(name))?;
    if values.next().is_some() { Err(format!("{name}: more than one").into()) } else { Ok(value) }
}

fn missing(name: &str) -> BadDescription {
    format!("{name}: missing; the proxy that asks must set it").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::engine::policy::client_ip::{AddressHeader, Prefixes};

    /// What the headers in `lines` describe, or what is wrong with them.
    fn described(lines: &str, headers: CheckHeaders) -> String {
        let mut fields = FieldBuf::default();
        for (name, value) in lines.split(" | ").filter_map(|line| line.split_once(':')) {
            fields.push(name.as_bytes(), value.trim().as_bytes());
        }
        let peer = IpAddr::from([10, 0, 0, 1]);
        let header = AddressHeader::XForwardedFor;
        let rules = ClientIpRules { trusted: vec![peer.into()], header, prefixes: Prefixes::default() };
        match DescribedRequest::of_fields(fields.fields(), headers, &rules, peer) {
            Ok(DescribedRequest { method, target, authority, client, .. }) => {
                let Target { path, query, .. } = target;
                format!("{method} {authority} {path} {query:?} {client}")
            }
            Err(what) => what.into_owned(),
        }
    }

    /// As Caddy 2 documents its `forward_auth`.
    const CADDY: &str = "Host: weir:8082 | X-Forwarded-For: 192.0.2.7 | X-Forwarded-Host: shop.example:8443 | \
                         X-Forwarded-Method: GET | X-Forwarded-Proto: https | X-Forwarded-Uri: /";
    /// As Traefik 3 documents its `forwardAuth`.
    const TRAEFIK: &str = "Host: weir:8082 | X-Forwarded-Method: POST | X-Forwarded-Proto: https | \
                           X-Forwarded-Host: shop.example | X-Forwarded-Uri: /a/b?c=d | X-Forwarded-For: 192.0.2.7 | \
                           Authorization: Bearer x";
    /// As configurations of nginx with `auth_request` have it.
    const NGINX: &str = "Host: weir | X-Original-Method: GET | X-Original-URI: /é?%zz | \
                         X-Original-Host: shop.example | X-Forwarded-For: 6.6.6.6, 192.0.2.7";

    #[test]
    fn headers_of_proxies() {
        use CheckHeaders::{XForwarded, XOriginal};
        let post = r#"POST shop.example /a/b Some("c=d") 192.0.2.7"#;
        let get = r#"GET shop.example /é Some("%zz") 192.0.2.7"#;
        for (lines, headers, expected) in [
            (TRAEFIK, XForwarded, post),
            (CADDY, XForwarded, "GET shop.example:8443 / None 192.0.2.7"),
            (NGINX, XOriginal, get),
            // The other headers are those of a client.
            (&format!("{TRAEFIK} | X-Original-URI: /free"), XForwarded, post),
            (&format!("{NGINX} | X-Forwarded-Uri: /free"), XOriginal, get),
            (TRAEFIK, XOriginal, "x-original-method: missing; the proxy that asks must set it"),
            (NGINX, XForwarded, "x-forwarded-method: missing; the proxy that asks must set it"),
            (&format!("{CADDY} | X-Forwarded-Uri: /free"), XForwarded, "x-forwarded-uri: more than one"),
            (&format!("{CADDY} | x-forwarded-method: GET"), XForwarded, "x-forwarded-method: more than one"),
        ] {
            assert_eq!(described(lines, headers), expected, "{lines}");
        }
    }

    #[test]
    fn one_header_differs() {
        let method = "x-forwarded-method: expected a method in upper-case letters";
        let uri = "x-forwarded-uri: expected a path, with the query if there is one";
        let host = "x-forwarded-host: expected a host, with the port if there is one";
        let missing = |name: &str| format!("{name}: missing; the proxy that asks must set it");
        for (from, to, expected) in [
            // A host may be empty, as in HTTP/1.0.
            ("shop.example:8443", "", "GET  / None 192.0.2.7"),
            ("shop.example", "a@b", host),
            ("shop.example", "a, b", host),
            ("X-Forwarded-Host", "X-Host", &missing("x-forwarded-host")),
            ("X-Forwarded-For", "X-For", &missing("x-forwarded-for")),
            ("Method: GET", "Method: get", method),
            ("Method: GET", "Method: G T", method),
            ("Method: GET", "Method:", method),
            ("Uri: /", "Uri: *", uri),
            ("Uri: /", "Uri: a", uri),
            ("Uri: /", "Uri: http://h/", uri),
            ("Uri: /", "Uri: /a b", uri),
            ("Uri: /", "Uri: /a#b", uri),
            ("Uri: /", "Uri:", uri),
        ] {
            let lines = CADDY.replace(from, to);
            assert_eq!(described(&lines, CheckHeaders::XForwarded), expected, "{lines}");
        }
        let options = CADDY.replace("GET", "OPTIONS").replace("Uri: /", "Uri: *");
        assert_eq!(described(&options, CheckHeaders::XForwarded), "OPTIONS shop.example:8443 * None 192.0.2.7");
    }
}
