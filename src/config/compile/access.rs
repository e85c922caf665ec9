//! `[access]` and `[plans]`: denied and exempt clients and paths, required identities and plans, and the source of plans.
//!
//! Notes entries that contradict each other. `policy` decides which of several entries applies to a request.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::iter;
use std::ops::Range;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::identity::request_header;
use super::matching::{cover_head, except_paths, matches, path_pattern};
use super::warnings::{Bypass, of_everyone};
use crate::config::reader::{Fault, Located, Optional, Problem, Table, did_you_mean, nearest, units};
use crate::engine::policy::access::{Access, AccessRule, AccessSpec, Requirement};
use crate::engine::policy::{Except, Identity, IdentitySource, PathPattern, PlanSource};

/// The most denied paths that an allowed path is compared with, so that the cost is linear in the number of entries.
const COMPARED_MAX: usize = 1000;

/// Compiles the source of plans, and marks the identity that supplies them. `names` are the names of all identities,
/// including invalid identities.
pub(super) fn plans(
    root: &Table<'_>,
    names: &[String],
    mut identities: Option<Vec<Identity>>,
) -> (Optional<PlanSource>, Option<Vec<Identity>>) {
    let table = root.table("plans");
    if !table.is_present() {
        return (Some(None), identities);
    }
    let source = table.parsed("from", |text| plan_source(text, root, names));
    if let Some((PlanSource::Claim(index), Some(claim))) = &source {
        let identity = identities.as_mut().and_then(|identities| identities.get_mut(*index));
        if let Some(Identity { source: IdentitySource::Jwt { verifier, .. }, .. }) = identity {
            verifier.set_plan_claim(claim);
        }
    }
    (source.map(|(source, _)| Some(source)), identities)
}

/// Reads `plans.from`. Returns the source, and the name of its claim, if it is one.
fn plan_source(text: &str, root: &Table<'_>, names: &[String]) -> Result<(PlanSource, Option<String>), Fault> {
    if let Some(name) = text.strip_prefix("header:") {
        return Ok((PlanSource::Header(request_header(root.context, name)?), None));
    }
    let shape = || {
        let help = "write it like \"seller.plan\", for the claim `plan` of the identity `seller`, or \"header:x-plan\"";
        Fault::new(format!("`{text}` is neither a claim nor a header")).help(help)
    };
    // The name of an identity has no dot. The name of a claim may have dots.
    let (name, claim) = text.split_once('.').filter(|(_, claim)| !claim.is_empty()).ok_or_else(shape)?;
    let index = identity(name, names).map_err(|fault| {
        let help = nearest(name, names.iter().map(String::as_str)).map(|name| format!("{name}.{claim}"));
        Fault { help: did_you_mean(help.as_deref()).or(fault.help), ..fault }
    })?;
    let tables = root.get("identity").and_then(|value| value.get_ref().as_table());
    let table = tables.and_then(|tables| tables.get(name)).and_then(|value| value.get_ref().as_table());
    if table.is_some_and(|table| table.contains_key("api_keys")) {
        if claim != "plan" {
            return Err(format!("`{name}` has API keys, whose plan is `{name}.plan`").into());
        }
    } else if table.is_some_and(|table| !table.contains_key("jwt")) {
        let fault = Fault::new(format!("`{name}` is a header, and headers have no claims"));
        let help = "take the plan from an identity with `jwt`, or from a header of its own: \"header:x-plan\"";
        return Err(fault.help(help).absence());
    }
    Ok((PlanSource::Claim(index), Some(claim.to_owned())))
}

/// The index of the identity of this name.
pub(super) fn identity(name: &str, names: &[String]) -> Result<usize, Fault> {
    names.iter().position(|known| known == name).ok_or_else(|| {
        let help = did_you_mean(nearest(name, names.iter().map(String::as_str)));
        let all = || match names {
            [] => "there is no `[identity.NAME]`".to_owned(),
            names => format!("there are {}", names.join(", ")),
        };
        let fault = Fault::new(format!("`{name}` is not an identity"));
        fault.help(help.unwrap_or_else(all)).absence()
    })
}

