//! The threads that send. Each has a runtime, connections and a part of the schedule of its own.
//!
//! A permit of a semaphore is a request that is due. Every connection takes one, sends, reads the answer and takes the
//! next, so a request that finds no connection free waits as a permit. The semaphore is fair: connections take turns.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};

use crate::answer::{self, Answer};
use crate::record::{Record, Report};
use crate::schedule::Schedule;
use crate::timer::Timer;

/// How long answers are waited for after the last request was due.
const DRAIN: Duration = Duration::from_secs(5);
/// The length of an answer that is read without growing the buffer.
const BUFFER_BYTES: usize = 4096;

/// Why a run failed; threads tell each other.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What a run does.
#[derive(Clone)]
pub struct Plan {
    /// The bytes of a request.
    pub request: Vec<u8>,
    /// Where to connect.
    pub address: SocketAddr,
    /// Connections over all threads; at least one for each.
    pub connections: u32,
    /// Threads; not 0.
    pub threads: u32,
    /// Requests per second over all threads; not 0.
    pub rate: u32,
    /// Requests that are due at once; not 0.
    pub group: u32,
    /// Whole seconds that are not recorded.
    pub warm_up: Duration,
    /// Whole seconds that are, after them.
    pub measured: Duration,
    /// What every answer must have.
    pub status: u16,
}

/// Runs a plan to its end.
///
/// # Errors
///
/// If a connection cannot be opened at the start, or the system gives no threads or timers.
pub fn run(plan: &Plan) -> Result<Report, Failure> {
    let is_ready = Arc::new(Barrier::new(plan.threads as usize));
    let start = Arc::new(OnceLock::new());
    let threads: Vec<_> = (0..plan.threads)
        .map(|number| {
            let (plan, is_ready, start) = (plan.clone(), Arc::clone(&is_ready), Arc::clone(&start));
            thread::spawn(move || run_thread(plan, number, &is_ready, &start))
        })
        .collect();
    let (mut all, mut due, mut ended) = (Record::new()?, 0, Duration::ZERO);
    for thread in threads {
        let lane = thread.join().map_err(|_| "a thread panicked")??;
        all.add(&lane.record.borrow())?;
        due += lane.total - lane.unrecorded;
        ended = ended.max(lane.last_answer.get().saturating_duration_since(lane.schedule.start + plan.warm_up));
    }
    Ok(all.report(due, plan.rate, plan.measured, ended))
}

/// What the connections of a thread share.
struct Lane {
    plan: Plan,
    schedule: Schedule,
    /// This thread's requests, and how many of them, at the beginning, are the warm-up.
    total: u64,
    unrecorded: u64,
    /// The request that is next to be sent.
    next: Cell<u64>,
    due: Semaphore,
    record: RefCell<Record>,
    last_answer: Cell<Instant>,
}

/// Opens the connections, waits until every thread has, and sends.
fn run_thread(plan: Plan, number: u32, is_ready: &Barrier, start: &OnceLock<Instant>) -> Result<Lane, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mine = plan.connections / plan.threads + u32::from(number < plan.connections % plan.threads);
    let opened: io::Result<Vec<_>> = runtime.block_on(async {
        let mut streams = Vec::new();
        for _ in 0..mine {
            streams.push(connect(plan.address).await?);
        }
        Ok(streams)
    });
    // Also after a failure: the other threads wait for this one.
    is_ready.wait();
    let start = *start.get_or_init(Instant::now);
    let schedule = Schedule { start, rate: plan.rate, first: number, step: plan.threads, group: plan.group };
    let lane = Rc::new(Lane {
        total: schedule.count(plan.warm_up + plan.measured),
        unrecorded: schedule.count(plan.warm_up),
        next: Cell::new(0),
        due: Semaphore::new(0),
        record: RefCell::new(Record::new()?),
        last_answer: Cell::new(start),
        schedule,
        plan,
    });
    LocalSet::new().block_on(&runtime, send_all(Rc::clone(&lane), opened?))?;
    Rc::into_inner(lane).ok_or_else(|| "a connection outlived its thread".into())
}

/// Hands out every request when it is due, then waits for the answers.
async fn send_all(lane: Rc<Lane>, streams: Vec<TcpStream>) -> io::Result<()> {
    let timer = Timer::new()?;
    let connections = streams.len();
    let mut tasks = JoinSet::new();
    for stream in streams {
        tasks.spawn_local(use_connection(Rc::clone(&lane), stream));
    }
    for index in 0..lane.total {
        let instant = lane.schedule.due(index);
        if instant > Instant::now() {
            timer.until(instant).await?;
        }
        lane.due.add_permits(1);
    }
    // One more for each connection: it finds nothing left to send, and ends.
    lane.due.add_permits(connections);
    let all_ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, all_ended).await.is_err() {
        tasks.shutdown().await;
    }
    Ok(())
}

/// Sends one request after another on a connection, and opens a new one if it breaks.
async fn use_connection(lane: Rc<Lane>, mut stream: TcpStream) {
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    while let Ok(permit) = lane.due.acquire().await {
        permit.forget();
        let index = lane.next.replace(lane.next.get() + 1);
        if index >= lane.total {
            return;
        }
        let started = Instant::now();
        let answer = exchange(&mut stream, &lane.plan.request, &mut buffer).await;
        if !lane.note(index, started, &answer) {
            match connect(lane.plan.address).await {
                Ok(opened) => stream = opened,
                // What it does not send, the others do; if they all end, requests stay unanswered.
                Err(_) => return lane.record.borrow_mut().error(),
            }
        }
    }
}

impl Lane {
    /// Records how a request went; says whether its connection can be used again.
    fn note(&self, index: u64, started: Instant, answer: &io::Result<Answer>) -> bool {
        let (due, ended) = (self.schedule.due(index), Instant::now());
        let mut record = self.record.borrow_mut();
        let Ok(answer) = answer else {
            record.error();
            return false;
        };
        if answer.status != self.plan.status {
            record.unexpected();
        }
        if index >= self.unrecorded {
            record.answered(started.saturating_duration_since(due), ended.saturating_duration_since(due));
            self.last_answer.set(ended);
        }
        if !answer.keeps_alive {
            record.closed();
        }
        answer.keeps_alive
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request and reads all of its answer.
async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> io::Result<Answer> {
    let broken = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
    stream.write_all(request).await?;
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match answer::parse(buffer).map_err(broken)? {
            Some(answer) if answer.length == buffer.len() => return Ok(answer),
            Some(answer) if answer.length < buffer.len() => return Err(broken("more came than was asked for")),
            _ => {}
        }
    }
}
