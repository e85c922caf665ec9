//! Bans: the list, a ban of addresses or of a key, and the end of a ban.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use http::{StatusCode, Uri};

use super::fields::{FormFields, json_of, link};
use super::pages::Pages;
use super::shell::{self, Shell, Visitor, page, see_other};
use super::words;
use crate::admin::answer::{Answer, Refused};
use crate::admin::bans::{BanBody, BansBody, ChangedBanBody};

#[derive(Template)]
#[template(path = "bans.html", config = "src/admin/page/askama.toml")]
struct BansPage {
    shell: Shell,
    entered: FormFields,
    /// The names of all limits.
    limits: Vec<String>,
    bans: Vec<BanRow>,
    more: usize,
}

/// A ban in words, with the fields that name it.
struct BanRow {
    target: String,
    /// The page of the key; empty for addresses.
    link: String,
    limit: String,
    id: String,
    address: String,
    since: String,
    until: String,
    by: String,
    reason: String,
    left_out: Option<String>,
}

/// The page.
pub(super) async fn show(State(pages): State<Arc<Pages>>, Extension(visitor): Extension<Visitor>, uri: Uri) -> Answer {
    let query = FormFields::parse(uri.query().unwrap_or_default().as_bytes());
    view(&pages, &visitor, query, None).await
}

/// Bans addresses, or a key of a limit.
pub(super) async fn add(
    State(pages): State<Arc<Pages>>,
    Extension(visitor): Extension<Visitor>,
    Extension(fields): Extension<FormFields>,
) -> Answer {
    match ban(&pages, &visitor, &fields).await {
        Ok(done) => see_other(&link("/bans", &[("done", done)])),
        Err(refused) => view(&pages, &visitor, fields, Some(refused)).await,
    }
}

/// Lifts a ban.
pub(super) async fn remove(
    State(pages): State<Arc<Pages>>,
    Extension(visitor): Extension<Visitor>,
    Extension(fields): Extension<FormFields>,
) -> Answer {
    match lift(&pages, &visitor, &fields).await {
        Ok(done) => see_other(&link("/bans", &[("done", done)])),
        Err(refused) => view(&pages, &visitor, FormFields::default(), Some(refused)).await,
    }
}

/// Bans the clients that the fields name. Returns the word of the outcome.
pub(super) async fn ban(pages: &Pages, visitor: &Visitor, fields: &FormFields) -> Result<&'static str, Refused> {
    let mut body = fields.object(&["limit", "id", "address", "for", "reason"]);
    if let (Some(key), Some(body)) = (fields.filled("key"), body.as_object_mut()) {
        body.insert("key".to_owned(), json_of(key));
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

async fn view(pages: &Pages, visitor: &Visitor, entered: FormFields, refused: Option<Refused>) -> Answer {
    let BansBody { bans, more } = match pages.api.get::<BansBody>(&visitor.operator, "/v1/bans", &[]).await {
        Ok(listed) => listed,
        Err((status, detail)) => return shell::problem(status, &detail),
    };
    let (status, error) = refused.unzip();
    let shell = Shell::new(visitor, "Bans", &entered).with_error(error);
    let limits = pages.admin.live.load().policy.limits().iter().map(|limit| limit.name.to_string()).collect();
    let bans = bans.into_iter().map(BanRow::of).collect();
    page(status.unwrap_or(StatusCode::OK), &BansPage { shell, entered, limits, bans, more })
}

impl BanRow {
    fn of(ban: BanBody) -> Self {
        let BanBody { limit, key, id, address, since, until, by, token, reason, left_out } = ban;
        let (limit, id, address) = (limit.unwrap_or_default(), id.unwrap_or_default(), address.unwrap_or_default());
        let of_key = || key.as_ref().map_or_else(|| format!("id {id}"), words::value);
        Self {
            target: if address.is_empty() { of_key() } else { address.clone() },
            link: if id.is_empty() { String::new() } else { link("/key", &[("limit", &limit), ("id", &id)]) },
            since: since.as_deref().map(words::instant).unwrap_or_default(),
            until: until.as_deref().map_or_else(|| "for good".to_owned(), words::instant),
            by: token.unwrap_or(by),
            reason: reason.unwrap_or_default(),
            limit,
            id,
            address,
            left_out,
        }
    }
}
