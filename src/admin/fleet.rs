//! `GET /v1/fleet`: the other replicas, what this one has heard of them, and the bounds of the limits that they share.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{Answer, json, problem};
use super::state::Admin;
use crate::engine::gate::Bound;
use crate::fleet::grpc::fleet::{FleetView, MemberView};

/// The fleet as this replica sees it.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = Fleet)]
pub(super) struct FleetBody {
    /// The address at which others reach this replica, if it is configured.
    pub(super) address: Option<Box<str>>,
    /// Unix seconds of the start of this process.
    pub(super) started_s: u64,
    /// The replicas, this one included.
    pub(super) replicas: u64,
    /// Whether this replica keeps to its share, because another one does not hear it.
    pub(super) isolated: bool,
    /// Whether states of another replica are on the way.
    pub(super) recovering: bool,
    /// All others, connected ones first; empty without `fleet.listen`.
    pub(super) members: Vec<MemberBody>,
    /// The limits that the replicas share.
    limits: Vec<BoundBody>,
}

/// What the fleet may admit of a limit now.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = FleetBound)]
struct BoundBody {
    /// Its name.
    limit: Box<str>,
    /// How the replicas share it.
    strategy: Box<str>,
    /// The most that the fleet admits, as a multiple of the limit, as far as this replica knows. Null: replicas admit all,
    /// or their number is unknown.
    bound: Option<f64>,
}

/// Another replica, or an address at which none has answered yet.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = Member)]
pub(super) struct MemberBody {
    /// Its address, as far as it is known.
    pub(super) address: Box<str>,
    /// Whether there is a connection.
    pub(super) connected: bool,
    /// Unix seconds of the start of its process, if it has answered.
    pub(super) started_s: Option<u64>,
    /// Milliseconds since its last message.
    pub(super) silent_ms: Option<u64>,
    /// Milliseconds since the newest message of this replica that it is known to have.
    pub(super) deaf_ms: Option<u64>,
    /// The last batch of its charges up to which all have arrived.
    pub(super) received: Option<u64>,
    /// The batches of this replica that it lacks.
    pub(super) lag: Option<u64>,
    /// Milliseconds by which its clock is ahead.
    pub(super) clock_ahead_ms: Option<i64>,
}

/// The other replicas, and what this one has heard of them.
#[utoipa::path(
    get,
    path = "/v1/fleet",
    responses(
        (status = 200, body = FleetBody, description = "the fleet as this replica sees it"),
        (status = 404, description = "there is no `fleet.listen`, and no limit that replicas share"),
    )
)]
pub(super) async fn fleet(State(admin): State<Arc<Admin>>) -> Answer {
    let live = admin.live.load();
    let bounds = admin.gate.bounds(&live);
    let view = match &admin.fleet {
        Some(fleet) => fleet.view(),
        None if bounds.is_empty() => {
            let what = "there is no `fleet.listen`, and no limit that replicas share";
            return problem(StatusCode::NOT_FOUND, what);
        }
        None => {
            let replicas = live.policy.limits().iter().map(|limit| limit.strategy.replicas()).max().unwrap_or(1);
            FleetView::alone(replicas, admin.gate.clock().started().as_ns())
        }
    };
    json(StatusCode::OK, &FleetBody::new(view, bounds))
}

impl FleetBody {
    fn new(view: FleetView, bounds: Vec<Bound>) -> Self {
        let limit = |Bound { limit, strategy, ratio }| BoundBody {
            limit,
            strategy: strategy.into(),
            bound: Some(ratio).filter(|ratio| ratio.is_finite()),
        };
        Self {
            limits: bounds.into_iter().map(limit).collect(),
            address: view.address,
            started_s: view.epoch / 1_000_000_000,
            replicas: view.replicas,
            isolated: view.is_isolated,
            recovering: view.is_recovering,
            members: view.members.into_iter().map(MemberBody::from).collect(),
        }
    }

    /// What the fleet may admit of limits beyond what they allow.
    pub(super) fn excesses(&self) -> impl Iterator<Item = String> {
        let beyond = self.limits.iter().filter(|limit| limit.bound != Some(1.0));
        beyond.map(|BoundBody { limit, bound, .. }| match bound {
            Some(ratio) => format!("{limit}: the fleet may admit {ratio:.2} times the limit"),
            None => format!("{limit}: the fleet admits all"),
        })
    }
}

impl From<MemberView> for MemberBody {
    fn from(MemberView { address, epoch, status, silent_ms, deaf_ms }: MemberView) -> Self {
        Self {
            address,
            connected: status.is_some_and(|status| status.is_connected),
            started_s: epoch.map(|epoch| epoch / 1_000_000_000),
            silent_ms,
            deaf_ms,
            received: status.map(|status| status.received),
            lag: status.map(|status| status.lag),
            clock_ahead_ms: status.and_then(|status| status.ahead_ns).map(|ahead_ns| ahead_ns / 1_000_000),
        }
    }
}
