//! `POST /v1/spend`, which is also `POST /spend_ratelimiter_budget`: one charge, or an array of them.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{self, Answer, problem, problem_value};
use super::body::{self, BATCH_MAX};
use crate::gate::{Balance, Gate, KeyError, Live, Spend, SpendError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    limit: String,
    #[serde(default)]
    key: Map<String, Value>,
    units: Value,
    plan: Option<String>,
}

/// Charges what `asked` says. The charges of an array do not depend on each other: each has its own result.
pub(super) fn answer(gate: &Gate, live: &Live, asked: &Value) -> Answer {
    let Value::Array(all) = asked else {
        return match spend(gate, live, asked) {
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

fn spend(gate: &Gate, live: &Live, asked: &Value) -> Result<Value, (StatusCode, String)> {
    let bad = |detail: String| (StatusCode::BAD_REQUEST, detail);
    let Asked { limit, key, units, plan } = body::object(asked).map_err(bad)?;
    let units = units.as_u64().unwrap_or(0); // no number of units, as is 0
    let key = texts(key).map_err(bad)?;
    let spend = Spend { limit: &limit, key: &key, plan: plan.as_deref(), units };
    let balance = gate.spend(live, spend, gate.clock().now()).map_err(|error| match error {
        SpendError::Key(KeyError::UnknownLimit) => (StatusCode::NOT_FOUND, error.to_string()),
        _ => bad(error.to_string()),
    })?;
    let Balance { remaining, debt, reset_after_ns } = balance;
    let reset_after_ms = reset_after_ns.map(|ns| ns.div_ceil(1_000_000));
    Ok(json!({ "limit": limit, "remaining": remaining, "debt": debt, "reset_after_ms": reset_after_ms }))
}

/// The parts of a key by their names: texts, or whole numbers, which are as good as theirs.
pub(super) fn texts(key: Map<String, Value>) -> Result<Vec<(String, String)>, String> {
    let text = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) if !number.is_f64() => Ok((name, number.to_string())),
        _ => Err(KeyError::BadPart(name).to_string()),
    };
    key.into_iter().map(text).collect()
}
