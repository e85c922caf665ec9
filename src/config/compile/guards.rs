//! Warnings about identities: identities that nothing uses, and identities that guard a part of a route.

use std::sync::LazyLock;

use super::warnings::NamedLimits;
use crate::config::reader::{Problem, Table};
use crate::engine::policy::identity_header::IdentityValue;
use crate::engine::policy::route::Routes;
use crate::engine::policy::{KeyPart, Limit, Match, Networks, OnMissing, PathPattern, PlanSource, Policy};

/// The most comparisons of limits and routes for one identity. Beyond it the identity has no warning.
const COMPARISONS_MAX: usize = 1_000_000;

/// Warns of identities that nothing uses. Weir does not verify them.
pub(super) fn of_unused_identities(root: &Table<'_>, names: &[String], policy: &Policy, routes: Option<&Routes>) {
    let mut is_used = vec![false; names.len()];
    let by_limits = (0..names.len()).filter(|index| policy.limits().iter().any(|limit| has_key(limit, *index)));
    let by_access = policy.access.iter().flat_map(|access| {
        let required = access.requirements().iter().flat_map(|one| one.identities.iter().copied());
        access.identities().chain(required)
    });
    let by_routes =
        routes.into_iter().flat_map(|routes| routes.all().iter().flat_map(|route| route.require.iter().copied()));
    let by_headers = policy.identity_headers.iter().filter_map(|header| match header.value {
        IdentityValue::Identity(index) => Some(index),
        IdentityValue::Plan | IdentityValue::Removed => None,
    });
    let by_plans = plan_identity(policy);
    for index in by_limits.chain(by_access).chain(by_routes).chain(by_headers).chain(by_plans) {
        if let Some(used) = is_used.get_mut(index) {
            *used = true;
        }
    }
    let table = root.get("identity").and_then(|value| value.get_ref().as_table());
    for (name, _) in names.iter().zip(is_used).filter(|(_, is_used)| !is_used) {
        let Some((key, _)) = table.and_then(|table| table.get_key_value(name.as_str())) else { continue };
        let title = format!("identity `{name}` is not used, so it is never verified");
        let help = "use it in the `key` of a limit, in `[access]` or in `[plans]`, or remove it";
        root.context.note(Problem::warning("unused_identity", key.span(), title).help(help));
    }
}

/// Warns of identities that limits need for some requests of a route and not for others, unless requirements say which
/// requests need them: all of the limit, or all of the route.
pub(super) fn of_partly_guarded(limits: &NamedLimits<'_>, policy: &Policy, routes: Option<&Routes>) {
    for (index, identity) in policy.identities.iter().enumerate() {
        if identity.on_missing != OnMissing::Reject {
            continue;
        }
        let open = open_routes(routes, index);
        let guards: Vec<_> = limits.all.iter().filter(|(limit, _)| needs(policy, limit, index)).collect();
        let required = requirements(policy, index);
        let pairs = guards.len().saturating_mul(open.len() + required.len());
        if pairs.saturating_add(open.len().saturating_mul(required.len())) > COMPARISONS_MAX {
            continue;
        }
        let guarded: Vec<_> = guards.iter().map(|(guard, _)| guarded_by(guard)).collect();
        let needed: Vec<_> = guarded.iter().chain(required.iter().copied()).collect();
        let unsaid: Vec<_> = guards.iter().filter(|(guard, _)| !is_covered(&guard.matches, &required)).collect();
        let partly = open.iter().find_map(|route| {
            let guard = unsaid.iter().find(|(guard, _)| guard.matches.overlaps(route))?;
            (!is_covered(route, &needed)).then_some(guard)
        });
        let Some((limit, at)) = partly else { continue };
        let (name, limit) = (&identity.name, &limit.name);
        let title =
            format!("limit `{limit}` needs the identity `{name}`, but other requests of the route pass without it");
        let help = format!(
            "say which requests need it, as in `[access] require = [{{ path = \"/api/{{*rest}}\", identity = [\"{name}\"] }}]`"
        );
        limits.warn("partly_guarded", at, title, help);
    }
}

/// Warns of denied values of identities that a client may leave out: the client is not denied then. Of identities that
/// requests must have, those of limits are required there only.
pub(super) fn of_evaded_denials(root: &Table<'_>, policy: &Policy, routes: Option<&Routes>) {
    let Some(access) = policy.access.as_deref() else { return };
    let table = root.get("access").and_then(|access| access.get_ref().as_table());
    let Some(deny) = table.and_then(|access| access.get("deny")) else { return };
    for (index, identity) in policy.identities.iter().enumerate().filter(|(index, _)| access.denies_by(*index)) {
        let guards = policy.limits().iter().filter(|limit| needs(policy, limit, index));
        let guarded: Vec<_> = guards.map(guarded_by).collect();
        let mut required = requirements(policy, index);
        if identity.on_missing == OnMissing::Reject {
            required.extend(&guarded);
        }
        if open_routes(routes, index).iter().all(|route| is_covered(route, &required)) {
            continue;
        }
        let name = &identity.name;
        let title = format!("a client that leaves its `{name}` out is not denied");
        let help = format!("require it, as in `[access] require = [{{ identity = [\"{name}\"] }}]`");
        root.context.note(Problem::warning("evaded_denial", deny.span(), title).help(help));
    }
}

/// The requests of each route that does not require the identity at `index` itself; all requests without `[[route]]`.
fn open_routes(routes: Option<&Routes>, index: usize) -> Vec<&Match> {
    static ALL: LazyLock<Match> = LazyLock::new(Match::default);
    let Some(routes) = routes else { return vec![&*ALL] };
    routes.all().iter().filter(|route| !route.require.contains(&index)).map(|route| &route.matches).collect()
}

/// The requests for which `access.require` names the identity at `index`.
fn requirements(policy: &Policy, index: usize) -> Vec<&Match> {
    let all = policy.access.iter().flat_map(|access| access.requirements());
    all.filter(|one| one.identities.contains(&index)).map(|one| &one.matches).collect()
}

/// The requests whose identities the limit verifies, but for paths that it excepts: of any client and with any body.
fn guarded_by(limit: &Limit) -> Match {
    Match { networks: Networks::default(), json: Vec::new(), ..limit.matches.clone() }
}

/// Whether each of `requests` is in one of `parts`, but for paths that they except. `false` also if that is unknown.
fn is_covered(requests: &Match, parts: &[&Match]) -> bool {
    let is_for_all_paths = |part: &Match| part.paths.iter().any(PathPattern::matches_all);
    let has_all = |part: &Match, requests: &Match| {
        is_for_all_paths(part) && Match { paths: Vec::new(), ..part.clone() }.covers(requests)
    };
    let by_one = |requests: &Match| parts.iter().any(|part| part.covers(requests) || has_all(part, requests));
    let by_paths =
        || requests.paths.iter().all(|path| by_one(&Match { paths: vec![path.clone()], ..requests.clone() }));
    by_one(requests) || !requests.paths.is_empty() && by_paths()
}

/// Whether a decision of the limit needs the identity at `index`.
fn needs(policy: &Policy, limit: &Limit, index: usize) -> bool {
    let for_plan = || plan_identity(policy) == Some(index) && limit.allowed.has_plans();
    limit.needs_identity() && (has_key(limit, index) || for_plan())
}

fn has_key(limit: &Limit, index: usize) -> bool {
    limit.key.contains(&KeyPart::Identity(index))
}

/// The identity that has the plan.
fn plan_identity(policy: &Policy) -> Option<usize> {
    match policy.plans {
        Some(PlanSource::Claim(index)) => Some(index),
        _ => None,
    }
}
