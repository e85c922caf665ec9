//! The address of a configuration, as the command line has it: a file, a key of etcd, or a URL.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use http::Uri;
use http::uri::{Authority, Scheme};

/// The place of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigAddress {
    /// A file.
    File(PathBuf),
    /// A place on other machines.
    Remote(RemoteAddress),
}

/// The place of a configuration on other machines. Its `Display` form has no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteAddress {
    /// A key of etcd.
    Etcd {
        /// Host and port of each server; at least one.
        servers: Vec<Authority>,
        /// Whether the connections have TLS.
        is_tls: bool,
        /// The key, with the slash before it.
        key: String,
    },
    /// A URL. Plain HTTP is for this machine only.
    Http(Uri),
}

/// The port of an etcd without one.
const ETCD_PORT: u16 = 2379;

const USERINFO: &str = "an address has no user and password, because other users of this machine can read the command \
                        line; use `--config-login`";

impl ConfigAddress {
    /// Reads an address. A text without one of the schemes is the path of a file.
    ///
    /// # Errors
    /// What is wrong with a URL.
    pub fn parse(path: PathBuf) -> Result<Self, String> {
        let Some((scheme, rest)) = path.to_str().and_then(|text| text.split_once("://")) else {
            return Ok(Self::File(path));
        };
        let remote = match scheme {
            "etcd" => etcd(rest, false),
            "etcds" => etcd(rest, true),
            "http" | "https" => url(&format!("{scheme}://{rest}")),
            _ => return Err(format!("`{scheme}` is none of etcd, etcds, https and http")),
        };
        remote.map(Self::Remote)
    }
}

impl RemoteAddress {
    /// The whole address. Its query may have a secret.
    pub(super) fn whole(&self) -> String {
        match self {
            Self::Etcd { .. } => self.to_string(),
            Self::Http(url) => url.to_string(),
        }
    }
}

fn etcd(rest: &str, is_tls: bool) -> Result<RemoteAddress, String> {
    let (hosts, key) = rest.split_once('/').unwrap_or((rest, ""));
    if key.is_empty() || key.ends_with('/') {
        return Err("expected servers and a key, as in `etcd://127.0.0.1:2379/weir/config`".to_owned());
    }
    let servers = hosts.split(',').map(server).collect::<Result<Vec<_>, _>>()?;
    Ok(RemoteAddress::Etcd { servers, is_tls, key: format!("/{key}") })
}

/// Reads a host with or without a port.
fn server(text: &str) -> Result<Authority, String> {
    let invalid = || format!("`{text}` is no host and port");
    if text.contains('@') {
        return Err(USERINFO.to_owned());
    }
    let server: Authority = text.parse().map_err(|_| invalid())?;
    match server.port() {
        Some(port) => port.as_str().parse::<u16>().map(|_| server.clone()).map_err(|_| invalid()),
        None => format!("{server}:{ETCD_PORT}").parse().map_err(|_| invalid()),
    }
}

fn url(text: &str) -> Result<RemoteAddress, String> {
    let url: Uri = text.parse().map_err(|error| format!("not a valid URL: {error}"))?;
    let authority = url.authority().ok_or("the URL has no host")?;
    if authority.as_str().contains('@') {
        return Err(USERINFO.to_owned());
    }
    if url.scheme() == Some(&Scheme::HTTP) && !is_loopback(authority.host()) {
        return Err("plain http is for this machine only; use https".to_owned());
    }
    Ok(RemoteAddress::Http(url))
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl fmt::Display for ConfigAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Remote(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd { servers, is_tls, key } => {
                let scheme = if *is_tls { "etcds" } else { "etcd" };
                let servers: Vec<_> = servers.iter().map(Authority::as_str).collect();
                write!(f, "{scheme}://{}{key}", servers.join(","))
            }
            // A query may have a token.
            Self::Http(url) => {
                let scheme = url.scheme_str().unwrap_or_default();
                let host = url.authority().map_or("", Authority::as_str);
                write!(f, "{scheme}://{host}{}", url.path())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_file_or_a_url() {
        let rows = [
            ("weir.toml", Ok("file weir.toml")),
            ("etcd", Ok("file etcd")),
            ("C:/etcd", Ok("file C:/etcd")),
            ("etcd://a:2379/weir/config", Ok("etcd://a:2379/weir/config")),
            ("etcd://a,b:1,[::1]/c", Ok("etcd://a:2379,b:1,[::1]:2379/c")),
            ("etcds://a/weir/config", Ok("etcds://a:2379/weir/config")),
            ("https://a.test/weir.toml?token=secret", Ok("https://a.test/weir.toml")),
            ("http://127.0.0.1:8/a", Ok("http://127.0.0.1:8/a")),
            ("http://[::1]/a", Ok("http://[::1]/a")),
            ("http://localhost/a", Ok("http://localhost/a")),
            ("http://a.test/a", Err("plain http is for this machine only")),
            ("etcd://a:2379", Err("expected servers and a key")),
            ("etcd://a:2379/", Err("expected servers and a key")),
            ("etcd://a:2379/weir/", Err("expected servers and a key")),
            ("etcd:///weir", Err("`` is no host and port")),
            ("etcd://a:99999/weir", Err("`a:99999` is no host and port")),
            ("etcd://me:secret@a/weir", Err("an address has no user and password")),
            ("https://me:secret@a/weir", Err("an address has no user and password")),
            ("ftp://a/b", Err("`ftp` is none of etcd, etcds, https and http")),
        ];
        for (text, expected) in rows {
            let shown = ConfigAddress::parse(text.into()).map(|address| match address {
                ConfigAddress::File(path) => format!("file {}", path.display()),
                ConfigAddress::Remote(address) => address.to_string(),
            });
            match (&shown, expected) {
                (Ok(shown), Ok(expected)) => assert_eq!(shown, expected, "{text}"),
                (Err(reason), Err(expected)) => assert!(reason.starts_with(expected), "{text}: {reason}"),
                _ => unreachable!("{text}: {shown:?}"),
            }
        }
    }
}
