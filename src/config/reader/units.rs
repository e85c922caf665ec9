//! Parsers of single values: addresses, networks, file modes and names.
//!
//! Each function parses one text, or returns a [`Fault`]. The caller knows the position of the text.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use crate::base::fields::decimal;
use crate::config::diagnostics::{Help, did_you_mean, nearest};
use crate::config::schema::own_value;
use crate::engine::policy::access::canonical;
use crate::transport::net::{ListenAddress, SOCKET_PATH_MAX};

/// An error in a text, without its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct Fault {
    /// The error, as the end of a message that begins with the name of the option.
    pub(in crate::config) what: String,
    /// A correction.
    pub(in crate::config) help: Option<String>,
    /// Whether a missing option elsewhere can cause the error.
    pub(in crate::config) absence: bool,
    /// The error without the text. Messages show no text of files that the configuration names, because operators who
    /// check a configuration may name any file.
    pub(in crate::config) of_row: Option<&'static str>,
}

impl Fault {
    pub(in crate::config) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), help: None, absence: false, of_row: None }
    }

    pub(in crate::config) fn help(self, help: impl Help) -> Self {
        Self { help: help.text(), ..self }
    }

    /// The fault, if a missing option elsewhere can cause it.
    pub(in crate::config) fn absence(self) -> Self {
        Self { absence: true, ..self }
    }

    /// The fault, which is described in this way if the text is a row of a file.
    pub(in crate::config) fn of_row(self, what: &'static str) -> Self {
        Self { of_row: Some(what), ..self }
    }
}

impl From<&str> for Fault {
    fn from(what: &str) -> Self {
        Self::new(what)
    }
}

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Self::new(what)
    }
}

impl<W: Into<String>, H: Help> From<(W, H)> for Fault {
    fn from((what, help): (W, H)) -> Self {
        Self::new(what).help(help)
    }
}

/// A text, unless it is empty.
pub(in crate::config) fn not_empty(text: &str) -> Result<&str, Fault> {
    if text.is_empty() { Err(Fault::new("must not be empty")) } else { Ok(text) }
}

/// Whether a text is 1 to 64 of `A-Z a-z 0-9 _ -`.
pub(in crate::config) fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Whether a host is this machine.
pub(in crate::config) fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Whether other machines can reach an address.
pub(in crate::config) fn is_elsewhere(place: &ListenAddress) -> bool {
    matches!(place, ListenAddress::Tcp(address) if !address.ip().to_canonical().is_loopback())
}

/// The value of one of `words`, or the result of `parse`. An error suggests the word that the text is like.
pub(in crate::config) fn word_or<T: Clone>(
    text: &str,
    words: &[(&str, T)],
    parse: impl Fn(&str) -> Result<T, Fault>,
) -> Result<T, Fault> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(value.clone());
    }
    parse(text).map_err(|fault| match nearest(text, words.iter().map(|(word, _)| *word)) {
        Some(word) => fault.help(did_you_mean(Some(word))),
        None => fault,
    })
}

/// Parses a network. An address is a network of one address.
pub(in crate::config) fn network(text: &str) -> Result<IpNet, Fault> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    let shape = |_| {
        Fault::new(format!("`{text}` is neither an address nor a network"))
            .help("write it like \"192.0.2.7\" or \"10.0.0.0/8\"")
            .of_row("neither an address nor a network")
    };
    let network: IpNet = text.parse().map_err(shape)?;
    if network.trunc() != network {
        let what = format!("`{text}` has bits set beyond its prefix");
        let fault = Fault::new(what).help(did_you_mean(Some(&network.trunc().to_string())));
        return Err(fault.of_row("a network with bits set beyond its prefix"));
    }
    // Addresses of clients are compared in this form.
    Ok(canonical(network))
}

/// Parses an IP address with a port.
pub(in crate::config) fn address(text: &str) -> Result<SocketAddr, Fault> {
    text.parse().map_err(|_| {
        let port = text.strip_prefix(':').unwrap_or(text);
        let port = decimal(port.as_bytes()).and_then(|port| u16::try_from(port).ok());
        let suggestion = port.map(|port| format!("0.0.0.0:{port}"));
        let help = did_you_mean(suggestion.as_deref());
        let help =
            help.unwrap_or_else(|| "write an IP address, not a host name: \"127.0.0.1:8080\" or \"[::1]:8080\"".into());
        Fault::new(format!("`{text}` is not an address with a port")).help(help)
    })
}

/// The prefix of the path of a Unix socket.
const UNIX: &str = "unix:";

