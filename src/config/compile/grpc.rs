//! `[grpc]`: the listener of the limiter service, and the rules that map checks and descriptors to limits.

use std::ops::Range;

use toml::de::DeValue;

use super::override_key::{Keyed, check_part};
use super::tls;
use crate::config::reader::{Fault, Located, Optional, Problem, Table, did_you_mean, nearest, units, whole};
use crate::engine::limit::{Algorithm, OnFull};
use crate::engine::policy::descriptors::{
    CHECK_ENTRIES, DescriptorRule, Descriptors, EntryPattern, MappedLimit, Template, TemplateError,
};
use crate::engine::policy::{Limit, Policy, Strategy};
use crate::fleet::grpc::settings::{ServiceListener, ServiceSettings};
use crate::transport::net::tls::ServerTls;
use crate::transport::respond::Profiles;

/// The limiter service.
#[derive(Clone, Debug)]
pub struct GrpcSettings {
    /// The listener. Fixed at start.
    pub listener: ServiceListener,
    /// The settings that a reload changes.
    pub settings: ServiceSettings,
}

/// A listener with its position, and its TLS.
type Listening = (Located<ServiceListener>, Option<ServerTls>);

/// Compiles the listener and its TLS.
pub(super) fn listener(table: &Table<'_>) -> Option<Listening> {
    let listen = table.parsed_at("listen", |text| units::listen(text, table.context.dir));
    let (is_insecure, max_connections) = (table.switch("insecure"), table.count("max_connections"));
    let tls_table = table.table("tls");
    let tls = tls::tls(&tls_table);
    let listen = listen?;
    let is_optional = tls_table.get("client_auth").is_some_and(|value| value.get_ref().as_str() == Some("optional"));
    let demands_certificates = tls_table.has("client_ca") && !is_optional;
    if is_insecure == Some(false) && units::is_elsewhere(listen.get_ref()) && !demands_certificates {
        let what = "other machines can reach this address without a certificate, and spend the units of any client";
        let help = "add `[grpc.tls]` with `client_ca`, or `insecure = true` if that network is trusted";
        table.fault("listen", listen.span(), Fault::new(what).help(help).absence());
    }
    is_insecure?;
    let (span, has_tls, max_connections) = (listen.span(), tls_table.is_present(), max_connections?);
    let listener = ServiceListener { listen: listen.into_inner(), max_connections, has_tls };
    Some((Located::new(span, listener), tls))
}

/// Compiles the settings of the listener; the inner option is `None` without `[grpc]`.
pub(super) fn grpc(
    table: &Table<'_>,
    listening: Optional<Listening>,
    profiles: Option<Profiles>,
) -> Optional<GrpcSettings> {
    table.if_present(|table| {
        let has_headers = table.switch("headers");
        let (max_streams, max_message_bytes) = (table.count("max_streams"), table.size("max_message_bytes"));
        let (listener, tls) = listening??;
        let settings = whole!(ServiceSettings {
            tls: Some(tls),
            max_streams,
            max_message_bytes,
            profiles: if has_headers? { profiles.map(Some) } else { Some(None) },
        });
        Some(GrpcSettings { listener: listener.into_inner(), settings: settings? })
    })
}

/// Compiles the rules. Without a policy, which has an error, the names of limits and of parts are not checked.
pub(super) fn descriptors(table: &Table<'_>, policy: Option<&Policy>) -> Option<Descriptors> {
    let checks = table.tables("check");
    let checks: Vec<_> = checks.iter().map(|table| rule(table, check_entries(table), None, policy)).collect();
    let domains: Vec<_> = table.tables("descriptor").iter().map(|table| domain(table, policy)).collect();
    let domains: Vec<_> = domains.into_iter().collect::<Option<_>>()?;
    let checks: Vec<_> = checks.into_iter().collect::<Option<_>>()?;
    check_reachable(table, "check", checks.iter().map(|(span, rule)| ("", span, rule)));
    check_reachable(table, "descriptor", domains.iter().map(|(domain, (span, rule))| (&**domain, span, rule)));
    Some(Descriptors {
        checks: checks.into_iter().map(|(_, rule)| rule).collect(),
        domains: domains.into_iter().map(|(domain, (_, rule))| (domain, rule)).collect(),
    })
}

/// A rule with its position.
type RuleAt = (Range<usize>, DescriptorRule);

