//! A request whose stores have answered: it passes the stage, or is delayed, held or refused.

use super::admit::{Requester, Step};
use super::ask::{Asking, Decider, ask};
use super::look::{ask_and_decide, is_look};
use crate::engine::policy::Facts;

impl<'l> Asking<'l> {
    /// Asks the stores of the request's limits, and decides the stage. `head_bytes` is called only for a request that
    /// would wait.
    pub async fn ask<D: Decider>(
        self: Box<Self>,
        decider: &D,
        facts: &Facts<'_>,
        head_bytes: impl FnOnce() -> usize,
    ) -> Step<'l> {
        let Self { gate, live, stage, mut pass } = *self;
        let looked = if is_look(facts) {
            match ask_and_decide(&mut pass.charged.checks, decider, gate.clock).await {
                Ok(standing) => {
                    pass.standing = standing;
                    return Step::Pass(Box::new(pass));
                }
                Err(refusal) => Some(refusal),
            }
        } else if ask(&mut pass.charged.checks, decider, false, gate.clock).await {
            let instead = gate.pass_or_delay(&mut pass, live, facts, head_bytes, gate.clock.now());
            return instead.unwrap_or_else(|| Step::Pass(Box::new(pass)));
        } else {
            None
        };
        let (checks, now) = (&mut pass.charged.checks, gate.clock.now());
        // Found before, and cached as far as that takes long.
        let (identities, plan) = gate.identify((live, stage), facts, checks.charges(), now).unwrap_or_default();
        let requester = Requester { facts, identities: &identities, plan: plan.as_deref() };
        let mut step = looked.map_or_else(|| gate.deny(live, requester, checks, head_bytes(), now), Step::Refuse);
        if let Step::Refuse(refusal) = &mut step {
            gate.show_keys(refusal, live, requester, checks.charges());
        }
        checks.retain(|_| false);
        step
    }
}
