//! Looks: a request that costs nothing passes if one unit would pass now. Nothing is charged, no refusal by a limit is
//! counted, and a limit that holds or delays requests refuses.
//!
//! Not here: the questions to stores (`ask`), and looks of callers that name limits (`named_verdict`).

use super::ask::{Decider, look};
use super::check::{Check, Checked as _, Checks, is_denied};
use super::pass::listed;
use super::refusal::{Cause, Refusal};
use super::standing::Standing;
use crate::base::time::{Clock, Timestamp};
use crate::engine::limit::Retry;
use crate::engine::policy::{Facts, Mode};

/// The standing with the tightest limit, or the refusal.
type Looked<'l> = Result<Option<Standing<'l>>, Box<Refusal<'l>>>;

/// Whether the request looks.
#[inline]
pub(super) fn is_look(facts: &Facts<'_>) -> bool {
    facts.cost == Some(0)
}

/// Makes `checks` looks: charges of one unit that are never made.
pub(super) fn prepare(checks: &mut Checks<'_>) {
    for check in checks.charges_mut() {
        (check.cost, check.enforced) = (1, check.check.mode() == Mode::Enforce);
    }
}

/// Asks the stores of `looks`, and decides.
pub(super) async fn ask_and_decide<'l, D: Decider>(looks: &mut Checks<'l>, decider: &D, clock: Clock) -> Looked<'l> {
    look(looks, decider, clock).await;
    conclude(looks, clock.now())
}

/// Decides `looks` without stores.
pub(super) fn decide<'l>(looks: &mut Checks<'l>, now: Timestamp) -> Looked<'l> {
    looks.peek(now);
    conclude(looks, now)
}

/// Describes decided `looks`.
fn conclude<'l>(looks: &mut Checks<'l>, now: Timestamp) -> Looked<'l> {
    let denials = || looks.charges().iter().filter(|look| is_denied(look));
    if let Some(longest) = denials().map(|look| retry(look, now)).max() {
        let expected_ns = if let Retry::AfterNs(ns) = longest { Some(ns) } else { None };
        let refusal = Refusal::uncounted(denials(), now, Cause::Limit, expected_ns);
        return Err(Box::new(Refusal { budgets: listed(looks), ..refusal }));
    }
    // The standing of a request that takes nothing.
    looks.charges_mut().iter_mut().for_each(|look| look.cost = 0);
    looks.peek(now);
    let enforced = looks.charges().iter().filter(|look| look.enforced);
    let standings = enforced.map(|look| Standing::new(&look.check.state().name, look, &look.decision(), now));
    Ok(standings.fold(None, |tightest, own| Standing::tightest(tightest, Some(own))))
}

/// When a denied check could be admitted, behind the requests that wait.
pub(super) fn retry(check: &Check<'_>, now: Timestamp) -> Retry {
    let denied = check.decision().denied.unwrap_or(Retry::AfterNs(0));
    let ahead = || check.check.state.queues.backlog(check.key).units_before(check.rule, check.cost);
    if check.check.is_queued { denied.max(check.wait(ahead(), now)) } else { denied }
}