/// Compiles a table of descriptors. Returns their domain, too.
fn domain(table: &Table<'_>, policy: Option<&Policy>) -> Option<(Box<str>, RuleAt)> {
    let (domain, plan) = (table.text("domain"), table.text_at("plan"));
    let accepts_limit = table.switch("accept_limit") == Some(true);
    let is_reported = table.switch("apply_on_stream_done") == Some(true);
    let (span, rule) = rule(table, descriptor_entries(table), plan, policy)?;
    if let Some(policy) = policy.filter(|_| accepts_limit) {
        let fault = match &rule.limits[..] {
            [one] => fault_of_accepted(one, policy),
            limits => Some(format!("replaces the rate of one limit, and this table has {}", limits.len()).into()),
        };
        if let Some(fault) = fault {
            table.fault_at("accept_limit", fault);
        }
    }
    Some((domain?.into(), (span, DescriptorRule { accepts_limit, is_reported, ..rule })))
}

/// Why the rate of a limit cannot be replaced; `None` if it can. A budget of another rate needs a state that only this
/// process changes, that keeps what is spent when the rate changes, and that no other key shares.
fn fault_of_accepted(mapped: &MappedLimit, policy: &Policy) -> Option<Fault> {
    let limit = policy.limits().get(mapped.limit)?;
    let name = &limit.name;
    let (what, help) = if limit.strategy != Strategy::Local {
        let what = format!("`{name}` is shared with other replicas, which do not know the `limit` of a descriptor");
        (what, format!("its strategy is \"{}\"; use \"local\"", limit.strategy.name()))
    } else if !matches!(limit.allowed.usual, Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_)) {
        let what = format!("replaces the rate of a window, and `{name}` has another algorithm or several rates");
        (what, "use `algorithm = \"fixed_window\"` or \"sliding_window\", with one rate".to_owned())
    } else if limit.on_full != OnFull::Reject {
        let what = format!("past `max_keys`, the keys of `{name}` are not counted by their own rates");
        (what, format!("add `on_full = \"reject\"` to `{name}`"))
    } else {
        return None;
    };
    Some((what, help).into())
}

/// The entries of a check. After an error, the rule that has them is invalid.
fn check_entries(table: &Table<'_>) -> Option<Vec<EntryPattern>> {
    let [actor, scope, method] = CHECK_ENTRIES;
    let (scopes, methods) = (values(table, "scope"), values(table, "method"));
    let entry = |key: &str, values| EntryPattern { key: key.into(), values };
    Some(vec![entry(actor, Vec::new()), entry(scope, scopes?), entry(method, methods?)])
}

fn descriptor_entries(table: &Table<'_>) -> Option<Vec<EntryPattern>> {
    let tables = table.some_tables("entries", "a descriptor has at least one entry")?;
    let entry =
        |table: &Table<'_>| whole!(EntryPattern { key: table.parsed("key", plain), values: values(table, "value") });
    let entries: Vec<_> = tables.iter().map(entry).collect();
    entries.into_iter().collect()
}

/// The values of an entry; none for any value.
fn values(table: &Table<'_>, key: &str) -> Option<Vec<Box<str>>> {
    table.optional(key, |key| table.list(key, plain)).map(Option::unwrap_or_default)
}

fn plain(text: &str) -> Result<Box<str>, Fault> {
    if text.is_empty() { Err("expected a text that is not empty".into()) } else { Ok(text.into()) }
}

/// Compiles the limits of a rule with these entries. Returns its position, too.
fn rule(
    table: &Table<'_>,
    entries: Option<Vec<EntryPattern>>,
    plan: Option<Located<String>>,
    policy: Option<&Policy>,
) -> Option<RuleAt> {
    let limits_table = table.table("limits");
    if !limits_table.is_present() {
        let help = "`limits = {}` lets all of them pass";
        let title = format!("`{}` is missing", limits_table.path());
        table.context.note(Problem::new(table.span(), title).code("missing_option").absence().help(help));
        return None;
    }
    let entries = entries?;
    let names: Vec<&str> = entries.iter().map(|entry| &*entry.key).collect();
    let plan = plan.map(|plan| template(table, "plan", &plan, &names));
    let mut limits = Vec::new();
    for (name, value) in limits_table.entries() {
        let parts = limits_table.table_of("NAME", value);
        limits.push(mapped_limit(&limits_table, &name, &parts, &names, policy));
    }
    let limits = limits.into_iter().collect::<Option<_>>()?;
    let plan = plan.map_or(Some(None), |plan| plan.map(Some))?;
    Some((table.span(), DescriptorRule { entries, plan, limits, accepts_limit: false, is_reported: false }))
}

