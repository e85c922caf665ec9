//! The zones of `limit_req` and `limit_conn`, and their limits.
//!
//! `limit_req` becomes a limit of stage `arrival`: nginx charges it before `limit_conn` and before the service, and gives
//! nothing back. A bucket of nginx with `burst=N` admits N and one more at once.

use std::collections::{BTreeMap, BTreeSet};

use super::directives::Directive;
use super::keys::{Key, Variables};
use super::level::{Level, Use};
use super::site::{Site, Spot};
use crate::import::draft::{Draft, SourceLine, quoted};
use crate::import::limit::{Limit, Match};
use crate::import::report::Kind;

/// A zone of requests or of connections.
pub(super) struct Zone {
    place: SourceLine,
    key: Key,
    /// Thousandths of requests a second, and the text of `rate`; `None` of connections.
    rate: Option<(u64, String)>,
}

/// All zones that can be translated, by their names.
#[derive(Default)]
pub(super) struct Zones(BTreeMap<String, Zone>);

impl Zones {
    /// Adds a `limit_req_zone` or a `limit_conn_zone`.
    pub(super) fn add(&mut self, directive: &Directive, variables: &Variables<'_>, draft: &mut Draft) {
        let place = directive.place;
        let option = |name: &str| {
            let found = directive.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_default()
        };
        let name = option("zone").split(':').next().unwrap_or_default().to_owned();
        let rate = match directive.name.as_str() {
            "limit_req_zone" => match rate(option("rate")) {
                Some(rate) => Some(rate),
                None => return draft.left_out(place, "its rate is no number of `r/s` or `r/m`"),
            },
            _ => None,
        };
        match variables.key(directive.word(0)) {
            Ok(key) => {
                for difference in &key.differences {
                    draft.differs(place, difference);
                }
                draft.note(Kind::NotNeeded, place, "the size of the zone: `max_keys` bounds the keys");
                self.0.insert(name, Zone { place, key, rate });
            }
            Err(reason) => draft.left_out(place, format!("the limit is missing: {reason}")),
        }
    }

    /// The limits of all zones.
    pub(super) fn limits(&self, sites: &[Site], draft: &mut Draft) -> Vec<Limit> {
        for one in sites.iter().flat_map(|site| &site.spots).flat_map(|spot| all_uses(&spot.level)) {
            if !self.0.contains_key(&one.zone) {
                draft.left_out(one.place, format!("the zone `{}` is not translated", one.zone));
            }
        }
        let mut limits = Vec::new();
        for (name, zone) in &self.0 {
            let count = limits.len();
            for is_dry in [false, true] {
                let in_force = |spot: &Spot| use_of(spot, name).filter(|one| one.is_dry == is_dry);
                let is_user = |site: &&Site| site.spots.iter().any(|spot| in_force(spot).is_some());
                let users: Vec<_> = sites.iter().filter(is_user).collect();
                let paths = |site: &Site| site.region(&in_force, &mut Draft::default());
                let is_alike = users.iter().all(|site| paths(site) == paths(users[0]));
                let is_shared = is_alike && !zone.key.is_by_server;
                let groups: Vec<_> = users.chunks(if is_shared { users.len().max(1) } else { 1 }).collect();
                if limits.len() > count || groups.len() > 1 && !zone.key.is_by_server {
                    let why = format!("the limits of the zone `{name}` share no budget in Weir");
                    for site in &users {
                        draft.differs(site.place, &why);
                    }
                }
                for users in groups {
                    limits.push(limit((name, zone), users, sites, &in_force, draft));
                }
            }
            if limits.len() == count {
                draft.note(Kind::NotNeeded, zone.place, "no server in use has the zone");
            }
        }
        limits
    }
}

/// The limit of a zone in these servers, which have the same paths with it.
fn limit(
    (name, zone): (&str, &Zone),
    users: &[&Site],
    all: &[Site],
    in_force: &dyn Fn(&Spot) -> Option<Use>,
    draft: &mut Draft,
) -> Limit {
    let spots: Vec<_> = users.iter().flat_map(|site| &site.spots).filter(|spot| in_force(spot).is_some()).collect();
    let uses: Vec<_> = spots.iter().filter_map(|spot| in_force(spot)).collect();
    let is_beside_others = spots.iter().any(|spot| spot.level.requests.len() > 1);
    let strictest = strictest(&uses, is_beside_others, draft);
    if zone.key.is_by_server && zone.key.parts.is_empty() && users.iter().any(|site| site.name.is_empty()) {
        draft.differs(zone.place, "nginx limits nothing in a server without `server_name`, Weir does");
    }
    let (matches, except_paths) = requests(&zone.key, users, all, in_force, draft);
    let places: BTreeSet<_> = uses.iter().map(|one| one.place).chain([zone.place]).collect();
    let mut rule = zone.rate.as_ref().map_or_else(|| concurrency(&strictest), |rate| bucket(rate, &strictest));
    rule.extend(strictest.status.map(|status| ("status", status.to_string())));
    Limit {
        name: name.to_owned(),
        places: places.into_iter().collect(),
        at_arrival: zone.rate.is_some(),
        is_shadow: strictest.is_dry,
        matches,
        except_ips: zone.key.except_ips.clone(),
        except_paths,
        key: zone.key.parts.clone(),
        rule,
    }
}

