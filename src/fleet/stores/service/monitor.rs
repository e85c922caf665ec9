//! How a limiter is watched: whether it is the same process, and what a replica brings another one.
//!
//! Not here: when a limiter is asked (`driver::monitor`).

use std::time::Duration;

use prost::Message as _;

use super::JOIN;
use super::limiter::{Limiter, Service};
use super::proto::{JoinRequest, JoinResponse, KeyState};
use crate::engine::store::backend::Mirrors;
use crate::fleet::stores::driver::grpc::{CallError, Caller};
use crate::fleet::stores::driver::{Generation, Joined, Reached, Watch, Work};

/// Bytes of states in one message, about.
const STATE_BYTES: usize = 64 * 1024;

/// The time for states to be taken.
const BRING_MAX: Duration = Duration::from_secs(1);

impl Watch for Service {
    async fn look(Reached { node, connection, .. }: &mut Reached<'_, Self>) -> Result<Option<u64>, CallError> {
        Ok(Some(connection.call::<JoinResponse>(JOIN, &node.joining()).await?.process))
    }

    async fn join(reached: &mut Reached<'_, Self>, _: Option<u64>) -> Result<Joined, CallError> {
        let Reached { node, connection, .. } = reached;
        let JoinResponse { process, is_ready } = connection.call(JOIN, &node.joining()).await?;
        let is_known = process == node.last_generation();
        Ok(Joined { generation: Generation::of(process), is_known, is_ready })
    }

    async fn bring(reached: &mut Reached<'_, Self>, mirrors: &dyn Mirrors) -> Result<(), CallError> {
        let Reached { store, connection, .. } = reached;
        let (mut part, mut has_more) = (0, true);
        let mut states: Vec<KeyState> = Vec::new();
        while has_more {
            has_more = mirrors.visit(&store.context.settings.name, part, &mut |mirror| {
                states.push(KeyState {
                    limit: mirror.limit.into(),
                    key: Some(mirror.key.into()),
                    rule: mirror.rule.digest(),
                    numbers: mirror.state.export(mirror.rule, store.context.clock.now()).concat(),
                });
            });
            part += 1;
            while !states.is_empty() {
                let mut bytes = 0;
                let fits = |state: &&KeyState| {
                    bytes += state.encoded_len();
                    bytes <= STATE_BYTES
                };
                let rest = states.split_off(states.iter().take_while(fits).count().max(1));
                let some = std::mem::replace(&mut states, rest);
                send_states(store, connection, some, false).await?;
            }
        }
        // A process whose store was replaced is met once, and not before the new one has brought its keys.
        send_states(store, connection, Vec::new(), !store.context.metrics.is_retired()).await
    }
}

impl Work for Service {}

async fn send_states(
    store: &Limiter,
    caller: &Caller,
    states: Vec<KeyState>,
    is_complete: bool,
) -> Result<(), CallError> {
    let question = JoinRequest { states, is_complete, ..store.node.joining() };
    caller.call_within::<JoinResponse>(BRING_MAX, JOIN, &question).await.map(drop)
}
