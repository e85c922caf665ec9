//! Where requests go and what they say. No names are resolved: a benchmark should not measure a resolver.

use std::net::SocketAddr;

/// A URL, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// Where to connect.
    pub address: SocketAddr,
    /// What stands in `Host`.
    authority: String,
    /// Path and query, beginning with a slash.
    path: String,
}

impl Target {
    /// Takes `http://ADDRESS:PORT/PATH` apart; the port may be left out, and so may the path.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the URL.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("http://").ok_or_else(|| format!("`{url}` does not begin with http://"))?;
        let (authority, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
        if path.contains(|c: char| c.is_ascii_control() || c == ' ') {
            return Err(format!("`{path}` is not a path"));
        }
        let with_port = format!("{authority}:80");
        let address = authority.parse().or_else(|_| with_port.parse());
        let address = address.map_err(|_| format!("`{authority}` is not an address with a port"))?;
        Ok(Self { address, authority: authority.into(), path: path.into() })
    }

    /// The bytes of a request; a header is `NAME: VALUE`.
    pub fn request(&self, headers: &[String]) -> Vec<u8> {
        let mut lines = vec![format!("GET {} HTTP/1.1", self.path), format!("Host: {}", self.authority)];
        lines.extend(headers.iter().map(|header| header.trim().to_owned()));
        (lines.join("\r\n") + "\r\n\r\n").into_bytes()
    }
}
