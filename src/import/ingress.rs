//! Ingresses of Kubernetes with the limits of ingress-nginx.
//!
//! ingress-nginx makes one zone of each annotation and each ingress, by address. Each of its pods counts for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use super::draft::{Draft, SourceLine, quoted};
use super::limit::{self, Limit, Match, network};
use super::nginx;
use super::path::Path;
use super::regions::{Region, regions};
use super::report::{ImportError, Kind, OPEN};
use super::services::{Route, Service, write};
use super::yaml::{self, Node, Reasons};

/// Translates all ingresses of a file.
pub(super) fn translate(_: &FilePath, draft: &mut Draft) -> Result<(), ImportError> {
    let documents = yaml::read(draft)?;
    let mut reader = IngressReader::default();
    for document in &documents {
        match document.word("kind") {
            "Ingress" => reader.read(document, draft),
            "List" => document.list("items").iter().for_each(|item| reader.read(item, draft)),
            _ => document.left_out("it is no ingress", draft),
        }
        document.word("apiVersion");
    }
    reader.write(draft);
    for document in &documents {
        document.report(&REASONS, draft);
    }
    Ok(())
}

const REASONS: Reasons = Reasons {
    not_needed: "apiVersion kind labels ingressClassName kubernetes.io/ingress.class status creationTimestamp uid \
        resourceVersion generation managedFields kubectl.kubernetes.io/last-applied-configuration",
    left_out: &[
        ("tls", "set `server.tls` by hand"),
        ("nginx.ingress.kubernetes.io/rewrite-target", "set `route.rewrite` by hand"),
        ("nginx.ingress.kubernetes.io/limit-rate", "Weir bounds bytes in a period, not the speed of an answer"),
        ("nginx.ingress.kubernetes.io/limit-rate-after", "Weir bounds bytes in a period, not the speed of an answer"),
        ("nginx.ingress.kubernetes.io/proxy-body-size", "set `route.max_body_bytes` by hand"),
        ("nginx.ingress.kubernetes.io/whitelist-source-range", OPEN),
    ],
};

#[derive(Default)]
struct IngressReader {
    services: BTreeMap<String, Service>,
    /// The paths of all ingresses with their services, and the index of the ingress.
    paths: Vec<(Region, Path, String, usize)>,
    /// The limits of each ingress.
    limits: Vec<Vec<Limit>>,
}

impl IngressReader {
    fn read(&mut self, node: &Node, draft: &mut Draft) {
        let metadata = node.get("metadata");
        let word = |name| metadata.map_or("", |metadata| metadata.word(name));
        let namespace = Some(word("namespace")).filter(|name| !name.is_empty()).unwrap_or("default");
        let name = word("name");
        node.word("kind");
        let Some(spec) = node.get("spec") else { return };
        for rule in spec.list("rules") {
            let host = rule.word("host").to_ascii_lowercase();
            for path in rule.at(&["http", "paths"]).map_or(&[][..], Node::items) {
                self.path(path, &host, namespace, draft);
            }
        }
        if let Some(backend) = spec.get("defaultBackend") {
            let path = Path::Prefix("/".to_owned());
            self.push(backend.place, "", path, service(backend, namespace), draft);
        }
        let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
        self.limits.push(annotations.map_or_else(Vec::new, |annotations| limits(name, annotations, draft)));
    }

    fn path(&mut self, node: &Node, host: &str, namespace: &str, draft: &mut Draft) {
        let text = node.get("path").map_or("/", Node::text);
        let kind = node.word("pathType");
        let path = if kind == "Exact" { Path::exact(text) } else { Path::prefix(text) };
        let path = match path {
            Ok(path) => path,
            Err(reason) => return node.left_out(reason, draft),
        };
        // The type `Prefix` takes whole segments.
        if let Some(difference) = path.difference().filter(|_| kind != "Prefix") {
            draft.differs(node.place, difference);
        }
        let found = node.get("backend").map_or(Err("it has no service"), |backend| service(backend, namespace));
        self.push(node.place, host, path, found, draft);
    }

    fn push(
        &mut self,
        place: SourceLine,
        host: &str,
        path: Path,
        service: Result<Service, &'static str>,
        draft: &mut Draft,
    ) {
        let service = match service {
            Ok(service) => service,
            Err(reason) => return draft.left_out(place, reason),
        };
        let hosts = if host.is_empty() { Vec::new() } else { vec![host.to_owned()] };
        let matches = Match { hosts, paths: path.patterns(), ..Match::default() };
        let id = service.endpoints.concat();
        self.services.entry(id.clone()).or_insert(service);
        self.paths.push((Region { place, matches }, path, id, self.limits.len()));
    }

