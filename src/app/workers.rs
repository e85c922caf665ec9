//! The threads of workers, and their services beside the proxy.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::sync::{mpsc, watch};

use super::error::AppError;
use crate::engine::gate::StoreTasks;
use crate::fleet::grpc;
use crate::transport::net::{Lifecycle, Listener};
use crate::transport::proxy::{self, ListenerKind, SharedState, WorkerService};

/// The other services of each worker: its sockets of the limiter service. The first worker asks stores for operators.
pub(super) fn worker_services(
    limiter: Option<&Arc<grpc::Server>>,
    by_worker: Vec<Vec<Listener>>,
    stages: &watch::Receiver<Lifecycle>,
) -> (Vec<Vec<WorkerService>>, StoreTasks) {
    let services = by_worker.into_iter().map(|sockets| -> Vec<WorkerService> {
        let Some(limiter) = limiter.map(Arc::clone) else { return Vec::new() };
        let stages = stages.clone();
        vec![Box::new(|stores| Box::pin(grpc::serve(limiter, sockets, stores, stages)))]
    });
    let mut services: Vec<_> = services.collect();
    let (stores, questions) = StoreTasks::new();
    if let Some(first) = services.first_mut() {
        first.push(Box::new(|stores| Box::pin(async { questions.start(stores) })));
    }
    (services, stores)
}

/// Starts a thread for each worker. The returned channel has the error of a worker that could not start, and closes when the
/// last one has ended.
pub(super) fn start_workers(
    by_worker: Vec<Vec<(ListenerKind, Listener)>>,
    services: Vec<Vec<WorkerService>>,
    shared: &Arc<SharedState>,
    stages: &watch::Receiver<Lifecycle>,
) -> Result<mpsc::Receiver<io::Error>, AppError> {
    let (ended, endings) = mpsc::channel(1);
    for (index, (listeners, services)) in by_worker.into_iter().zip(services).enumerate() {
        let (shared, stages, ended) = (Arc::clone(shared), stages.clone(), ended.clone());
        let work = move || {
            // `ended` is dropped when the thread ends, even by a panic.
            if let Err(error) = proxy::run(listeners, shared, stages, services) {
                let _ = ended.try_send(error);
            }
        };
        let thread = thread::Builder::new().name(format!("weir-worker-{index}")).spawn(work);
        thread.map_err(AppError::system("start a worker"))?;
    }
    Ok(endings)
}
