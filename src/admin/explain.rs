//! `POST /v1/explain`: what would become of a request now.

use http::StatusCode;
use serde_json::Value;

use super::answer::{self, Answer, problem};
use super::body;
use crate::gate::{Gate, Live, Question};

/// The answer to a [`Question`]: an [`crate::gate::Explanation`].
pub(super) fn answer(gate: &Gate, live: &Live, asked: &Value) -> Answer {
    let question: Question = match body::object(asked) {
        Ok(question) => question,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error),
    };
    let explained = match gate.explain(live, &question, gate.clock().now()) {
        Ok(explained) => explained,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    match serde_json::to_value(explained) {
        Ok(value) => answer::json(StatusCode::OK, &value),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
