//! Passes questions to stores to a worker, whose connections to stores belong to its thread.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::spawn_local;

use super::worker_stores::WorkerStores;

/// Questions to stores at once. Further ones wait; each stream of checks has at most 64 of them.
const ASKED_MAX: usize = 1024;

/// Work for the worker.
type Work = Box<dyn FnOnce(Rc<WorkerStores>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// A handle for work on the worker.
#[derive(Clone, Debug)]
pub struct StoreTasks {
    handle: mpsc::UnboundedSender<Work>,
    permits: Arc<Semaphore>,
}

impl StoreTasks {
    /// A handle, and the work that it begins.
    pub fn new() -> (Self, StoreWork) {
        let (handle, all) = mpsc::unbounded_channel();
        (Self { handle, permits: Arc::new(Semaphore::new(ASKED_MAX)) }, StoreWork(all))
    }

    /// Begins `work`, as soon as it is one of 1,024 at once. It is dropped with the returned receiver.
    pub fn begin<T, F>(&self, work: impl FnOnce(Rc<WorkerStores>) -> F + Send + 'static) -> oneshot::Receiver<T>
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
        receiver
    }
}

/// The work of [`StoreTasks`], which waits for its worker.
#[derive(Debug)]
pub struct StoreWork(mpsc::UnboundedReceiver<Work>);

impl StoreWork {
    /// Starts the task that begins the work on this worker.
    pub fn start(mut self, stores: Rc<WorkerStores>) {
        spawn_local(async move {
            while let Some(work) = self.0.recv().await {
                spawn_local(work(Rc::clone(&stores)));
            }
        });
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
            let (tasks, work) = StoreTasks::new();
            work.start(Rc::default());
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
