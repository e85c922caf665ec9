//! Signals that do not end the process: those without an effect, and the one that reopens log files.
//!
//! Not here: the end of the process (`drain`), reloads (`reload`), and successors (`takeover`). The page
//! docs/operations/reload-restart-takeover.md lists all signals.

use std::io;
use std::ops::RangeInclusive;

use rustix::process::Signal as Number;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::base::telemetry::LogGuard;

/// Signals that end a process without a handler, except those that stop Weir and those of faults, such as SIGSEGV.
const TAKEN: [Number; 11] = [
    Number::HUP,
    Number::USR1,
    Number::USR2,
    Number::ALARM,
    Number::VTALARM,
    Number::PROF,
    Number::IO,
    Number::POWER,
    Number::STKFLT,
    Number::XCPU,
    Number::XFSZ,
];

/// Real-time signals end a process without a handler, too. The C library keeps the first of them to itself.
const REAL_TIME: RangeInclusive<i32> = 34..=64;

/// Takes the signals that must not end Weir. From now on they have no effect without a receiver: tokio keeps a handler
/// until the process ends. Call it first, because a signal may come while the configuration is compiled.
pub fn ignore_signals() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    for taken in TAKEN {
        drop(signal(SignalKind::from_raw(taken.as_raw()))?);
    }
    for number in REAL_TIME {
        let _ = signal(SignalKind::from_raw(number)); // an error is that of a signal of the C library
    }
    Ok(())
}

/// Opens log files anew, after they were renamed.
pub(super) fn reopen_logs(logs: Option<&LogGuard>) {
    if logs.is_some_and(LogGuard::reopen) {
        tracing::info!("SIGUSR1: opening the access log again");
    } else {
        tracing::info!("SIGUSR1: there is no log file to reopen");
    }
}
