//! `POST /v1/spend` and its alias `POST /spend_ratelimiter_budget`: one charge, or an array of charges.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{self, Answer, problem, problem_value};
use super::body::{self, BATCH_MAX};
use super::key;
use crate::gate::{Balance, ChargeError, Gate, KeyError, Live, Spend, SpendError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpendBody {
    limit: String,
    #[serde(default)]
    key: Map<String, Value>,
    units: Value,
    plan: Option<String>,
}

/// Makes one charge or an array of charges. The charges of an array are independent, and each has its own result.
pub(super) fn answer(gate: &Gate, live: &Live, body: &Value) -> Answer {
    let Value::Array(all) = body else {
        return match spend(gate, live, body) {
            Ok(balance) => answer::json(StatusCode::OK, &balance),
            Err((status, detail)) => problem(status, &detail),
        };
    };
    if all.len() > BATCH_MAX {
        return problem(StatusCode::BAD_REQUEST, &format!("more than {BATCH_MAX} charges"));
    }
    let result = |one| {
        spend(gate, live, one).unwrap_or_else(|(status, detail): (StatusCode, String)| problem_value(status, &detail))
    };
    answer::json(StatusCode::OK, &all.iter().map(result).collect())
}

fn spend(gate: &Gate, live: &Live, body: &Value) -> Result<Value, (StatusCode, String)> {
    let bad = |detail: String| (StatusCode::BAD_REQUEST, detail);
    let SpendBody { limit, key, units, plan } = body::object(body).map_err(bad)?;
    let units = units.as_u64().unwrap_or(0); // the gate refuses 0
    let key = key::texts(key).map_err(bad)?;
    let spend = Spend { limit: &limit, key: &key, plan: plan.as_deref(), units };
    let balance = gate.spend(live, spend, gate.clock().now()).map_err(|error| match error {
        SpendError::Charge(ChargeError::Key(KeyError::UnknownLimit)) => (StatusCode::NOT_FOUND, error.to_string()),
        _ => bad(error.to_string()),
    })?;
    let Balance { remaining, debt, reset_after_ns } = balance;
    let reset_after_ms = reset_after_ns.map(|ns| ns.div_ceil(1_000_000));
    Ok(json!({ "limit": limit, "remaining": remaining, "debt": debt, "reset_after_ms": reset_after_ms }))
}
