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
use crate::config::diagnostics::{Problem, did_you_mean, nearest};
use crate::config::files::unwritable_folder;
use crate::config::reader::units::Fault;
use crate::config::reader::{Located, Table};
use crate::engine::policy::KeyPart;
use crate::engine::policy::access::{AccessRule, AccessSpec, canonical};
use crate::engine::policy::route::Routes;
use crate::engine::policy::{HostPattern, IdentitySource, Limit, Match, Mode, PathPattern, Policy};

/// Warns of networks that contain every address, and names the consequence.
pub(super) fn of_everyone(
    table: &Table<'_>,
    key: &str,
    networks: &[Located<IpNet>],
    code: &'static str,
    consequence: &str,
) {
    let is_every = |network: &IpNet| network.prefix_len() == 0;
    let whole: Vec<_> = networks.iter().filter(|network| is_every(&canonical(*network.get_ref()))).collect();
    for network in &whole {
        let what = format!("`{}` is every address: {consequence}", network.get_ref());
        table.warn(key, network.span(), code, Fault::new(what));
    }
    if let Some(every) = together(networks).iter().find(|network| whole.is_empty() && is_every(network))
        && let Some(first) = networks.iter().find(|network| every.contains(&canonical(*network.get_ref())))
    {
        let what = format!("`{}` and other entries are together every address: {consequence}", first.get_ref());
        table.warn(key, first.span(), code, Fault::new(what));
    }
}

/// The networks that the entries are together.
pub(super) fn together(networks: &[Located<IpNet>]) -> Vec<IpNet> {
    IpNet::aggregate(&networks.iter().map(|network| canonical(*network.get_ref())).collect())
}

/// Warns if Weir could not create the file that `key` names, at `path`.
pub(super) fn of_folder(table: &Table<'_>, key: &str, span: Range<usize>, path: &Path) {
    if let Some(what) = unwritable_folder(path) {
        let help = "Weir creates a new file in this folder and renames it".to_owned();
        table.warn(key, span, "folder", Fault::new(what).help(Some(help)));
    }
}

/// Warns of stores that no limit uses.
pub(super) fn of_unused_stores(root: &Table<'_>, names: &[Located<String>], policy: &Policy) {
    let used: Vec<_> = policy.limits().iter().filter_map(|limit| limit.strategy.store()).collect();
    for (_, name) in names.iter().enumerate().filter(|(index, _)| !used.contains(index)) {
        let title = format!("no limit uses the store `{}`", name.get_ref());
        let help = "use it in a limit, as in `strategy = \"redis\"`, or remove it".to_owned();
        root.context.note(Problem::warning("unused_store", name.span(), title).help(help));
    }
}

/// The most limits that one limit is compared with, so that the cost is linear in the number of limits.
const COMPARED_MAX: usize = 32;

/// Warns of limits that never refuse, because another one refuses first. Compares a limit with others that have a
/// pattern in common or none.
pub(super) fn of_shadowed(root: &Table<'_>, limits: &[Limit]) {
    let names = names_of(root);
    if names.len() != limits.len() {
        return; // the default limit, which is in no text
    }
    let by_path = ByPath::new(limits, |_| true);
    for (index, limit) in limits.iter().enumerate().filter(|(_, limit)| !limit.is_for_callers()) {
        // Of two equal limits the later one is reported.
        let shadows =
            |other: &usize| limits[*other].shadows(limit) && (*other < index || !limit.shadows(&limits[*other]));
        let Some(other) = by_path.near(limit).filter(|other| *other != index).find(shadows) else { continue };
        let title =
            format!("limit `{}` never refuses a request, because `{}` does first", limit.name, limits[other].name);
        let help = "its rule is not stricter, and it applies to no other requests".to_owned();
        let problem = Problem::warning("shadowed_limit", names[index].clone(), title).help(help);
        root.context.note(problem.also(names[other].clone(), "this one is at least as strict"));
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
        let networks = spec.networks.iter().map(|(network, rule)| (canonical(*network), *rule));
        let networks = networks.filter(|(network, rule)| *rule == AccessRule::Deny || network.prefix_len() > 0);
        let networks = IpNet::aggregate(&networks.map(|(network, _)| network).collect());
        let is_every = |network: &IpNet, is_v4| network.prefix_len() == 0 && matches!(network, IpNet::V4(_)) == is_v4;
        let has_every_address = [true, false].iter().all(|is_v4| networks.iter().any(|one| is_every(one, *is_v4)));
        let paths = spec.paths.iter().filter(|(path, rule)| *rule == AccessRule::Deny || !path.matches_all());
        let paths: Vec<_> = paths.map(|(path, _)| path.clone()).collect();
        Self { has_all: has_every_address || paths.iter().any(PathPattern::matches_all), paths }
    }
}

