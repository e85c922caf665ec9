//! `/v1/overrides`: other numbers for single keys, set while Weir runs.
//!
//! Here is the HTTP and JSON around it. What a change becomes is for whoever owns the configuration: it is handed there,
//! and answered once it is in force and on disk.

use std::collections::HashSet;
use std::fmt;
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
use super::spend;
use crate::gate::{Gate, KeyError, Live};

/// Changes that may wait for those before them.
const WAITING_MAX: usize = 16;
/// Far longer than a file takes to be read and written.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One override that was set at run time.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The limit's name.
    pub limit: Box<str>,
    /// The text of the key.
    pub text: Box<str>,
    /// What it allows, as the configuration would say it.
    pub to: Value,
    /// Why it is left out, if it is.
    pub why_not: Option<Box<str>>,
}

/// What is to be set for one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// The limit's name.
    pub limit: String,
    /// The text of the key.
    pub text: String,
    /// What it is to be allowed; none to remove what was set.
    pub to: Option<Value>,
}

/// What was set before each edit, or why none of them was made.
pub type Outcome = Result<Vec<Option<Value>>, ChangeError>;

/// Edits that are made together or not at all.
#[derive(Debug)]
pub struct Change {
    /// In the order in which they are made.
    pub edits: Vec<Edit>,
    /// Whoever asks waits here for some time.
    pub answer: oneshot::Sender<Outcome>,
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// There is no file to keep it in.
    NoFile,
    /// What is on disk must be mended first.
    Mend(String),
    /// An edit, by its place, or all of them do not fit the configuration.
    Unfit(Option<usize>, String),
    /// The file cannot be written.
    Write(String),
    /// Nobody has said in time what has become of it.
    Late,
}

impl ChangeError {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoFile | Self::Mend(_) => StatusCode::CONFLICT,
            Self::Unfit(..) => StatusCode::BAD_REQUEST,
            Self::Write(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Late => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile => {
                f.write_str("nothing can be set at run time: `admin.overrides` names no file to keep it in")
            }
            Self::Mend(what) => f.write_str(what),
            Self::Unfit(_, why) => f.write_str(why),
            Self::Late => f.write_str("this takes too long; it may be in force later, or not"),
            Self::Write(error) => {
                write!(f, "nothing is changed: the file of `admin.overrides` cannot be written: {error}")
            }
        }
    }
}

/// What is set, and where changes of it go.
#[derive(Clone, Debug)]
pub struct Overrides {
    /// What the configuration in force has of them.
    pub set: Arc<ArcSwap<Vec<Override>>>,
    changes: mpsc::Sender<Change>,
}

impl Overrides {
    /// Beginning with `set`, and where changes come out. If nobody takes them there, nothing can be changed.
    pub fn new(set: Vec<Override>) -> (Self, mpsc::Receiver<Change>) {
        let (changes, asked) = mpsc::channel(WAITING_MAX);
        (Self { set: Arc::new(ArcSwap::from_pointee(set)), changes }, asked)
    }

    /// Makes edits, which takes as long as files take.
    async fn change(&self, edits: Vec<Edit>) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let made = async {
            match self.changes.send(Change { edits, answer }).await {
                Ok(()) => answered.await.unwrap_or(Err(ChangeError::Late)),
                Err(_) => Err(ChangeError::NoFile),
            }
        };
        timeout(TIMEOUT, made).await.unwrap_or(Err(ChangeError::Late))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    limit: String,
    /// A map; that it is none is not said by repeating it.
    key: Value,
    /// Not an option: what is absent must not pass for `null`.
    to: Value,
}

/// What one edit is, and how its key is shown.
type Read = (Edit, Value);

/// What is set, of all limits or of the one that is asked for.
pub(super) fn list(overrides: &Overrides, gate: &Gate, live: &Live, query: Option<&str>) -> Answer {
    let limit = match query.unwrap_or("").split_once('=') {
        Some(("limit", name)) => Some(name),
        None if query.unwrap_or("").is_empty() => None,
        _ => return problem(StatusCode::BAD_REQUEST, "only limit=NAME can be asked for"),
    };
    let set = overrides.set.load();
    let of_limit: Vec<_> = set.iter().filter(|set| limit.is_none_or(|limit| *set.limit == *limit)).collect();
    let is_known = |limit: &str| live.policy.limits().iter().any(|known| *known.name == *limit);
    if limit.is_some_and(|limit| of_limit.is_empty() && !is_known(limit)) {
        return problem(StatusCode::NOT_FOUND, &KeyError::UnknownLimit.to_string());
    }
    let value = |set: &&Override| {
        let Override { limit, text, to, why_not } = set;
        let key = shown(gate, live, limit, text);
        match why_not {
            None => json!({ "limit": limit, "key": key, "to": to }),
            Some(why) => json!({ "limit": limit, "key": key, "to": to, "left_out": true, "why": why }),
        }
    };
    answer::json(StatusCode::OK, &of_limit.iter().map(value).collect())
}

