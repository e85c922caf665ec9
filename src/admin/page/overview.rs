//! The first page: troubles, the requests of the last minute, limits, the configuration, stores and other replicas.

use askama::Template;
use http::StatusCode;

use super::chart::{self, Chart, Range};
use super::fields::link;
use super::pages::PageRequest;
use super::refused_keys::{RefusedKey, refused_most};
use super::shell::{Shell, page};
use super::words;
use crate::admin::answer::Answer;
use crate::admin::fleet::FleetBody;
use crate::admin::reloads::{ConfigBody, ReloadBody};
use crate::admin::series::{EVERY_S, HistoryBody, LimitHistoryBody, SAMPLES_OF_MINUTE};
use crate::admin::times::rfc3339;
use crate::admin::upstreams::{EndpointBody, UpstreamBody, UpstreamsBody};
use crate::base::telemetry::Sample;
use crate::base::time::Timestamp;
use crate::engine::policy::{Limit, Policy};
use crate::transport::net::ListenAddress;

const REQUESTS: &str = "weir_requests_total";
const WAITING: &str = "weir_held_requests";
const KEYS: &str = "weir_keys";
const BANNED: &str = "weir_banned_keys";
const CONNECTIONS: &str = "weir_connections";
const STORE_UP: &str = "weir_store_up";
const RELOAD_GOOD: &str = "weir_config_last_reload_successful";
const RELOADED_AT: &str = "weir_config_last_reload_timestamp_seconds";

/// All metrics of the page.
const METRICS: &[&str] = &[REQUESTS, WAITING, KEYS, BANNED, CONNECTIONS, STORE_UP, RELOAD_GOOD, RELOADED_AT];

/// The verdicts with what they mean.
const VERDICTS: &[(&str, &str)] = &[
    ("forwarded", "forwarded at once"),
    ("held", "forwarded after a wait"),
    ("refused", "by a limit, a ban or a list, or without an identity"),
    ("abandoned", "the client left"),
];

/// Most endpoints of the table.
const ENDPOINTS_SHOWN: usize = 50;
/// Most limits of the table: those that refuse most.
const LIMITS_SHOWN: usize = 50;
/// Keys of each limit that are compared.
const COUNTED: usize = 100;
/// Keys of the list of refused keys.
const REFUSED_SHOWN: usize = 10;

#[derive(Template)]
#[template(path = "overview.html", config = "src/admin/page/askama.toml")]
struct OverviewPage<'u> {
    shell: Shell,
    range: Range,
    /// The address of this page, before further parameters.
    ranges_path: &'static str,
    /// What needs an operator.
    troubles: Vec<String>,
    /// The commands that send the first request; empty once there was one.
    first_request: Vec<String>,
    /// The span of the rates in words; empty before the first sample.
    span: String,
    /// Verdict, meaning, and requests.
    verdicts: Vec<(&'static str, String, String)>,
    connections: String,
    charts: Vec<Chart>,
    refused_keys: Vec<RefusedKey>,
    refused_networks: Vec<RefusedKey>,
    limits: Vec<LimitRow>,
    limits_left_out: usize,
    reload_is_good: bool,
    /// The last reload, if it failed.
    failure: Option<ReloadBody>,
    /// Empty before the first reload.
    reloaded_at: String,
    /// Each with its upstream. Those that are not up are first.
    endpoints: Vec<(&'u UpstreamBody, &'u EndpointBody)>,
    endpoints_left_out: usize,
    /// Store, node, and whether the node decides.
    stores: Vec<(String, String, bool)>,
    fleet: Option<FleetBody>,
}

