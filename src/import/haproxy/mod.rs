//! `HAProxy`: limits by stick tables, with frontends, backends and services.

mod lines;

mod conditions;
mod limits;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use conditions::Acls;
use limits::{Rule, Tables};
use lines::{ConfigLine, Section};

use super::draft::{Block, Draft, SourceLine};
use super::limit::{self, Limit, Match};
use super::report::{ImportError, Kind};
use super::services::{Listening, ONLY_LOCAL, Route, Service, listen, served, write};

/// Translates a configuration, or a part of one without sections.
pub(super) fn translate(_: &Path, draft: &mut Draft) -> Result<(), ImportError> {
    let sections = lines::read(draft)?;
    let acls: Vec<_> = sections.iter().map(acls).collect();
    let (left_out, listen) = left_out(&sections, draft);
    let mut reader =
        SectionReader { sections: &sections, acls: &acls, left_out: &left_out, listen, ..SectionReader::default() };
    for section in &sections {
        let table = section.lines.iter().find(|line| line.word(0) == "stick-table");
        if let Some(line) = table {
            reader.tables.insert(section.name.clone(), limits::table(line));
        }
    }
    for index in 0..sections.len() {
        reader.section(index, draft);
    }
    reader.write(draft);
    Ok(())
}

fn acls(section: &Section) -> Acls<'_> {
    let mut acls = Acls::default();
    section.lines.iter().filter(|line| line.word(0) == "acl").for_each(|line| acls.add(line));
    acls
}

/// For each section, the reason why it is left out, if there is one; and the addresses of the others.
fn left_out(sections: &[Section], draft: &mut Draft) -> (Vec<Option<&'static str>>, Vec<(SourceLine, String)>) {
    // Whether sections without a mode forward TCP.
    let mut is_tcp_by_default = false;
    let (mut left_out, mut fronts) = (Vec::new(), Vec::new());
    for (index, section) in sections.iter().enumerate() {
        let mode = section.lines.iter().rfind(|line| line.word(0) == "mode").map(|line| line.word(1) == "tcp");
        let is_tcp = mode.unwrap_or(is_tcp_by_default);
        if section.kind == "defaults" {
            is_tcp_by_default = is_tcp;
        }
        let serves = |line: &ConfigLine| {
            ["server", "default_backend", "use_backend"].contains(&line.word(0))
                || is_rule(line) && !["redirect", "return"].contains(&line.word(1))
        };
        left_out.push(match () {
            () if !is_front(section) => None,
            () if !section.lines.iter().any(serves) => Some("this section has no service and no limit"),
            () => is_tcp.then_some("Weir forwards only HTTP"),
        });
        if is_front(section) && left_out[index].is_none() {
            fronts.push((index, listening(section)));
        }
    }
    let (fronts, others) = served(fronts, |(_, listening)| listening, draft);
    for (index, _) in others {
        left_out[index] = Some(ONLY_LOCAL);
    }
    (left_out, fronts.into_iter().flat_map(|(_, listening)| listening.addresses).collect())
}

fn listening(section: &Section) -> Listening {
    let is_service = |line: &ConfigLine| ["server", "default_backend", "use_backend"].contains(&line.word(0));
    let has_service = section.lines.iter().any(is_service);
    let mut listening = Listening { has_service, ..Listening::default() };
    for line in section.lines.iter().filter(|line| line.word(0) == "bind") {
        if listening.place == SourceLine::default() {
            listening.place = line.place;
        }
        let addresses = services::addresses(line);
        match services::by_hand(line) {
            Some(_) => listening.by_hand.extend(addresses),
            None => listening.addresses.extend(addresses.into_iter().map(|address| (line.place, address))),
        }
    }
    listening
}

fn is_front(section: &Section) -> bool {
    section.kind == "frontend" || section.kind == "listen"
}

#[derive(Default)]
struct SectionReader<'l> {
    sections: &'l [Section],
    /// For each section.
    acls: &'l [Acls<'l>],
    /// For each section, the reason why it is left out.
    left_out: &'l [Option<&'static str>],
    tables: Tables,
    /// The limits of each frontend.
    limits: Vec<Vec<Limit>>,
    connections: Vec<(Vec<SourceLine>, u64)>,
    listen: Vec<(SourceLine, String)>,
    services: BTreeMap<String, Service>,
    routes: Vec<Route>,
    /// Backends whose rules are read with those of a frontend.
    followed: BTreeSet<usize>,
}

/// The phases of rules in their order.
const PHASES: [&[&str]; 4] =
    [&["tcp-request", "connection"], &["tcp-request", "session"], &["tcp-request", "content"], &["http-request"]];

impl<'l> SectionReader<'l> {
    fn section(&mut self, index: usize, draft: &mut Draft) {
        let section = &self.sections[index];
        let (is_front, left_out) = (is_front(section), self.left_out[index]);
        let is_back = section.kind == "backend" || section.kind == "listen";
        let mut service = Service { name: section.name.clone(), ..Service::default() };
        for line in &section.lines {
            if let Some(why) = left_out {
                draft.left_out(line.place, why);
                continue;
            }
            match line.word(0) {
                "bind" if is_front => {
                    if let Some(reason) = services::by_hand(line) {
                        draft.left_out(line.place, reason);
                    }
                }
                "use_backend" if is_front => self.route(index, line, draft),
                "default_backend" if is_front => {}
                "acl" if is_front || is_back => {}
                _ if is_back && services::read(line, &mut service, draft) => {}
                _ if (is_front || is_back) && is_rule(line) => {}
                _ => {
                    let (is_needed, why) = services::reason(section, line);
                    let kind = if is_needed { Kind::LeftOut } else { Kind::NotNeeded };
                    draft.note(kind, line.place, why);
                }
            }
        }
        if is_back && !service.endpoints.is_empty() {
            self.services.insert(section.name.clone(), service);
        }
        if is_front && left_out.is_none() {
            self.front(index, draft);
        }
        let lines: Vec<_> = section.lines.iter().collect();
        for line in self.acls[index].unused(&lines) {
            draft.note(Kind::NotNeeded, line.place, "no rule uses it");
        }
    }

