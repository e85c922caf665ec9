//! The handling of requests that exceed a limit: `on_limit` with its tables, and `ban`.

use std::time::Duration;

use http::StatusCode;

use super::refusal_answer;
use crate::base::time::saturating_ns;
use crate::config::reader::{Located, Problem, Table, time_units};
use crate::config::schema::words::{self, OnLimitWord};
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::{Algorithm, OnFull, QuotaError, Rate, ban};
use crate::engine::policy::{Allowed, DelayRule, HoldRule, OnLimit, RefusalRules};

use OnLimitWord::{Delay, Hold, Reject};

/// The handling of requests that exceed a limit.
pub(super) struct Excess {
    pub(super) on_limit: OnLimit,
    pub(super) ban: Option<ban::Rule>,
    pub(super) refusals: RefusalRules,
    pub(super) jitter_percent: u8,
    /// `None` if the option is absent.
    on_full: Option<OnFull>,
}

/// Compiles the handling of excess for this `word` of `on_limit`. `queue` is the number of units that may wait, if the
/// algorithm limits it.
pub(super) fn compile(table: &Table<'_>, word: Option<OnLimitWord>, queue: Option<u64>) -> Option<Excess> {
    let on_limit = on_limit(table, word, queue);
    let ban_table = table.table("ban");
    let (ban, refusals) = (ban_table.if_present(ban), refusals(table, &ban_table));
    if let (Some(OnLimit::Delay(_)), Some(value)) = (on_limit, table.get("ban")) {
        let title = "`limit.ban` needs a limit that refuses requests, and this limit delays them";
        table.context.note(Problem::new(value.span(), title).absence());
    }
    let jitter_percent = table.percent("jitter", 0, None);
    let on_full = table.optional("on_full", |key| table.choice(key, &words::ON_FULL))?;
    if on_full == Some(OnFull::Reject) && matches!(on_limit, Some(OnLimit::Hold(_) | OnLimit::Delay(_))) {
        let title = "`limit.on_full`: `reject` needs `on_limit = \"reject\"`";
        table.context.note(Problem::new(table.span_of("on_full"), title).absence());
    }
    Some(Excess { on_full, on_limit: on_limit?, ban: ban?, refusals: refusals?, jitter_percent: jitter_percent? })
}

fn refusals(table: &Table<'_>, ban: &Table<'_>) -> Option<RefusalRules> {
    let status = |table: &Table<'_>| table.count("status").and_then(|code: u16| StatusCode::from_u16(code).ok());
    let (refused, banned, answer) = (status(table), status(ban), refusal_answer::answer(table));
    Some(RefusalRules { refused: refused?, banned: banned?, answer: answer? })
}

impl Excess {
    /// Notes `sketch` of a limit whose keys cannot share a sketch.
    pub(super) fn check_on_full(&self, table: &Table<'_>, allowed: &Allowed) {
        if self.is_sketched() && !can_sketch(allowed) {
            let what = "`sketch` needs a token bucket with the same rule for every key";
            table.fault_at("on_full", (what, "remove it; the default is then `shared`"));
        }
    }

    /// Whether `on_full = "sketch"` is written.
    pub(super) fn is_sketched(&self) -> bool {
        matches!(self.on_full, Some(OnFull::Sketch))
    }

    /// What happens to new keys of a limit with these rules at `max_keys`.
    pub(super) fn on_full(&self, allowed: &Allowed) -> OnFull {
        self.on_full.unwrap_or(if can_sketch(allowed) { OnFull::Sketch } else { OnFull::Shared })
    }
}

fn can_sketch(allowed: &Allowed) -> bool {
    matches!(allowed.usual, Algorithm::TokenBucket(_)) && !allowed.is_special()
}

fn on_limit(table: &Table<'_>, what: Option<OnLimitWord>, queue: Option<u64>) -> Option<OnLimit> {
    let (hold, delay) = (table.table("hold"), table.table("delay"));
    let max_wait = hold.duration_or("max_wait");
    let max_waiting = hold.count("max_waiting");
    let slow_down = slow_down(&delay);
    let needs = |option: &str, span, word, help: &str| {
        let problem = Problem::new(span, format!("`limit.{option}` needs `on_limit = \"{word}\"`")).absence();
        table.context.note(problem.help(help));
    };
    let refused = "without it, the limit refuses requests";
    match what {
        Some(Reject) if hold.is_present() => needs("hold", hold.span(), "hold", refused),
        Some(Delay) if hold.has("max_wait") => {
            let help = "`delay.max` is the longest delay of a request";
            needs("hold.max_wait", hold.span_of("max_wait"), "hold", help);
        }
        _ => {}
    }
    if let Some(word @ (Reject | Hold)) = what.filter(|_| delay.is_present()) {
        let held = "with `hold`, the limit computes how long a request waits";
        needs("delay", delay.span(), "delay", if word == Hold { held } else { refused });
    }
    Some(match what? {
        Reject => OnLimit::Reject,
        Hold => {
            let max_waiting = match queue.filter(|_| !hold.has("max_waiting")) {
                Some(units) => usize::try_from(units).unwrap_or(usize::MAX),
                None => max_waiting?,
            };
            OnLimit::Hold(HoldRule { max_wait_ns: max_wait?.map(saturating_ns), max_waiting })
        }
        Delay => OnLimit::Delay(DelayRule { slow_down: slow_down?, max_waiting: max_waiting? }),
    })
}

fn slow_down(table: &Table<'_>) -> Option<SlowDown> {
    let step = table.duration_at("step");
    let max = table.duration_at("max");
    let (step, max) = (step?, max?);
    if step.get_ref() > max.get_ref() {
        let title = "`limit.delay.step`: is longer than `max`, so every delay would be `max`";
        table.context.note(Problem::new(step.span(), title).also(max.span(), "the longest"));
        return None;
    }
    Some(SlowDown { step_ns: saturating_ns(*step.get_ref()), max_ns: saturating_ns(*max.get_ref()) })
}

fn ban(table: &Table<'_>) -> Option<ban::Rule> {
    let after: Option<Located<Rate>> = table.parsed_at("after", |text| time_units::rate(text)?.rate());
    let first = table.duration_at("for");
    let most = table.optional("for_max", |key| table.duration_at(key));
    let (after, first) = (after?, first?);
    let most = most?.unwrap_or_else(|| Located::new(first.span(), DEFAULT_FOR_MAX.max(*first.get_ref())));
    if first.get_ref() > most.get_ref() {
        let title = "`limit.ban.for`: the first ban is longer than `for_max`";
        table.context.note(Problem::new(first.span(), title).also(most.span(), "the longest"));
        return None;
    }
    let rule = ban::Rule::new(*after.get_ref(), saturating_ns(*first.get_ref()), saturating_ns(*most.get_ref()));
    rule.map_err(|error: QuotaError| table.fault("after", after.span(), error.to_string())).ok()
}

/// The default of `for_max`: a day.
const DEFAULT_FOR_MAX: Duration = Duration::from_hours(24);
