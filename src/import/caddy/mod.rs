//! Caddy: zones of the module `rate_limit`, with sites and services of a Caddyfile.
//!
//! Caddy orders directives itself: the first `handle` or `reverse_proxy` with the longest path has a request.

mod lines;
mod sites;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use lines::CaddyLine;
use sites::CaddySite;

use super::draft::{Block, Draft, SourceLine, quoted};
use super::limit::{self, Limit, Match};
use super::path::Path;
use super::regions::{Region, regions};
use super::report::{ImportError, Kind, OPEN};
use super::services::{Route, Service, listen, served, write};

/// Translates a Caddyfile.
pub(super) fn translate(_: &FilePath, draft: &mut Draft) -> Result<(), ImportError> {
    let directives = lines::read(draft)?;
    let (mut reader, mut sites) = (CaddyReader::default(), Vec::new());
    for (index, directive) in directives.iter().enumerate() {
        match directive.words.first() {
            None if index == 0 => directive.left_out("set the options of `[server]` by hand", draft),
            Some(name) if name.starts_with(['(', '&']) => {
                directive.left_out("`weir import` does not read snippets; write them where they are imported", draft);
            }
            _ if directive.has_block => {
                sites.extend(sites::site(&directive.words, directive.place, &directive.block, draft));
            }
            // A file of one site needs no braces.
            _ => {
                sites.extend(sites::site(&directive.words, directive.place, &directives[index + 1..], draft));
                break;
            }
        }
    }
    let (sites, _) = served(sites, |site| &site.listening, draft);
    for site in sites {
        reader.site(site, draft);
    }
    reader.write(draft);
    Ok(())
}

/// Directives without a translation, and why.
const LEFT_OUT: [(&str, &str); 13] = [
    ("tls", "set `server.tls` by hand"),
    ("import", "`weir import` does not read snippets; write them where they are imported"),
    ("basic_auth", "Weir checks no passwords"),
    ("basicauth", "Weir checks no passwords"),
    ("forward_auth", "Weir asks no other service"),
    ("request_body", "set `max_body_bytes` by hand"),
    ("rewrite", "Weir only removes and adds the start of a path"),
    ("uri", "Weir only removes and adds the start of a path"),
    ("redir", "Weir redirects only refused requests"),
    ("respond", "Weir serves nothing itself"),
    ("file_server", "Weir serves nothing itself"),
    ("root", "Weir serves nothing itself"),
    ("php_fastcgi", "Weir forwards only HTTP"),
];

/// The directives around another one.
#[derive(Clone, Default)]
struct Scope {
    matches: Match,
    /// The numbers of the scopes around, and its own.
    numbers: Vec<usize>,
    /// The start of the path that is removed.
    strip: String,
}

#[derive(Default)]
struct CaddyReader {
    listen: Vec<(SourceLine, String)>,
    services: BTreeMap<String, Service>,
    /// Each route with its rank and the numbers of its scopes.
    routes: Vec<(SiteRank, Vec<usize>, Region, Route)>,
    /// Each limit with the number of its scope and its own conditions.
    limits: Vec<(usize, Match, Limit)>,
    scopes: usize,
}

/// Named matchers by their names.
type Matchers<'d> = BTreeMap<&'d str, &'d CaddyLine>;

/// Sites with exact hosts go first, then those with wildcards; in a site, longer paths.
type SiteRank = (usize, std::cmp::Reverse<usize>);

impl CaddyReader {
    fn site(&mut self, site: CaddySite<'_>, draft: &mut Draft) {
        self.listen.extend(site.listening.addresses);
        let matches = Match { hosts: site.hosts, ..Match::default() };
        self.scope(Scope { matches, ..Scope::default() }, site.block, &BTreeMap::new(), draft);
    }

