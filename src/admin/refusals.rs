//! `GET /v1/refusals`: explains a refusal by its id.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, json, problem};
use super::body::Parameters;
use super::state::Admin;
use super::times::rfc3339;
use crate::base::time::Timestamp;
use crate::engine::gate::LoggedRefusal;
use crate::engine::limit::Decision;

/// The most other refusals of a key in an answer.
const OTHERS_MAX: usize = 20;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RefusalsQuery {
    /// The id of the refusal.
    id: String,
}

/// A refused request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Refusals)]
pub struct RefusalsBody {
    /// The id.
    pub id: String,
    /// An item for each limit that refused the request; several requests may share an id that a proxy made.
    pub refusals: Vec<RefusalBody>,
}

/// A refusal by one limit.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Refusal)]
pub struct RefusalBody {
    /// The name of the limit; `null` for an address that an operator banned.
    pub limit: Option<String>,
    /// The parts of the key without secrets, with `|` between them; `null` if only the id is known.
    pub key: Option<String>,
    /// The id of the key.
    pub key_id: String,
    /// The instant.
    pub at: String,
    /// `limit`, `wait_too_long`, `queue_full`, `banned`, `gone` or `shutting_down`.
    pub cause: String,
    /// Units that the limit allows at once; `null` for a ban.
    pub capacity: Option<u64>,
    /// Whole units that remained; `null` for a ban.
    pub remaining: Option<u64>,
    /// Milliseconds from then until the key had all units again; `null` if that is unknown.
    pub reset_after_ms: Option<u64>,
    /// The seconds of `Retry-After`; `null` if there was none.
    pub retry_after_s: Option<u64>,
    /// The newest charges of the key before the refusal, and those after it that are known, the oldest first; only charges
    /// by this process that left less than half of the capacity, or that are settled.
    pub charges: Vec<ChargeBody>,
    /// The number of other kept refusals of the key by the limit.
    pub others_count: usize,
    /// The newest of these, at most 20.
    pub others: Vec<OtherRefusalBody>,
}

/// A charge of the key by the limit.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Charge)]
pub struct ChargeBody {
    /// The instant.
    pub at: String,
    /// Units; negative ones were given back.
    pub units: i64,
}

/// Another refusal of the key.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = OtherRefusal)]
pub struct OtherRefusalBody {
    /// The id.
    pub id: String,
    /// The instant.
    pub at: String,
    /// Whole units that remained; `null` for a ban.
    pub remaining: Option<u64>,
}

/// A refusal by its id: the limit, the key, its state then, and other refusals of the key.
#[utoipa::path(
    get,
    path = "/v1/refusals",
    params(RefusalsQuery),
    responses(
        (status = 200, body = RefusalsBody, description = "the refusal"),
        (status = 404, description = "this process keeps no refusal with this id"),
    )
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>, Parameters(asked): Parameters<RefusalsQuery>) -> Answer {
    let now = admin.gate.clock().now();
    let found = admin.gate.refusals_of_id(&asked.id, now);
    if found.is_empty() {
        let detail = if admin.gate.logs_refusals() {
            "id: no refusal with this id is kept: it is wrong or too old, newer ones have displaced it, or another \
             replica has it"
        } else {
            "id: no refusal is kept, because `refusals.keep` is `off`"
        };
        return problem(StatusCode::NOT_FOUND, detail);
    }
    let refusals = found.into_iter().map(|logged| refusal(&admin, logged, now)).collect();
    json(StatusCode::OK, &RefusalsBody { id: asked.id, refusals })
}

fn refusal(admin: &Admin, logged: LoggedRefusal, now: Timestamp) -> RefusalBody {
    let mut others = admin.gate.refusals_of_key(&logged.limit, logged.key, now);
    others.retain(|other| (other.at, &other.id) != (logged.at, &logged.id));
    let other = |other: &LoggedRefusal| OtherRefusalBody {
        id: other.id.clone(),
        at: rfc3339(other.at),
        remaining: other.state.map(|state| state.remaining),
    };
    let reset_after_ns = logged.state.map(|state| state.reset_after_ns).filter(|ns| *ns != Decision::UNKNOWN_NS);
    RefusalBody {
        limit: Some(logged.limit).filter(|name| !name.is_empty()),
        key: logged.shown,
        key_id: logged.key.id(),
        at: rfc3339(logged.at),
        cause: logged.cause.to_owned(),
        capacity: logged.state.map(|state| state.capacity),
        remaining: logged.state.map(|state| state.remaining),
        reset_after_ms: reset_after_ns.map(|ns| ns.div_ceil(1_000_000)),
        retry_after_s: logged.retry_after_s,
        charges: logged
            .charges
            .iter()
            .map(|charge| ChargeBody { at: rfc3339(charge.at), units: charge.units })
            .collect(),
        others_count: others.len(),
        others: others.iter().take(OTHERS_MAX).map(other).collect(),
    }
}
