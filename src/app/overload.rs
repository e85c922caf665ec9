//! Measures the load of the process, and sets the level of shedding.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::base::cpu::CpuSampler;
use crate::base::time;
use crate::engine::gate::{Level, Load, OverloadController};
use crate::transport::proxy::SharedState;

/// The interval of the controller.
const OBSERVE_EVERY: Duration = Duration::from_millis(100);

/// Follows the load until dropped. Without `[overload]` it only waits for a reload.
pub(super) async fn follow(shared: Arc<SharedState>) {
    let mut reloads = shared.reloads.subscribe();
    loop {
        if shared.running_config.load().live.policy.overload.is_some() {
            observe(&shared).await;
            set_level(&shared, 0);
        }
        if reloads.changed().await.is_err() {
            return;
        }
    }
}

/// Observes the load as long as there are bounds.
async fn observe(shared: &SharedState) {
    let (mut controller, mut cpu) = (OverloadController::default(), CpuSampler::default());
    let mut ticks = interval(OBSERVE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let config = shared.running_config.load();
        let Some(bounds) = config.live.policy.overload else { return };
        let (in_flight, queue_delay) = config.upstream_load(time::instant_now());
        let cpu_permille = bounds.cpu_percent.and_then(|_| cpu.sample(shared.gate.clock().now()));
        let load = Load { cpu_permille, in_flight, queue_delay_ns: time::saturating_ns(queue_delay) };
        set_level(shared, controller.observe(&bounds, &load));
    }
}

#[expect(clippy::cast_precision_loss, reason = "at most 2000")]
fn set_level(shared: &SharedState, level: Level) {
    let before = shared.gate.set_overload(level);
    shared.metrics.overload.level.set(level as f64 / 1000.0);
    match (before, level) {
        (0, 1..) => tracing::warn!("overload begins: requests of low priority are refused with 503"),
        (1.., 0) => tracing::info!("overload ends: no request is shed any more"),
        _ => {}
    }
}