fn mapped_limit(
    table: &Table<'_>,
    name: &Located<String>,
    parts: &Table<'_>,
    entries: &[&str],
    policy: Option<&Policy>,
) -> Option<MappedLimit> {
    let texts: Vec<_> = parts.entries().into_iter().map(|(part, value)| (part, text(parts, entries, value))).collect();
    let policy = policy?;
    let limits = policy.limits();
    let Some(index) = policy.nameable_limits().position(|limit| *limit == **name.get_ref()) else {
        let help = did_you_mean(nearest(name.get_ref(), policy.nameable_limits()));
        let title = format!("`{}`: there is no limit `{}`", table.path(), name.get_ref());
        table.context.note(Problem::new(name.span(), title).help(help).absence());
        return None;
    };
    let limit = limits.get(index)?;
    if limit.allowed.usual.is_released() {
        let title = format!("`{}`: `{}` counts requests in flight, and a caller has none", table.path(), limit.name);
        table.context.note(Problem::new(name.span(), title));
        return None;
    }
    let part_names: Vec<_> = limit.key.iter().map(|part| policy.part_name(part)).collect();
    for (part, _) in texts.iter().filter(|(part, _)| !part_names.iter().any(|name| name == part.get_ref())) {
        let help = did_you_mean(nearest(part.get_ref(), part_names.iter().map(|name| &**name)));
        let title = format!("`{}`: the key of `{}` has no `{}`", parts.path(), limit.name, part.get_ref());
        table.context.note(Problem::new(part.span(), title).help(help).absence());
    }
    let of_part = |(index, part_name): (usize, &std::borrow::Cow<'_, str>)| {
        let Some((_, text)) = texts.iter().find(|(part, _)| part_name == part.get_ref()) else {
            let title = format!("`{}`: the key of `{}` needs `{part_name}`", parts.path(), limit.name);
            let help = format!("write it like `\"{part_name}\" = \"{{actor}}\"`");
            table.context.note(Problem::new(name.span(), title).help(help).absence());
            return None;
        };
        let (span, text) = text.clone()?;
        check_literal(parts, (limit, index), &text, span, policy);
        Some(text)
    };
    let compiled: Vec<_> = part_names.iter().enumerate().map(of_part).collect();
    let parts = compiled.into_iter().collect::<Option<Vec<_>>>()?;
    (parts.len() == texts.len()).then_some(MappedLimit { limit: index, parts })
}

/// Notes a text without entries that the part at `index` of the limit's key cannot have.
fn check_literal(
    table: &Table<'_>,
    (limit, index): (&Limit, usize),
    text: &Template,
    span: Range<usize>,
    policy: &Policy,
) {
    let (Some(literal), Some(part)) = (text.literal(), limit.key.get(index)) else { return };
    let (prefixes, identities) = (policy.client_ip.prefixes, &*policy.identities);
    let (parts, routes) = (Some(&*limit.key), &*limit.matches.paths);
    let keyed = Keyed { parts, routes, prefixes, identities, paths: policy.paths };
    if let Err(fault) = check_part(literal, part, &keyed) {
        table.fault("PART", span, Fault { help: None, ..fault });
    }
}

fn text(table: &Table<'_>, entries: &[&str], value: &toml::Spanned<DeValue<'_>>) -> Option<(Range<usize>, Template)> {
    let DeValue::String(text) = value.get_ref() else {
        table.mismatch("PART", "a string", value);
        return None;
    };
    let text = toml::Spanned::new(value.span(), text.clone().into_owned());
    template(table, "PART", &text, entries).map(|template| (text.span(), template))
}

fn template(table: &Table<'_>, key: &str, text: &Located<String>, entries: &[&str]) -> Option<Template> {
    let noted = |error: TemplateError| {
        let help = match &error {
            TemplateError::Unknown(name) => did_you_mean(nearest(name, entries.iter().copied()))
                .or_else(|| Some(format!("the entries are {}", entries.join(", ")))),
            _ => None,
        };
        table.fault(key, text.span(), Fault::new(error.to_string()).help(help));
    };
    Template::parse(text.get_ref(), entries).map_err(noted).ok()
}

/// Notes rules that never apply, because a rule before them fits all of their descriptors.
fn check_reachable<'r>(
    table: &Table<'_>,
    key: &str,
    rules: impl Iterator<Item = (&'r str, &'r Range<usize>, &'r DescriptorRule)>,
) {
    let rules: Vec<_> = rules.collect();
    for (index, (domain, span, rule)) in rules.iter().enumerate() {
        let covers =
            |(known, _, other): &&(&str, &Range<usize>, &DescriptorRule)| known == domain && other.covers(rule);
        if let Some((_, first, _)) = rules.iter().take(index).find(covers) {
            let title = format!("`{}`: this table is never used", table.path_of(key));
            let problem = Problem::new((*span).clone(), title);
            table.context.note(problem.also((*first).clone(), "this one fits all of its descriptors"));
        }
    }
}
