//! Warnings: parts of a configuration that are valid, but probably a mistake.
//!
//! A check of one option is in the file that compiles the option, and calls [`Table::warn`]. The checks here read several
//! parts of the configuration, or have several callers. docs/reference/command-line.md lists the codes.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::matching::folded_pattern;
use crate::config::diagnostics::Help;
use crate::config::files::{unwritable_file, unwritable_folder};
use crate::config::reader::lists::items_of;
use crate::config::reader::{Located, Problem, Table, did_you_mean, nearest};
use crate::engine::policy::access::{AccessRule, AccessSpec};
use crate::engine::policy::descriptors::Descriptors;
use crate::engine::policy::route::Routes;
use crate::engine::policy::{
    HostPattern, IdentitySource, KeyPart, Limit, Match, Mode, PathPattern, PlanSource, Policy,
};

/// The limits of a configuration with the positions of their names. The default limit, which is in no text, is not one.
pub(super) struct NamedLimits<'l> {
    root: &'l Table<'l>,
    pub(super) all: Vec<(&'l Limit, Range<usize>)>,
    /// The indexes of limits that rules for callers of the limiter service name.
    named: BTreeSet<usize>,
}

/// Warns of networks that contain every address, and names the consequence.
pub(super) fn of_everyone(
    table: &Table<'_>,
    key: &str,
    networks: &[Located<IpNet>],
    code: &'static str,
    consequence: &str,
) {
    let is_every = |network: &IpNet| network.prefix_len() == 0;
    let whole: Vec<_> = networks.iter().filter(|network| is_every(network.get_ref())).collect();
    for network in &whole {
        let what = format!("`{}` is every address: {consequence}", network.get_ref());
        table.warn(key, network.span(), code, what);
    }
    if let Some(every) = together(networks).iter().find(|network| whole.is_empty() && is_every(network))
        && let Some(first) = networks.iter().find(|network| every.contains(network.get_ref()))
    {
        let what = format!("`{}` and other entries are together every address: {consequence}", first.get_ref());
        table.warn(key, first.span(), code, what);
    }
}

/// The networks that the entries are together.
pub(super) fn together(networks: &[Located<IpNet>]) -> Vec<IpNet> {
    IpNet::aggregate(&networks.iter().map(|network| *network.get_ref()).collect())
}

/// Warns if Weir could not create the file that `key` names, at `path`.
pub(super) fn of_folder(table: &Table<'_>, key: &str, span: Range<usize>, path: &Path) {
    if path.is_dir() {
        of_appended(table, key, span, path);
    } else if let Some(what) = unwritable_folder(path) {
        let help = "Weir creates a new file in this folder and renames it";
        table.warn(key, span, "folder", (what, help));
    }
}

/// Warns if Weir could not append to the file that `key` names, at `path`.
pub(super) fn of_appended(table: &Table<'_>, key: &str, span: Range<usize>, path: &Path) {
    if let Some(what) = unwritable_file(path) {
        table.warn(key, span, "folder", what);
    }
}

/// Warns of stores that no limit uses.
pub(super) fn of_unused_stores(root: &Table<'_>, names: &[Located<String>], policy: &Policy) {
    let used: Vec<_> = policy.limits().iter().filter_map(|limit| limit.strategy.store()).collect();
    for (_, name) in names.iter().enumerate().filter(|(index, _)| !used.contains(index)) {
        let title = format!("no limit uses the store `{}`", name.get_ref());
        let help = "use it in a limit, as in `strategy = \"redis\"`, or remove it";
        root.context.note(Problem::warning("unused_store", name.span(), title).help(help));
    }
}

/// The positions of the names of all limits.
fn names_of(root: &Table<'_>) -> Vec<Range<usize>> {
    let name = |limit: &Spanned<DeValue<'_>>| Some(limit.get_ref().as_table()?.get("name")?.span());
    root.items("limit").iter().filter_map(name).collect()
}

/// The most limits that one limit is compared with, so that the cost is linear in the number of limits.
const COMPARED_MAX: usize = 32;

impl<'l> NamedLimits<'l> {
    pub(super) fn of(root: &'l Table<'l>, policy: &'l Policy) -> Self {
        let (names, limits) = (names_of(root), policy.limits().iter().filter(|limit| limit.candidate_of.is_none()));
        let all: Vec<_> = limits.collect();
        let all = if names.len() == all.len() { all.into_iter().zip(names).collect() } else { Vec::new() };
        let Descriptors { checks, domains } = &policy.descriptors;
        let rules = checks.iter().chain(domains.iter().map(|(_, rule)| rule));
        Self { root, all, named: rules.flat_map(|rule| &rule.limits).map(|mapped| mapped.limit).collect() }
    }