/// Warns of limits that decide about no request, because `[access]` denies or exempts all requests that they match.
pub(super) fn of_void_limits(root: &Table<'_>, limits: &[Limit], bypass: &Bypass) {
    let names = names_of(root);
    if names.len() != limits.len() {
        return; // the default limit, which is in no text
    }
    let paths = Match { paths: bypass.paths.clone(), ..Match::default() };
    let is_bypassed = |limit: &Limit| {
        !limit.is_for_callers() && (bypass.has_all || !paths.paths.is_empty() && paths.covers(&limit.matches))
    };
    for (limit, name) in limits.iter().zip(names).filter(|(limit, _)| limit.mode != Mode::Off && is_bypassed(limit)) {
        let title = format!("limit `{}` never applies: `[access]` denies or exempts all of its requests", limit.name);
        let help = "`[access]` decides about these requests first; remove the limit or the entries".to_owned();
        root.context.note(Problem::warning("void_limit", name, title).help(help));
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

    /// Warns of limits whose paths no route has.
    pub(super) fn warn_of_limits(&self, root: &Table<'_>, limits: &[Limit]) {
        let names = names_of(root);
        if names.len() != limits.len()
            || self.is_too_large_for(limits.iter().map(|limit| limit.matches.paths.len()).sum())
        {
            return;
        }
        for (limit, name) in limits.iter().zip(names) {
            let paths = &limit.matches.paths;
            let is_void = limit.mode == Mode::Off || limit.is_for_callers();
            if is_void || paths.is_empty() || paths.iter().any(|path| self.has(path)) {
                continue;
            }
            let title = format!("limit `{}` never applies to a served request: no route has its paths", limit.name);
            let help = "write `match.path` as clients send it, before `rewrite` of a route".to_owned();
            root.context.note(Problem::warning("unserved_limit", name, title).help(help));
        }
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
                let help = "write the path as clients send it, before `rewrite` of a route".to_owned();
                root.context.note(Problem::warning("unserved_access", span, title).help(help));
            }
        }
    }
}

/// The values of a list, or the value alone.
pub(super) fn items_of<'v>(value: &'v Spanned<DeValue<'v>>) -> &'v [Spanned<DeValue<'v>>] {
    value.get_ref().as_array().map_or(std::slice::from_ref(value), |items| &**items)
}

