//! One limit: its numbers, the keys that it refuses now, and those that it refused most.

use askama::Template;
use http::StatusCode;
use serde_json::Value;

use super::chart::{Chart, Range};
use super::confirm;
use super::fields::{FormFields, link};
use super::limits::Described;
use super::pages::{PageRequest, Pages};
use super::paging::{self, Paging};
use super::refused_keys::{RefusedKey, refused_most};
use super::shell::{self, Shell, Shown, page, see_other};
use super::words;
use crate::admin::keys::{LimitedBody, LimitedPage};
use crate::admin::rates::adapted_in_words;
use crate::admin::series::LimitHistoryBody;
use crate::engine::gate::TOP_KEYS;
use crate::engine::limit::Scale;
use crate::engine::policy::Limit;

/// Keys of the list of refused keys.
const TOP_SHOWN: usize = 20;

/// The orders of limited keys, with their words.
const ORDERS: &[(&str, &str)] = &[("waiting", "most waiting requests"), ("wait", "longest wait"), ("name", "name")];

#[derive(Template)]
#[template(path = "limit.html", config = "src/admin/page/askama.toml")]
struct LimitView {
    shell: Shell,
    entered: FormFields,
    range: Range,
    /// The address of this page, before further parameters.
    ranges_path: String,
    limit: Described,
    charts: Vec<Chart>,
    /// The numbers of the limit over time, if they change.
    ramp: Option<Chart>,
    /// The part of the rate that is in force, if it follows a signal.
    adapted: Option<String>,
    limited: Vec<LimitedBody>,
    paging: Paging,
    orders: &'static [(&'static str, &'static str)],
    top: Vec<RefusedKey>,
}

/// The page.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest) -> Shown {
    let name = query.get("name");
    let Some(((limit, ramp, adapted), top)) = described(&pages, name) else {
        return Err(shell::problem(StatusCode::NOT_FOUND, "The configuration in force has no such limit."));
    };
    // All pages until this one, so that they have one order.
    let n = (paging::number(&query) * paging::ROWS).to_string();
    let (search, sort) = (query.get("search"), query.filled("sort").unwrap_or("waiting"));
    let asked =
        [("limit", name), ("limited", "true"), ("named_first", "true"), ("search", search), ("sort", sort), ("n", &n)];
    let listed = pages.api.get::<LimitedPage>(&visitor.operator, "/v1/keys", &asked).await;
    let LimitedPage { count, keys, .. } = listed.map_err(shell::refused)?;
    let paging = Paging::of("/limit", &query, count);
    let limited = keys.into_iter().skip(paging.before()).collect();
    let (shell, range) =
        (Shell::new(&visitor, "Limits", &query).with_title(format!("Limit {name}")), Range::of(&query));
    let template = LimitView {
        shell,
        charts: charts(&pages, name, &range),
        ramp,
        adapted,
        range,
        ranges_path: link("/limit", &[("name", name)]) + "&",
        limit,
        limited,
        paging,
        orders: ORDERS,
        top,
        entered: query,
    };
    Ok(page(StatusCode::OK, &template))
}

/// Gives all units back to all keys of the limit.
pub(super) async fn reset(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let name = fields.get("name");
    let form = ("Limits", "/limit/reset", &*link("/limit", &[("name", name)]));
    let title = format!("Reset all keys of the limit {name}?");
    let effect = "All keys get all their units back now, so each client may send a whole burst again. Bans stay.";
    confirm::ask(&visitor, &fields, form, (title, effect, "Reset all keys"))?;
    let asked = [("limit", name), ("reason", fields.get("reason"))];
    let reset = pages.api.delete::<Value>(&visitor.operator, "/v1/keys/all", &asked).await.map_err(shell::refused)?;
    let done = if reset["more"] == 0 { "reset_all" } else { "reset_many" };
    Ok(see_other(&link("/limit", &[("name", name), ("done", done)])))
}

/// The decisions and the headroom.
fn charts(pages: &Pages, name: &str, range: &Range) -> Vec<Chart> {
    let history = pages.admin.history.last(range.samples());
    let of_limit = history.limits.into_iter().find(|one| *one.limit == *name);
    let Some(LimitHistoryBody { headroom, admitted, held, refused, .. }) = of_limit else { return Vec::new() };
    let rates = [("admitted", admitted), ("held", held), ("refused", refused)];
    let rates = rates.map(|(name, rates)| (name.to_owned(), rates.into_iter().map(Some).collect())).into();
    let part = |part: f32| words::percent(Some(f64::from(part)));
    let headroom = vec![("mean headroom".to_owned(), headroom)];
    let charts = [
        Chart::of("Decisions", &history.at_s, rates, None, words::rate),
        Chart::of("Headroom after a decision", &history.at_s, headroom, Some(1.0), part),
    ];
    charts.into_iter().flatten().collect()
}

/// The parts of the written numbers over time.
#[expect(clippy::cast_precision_loss)] // a line for the eye
fn ramp_chart(limit: &Limit) -> Option<Chart> {
    let ramp = limit.ramp.as_ref()?;
    let part = |scale: Scale| scale.numerator as f32 / scale.denominator as f32;
    let text = |part: f32| words::percent(Some(f64::from(part)));
    let (at_s, parts): (Vec<u64>, Vec<Option<f32>>) =
        ramp.schedule().map(|(at, scale)| (at.as_ns() / 1_000_000_000, Some(part(scale)))).unzip();
    let chart = Chart::of("Ramp", &at_s, vec![("part of the numbers".to_owned(), parts)], None, text)?;
    Some(chart.over_days(&at_s, &text(part(ramp.scale(limit.ramp_steps)))))
}

/// The limit in words, its ramp, and its part of the rate.
type LimitParts = (Described, Option<Chart>, Option<String>);

/// The parts of a limit, and the keys that it refused most.
fn described(pages: &Pages, name: &str) -> Option<(LimitParts, Vec<RefusedKey>)> {
    let live = pages.admin.live.load();
    let (index, limit) = live.policy.limits().iter().enumerate().find(|(_, limit)| *limit.name == *name)?;
    let adapted = live.adapted_rate(index).map(adapted_in_words);
    let top = refused_most(pages.admin.gate.top(&live, Some(name), TOP_KEYS), TOP_SHOWN);
    Some(((Described::of(&live.policy, limit), ramp_chart(limit), adapted), top))
}
