//! The question before a change that clients notice. Nothing is changed before its operator has confirmed.
//!
//! It is a page of its own, so that it works without scripts.

use askama::Template;
use http::StatusCode;

use super::fields::FormFields;
use super::shell::{Shell, Visitor, page};
use crate::admin::answer::Answer;

/// A change to confirm.
pub(super) struct Question<'q> {
    /// The entry of the navigation.
    pub(super) entry: &'static str,
    /// The path of the form.
    pub(super) action: &'static str,
    pub(super) title: String,
    /// What clients will notice.
    pub(super) effect: &'static str,
    /// The text of the button.
    pub(super) button: String,
    /// Whether the length of a ban is missing.
    pub(super) asks_length: bool,
    /// The page to return to.
    pub(super) back: &'q str,
}

#[derive(Template)]
#[template(path = "confirm.html", config = "src/admin/page/askama.toml")]
struct ConfirmPage<'q> {
    shell: Shell,
    question: Question<'q>,
    /// The fields of the form that the operator does not see.
    kept: Vec<(&'q str, &'q str)>,
    reason: &'q str,
}

/// The page with `question`; `None` if the operator has confirmed, or may change nothing.
pub(super) fn ask(visitor: &Visitor, fields: &FormFields, question: Question<'_>) -> Option<Answer> {
    let shell = Shell::new(visitor, question.entry, &FormFields::default()).with_title(question.title.clone());
    let is_confirmed = fields.get("confirmed") == "yes" && !question.asks_length;
    if is_confirmed || !shell.may_write {
        return None;
    }
    let seen = |name: &str| ["csrf", "confirmed", "reason"].contains(&name) || (question.asks_length && name == "for");
    let kept = fields.pairs().filter(|(name, _)| !seen(name)).collect();
    Some(page(StatusCode::OK, &ConfirmPage { shell, question, kept, reason: fields.get("reason") }))
}

/// The question before a ban of `target`; `None` also for a length that the API refuses.
pub(super) fn ask_ban(
    visitor: &Visitor,
    fields: &FormFields,
    (entry, action, back): (&'static str, &'static str, &str),
    target: &str,
) -> Option<Answer> {
    let length = ban_length(fields);
    let (title, button) = match length {
        None => (format!("For how long is {target} banned?"), "Ban".to_owned()),
        Some(FOREVER) => (format!("Ban {target} for good?"), "Ban for good".to_owned()),
        Some(length) if humantime::parse_duration(length).is_ok() => {
            (format!("Ban {target} for {length}?"), format!("Ban for {length}"))
        }
        Some(_) => return None,
    };
    let effect = "Each request of the banned clients gets 403 from now on, until the ban ends or is lifted.";
    ask(visitor, fields, Question { entry, action, title, effect, button, asks_length: length.is_none(), back })
}

/// The length of a ban for good.
pub(super) const FOREVER: &str = "forever";

/// The length of a ban in the fields; `None` if there is none.
pub(super) fn ban_length(fields: &FormFields) -> Option<&str> {
    fields.filled("forever").map(|_| FOREVER).or_else(|| fields.filled("for"))
}
