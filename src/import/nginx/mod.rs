//! nginx: `limit_req`, `limit_conn`, `geo` and `map`, with servers, locations and services.

mod directives;

mod keys;
mod level;
mod others;
mod refusals;
mod servers;
mod site;

mod services;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use directives::Directive;
use keys::Variables;
use level::{Level, is_inherited};
use others::{Refusal, refusal};
use servers::{Servers, address};
use services::{Upstreams, proxy_pass};
use site::{Site, Spot, path_of, routed};
use zones::Zones;
pub(super) use zones::rate;

use super::draft::{Block, Draft, list, quoted};
use super::limit;
use super::path::Path;
use super::report::{ImportError, Kind, OPEN};
use super::services::{Listening, Route, Service, listen, served, write};

/// Translates a configuration, or a part of one without `http`.
pub(super) fn translate(file: &FilePath, draft: &mut Draft) -> Result<(), ImportError> {
    let directives = directives::read(file, draft)?;
    let mut http = Vec::new();
    for directive in &directives {
        if directive.name == "http" { http.extend(directive.directives()) } else { http.push(directive) }
    }
    let (mut reader, mut variables) = (HttpReader::default(), Variables::default());
    for directive in &http {
        match directive.name.as_str() {
            "geo" | "map" => variables.add(directive),
            "upstream" => _ = reader.upstreams.insert(directive.words.first().map_or("", String::as_str), directive),
            _ => {}
        }
    }
    let mut zones = Zones::default();
    for directive in http.iter().filter(|directive| directive.name.ends_with("_zone")) {
        if matches!(directive.name.as_str(), "limit_req_zone" | "limit_conn_zone") {
            zones.add(directive, &variables, draft);
        }
    }
    variables.note_unused(&http, draft);
    let own: Vec<_> = http.into_iter().cloned().collect();
    let level = Level::default().within(&own, draft);
    reader.has_one_server = own.iter().filter(|directive| directive.name == "server").count() <= 1;
    let is_location = |directive: &&Directive| directive.name == "location";
    // A part of a configuration may have locations without a server.
    let bare: Vec<_> = own.iter().filter(is_location).cloned().collect();
    if !bare.is_empty() || !own.iter().any(|directive| directive.name == "server") {
        reader.server(&Directive { block: Some(bare), ..Directive::default() }, &level, draft);
    }
    for directive in &own {
        match directive.name.as_str() {
            "server" => reader.server(directive, &level, draft),
            "geo" | "map" | "upstream" | "location" | "limit_req_zone" | "limit_conn_zone" => {}
            _ => reader.note(directive, true, draft),
        }
    }
    reader.write(&zones, draft);
    Ok(())
}

/// The parts of a configuration.
#[derive(Default)]
struct HttpReader<'d> {
    upstreams: Upstreams<'d>,
    servers: Servers,
    sites: Vec<Site>,
    /// Those of servers that are no site, with their hosts.
    refusals: Vec<(Vec<String>, Refusal)>,
    services: BTreeMap<String, Service>,
    has_one_server: bool,
    /// `set_real_ip_from`, `real_ip_header`, `real_ip_recursive` and `client_max_body_size`.
    settings: Vec<Directive>,
    /// Those of the only server, which replace settings of the same name around it.
    settings_of_server: Vec<Directive>,
}

