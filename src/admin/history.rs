//! `GET /v1/history`: rates, latency and headroom of the last hour.
//!
//! A task reads the metrics every [`EVERY_S`] seconds, so that requests pay nothing. Not here: the series.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval_at};
use utoipa::IntoParams;

use super::answer::{Answer, json, problem};
use super::body::Parameters;
use super::series::{EVERY_S, HistoryBody, SAMPLES_MAX, Totals};
use super::state::Admin;
use crate::base::time;
use crate::transport::upstream::UpstreamStatus;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// The number of samples, from 1 to 720; all by default.
    n: Option<usize>,
}

/// Rates, added latency and headroom of the last hour, sampled every five seconds.
#[utoipa::path(
    get,
    path = "/v1/history",
    params(HistoryQuery),
    responses((status = 200, body = HistoryBody, description = "the series"))
)]
pub(super) async fn history(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<HistoryQuery>) -> Answer {
    let n = asked.n.unwrap_or(SAMPLES_MAX);
    if !(1..=SAMPLES_MAX).contains(&n) {
        return problem(StatusCode::BAD_REQUEST, format!("n: expected a whole number from 1 to {SAMPLES_MAX}"));
    }
    json(StatusCode::OK, &admin.history.last(n))
}

/// Begins the history of `admin` at once. The future adds samples to it, and to the last minute of endpoints, until
/// dropped.
pub fn keep_history(admin: Admin) -> impl Future<Output = ()> {
    let add = move || {
        let totals = Totals::of(&admin.metrics, &admin.live.load(), admin.gate.clock().now());
        admin.history.add(totals);
        UpstreamStatus::sample(&admin.upstreams.in_force().states);
    };
    add(); // requests may arrive before the future is polled
    async move {
        let every = Duration::from_secs(EVERY_S);
        let mut ticks = interval_at(time::instant_now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            add();
        }
    }
}
