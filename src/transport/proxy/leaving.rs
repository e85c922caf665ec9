//! Waits of a request that end early if its client leaves.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::sleep;

use super::context::NotForwarded;
use super::http1::wire::Wire;

/// A future that ends early if the client leaves.
pub(super) type Unless<'w, 'v, T> = Pin<Box<dyn Future<Output = Result<T, NotForwarded<'v>>> + 'w>>;

/// A store usually answers sooner. To look for the end of a stream costs a system call.
const GONE_AFTER: Duration = Duration::from_millis(5);

/// Waits until the client on `wire` leaves while a store is slow.
pub(super) async fn gone_meanwhile(wire: &mut Wire) {
    sleep(GONE_AFTER).await;
    wire.gone().await;
}

/// Waits until `turn` is over, or the client on `wire` leaves. Boxed, so that requests which do not wait are smaller.
pub(super) fn unless_gone<'w, 'v: 'w, F: Future + 'w>(
    turn: impl FnOnce() -> F + 'w,
    wire: Option<&'w mut Wire>,
) -> Unless<'w, 'v, F::Output> {
    // The future of the turn begins in the box, so it is not copied.
    let Some(wire) = wire else { return Box::pin(async { Ok(turn().await) }) };
    Box::pin(async {
        tokio::select! {
            biased;
            decided = turn() => Ok(decided),
            () = wire.gone() => Err(NotForwarded::Abandoned),
        }
    })
}
