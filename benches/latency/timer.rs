//! A timer of the kernel's precision. tokio's own counts in milliseconds, which is many requests at once.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A `timerfd` on the runtime of its thread.
pub struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// # Errors
    ///
    /// If the system gives no descriptor.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        // Deprecated because a type may lie about its descriptor, which `OwnedFd` does not; what replaces it is unsafe.
        #[allow(deprecated)]
        Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    /// Returns at `instant`, or a little later; at once if that is past.
    ///
    /// # Errors
    ///
    /// If the system refuses to set the timer.
    pub async fn until(&self, instant: Instant) -> io::Result<()> {
        loop {
            let wait = instant.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Ok(());
            }
            // Setting it forgets what it counted, so nothing has to be read.
            let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(wait) };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
            self.0.readable().await?.clear_ready();
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() }
}