    fn write(mut self, draft: &mut Draft) {
        // nginx prefers a host to a wildcard, one path to a prefix, and a long prefix to a short one.
        self.paths.sort_by_key(|(Region { matches, .. }, path, ..)| {
            let is_wild = matches.hosts.iter().any(|host| host.starts_with('*'));
            let is_prefix = matches!(path, Path::Prefix(_));
            (matches.hosts.is_empty(), is_wild, is_prefix, std::cmp::Reverse(path.text().len()))
        });
        let route = |(region, _, service, _): &(Region, Path, String, usize)| Route {
            places: vec![region.place],
            matches: region.matches.clone(),
            service: service.clone(),
            rewrite: None,
            require: None,
        };
        write(&self.services, self.paths.iter().map(route).collect(), draft);
        let all: Vec<_> = self.paths.iter().map(|(region, ..)| region.clone()).collect();
        let mut written = Vec::new();
        for (ingress, limits) in self.limits.into_iter().enumerate().filter(|(_, limits)| !limits.is_empty()) {
            let paths = self.paths.iter().enumerate().filter(|(_, (.., of))| *of == ingress);
            let own: BTreeSet<_> = paths.map(|(index, _)| index).collect();
            for (matches, except_paths) in regions(&all, &own, draft) {
                let with = |limit: &Limit| Limit {
                    matches: matches.clone(),
                    except_paths: except_paths.clone(),
                    ..limit.clone()
                };
                written.extend(limits.iter().map(with));
            }
        }
        limit::write(written, draft);
    }
}

/// The service of a backend; errs with the reason why Weir has none.
fn service(backend: &Node, namespace: &str) -> Result<Service, &'static str> {
    let service = backend.get("service").ok_or("Weir forwards only to services")?;
    let name = service.word("name");
    let port: u16 = service.get("port").and_then(|port| port.number("number")).ok_or("its port has no number")?;
    Ok(Service {
        name: name.to_owned(),
        places: vec![backend.place],
        endpoints: vec![format!("http://{name}.{namespace}.svc:{port}")],
        ..Service::default()
    })
}

/// The limits of an ingress.
fn limits(name: &str, annotations: &Node, draft: &mut Draft) -> Vec<Limit> {
    let get = |name: &str| annotations.get(&format!("nginx.ingress.kubernetes.io/{name}"));
    let number = |node: &Node| node.text().parse::<u64>().ok();
    let multiplier = get("limit-burst-multiplier");
    let burst = multiplier.and_then(number).filter(|times| *times > 0).unwrap_or(5);
    let lists = ["limit-whitelist", "limit-allowlist"].into_iter().filter_map(get);
    let texts = lists.flat_map(|list| list.text().split(',')).map(str::trim).filter(|text| !text.is_empty());
    let except_ips: Vec<_> =
        texts.map(|text| network(text).map_or(text.to_owned(), |network| network.to_string())).collect();
    let mut limits = Vec::new();
    for (annotation, unit) in [("limit-rps", "r/s"), ("limit-rpm", "r/m"), ("limit-connections", "")] {
        let Some(node) = get(annotation) else { continue };
        let Some(count) = number(node).filter(|count| *count > 0) else {
            draft.note(Kind::NotNeeded, node.place, "it limits nothing");
            continue;
        };
        let mut rule = vec![("algorithm", quoted("concurrency")), ("max", count.to_string())];
        if !unit.is_empty() {
            let Some((_, rate)) = nginx::rate(&format!("{count}{unit}")) else {
                node.left_out("Weir has no such rate", draft);
                continue;
            };
            // nginx admits one request beyond the burst.
            rule = vec![("rate", quoted(&rate)), ("burst", count.saturating_mul(burst).saturating_add(1).to_string())];
        }
        draft.note(Kind::NotNeeded, node.place, "each pod of ingress-nginx counts for itself, as each replica of Weir");
        limits.push(Limit {
            name: format!("{name}-{annotation}"),
            places: vec![node.place],
            at_arrival: !unit.is_empty(),
            except_ips: except_ips.clone(),
            key: vec!["ip".to_owned()],
            rule,
            ..Limit::default()
        });
    }
    limits
}
