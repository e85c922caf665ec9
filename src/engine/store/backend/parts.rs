//! Several futures that are driven at once by one task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use smallvec::SmallVec;

/// A future among others.
pub type Part<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A future among others, for any thread.
pub type SendPart<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Drives all futures at once. Calls `done` with the index and the result of each, as soon as there is one.
pub async fn each<F: Future + Unpin>(parts: SmallVec<[F; 2]>, mut done: impl FnMut(usize, F::Output)) {
    let mut parts: SmallVec<[Option<F>; 2]> = parts.into_iter().map(Some).collect();
    poll_fn(|cx| {
        for (index, place) in parts.iter_mut().enumerate() {
            if let Some(part) = place
                && let Poll::Ready(result) = Pin::new(part).poll(cx)
            {
                *place = None;
                done(index, result);
            }
        }
        if parts.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Drives all futures at once. The results are in their order.
pub async fn all<F: Future + Unpin>(parts: SmallVec<[F; 2]>) -> SmallVec<[F::Output; 2]> {
    let mut results: SmallVec<[Option<F::Output>; 2]> = parts.iter().map(|_| None).collect();
    each(parts, |index, result| results[index] = Some(result)).await;
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn futures_run_at_once() {
        let begun = crate::base::time::instant_now();
        let wait = async |s| {
            tokio::time::sleep(Duration::from_secs(s)).await;
            s
        };
        let parts = || [3, 1, 2].map(|s| -> Part<'_, u64> { Box::pin(wait(s)) }).into_iter().collect();
        assert_eq!(all(parts()).await.as_slice(), [3, 1, 2]);
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
        let mut order = Vec::new();
        each(parts(), |index, s| order.push((index, s, begun.elapsed().as_secs()))).await;
        assert_eq!(order, [(1, 1, 4), (2, 2, 5), (0, 3, 6)]);
    }
}
