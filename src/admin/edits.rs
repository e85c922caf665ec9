//! Edits of overrides on their way from a request to the owner of the configuration, and back to an answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use utoipa::ToSchema;

use super::access::{Access, Operator};
use super::answer::{Answered, OneOrMany, Refused, json};
use super::audit::{self, AuditFile, Audited};
use super::body::{BATCH_MAX, Reason};
use super::change::Changed;
use super::key::{self, KeyNameBody};
use super::keys::{banned_until, refused};
use super::state::Admin;
use super::times::rfc3339;
use crate::base::time::{Timestamp, saturating_ns, system_now};
use crate::engine::gate::{FoundKey, Gate, KeyError, KeyName, Live};
use crate::engine::policy::overrides::{EndedOverride, Override, OverrideEdit, OverrideError};

/// The HTTP status of an error.
fn status(error: &OverrideError) -> StatusCode {
    match error {
        OverrideError::Off | OverrideError::InvalidOnDisk(_) => StatusCode::CONFLICT,
        OverrideError::Invalid { .. } => StatusCode::BAD_REQUEST,
        OverrideError::Write(_) | OverrideError::OnlyFleet { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        OverrideError::Fleet(_) | OverrideError::Unanswered { .. } | OverrideError::Timeout => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// A change of one override.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OverrideChange)]
pub(super) struct EditBody {
    /// The name of the limit.
    pub(super) limit: String,
    /// The parts of the key by name, each a text or a whole number; or the text of the key.
    pub(super) key: KeyNameBody,
    /// A rate, a list of rates, `"unlimited"`, or a table as in the configuration; `null` removes the override.
    // Not an `Option`: an absent field must not mean `null`.
    pub(super) to: Value,
    /// How long it applies, such as `10min` or `24h`; without it, until it is removed.
    #[serde(rename = "for")]
    pub(super) length: Option<String>,
    /// Whether it may drop windows of a limit with several rates; `false` by default.
    #[serde(default)]
    pub(super) replace: bool,
    /// The reason, for the audit log.
    pub(super) reason: Option<Reason>,
}

/// An edit, its key as it is shown, and its reason.
struct ShownEdit {
    edit: OverrideEdit,
    until: Option<Timestamp>,
    key: Value,
    reason: Option<String>,
}

/// A change that was made.
#[derive(Serialize, ToSchema)]
#[schema(as = ChangedOverride)]
pub(super) struct EditedBody {
    /// The name of the limit.
    pub(super) limit: String,
    /// The parts of the key by name, without secrets.
    pub(super) key: Value,
    /// The allowance now; `null` if the override was removed.
    pub(super) to: Option<Value>,
    /// The end. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    /// The allowance before; `null` if there was none. With an end it is an object of `to` and `until`.
    pub(super) was: Option<Value>,
    /// The end of the ban of the key, or `for good`: an override does not lift a ban. Absent if the key is not banned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) banned_until: Option<String>,
    /// Why the override ends with the process. Absent if it outlives the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_kept: Option<String>,
}

/// The edits of one request. They do not borrow the policy, so that no policy is kept alive while they wait.
pub(super) struct Edits {
    /// The action in the audit log.
    action: &'static str,
    is_array: bool,
    all: Vec<ShownEdit>,
}

impl Edits {
    /// Reads one edit or an array of edits with `read`. The error is that of the first invalid edit.
    pub(super) fn read(
        (gate, live): (&Gate, &Live),
        action: &'static str,
        body: &Value,
        read: impl Fn(&Value) -> Result<EditBody, String>,
    ) -> Result<Self, Refused> {
        let read = |body| shown(gate, live, read(body)?);
        let Value::Array(all) = body else {
            return Ok(Self { action, is_array: false, all: vec![read(body)?] });
        };
        if all.len() > BATCH_MAX {
            return Err(format!("more than {BATCH_MAX} changes").into());
        }
        let mut keys = HashSet::new();
        let mut edits = Vec::with_capacity(all.len());
        for (index, body) in all.iter().enumerate() {
            let at_index = |Refused(status, detail)| Refused(status, format!("[{index}]: {detail}"));
            let shown = read(body).map_err(at_index)?;
            if !keys.insert((shown.edit.limit.clone(), shown.edit.key.clone())) {
                return Err(at_index("an earlier change has this key of the limit".to_owned().into()));
            }
            edits.push(shown);
        }
        Ok(Self { action, is_array: true, all: edits })
    }

    /// Removes `overrides`.
    pub(super) fn removals<'o>(
        (gate, live): (&Gate, &Live),
        action: &'static str,
        overrides: impl Iterator<Item = &'o Override>,
        reason: Option<&str>,
    ) -> Self {
        let removal = |Override { limit, key, .. }: &Override| ShownEdit {
            edit: OverrideEdit { limit: limit.to_string(), key: key.to_string(), allowance: None, replaces: false },
            until: None,
            key: shown_key(gate, live, limit, key),
            reason: reason.map(str::to_owned),
        };
        Self { action, is_array: true, all: overrides.map(removal).collect() }
    }

    /// Removes one override.
    pub(super) fn removal(at: (&Gate, &Live), action: &'static str, one: &Override, reason: Option<&str>) -> Self {
        Self { is_array: false, ..Self::removals(at, action, std::iter::once(one), reason) }
    }

    /// Makes all edits or none, and answers with the `body` of each.
    pub(super) async fn answer<B: Serialize>(
        self,
        admin: &Admin,
        operator: &Operator,
        body: impl Fn(EditedBody) -> B,
    ) -> Answered {
        let is_array = self.is_array;
        let mut made: Vec<_> = self.apply(admin, operator).await?.into_iter().map(body).collect();
        let answer = match made.pop() {
            Some(only) if !is_array => OneOrMany::One(only),
            last => {
                made.extend(last);
                OneOrMany::Many(made)
            }
        };
        Ok(json(StatusCode::OK, &answer))
    }

    async fn apply(self, admin: &Admin, operator: &Operator) -> Result<Vec<EditedBody>, Refused> {
        let edits: Vec<_> = self.all.iter().map(|shown| shown.edit.clone()).collect();
        let refused = |error: &OverrideError| match error {
            OverrideError::Invalid { index: Some(index), reason } if self.is_array => {
                Refused(StatusCode::BAD_REQUEST, format!("[{index}]: {reason}"))
            }
            _ => Refused(status(error), error.to_string()),
        };
        let (Changed { before, not_kept }, error, outcome) = match admin.overrides.change(edits).await {
            Ok(made) => (made, None, None),
            // The fleet has the change, or may have it, so it has its lines.
            Err(error) => match (refused(&error), error) {
                (refused, OverrideError::OnlyFleet { before, .. }) => {
                    (Changed { before, not_kept: None }, Some(refused), None)
                }
                (refused, OverrideError::Unanswered { before, .. }) => {
                    (Changed { before, not_kept: None }, Some(refused), Some("unknown"))
                }
                (refused, _) => return Err(refused),
            },
        };
        let now = admin.gate.clock().now();
        let (mut audited, mut made) = (Vec::new(), Vec::new());
        for (ShownEdit { edit, until, key, reason }, was) in self.all.into_iter().zip(before) {
            let OverrideEdit { limit, key: text, allowance, .. } = edit;
            audited.push(Audited {
                action: self.action,
                limit: Some(limit.clone()),
                target: key.clone(),
                before: was.clone().unwrap_or_default(),
                after: allowance.clone().unwrap_or_default(),
                reason,
                outcome,
            });
            let banned_until = ban_of(&admin.gate, &admin.live.load(), &limit, text, now);
            let not_kept = not_kept.as_deref().map(str::to_owned);
            let to = allowance.map(|mut to| if until.is_some() { to["to"].take() } else { to });
            made.push(EditedBody { limit, key, to, until: until.map(rfc3339), was, banned_until, not_kept });
        }
        admin.record(operator, audited).await;
        error.map_or(Ok(made), Err)
    }
}

/// Writes a line of the audit log for each override that has ended.
pub async fn record_ended(audit: (&Access, &Arc<AuditFile>), (gate, live): (&Gate, &Live), ended: &[EndedOverride]) {
    let line = |EndedOverride { limit, key, allowance }: &EndedOverride| Audited {
        action: if allowance["to"]["plan"].is_null() { "override" } else { "plan" },
        limit: Some(limit.clone()),
        target: shown_key(gate, live, limit, key),
        before: allowance.clone(),
        after: Value::Null,
        reason: Some("its time is over".to_owned()),
        outcome: None,
    };
    audit::record(audit, None, ended.iter().map(line).collect()).await;
}

/// The override that a request names by its text, also one that does not fit its limit.
pub(super) fn find_override<'o>(
    (gate, live): (&Gate, &Live),
    overrides: &'o [Override],
    limit: &str,
    key: &str,
) -> Option<&'o Override> {
    let of_limit = || overrides.iter().filter(|one| *one.limit == *limit);
    of_limit().find(|one| *one.key == *key).or_else(|| {
        let found = gate.find_key(live, limit, &key::name_of_text(key).ok()?).ok()?;
        let text = text_of((gate, live), limit, found).ok()?;
        of_limit().find(|one| *one.key == *text)
    })
}

