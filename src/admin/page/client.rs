//! One client: what all limits that it meets say, its bans and its last requests.

use askama::Template;
use http::StatusCode;

use super::decisions::Decisions;
use super::fields::{FormFields, link};
use super::pages::PageRequest;
use super::shell::{Shell, page};
use crate::admin::answer::{Answer, Refused};
use crate::admin::client::{self, ClientBody};
use crate::admin::followed;

#[derive(Template)]
#[template(path = "client.html", config = "src/admin/page/askama.toml")]
struct ClientPage {
    shell: Shell,
    entered: FormFields,
    /// The parts of keys, of which a client has some.
    parts: Vec<String>,
    client: Option<ClientBody>,
    /// Whether a key of the client is known.
    has_keys: bool,
    /// The last requests; `None` if all taps are open.
    decisions: Option<Decisions>,
    /// This page.
    again: String,
    /// Why the client is not shown.
    missing: Option<String>,
}

/// The page, or a form to search for a client.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest) -> Answer {
    let (mut client, mut decisions, mut missing, mut status) = (None, None, None, StatusCode::OK);
    if let Some(key) = query.filled("key") {
        match client::shown(&pages.admin, key, None).await {
            Ok((body, filter)) => {
                let followed = filter.and_then(|filter| followed::look(&pages.admin, &pages.followed, &filter));
                (client, decisions) = (Some(body), followed.map(Decisions::of));
            }
            Err(Refused(refused, detail)) => (status, missing) = (refused, Some(detail)),
        }
    }
    let has_keys = client.iter().flat_map(|client| &client.limits).any(|limit| !limit.keys.is_empty());
    let title = client.as_ref().map_or_else(|| "Clients".to_owned(), |_| format!("Client {}", query.get("key")));
    let shell = Shell::new(&visitor, "Clients", &query).with_title(title);
    let parts = client::part_names(&pages.admin.live.load()).into_iter().collect();
    let again = link("/client", &[("key", query.get("key"))]);
    page(status, &ClientPage { shell, parts, client, has_keys, decisions, again, missing, entered: query })
}
