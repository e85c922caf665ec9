//! The bytes between a client and an upstream after a change of protocol.
//!
//! Each direction reads only after its last bytes were written, so that a slow side slows the other one. Each direction
//! ends on its own.
//!
//! Not here: the meaning of the bytes.

mod direction;

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use self::direction::{BrokenSide, Direction};
use super::access_record::AccessRecord;
use super::untaken::Hold;
use crate::base::telemetry::LiveGauge;
use crate::base::time;
use crate::engine::gate::Bill;
use crate::transport::net::Timeouts;
use crate::transport::net::buffer::{BufferPool, InputBuffer, OutputBuffer};
use crate::transport::net::deadline::Deadline;
use crate::transport::net::duplex::Duplex;
use crate::transport::upstream::UpgradedConnection;

/// An exchange that changed to another protocol.
#[derive(Debug)]
pub(super) struct UpgradedExchange<'m> {
    pub(super) upstream: UpgradedConnection,
    /// Bytes that the upstream has sent already.
    pub(super) received: InputBuffer,
    /// Settled at the end.
    pub(super) bill: Option<Bill>,
    /// Written at the end.
    pub(super) record: AccessRecord<'m>,
    pub(super) counted: GaugeGuard,
}

/// A gauge that is raised until this is dropped.
#[derive(Debug)]
pub(super) struct GaugeGuard(LiveGauge);

impl GaugeGuard {
    pub(super) fn new(gauge: &LiveGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A client, with its unconsumed input and its unsent output.
#[derive(Debug)]
pub(super) struct TunnelClient<C> {
    pub(super) stream: C,
    pub(super) received: InputBuffer,
    pub(super) unsent: OutputBuffer,
}

/// The end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelEnd {
    /// Both sides ended, or the upstream reads no more. The client may still be sending.
    Complete,
    /// A side broke off, or no byte moved for too long.
    Broken,
}

/// Time without progress after which a tunnel ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct TunnelTimeouts {
    idle: Duration,
    /// After one side has ended: a lost client would no longer be noticed.
    half_closed: Duration,
}

impl TunnelTimeouts {
    pub(super) fn of(timeouts: &Timeouts) -> Self {
        let idle = timeouts.upgraded_idle;
        Self { idle, half_closed: idle.min(timeouts.body_idle) }
    }
}

/// A tunnel in progress. It is settled before the client hears that the service has ended, because the client may send its
/// next request then; otherwise on drop. It is logged on drop. The request counts until its endpoint has released it.
struct Tunnel<'m> {
    upstream: UpgradedConnection,
    up: Direction,
    down: Direction,
    bill: Option<Bill>,
    record: AccessRecord<'m>,
    _counted: GaugeGuard,
}

/// Settles the charges by the bytes that the service has sent.
fn settle(bill: &mut Option<Bill>, record: &mut AccessRecord<'_>, taken: u64) {
    if let Some(mut bill) = bill.take() {
        bill.end(taken, None, record.for_gate());
    }
}

impl Drop for Tunnel<'_> {
    fn drop(&mut self) {
        let [sent, taken] = [&self.up, &self.down].map(|direction| direction.bytes_read);
        settle(&mut self.bill, &mut self.record, taken);
        self.record.transferred(sent, taken);
    }
}

/// Moves bytes until both sides end, one breaks off, or a timeout expires.
pub(super) async fn run<C: Duplex>(
    client: &mut TunnelClient<C>,
    upgraded: UpgradedExchange<'_>,
    buffers: &BufferPool,
    timeouts: TunnelTimeouts,
    hold: Hold<'_>,
) -> TunnelEnd {
    let UpgradedExchange { upstream, received, bill, record, counted } = upgraded;
    let up = Direction::new(std::mem::take(&mut client.received), OutputBuffer::default());
    let down = Direction::new(received, std::mem::take(&mut client.unsent));
    let mut tunnel = Tunnel { upstream, up, down, bill, record, _counted: counted };
    let Tunnel { upstream, up, down, bill, record, .. } = &mut tunnel;
    let before_end = |taken| settle(bill, record, taken);
    flow(&mut client.stream, upstream, (up, down), (buffers, timeouts), hold, before_end).await
}

