//! Bans: the list, a ban of addresses or of a key, and the end of a ban.

use askama::Template;
use http::StatusCode;
use serde_json::Value;

use super::confirm;
use super::fields::{FormFields, json_of, link};
use super::pages::{PageRequest, Pages};
use super::paging::{Paging, paged};
use super::shell::{self, Shell, Shown, Visitor, page, see_other};
use super::words;
use crate::admin::answer::Refused;
use crate::admin::ban_changes::ChangedBanBody;
use crate::admin::bans::{BanBody, BansBody};
use crate::admin::body;

#[derive(Template)]
#[template(path = "bans.html", config = "src/admin/page/askama.toml")]
struct BansPage {
    shell: Shell,
    entered: FormFields,
    /// The names of all limits.
    limits: Vec<String>,
    /// Each with its target in words.
    bans: Vec<(String, BanBody)>,
    paging: Paging,
    more: usize,
}

/// The page.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest) -> Shown {
    view(&pages, &visitor, query, None).await
}

/// Bans addresses, or a key of a limit.
pub(super) async fn add(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let target = fields
        .filled("address")
        .map_or_else(|| format!("the key {} of the limit {}", fields.get("key"), fields.get("limit")), str::to_owned);
    // The API refuses other texts.
    let is_network = fields.filled("address").is_none_or(|text| body::network(text).is_some());
    if is_network {
        confirm::ask_ban(&visitor, &fields, ("Bans", "/bans/add", "/bans"), &target)?;
    }
    match ban(&pages, &visitor, &fields).await {
        Ok(done) => Ok(see_other(&link("/bans", &[("done", done)]))),
        Err(refused) => view(&pages, &visitor, fields, Some(refused)).await,
    }
}

/// Lifts a ban.
pub(super) async fn remove(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    confirm::ask_lift(&visitor, &fields, ("Bans", "/bans/lift", "/bans"))?;
    match lift(&pages, &visitor, &fields).await {
        Ok(done) => Ok(see_other(&link("/bans", &[("done", done)]))),
        Err(refused) => view(&pages, &visitor, FormFields::default(), Some(refused)).await,
    }
}

/// Lifts all bans of a limit, or of addresses within a network.
pub(super) async fn remove_all(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let (asked, of) = match (fields.get("limit"), fields.get("address")) {
        (limit, "") if !limit.is_empty() => (("limit", limit), format!("of the limit {limit}")),
        ("", network) if !network.is_empty() => (("address", network), format!("of addresses within {network}")),
        _ => {
            let refused = Refused(StatusCode::BAD_REQUEST, "Choose a limit, or name a network.".to_owned());
            return view(&pages, &visitor, fields, Some(refused)).await;
        }
    };
    let title = match count(&pages, &visitor, asked).await {
        Ok(1) => format!("Lift the one ban {of}?"),
        Ok(bans) => format!("Lift all {bans} bans {of}?"),
        Err(refused) => return view(&pages, &visitor, fields, Some(refused)).await,
    };
    let form = ("Bans", "/bans/lift-all", "/bans");
    let effect = "Requests of all these clients pass again, as far as limits admit them.";
    confirm::ask(&visitor, &fields, form, (title, effect, "Lift all these bans"))?;
    let asked = [asked, ("reason", fields.get("reason"))];
    match pages.api.delete::<Value>(&visitor.operator, "/v1/bans/all", &asked).await {
        Ok(lifted) if lifted["not_kept"].is_null() => Ok(see_other(&link("/bans", &[("done", "lifted_all")]))),
        Ok(_) => Ok(see_other(&link("/bans", &[("done", "lifted_not_kept")]))),
        Err(refused) => view(&pages, &visitor, fields, Some(refused)).await,
    }
}

/// The number of bans of a limit, or of addresses within a network.
async fn count(pages: &Pages, visitor: &Visitor, asked: (&str, &str)) -> Result<usize, Refused> {
    let (of_limit, network) = if asked.0 == "limit" { (Some(asked), None) } else { (None, body::network(asked.1)) };
    let listed = pages.api.get::<BansBody>(&visitor.operator, "/v1/bans", of_limit.as_slice()).await?;
    if of_limit.is_some() {
        return Ok(listed.bans.len() + listed.more);
    }
    let banned = listed.bans.iter().filter_map(|ban| body::network(ban.address.as_deref()?));
    Ok(banned.filter(|banned| network.is_some_and(|network| network.contains(banned))).count())
}

/// Bans the clients that the fields name. Returns the word of the outcome.
pub(super) async fn ban(pages: &Pages, visitor: &Visitor, fields: &FormFields) -> Result<&'static str, Refused> {
    let mut body = fields.object(&["limit", "id", "address", "reason"]);
    let key = fields.filled("key").map(json_of);
    let length = confirm::ban_length(fields).map(Value::from);
    for (name, value) in [("key", key), ("for", length)] {
        if let (Some(value), Some(body)) = (value, body.as_object_mut()) {
            body.insert(name.to_owned(), value);
        }
    }
    let changed = pages.api.post::<ChangedBanBody>(&visitor.operator, "/v1/bans", &body).await?;
    Ok(if changed.not_kept.is_none() { "banned" } else { "banned_not_kept" })
}

/// Lifts the ban that the fields name. Returns the word of the outcome.
pub(super) async fn lift(pages: &Pages, visitor: &Visitor, fields: &FormFields) -> Result<&'static str, Refused> {
    let asked = ["limit", "key", "id", "address", "reason"].map(|name| (name, fields.get(name)));
    let changed = pages.api.delete::<ChangedBanBody>(&visitor.operator, "/v1/bans", &asked).await?;
    Ok(if changed.not_kept.is_none() { "lifted" } else { "lifted_not_kept" })
}

async fn view(pages: &Pages, visitor: &Visitor, entered: FormFields, refused: Option<Refused>) -> Shown {
    let listed = pages.api.get(&visitor.operator, "/v1/bans", &[]).await;
    let BansBody { bans, more } = listed.map_err(shell::refused)?;
    let (status, error) = refused.map(|Refused(status, detail)| (status, detail)).unzip();
    let shell = Shell::new(visitor, "Bans", &entered).with_error(error);
    let limits = pages.admin.live.load().policy.nameable_limits().map(str::to_owned).collect();
    let rows = bans.into_iter().map(|ban| (target(&ban), ban)).collect();
    let (bans, paging) = paged(rows, "/bans", &entered, |(target, ban): &(String, BanBody)| {
        [target, ban.limit.as_deref().unwrap_or_default(), ban.reason.as_deref().unwrap_or_default()]
    });
    Ok(page(status.unwrap_or(StatusCode::OK), &BansPage { shell, entered, limits, bans, paging, more }))
}

/// The addresses or the key of a ban in words.
fn target(BanBody { key, id, address, .. }: &BanBody) -> String {
    let of_key = || key.as_ref().map_or_else(|| format!("id {}", id.as_deref().unwrap_or_default()), words::value);
    address.clone().unwrap_or_else(of_key)
}
