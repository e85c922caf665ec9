//! The state of a key in one sentence: which rate refuses its requests, and until when.

use super::words;
use crate::admin::keys::KeyBody;
use crate::admin::rates::units_in_words;
use crate::admin::times::rfc3339;
use crate::base::time::Timestamp;
use crate::engine::policy::{Mode, OnLimit};

/// The sentence about a key.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::admin) struct KeyVerdict {
    /// The CSS class: `good` if requests pass, `bad` if they do not.
    pub(in crate::admin) class: &'static str,
    pub(in crate::admin) text: String,
}

impl KeyVerdict {
    /// The sentence about `key` at `now`. Its limit has this action.
    pub(in crate::admin) fn of(key: &KeyBody, action: &OnLimit, now: Timestamp) -> Self {
        let is_in = |mode: Mode| key.mode == mode.word();
        let (is_good, text) = match &key.banned_until {
            Some(until) if until == "for good" => (false, "Banned for good: each request is refused.".to_owned()),
            Some(until) => (false, format!("Banned until {}: each request is refused.", words::instant(until))),
            None if is_in(Mode::Off) => (true, "The limit is off: it refuses no request.".to_owned()),
            None if key.rule.is_none() => (true, "Admitted: this key has no limit.".to_owned()),
            None if !key.limited => (true, admitted(key, now)),
            None if is_in(Mode::Shadow) => {
                (true, format!("Admitted in shadow mode. Otherwise: {}", limited(key, action, now)))
            }
            None => (false, limited(key, action, now)),
        };
        Self { class: if is_good { "good" } else { "bad" }, text }
    }
}

/// The sentence about a client whose address is banned until then, or for good.
pub(in crate::admin) fn of_ban(address: &str, until: Option<&str>) -> String {
    let until = until.map(|until| format!(" until {}", words::instant(until))).unwrap_or_default();
    format!("The ban of {address} refuses each request with 403{until}.")
}

fn admitted(key: &KeyBody, now: Timestamp) -> String {
    let remaining = key.remaining.unwrap_or_default();
    let shown = units_in_words(remaining, key.unit.as_deref());
    let is_named = key.unit.as_deref().is_some_and(|unit| shown.ends_with(unit));
    let [one, all] = if is_named { ["", ""] } else { [" unit", " units"] };
    let units = if remaining == 1 { format!("{shown}{one} remains") } else { format!("{shown}{all} remain") };
    match key.reset_after_ms {
        Some(0) => format!("Admitted: all {shown}{all} remain."),
        Some(ms) => format!("Admitted: {units}. All are back {}.", at(ms, now)),
        None => format!("Admitted: {units}."),
    }
}

fn limited(key: &KeyBody, action: &OnLimit, now: Timestamp) -> String {
    let rate = key.refusing.as_ref().or(key.rule.as_ref()).map(|rate| format!(" by {rate}")).unwrap_or_default();
    let limit = &key.limit;
    let word = match action {
        OnLimit::Reject => "Refused",
        OnLimit::Hold(_) => "Held",
        OnLimit::Delay(_) => "Delayed",
    };
    let waiting = match key.waiting {
        0 => String::new(),
        1 => " 1 request waits.".to_owned(),
        waiting => format!(" {waiting} requests wait."),
    };
    let end = key.retry_after_ms.map_or_else(
        || ": it is unknown whether and when a unit is back".to_owned(),
        |ms| format!(" until a unit is back {}", at(ms, now)),
    );
    format!("{word}{rate} of the limit {limit}{end}.{waiting}")
}

/// The instant in `ms` milliseconds, rounded up to a second, and the time until then.
fn at(ms: u64, now: Timestamp) -> String {
    let instant = now.saturating_add_ns(ms.saturating_mul(1_000_000)).saturating_add_ns(999_999_999);
    format!("at {} (in {})", words::instant(&rfc3339(instant)), words::wait(Some(ms), ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::HoldRule;

    const BANNED: &str = "Banned for good: each request is refused.";

    fn fresh() -> KeyBody {
        KeyBody {
            mode: String::new(),
            limit: "sellers".into(),
            id: String::new(),
            key: None,
            rule: Some("5 per 1m, and 100 per 1h".into()),
            from: "limit".into(),
            unit: None,
            remaining: Some(5),
            debt: 0,
            reset_after_ms: Some(0),
            retry_after_ms: None,
            limited: false,
            unused: false,
            refusing: None,
            waiting: 0,
            banned_until: None,
            decided_by: None,
            mirror_age_ms: None,
        }
    }

    #[test]
    fn a_sentence_names_the_rate_and_the_end() {
        let fresh = fresh();
        let spent = KeyBody { remaining: Some(1), reset_after_ms: Some(2500), ..fresh.clone() };
        let limited = KeyBody {
            remaining: Some(0),
            retry_after_ms: Some(90_000),
            limited: true,
            refusing: Some("100 per 1h".into()),
            ..fresh.clone()
        };
        let hold = OnLimit::Hold(HoldRule { max_wait_ns: None, max_waiting: 9 });
        let (enforced, refuse) = (Mode::Enforce, &OnLimit::Reject);
        for (key, mode, action, class, text) in [
            (fresh.clone(), enforced, refuse, "good", "Admitted: all 5 units remain."),
            (
                KeyBody { unit: Some("tokens".into()), ..fresh.clone() },
                enforced,
                refuse,
                "good",
                "Admitted: all 5 tokens remain.",
            ),
            (
                spent.clone(),
                enforced,
                refuse,
                "good",
                "Admitted: 1 unit remains. All are back at 1970-01-01 00:00:13 UTC (in 2s 500ms).",
            ),
            (
                limited.clone(),
                enforced,
                refuse,
                "bad",
                "Refused by 100 per 1h of the limit sellers until a unit is back at 1970-01-01 00:01:40 UTC (in 1m 30s).",
            ),
            (
                KeyBody { waiting: 2, retry_after_ms: None, refusing: None, ..limited.clone() },
                enforced,
                &hold,
                "bad",
                "Held by 5 per 1m, and 100 per 1h of the limit sellers: it is unknown whether and when a unit is back. 2 requests wait.",
            ),
            (limited.clone(), Mode::Off, refuse, "good", "The limit is off: it refuses no request."),
            (
                KeyBody { retry_after_ms: None, ..limited.clone() },
                Mode::Shadow,
                refuse,
                "good",
                "Admitted in shadow mode. Otherwise: Refused by 100 per 1h of the limit sellers: it is unknown whether and \
                 when a unit is back.",
            ),
            (KeyBody { banned_until: Some("for good".into()), ..spent }, enforced, refuse, "bad", BANNED),
            (KeyBody { rule: None, ..fresh }, enforced, refuse, "good", "Admitted: this key has no limit."),
        ] {
            let key = KeyBody { mode: mode.word().into(), ..key };
            let said = KeyVerdict::of(&key, action, Timestamp::from_ns(10_000_000_000));
            assert_eq!((said.class, &*said.text), (class, text));
        }
    }
}
