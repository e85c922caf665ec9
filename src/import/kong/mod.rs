//! Kong: plugins that limit requests, with routes, services and upstreams of a declarative configuration.
//!
//! Of the instances of a plugin, the one of the route counts a request, else that of the service, else the global one.

mod consumers;
mod plugins;

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use consumers::Consumers;
use names::{Names, consumer_name_of, name_of};
use plugins::{Clients, IDENTITY, KEY_AUTH, Plugin, is_limit};

use super::draft::Draft;
use super::limit::{self, Limit, Match};
use super::path::Path;
use super::regions::{Region, regions};
use super::report::{ImportError, Kind};
use super::services::{Route, Service, write};
use super::yaml::{self, Node, Reasons};

/// Translates a declarative configuration of Kong 3.
pub(super) fn translate(_: &FilePath, draft: &mut Draft) -> Result<(), ImportError> {
    let documents = yaml::read(draft)?;
    let mut reader = KongReader::default();
    for document in &documents {
        reader.names.read(document);
        consumers::hide_secrets(document, draft);
    }
    for document in &documents {
        document.word("_format_version");
        for upstream in document.list("upstreams") {
            let targets = upstream.list("targets").iter().map(|target| target.word("target").to_owned());
            reader.upstreams.insert(upstream.word("name"), targets.collect());
        }
        for service in document.list("services") {
            reader.service(service, draft);
        }
        for route in document.list("routes") {
            match reader.names.reference(route, "service").map(str::to_owned) {
                Ok(service) => reader.route(route, &service, draft),
                Err(reason) => route.left_out(reason, draft),
            }
        }
        reader.consumers.read(document, &reader.names, draft);
        for consumer in document.list("consumers") {
            reader.plugins(consumer, &[("consumer", consumer_name_of(consumer))], draft);
        }
        for group in document.list("consumer_groups") {
            reader.plugins(group, &[("consumer_group", group.word("name"))], draft);
        }
        reader.plugins(document, &[], draft);
    }
    reader.write(draft);
    for document in &documents {
        document.report(&REASONS, draft);
    }
    Ok(())
}

const REASONS: Reasons = Reasons {
    not_needed: "_transform _comment tags id name regex_priority hide_client_headers instance_name https_redirect_status_code \
        request_buffering response_buffering path_handling namespace created_at updated_at",
    left_out: &[
        ("connect_timeout", "set `[timeouts]` by hand"),
        ("read_timeout", "set `[timeouts]` by hand"),
        ("write_timeout", "set `[timeouts]` by hand"),
        ("retries", "Weir retries a request only if no byte of it was sent"),
        ("healthchecks", "set `health` of the upstream by hand"),
        ("algorithm", "set `balance` by hand"),
        ("weight", "endpoints of Weir have equal weights"),
        ("protocols", "set `server.tls` by hand"),
        ("fault_tolerant", "set `on_failure` of `[store]` by hand"),
        ("redis", "set `[store]` and `strategy` by hand"),
        ("sync_rate", "set `[store]` and `strategy` by hand"),
        ("strategy", "set `[store]` and `strategy` by hand"),
        ("error_message", "Weir writes its own answers"),
        ("certificates", "set `server.tls` by hand"),
        ("snis", "set `server.tls` by hand"),
    ],
};

#[derive(Default)]
struct KongReader<'n> {
    names: Names,
    upstreams: BTreeMap<&'n str, Vec<String>>,
    services: BTreeMap<String, Service>,
    /// The path that a service adds, by its name.
    added: BTreeMap<String, String>,
    /// Each path of a route, with its rank.
    paths: Vec<(Rank, Region, Route)>,
    /// The names of the route and of the service of each of these paths.
    owners: Vec<(String, String)>,
    plugins: Vec<Plugin<'n>>,
    consumers: Consumers,
}

/// Routes with more kinds of conditions go first, then longer paths.
type Rank = (std::cmp::Reverse<usize>, std::cmp::Reverse<usize>);

