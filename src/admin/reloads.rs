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

use super::answer::Refused;
use crate::engine::policy::Policy;

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

    /// How a text, which messages call `name`, differs from the configuration in force.
    fn diff(&self, text: &str, name: &str) -> DiffBody;

    /// How the file of the configuration differs from the configuration in force; `None` if it has no file.
    fn diff_stored(&self) -> Option<DiffBody>;

    /// The text of the configuration in force, without secrets.
    fn toml(&self) -> String;

    /// The last configurations in force.
    fn versions(&self) -> VersionsBody;

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
    /// The tables of which changes are in force only after a restart.
    pub restart: Vec<String>,
}

/// One option.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Setting)]
pub struct SettingBody {
    /// The names of the tables and the key, joined by dots. The table of a list has its name, or its number from 1.
    pub path: String,
    /// The value, with `***` in place of secrets.
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

/// The parts of two configurations that differ, by names such as `limit per-ip`; at most 100 of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Difference)]
pub struct DifferenceBody {
    /// Parts of the newer configuration only.
    pub appeared: Vec<String>,
    /// Parts that differ.
    pub changed: Vec<String>,
    /// Parts of the older configuration only.
    pub vanished: Vec<String>,
}

/// How a configuration differs from the one in force.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ConfigurationDiff)]
pub struct DiffBody {
    /// Whether the configuration can be used. Without that, only the problems are known.
    pub valid: bool,
    /// The parts that differ.
    #[serde(flatten)]
    pub parts: DifferenceBody,
    /// The options that differ, in the order of their paths.
    pub settings: Vec<SettingDiffBody>,
    /// Whether more options differ than one answer has.
    pub more: bool,
    /// The first errors of a configuration that cannot be used.
    pub problems: Vec<FindingBody>,
    /// The errors with excerpts of the text, as `weir check` prints them; empty if there are none.
    pub text: String,
}

/// An option that differs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = SettingDiff)]
pub struct SettingDiffBody {
    /// The path of the option.
    pub path: String,
    /// The value in force, with `***` in place of secrets; `null` if it is absent.
    pub before: Value,
    /// The other value; `null` if it is absent.
    pub after: Value,
}

/// The last configurations in force.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ConfigurationVersions)]
pub struct VersionsBody {
    /// The file that keeps them; `null` if they end with the process.
    pub file: Option<String>,
    /// The configurations, the newest first.
    pub versions: Vec<VersionBody>,
}

/// A configuration that was put in force.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ConfigurationVersion)]
pub struct VersionBody {
    /// Its number.
    pub number: u64,
    /// When it was first put in force.
    pub at: String,
    /// The revision of a remote configuration.
    pub revision: Option<String>,
    /// The number of its limits.
    pub limits: usize,
    /// Whether it is in force.
    pub in_force: bool,
}

/// The configuration that a reload puts in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadTarget {
    /// The newest one.
    Newest,
    /// The one in force, with the files that it names as they are now.
    Files,
    /// The earlier one of this number, or the one that was in force before that of now.
    Earlier(Option<u64>),
}

/// An order to reload.
#[derive(Debug)]
pub struct Order {
    /// The configuration.
    pub target: ReloadTarget,
    /// Takes the outcome.
    pub answer: oneshot::Sender<ReloadBody>,
}

/// A reload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Reload)]
pub struct ReloadBody {
    /// The time.
    pub at: String,
    /// `signal`, `file`, `version`, `request` or `rollback`: the cause.
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
    /// How it differs from the configuration before.
    #[serde(flatten)]
    pub parts: DifferenceBody,
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
    orders: mpsc::Sender<Order>,
    /// The newest last.
    last: Arc<Mutex<VecDeque<ReloadBody>>>,
}

impl Reloads {
    /// No reload yet. Returns the receiver of orders; without a receiver, nothing can be reloaded.
    pub fn new() -> (Self, mpsc::Receiver<Order>) {
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

    /// Reloads, or returns to an earlier configuration, and waits for the outcome.
    pub(super) async fn order(&self, target: ReloadTarget) -> Result<ReloadBody, Refused> {
        let (answer, outcome) = oneshot::channel();
        let sent = self.orders.send(Order { target, answer }).await;
        let refused = |status, detail: &str| Refused(status, detail.to_owned());
        sent.map_err(|_| refused(StatusCode::CONFLICT, "this Weir has no configuration that changes"))?;
        outcome.await.map_err(|_| refused(StatusCode::SERVICE_UNAVAILABLE, "Weir is stopping"))
    }
}