    /// Reads the directives of a block. `outer` are the named matchers around it.
    fn scope<'d>(&mut self, scope: Scope, block: &'d [CaddyLine], outer: &Matchers<'d>, draft: &mut Draft) {
        let number = self.scopes;
        self.scopes += 1;
        let scope = Scope { numbers: [&scope.numbers[..], &[number]].concat(), ..scope };
        let mut named = outer.clone();
        named.extend(block.iter().filter(|one| one.name().starts_with('@')).map(|one| (one.name(), one)));
        for directive in block.iter().filter(|one| !one.name().starts_with('@')) {
            let (kind, first) = (directive.name(), directive.word(1));
            let takes_matcher = ["handle", "handle_path", "route", "reverse_proxy", "rate_limit"].contains(&kind);
            if !takes_matcher {
                note(directive, draft);
                continue;
            }
            let has_matcher = first.starts_with(['/', '@']) || first == "*";
            let own = match () {
                () if !has_matcher || first == "*" => Ok(Match::default()),
                () if first.starts_with('/') => {
                    paths(std::slice::from_ref(&directive.words[1]), directive.place, draft)
                }
                () => match named.get(first) {
                    Some(matcher) => matcher_of(matcher, draft),
                    None => Err(format!("there is no matcher `{first}`")),
                },
            };
            let matches = match own.and_then(|own| scope.matches.both(&own)) {
                Ok(matches) => matches,
                Err(reason) => {
                    directive.left_out(reason, draft);
                    continue;
                }
            };
            let mut inner = Scope { matches, ..scope.clone() };
            match kind {
                "rate_limit" => self.rate_limit(directive, number, &inner, draft),
                "reverse_proxy" => self.proxy(directive, usize::from(has_matcher), inner, draft),
                _ => {
                    if kind == "handle_path" {
                        first.trim_end_matches('*').trim_end_matches('/').clone_into(&mut inner.strip);
                    }
                    self.scope(inner, &directive.block, &named, draft);
                }
            }
        }
    }

    fn rate_limit(&mut self, directive: &CaddyLine, number: usize, scope: &Scope, draft: &mut Draft) {
        for zone in zones::zones(directive, draft) {
            let own = conditions(&zone.conditions, draft).and_then(|own| scope.matches.both(&own));
            match own {
                Ok(matches) => self.limits.push((number, matches, zone.limit)),
                Err(reason) => draft.left_out(zone.limit.places[0], reason),
            }
        }
    }

    /// A route to the service of a `reverse_proxy`, whose addresses begin behind `skipped` words.
    fn proxy(&mut self, directive: &CaddyLine, skipped: usize, scope: Scope, draft: &mut Draft) {
        let mut service = Service { places: vec![directive.place], ..Service::default() };
        let mut addresses: Vec<&str> = directive.arguments().iter().skip(skipped).map(String::as_str).collect();
        for option in &directive.block {
            match (option.name(), option.word(1)) {
                ("to", _) => addresses.extend(option.arguments().iter().map(String::as_str)),
                ("header_up", "Host") if option.word(2).contains("upstream") => service.rewrites_host = true,
                ("lb_policy", "round_robin") => service.balance = vec![("balance", quoted("round_robin"))],
                ("lb_policy", "least_conn") => service.balance = vec![("balance", quoted("least_connections"))],
                ("lb_policy", "ip_hash" | "client_ip_hash") => service.balance = vec![("balance", quoted("hash"))],
                _ => option.left_out("set the options of the upstream by hand", draft),
            }
        }
        for address in &addresses {
            let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
            if !["http", "https"].contains(&scheme) || rest.is_empty() || rest.contains(['{', '/']) {
                return directive.left_out(format!("`{address}`: set the address of the upstream by hand"), draft);
            }
            let rest = if rest.starts_with(':') { format!("127.0.0.1{rest}") } else { rest.to_owned() };
            let port = match rest.rsplit_once(':') {
                Some(_) => "",
                None if scheme == "https" => ":443",
                None => ":80",
            };
            service.endpoints.push(format!("{scheme}://{rest}{port}"));
        }
        if service.endpoints.is_empty() {
            return directive.left_out("it has no address", draft);
        }
        let id = format!("{} {:?} {}", service.endpoints.join(" "), service.balance, service.rewrites_host);
        service.name = format!("line-{}", directive.place.line);
        self.services.entry(id.clone()).or_insert(service);
        let Scope { matches, numbers, strip } = scope;
        let is_wild = matches.hosts.iter().any(|host| host.starts_with('*'));
        let of_hosts = if matches.hosts.is_empty() { 2 } else { usize::from(is_wild) };
        let longest = matches.paths.iter().map(String::len).max().unwrap_or_default();
        let rank = (of_hosts, std::cmp::Reverse(longest));
        let rewrite = Some((strip, String::new())).filter(|(strip, _)| !strip.is_empty());
        let region = Region { place: directive.place, matches: matches.clone() };
        let route = Route { places: vec![directive.place], matches, service: id, rewrite, require: None };
        let at = self.routes.partition_point(|(other, ..)| *other <= rank);
        self.routes.insert(at, (rank, numbers, region, route));
    }

    fn write(self, draft: &mut Draft) {
        listen(&self.listen, draft);
        let all: Vec<_> = self.routes.iter().map(|(_, _, region, _)| region.clone()).collect();
        let mut limits = Vec::new();
        for (number, own, limit) in self.limits {
            let is_within = |index: &usize| self.routes[*index].1.contains(&number);
            let users: BTreeSet<_> = (0..all.len()).filter(is_within).collect();
            if users.is_empty() {
                draft.left_out(limit.places[0], "no translated route has it");
                continue;
            }
            for (region, except_paths) in regions(&all, &users, draft) {
                match region.both(&own) {
                    Ok(matches) => limits.push(Limit { matches, except_paths, ..limit.clone() }),
                    Err(reason) => draft.left_out(limit.places[0], reason),
                }
            }
        }
        let mut matches = all.iter().map(|region| &region.matches).chain(limits.iter().map(|limit| &limit.matches));
        if matches.any(|one| !one.paths.is_empty()) {
            ignore_case(&limits, draft);
        }
        write(&self.services, self.routes.into_iter().map(|(.., route)| route).collect(), draft);
        limit::write(limits, draft);
    }
}

