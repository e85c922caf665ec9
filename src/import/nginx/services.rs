//! `upstream` and `proxy_pass` of nginx.

use std::collections::BTreeMap;

use super::directives::Directive;
use super::site::Proxy;
use crate::import::draft::{Draft, quoted};
use crate::import::path::Path;
use crate::import::services::Service;

/// The `upstream` blocks by their names.
pub(super) type Upstreams<'d> = BTreeMap<&'d str, &'d Directive>;

/// Reads a `proxy_pass`, and adds its service.
pub(super) fn proxy_pass(
    directive: &Directive,
    (path, keeps_host): (&Path, bool),
    upstreams: &Upstreams<'_>,
    services: &mut BTreeMap<String, Service>,
    draft: &mut Draft,
) -> Option<Proxy> {
    let (place, url) = (directive.place, directive.word(0));
    let Some((scheme, rest)) = url.split_once("://").filter(|_| !url.contains('$')) else {
        draft.left_out(place, "Weir needs a service with a fixed address");
        return None;
    };
    let (host, uri) = match rest.strip_prefix("unix:") {
        Some(socket) => socket.split_once(':').map_or((rest, None), |(path, uri)| (&rest[..path.len() + 5], Some(uri))),
        None => rest.find('/').map_or((rest, None), |at| (&rest[..at], Some(&rest[at..]))),
    };
    let rewrite = match uri.map(|uri| rewrite(path, uri)) {
        Some(None) => {
            draft.left_out(place, "Weir removes and adds only whole segments of a path");
            return None;
        }
        rewrite => rewrite.flatten().flatten(),
    };
    let id = format!("{host} {scheme} {keeps_host}");
    if !services.contains_key(&id) {
        let mut service = match upstreams.get(host) {
            Some(upstream) => balanced(upstream, scheme, draft),
            None => Service { endpoints: vec![endpoint(scheme, host)], ..Service::default() },
        };
        host.clone_into(&mut service.name);
        // A Unix socket has no host; nginx sends `localhost` as Weir does.
        service.rewrites_host = !keeps_host;
        services.insert(id.clone(), service);
    }
    Some(Proxy { place, service: id, rewrite })
}

/// The change of the path, if there is one; `None` if Weir has no such change.
#[allow(clippy::option_option)]
fn rewrite(path: &Path, uri: &str) -> Option<Option<(String, String)>> {
    let from = path.text();
    if from.ends_with('/') != uri.ends_with('/') || uri.contains('?') {
        return None;
    }
    let (strip, add) = (from.trim_end_matches('/').to_owned(), uri.trim_end_matches('/').to_owned());
    Some(Some((strip, add)).filter(|(strip, add)| strip != add))
}

fn endpoint(scheme: &str, server: &str) -> String {
    if server.starts_with("unix:") { server.to_owned() } else { format!("{scheme}://{server}") }
}

fn balanced(upstream: &Directive, scheme: &str, draft: &mut Draft) -> Service {
    let mut service = Service { places: vec![upstream.place], ..Service::default() };
    for line in upstream.directives() {
        let balance = match (line.name.as_str(), line.word(0)) {
            ("server", server) => {
                let is_down = line.words.iter().any(|word| word == "down");
                if let Some(other) = line.words.iter().skip(1).find(|word| *word != "down") {
                    draft.differs(line.place, format!("Weir has no `{other}` of an endpoint"));
                }
                if !is_down {
                    service.endpoints.push(endpoint(scheme, server));
                    service.places.push(line.place);
                }
                continue;
            }
            ("least_conn", _) => ("least_connections", None),
            ("random", _) => ("p2c", None),
            ("ip_hash", _) | ("hash", "$remote_addr" | "$binary_remote_addr") => ("hash", Some("ip")),
            ("hash", "$uri" | "$request_uri") => ("hash", Some("path")),
            _ => {
                super::others::note(line, draft);
                continue;
            }
        };
        service.balance = vec![("balance", quoted(balance.0))];
        service.balance.extend(balance.1.map(|part| ("hash_by", quoted(part))));
        service.places.push(line.place);
    }
    service
}
