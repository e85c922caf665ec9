//! What happens to requests beyond a limit: `on_limit` with its tables, and `ban`.

use std::time::Duration;

use super::diagnostics::Problem;
use super::reader::{Located, Table};
use super::units::{self, Fault};
use crate::limit::{QuotaError, Rate, ban};
use crate::policy::{HoldRule, OnLimit};

/// What a limit does to what is beyond it.
pub(super) struct Beyond {
    pub(super) on_limit: OnLimit,
    pub(super) ban: Option<ban::Rule>,
}

pub(super) fn beyond(table: &Table<'_>) -> Option<Beyond> {
    let on_limit = on_limit(table);
    let ban = table.has("ban").then(|| ban(&table.table("ban")));
    Some(Beyond { on_limit: on_limit?, ban: ban.map_or(Some(None), |ban| ban.map(Some))? })
}

fn on_limit(table: &Table<'_>) -> Option<OnLimit> {
    let holds = table.choice("on_limit", &[("reject", false), ("hold", true)]);
    let hold = table.table("hold");
    let max_wait = hold.duration_or("max_wait");
    let max_waiting = hold.count("max_waiting");
    if hold.is_present() && holds == Some(false) {
        let problem = Problem::new(hold.span(), "`limit.hold` needs `on_limit = \"hold\"`").absence();
        table.context.note(problem.help(Some("without it, requests beyond the limit are refused".into())));
    }
    if !holds? {
        return Some(OnLimit::Reject);
    }
    let max_wait_ns = max_wait?.map(ns);
    Some(OnLimit::Hold(HoldRule { max_wait_ns, max_waiting: max_waiting?.into_inner() }))
}

fn ban(table: &Table<'_>) -> Option<ban::Rule> {
    let after: Option<Located<Rate>> = table.parsed("after", units::rate);
    let first = table.parsed("for", units::duration);
    let most = table.parsed("for_max", units::duration);
    let (after, first) = (after?, first?);
    let most = match most {
        Some(most) => most,
        None if table.has("for_max") => return None,
        None => Located::new(first.span(), DEFAULT_FOR_MAX.max(*first.get_ref())),
    };
    if first.get_ref() > most.get_ref() {
        let title = "`limit.ban.for`: the first ban is longer than `for_max`";
        table.context.note(Problem::new(first.span(), title).also(most.span(), "the longest"));
        return None;
    }
    let rule = ban::Rule::new(*after.get_ref(), ns(*first.get_ref()), ns(*most.get_ref()));
    rule.map_err(|error: QuotaError| table.fault("after", after.span(), Fault::new(error.to_string()))).ok()
}

/// Where `for_max` is not written: a day.
const DEFAULT_FOR_MAX: Duration = Duration::from_hours(24);

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
