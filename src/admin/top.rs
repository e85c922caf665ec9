//! `GET /v1/top`: for each limit, the keys with the most refused or held requests.

use http::StatusCode;
use serde_json::{Value, json};

use super::answer::{self, Answer, problem};
use crate::fields::decimal;
use crate::gate::{Gate, HALF_LIFE_NS, Live, TOP_KEYS, TopKey, TopKeys};

/// The default number of keys.
const KEYS_DEFAULT: usize = 20;

/// Answers a query of `limit=NAME` and `n=COUNT`. Both are optional.
pub(super) fn answer(gate: &Gate, live: &Live, query: Option<&str>) -> Answer {
    let (limit, n) = match read(query.unwrap_or("")) {
        Ok(parameters) => parameters,
        Err(detail) => return problem(StatusCode::BAD_REQUEST, &detail),
    };
    let tops = gate.top(live, limit, n);
    if limit.is_some() && tops.is_empty() {
        return problem(StatusCode::NOT_FOUND, "there is no such limit");
    }
    let limits: Vec<_> = tops.into_iter().map(value).collect();
    answer::json(StatusCode::OK, &json!({ "limits": limits, "half_life_s": HALF_LIFE_NS / 1_000_000_000 }))
}

fn read(query: &str) -> Result<(Option<&str>, usize), String> {
    let (mut limit, mut n) = (None, KEYS_DEFAULT);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("limit", name)) => limit = Some(name),
            Some(("n", text)) => {
                let count = decimal(text.as_bytes()).and_then(|count| usize::try_from(count).ok());
                let count = count.filter(|count| (1..=TOP_KEYS).contains(count));
                n = count.ok_or_else(|| format!("n: expected a whole number from 1 to {TOP_KEYS}"))?;
            }
            _ => return Err("the only parameters are limit=NAME and n=COUNT".to_owned()),
        }
    }
    Ok((limit, n))
}

fn value(TopKeys { limit, total, missed, keys }: TopKeys) -> Value {
    let key = |TopKey { key, count, error }: TopKey| json!({ "key": key, "count": count, "error": error });
    json!({ "limit": limit, "total": total, "missed": missed, "keys": keys.into_iter().map(key).collect::<Vec<_>>() })
}