impl<'n> KongReader<'n> {
    fn service(&mut self, node: &'n Node, draft: &mut Draft) {
        let name = name_of(node);
        let (mut scheme, mut host, mut path) = (node.word("protocol"), node.word("host"), node.word("path"));
        let mut port = node.word("port").to_owned();
        if let Some((of_url, rest)) = node.get("url").and_then(|url| url.text().split_once("://")) {
            let at = rest.find('/').unwrap_or(rest.len());
            (scheme, path) = (of_url, &rest[at..]);
            (host, port) = rest[..at]
                .rsplit_once(':')
                .map_or((&rest[..at], String::new()), |(host, port)| (host, port.to_owned()));
        }
        let scheme = if scheme.is_empty() { "http" } else { scheme };
        if port.is_empty() {
            (if scheme == "https" { "443" } else { "80" }).clone_into(&mut port);
        }
        let targets = self.upstreams.get(host).cloned().filter(|targets| !targets.is_empty());
        let endpoints = targets.unwrap_or_else(|| vec![format!("{host}:{port}")]);
        let endpoints = endpoints.into_iter().map(|target| format!("{scheme}://{target}")).collect();
        let places = vec![node.place];
        let service = Service { name: name.clone(), places, endpoints, rewrites_host: true, ..Service::default() };
        let kept = Service { rewrites_host: false, ..service.clone() };
        self.services.insert(name.clone(), service);
        self.services.insert(format!("{name} with its host"), kept);
        self.added.insert(name.clone(), path.trim_end_matches('/').to_owned());
        for route in node.list("routes") {
            self.route(route, &name, draft);
        }
        self.plugins(node, &[("service", &name)], draft);
    }

    fn route(&mut self, node: &'n Node, service: &str, draft: &mut Draft) {
        let mut matches = Match { hosts: node.words("hosts"), methods: node.words("methods"), ..Match::default() };
        for (header, values) in node.get("headers").map_or(&[][..], Node::members) {
            match values.items() {
                [value] => matches.headers.push((header.to_ascii_lowercase(), value.text().to_owned())),
                _ => return node.left_out("Weir has no header with one of several values", draft),
            }
        }
        if ["snis", "sources", "destinations", "expression"].iter().any(|name| node.has(name)) {
            return node.left_out("Weir has no such condition of a route", draft);
        }
        let paths = node.words("paths");
        let kinds =
            [matches.hosts.is_empty(), matches.methods.is_empty(), matches.headers.is_empty(), paths.is_empty()];
        let kinds = kinds.into_iter().filter(|is_empty| !is_empty).count();
        let strips = node.number("strip_path") != Some(false);
        let id = if node.is_true("preserve_host") { format!("{service} with its host") } else { service.to_owned() };
        let all = if paths.is_empty() { vec!["/".to_owned()] } else { paths };
        for text in all {
            let path = match Path::prefix(&text) {
                Ok(path) => path,
                Err(reason) => {
                    draft.left_out(node.place, format!("`{text}`: {reason}"));
                    continue;
                }
            };
            if let Some(difference) = path.difference() {
                draft.differs(node.place, difference);
            }
            let strip = if strips { path.text().trim_end_matches('/').to_owned() } else { String::new() };
            let add = self.added.get(service).cloned().unwrap_or_default();
            let rewrite = Some((strip, add)).filter(|(strip, add)| strip != add);
            let matches = Match { paths: path.patterns(), ..matches.clone() };
            let (place, rank) = (node.place, (std::cmp::Reverse(kinds), std::cmp::Reverse(text.len())));
            let route =
                Route { places: vec![place], matches: matches.clone(), service: id.clone(), rewrite, require: None };
            let at = self.paths.partition_point(|(other, ..)| *other <= rank);
            self.paths.insert(at, (rank, Region { place, matches }, route));
            self.owners.insert(at, (name_of(node), service.to_owned()));
        }
        self.plugins(node, &[("route", &name_of(node)), ("service", service)], draft);
    }

    /// Reads the plugins of a service, a route, or the whole configuration.
    fn plugins(&mut self, node: &'n Node, owner: &[(&str, &str)], draft: &mut Draft) {
        for plugin in node.list("plugins") {
            if plugin.number("enabled") == Some(false) {
                draft.note(Kind::NotNeeded, plugin.place, "it is disabled");
                plugin.skip();
                continue;
            }
            if plugin.word("name") != KEY_AUTH && !is_limit(plugin.word("name")) {
                plugins::note(plugin, draft);
                continue;
            }
            match self.instance(plugin, owner) {
                Ok(instance) => self.plugins.push(instance),
                Err(reason) => plugin.left_out(reason, draft),
            }
        }
    }

