//! The configuration as operators read it, the last reloads, and the orders to reload.
//!
//! The owner of the configuration receives each order, and answers when the reload has ended.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use utoipa::ToSchema;

use crate::policy::Policy;

/// Reloads that are remembered.
const RELOADS_MAX: usize = 20;
/// Reloads that may wait for an earlier one.
const WAITING_MAX: usize = 4;
/// Most options of one answer.
pub const SETTINGS_MAX: usize = 10_000;

/// The configuration in force, and the compiler of others.
pub trait ConfigReader: fmt::Debug + Send + Sync {
    /// The options at `below` or below it, with defaults if `has_defaults`. Some defaults are those of `policy`, which is
    /// in force.
    fn settings(&self, policy: &Policy, below: &str, has_defaults: bool) -> ConfigBody;

    /// Compiles a text, which messages call `name`, in the place of the configuration. Puts nothing in force.
    fn check(&self, text: &str, name: &str) -> CheckBody;

    /// Compiles the file of the configuration as it is now; `None` if the configuration has no file. Puts nothing in force.
    fn check_stored(&self) -> Option<CheckBody>;
}

/// A configuration with the source of each value.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Configuration)]
pub struct ConfigBody {
    /// The file, or the place of a remote configuration.
    pub name: String,
    /// The options.
    pub settings: Vec<SettingBody>,
    /// Whether there are more options than one answer has.
    pub more: bool,
}

/// One option.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Setting)]
pub struct SettingBody {
    /// The names of the tables and the key, joined by dots. The table of a list has its name, or its number from 1.
    pub path: String,
    /// The value, with `***` in place of secrets.
    #[schema(value_type = Object)]
    pub value: Value,
    /// `file`, `environment`, `override`, `members` or `default`.
    pub source: String,
    /// The line of the file, from 1; `null` if the file does not have the value.
    pub line: Option<usize>,
    /// The environment variable that has the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
}

/// A problem with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Finding)]
pub struct FindingBody {
    /// `error` or `warning`.
    pub severity: String,
    /// The stable name of the problem.
    pub code: String,
    /// The problem.
    pub title: String,
    /// A correction.
    pub help: Option<String>,
    /// The file.
    pub file: String,
    /// The line, from 1; `null` if it is about the file as a whole.
    pub line: Option<usize>,
    /// The column in characters, from 1.
    pub column: Option<usize>,
}

/// The result of a check.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = CheckedConfiguration)]
pub struct CheckBody {
    /// Whether the configuration can be used.
    pub valid: bool,
    /// The number of limits; `null` if it is invalid.
    pub limits: Option<usize>,
    /// The first problems: errors, or warnings and overrides that would be left out.
    pub problems: Vec<FindingBody>,
    /// The number of further problems.
    pub more: usize,
    /// The problems with excerpts of the text, as `weir check` prints them; empty if there are none.
    pub text: String,
}

/// A reload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Reload)]
pub struct ReloadBody {
    /// The time.
    pub at: String,
    /// `signal`, `file`, `version` or `request`: the cause.
    pub cause: String,
    /// `applied`; `invalid` if the configuration cannot be compiled, or `refused` if it cannot be used. The earlier one
    /// stays then.
    pub outcome: String,
    /// Why it was refused.
    pub reason: Option<String>,
    /// The revision of a remote configuration.
    pub revision: Option<String>,
    /// The tables of which changes are in force only after a restart.
    pub restart: Vec<String>,
    /// The first errors or warnings.
    pub problems: Vec<FindingBody>,
    /// The number of further problems.
    pub more: usize,
    /// The problems with excerpts of the text, as `weir check` prints them; empty if there are none.
    pub text: String,
}

/// The last reloads, and the channel for new ones.
#[derive(Clone, Debug)]
pub struct Reloads {
    orders: mpsc::Sender<oneshot::Sender<ReloadBody>>,
    /// The newest last.
    last: Arc<Mutex<VecDeque<ReloadBody>>>,
}

impl Reloads {
    /// No reload yet. Returns the receiver of orders; without a receiver, nothing can be reloaded.
    pub fn new() -> (Self, mpsc::Receiver<oneshot::Sender<ReloadBody>>) {
        let (orders, receiver) = mpsc::channel(WAITING_MAX);
        (Self { orders, last: Arc::default() }, receiver)
    }

    /// Remembers a reload, and forgets the oldest one of more than `RELOADS_MAX`.
    pub fn record(&self, reload: ReloadBody) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == RELOADS_MAX {
            last.pop_front();
        }
        last.push_back(reload);
    }

    /// The remembered reloads, the newest first.
    pub(super) fn last(&self) -> Vec<ReloadBody> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }

    /// Reloads, and waits for the outcome.
    pub(super) async fn order(&self) -> Result<ReloadBody, (StatusCode, &'static str)> {
        let (answer, outcome) = oneshot::channel();
        let sent = self.orders.send(answer).await;
        sent.map_err(|_| (StatusCode::CONFLICT, "this Weir has no configuration that changes"))?;
        outcome.await.map_err(|_| (StatusCode::SERVICE_UNAVAILABLE, "Weir is stopping"))
    }
}