/// Parses an address with a port, or `unix:` with a path. A relative path begins at `dir`.
pub(in crate::config) fn listen(text: &str, dir: &Path) -> Result<ListenAddress, Fault> {
    let Some(path) = text.strip_prefix(UNIX) else { return address(text).map(ListenAddress::Tcp) };
    if path.is_empty() || path.ends_with('/') || path.contains('\0') {
        return Err((format!("`{text}` names no file"), "write it like \"unix:/run/weir.sock\"").into());
    }
    socket_path(dir.join(path)).map(ListenAddress::Unix)
}

/// Checks that a path is short enough for the address of a Unix socket.
pub(in crate::config) fn socket_path(path: PathBuf) -> Result<PathBuf, Fault> {
    let len = path.as_os_str().len();
    if len > SOCKET_PATH_MAX {
        let what =
            format!("`{}` has {len} bytes; the path of a socket has at most {SOCKET_PATH_MAX} bytes", path.display());
        return Err(Fault::new(what));
    }
    Ok(path)
}

/// Parses the permissions of a file: three octal digits, with or without a leading zero.
pub(in crate::config) fn mode(text: &str) -> Result<u32, Fault> {
    let digits = if text.len() == 4 { text.strip_prefix('0') } else { Some(text) };
    let mode = digits.filter(|digits| digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit()));
    mode.and_then(|digits| u32::from_str_radix(digits, 8).ok())
        .ok_or_else(|| Fault::new(format!("`{text}` is not a file mode")).help("write it like \"0660\""))
}

/// Returns a parser that accepts some names, and returns the value of the name.
pub(in crate::config) fn one_of<'n, T: Clone>(names: &'n [(&'n str, T)]) -> impl Fn(&str) -> Result<T, Fault> + 'n {
    move |text| {
        let found = names.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone());
        found.ok_or_else(|| {
            let known = names.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let own = || names.iter().map(|(name, _)| *name);
            let suggestion = own_value(text, own()).or_else(|| nearest(text, own()));
            Fault::new(format!("`{text}` is not one of {known}")).help(did_you_mean(suggestion))
        })
    }
}

/// Parses the name of an upgrade protocol, and returns it in lower case. Errs for HTTP and TLS: their requests would
/// bypass all limits.
pub(in crate::config) fn upgrade(text: &str) -> Result<Box<str>, Fault> {
    let is_token = |part: &str| part.parse::<http::Method>().is_ok(); // a method is any token
    if !text.splitn(2, '/').all(is_token) {
        return Err(format!("`{text}` is not a protocol name").into());
    }
    let lower = text.to_ascii_lowercase();
    let name = lower.split('/').next().unwrap_or(&lower);
    if ["http", "h2", "h2c", "h3", "tls"].contains(&name) {
        return Err(format!("`{text}` would let requests bypass all limits").into());
    }
    Ok(lower.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_and_modes() {
        let parse = |text| listen(text, Path::new("/etc/weir"));
        assert_eq!(parse("[::1]:80"), Ok(ListenAddress::Tcp("[::1]:80".parse().unwrap())));
        for (text, path) in [("unix:/run/weir.sock", "/run/weir.sock"), ("unix:weir.sock", "/etc/weir/weir.sock")] {
            assert_eq!(parse(text), Ok(ListenAddress::Unix(path.into())));
        }
        let [fits, too_long] = [107, 108].map(|len| format!("unix:/{}", "x".repeat(len - 1)));
        assert!(parse(&fits).is_ok());
        for text in ["unix:", "unix:/run/", "unix:a\0b", "Unix:/run/weir.sock", "/run/weir.sock", &too_long] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!([mode("0660"), mode("777"), mode("000")], [Ok(0o660), Ok(0o777), Ok(0)]);
        for text in ["", "0", "66", "1777", "04777", "0o660", "668", "+66", "rw-", "06 0"] {
            assert!(mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn upgrade_protocols() {
        for (text, name) in [("websocket", "websocket"), ("WebSocket", "websocket"), ("IRC/6.9", "irc/6.9"), ("x", "x")]
        {
            assert_eq!(upgrade(text).as_deref(), Ok(name));
        }
        for text in
            ["", "a b", "a/", "/1", "a/1/2", "web,socket", "h2c", "H2C", "HTTP/2.0", "http", "h2", "h3", "TLS/1.0"]
        {
            assert!(upgrade(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks_and_addresses() {
        for (text, shown) in [
            ("192.0.2.7", "192.0.2.7/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("::1", "::1/128"),
            ("fd00::/8", "fd00::/8"),
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ] {
            assert_eq!(network(text).unwrap().to_string(), shown);
        }
        for text in ["", "10.0.0.1/8", "10.0.0.0/33", "fd00::1/8", "localhost", "10.0.0/8"] {
            assert!(network(text).is_err(), "{text}");
        }
        assert!(address("[::1]:8080").is_ok() && address("0.0.0.0:0").is_ok());
        for text in ["", ":80", "80", "localhost:80", "127.0.0.1", "::1:80", "unix:/run/weir", "1.2.3.4:65536"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
