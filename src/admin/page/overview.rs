//! The first page: requests by verdict, limits, the configuration, stores and other replicas.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use http::{StatusCode, Uri};

use super::chart::{self, Chart};
use super::configuration::ReloadRow;
use super::fields::{FormFields, link};
use super::pages::Pages;
use super::shell::{Shell, Visitor, page};
use super::words;
use crate::admin::answer::Answer;
use crate::admin::fleet::FleetBody;
use crate::admin::reloads::ReloadBody;
use crate::admin::series::{HistoryBody, SAMPLES_MAX};
use crate::admin::times::rfc3339;
use crate::policy::Limit;
use crate::telemetry::Sample;
use crate::time::Timestamp;

const REQUESTS: &str = "weir_requests_total";
const DECISIONS: &str = "weir_limit_decisions_total";
const HEADROOM: &str = "weir_limit_headroom_ratio";
const WAITING: &str = "weir_held_requests";
const KEYS: &str = "weir_keys";
const BANNED: &str = "weir_banned_keys";
const CONNECTIONS: &str = "weir_connections";
const STORE_UP: &str = "weir_store_up";
const RELOAD_GOOD: &str = "weir_config_last_reload_successful";
const RELOADED_AT: &str = "weir_config_last_reload_timestamp_seconds";

/// All metrics of the page.
const METRICS: &[&str] =
    &[REQUESTS, DECISIONS, HEADROOM, WAITING, KEYS, BANNED, CONNECTIONS, STORE_UP, RELOAD_GOOD, RELOADED_AT];

/// The verdicts with what they mean.
const VERDICTS: &[(&str, &str)] = &[
    ("forwarded", "forwarded at once"),
    ("held", "forwarded after a wait"),
    ("rejected", "refused by a limit"),
    ("refused", "refused for another reason"),
    ("abandoned", "the client left"),
];

#[derive(Template)]
#[template(path = "overview.html", config = "src/admin/page/askama.toml")]
struct OverviewPage {
    shell: Shell,
    /// Verdict, meaning, and requests.
    verdicts: Vec<(&'static str, &'static str, String)>,
    connections: String,
    charts: Vec<Chart>,
    limits: Vec<LimitRow>,
    reload_is_good: bool,
    /// The last reload, if it failed.
    failure: Option<ReloadRow>,
    /// Empty before the first reload.
    reloaded_at: String,
    /// Store, node, and whether the node decides.
    stores: Vec<(String, String, bool)>,
    fleet: Option<FleetBody>,
}

/// A limit with the numbers of its decisions.
struct LimitRow {
    name: String,
    link: String,
    mode: &'static str,
    admitted: String,
    held: String,
    rejected: String,
    headroom: String,
    /// The headroom of the last hour as a path of SVG.
    headroom_path: String,
    waiting: String,
    keys: String,
    banned: String,
}

/// The values of metrics.
struct Samples(Vec<Sample>);

impl Samples {
    fn get(&self, metric: &str, labels: &[&str]) -> Option<f64> {
        self.0.iter().find(|sample| sample.metric == metric && sample.labels == labels).map(|sample| sample.value)
    }

    fn number(&self, metric: &str, labels: &[&str]) -> String {
        words::number(self.get(metric, labels).unwrap_or(0.0))
    }
}

/// The page.
pub(super) async fn show(State(pages): State<Arc<Pages>>, Extension(visitor): Extension<Visitor>, uri: Uri) -> Answer {
    let query = FormFields::parse(uri.query().unwrap_or_default().as_bytes());
    // Without `fleet.listen` there is a problem, and no fleet to show.
    let fleet = pages.api.get::<FleetBody>(&visitor.operator, "/v1/fleet", &[]).await.ok();
    let reloads = pages.api.get::<Vec<ReloadBody>>(&visitor.operator, "/v1/reloads", &[]).await.unwrap_or_default();
    pages.admin.gate.publish();
    let samples = Samples(pages.admin.metrics.samples(METRICS));
    let history = pages.admin.history.last(SAMPLES_MAX);
    let limit = |limit: &Limit| LimitRow::of(limit, &samples, &history);
    let limits = pages.admin.live.load().policy.limits().iter().map(limit).collect();
    let stores = samples.0.iter().filter(|sample| sample.metric == STORE_UP).map(store).collect();
    let verdict =
        |(name, meaning): &(&'static str, &'static str)| (*name, *meaning, samples.number(REQUESTS, &[*name]));
    let template = OverviewPage {
        shell: Shell::new(&visitor, "Overview", &query),
        verdicts: VERDICTS.iter().map(verdict).collect(),
        connections: samples.number(CONNECTIONS, &[]),
        charts: charts(&history),
        limits,
        failure: reloads.into_iter().next().map(ReloadRow::of).filter(|last| !last.is_good),
        reload_is_good: samples.get(RELOAD_GOOD, &[]).is_none_or(|good| good > 0.0),
        reloaded_at: samples.get(RELOADED_AT, &[]).filter(|at| *at > 0.0).map(instant).unwrap_or_default(),
        stores,
        fleet,
    };
    page(StatusCode::OK, &template)
}

/// Requests by verdict, and the latency that Weir adds, in the last hour.
fn charts(history: &HistoryBody) -> Vec<Chart> {
    let of_verdict = |(name, _): &(&'static str, &'static str)| {
        let rates = history.requests.get(*name)?;
        Some(((*name).to_owned(), rates.iter().copied().map(Some).collect()))
    };
    let requests = VERDICTS.iter().filter_map(of_verdict).collect();
    let added = [("p50", &history.added_us_p50), ("p99", &history.added_us_p99)];
    let added = added.map(|(name, values)| (name.to_owned(), values.clone())).into();
    let charts = [
        Chart::of("Requests per second", history.every_s, requests, None, words::rate),
        Chart::of("Latency that Weir adds", history.every_s, added, None, words::microseconds),
    ];
    charts.into_iter().flatten().collect()
}

/// The name of a store, its node, and whether the node decides. The labels are in the order of their names.
fn store(sample: &Sample) -> (String, String, bool) {
    let label = |index| sample.labels.get(index).cloned().unwrap_or_default();
    (label(1), label(0), sample.value > 0.0)
}

/// Unix seconds as text.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // unix seconds since 1970
fn instant(unix_s: f64) -> String {
    words::instant(&rfc3339(Timestamp::from_ns((unix_s * 1e9) as u64)))
}

impl LimitRow {
    fn of(limit: &Limit, samples: &Samples, history: &HistoryBody) -> Self {
        let name = &*limit.name;
        let of_limit = history.limits.iter().find(|one| *one.limit == *name);
        // The labels are `decision` and `limit`.
        let decided = |decision: &str| samples.number(DECISIONS, &[decision, name]);
        Self {
            name: name.to_owned(),
            link: link("/limit", &[("name", name)]),
            mode: words::mode(limit.mode),
            admitted: decided("admitted"),
            held: decided("held"),
            rejected: decided("rejected"),
            headroom: words::percent(samples.get(HEADROOM, &[name])),
            headroom_path: of_limit.map(|one| chart::path(&one.headroom, 1.0)).unwrap_or_default(),
            waiting: samples.number(WAITING, &[name]),
            keys: samples.number(KEYS, &[name]),
            banned: samples.number(BANNED, &[name]),
        }
    }
}
