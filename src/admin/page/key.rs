//! One key of a limit: its state, and the changes of it.

use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use serde_json::{Value, json};

use super::bans::{ban, lift};
use super::confirm;
use super::decisions::Decisions;
use super::fields::{FormFields, json_of, link};
use super::overrides::done;
use super::pages::{PageRequest, Pages};
use super::shell::{Shell, Shown, Visitor, page, see_other};
use super::verdict::KeyVerdict;
use crate::admin::answer::{Answer, Refused};
use crate::admin::followed;
use crate::admin::key;
use crate::admin::keys::KeyBody;
use crate::base::telemetry::TapFilter;
use crate::engine::gate::{KeyName, TOP_KEYS};
use crate::engine::limit::Key;

#[derive(Template)]
#[template(path = "key.html", config = "src/admin/page/askama.toml")]
struct KeyPage {
    shell: Shell,
    /// The limit, the key and the id that were asked for, and the values of a form that was refused.
    entered: FormFields,
    /// The names of all limits.
    limits: Vec<String>,
    key: Option<KeyView>,
    /// The last requests of the key; `None` if all taps are open.
    decisions: Option<Decisions>,
    /// The page without the outcome of a change.
    again: String,
    /// Why the key is not shown.
    missing: Option<String>,
    /// The path of the form that was refused, whose fields are shown; empty if none was.
    refused: &'static str,
}

/// A key in words.
struct KeyView {
    body: KeyBody,
    name: String,
    verdict: KeyVerdict,
    /// The names of the limit's plans.
    plans: Vec<String>,
}

/// The page, or a form to search for a key.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest) -> Answer {
    view(&pages, &visitor, query, None).await
}

/// Gives all units of the key back.
pub(super) async fn reset(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let form = ("Keys", "/key/reset", &*link("/key", &target(&fields)));
    let title = format!("Reset {}?", fields.get("shown"));
    let effect = "The key gets all its units back now, so its clients may send a whole burst again. A ban stays.";
    confirm::ask(&visitor, &fields, form, (title, effect, "Reset the key"))?;
    let mut asked = target(&fields).to_vec();
    asked.push(("reason", fields.get("reason")));
    let reset = pages.api.delete::<Value>(&visitor.operator, "/v1/keys", &filled(asked)).await;
    Ok(changed(&pages, &visitor, fields.clone(), ("/key/reset", reset.map(|_| "reset"))).await)
}

/// Bans the key.
pub(super) async fn ban_key(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let back = link("/key", &target(&fields));
    confirm::ask_ban(&visitor, &fields, ("Keys", "/key/ban", &back), fields.get("shown"))?;
    let banned = ban(&pages, &visitor, &fields).await;
    Ok(changed(&pages, &visitor, fields, ("/key/ban", banned)).await)
}

/// Lifts the ban of the key.
pub(super) async fn lift_key(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    confirm::ask_lift(&visitor, &fields, ("Keys", "/key/lift", &link("/key", &target(&fields))))?;
    let lifted = lift(&pages, &visitor, &fields).await;
    Ok(changed(&pages, &visitor, fields, ("/key/lift", lifted)).await)
}

/// Sets other numbers for the key, assigns a plan to it, or removes both.
pub(super) async fn set_override(PageRequest { pages, visitor, fields }: PageRequest) -> Answer {
    let (limit, key) = (fields.get("limit"), key_of(&fields));
    let reason = fields.filled("reason");
    let to = match (fields.get("action"), fields.get("plan")) {
        ("remove", _) => Value::Null,
        ("plan", plan) => json!({ "plan": plan }),
        _ => json_of(fields.get("to")),
    };
    let length = fields.filled("for").filter(|_| !to.is_null());
    let replace = fields.filled("replace").is_some();
    let body = json!({ "limit": limit, "key": key, "to": to, "for": length, "reason": reason, "replace": replace });
    let set = pages.api.post::<Value>(&visitor.operator, "/v1/overrides", &body).await;
    changed(&pages, &visitor, fields, ("/key/override", set.map(|set| done(&set)))).await
}

/// Charges the key, or gives units back.
pub(super) async fn charge(PageRequest { pages, visitor, fields }: PageRequest) -> Answer {
    let units = fields.get("units").parse::<i64>();
    let charged = match units {
        Err(_) => Err("units: expected a whole number".to_owned().into()),
        Ok(units) => {
            let (limit, key, reason) = (fields.get("limit"), key_of(&fields), fields.filled("reason"));
            let body = json!({ "limit": limit, "key": key, "units": units, "reason": reason });
            pages.api.post::<Value>(&visitor.operator, "/v1/spend", &body).await
        }
    };
    changed(&pages, &visitor, fields.clone(), ("/key/charge", charged.map(|_| "charged"))).await
}