/// A key as people read it: by its parts; or, if it cannot be a key of this limit, masked whole.
fn shown(gate: &Gate, live: &Live, limit: &str, text: &str) -> Value {
    match gate.shown_key(live, limit, text) {
        Ok(parts) => parts.into_iter().map(|(name, text)| (name, Value::String(text))).collect(),
        Err(masked) => Value::String(masked),
    }
}

/// What an array or a single object asks for, so that no policy is held while it is waited for.
pub(super) struct Wanted {
    is_array: bool,
    all: Vec<Read>,
}

impl Wanted {
    /// Or what is wrong with the first one that is wrong.
    pub(super) fn read(gate: &Gate, live: &Live, asked: &Value) -> Result<Self, (StatusCode, String)> {
        let Value::Array(all) = asked else {
            return Ok(Self { is_array: false, all: vec![one(gate, live, asked)?] });
        };
        if all.len() > BATCH_MAX {
            return Err((StatusCode::BAD_REQUEST, format!("more than {BATCH_MAX} changes")));
        }
        let mut keys = HashSet::new();
        let mut placed = |(at, asked)| {
            let at_its_place = |(status, detail)| (status, format!("[{at}]: {detail}"));
            let read = one(gate, live, asked).map_err(at_its_place)?;
            let is_new = keys.insert((read.0.limit.clone(), read.0.text.clone()));
            let again = || (StatusCode::BAD_REQUEST, "this key of the limit is there already".to_owned());
            if is_new { Ok(read) } else { Err(at_its_place(again())) }
        };
        Ok(Self { is_array: true, all: all.iter().enumerate().map(&mut placed).collect::<Result<_, _>>()? })
    }

    /// Sets it, all or nothing.
    pub(super) async fn set(self, overrides: &Overrides) -> Answer {
        let edits: Vec<_> = self.all.iter().map(|(edit, _)| edit.clone()).collect();
        let was = match overrides.change(edits).await {
            Ok(was) => was,
            Err(ChangeError::Unfit(Some(at), why)) if self.is_array => {
                return problem(StatusCode::BAD_REQUEST, &format!("[{at}]: {why}"));
            }
            Err(error) => return problem(error.status(), &error.to_string()),
        };
        let told = self
            .all
            .into_iter()
            .zip(was)
            .map(|((edit, key), was)| json!({ "limit": edit.limit, "key": key, "to": edit.to, "was": was }));
        let mut told: Vec<Value> = told.collect();
        let told = if self.is_array { Value::Array(told) } else { told.pop().unwrap_or_default() };
        answer::json(StatusCode::OK, &told)
    }
}

fn one(gate: &Gate, live: &Live, asked: &Value) -> Result<Read, (StatusCode, String)> {
    let bad = |detail: String| (StatusCode::BAD_REQUEST, detail);
    let Asked { limit, key, to } = body::object(asked).map_err(bad)?;
    let Value::Object(key) = key else {
        return Err(bad("key: an object of the parts of the key by their names".into()));
    };
    let key = spend::texts(key).map_err(bad)?;
    let text = gate.key_text(live, &limit, &key).map_err(|error| match error {
        KeyError::UnknownLimit => (StatusCode::NOT_FOUND, error.to_string()),
        _ => bad(error.to_string()),
    })?;
    let key = shown(gate, live, &limit, &text);
    let to = Some(to).filter(|to| !to.is_null());
    Ok((Edit { limit, text, to }, key))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let (overrides, mut changes) = Overrides::new(Vec::new());
        // Nobody takes it, also not while others wait before it.
        let many = (0..=WAITING_MAX).map(|_| overrides.change(Vec::new()));
        for outcome in futures(many).await {
            assert_eq!(outcome, Err(ChangeError::Late));
        }
        // Who has waited that long is not there any more.
        for _ in 0..WAITING_MAX {
            assert!(changes.recv().await.unwrap().answer.is_closed());
        }
        let (outcome, ()) = tokio::join!(overrides.change(Vec::new()), async {
            changes.recv().await.unwrap().answer.send(Ok(vec![None])).unwrap();
        });
        assert_eq!(outcome, Ok(vec![None]));
        let (outcome, ()) = tokio::join!(overrides.change(Vec::new()), async { drop(changes.recv().await) });
        assert_eq!(outcome, Err(ChangeError::Late));
        drop(changes);
        assert_eq!(overrides.change(Vec::new()).await, Err(ChangeError::NoFile));
    }

    /// All of them at once.
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