    /// The limits that only requests meet, with their indexes.
    fn of_requests(&self) -> impl Iterator<Item = (usize, &(&'l Limit, Range<usize>))> {
        let all = self.all.iter().enumerate();
        all.filter(|(index, (limit, _))| !limit.is_for_callers() && !self.named.contains(index))
    }

    pub(super) fn warn(&self, code: &'static str, at: &Range<usize>, title: String, help: impl Help) {
        self.root.context.note(Problem::warning(code, at.clone(), title).help(help));
    }

    /// Warns of limits that never refuse, because another one refuses first. Compares a limit with others that have a
    /// pattern in common or none.
    pub(super) fn warn_of_shadowed(&self) {
        let by_path = ByPath::new(&self.all, |_| true);
        for (index, (limit, name)) in self.of_requests() {
            // Of two equal limits the later one is reported.
            let shadows = |(at, (other, _)): &(usize, &(&Limit, _))| {
                other.shadows(limit) && (*at < index || !limit.shadows(other))
            };
            let near = by_path.near(limit).filter(|other| *other != index).map(|other| (other, &self.all[other]));
            let Some((_, (other, other_name))) = { near }.find(shadows) else { continue };
            let title = format!("limit `{}` never refuses a request, because `{}` does first", limit.name, other.name);
            let help = "its rule is not stricter, and it applies to no other requests";
            let problem = Problem::warning("shadowed_limit", name.clone(), title).help(help);
            self.root.context.note(problem.also(other_name.clone(), "this one is at least as strict"));
        }
    }

    /// Warns of limits that decide about no request, because `[access]` denies or exempts all requests that they match.
    pub(super) fn warn_of_void(&self, bypass: &Bypass) {
        let paths = Match { paths: bypass.paths.clone(), ..Match::default() };
        let is_bypassed = |limit: &Limit| bypass.has_all || !paths.paths.is_empty() && paths.covers(&limit.matches);
        for (_, (limit, name)) in
            self.of_requests().filter(|(_, (limit, _))| limit.mode != Mode::Off && is_bypassed(limit))
        {
            let title =
                format!("limit `{}` never applies: `[access]` denies or exempts all of its requests", limit.name);
            let help = "`[access]` decides about these requests first; remove the limit or the entries";
            self.warn("void_limit", name, title, help);
        }
    }

    /// Warns of limits for callers of the limiter service that no rule names.
    pub(super) fn warn_of_unnamed(&self) {
        for (index, (limit, name)) in self.all.iter().enumerate() {
            if limit.is_for_callers() && !self.named.contains(&index) {
                let title = format!("limit `{}` never applies: requests have no `name:` parts", limit.name);
                let help = "name the limit in a table `[[grpc.check]]` or `[[grpc.descriptor]]`";
                self.warn("void_limit", name, title, help);
            }
        }
    }

    /// Warns of limits whose keys clients can invent, unless a limit by address bounds the same requests.
    pub(super) fn warn_of_invented_keys(&self, policy: &Policy) {
        let is_exact = |host: &HostPattern| matches!(host, HostPattern::Exact(_));
        let is_invented = |limit: &Limit, part: &KeyPart| match part {
            KeyPart::Uri | KeyPart::Parameter(_) | KeyPart::Header(..) | KeyPart::Query(..) | KeyPart::Cookie(..) => {
                true
            }
            KeyPart::Json(member) => {
                !limit.matches.json.iter().any(|(other, test)| *other == **member && test.is_list())
            }
            // A client may send any host and any method, unless the limit matches some only.
            KeyPart::Host => !limit.matches.hosts.iter().all(is_exact) || limit.matches.hosts.is_empty(),
            KeyPart::Method => limit.matches.methods.is_empty(),
            KeyPart::Identity(index) => {
                let identity = policy.identities.get(*index);
                identity.is_some_and(|identity| matches!(identity.source, IdentitySource::Header(..)))
            }
            _ => false,
        };
        let is_by_address = |limit: &Limit| !limit.is_for_callers() && limit.bounds_addresses_of(limit);
        let by_address = ByPath::new(&self.all, is_by_address);
        let first = (0..self.all.len()).filter(|index| is_by_address(self.all[*index].0)).take(COMPARED_MAX);
        let first: Vec<_> = first.collect();
        for (limit, name) in self.all.iter().filter(|(limit, _)| limit.mode == Mode::Enforce && !limit.is_for_callers())
        {
            let Some(part) = limit.key.iter().find(|part| is_invented(limit, part)) else { continue };
            let mut others = by_address.near(limit).chain(first.iter().copied());
            if others.any(|other| self.all[other].0.bounds_addresses_of(limit)) {
                continue;
            }
            let (limit, part) = (&limit.name, policy.part_name(part));
            let title = format!("limit `{limit}`: clients can invent values of `{part}`, each with a fresh bucket");
            let help = "add a limit with `key = [\"ip\"]` that applies to at least the same requests";
            self.warn("invented_key", name, title, help);
        }
    }

    /// Warns of limits that never settle or release a charge, because Weir only answers checks.
    pub(super) fn warn_of_unsettled(&self) {
        for (limit, name) in self.all.iter().filter(|(limit, _)| limit.mode != Mode::Off) {
            let (does, help) = if limit.allowed.usual.is_released() {
                let help = "a check of `[check]` releases its units at once, so the limit holds nothing back there";
                ("counts requests in flight, and a check does not see their end", help)
            } else if limit.after.as_ref().is_some_and(|after| after.counts.is_some() || after.settle.is_some()) {
                let help = "a check of `[check]` charges `cost`, and nothing changes that charge later";
                ("settles by the answer, and a check does not see the answer", help)
            } else if limit.is_sampled() {
                let help = "write `by = \"cpu\"`; a check of `[check]` sees no answer";
                ("adapts by answers, and a check does not see the answer", help)
            } else if limit.read_bytes().is_some() {
                let help = "a check of `[check]` meets no `match.json`, and charges `default` of `cost.json`";
                ("reads bodies of requests, and a check does not see them", help)
            } else {
                continue;
            };
            self.warn("unsettled_check", name, format!("limit `{}` {does}", limit.name), help);
        }
    }

    /// Warns of limits whose paths no route has.
    pub(super) fn warn_of_unserved(&self, served: &Served<'_>) {
        if served.is_too_large_for(self.all.iter().map(|(limit, _)| limit.matches.paths.len()).sum()) {
            return;
        }
        for (_, (limit, name)) in self.of_requests() {
            let paths = &limit.matches.paths;
            if limit.mode == Mode::Off || paths.is_empty() || paths.iter().any(|path| served.has(path)) {
                continue;
            }
            let title = format!("limit `{}` never applies to a served request: no route has its paths", limit.name);
            self.warn(
                "unserved_limit",
                name,
                title,
                "write `match.path` as clients send it, before `rewrite` of a route",
            );
        }
    }
}

/// The requests that `[access]` denies or exempts, so that no limit decides about them. An entry that is reported as
/// `allows_everything` is not among them.
#[derive(Default)]
pub(super) struct Bypass {
    /// Whether these are all requests.
    has_all: bool,
    paths: Vec<PathPattern>,
}

impl Bypass {
    pub(super) fn of(spec: &AccessSpec) -> Self {
        let networks = spec.networks.iter().map(|(network, rule)| (*network, *rule));
        let networks = networks.filter(|(network, rule)| *rule == AccessRule::Deny || network.prefix_len() > 0);
        let networks = IpNet::aggregate(&networks.map(|(network, _)| network).collect());
        let is_every = |network: &IpNet, is_v4| network.prefix_len() == 0 && matches!(network, IpNet::V4(_)) == is_v4;
        let has_every_address = [true, false].iter().all(|is_v4| networks.iter().any(|one| is_every(one, *is_v4)));
        let paths = spec.paths.iter().filter(|(path, rule)| *rule == AccessRule::Deny || !path.matches_all());
        let paths: Vec<_> = paths.map(|(path, _)| path.clone()).collect();
        Self { has_all: has_every_address || paths.iter().any(PathPattern::matches_all), paths }
    }
}

/// Most pairs of patterns that are compared, so that a large configuration compiles in time.
const PAIRS_MAX: usize = 1_000_000;

/// The patterns of all routes.
pub(super) struct Served<'r>(Vec<&'r PathPattern>);