/// The key in the fields as a body has it.
fn key_of(fields: &FormFields) -> Value {
    fields.filled("id").map_or_else(|| json_of(fields.get("key")), |id| Value::from(format!("#{id}")))
}

/// The page after the change of `form`, or the page with the reason why there was none.
async fn changed(
    pages: &Arc<Pages>,
    visitor: &Visitor,
    fields: FormFields,
    (form, outcome): (&'static str, Result<&'static str, Refused>),
) -> Answer {
    match outcome {
        Ok(done) => {
            let mut back = target(&fields).to_vec();
            back.push(("done", done));
            see_other(&link("/key", &back))
        }
        Err(refused) => view(pages, visitor, fields, Some((form, refused))).await,
    }
}

/// The limit, the key and the id in the fields.
fn target(fields: &FormFields) -> [(&'static str, &str); 3] {
    ["limit", "key", "id"].map(|name| (name, fields.get(name)))
}

/// The pairs with a value.
fn filled<'f>(pairs: Vec<(&'static str, &'f str)>) -> Vec<(&'static str, &'f str)> {
    pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

async fn view(
    pages: &Arc<Pages>,
    visitor: &Visitor,
    entered: FormFields,
    refused: Option<(&'static str, Refused)>,
) -> Answer {
    let (form, refused) = refused.unzip();
    let (status, error) = refused.map(|Refused(status, detail)| (status, detail)).unzip();
    let limits = pages.admin.live.load().policy.limits().iter().map(|limit| limit.name.to_string()).collect();
    let (mut key, mut decisions, mut missing, mut title) = (None, None, None, "Keys".to_owned());
    let mut found = StatusCode::OK;
    if let Some(limit) = entered.filled("limit") {
        match pages.api.get::<KeyBody>(&visitor.operator, "/v1/keys", &filled(target(&entered).to_vec())).await {
            Ok(body) => {
                decisions = requests_of(pages, limit, &body.id);
                key = KeyView::of(pages, body);
                title = key.as_ref().map_or(title, |key| format!("Key {}", key.name));
            }
            Err(Refused(status, detail)) => (found, missing) = (status, Some(detail)),
        }
    }
    let shell = Shell::new(visitor, "Keys", &entered).with_title(title).with_error(error);
    let again = link("/key", &target(&entered));
    let refused = form.unwrap_or_default();
    page(status.unwrap_or(found), &KeyPage { shell, entered, limits, key, decisions, again, missing, refused })
}

/// The last requests of the key with this id.
fn requests_of(pages: &Arc<Pages>, limit: &str, id: &str) -> Option<Decisions> {
    match key::name_of_id(id) {
        Ok(KeyName::Hash(Key { first, second })) => {
            let filter = TapFilter { keys: vec![(limit.to_owned(), [first, second])], ..TapFilter::default() };
            followed::look(&pages.admin, &pages.followed, &filter).map(Decisions::of)
        }
        _ => None,
    }
}

impl KeyView {
    /// `None` if the limit is gone meanwhile.
    fn of(pages: &Pages, body: KeyBody) -> Option<Self> {
        let live = pages.admin.live.load();
        let limit = live.policy.by_name(&body.limit)?.limit;
        let parts = body.key.as_ref().map(|parts| {
            let parts: Vec<_> = parts.iter().map(|(name, text)| format!("{name} {text}")).collect();
            if parts.is_empty() { "of all requests".to_owned() } else { parts.join(", ") }
        });
        // The list of refused keys, which leads here by the id, knows more.
        let refused = || {
            let top = pages.admin.gate.top(&live, Some(&body.limit), TOP_KEYS);
            let own = top.into_iter().flat_map(|top| top.keys).find(|key| key.hash.id() == body.id)?;
            Some(own.text.into())
        };
        Some(Self {
            verdict: KeyVerdict::of(&body, &limit.on_limit, pages.now()),
            name: parts.or_else(refused).unwrap_or_else(|| format!("with the id {}", body.id)),
            body,
            plans: limit.allowed.plans.iter().map(|(name, _)| name.to_string()).collect(),
        })
    }
}
