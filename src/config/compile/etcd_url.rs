//! The address of a member of an etcd.

use http::uri::Authority;

use super::upstream::authority;
use crate::config::reader::units::Fault;

/// The port of an etcd without one.
const PORT: u16 = 2379;

/// Parses `http[s]://host[:port]`, and whether it has TLS.
pub(super) fn server(url: &str) -> Result<(Authority, bool), Fault> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        return Err(Fault::new("must begin with `http://` or `https://`"));
    }
    let server = authority(scheme, rest.strip_suffix('/').unwrap_or(rest))?;
    let server = match server.port_u16() {
        Some(_) => server,
        None => format!("{server}:{PORT}").parse().map_err(|_| Fault::new("is not a host and port"))?,
    };
    Ok((server, scheme == "https"))
}