/// Compiles `[access]`, if it is present. Notes and leaves out invalid entries; the configuration is invalid then.
/// `identities` is empty if one of them has an error.
pub(super) fn access(root: &Table<'_>, names: &[String], identities: &[Identity]) -> (Option<Access>, Bypass) {
    let table = root.table("access");
    if !table.is_present() {
        return (None, Bypass::default());
    }
    let mut spec = AccessSpec::default();
    let (mut networks, mut paths, mut values) = (Seen::new(), Seen::new(), Seen::new());
    for (key, rule) in [("deny", AccessRule::Deny), ("allow", AccessRule::Allow)] {
        let entries = table.table(key);
        // Empty while `deny` itself is read.
        let denied: HashSet<IpNet> = spec.networks.iter().map(|(network, _)| *network).collect();
        let denied_paths: Vec<PathPattern> = spec.paths.iter().map(|(path, _)| path.clone()).collect();
        let listed = entries.long_list("ip", units::network);
        if rule == AccessRule::Allow {
            of_everyone(&entries, "ip", &listed, "allows_everything", "no limit applies to any request");
        }
        for network in listed {
            let name = network.get_ref().to_string();
            let entry = AccessEntry { name: Some(&name), rule, span: network.span() };
            if entry.is_first(&entries, "ip", *network.get_ref(), &mut networks) {
                warn_of_opened_network(&entries, &network, &denied);
                spec.networks.push((network.into_inner(), rule));
            }
        }
        for path in entries.long_list("path", |text| path_pattern(&entries, text)) {
            let entry = AccessEntry { name: Some(path.get_ref().as_str()), rule, span: path.span() };
            if rule == AccessRule::Allow && path.get_ref().matches_all() {
                let fault = Fault::new("this is every path: no limit applies to any request");
                entries.warn("path", path.span(), "allows_everything", fault);
            }
            if entry.is_first(&entries, "path", path.get_ref().shape(), &mut paths) {
                warn_of_opened_path(&entries, &path, &denied_paths);
                spec.paths.push((path.into_inner(), rule));
            }
        }
        for (index, value) in identity_values(&entries, (names, identities), rule, &mut values) {
            spec.identities.push((index, value, rule));
        }
    }
    spec.require = require(&table, names, &PlanSources::of(root));
    warn_of_spellings(root, &table);
    let bypass = Bypass::of(&spec);
    (Some(Access::new(spec)), bypass)
}

/// Warns of denied paths if no option says which spellings the services read as the same path.
fn warn_of_spellings(root: &Table<'_>, table: &Table<'_>) {
    let server = root.get("server").and_then(|server| server.get_ref().as_table());
    if server.is_some_and(|server| server.contains_key("paths")) {
        return;
    }
    let denied = table.get("deny").and_then(|deny| Some((deny.get_ref().as_table()?.get("path")?.span(), "deny.path")));
    let has_path = |one: &Spanned<DeValue<'_>>| one.get_ref().as_table().is_some_and(|one| one.contains_key("path"));
    let required =
        table.get("require").filter(|all| all.get_ref().as_array().is_some_and(|all| all.iter().any(has_path)));
    let required = required.map(|require| (require.span(), "require"));
    for (span, key) in denied.into_iter().chain(required) {
        let what = "many services treat `/A`, `/a/` or `/a;b` as `/a`, but Weir treats them as other paths";
        let help = "set `server.paths` for your service (docs/operations/deploy.md); use `paths = {}` if the service distinguishes them";
        table.warn(key, span, "path_spellings", (what, help));
    }
}

/// Notes an entry of `allow` that opens a part of a denied network.
fn warn_of_opened_network(allow: &Table<'_>, network: &Located<IpNet>, denied: &HashSet<IpNet>) {
    let mut around = iter::successors(network.get_ref().supernet(), IpNet::supernet);
    if let Some(closed) = around.find(|around| denied.contains(around)) {
        let title = format!("`access.allow.ip`: `{}` opens a part of `{closed}`, which is denied", network.get_ref());
        allow.context.note(Problem::remark("opens_denied", network.span(), title));
    }
}

/// Notes an entry of `allow` that opens a part of a denied path.
fn warn_of_opened_path(allow: &Table<'_>, path: &Located<PathPattern>, denied: &[PathPattern]) {
    let opened = path.get_ref();
    if let Some(closed) = denied.iter().take(COMPARED_MAX).find(|closed| *closed != opened && closed.covers(opened)) {
        let (opened, closed) = (opened.as_str(), closed.as_str());
        let title = format!("`access.allow.path`: `{opened}` opens a part of `{closed}`, which is denied");
        allow.context.note(Problem::remark("opens_denied", path.span(), title));
    }
}

/// The values that `identity` lists, each with the index of its identity.
fn identity_values(
    entries: &Table<'_>,
    (names, identities): (&[String], &[Identity]),
    rule: AccessRule,
    seen: &mut Seen<(usize, Box<str>)>,
) -> Vec<(usize, Box<str>)> {
    if let Some(value) = entries.get("identity") {
        // They may be credentials.
        entries.hide_all(value);
    }
    let table = entries.table("identity");
    let mut all = Vec::new();
    for (name, values) in table.named_lists(value) {
        let index = match identity(name.get_ref(), names) {
            Ok(index) => index,
            Err(fault) => {
                table.fault(name.get_ref(), name.span(), fault);
                continue;
            }
        };
        for value in values {
            let entry = AccessEntry { name: None, rule, span: value.span() };
            let spelled = identities.get(index).map(|identity| identity.source.spelled(value.get_ref()).into());
            let about = (index, spelled.unwrap_or_else(|| value.into_inner()));
            if entry.is_first(&table, name.get_ref(), about.clone(), seen) {
                all.push(about);
            }
        }
    }
    all
}