/// The names and texts of the parts of a key, without secrets. `#` and the id if the text has the id, and a masked text if
/// it is not a key of this limit.
pub(super) fn shown_key(gate: &Gate, live: &Live, limit: &str, text: &str) -> Value {
    match gate.shown_key(live, limit, text) {
        Ok(parts) => parts.into_iter().map(|(name, text)| (name, Value::String(text))).collect(),
        Err(masked) => Value::String(masked),
    }
}

/// Reads a length such as `10min`, above zero. The error names the `parameter`.
pub(super) fn parsed_length(parameter: &str, text: &str) -> Result<Duration, String> {
    let length = humantime::parse_duration(text).ok().filter(|length| !length.is_zero());
    length.ok_or_else(|| format!("{parameter}: expected a duration such as `10min` or `24h`"))
}

/// The seconds until an end by the wall clock, rounded up.
pub(super) fn seconds_left(until: Timestamp) -> u64 {
    until.ns_since(system_now()).div_ceil(1_000_000_000)
}

/// The end of the ban of a key; `None` if it is not banned.
fn ban_of(gate: &Gate, live: &Live, limit: &str, text: String, now: Timestamp) -> Option<String> {
    let found = gate.find_key(live, limit, &KeyName::Text(text)).ok()?;
    let banned_ns = gate.key_state(live, &found, None, now)?.banned_ns?;
    Some(banned_until(banned_ns, now))
}

