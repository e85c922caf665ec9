//! One client: what all limits that it meets say, its bans and its last requests.

use askama::Template;
use http::StatusCode;

use super::decisions::Decisions;
use super::fields::{FormFields, link};
use super::pages::PageRequest;
use super::shell::{Shell, page};
use super::words;
use crate::admin::answer::{Answer, Refused};
use crate::admin::client::{self, ClientBody, ClientKeyBody};
use crate::admin::followed;

#[derive(Template)]
#[template(path = "client.html", config = "src/admin/page/askama.toml")]
struct ClientPage {
    shell: Shell,
    entered: FormFields,
    /// The parts of keys, of which a client has some.
    parts: Vec<String>,
    client: Option<ClientBody>,
    keys: Vec<KeyRow>,
    /// The limits of which no key with these parts is known: the limit, and the missing parts.
    unknown: Vec<(String, String)>,
    /// The last requests; `None` if all taps are open.
    decisions: Option<Decisions>,
    /// This page.
    again: String,
    /// Why the client is not shown.
    missing: Option<String>,
}

/// A key of the client.
struct KeyRow {
    limit: String,
    name: String,
    link: String,
    passes: bool,
    verdict: String,
    remaining: String,
    rule: String,
    from: String,
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
    let limits = client.iter().flat_map(|client| &client.limits);
    let keys = limits.clone().flat_map(|limit| &limit.keys).map(KeyRow::of).collect();
    let unknown = limits.filter(|limit| limit.keys.is_empty());
    let unknown = unknown.map(|limit| (limit.limit.clone(), limit.missing.join(", "))).collect();
    let title = client.as_ref().map_or_else(|| "Clients".to_owned(), |_| format!("Client {}", query.get("key")));
    let shell = Shell::new(&visitor, "Clients", &query).with_title(title);
    let parts = client::part_names(&pages.admin.live.load()).into_iter().collect();
    let again = link("/client", &[("key", query.get("key"))]);
    page(status, &ClientPage { shell, parts, client, keys, unknown, decisions, again, missing, entered: query })
}

impl KeyRow {
    fn of(ClientKeyBody { verdict, passes, override_until, key }: &ClientKeyBody) -> Self {
        let parts = key.key.iter().flatten().map(|(name, text)| format!("{name} {text}"));
        let name = parts.collect::<Vec<_>>().join(", ");
        let until = override_until.as_deref().map(|until| format!(", until {}", words::instant(until)));
        Self {
            limit: key.limit.clone(),
            name: if name.is_empty() { "all requests".to_owned() } else { name },
            link: link("/key", &[("limit", &key.limit), ("id", &key.id)]),
            passes: *passes,
            verdict: verdict.clone(),
            remaining: key.remaining_in_words(),
            rule: key.rule.clone().unwrap_or_else(|| "unlimited".to_owned()),
            from: format!("{}{}", key.from, until.unwrap_or_default()),
        }
    }
}