/// A limit with the numbers of its decisions.
struct LimitRow {
    name: String,
    link: String,
    mode: String,
    admitted: String,
    held: String,
    refused: String,
    headroom: String,
    /// The headroom of the range as a path of SVG.
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
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest) -> Answer {
    // Without `fleet.listen` there is a problem, and no fleet to show.
    let fleet = pages.api.get::<FleetBody>(&visitor.operator, "/v1/fleet", &[]).await.ok();
    let reloads = pages.api.get::<Vec<ReloadBody>>(&visitor.operator, "/v1/reloads", &[]).await.unwrap_or_default();
    pages.admin.gate.publish();
    let samples = Samples(pages.admin.metrics.samples(METRICS));
    let range = Range::of(&query);
    let history = pages.admin.history.last(range.samples());
    let minute = pages.admin.history.last(SAMPLES_OF_MINUTE);
    let stores: Vec<_> = samples.0.iter().filter(|sample| sample.metric == STORE_UP).map(store).collect();
    let is_first = !samples.0.iter().any(|sample| sample.metric == REQUESTS && sample.value > 0.0);
    let tls = [("path", "server.tls")];
    let tls = pages.api.get::<ConfigBody>(&visitor.operator, "/v1/config", &tls).await;
    let is_tls = tls.is_ok_and(|config| !config.settings.is_empty());
    let first_request = if is_first { first_requests(&pages.admin.services, is_tls) } else { Vec::new() };
    let upstreams = pages.api.get::<UpstreamsBody>(&visitor.operator, "/v1/upstreams", &[]).await;
    let upstreams = upstreams.map(|listed| listed.upstreams).unwrap_or_default();
    let mut endpoints = Vec::new();
    for upstream in &upstreams {
        endpoints.extend(upstream.endpoints.iter().map(|endpoint| (upstream, endpoint)));
    }
    endpoints.sort_by_key(|(_, endpoint)| endpoint.serves());
    let endpoints_left_out = endpoints.len().saturating_sub(ENDPOINTS_SHOWN);
    endpoints.truncate(ENDPOINTS_SHOWN);
    let live = pages.admin.live.load();
    let (limits, limits_left_out) = limit_rows(live.policy.limits(), &samples, (&history, &minute));
    let template = OverviewPage {
        shell: Shell::new(&visitor, "Overview", &query),
        range,
        ranges_path: "/?",
        troubles: troubles((&stores, &upstreams), &live.policy, &samples),
        first_request,
        span: match minute.at_s.len() {
            0 => String::new(),
            SAMPLES_OF_MINUTE => "last minute".to_owned(),
            samples => format!("last {} seconds", EVERY_S * samples as u64),
        },
        verdicts: VERDICTS.iter().map(|verdict| verdict_row(*verdict, &minute)).collect(),
        connections: samples.number(CONNECTIONS, &[]),
        charts: charts(&history),
        refused_keys: refused_most(pages.admin.gate.top(&live, None, COUNTED), REFUSED_SHOWN),
        refused_networks: refused_most(vec![pages.admin.gate.top_networks(COUNTED)], REFUSED_SHOWN),
        limits,
        limits_left_out,
        failure: reloads.into_iter().next().filter(|last| last.outcome != "applied"),
        reload_is_good: samples.get(RELOAD_GOOD, &[]).is_none_or(|good| good > 0.0),
        reloaded_at: samples.get(RELOADED_AT, &[]).filter(|at| *at > 0.0).map(instant).unwrap_or_default(),
        endpoints,
        endpoints_left_out,
        stores,
        fleet,
    };
    page(StatusCode::OK, &template)
}

/// What needs an operator: stores that are down, upstreams without an endpoint, and limits with all the keys that they may
/// have.
#[expect(clippy::cast_precision_loss)] // a number of keys
fn troubles(
    (stores, upstreams): (&[(String, String, bool)], &[UpstreamBody]),
    policy: &Policy,
    samples: &Samples,
) -> Vec<String> {
    let down = stores.iter().filter(|(_, _, is_up)| !is_up);
    let down = down.map(|(store, node, _)| format!("The store {store} is down at {node}: on_failure decides."));
    let gone = upstreams.iter().filter(|one| one.endpoints.iter().all(|endpoint| !endpoint.serves()));
    let gone = gone.map(|one| format!("No endpoint of the upstream {} is up.", one.upstream));
    let tables = samples.0.iter().filter(|sample| sample.metric == KEYS);
    let full = tables.filter_map(|sample| {
        let limit = policy.by_name(sample.labels.first()?)?.limit;
        let is_full = sample.value >= limit.max_keys as f64;
        is_full.then(|| {
            let max_keys = words::count(limit.max_keys as u64);
            format!(
                "The table of the limit {} is full: it has {max_keys} keys. on_full decides about others.",
                limit.name
            )
        })
    });
    down.chain(gone).chain(full).collect()
}

/// The commands that send a request to each address.
fn first_requests(services: &[ListenAddress], is_tls: bool) -> Vec<String> {
    let scheme = if is_tls { "https" } else { "http" };
    let command = |service: &ListenAddress| match (service, service.reachable()) {
        (_, Some(address)) => format!("curl -i {scheme}://{address}/"),
        (ListenAddress::Unix(path), _) => format!("curl -i --unix-socket {} {scheme}://localhost/", path.display()),
        (ListenAddress::Tcp(address), _) => format!("curl -i {scheme}://{address}/"),
    };
    services.iter().map(command).collect()
}