    /// An instance of a plugin.
    ///
    /// # Errors
    /// The file has no such route, service, consumer or group.
    fn instance(&self, plugin: &'n Node, owner: &[(&str, &str)]) -> Result<Plugin<'n>, String> {
        let of = |kind: &'static str| match owner.first().filter(|(known, _)| *known == kind) {
            Some((_, "")) => Err(format!("its `{kind}` has no name")),
            Some((_, name)) => Ok((*name).to_owned()),
            None => self.names.reference(plugin, kind).map(str::to_owned),
        };
        let anonymous = plugin.get("config").and_then(|config| config.get("anonymous"));
        // Kong has an error for an unknown consumer.
        let name = |node: &Node| self.names.resolve("consumer", node).unwrap_or_else(|_| node.text()).to_owned();
        Ok(Plugin {
            node: plugin,
            route: of("route")?,
            service: of("service")?,
            consumer: of("consumer")?,
            group: of("consumer_group")?,
            anonymous: anonymous.map(name).unwrap_or_default(),
        })
    }

    fn write(mut self, draft: &mut Draft) {
        let consumers = std::mem::take(&mut self.consumers);
        let verifies = consumers.have_keys() && self.plugins.iter().any(|plugin| plugin.name() == KEY_AUTH);
        let (mut all, mut routes) = (Vec::new(), Vec::new());
        for (index, (_, region, route)) in std::mem::take(&mut self.paths).into_iter().enumerate() {
            let require = self.plugin_of(index, KEY_AUTH).filter(|plugin| verifies && plugin.anonymous.is_empty());
            all.push(region);
            routes.push(Route { require: require.map(|_| IDENTITY), ..route });
        }
        let requires_all = routes.iter().all(|route| route.require.is_some());
        write(&self.services, routes, draft);
        let limits = self.limits(&all, verifies, &consumers, draft);
        let key_auth: Vec<_> = self.plugins.iter().filter(|plugin| plugin.name() == KEY_AUTH).collect();
        consumers.write(&key_auth, requires_all, draft);
        plugins::write_identities(&limits, draft);
        limit::write(limits, draft);
    }

    /// The limits of all instances. `all` are the requests of each path; `verifies` tells whether Weir knows the `consumers`.
    fn limits(&self, all: &[Region], verifies: bool, consumers: &Consumers, draft: &mut Draft) -> Vec<Limit> {
        let is_limit = |plugin: &&Plugin<'n>| plugin.name() != KEY_AUTH;
        let (mut tiers, plugins): (Vec<_>, Vec<_>) =
            self.plugins.iter().filter(is_limit).partition(|one| one.is_tier());
        let mut limits = Vec::new();
        for plugin in plugins {
            let is_of =
                |index: &usize| self.plugin_of(*index, plugin.name()).is_some_and(|of| std::ptr::eq(of, plugin));
            let users: BTreeSet<_> = (0..all.len()).filter(is_of).collect();
            if users.is_empty() {
                draft.left_out(plugin.node.place, "no translated route has it");
            }
            let Some(mut limit) = plugins::limit(plugin, verifies, draft).filter(|_| !users.is_empty()) else {
                continue;
            };
            if limit.key == [IDENTITY] {
                plugins::add_tiers(plugin, &mut limit, &tiers, &self.clients(users.iter().copied(), consumers), draft);
            } else if tiers.iter().any(|tier| tier.replaces(plugin)) {
                let why = "in Weir it also counts requests of consumers and groups with instances of their own";
                draft.differs(plugin.node.place, why);
            }
            for (matches, except_paths) in regions(all, &users, draft) {
                limits.push(Limit { matches, except_paths, ..limit.clone() });
            }
        }
        tiers.retain(|tier| !limits.iter().any(|limit: &Limit| limit.places.contains(&tier.node.place)));
        let clients = self.clients(0..all.len(), consumers);
        limits.extend(plugins::limits_of_tiers(&tiers, verifies, &clients, draft));
        limits
    }

    /// The consumers of the requests of these paths.
    fn clients<'c>(&'c self, paths: impl Iterator<Item = usize>, consumers: &'c Consumers) -> Clients<'c> {
        let anonymous = paths.filter_map(|index| Some(&*self.plugin_of(index, KEY_AUTH)?.anonymous));
        consumers.clients(anonymous.filter(|name| !name.is_empty()).collect())
    }

    /// The instance of the plugin `name` that is for the requests of a path, of all consumers.
    fn plugin_of(&self, index: usize, name: &str) -> Option<&Plugin<'n>> {
        let (route, service) = self.owners.get(index)?;
        let all = || self.plugins.iter().filter(|plugin| plugin.name() == name && !plugin.is_tier());
        let of = |of: &str, by: &str| all().find(|plugin| plugin.route == of && plugin.service == by);
        let of_route = all().find(|plugin| !plugin.route.is_empty() && plugin.route == *route);
        of_route.or_else(|| of("", service).filter(|_| !service.is_empty())).or_else(|| of("", ""))
    }
}
