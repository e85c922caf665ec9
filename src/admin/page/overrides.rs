//! Overrides and plans that were set at run time: the list, a new one, and the end of one.

use std::hash::BuildHasher;

use askama::Template;
use http::StatusCode;
use serde_json::{Value, json};

use super::fields::{FormFields, json_of, link};
use super::pages::{PageRequest, Pages};
use super::paging::{Paging, paged};
use super::shell::{Shell, Visitor, page, see_other};
use super::words;
use crate::admin::answer::{Answer, Refused};
use crate::admin::edits::{seconds_left, shown_key};
use crate::base::time::Timestamp;
use crate::engine::gate::Live;
use crate::engine::policy::overrides::Override;

#[derive(Template)]
#[template(path = "overrides.html", config = "src/admin/page/askama.toml")]
struct OverridesPage {
    shell: Shell,
    entered: FormFields,
    /// The names of all limits.
    limits: Vec<String>,
    overrides: Vec<OverrideRow>,
    paging: Paging,
}

struct OverrideRow {
    limit: String,
    key: String,
    to: String,
    /// Why it does not apply.
    why: Option<Box<str>>,
    reference: String,
}

/// The page.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest) -> Answer {
    view(&pages, &visitor, query, None)
}

/// Sets an override.
pub(super) async fn set(PageRequest { pages, visitor, fields }: PageRequest) -> Answer {
    let (limit, key, to) = (fields.get("limit"), json_of(fields.get("key")), json_of(fields.get("to")));
    let (length, reason) = (fields.filled("for"), fields.filled("reason"));
    let replace = fields.filled("replace").is_some();
    let body = json!({ "limit": limit, "key": key, "to": to, "for": length, "reason": reason, "replace": replace });
    match pages.api.post::<Value>(&visitor.operator, "/v1/overrides", &body).await {
        Ok(changed) => see_other(&link("/overrides", &[("done", done(&changed))])),
        Err(refused) => view(&pages, &visitor, fields, Some(refused)),
    }
}

/// The outcome of a change, as a redirection has it.
pub(super) fn done(changed: &Value) -> &'static str {
    match (changed["to"].is_null(), changed["not_kept"].is_null()) {
        (true, _) => "removed",
        (false, true) => "override",
        (false, false) => "override_not_kept",
    }
}

/// Removes an override.
pub(super) async fn remove(PageRequest { pages, visitor, fields }: PageRequest) -> Answer {
    let removed = match referred(&pages, fields.get("reference")) {
        Some(Override { limit, key, .. }) => {
            let asked = [("limit", &*limit), ("key", &*key), ("reason", fields.get("reason"))];
            pages.api.delete::<Value>(&visitor.operator, "/v1/overrides", &asked).await
        }
        None => Err(Refused(StatusCode::NOT_FOUND, "There is no such override any more.".to_owned())),
    };
    match removed {
        Ok(_) => see_other(&link("/overrides", &[("done", "removed")])),
        Err(refused) => view(&pages, &visitor, FormFields::default(), Some(refused)),
    }
}

/// The word for an override in forms. It does not show the key, which may be a secret, and holds in this process only.
fn reference(pages: &Pages, one: &Override) -> String {
    format!("{:016x}", pages.references.hash_one((&one.limit, &one.key)))
}

fn referred(pages: &Pages, word: &str) -> Option<Override> {
    pages.admin.overrides.in_force.load().iter().find(|one| reference(pages, one) == word).cloned()
}

fn view(pages: &Pages, visitor: &Visitor, entered: FormFields, refused: Option<Refused>) -> Answer {
    let (status, error) = refused.map(|Refused(status, detail)| (status, detail)).unzip();
    let shell = Shell::new(visitor, "Overrides", &entered).with_error(error);
    let live = pages.admin.live.load();
    let limits = live.policy.nameable_limits().map(str::to_owned).collect();
    let rows = pages.admin.overrides.in_force.load().iter().map(|one| row(pages, &live, one)).collect();
    let (overrides, paging) = paged(rows, "/overrides", &entered, |one| [&*one.key, &*one.limit, &*one.to]);
    page(status.unwrap_or(StatusCode::OK), &OverridesPage { shell, entered, limits, overrides, paging })
}

fn ends_in(until: Timestamp) -> String {
    format!(", ends in {}", words::wait(Some(seconds_left(until) * 1000), ""))
}

fn row(pages: &Pages, live: &Live, one: &Override) -> OverrideRow {
    OverrideRow {
        limit: one.limit.to_string(),
        key: words::value(&shown_key(&pages.admin.gate, live, &one.limit, &one.key)),
        to: words::value(&one.allowance) + &one.until.map(ends_in).unwrap_or_default(),
        why: one.rejection.clone(),
        reference: reference(pages, one),
    }
}
