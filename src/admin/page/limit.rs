//! One limit: its numbers, the keys that it denies now, and those that it refused most.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use http::{StatusCode, Uri};

use super::chart::Chart;
use super::fields::{FormFields, link};
use super::limits::Described;
use super::pages::Pages;
use super::shell::{self, Shell, Visitor, page};
use super::words;
use crate::admin::answer::Answer;
use crate::admin::keys::LimitedPage;
use crate::admin::series::{LimitHistoryBody, SAMPLES_MAX};
use crate::gate::TopKey;

/// Keys of one page of limited keys.
const LIMITED_KEYS: &str = "50";
/// Keys of the list of refused keys.
const TOP_SHOWN: usize = 20;

#[derive(Template)]
#[template(path = "limit.html", config = "src/admin/page/askama.toml")]
struct LimitView {
    shell: Shell,
    limit: Described,
    charts: Vec<Chart>,
    limited: Vec<LimitedRow>,
    /// The number of limited keys from the first of this page on.
    count: usize,
    next: Option<String>,
    top: Vec<TopRow>,
}

/// A key that was refused or held, with the link to its page.
struct TopRow {
    counted: TopKey,
    link: String,
}

struct LimitedRow {
    name: String,
    link: String,
    remaining: u64,
    retry: String,
    waiting: usize,
}

/// The page.
pub(super) async fn show(State(pages): State<Arc<Pages>>, Extension(visitor): Extension<Visitor>, uri: Uri) -> Answer {
    let query = FormFields::parse(uri.query().unwrap_or_default().as_bytes());
    let name = query.get("name");
    let Some((limit, top)) = described(&pages, name) else {
        return shell::problem(StatusCode::NOT_FOUND, "The configuration in force has no such limit.");
    };
    let asked = [("limit", name), ("limited", "true"), ("n", LIMITED_KEYS), ("after", query.get("after"))];
    let listed = pages.api.get::<LimitedPage>(&visitor.operator, "/v1/keys", &asked).await;
    let LimitedPage { count, keys, next, .. } = match listed {
        Ok(listed) => listed,
        Err((status, detail)) => return shell::problem(status, &detail),
    };
    let row = |key: crate::admin::keys::LimitedBody| LimitedRow {
        link: link("/key", &[("limit", name), ("id", &key.id)]),
        name: key.key.unwrap_or_else(|| format!("id {}", key.id)),
        remaining: key.remaining,
        retry: words::wait(key.retry_after_ms, "unknown"),
        waiting: key.waiting,
    };
    let next = next.map(|next| link("/limit", &[("name", name), ("after", &next)]));
    let limited = keys.into_iter().map(row).collect();
    let shell = Shell::new(&visitor, "Limits", &query).with_title(format!("Limit {name}"));
    page(StatusCode::OK, &LimitView { shell, limit, charts: charts(&pages, name), limited, count, next, top })
}

/// The decisions and the headroom of the last hour.
fn charts(pages: &Pages, name: &str) -> Vec<Chart> {
    let history = pages.admin.history.last(SAMPLES_MAX);
    let of_limit = history.limits.into_iter().find(|one| *one.limit == *name);
    let Some(LimitHistoryBody { headroom, admitted, held, rejected, .. }) = of_limit else { return Vec::new() };
    let rates = [("admitted", admitted), ("held", held), ("rejected", rejected)];
    let rates = rates.map(|(name, rates)| (name.to_owned(), rates.into_iter().map(Some).collect())).into();
    let part = |part: f32| words::percent(Some(f64::from(part)));
    let headroom = vec![("mean headroom".to_owned(), headroom)];
    let charts = [
        Chart::of("Decisions per second", history.every_s, rates, None, words::rate),
        Chart::of("Headroom after a decision", history.every_s, headroom, Some(1.0), part),
    ];
    charts.into_iter().flatten().collect()
}

/// The limit in words, and the keys that it refused most.
fn described(pages: &Pages, name: &str) -> Option<(Described, Vec<TopRow>)> {
    let live = pages.admin.live.load();
    let limit = live.policy.limits().iter().find(|limit| *limit.name == *name)?;
    let top = pages.admin.gate.top(&live, Some(name), TOP_SHOWN).pop();
    let row = |counted: TopKey| TopRow { link: link("/key", &[("limit", name), ("id", &counted.hash.id())]), counted };
    let top = top.into_iter().flat_map(|top| top.keys).map(row).collect();
    Some((Described::of(&live.policy, limit), top))
}