/// Lets paths match without case, as those of Caddy do. Keys have no case then, either.
fn ignore_case(limits: &[Limit], draft: &mut Draft) {
    draft.push(Block::new("[server]", []).option("paths", "{ ignore_case = true }"));
    for limit in limits.iter().filter(|limit| limit.key.iter().any(|part| part == "path" || part == "uri")) {
        draft.differs(limit.places[0], "paths that differ in case share one budget in Weir");
    }
}

/// Whether it is a status of an error.
fn is_refusal(word: &str) -> bool {
    word.parse().is_ok_and(|status: u16| (400..600).contains(&status))
}

fn note(directive: &CaddyLine, draft: &mut Draft) {
    match directive.name() {
        "log" | "encode" | "header" | "request_header" | "handle_errors" | "skip_log" | "metrics" => {
            draft.note(Kind::NotNeeded, directive.place, "it changes no decision about requests");
        }
        // It belongs to the addresses of the site.
        "bind" => {}
        "abort" | "error" => directive.left_out(OPEN, draft),
        "respond" if directive.arguments().iter().any(|word| is_refusal(word)) => directive.left_out(OPEN, draft),
        name => {
            let known = LEFT_OUT.iter().find(|(known, _)| *known == name).map(|(_, why)| *why);
            directive.left_out(known.unwrap_or("Weir has no such directive"), draft);
        }
    }
}

/// The conditions of a named matcher.
fn matcher_of(matcher: &CaddyLine, draft: &mut Draft) -> Result<Match, String> {
    if matcher.has_block {
        return conditions(&matcher.block.iter().collect::<Vec<_>>(), draft);
    }
    let one = CaddyLine { place: matcher.place, words: matcher.arguments().to_vec(), ..CaddyLine::default() };
    conditions(&[&one], draft)
}

/// The conditions, with one line for all lines of a kind, whose values are alternatives. Each header has its own line.
fn by_kind(all: &[&CaddyLine]) -> Vec<CaddyLine> {
    let mut lines: Vec<CaddyLine> = Vec::new();
    for one in all {
        match lines.iter_mut().find(|line| line.name() == one.name() && one.name() != "header") {
            Some(line) => line.words.extend_from_slice(one.arguments()),
            None => lines.push(CaddyLine::clone(one)),
        }
    }
    lines
}

/// The requests of all conditions.
fn conditions(all: &[&CaddyLine], draft: &mut Draft) -> Result<Match, String> {
    let mut matches = Match::default();
    for one in &by_kind(all) {
        let values = one.arguments();
        let own = match one.name() {
            "path" => paths(values, one.place, draft)?,
            "method" => Match { methods: values.to_vec(), ..Match::default() },
            "host" => {
                let hosts = values.iter().map(|host| host.to_ascii_lowercase()).collect();
                Match { hosts, ..Match::default() }
            }
            "header" if values.len() == 2 && !values[1].trim_matches('*').contains('*') => {
                let value = &values[1];
                if value != "*" && value.contains('*') {
                    return Err("set `match.header` with a regular expression by hand".to_owned());
                }
                Match { headers: vec![(values[0].to_ascii_lowercase(), value.clone())], ..Match::default() }
            }
            other => return Err(format!("Weir has no condition `{other}`")),
        };
        matches = matches.both(&own)?;
    }
    Ok(matches)
}

/// Patterns of Caddy: `*` at the end is the rest of the path.
fn paths(texts: &[String], place: SourceLine, draft: &mut Draft) -> Result<Match, String> {
    let mut matches = Match::default();
    for text in texts {
        let path = match text.strip_suffix('*') {
            Some(start) => Path::prefix(start)?,
            None => Path::exact(text)?,
        };
        if let Some(difference) = path.difference() {
            draft.differs(place, difference);
        }
        if path.is_all() {
            return Ok(Match::default());
        }
        matches.paths.extend(path.patterns());
    }
    Ok(matches)
}
