//! Passes checks that stores decide to the worker, whose connections to stores belong to its thread.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tonic::Status;

use crate::gate::WorkerStores;

/// Work for the worker. Callers bound its amount: each has at most one for every stream.
type Work = Box<dyn FnOnce(Rc<WorkerStores>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// A handle for work on the worker.
#[derive(Clone, Debug)]
pub(super) struct StoreTasks(mpsc::UnboundedSender<Work>);

impl StoreTasks {
    /// Starts the task that begins work on this worker.
    pub(super) fn start(stores: Rc<WorkerStores>) -> Self {
        let (handle, mut all) = mpsc::unbounded_channel::<Work>();
        spawn_local(async move {
            while let Some(work) = all.recv().await {
                spawn_local(work(Rc::clone(&stores)));
            }
        });
        Self(handle)
    }

    /// Begins `work`. It is dropped with the returned receiver.
    pub(super) fn begin<T, F>(&self, work: impl FnOnce(Rc<WorkerStores>) -> F + Send + 'static) -> Answered<T>
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        let (mut sender, receiver) = oneshot::channel();
        let work: Work = Box::new(move |stores| {
            Box::pin(async move {
                let answer = tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    answer = work(stores) => answer,
                };
                let _ = sender.send(answer);
            })
        });
        let _ = self.0.send(work); // if the worker ends, the receiver errs
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