async fn flow(
    client: &mut impl Duplex,
    upstream: &mut impl Duplex,
    (up, down): (&mut Direction, &mut Direction),
    (buffers, timeouts): (&BufferPool, TunnelTimeouts),
    mut hold: Hold<'_>,
    mut before_end: impl FnMut(u64),
) -> TunnelEnd {
    let (mut deadline, mut moved_at, mut moved) = (Deadline::default(), time::instant_now(), 0);
    let ended = poll_fn(|cx| {
        let polled = poll_both(cx, (up, client), (down, upstream), buffers, &mut before_end);
        if let Poll::Ready(ended) = polled {
            return Poll::Ready(ended);
        }
        let (untaken, memory) = down.untaken();
        if hold.poll(cx, down.bytes_read.saturating_sub(untaken as u64), untaken, memory).is_ready() {
            return Poll::Ready(TunnelEnd::Broken);
        }
        if up.progress + down.progress != moved {
            (moved, moved_at) = (up.progress + down.progress, time::instant_now());
        }
        let is_half_closed = up.is_over() || down.is_over();
        let at = moved_at + if is_half_closed { timeouts.half_closed } else { timeouts.idle };
        deadline.poll(cx, at).map(|()| TunnelEnd::Broken)
    });
    ended.await
}

fn poll_both(
    cx: &mut Context<'_>,
    (up, client): (&mut Direction, &mut impl Duplex),
    (down, upstream): (&mut Direction, &mut impl Duplex),
    buffers: &BufferPool,
    before_end: &mut impl FnMut(u64),
) -> Poll<TunnelEnd> {
    let upward = up.poll(cx, client, upstream, buffers, &mut |_| ());
    let downward = down.poll(cx, upstream, client, buffers, before_end);
    match (upward, downward) {
        (Poll::Ready(Err(BrokenSide::Source)), _) | (_, Poll::Ready(Err(_))) => Poll::Ready(TunnelEnd::Broken),
        // An upstream that reads no more may still have sent bytes.
        (Poll::Ready(_), Poll::Ready(Ok(()))) => Poll::Ready(TunnelEnd::Complete),
        _ => Poll::Pending,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::task::ready;

    use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::transport::net::buffer::PENDING_MAX;

    impl Duplex for DuplexStream {
        fn poll_read(
            &mut self,
            cx: &mut Context<'_>,
            input: &mut InputBuffer,
            buffers: &BufferPool,
        ) -> Poll<io::Result<usize>> {
            input.poll_fill(cx, self, buffers)
        }

        fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut OutputBuffer, _: &BufferPool) -> Poll<io::Result<()>> {
            while out.pending() > 0 {
                let len = ready!(Pin::new(&mut *self).poll_write(cx, out.unsent()))?;
                out.advance(len);
            }
            Poll::Ready(Ok(()))
        }

        fn poll_finish(&mut self, cx: &mut Context<'_>, _: &BufferPool) -> Poll<io::Result<()>> {
            Pin::new(self).poll_shutdown(cx)
        }
    }

    const IDLE: Duration = Duration::from_mins(1);

    const HALF_CLOSED: Duration = Duration::from_secs(5);
    const TIMEOUTS: TunnelTimeouts = TunnelTimeouts { idle: IDLE, half_closed: HALF_CLOSED };
    /// Just before the timeout.
    const PAUSE: Duration = Duration::from_secs(59);
    const HALF_PAUSE: Duration = Duration::from_secs(4);

    /// Runs `test` with the far sides of a client and of an upstream. Returns the end of the tunnel, and the bytes received
    /// from the client and from the upstream.
    async fn between(size: usize, test: impl AsyncFnOnce(DuplexStream, DuplexStream)) -> (TunnelEnd, [u64; 2]) {
        let (client, mut near) = duplex(size);
        let (upstream, mut far) = duplex(size);
        // Drops the near sides at its end.
        let tunnel = async move {
            let [mut up, mut down] = <[Direction; 2]>::default();
            let (buffers, untaken) = (BufferPool::default(), Rc::default());
            let both = (&mut up, &mut down);
            let ended = flow(&mut near, &mut far, both, (&buffers, TIMEOUTS), Hold::new(&untaken), |_| ()).await;
            (ended, [up.bytes_read, down.bytes_read])
        };
        tokio::join!(tunnel, test(client, upstream)).0
    }

    #[tokio::test(start_paused = true)]
    async fn each_direction_ends_on_its_own() {
        let ended = between(64, async |mut client, mut upstream| {
            client.write_all(b"ping").await.unwrap();
            client.shutdown().await.unwrap();
            let mut received = String::new();
            upstream.read_to_string(&mut received).await.unwrap();
            assert_eq!(received, "ping");
            upstream.write_all(b"pong!").await.unwrap();
            drop(upstream);
            received.clear();
            client.read_to_string(&mut received).await.unwrap();
            assert_eq!(received, "pong!");
        });
        assert_eq!(ended.await, (TunnelEnd::Complete, [4, 5]));
    }

    /// An hour with a byte every 59 seconds, then silence.
    #[tokio::test(start_paused = true)]
    async fn only_silence_ends_a_tunnel() {
        let began = time::instant_now();
        let ended = between(64, async |mut client, mut upstream| {
            for turn in 0..60 {
                tokio::time::sleep(PAUSE).await;
                let (from, to) =
                    if turn % 2 == 0 { (&mut client, &mut upstream) } else { (&mut upstream, &mut client) };
                from.write_all(b"x").await.unwrap();
                to.read_u8().await.unwrap();
            }
            let _ = client.read_u8().await;
            drop(upstream);
        });
        assert_eq!(ended.await, (TunnelEnd::Broken, [30, 30]));
        assert_eq!(began.elapsed(), PAUSE * 60 + IDLE);
    }

    /// A lost client would not be noticed.
    #[tokio::test(start_paused = true)]
    async fn a_half_closed_tunnel_has_a_shorter_timeout() {
        let began = time::instant_now();
        let ended = between(64, async |mut client, mut upstream| {
            tokio::time::sleep(PAUSE).await;
            client.shutdown().await.unwrap();
            for _ in 0..3 {
                tokio::time::sleep(HALF_PAUSE).await;
                upstream.write_all(b"x").await.unwrap();
            }
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"xxx");
            drop(upstream);
        });
        assert_eq!(ended.await, (TunnelEnd::Broken, [0, 3]));
        assert_eq!(began.elapsed(), PAUSE + HALF_PAUSE * 3 + HALF_CLOSED);
    }

    /// A side that does not read stops the other one, and no byte is lost.
    #[tokio::test(start_paused = true)]
    async fn a_slow_side_slows_the_other_one() {
        const LEN: usize = 4 * 1024 * 1024;
        let ended = between(1024, async |mut client, mut upstream| {
            let mut sent = 0;
            let stalled = async {
                loop {
                    sent += client.write(&[7; 1000]).await.unwrap();
                }
            };
            assert!(tokio::time::timeout(IDLE / 2, stalled).await.is_err());
            assert!(sent < 4 * PENDING_MAX, "{sent}");
            let rest = vec![7; LEN - sent];
            let send = async {
                client.write_all(&rest).await.unwrap();
                client.shutdown().await.unwrap();
            };
            let mut got = Vec::new();
            let take = async { upstream.read_to_end(&mut got).await.unwrap() };
            tokio::join!(send, take);
            assert!(got.len() == LEN && got.iter().all(|byte| *byte == 7));
            drop(upstream);
        });
        assert_eq!(ended.await, (TunnelEnd::Complete, [LEN as u64, 0]));
    }

    /// The last bytes of an upstream reach the client, although the upstream reads no more.
    #[tokio::test(start_paused = true)]
    async fn the_last_bytes_of_an_upstream_are_delivered() {
        let ended = between(64, async |mut client, mut upstream| {
            upstream.write_all(b"bye").await.unwrap();
            drop(upstream);
            let _ = client.write_all(&[0; 1000]).await;
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, b"bye");
        });
        let (ended, [_, taken]) = ended.await;
        assert_eq!((ended, taken), (TunnelEnd::Complete, 3));
    }
}