/// The text by which an override names a key.
fn text_of((gate, live): (&Gate, &Live), limit: &str, found: FoundKey) -> Result<String, KeyError> {
    let key = found.key;
    match found.pairs() {
        Some(parts) => gate.key_text(live, limit, &parts),
        None => gate.text_of_hash(live, limit, key),
    }
}

fn shown(gate: &Gate, live: &Live, asked: EditBody) -> Result<ShownEdit, Refused> {
    let EditBody { limit, key, to, length, replace: replaces, reason } = asked;
    let mut allowance = Some(to).filter(|to| !to.is_null());
    let length = length.as_deref().map(|text| parsed_length("for", text)).transpose()?;
    // The clock of the date: the end is written to a file, and read by other processes.
    let until = length.map(|length| system_now().saturating_add_ns(saturating_ns(length)));
    if let (Some(to), Some(until)) = (&mut allowance, until) {
        *to = value!({ "to": to.take(), "until": rfc3339(until) });
    } else if until.is_some() {
        return Err("for: a removal has no end".to_owned().into());
    }
    let text = match key::name_of_body(key)? {
        KeyName::Parts(parts) => gate.key_text(live, &limit, &parts),
        name => gate.find_key(live, &limit, &name).and_then(|found| text_of((gate, live), &limit, found)),
    };
    let text = text.map_err(|error| refused(live, &error))?;
    let shown = shown_key(gate, live, &limit, &text);
    let (edit, reason) = (OverrideEdit { limit, key: text, allowance, replaces }, reason.map(Into::into));
    Ok(ShownEdit { edit, until, key: shown, reason })
}
