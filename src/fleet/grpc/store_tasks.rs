//! Passes checks that stores decide to the worker, whose connections to stores belong to its thread.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::spawn_local;
use tonic::Status;

use crate::engine::gate::WorkerStores;

/// Checks about which stores are asked at once. Further ones wait; each stream has at most 64 of them.
const ASKED_MAX: usize = 1024;

/// Work for the worker.
type Work = Box<dyn FnOnce(Rc<WorkerStores>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// A handle for work on the worker.
#[derive(Clone, Debug)]
pub(super) struct StoreTasks {
    handle: mpsc::UnboundedSender<Work>,
    permits: Arc<Semaphore>,
}

impl StoreTasks {
    /// Starts the task that begins work on this worker.
    pub(super) fn start(stores: Rc<WorkerStores>) -> Self {
        let (handle, mut all) = mpsc::unbounded_channel::<Work>();
        spawn_local(async move {
            while let Some(work) = all.recv().await {
                spawn_local(work(Rc::clone(&stores)));
            }
        });
        Self { handle, permits: Arc::new(Semaphore::new(ASKED_MAX)) }
    }

    /// Begins `work`, as soon as it is one of [`ASKED_MAX`]. It is dropped with the returned receiver.
    pub(super) fn begin<T, F>(&self, work: impl FnOnce(Rc<WorkerStores>) -> F + Send + 'static) -> Answered<T>
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        let (mut sender, receiver) = oneshot::channel();
        let permits = Arc::clone(&self.permits);
        let work: Work = Box::new(move |stores| {
            Box::pin(async move {
                let permitted = async {
                    let _permit = permits.acquire().await;
                    work(stores).await
                };
                let answer = tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    answer = permitted => answer,
                };
                let _ = sender.send(answer);
            })
        });
        let _ = self.handle.send(work); // if the worker ends, the receiver errs
        Answered(receiver)
    }
}

/// The answer of work.
#[derive(Debug)]
pub(super) struct Answered<T>(oneshot::Receiver<T>);

impl<T> Future for Answered<T> {
    type Output = Result<T, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        let polled = Pin::new(&mut self.0).poll(cx);
        polled.map(|answer| answer.map_err(|_| Status::unavailable("Weir is shutting down")))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::{LocalSet, yield_now};

    use super::*;

    #[tokio::test]
    async fn work_beyond_the_bound_waits() {
        let local = LocalSet::new();
        let test = async {
            let tasks = StoreTasks::start(Rc::default());
            let begun: Arc<AtomicUsize> = Arc::default();
            let begin = |_| {
                let begun = Arc::clone(&begun);
                tasks.begin(|_| async move {
                    begun.fetch_add(1, Ordering::Relaxed);
                    pending::<()>().await;
                })
            };
            let mut answers: Vec<_> = (0..ASKED_MAX + 50).map(begin).collect();
            for (dropped, expected) in [(0, ASKED_MAX), (20, ASKED_MAX + 20), (100, ASKED_MAX + 50)] {
                answers.drain(..dropped);
                for _ in 0..1000 {
                    yield_now().await;
                }
                assert_eq!(begun.load(Ordering::Relaxed), expected);
            }
        };
        local.run_until(test).await;
    }
}