impl<'r> Served<'r> {
    /// `None` if all paths are served: by a route, by the only upstream, or by other proxies that ask.
    pub(super) fn of(root: &Table<'_>, routes: Option<&'r Routes>) -> Option<Self> {
        let routes = routes.filter(|_| !root.has("check"))?.all();
        let patterns: Vec<_> = routes.iter().flat_map(|route| &route.matches.paths).collect();
        let has_all = routes.iter().any(|route| route.matches.paths.is_empty());
        (!has_all && !patterns.iter().any(|pattern| pattern.matches_all())).then_some(Self(patterns))
    }

    fn has(&self, path: &PathPattern) -> bool {
        self.0.iter().any(|served| served.overlaps(path))
    }

    fn is_too_large_for(&self, patterns: usize) -> bool {
        self.0.len().saturating_mul(patterns) > PAIRS_MAX
    }

    /// Warns of each path of `[access]` that no route has.
    pub(super) fn warn_of_access(&self, root: &Table<'_>) {
        let Some(access) = root.get("access").and_then(|access| access.get_ref().as_table()) else { return };
        let paths_of = |key: &'static str| {
            let entries = access.get(key).into_iter().flat_map(items_of).filter_map(|one| one.get_ref().as_table());
            let items = entries.filter_map(|entry| entry.get("path")).flat_map(items_of);
            items.filter_map(move |item| Some((key, item.span(), item.get_ref().as_str()?)))
        };
        let written: Vec<_> = ["deny", "allow", "require"].into_iter().flat_map(paths_of).collect();
        if self.is_too_large_for(written.len()) {
            return;
        }
        for (key, span, text) in written {
            if folded_pattern(text, root.context.paths.get()).is_ok_and(|path| !self.has(&path)) {
                let title = format!("`access.{key}.path`: no route has `{text}`, so the entry has no effect");
                let help = "write the path as clients send it, before `rewrite` of a route";
                root.context.note(Problem::warning("unserved_access", span, title).help(help));
            }
        }
    }
}

