//! The addresses of a site of Caddy: its hosts, and where it listens.

use std::net::IpAddr;

use super::lines::CaddyLine;
use crate::import::draft::{Draft, SourceLine};
use crate::import::services::Listening;

/// A site with its directives.
pub(super) struct CaddySite<'d> {
    pub(super) listening: Listening,
    /// None for all hosts.
    pub(super) hosts: Vec<String>,
    pub(super) block: &'d [CaddyLine],
}

/// Reads the addresses of a site; `None` if Weir has no such site.
pub(super) fn site<'d>(
    addresses: &[String],
    place: SourceLine,
    block: &'d [CaddyLine],
    draft: &mut Draft,
) -> Option<CaddySite<'d>> {
    let (mut hosts, is_in_use) = (Vec::new(), is_in_use(block));
    let mut listening = Listening { place, has_service: is_in_use, ..Listening::default() };
    for address in addresses.iter().flat_map(|word| word.split(',')).filter(|address| !address.is_empty()) {
        let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
        let (rest, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
            _ => (rest, ""),
        };
        if !path.is_empty() || address.contains('{') {
            draft.left_out(place, format!("Weir has no such site as `{address}`"));
            return None;
        }
        match (scheme, host, port) {
            _ if !is_in_use => draft.left_out(place, "this site has no service and no limit"),
            ("http", _, "") => listen(block, "80", &mut listening, draft),
            ("http", ..) | (_, "", _) if port != "443" && !port.is_empty() => {
                listen(block, port, &mut listening, draft);
            }
            _ => {
                draft.left_out(place, "set `server.listen` and `server.tls` by hand, with certificates");
                let port = if port.is_empty() { "443" } else { port };
                listening.by_hand.extend(interfaces(block).into_iter().map(|host| format!("{host}:{port}")));
            }
        }
        if host.starts_with('*') {
            draft.differs(place, "`*.` is one label in Caddy, and any number of labels in Weir");
        }
        hosts.push(host.to_ascii_lowercase());
    }
    if hosts.iter().any(String::is_empty) {
        hosts.clear();
    }
    Some(CaddySite { listening, hosts, block })
}

/// Adds the addresses with this port.
fn listen(block: &[CaddyLine], port: &str, listening: &mut Listening, draft: &mut Draft) {
    for host in interfaces(block) {
        let address = format!("{host}:{port}");
        if host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            let bind = block.iter().find(|directive| directive.name() == "bind");
            listening.addresses.push((bind.map_or(listening.place, |bind| bind.place), address));
        } else {
            draft.left_out(listening.place, format!("`{host}`: set `server.listen` by hand"));
            listening.by_hand.push(address);
        }
    }
}

/// The addresses of `bind`, or that of all interfaces.
fn interfaces(block: &[CaddyLine]) -> Vec<String> {
    let binds = block.iter().filter(|directive| directive.name() == "bind");
    let hosts: Vec<_> = binds.flat_map(CaddyLine::arguments).map(String::as_str).collect();
    let hosts = if hosts.is_empty() { vec!["0.0.0.0"] } else { hosts };
    let host = |host: &str| {
        let host = host.trim_start_matches("tcp4/").trim_start_matches("tcp6/").trim_start_matches("tcp/");
        let is_bare_v6 = host.contains(':') && !host.starts_with('[') && host.parse::<IpAddr>().is_ok();
        if is_bare_v6 { format!("[{host}]") } else { host.replace("unix/", "unix:") }
    };
    hosts.into_iter().map(host).collect()
}

/// Whether requests go to a service, or meet a limit. A snippet may have both.
fn is_in_use(block: &[CaddyLine]) -> bool {
    let names = ["reverse_proxy", "rate_limit", "import"];
    block.iter().any(|directive| names.contains(&directive.name()) || is_in_use(&directive.block))
}