fn all_uses(level: &Level) -> impl Iterator<Item = &Use> {
    level.requests.iter().chain(&level.connections)
}

fn use_of(spot: &Spot, zone: &str) -> Option<Use> {
    all_uses(&spot.level).find(|one| one.zone == zone).cloned()
}

/// One use with the numbers of the strictest of `uses`, which is not empty. It delays only if all do so alike, and if no
/// other limit counts the same requests: nginx charges a request before its delay, Weir after it.
fn strictest(uses: &[Use], is_beside_others: bool, draft: &mut Draft) -> Use {
    let mut strictest = uses[0].clone();
    if uses.iter().any(|one| !one.equals(&strictest)) {
        // A `limit_conn` has no burst.
        let burst = "Weir has one burst for all uses of a zone: here the smallest, without delays";
        let max = "Weir has one number of connections for all uses of a zone: here the smallest";
        for one in uses {
            draft.differs(one.place, if one.max > 0 { max } else { burst });
        }
        strictest.burst = uses.iter().map(|one| one.burst).min().unwrap_or_default();
        strictest.max = uses.iter().map(|one| one.max).min().unwrap_or_default();
        strictest.undelayed = u64::MAX;
    }
    if is_beside_others && strictest.delays() {
        for one in uses {
            draft.differs(one.place, "Weir refuses the same requests, but delays none, because several limits apply");
        }
        strictest.undelayed = u64::MAX;
    }
    strictest
}

/// The requests of a limit, and the paths without it.
fn requests(
    key: &Key,
    users: &[&Site],
    all: &[Site],
    in_force: &dyn Fn(&Spot) -> Option<Use>,
    draft: &mut Draft,
) -> (Match, Vec<String>) {
    let regions: Vec<_> = users.iter().map(|site| site.region(in_force, draft)).collect();
    let (paths, except) = regions.into_iter().next().unwrap_or_default();
    // A server without a name has all hosts that others do not have.
    let is_of_all = users.len() == all.len() || users.iter().any(|site| site.hosts.is_empty());
    for site in users.iter().filter(|_| is_of_all && users.len() < all.len()) {
        draft.differs(site.place, "Weir applies a limit of this server to the requests of other servers, too");
    }
    let hosts: Vec<String> =
        if is_of_all { Vec::new() } else { users.iter().flat_map(|site| site.hosts.clone()).collect() };
    let is_below = |host: &String| hosts.iter().filter_map(|own| own.strip_prefix('*')).any(|end| host.ends_with(end));
    let others = all.iter().filter(|site| !users.iter().any(|user| std::ptr::eq(*user, *site)));
    for site in others.filter(|site| site.hosts.iter().any(is_below)) {
        draft.differs(site.place, "Weir applies limits of servers with wildcards to the requests of this server, too");
    }
    (Match { hosts, paths, methods: key.methods.clone(), headers: key.headers.clone() }, except)
}

/// Thousandths of requests a second, and the rate of Weir.
pub(in crate::import) fn rate(text: &str) -> Option<(u64, String)> {
    let (count, unit) = text.split_once("r/").unwrap_or(("1", "s"));
    let count: u64 = count.parse().ok().filter(|count| (1..=1_000_000_000).contains(count))?;
    match unit {
        "s" => Some((count * 1000, format!("{count}/s"))),
        "m" if (count * 1000).is_multiple_of(60) => Some((count * 1000 / 60, format!("{count}/min"))),
        // nginx rounds down to thousandths of a request a second.
        "m" => Some((count * 1000 / 60, format!("{}/1000s", count * 1000 / 60))),
        _ => None,
    }
}

fn concurrency(one: &Use) -> Vec<(&'static str, String)> {
    vec![("algorithm", quoted("concurrency")), ("max", one.max.to_string())]
}

fn bucket((milli_per_s, rate): &(u64, String), one: &Use) -> Vec<(&'static str, String)> {
    let mut rule = vec![("rate", quoted(rate))];
    if !one.delays() {
        rule.push(("burst", one.burst.saturating_add(1).to_string()));
        return rule;
    }
    let waiting = one.burst - one.undelayed;
    if one.undelayed == 0 {
        rule.insert(0, ("algorithm", quoted("leaky_bucket")));
        rule.push(("burst", one.burst.to_string()));
        rule.push(("on_limit", quoted("hold")));
        return rule;
    }
    let wait_us = (u128::from(waiting) * 1_000_000_000).div_ceil(u128::from(*milli_per_s).max(1));
    let wait = if wait_us.is_multiple_of(1000) { format!("{}ms", wait_us / 1000) } else { format!("{wait_us}us") };
    rule.push(("burst", one.undelayed.saturating_add(1).to_string()));
    rule.push(("on_limit", quoted("hold")));
    rule.push(("hold", format!("{{ max_wait = {}, max_waiting = {waiting} }}", quoted(&wait))));
    rule
}
