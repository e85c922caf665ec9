//! Rewrites `Location` and `Content-Location` of responses for the client.
//!
//! A route with `rewrite` sends other paths to the service than the client knows. The inverse of the rule is applied to
//! these fields if they name the service itself: by a path, or by a URL with the client's host or with the endpoint's.
//! Not here: paths in bodies.

use std::sync::Arc;

use crate::base::fields::Fields;
use crate::engine::policy::route::Rewrite;

/// How the paths of one response are rewritten.
#[derive(Clone, Debug)]
pub(crate) struct LocationRewrite {
    pub(crate) rewrite: Arc<Rewrite>,
    /// The host and port of the client's request.
    pub(crate) authority: Box<str>,
}

/// Whether the field is `Location` or `Content-Location` (RFC 9110, sections 8.7 and 10.2.2).
pub(crate) fn is_location(name: &[u8]) -> bool {
    match name.len() {
        8 => name.eq_ignore_ascii_case(b"location"),
        16 => name.eq_ignore_ascii_case(b"content-location"),
        _ => false,
    }
}

impl LocationRewrite {
    /// Calls `put` with the name and the rewritten value of each such field. `host` is that of the endpoint.
    pub(crate) fn each<'f>(&self, fields: Fields<'f>, host: &str, mut put: impl FnMut(&'f [u8], &[u8])) {
        for (name, value) in fields.iter().filter(|(name, _)| is_location(name)) {
            let rewritten = str::from_utf8(value).ok().and_then(|value| self.rewritten(value, host));
            put(name, rewritten.as_deref().map_or(value, str::as_bytes));
        }
    }

    /// The rewritten value; none if it stays.
    fn rewritten(&self, value: &str, host: &str) -> Option<String> {
        let (origin, rest) = split(value)?;
        let prefix = match origin {
            None => "",
            // The client's host stays. The endpoint's host would lead past Weir.
            Some(origin) if origin.authority.eq_ignore_ascii_case(&self.authority) => origin.text,
            Some(origin) if origin.authority.eq_ignore_ascii_case(host) => "",
            Some(_) => return None,
        };
        let end = rest.find(['?', '#']).unwrap_or(rest.len());
        let (path, more) = rest.split_at(end);
        let (start, path) = self.rewrite.undo(if path.is_empty() { "/" } else { path })?;
        Some([prefix, start, path, more].concat())
    }
}

/// The scheme and authority of a URL.
struct UrlOrigin<'v> {
    /// The scheme, if there is one, `//` and the authority.
    text: &'v str,
    authority: &'v str,
}

/// The origin, if there is one, and the rest. None for a relative path and for other schemes than HTTP.
fn split(value: &str) -> Option<(Option<UrlOrigin<'_>>, &str)> {
    let start = ["//", "http://", "https://"]
        .into_iter()
        .find(|start| value.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start)));
    let Some(start) = start else { return value.starts_with('/').then_some((None, value)) };
    let authority = &value[start.len()..];
    let len = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    let (text, rest) = value.split_at(start.len() + len);
    Some((Some(UrlOrigin { text, authority: &authority[..len] }), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(strip: &str, add: &str, value: &str) -> Option<String> {
        let rewrite = Arc::new(Rewrite { strip: strip.into(), add: add.into(), ..Rewrite::default() });
        LocationRewrite { rewrite, authority: "shop.test".into() }.rewritten(value, "app:8000")
    }

    #[test]
    fn paths_of_the_service_become_paths_of_the_client() {
        for (strip, add, value, expected) in [
            ("/v1", "/api", "/api/users?a=/api#/api", Some("/v1/users?a=/api#/api")),
            ("/v1", "/api", "/api", Some("/v1")),
            ("/v1", "/api", "/api?x", Some("/v1?x")),
            ("/v1", "/api", "/api/", Some("/v1/")),
            ("/v1", "/api", "http://shop.test/api/users", Some("http://shop.test/v1/users")),
            ("/v1", "/api", "HTTPS://Shop.Test/api", Some("HTTPS://Shop.Test/v1")),
            ("/v1", "/api", "//shop.test/api/users", Some("//shop.test/v1/users")),
            // The endpoint's host would lead past Weir.
            ("/v1", "/api", "http://app:8000/api/users", Some("/v1/users")),
            ("/v1", "", "/users", Some("/v1/users")),
            ("/v1", "", "/", Some("/v1/")),
            ("/v1", "", "http://app:8000", Some("/v1/")),
            ("/v1", "", "http://app:8000?a", Some("/v1/?a")),
            ("", "/api", "/api/users", Some("/users")),
            ("", "/api", "/api", Some("/")),
            // Other hosts stay, and relative paths, which the client resolves.
            ("/v1", "/api", "/apis", None),
            ("/v1", "/api", "/other", None),
            ("/v1", "/api", "users", None),
            ("/v1", "/api", "../users", None),
            ("/v1", "/api", "?page=2", None),
            ("/v1", "/api", "", None),
            ("/v1", "/api", "http://else.test/api/users", None),
            ("/v1", "/api", "http://shop.test:81/api", None),
            ("/v1", "/api", "http://shop.test@else.test/api", None),
            ("/v1", "/api", "ftp://shop.test/api", None),
            ("/v1", "/api", "mailto:a@b", None),
        ] {
            assert_eq!(rewritten(strip, add, value).as_deref(), expected, "{value}");
        }
    }
}