/// A verdict, its meaning, and its mean rate. Of refusals the meaning has the reasons with their rates.
fn verdict_row(
    (verdict, meaning): (&'static str, &'static str),
    minute: &HistoryBody,
) -> (&'static str, String, String) {
    let rate = minute.requests.get(verdict).and_then(|rates| chart::mean(rates));
    let reason = |(reason, rates): (&String, &Vec<f32>)| {
        Some(format!("{reason} {}", words::rate(chart::mean(rates).filter(|rate| *rate > 0.0)?)))
    };
    let reasons: Vec<_> = minute.refused_by.iter().filter_map(reason).collect();
    let meaning = if verdict == "refused" && !reasons.is_empty() { reasons.join(", ") } else { meaning.to_owned() };
    (verdict, meaning, rate.map_or_else(|| "–".to_owned(), words::rate))
}

/// The limits that refuse most, and the number of others.
fn limit_rows(
    limits: &[Limit],
    samples: &Samples,
    (history, minute): (&HistoryBody, &HistoryBody),
) -> (Vec<LimitRow>, usize) {
    let mut order: Vec<_> = limits.iter().map(|limit| (limit, of_limit(minute, limit))).collect();
    let refused = |minute: Option<&LimitHistoryBody>| minute.and_then(|one| chart::mean(&one.refused)).unwrap_or(0.0);
    order.sort_by(|(_, one), (_, other)| refused(*other).total_cmp(&refused(*one)));
    let row = |(limit, minute): &(&Limit, _)| LimitRow::of(limit, samples, (of_limit(history, limit), *minute));
    (order.iter().take(LIMITS_SHOWN).map(row).collect(), limits.len().saturating_sub(LIMITS_SHOWN))
}

/// The series of a limit; `None` for limits after the first 64.
fn of_limit<'h>(history: &'h HistoryBody, limit: &Limit) -> Option<&'h LimitHistoryBody> {
    history.limits.iter().find(|one| *one.limit == *limit.name)
}

/// Requests by verdict, and the latency that Weir adds.
fn charts(history: &HistoryBody) -> Vec<Chart> {
    let of_verdict = |(name, _): &(&'static str, &'static str)| {
        let rates = history.requests.get(*name)?;
        Some(((*name).to_owned(), rates.iter().copied().map(Some).collect()))
    };
    let requests = VERDICTS.iter().filter_map(of_verdict).collect();
    let added = [("p50", &history.added_us_p50), ("p99", &history.added_us_p99)];
    let added = added.map(|(name, values)| (name.to_owned(), values.clone())).into();
    let charts = [
        Chart::of("Requests", &history.at_s, requests, None, words::rate),
        Chart::of("Latency that Weir adds", &history.at_s, added, None, words::microseconds),
    ];
    charts.into_iter().flatten().collect()
}

/// The name of a store, its node, and whether the node decides. The labels are in the order of their names.
fn store(sample: &Sample) -> (String, String, bool) {
    let label = |index| sample.labels.get(index).cloned().unwrap_or_default();
    (label(1), label(0), sample.value > 0.0)
}

/// The mean rate of `count` in so many seconds.
fn rate(count: u64, seconds: f64) -> String {
    words::rate(if seconds > 0.0 { words::per_second(count, seconds) } else { 0.0 })
}

/// Unix seconds as text.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // unix seconds since 1970
fn instant(unix_s: f64) -> String {
    words::instant(&rfc3339(Timestamp::from_ns((unix_s * 1e9) as u64)))
}

impl LimitRow {
    fn of(
        limit: &Limit,
        samples: &Samples,
        (history, minute): (Option<&LimitHistoryBody>, Option<&LimitHistoryBody>),
    ) -> Self {
        let name = &*limit.name;
        let rate = |rates: fn(&LimitHistoryBody) -> &[f32]| {
            minute.and_then(|minute| chart::mean(rates(minute))).map_or_else(|| "–".to_owned(), words::rate)
        };
        let headroom: Vec<_> = minute.iter().flat_map(|minute| minute.headroom.iter().copied().flatten()).collect();
        Self {
            name: name.to_owned(),
            link: link("/limit", &[("name", name)]),
            mode: words::mode(limit),
            admitted: rate(|minute| &minute.admitted),
            held: rate(|minute| &minute.held),
            refused: rate(|minute| &minute.refused),
            headroom: words::percent(chart::mean(&headroom).map(f64::from)),
            headroom_path: history.map(|history| chart::path(&history.headroom, 1.0)).unwrap_or_default(),
            waiting: samples.number(WAITING, &[name]),
            keys: samples.number(KEYS, &[name]),
            banned: samples.number(BANNED, &[name]),
        }
    }
}
