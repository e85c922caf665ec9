//! API keys: the list, a first key of an owner, a rotation, and the end of keys. A new key is in one answer only.

use askama::Template;
use http::StatusCode;

use super::confirm;
use super::fields::FormFields;
use super::pages::{PageRequest, Pages};
use super::paging::{Paging, paged};
use super::shell::{self, Shell, Shown, Visitor, page};
use crate::admin::answer::Refused;
use crate::admin::api_keys::{ApiKeyBody, ApiKeyOwnerBody, ApiKeyOwnersBody, ChangedApiKeysBody};

const ENTRY: &str = "API keys";

#[derive(Template)]
#[template(path = "api_keys.html", config = "src/admin/page/askama.toml")]
struct ApiKeysPage {
    shell: Shell,
    entered: FormFields,
    /// The names of the identities with API keys.
    identities: Vec<String>,
    /// Each with its owner.
    keys: Vec<(ApiKeyOwnerBody, ApiKeyBody)>,
    paging: Paging,
    more: usize,
    /// The change that was made.
    changed: Option<ChangedApiKeysBody>,
}

/// The page.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest) -> Shown {
    view(&pages, &visitor, query, Ok(None)).await
}

/// Makes the first key of an owner.
pub(super) async fn create(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let body = fields.object(&["identity", "name", "plan", "expires", "reason"]);
    let made = pages.api.post(&visitor.operator, "/v1/apikeys", &body).await;
    let entered = if made.is_ok() { FormFields::default() } else { fields };
    view(&pages, &visitor, entered, made.map(Some)).await
}

/// Makes another key of an owner.
pub(super) async fn rotate(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let form = (ENTRY, "/apikeys/rotate", "/apikeys");
    let title = format!("Make another API key of {}?", fields.get("name"));
    confirm::ask(&visitor, &fields, form, (title, "The old key stays valid for 24 hours.", "Rotate the key"))?;
    let body = fields.object(&["identity", "name", "reason"]);
    let made = pages.api.post(&visitor.operator, "/v1/apikeys/rotate", &body).await;
    view(&pages, &visitor, FormFields::default(), made.map(Some)).await
}

/// Revokes one key.
pub(super) async fn revoke(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let form = (ENTRY, "/apikeys/revoke", "/apikeys");
    let title = format!("Revoke the API key {} of {}?", fields.get("id"), fields.get("name"));
    let effect = "Each request with this key gets 401 from now on. It cannot be valid again.";
    confirm::ask(&visitor, &fields, form, (title, effect, "Revoke the key"))?;
    let asked = ["identity", "name", "id", "reason"].map(|name| (name, fields.get(name)));
    let made = pages.api.delete(&visitor.operator, "/v1/apikeys", &asked).await;
    view(&pages, &visitor, FormFields::default(), made.map(Some)).await
}

async fn view(
    pages: &Pages,
    visitor: &Visitor,
    entered: FormFields,
    made: Result<Option<ChangedApiKeysBody>, Refused>,
) -> Shown {
    let listed = pages.api.get(&visitor.operator, "/v1/apikeys", &[]).await;
    let ApiKeyOwnersBody { owners, more } = listed.map_err(shell::refused)?;
    let (changed, refused) = made.map_or_else(|refused| (None, Some(refused)), |changed| (changed, None));
    let (status, error) = refused.map(|Refused(status, detail)| (status, detail)).unzip();
    let shell = Shell::new(visitor, ENTRY, &entered).with_error(error);
    let live = pages.admin.live.load();
    let identities = live.policy.api_keys().map(|(identity, _)| identity.to_owned()).collect();
    let of_owner =
        |mut owner: ApiKeyOwnerBody| std::mem::take(&mut owner.keys).into_iter().map(move |key| (owner.clone(), key));
    let rows = owners.into_iter().flat_map(of_owner).collect();
    let (keys, paging) = paged(rows, "/apikeys", &entered, |(owner, key): &(ApiKeyOwnerBody, ApiKeyBody)| {
        [&*owner.name, owner.plan.as_deref().unwrap_or_default(), &*key.id]
    });
    Ok(page(status.unwrap_or(StatusCode::OK), &ApiKeysPage { shell, entered, identities, keys, paging, more, changed }))
}
