//! `POST /v1/spend` and its alias `POST /spend_ratelimiter_budget`: one charge, or an array of charges.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use utoipa::ToSchema;

use super::answer::{Answered, OneOrMany, ProblemBody, Refused, json};
use super::audit::Audited;
use super::body::{self, BATCH_MAX, Json, Reason};
use super::key::{self, KeyNameBody};
use super::keys;
use super::state::Call;
use crate::engine::gate::{Balance, ChargeError, Gate, KeyName, Live, Spend, StoredKey};

/// A charge.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewCharge)]
pub(super) struct SpendBody {
    /// The name of the limit.
    limit: String,
    /// The parts of the key by name, each a text or a whole number; or the text of the key.
    #[serde(default = "no_parts")]
    key: KeyNameBody,
    /// Whole units; 0 looks, and a negative number gives units back.
    #[schema(value_type = i64)]
    units: Value,
    /// The plan by whose numbers the limit decides.
    plan: Option<String>,
    /// The reason, for the audit log. Looks are not in it.
    reason: Option<Reason>,
}

/// The balance of a key after a charge.
#[derive(Serialize, ToSchema)]
#[schema(as = Balance)]
pub(super) struct BalanceBody {
    /// The name of the limit.
    limit: String,
    /// Whole units that remain; `null` if the key is unlimited.
    remaining: Option<u64>,
    /// Units below zero.
    debt: u64,
    /// Milliseconds until the key has all units again; `null` if that is unknown.
    reset_after_ms: Option<u64>,
}

/// The balance after a charge; for a charge of an array that was refused, the problem.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum SpendResult {
    Made(BalanceBody),
    Refused(ProblemBody),
}

/// Charges a key, or up to 1000 keys as an array. The charges of an array are independent, and each has its own result.
#[utoipa::path(
    post,
    path = "/v1/spend",
    request_body(content = OneOrMany<SpendBody>, description = "a charge, or an array of charges"),
    responses((status = 200, body = OneOrMany<SpendResult>, description = "the balance; of an array, balances or problems"))
)]
pub(super) async fn spend(Call(admin, operator): Call, Json(body): Json) -> Answered {
    let charges = body.as_array().map_or(std::slice::from_ref(&body), Vec::as_slice);
    if charges.len() > BATCH_MAX {
        return Err(format!("more than {BATCH_MAX} charges").into());
    }
    admin.hear_stores(|live| charges.iter().filter_map(|one| stored(&admin.gate, live, one)).collect()).await;
    let mut audited = Vec::new();
    let answer = match &body {
        Value::Array(all) => {
            let live = admin.live.load();
            let result = |one| match charge(&admin.gate, &live, one, &mut audited) {
                Ok(balance) => SpendResult::Made(balance),
                Err(Refused(status, detail)) => SpendResult::Refused(ProblemBody::new(status, detail)),
            };
            OneOrMany::Many(all.iter().map(result).collect())
        }
        body => OneOrMany::One(SpendResult::Made(charge(&admin.gate, &admin.live.load(), body, &mut audited)?)),
    };
    admin.record(&operator, audited).await;
    Ok(json(StatusCode::OK, &answer))
}

/// The old name of `POST /v1/spend`.
#[utoipa::path(
    post,
    path = "/spend_ratelimiter_budget",
    request_body(content = OneOrMany<SpendBody>, description = "a charge, or an array of charges"),
    responses((status = 200, body = OneOrMany<SpendResult>, description = "as for `/v1/spend`"))
)]
pub(super) async fn spend_by_its_old_name(call: Call, body: Json) -> Answered {
    spend(call, body).await
}

/// The key of a limit whose key has no parts.
fn no_parts() -> KeyNameBody {
    KeyNameBody::Parts(BTreeMap::new())
}

/// The key of a charge, if a store has its state.
fn stored(gate: &Gate, live: &Live, body: &Value) -> Option<StoredKey> {
    let SpendBody { limit, key, plan, .. } = body::object(body).ok()?;
    let found = gate.find_key(live, &limit, &key::name_of_body(key).ok()?).ok()?;
    gate.stored_key(live, &found, plan.as_deref())
}

/// Makes one charge, and adds it to `audited` unless it looks only.
fn charge(gate: &Gate, live: &Live, body: &Value, audited: &mut Vec<Audited>) -> Result<BalanceBody, Refused> {
    let SpendBody { limit, key, units, plan, reason } = body::object(body)?;
    let units = units.as_i64().ok_or_else(|| ChargeError::Units.to_string())?;
    let key = match key::name_of_body(key)? {
        KeyName::Parts(parts) => parts,
        name => {
            let found = gate.find_key(live, &limit, &name).map_err(|error| keys::refused(live, &error))?;
            found.pairs().ok_or_else(|| "key: a charge needs the text of the key, not its id".to_owned())?
        }
    };
    let now = gate.clock().now();
    let spend = |units| {
        let spend = Spend { limit: &limit, key: &key, plan: plan.as_deref(), units };
        gate.spend(live, spend, now).map_err(|error| match error {
            ChargeError::Key(error) => keys::refused(live, &error),
            ChargeError::InFlight | ChargeError::Units => error.to_string().into(),
        })
    };
    let before = if units == 0 { None } else { Some(spend(0)?) };
    let balance = spend(units)?;
    if let Some(before) = before {
        let found = gate.find_key(live, &limit, &KeyName::Parts(key.clone())).ok().and_then(|found| found.shown);
        let shown = |balance: Balance| value!({ "remaining": balance.remaining, "debt": balance.debt });
        let target = found.into_iter().flatten().map(|(name, text)| (name, Value::from(text))).collect();
        let (action, limit) = (if units < 0 { "give_back" } else { "charge" }, Some(limit.clone()));
        let (before, after) = (shown(before), shown(balance));
        let reason = reason.map(Into::into);
        audited.push(Audited { action, limit, target, before, after, reason, outcome: None });
    }
    let Balance { remaining, debt, reset_after_ns } = balance;
    Ok(BalanceBody { limit, remaining, debt, reset_after_ms: reset_after_ns.map(|ns| ns.div_ceil(1_000_000)) })
}
