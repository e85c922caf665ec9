//! The question before a change that clients notice. Nothing is changed before its operator has confirmed.
//!
//! It is a page of its own, so that it works without scripts.

#![expect(clippy::result_large_err)] // the error is a page, made once for a request

use askama::Template;
use http::StatusCode;

use super::fields::FormFields;
use super::shell::{Shell, Visitor, page};
use crate::admin::answer::Answer;

#[derive(Template)]
#[template(path = "confirm.html", config = "src/admin/page/askama.toml")]
struct ConfirmPage<'q> {
    shell: Shell,
    /// The path of the form.
    action: &'static str,
    /// What clients will notice.
    effect: &'static str,
    /// The text of the button.
    button: &'q str,
    /// Whether the length of a ban is missing.
    asks_length: bool,
    /// The page to return to.
    back: &'q str,
    /// The fields of the form that the operator does not see.
    kept: Vec<(&'q str, &'q str)>,
    reason: &'q str,
}

/// The entry of the navigation, the path of the form, and the page to return to.
type Form<'q> = (&'static str, &'static str, &'q str);

/// The title, what clients will notice, and the text of the button.
type Question<'q> = (String, &'static str, &'q str);

/// Asks a question. The error is its page; there is none if the operator has confirmed, or may change nothing.
pub(super) fn ask(
    visitor: &Visitor,
    fields: &FormFields,
    form: Form<'_>,
    question: Question<'_>,
) -> Result<(), Answer> {
    ask_with_length(visitor, fields, form, question, false)
}

fn ask_with_length(
    visitor: &Visitor,
    fields: &FormFields,
    (entry, action, back): Form<'_>,
    (title, effect, button): Question<'_>,
    asks_length: bool,
) -> Result<(), Answer> {
    let shell = Shell::new(visitor, entry, &FormFields::default()).with_title(title);
    let is_confirmed = fields.get("confirmed") == "yes" && !asks_length;
    if is_confirmed || !shell.may_write {
        return Ok(());
    }
    let seen = |name: &str| ["csrf", "confirmed", "reason"].contains(&name) || (asks_length && name == "for");
    let (kept, reason) = (fields.pairs().filter(|(name, _)| !seen(name)).collect(), fields.get("reason"));
    Err(page(StatusCode::OK, &ConfirmPage { shell, action, effect, button, asks_length, back, kept, reason }))
}

/// Asks before a ban of `target`, unless the API refuses its length.
pub(super) fn ask_ban(visitor: &Visitor, fields: &FormFields, form: Form<'_>, target: &str) -> Result<(), Answer> {
    let length = ban_length(fields);
    let (title, button) = match length {
        None => (format!("For how long is {target} banned?"), "Ban".to_owned()),
        Some(FOREVER) => (format!("Ban {target} for good?"), "Ban for good".to_owned()),
        Some(length) if humantime::parse_duration(length).is_ok() => {
            (format!("Ban {target} for {length}?"), format!("Ban for {length}"))
        }
        Some(_) => return Ok(()),
    };
    let effect = "Each request of the banned clients gets 403 from now on, until the ban ends or is lifted.";
    ask_with_length(visitor, fields, form, (title, effect, &button), length.is_none())
}

/// Asks before the end of a ban.
pub(super) fn ask_lift(visitor: &Visitor, fields: &FormFields, form: Form<'_>) -> Result<(), Answer> {
    let title = format!("Lift the ban of {}?", fields.get("shown"));
    let effect = "Requests of the banned clients pass again, as far as limits admit them.";
    ask(visitor, fields, form, (title, effect, "Lift the ban"))
}

/// The length of a ban for good.
pub(super) const FOREVER: &str = "forever";

/// The length of a ban in the fields; `None` if there is none.
pub(super) fn ban_length(fields: &FormFields) -> Option<&str> {
    fields.filled("forever").map(|_| FOREVER).or_else(|| fields.filled("for"))
}
