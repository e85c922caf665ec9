//! The handling of requests that exceed a limit: `on_limit` with its tables, and `ban`.

use std::time::Duration;

use crate::config::diagnostics::Problem;
use crate::config::reader::time_units;
use crate::config::reader::units::Fault;
use crate::config::reader::{Located, Table};
use crate::engine::limit::slow_down::SlowDown;
use crate::engine::limit::{Algorithm, OnFull, QuotaError, Rate, ban};
use crate::engine::policy::{Allowed, DelayRule, HoldRule, OnLimit};

use Word::{Delay, Hold, Reject};

/// The handling of requests that exceed a limit.
pub(super) struct Excess {
    pub(super) on_limit: OnLimit,
    pub(super) ban: Option<ban::Rule>,
    /// `None` if the option is absent.
    on_full: Option<OnFull>,
}

/// The word of `on_limit`.
pub(super) fn word(table: &Table<'_>) -> Option<Word> {
    table.choice("on_limit", &[("reject", Reject), ("hold", Hold), ("delay", Delay)])
}

/// Compiles the handling of excess for this `word`. `queue` is the number of units that may wait, if the algorithm
/// limits it.
pub(super) fn compile(table: &Table<'_>, word: Option<Word>, queue: Option<u64>) -> Option<Excess> {
    let on_limit = on_limit(table, word, queue);
    let ban = table.has("ban").then(|| ban(&table.table("ban")));
    if let (Some(OnLimit::Delay(_)), Some(value)) = (on_limit, table.get("ban")) {
        let title = "`limit.ban` needs a limit that refuses requests, and this limit delays them";
        table.context.note(Problem::new(value.span(), title).absence());
    }
    let on_full = table.choice("on_full", &ON_FULL);
    if table.has("on_full") && on_full.is_none() {
        return None;
    }
    if let (Some(OnFull::Reject), Some(value), Some(OnLimit::Hold(_) | OnLimit::Delay(_))) =
        (on_full, table.get("on_full"), on_limit)
    {
        let title = "`limit.on_full`: `reject` needs `on_limit = \"reject\"`";
        table.context.note(Problem::new(value.span(), title).absence());
    }
    Some(Excess { on_full, on_limit: on_limit?, ban: ban.map_or(Some(None), |ban| ban.map(Some))? })
}

/// The words of `on_full`.
pub(super) const ON_FULL: [(&str, OnFull); 4] =
    [("sketch", OnFull::Sketch), ("shared", OnFull::Shared), ("reject", OnFull::Reject), ("allow", OnFull::Allow)];

impl Excess {
    /// Notes `sketch` of a limit whose keys cannot share a sketch.
    pub(super) fn check_on_full(&self, table: &Table<'_>, allowed: &Allowed) {
        if let (Some(value), true, false) = (table.get("on_full"), self.is_sketched(), can_sketch(allowed)) {
            let fault = Fault::new("`sketch` needs a token bucket with the same rule for every key");
            table.fault("on_full", value.span(), fault.help(Some("remove it; the default is then `shared`".into())));
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

fn on_limit(table: &Table<'_>, what: Option<Word>, queue: Option<u64>) -> Option<OnLimit> {
    let (hold, delay) = (table.table("hold"), table.table("delay"));
    let max_wait = hold.duration_or("max_wait");
    let max_waiting = hold.count("max_waiting");
    let slow_down = slow_down(&delay);
    let needs = |option: &str, span, word, help: &str| {
        let problem = Problem::new(span, format!("`limit.{option}` needs `on_limit = \"{word}\"`")).absence();
        table.context.note(problem.help(Some(help.into())));
    };
    let refused = "without it, the limit refuses requests";
    match what {
        Some(Reject) if hold.is_present() => needs("hold", hold.span(), "hold", refused),
        Some(Delay) if let Some(value) = hold.get("max_wait") => {
            needs("hold.max_wait", value.span(), "hold", "`delay.max` is the longest delay of a request");
        }
        _ => {}
    }
    match what {
        Some(Reject) if delay.is_present() => needs("delay", delay.span(), "delay", refused),
        Some(Hold) if delay.is_present() => {
            needs("delay", delay.span(), "delay", "with `hold`, the limit computes how long a request waits");
        }
        _ => {}
    }
    Some(match what? {
        Reject => OnLimit::Reject,
        Hold => {
            let max_waiting = match queue.filter(|_| !hold.has("max_waiting")) {
                Some(units) => usize::try_from(units).unwrap_or(usize::MAX),
                None => max_waiting?.into_inner(),
            };
            OnLimit::Hold(HoldRule { max_wait_ns: max_wait?.map(ns), max_waiting })
        }
        Delay => OnLimit::Delay(DelayRule { slow_down: slow_down?, max_waiting: max_waiting?.into_inner() }),
    })
}

/// The words of `on_limit`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Reject,
    Hold,
    Delay,
}

fn slow_down(table: &Table<'_>) -> Option<SlowDown> {
    let step = table.parsed("step", time_units::duration);
    let max = table.parsed("max", time_units::duration);
    let (step, max) = (step?, max?);
    if step.get_ref() > max.get_ref() {
        let title = "`limit.delay.step`: is longer than `max`, so every delay would be `max`";
        table.context.note(Problem::new(step.span(), title).also(max.span(), "the longest"));
        return None;
    }
    Some(SlowDown { step_ns: ns(*step.get_ref()), max_ns: ns(*max.get_ref()) })
}

fn ban(table: &Table<'_>) -> Option<ban::Rule> {
    let after: Option<Located<Rate>> = table.parsed("after", |text| time_units::rate(text)?.rate());
    let first = table.parsed("for", time_units::duration);
    let most = table.parsed("for_max", time_units::duration);
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

/// The default of `for_max`: a day.
const DEFAULT_FOR_MAX: Duration = Duration::from_hours(24);

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