impl HttpReader<'_> {
    /// Notes a directive that is not translated, or keeps it for [`Self::write`] if it `is_for_all` requests.
    fn note(&mut self, directive: &Directive, is_for_all: bool, draft: &mut Draft) {
        match directive.name.as_str() {
            name if is_inherited(name) => {}
            name if is_for_all && is_setting(name) => self.settings.push(directive.clone()),
            "client_max_body_size" => draft.left_out(directive.place, "set `route.max_body_bytes` by hand"),
            _ => others::note(directive, draft),
        }
    }

    fn server(&mut self, server: &Directive, outer: &Level, draft: &mut Draft) {
        let (place, index) = (server.place, self.servers.add(server));
        let level = outer.within(server.directives(), draft);
        let root = Spot::new(place, Path::Prefix("/".to_owned()), level.clone());
        let listening = Listening { place, ..Listening::default() };
        let mut site = Site { place, index, listening, spots: vec![root], ..Site::default() };
        let refusal = refusal(server.directives());
        for directive in server.directives() {
            match directive.name.as_str() {
                "listen" => {}
                "server_name" => site.add_names(directive, draft),
                "location" => self.location(directive, (server.directives(), &level), &mut site.spots, draft),
                name if self.has_one_server && is_setting(name) => self.settings_of_server.push(directive.clone()),
                "return" if refusal.is_some() => {}
                _ => self.note(directive, false, draft),
            }
        }
        site.is_nameless = site.hosts.is_empty() && self.servers.has_names(index);
        let is_limited = |spot: &Spot| !spot.level.requests.is_empty() || !spot.level.connections.is_empty();
        let answers = server.directives().iter().any(|directive| directive.name == "return");
        site.listening.has_service = site.spots.iter().any(|spot| spot.proxy.is_some());
        let is_in_use = !answers && (site.listening.has_service || site.spots.iter().any(is_limited));
        for directive in server.directives().iter().filter(|directive| directive.name == "listen") {
            let address = address(directive);
            match by_hand(directive) {
                _ if !is_in_use => draft.left_out(directive.place, "this server has no service and no limit"),
                None => site.listening.addresses.push((directive.place, address)),
                Some(reason) => {
                    draft.left_out(directive.place, reason);
                    site.listening.by_hand.push(address);
                }
            }
        }
        if is_in_use {
            self.sites.push(site);
        } else {
            let refusals = site.spots.iter().filter_map(|spot| spot.refusal).chain(refusal);
            self.refusals.extend(refusals.map(|refusal| (site.hosts.clone(), refusal)));
        }
    }

    /// Reads a location. `around` are the directives of its block, and those in force there.
    fn location(
        &mut self,
        location: &Directive,
        around: (&[Directive], &Level),
        spots: &mut Vec<Spot>,
        draft: &mut Draft,
    ) {
        let place = location.place;
        let path = match path_of(location, around.0) {
            Ok(path) => path,
            Err(reason) => {
                let open = refusal(location.directives()).map(|_| format!("; {OPEN}"));
                let open = open.unwrap_or_default();
                let reason = format!("{reason}; its requests meet the limits of the paths around it{open}");
                return others::note_all(location, &reason, draft);
            }
        };
        if let Some(difference) = path.difference() {
            draft.differs(place, difference);
        }
        let level = around.1.within(location.directives(), draft);
        let (refusal, mut proxy) = (refusal(location.directives()), None);
        for directive in location.directives() {
            match directive.name.as_str() {
                "location" => self.location(directive, (location.directives(), &level), spots, draft),
                "return" | "internal" if refusal.is_some() => {}
                "proxy_pass" if refusal.is_some() => {
                    draft.note(Kind::NotNeeded, directive.place, "no client reaches it");
                }
                "proxy_pass" => {
                    let how = (&path, level.keeps_host);
                    proxy = proxy_pass(directive, how, &self.upstreams, &mut self.services, draft);
                }
                _ => self.note(directive, false, draft),
            }
        }
        let has_files = !location.directives().iter().any(|directive| others::answers(&directive.name));
        let spot = Spot { proxy, refusal, has_files, ..Spot::new(place, path, level) };
        match spots.iter_mut().find(|other| other.path == spot.path) {
            Some(same) => *same = spot,
            None => spots.push(spot),
        }
    }

    fn write(mut self, zones: &Zones, draft: &mut Draft) {
        (self.sites, _) = served(self.sites, |site| &site.listening, draft);
        self.name_hosts(draft);
        let own = std::mem::take(&mut self.settings_of_server);
        self.settings.retain(|outer| !own.iter().any(|own| own.name == outer.name));
        self.settings.extend(own);
        let addresses: Vec<_> = self.sites.iter().flat_map(|site| site.listening.addresses.iter().cloned()).collect();
        listen(&addresses, draft);
        self.write_settings(draft);
        refusals::write(&self.refusals, &self.sites, draft);
        refusals::note_files(&self.sites, draft);
        let routes = routed(&self.sites).into_iter().map(|(matches, spot, proxy)| Route {
            places: BTreeSet::from([spot.place, proxy.place]).into_iter().filter(|place| place.line > 0).collect(),
            matches,
            service: proxy.service.clone(),
            rewrite: proxy.rewrite.clone(),
            require: None,
        });
        write(&self.services, routes.collect(), draft);
        let is_used = |name: &str| self.services.values().any(|service| service.name == name);
        for (_, upstream) in self.upstreams.iter().filter(|(name, _)| !is_used(name)) {
            draft.note(Kind::NotNeeded, upstream.place, "no location in use has it");
        }
        let limits = zones.limits(&self.sites, draft);
        limit::write(limits, draft);
    }

    /// Drops the hosts of a single server, which has all requests, and servers whose hosts Weir cannot match.
    fn name_hosts(&mut self, draft: &mut Draft) {
        let servers = &self.servers;
        let is_single = |sites: &[Site]| sites.len() == 1 && servers.has_all(sites[0].index);
        if !is_single(&self.sites) {
            let mut has_unknown = false;
            self.sites.retain(|site| {
                let stays = !site.hosts.is_empty() || servers.is_default(site.index) && !has_unknown;
                if site.is_nameless {
                    draft.left_out(site.place, "Weir has no pattern for the hosts of this server, so it is missing");
                    return false;
                }
                if !stays {
                    draft.left_out(site.place, "only the default server has requests for unknown hosts in Weir");
                }
                has_unknown |= stays && site.hosts.is_empty();
                stays
            });
        }
        if is_single(&self.sites) {
            self.sites[0].hosts.clear();
        }
        let has_unknown = self.sites.iter().any(|site| site.hosts.is_empty());
        let weir = if has_unknown { "gives them to another one" } else { "answers 404" };
        for site in self.sites.iter().filter(|site| !site.hosts.is_empty() && servers.is_default(site.index)) {
            draft.differs(
                site.place,
                format!("nginx also gives requests for unknown hosts to this server; Weir {weir}"),
            );
        }
    }

    fn write_settings(&self, draft: &mut Draft) {
        let named = |name: &'static str| self.settings.iter().filter(move |setting| setting.name == name);
        let last = |name| named(name).next_back().map_or("", |setting| setting.word(0));
        let proxies: Vec<_> = named("set_real_ip_from").collect();
        if last("real_ip_header").eq_ignore_ascii_case("x-forwarded-for") && !proxies.is_empty() {
            if last("real_ip_recursive") != "on" {
                draft.differs(proxies[0].place, "Weir passes over all trusted proxies, as `real_ip_recursive on` does");
            }
            let places = self.settings.iter().filter(|setting| setting.name != "client_max_body_size");
            let block = Block::new("[server]", places.map(|setting| setting.place));
            let addresses: BTreeSet<_> = proxies.iter().map(|setting| setting.word(0)).collect();
            draft.push(block.option("trusted_proxies", list(&addresses.into_iter().collect::<Vec<_>>())));
        } else {
            for setting in self.settings.iter().filter(|setting| setting.name != "client_max_body_size") {
                draft.left_out(setting.place, "Weir takes addresses from `X-Forwarded-For` or `Forwarded` only");
            }
        }
        let sizes: Vec<_> = named("client_max_body_size").collect();
        for size in sizes.iter().skip(1) {
            draft.left_out(size.place, "Weir has one `server.max_body_bytes`: the first");
        }
        let block = Block::new("[server]", sizes.first().map(|size| size.place));
        let size = sizes.first().map_or("1m", |size| size.word(0)).to_ascii_lowercase();
        let size = match size.strip_suffix(['k', 'm', 'g']).map(|number| (number, &size[number.len()..])) {
            _ if size.trim_matches('0').is_empty() => "off".to_owned(),
            Some((number, unit)) => format!("{number}{}iB", unit.to_ascii_uppercase()),
            None => format!("{size}B"),
        };
        draft.push(block.option("max_body_bytes", quoted(&size)));
    }
}

/// Whether it is a directive that Weir has for all requests.
fn is_setting(name: &str) -> bool {
    ["set_real_ip_from", "real_ip_header", "real_ip_recursive", "client_max_body_size"].contains(&name)
}

/// The reason why Weir does not listen on the address of a `listen`, if there is one.
fn by_hand(listen: &Directive) -> Option<&'static str> {
    let has = |flag: &str| listen.words.iter().any(|word| word == flag);
    let is_other = has("ssl") || has("quic") || has("proxy_protocol");
    is_other.then_some("set `server.listen`, `server.tls` and `server.proxy_protocol` by hand")
}