    /// Reads a `use_backend`.
    fn route(&mut self, index: usize, line: &ConfigLine, draft: &mut Draft) {
        let alternatives = self.acls[index].of(line).unwrap_or_default();
        let matches: Result<Vec<_>, _> = alternatives.iter().map(|tests| limits::conditions(tests)).collect();
        match matches {
            Ok(all) if !all.is_empty() && all.iter().all(|(_, except, _)| except.is_empty()) => {
                for (matches, _, differences) in all {
                    for difference in differences {
                        draft.differs(line.place, difference);
                    }
                    self.push_route(line, line.word(1), matches);
                }
            }
            _ => draft.left_out(line.place, "Weir has no such condition of a route"),
        }
    }

    fn push_route(&mut self, line: &ConfigLine, service: &str, matches: Match) {
        self.routes.push(Route {
            places: vec![line.place],
            matches,
            service: service.to_owned(),
            rewrite: None,
            require: None,
        });
    }

    /// Reads the rules of a frontend, and those of its backend if it has only one.
    fn front(&mut self, index: usize, draft: &mut Draft) {
        let section = &self.sections[index];
        let default = section.lines.iter().find(|line| line.word(0) == "default_backend");
        let has_others = section.lines.iter().any(|line| line.word(0) == "use_backend");
        let own = self.services.contains_key(&section.name).then_some(section.name.as_str());
        if let Some(line) = default {
            self.push_route(line, line.word(1), Match::default());
        } else if let Some(name) = own {
            self.routes.push(Route {
                places: Vec::new(),
                matches: Match::default(),
                service: name.to_owned(),
                rewrite: None,
                require: None,
            });
        }
        let is_default = |section: &&Section| default.is_some_and(|line| section.name == line.word(1));
        let back = (0..self.sections.len())
            .filter(|at| !has_others && self.sections[*at].kind == "backend")
            .find(|at| is_default(&&self.sections[*at]));
        self.followed.extend(back);
        let rules: Vec<_> = std::iter::once(index).chain(back).flat_map(|at| self.rules(at)).collect();
        let limits = limits::limits(&rules, &self.tables, draft);
        self.connections.extend(limits.connections);
        self.limits.push(limits.limits);
    }

    fn rules(&self, index: usize) -> Vec<Rule<'l, 'l>> {
        let (section, acls) = (&self.sections[index], &self.acls[index]);
        let of_phase = |phase: &'static [&'static str]| {
            let is_of = move |line: &&'l ConfigLine| {
                line.words.iter().zip(phase).filter(|(a, b)| a == *b).count() == phase.len()
            };
            section.lines.iter().filter(is_of)
        };
        let lines = PHASES.into_iter().flat_map(of_phase);
        lines.map(|line| Rule { line, acls, section: &section.name }).collect()
    }

    fn write(mut self, draft: &mut Draft) {
        for (index, section) in self.sections.iter().enumerate() {
            if section.kind == "backend" && !self.followed.contains(&index) {
                for line in section.lines.iter().filter(|line| is_rule(line)) {
                    draft.left_out(line.place, "only a part of the requests reaches this backend");
                }
            }
        }
        listen(&self.listen, draft);
        self.connections.sort_by_key(|(_, max)| *max);
        for (index, (places, max)) in std::mem::take(&mut self.connections).into_iter().enumerate() {
            if index > 0 {
                draft.differs(places[0], "Weir has one bound on connections: the smallest");
                continue;
            }
            draft.push(Block::new("[server]", places).option("max_connections_per_ip", max));
        }
        self.routes.sort_by_key(|route| route.matches == Match::default());
        write(&self.services, std::mem::take(&mut self.routes), draft);
        let limits = self.merged(draft);
        limit::write(limits, draft);
    }

    /// The limits of all frontends. Weir does not know on which address a request came.
    fn merged(&mut self, draft: &mut Draft) -> Vec<Limit> {
        let mut merged: Vec<(Limit, usize)> = Vec::new();
        for limit in self.limits.iter().flatten() {
            let is_alike = |other: &Limit| Limit { places: other.places.clone(), ..limit.clone() } == *other;
            match merged.iter_mut().find(|(other, _)| is_alike(other)) {
                Some((other, count)) => {
                    *count += 1;
                    other.places.extend(&limit.places);
                    other.places.sort();
                    other.places.dedup();
                }
                None => merged.push((limit.clone(), 1)),
            }
        }
        let is_everywhere = |count: usize| count >= self.limits.len();
        for (limit, _) in merged.iter().filter(|(_, count)| !is_everywhere(*count)) {
            let place = limit.places.last().copied().unwrap_or_default();
            draft.differs(place, "Weir applies it to the requests of all frontends");
        }
        merged.into_iter().map(|(limit, _)| limit).collect()
    }
}

/// Whether a line is a rule of a phase.
fn is_rule(line: &ConfigLine) -> bool {
    PHASES.iter().any(|phase| line.words.iter().zip(*phase).filter(|(a, b)| a == *b).count() == phase.len())
}