/// The sources of plans.
pub(super) struct PlanSources {
    /// `[plans]`, or a limit with plans, which overrides assign.
    any: bool,
    /// A header that no trusted proxy sends.
    pub(super) unproven: bool,
}

impl PlanSources {
    pub(super) fn of(root: &Table<'_>) -> Self {
        let text = |table, key| root.get(table)?.get_ref().as_table()?.get(key)?.get_ref().as_str();
        let has = |table, key| root.get(table).is_some_and(|one| one.get_ref().get(key).is_some());
        let has_plans = |limit: &Spanned<DeValue<'_>>| limit.get_ref().get("plans").is_some();
        Self {
            any: root.has("plans") || root.items("limit").iter().any(has_plans),
            unproven: text("plans", "from").is_some_and(|from| from.starts_with("header:"))
                && !has("server", "trusted_proxies"),
        }
    }

    /// Warns of the use of a plan at `span` that no request can prove.
    pub(super) fn warn_of_unproven(&self, table: &Table<'_>, key: &str, span: Range<usize>) {
        if self.unproven {
            let what = "a plan in a header counts from `server.trusted_proxies` only, and there are none";
            let help = "name the proxies, or take the plan from a token or an API key";
            table.warn(key, span, "unproven_plan", (what, help));
        }
    }
}

fn require(table: &Table<'_>, identities: &[String], sources: &PlanSources) -> Vec<Requirement> {
    if table.items("require").is_empty() {
        table.fault_if_present("require", "an empty list has no effect; remove it");
    }
    let tables = table.tables("require");
    tables.iter().filter(|table| !table.is_broken()).map(|table| requirement(table, identities, sources)).collect()
}

fn requirement(table: &Table<'_>, names: &[String], sources: &PlanSources) -> Requirement {
    let plans = table.list("plan", value);
    if plans.is_some() {
        sources.warn_of_unproven(table, "plan", table.span_of("plan"));
    }
    if plans.is_some() && !sources.any {
        let problem =
            Problem::new(table.span(), "`access.require.plan` needs `[plans]`, or a limit with `plans`").absence();
        let help =
            "without them no request has a plan; set the source of plans, as in `[plans] from = \"seller.plan\"`";
        table.context.note(problem.help(help));
    }
    if !table.has("identity") && !table.has("plan") {
        let problem = Problem::new(table.span(), "this entry requires nothing").absence();
        let help = "name identities or plans, as in `identity = [\"seller\"]`";
        table.context.note(problem.help(help));
    }
    let mut matches = matches(table);
    cover_head(&mut matches.methods);
    Requirement {
        matches,
        except: Except { paths: except_paths(&table.table("except")), ..Except::default() },
        identities: required_identities(table, "identity", names),
        plans: plans.unwrap_or_default(),
    }
}

/// The indices of the identities that `key` lists.
pub(super) fn required_identities(table: &Table<'_>, key: &str, names: &[String]) -> Vec<usize> {
    table.list(key, |text| identity(text, names)).unwrap_or_default()
}

fn value(text: &str) -> Result<Box<str>, Fault> {
    units::not_empty(text).map(Into::into)
}

/// The subjects of entries, each with the rule of its first entry and the position of that entry.
type Seen<T> = HashMap<T, (AccessRule, Range<usize>)>;

/// An entry.
struct AccessEntry<'n> {
    /// `None` if messages must not show it.
    name: Option<&'n str>,
    rule: AccessRule,
    span: Range<usize>,
}

impl AccessEntry<'_> {
    /// Whether `about` has no rule yet. Notes a repeated rule.
    fn is_first<T: Eq + Hash>(&self, table: &Table<'_>, key: &str, about: T, seen: &mut Seen<T>) -> bool {
        let Some((said, first)) = seen.get(&about) else {
            seen.insert(about, (self.rule, self.span.clone()));
            return true;
        };
        let listed = table.context.listed.borrow();
        if *said == self.rule && (listed.contains(&self.span) || listed.contains(first)) {
            return false;
        }
        let what = self.name.map_or("this value".to_owned(), |name| format!("`{name}`"));
        let how = if *said == self.rule { "occurs twice" } else { "is both denied and allowed" };
        let problem = Problem::new(self.span.clone(), format!("`{}`: {what} {how}", table.path_of(key)));
        table.context.note(problem.also(first.clone(), "first here"));
        false
    }
}