/// Warns of plans that `access.require` and `priority.rule` name and no limit has. Without plans of limits any name may be
/// right.
pub(super) fn of_unknown_plans(root: &Table<'_>, limits: &[Limit]) {
    let known: BTreeSet<&str> = limits.iter().flat_map(|limit| &limit.allowed.plans).map(|(name, _)| &**name).collect();
    if known.is_empty() {
        return;
    }
    for (table, key) in [("access", "require"), ("priority", "rule")] {
        let all = root.get(table).and_then(|table| table.get_ref().as_table()?.get(key)?.get_ref().as_array());
        let plans = all.into_iter().flat_map(|all| all.iter()).filter_map(|one| one.get_ref().as_table()?.get("plan"));
        for item in plans.flat_map(items_of) {
            let Some(plan) = item.get_ref().as_str().filter(|plan| !known.contains(plan)) else { continue };
            let all = || {
                format!("limits have {}", known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
            };
            let help = did_you_mean(nearest(plan, known.iter().copied())).unwrap_or_else(all);
            let title = format!("`{table}.{key}.plan`: no limit has a plan `{plan}`");
            root.context.note(Problem::warning("unknown_plan", item.span(), title).help(help));
        }
    }
}

/// Warns of plans of API keys that change nothing.
pub(super) fn of_plans_of_keys(root: &Table<'_>, policy: &Policy) {
    let known = |plan: &str| policy.has_plan(plan);
    let of_identity = |name: &str| root.get("identity")?.get_ref().as_table()?.get(name);
    for (index, identity) in policy.identities.iter().enumerate() {
        let (IdentitySource::ApiKeys { keys, .. }, Some(place)) = (&identity.source, of_identity(&identity.name))
        else {
            continue;
        };
        let plans = keys.owners().iter().filter_map(|owner| Some((&owner.name, owner.plan.as_deref()?)));
        let name = &identity.name;
        let (title, help) = if policy.plans != Some(PlanSource::Claim(index)) {
            if plans.count() == 0 {
                continue;
            }
            let help = format!("write `[plans]` with `from = \"{name}.plan\"`");
            (format!("the plans of the API keys of `{name}` apply to nothing"), help)
        } else if let Some((owner, plan)) = plans.into_iter().find(|(_, plan)| !known(plan)) {
            let title = format!("no limit has the plan `{plan}` of the API key of `{owner}`");
            (title, "a limit has plans in `plans`; without its plan, a key has the usual numbers".to_owned())
        } else {
            continue;
        };
        root.context.note(Problem::warning("unknown_plan", place.span(), title).help(help));
    }
}

/// Indices of limits by their patterns, so that a limit is compared with few others.
struct ByPath<'l>(HashMap<&'l str, Vec<usize>>);

impl<'l> ByPath<'l> {
    fn new(limits: &[(&'l Limit, Range<usize>)], is_wanted: impl Fn(&Limit) -> bool) -> Self {
        let mut by_path: HashMap<_, Vec<_>> = HashMap::new();
        for (index, (limit, _)) in limits.iter().enumerate().filter(|(_, (limit, _))| is_wanted(limit)) {
            for path in paths(limit) {
                by_path.entry(path).or_default().push(index);
            }
        }
        Self(by_path)
    }

    /// Limits with the first pattern of this one, and limits without a pattern; at most [`COMPARED_MAX`] of each.
    fn near(&self, limit: &Limit) -> impl Iterator<Item = usize> {
        let own = paths(limit).next().filter(|path| !path.is_empty());
        let found = own.into_iter().chain([""]).filter_map(|path| self.0.get(path));
        found.flat_map(|found| found.iter().copied().take(COMPARED_MAX))
    }
}

/// The patterns of a limit; an empty one if it sees every path.
fn paths(limit: &Limit) -> impl Iterator<Item = &str> {
    let all = limit.matches.paths.is_empty().then_some("");
    limit.matches.paths.iter().map(PathPattern::as_str).chain(all)
}
