//! `/v1/overrides`: lists overrides that were set at run time, and sets them.
//!
//! This file has the HTTP and JSON. The owner of the configuration makes the changes: it receives each [`Change`], and
//! answers when the change is in force and on disk.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::answer::{self, Answer, problem};
use super::body::{self, BATCH_MAX};
use super::key;
use crate::gate::{Gate, KeyError, Live};
use crate::policy::overrides::{Override, OverrideEdit, OverrideError};

/// Changes that may wait for an earlier change.
const WAITING_MAX: usize = 16;
/// Far longer than it takes to read and write the file.
const TIMEOUT: Duration = Duration::from_secs(10);

/// For each edit, the allowance before the edit; or why no edit was made.
pub type Outcome = Result<Vec<Option<Value>>, OverrideError>;

/// Edits that are made together or not at all.
#[derive(Debug)]
pub struct Change {
    /// The edits, in the order in which they are made.
    pub edits: Vec<OverrideEdit>,
    /// Receives the outcome. It is closed after a timeout.
    pub answer: oneshot::Sender<Outcome>,
}

/// The HTTP status of an error.
fn status(error: &OverrideError) -> StatusCode {
    match error {
        OverrideError::NoFile | OverrideError::InvalidOnDisk(_) => StatusCode::CONFLICT,
        OverrideError::Invalid { .. } => StatusCode::BAD_REQUEST,
        OverrideError::Write(_) => StatusCode::INTERNAL_SERVER_ERROR,
        OverrideError::Timeout => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The overrides in force, and the channel for changes of them.
#[derive(Clone, Debug)]
pub struct Overrides {
    /// The overrides of the configuration in force.
    pub in_force: Arc<ArcSwap<Vec<Override>>>,
    changes: mpsc::Sender<Change>,
}

impl Overrides {
    /// Begins with `in_force`. Returns the receiver of changes; without a receiver, overrides cannot be changed.
    pub fn new(in_force: Vec<Override>) -> (Self, mpsc::Receiver<Change>) {
        let (changes, receiver) = mpsc::channel(WAITING_MAX);
        (Self { in_force: Arc::new(ArcSwap::from_pointee(in_force)), changes }, receiver)
    }

    /// Sends edits, and waits for their outcome.
    async fn change(&self, edits: Vec<OverrideEdit>) -> Outcome {
        let (answer, outcome) = oneshot::channel();
        let made = async {
            match self.changes.send(Change { edits, answer }).await {
                Ok(()) => outcome.await.unwrap_or(Err(OverrideError::Timeout)),
                Err(_) => Err(OverrideError::NoFile),
            }
        };
        timeout(TIMEOUT, made).await.unwrap_or(Err(OverrideError::Timeout))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditBody {
    limit: String,
    /// An object. It is read as any value, because the error of `serde` would repeat it.
    key: Value,
    /// Not an `Option`: an absent field must not mean `null`.
    to: Value,
}

/// An edit, and its key as it is shown.
type ShownEdit = (OverrideEdit, Value);

/// All overrides, or those of one limit with the query `limit=NAME`.
pub(super) fn list(overrides: &Overrides, gate: &Gate, live: &Live, query: Option<&str>) -> Answer {
    let limit = match query.unwrap_or("").split_once('=') {
        Some(("limit", name)) => Some(name),
        None if query.unwrap_or("").is_empty() => None,
        _ => return problem(StatusCode::BAD_REQUEST, "the only parameter is limit=NAME"),
    };
    let in_force = overrides.in_force.load();
    let of_limit: Vec<_> = in_force.iter().filter(|one| limit.is_none_or(|limit| *one.limit == *limit)).collect();
    let has_limit = |limit: &str| live.policy.limits().iter().any(|known| *known.name == *limit);
    if limit.is_some_and(|limit| of_limit.is_empty() && !has_limit(limit)) {
        return problem(StatusCode::NOT_FOUND, &KeyError::UnknownLimit.to_string());
    }
    let value = |one: &&Override| {
        let Override { limit, key, allowance, rejection } = one;
        let key = shown_key(gate, live, limit, key);
        match rejection {
            None => json!({ "limit": limit, "key": key, "to": allowance }),
            Some(why) => json!({ "limit": limit, "key": key, "to": allowance, "left_out": true, "why": why }),
        }
    };
    answer::json(StatusCode::OK, &of_limit.iter().map(value).collect())
}

/// The names and texts of the parts of a key, without secrets. A masked text if the text is not a key of this limit.
fn shown_key(gate: &Gate, live: &Live, limit: &str, text: &str) -> Value {
    match gate.shown_key(live, limit, text) {
        Ok(parts) => parts.into_iter().map(|(name, text)| (name, Value::String(text))).collect(),
        Err(masked) => Value::String(masked),
    }
}

/// The edits of one request. They do not borrow the policy, so that no policy is kept alive while they wait.
pub(super) struct EditRequest {
    is_array: bool,
    edits: Vec<ShownEdit>,
}

impl EditRequest {
    /// Reads one edit or an array of edits. The error is that of the first invalid edit.
    pub(super) fn read(gate: &Gate, live: &Live, body: &Value) -> Result<Self, (StatusCode, String)> {
        let Value::Array(all) = body else {
            return Ok(Self { is_array: false, edits: vec![edit(gate, live, body)?] });
        };
        if all.len() > BATCH_MAX {
            return Err((StatusCode::BAD_REQUEST, format!("more than {BATCH_MAX} changes")));
        }
        let mut keys = HashSet::new();
        let mut edits = Vec::with_capacity(all.len());
        for (index, body) in all.iter().enumerate() {
            let at_index = |(status, detail)| (status, format!("[{index}]: {detail}"));
            let (edit, key) = edit(gate, live, body).map_err(at_index)?;
            if !keys.insert((edit.limit.clone(), edit.key.clone())) {
                return Err(at_index((StatusCode::BAD_REQUEST, "an earlier change has this key of the limit".into())));
            }
            edits.push((edit, key));
        }
        Ok(Self { is_array: true, edits })
    }

    /// Makes all edits or none.
    pub(super) async fn apply(self, overrides: &Overrides) -> Answer {
        let edits: Vec<_> = self.edits.iter().map(|(edit, _)| edit.clone()).collect();
        let before = match overrides.change(edits).await {
            Ok(before) => before,
            Err(OverrideError::Invalid { index: Some(index), reason }) if self.is_array => {
                return problem(StatusCode::BAD_REQUEST, &format!("[{index}]: {reason}"));
            }
            Err(error) => return problem(status(&error), &error.to_string()),
        };
        let edits = self.edits.into_iter().zip(before);
        let value = |((edit, key), before): (ShownEdit, Option<Value>)| json!({ "limit": edit.limit, "key": key, "to": edit.allowance, "was": before });
        let mut values: Vec<Value> = edits.map(value).collect();
        let body = if self.is_array { Value::Array(values) } else { values.pop().unwrap_or_default() };
        answer::json(StatusCode::OK, &body)
    }
}

fn edit(gate: &Gate, live: &Live, body: &Value) -> Result<ShownEdit, (StatusCode, String)> {
    let bad = |detail: String| (StatusCode::BAD_REQUEST, detail);
    let EditBody { limit, key, to } = body::object(body).map_err(bad)?;
    let Value::Object(key) = key else {
        return Err(bad("key: expected an object with the parts of the key".into()));
    };
    let key = key::texts(key).map_err(bad)?;
    let text = gate.key_text(live, &limit, &key).map_err(|error| match error {
        KeyError::UnknownLimit => (StatusCode::NOT_FOUND, error.to_string()),
        _ => bad(error.to_string()),
    })?;
    let shown = shown_key(gate, live, &limit, &text);
    let allowance = Some(to).filter(|to| !to.is_null());
    Ok((OverrideEdit { limit, key: text, allowance }, shown))
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_has_a_timeout() {
        let (overrides, mut changes) = Overrides::new(Vec::new());
        // No receiver takes the changes, and the last one waits for capacity in the channel.
        let many = (0..=WAITING_MAX).map(|_| overrides.change(Vec::new()));
        for outcome in futures(many).await {
            assert_eq!(outcome, Err(OverrideError::Timeout));
        }
        // After the timeout no caller waits for the answer.
        for _ in 0..WAITING_MAX {
            assert!(changes.recv().await.unwrap().answer.is_closed());
        }
        let (outcome, ()) = tokio::join!(overrides.change(Vec::new()), async {
            changes.recv().await.unwrap().answer.send(Ok(vec![None])).unwrap();
        });
        assert_eq!(outcome, Ok(vec![None]));
        let (outcome, ()) = tokio::join!(overrides.change(Vec::new()), async { drop(changes.recv().await) });
        assert_eq!(outcome, Err(OverrideError::Timeout));
        drop(changes);
        assert_eq!(overrides.change(Vec::new()).await, Err(OverrideError::NoFile));
    }

    /// Polls all futures at once, and collects their outcomes.
    async fn futures(all: impl Iterator<Item = impl Future<Output = Outcome>>) -> Vec<Outcome> {
        let mut all: Vec<_> = all.map(Box::pin).collect();
        let mut done = Vec::new();
        std::future::poll_fn(|cx| {
            all.retain_mut(|one| match one.as_mut().poll(cx) {
                Poll::Ready(outcome) => {
                    done.push(outcome);
                    false
                }
                Poll::Pending => true,
            });
            if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        done
    }
}
