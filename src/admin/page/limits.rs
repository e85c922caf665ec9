//! All limits: which requests share which limit, and by which numbers.

use askama::Template;
use http::StatusCode;

use super::fields::link;
use super::pages::PageRequest;
use super::shell::{Shell, page};
use super::words;
use crate::admin::answer::Answer;
use crate::admin::explain::share_in_words;
use crate::admin::rates::unit_in_words;
use crate::engine::policy::{Limit, Policy, Stage, Variant};

#[derive(Template)]
#[template(path = "limits.html", config = "src/admin/page/askama.toml")]
struct LimitsPage {
    shell: Shell,
    limits: Vec<Described>,
}

/// A limit in words.
pub(super) struct Described {
    pub(super) name: String,
    pub(super) link: String,
    /// The patterns of the path; empty for all paths.
    pub(super) paths: Vec<String>,
    /// Further conditions.
    pub(super) conditions: Vec<String>,
    /// The names of the parts of the key.
    pub(super) key: String,
    pub(super) rule: String,
    /// The rules of plans, by name.
    pub(super) plans: Vec<(String, String)>,
    pub(super) mode: String,
    /// The action for requests beyond the limit.
    pub(super) action: &'static str,
    pub(super) stage: &'static str,
}

impl Described {
    pub(super) fn of(policy: &Policy, limit: &Limit) -> Self {
        let name = &*limit.name;
        let plans = limit.allowed.plans.iter();
        Self {
            name: name.to_owned(),
            link: link("/limit", &[("name", name)]),
            paths: limit.matches.paths.iter().map(|path| path.as_str().to_owned()).collect(),
            conditions: words::conditions(limit),
            key: words::key_parts(policy, limit),
            rule: words::rule(&limit.allowed, Variant::Usual)
                + &unit_in_words(limit.unit().as_ref(), &limit.allowed.usual)
                + &share_in_words(&limit.strategy, &limit.allowed.usual),
            plans: plans
                .map(|(name, _)| (name.to_string(), words::rule(&limit.allowed, limit.allowed.plan(name))))
                .collect(),
            mode: words::mode(limit),
            action: words::on_limit(&limit.on_limit),
            stage: match limit.stage {
                Stage::Arrival => "arrival",
                Stage::Identified => "identified",
            },
        }
    }
}

/// The page.
pub(super) async fn list(PageRequest { pages, visitor, fields: query }: PageRequest) -> Answer {
    let live = pages.admin.live.load();
    let limits = live.policy.limits().iter().map(|limit| Described::of(&live.policy, limit)).collect();
    page(StatusCode::OK, &LimitsPage { shell: Shell::new(&visitor, "Limits", &query), limits })
}
