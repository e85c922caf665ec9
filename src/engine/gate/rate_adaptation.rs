//! The rate of a limit that follows a signal: the answers and decisions from which its controller learns.
//!
//! Not here: the controller (`limit::adaptive_rate`), the scaled rules (policy), and the clock of windows (app).

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::adaptation::ServiceOutcome;
use crate::base::telemetry::{LimitCells, LimitDecision};
use crate::base::time::Timestamp;
use crate::engine::limit::adaptive_rate::{Controller, Rule, Usage};

/// The controller of a limit. It outlives the policies of the limit, as the state of keys does. Boxed, because few limits
/// have one.
#[derive(Debug, Default)]
pub(super) struct RateAdaptation(OnceLock<Box<Mutex<Watched>>>);

#[derive(Debug)]
struct Watched {
    controller: Controller,
    /// The decisions at the end of the last window.
    counted: Usage,
}

impl RateAdaptation {
    fn watched(&self) -> Option<MutexGuard<'_, Watched>> {
        // Held for some arithmetic.
        self.0.get().map(|adapted| adapted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The part in thousandths, and the signal, if there is a controller.
    pub(super) fn state(&self) -> Option<(u64, Option<u64>)> {
        let controller = &self.watched()?.controller;
        Some((controller.part(), controller.signal()))
    }

    /// Lets the controller follow the rule of a new policy. Returns the part that is in force.
    pub(super) fn follow(&self, rule: Rule) -> u64 {
        let first = || Box::new(Mutex::new(Watched { controller: Controller::new(rule), counted: Usage::default() }));
        let mut adapted = self.0.get_or_init(first).lock().unwrap_or_else(PoisonError::into_inner);
        adapted.controller.set_rule(rule);
        adapted.controller.part()
    }

    /// Notes the outcome of a request that began at `began` and got a connection at `sent`.
    #[inline(never)]
    pub(super) fn note(&self, began: Timestamp, sent: Timestamp, outcome: ServiceOutcome, now: Timestamp) {
        let Some(mut adapted) = self.watched() else { return };
        match outcome {
            ServiceOutcome::Answered => adapted.controller.answered(began, sent, now),
            ServiceOutcome::Failed => adapted.controller.failed(),
            ServiceOutcome::Stream => {}
        }
    }

    /// Notes that a client left before the answer to its request, which began at `began`.
    #[cold]
    pub(super) fn abandoned(&self, began: Timestamp, now: Timestamp) {
        if let Some(mut adapted) = self.watched() {
            adapted.controller.abandoned(began, now);
        }
    }

    pub(super) fn end_window(&self, rule: Rule, cells: &LimitCells, cpu: Option<f64>) {
        self.follow(rule);
        let Some(mut adapted) = self.watched() else { return };
        let counted = usage(cells);
        let before = std::mem::replace(&mut adapted.counted, counted);
        let usage = Usage {
            decided: counted.decided.wrapping_sub(before.decided),
            pressed: counted.pressed.wrapping_sub(before.pressed),
        };
        adapted.controller.end_window(usage, cpu);
    }
}

/// All decisions so far.
fn usage(cells: &LimitCells) -> Usage {
    use LimitDecision::{Admitted, Held, Refused, ShadowHeld, ShadowRefused};
    let beyond = [Held, Refused, ShadowHeld, ShadowRefused].map(|decision| cells.counted(decision)).iter().sum::<u64>();
    let headroom = cells.headroom();
    let scarce = headroom.buckets.iter().rev().find(|(part, _)| *part <= 0.5).map_or(0, |(_, count)| *count);
    Usage { decided: cells.counted(Admitted) + beyond, pressed: beyond + scarce }
}