/// Warns of plans that `access.require` demands and no limit has. Without plans of limits any name may be right.
pub(super) fn of_unknown_plans(root: &Table<'_>, limits: &[Limit]) {
    let known: BTreeSet<&str> = limits.iter().flat_map(|limit| &limit.allowed.plans).map(|(name, _)| &**name).collect();
    let required = root.get("access").and_then(|access| access.get_ref().as_table()?.get("require"));
    let tables = required.and_then(|required| required.get_ref().as_array()).into_iter().flat_map(|all| all.iter());
    for plans in tables.filter_map(|table| table.get_ref().as_table()?.get("plan")).filter(|_| !known.is_empty()) {
        for (item, plan) in items_of(plans).iter().filter_map(|item| Some((item, item.get_ref().as_str()?))) {
            if known.contains(plan) {
                continue;
            }
            let all = || {
                format!("limits have {}", known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
            };
            let help = did_you_mean(nearest(plan, known.iter().copied())).unwrap_or_else(all);
            let title = format!("`access.require.plan`: no limit has a plan `{plan}`");
            root.context.note(Problem::warning("unknown_plan", item.span(), title).help(help));
        }
    }
}

/// Warns of limits for callers of the limiter service that no rule names.
pub(super) fn of_unnamed_limits(root: &Table<'_>, policy: &Policy) {
    let names = names_of(root);
    let rules = || policy.descriptors.checks.iter().chain(policy.descriptors.domains.iter().map(|(_, rule)| rule));
    let is_named = |index| rules().any(|rule| rule.limits.iter().any(|mapped| mapped.limit == index));
    let limits = policy.limits().iter().enumerate().zip(names);
    for ((_, limit), name) in limits.filter(|((index, limit), _)| limit.is_for_callers() && !is_named(*index)) {
        let title = format!("limit `{}` never applies: requests have no `name:` parts", limit.name);
        let help = "name the limit in a table `[[grpc.check]]` or `[[grpc.descriptor]]`".to_owned();
        root.context.note(Problem::warning("void_limit", name, title).help(help));
    }
}

/// Warns of limits whose keys clients can invent, unless a limit by address bounds the same requests.
pub(super) fn of_invented_keys(root: &Table<'_>, policy: &Policy) {
    let (names, limits) = (names_of(root), policy.limits());
    if names.len() != limits.len() {
        return; // the default limit, which is in no text
    }
    let is_exact = |host: &HostPattern| matches!(host, HostPattern::Exact(_));
    let is_invented = |limit: &Limit, part: &KeyPart| match part {
        KeyPart::Header(..) | KeyPart::Query(..) | KeyPart::Cookie(..) => true,
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
    let by_address = ByPath::new(limits, is_by_address);
    let first: Vec<_> = (0..limits.len()).filter(|index| is_by_address(&limits[*index])).take(COMPARED_MAX).collect();
    for (limit, name) in limits.iter().zip(names).filter(|(limit, _)| limit.mode == Mode::Enforce) {
        if limit.is_for_callers() {
            continue;
        }
        let Some(part) = limit.key.iter().find(|part| is_invented(limit, part)) else { continue };
        let mut others = by_address.near(limit).chain(first.iter().copied());
        if others.any(|other| limits[other].bounds_addresses_of(limit)) {
            continue;
        }
        let part = policy.part_name(part);
        let title = format!("limit `{}`: clients can invent values of `{part}`, each with a fresh bucket", limit.name);
        let help = "add a limit with `key = [\"ip\"]` that applies to at least the same requests".to_owned();
        root.context.note(Problem::warning("invented_key", name, title).help(help));
    }
}

/// Warns of limits that never settle or release a charge, because Weir only answers checks.
pub(super) fn of_unsettled(root: &Table<'_>, limits: &[Limit]) {
    let names = names_of(root);
    if names.len() != limits.len() {
        return; // the default limit, which is in no text
    }
    for (limit, name) in limits.iter().zip(names).filter(|(limit, _)| limit.mode != Mode::Off) {
        let (title, help) = if limit.allowed.usual.is_released() {
            let title = format!("limit `{}` counts requests in flight, and a check does not see their end", limit.name);
            (title, "a check of `[check]` releases its units at once, so the limit holds nothing back there")
        } else if limit.after.is_some() {
            let title = format!("limit `{}` settles by the answer, and a check does not see the answer", limit.name);
            (title, "a check of `[check]` charges `cost`, and nothing changes that charge later")
        } else {
            continue;
        };
        root.context.note(Problem::warning("unsettled_check", name, title).help(help.to_owned()));
    }
}

/// Indices of limits by their patterns, so that a limit is compared with few others.
struct ByPath<'l>(HashMap<&'l str, Vec<usize>>);

impl<'l> ByPath<'l> {
    fn new(limits: &'l [Limit], is_wanted: impl Fn(&Limit) -> bool) -> Self {
        let mut by_path: HashMap<_, Vec<_>> = HashMap::new();
        for (index, limit) in limits.iter().enumerate().filter(|(_, limit)| is_wanted(limit)) {
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

/// The positions of the names of all limits.
pub(super) fn names_of(root: &Table<'_>) -> Vec<Range<usize>> {
    let limits = root.get("limit").and_then(|value| value.get_ref().as_array());
    let name = |limit: &Spanned<DeValue<'_>>| Some(limit.get_ref().as_table()?.get("name")?.span());
    limits.into_iter().flat_map(|limits| limits.iter()).filter_map(name).collect()
}
