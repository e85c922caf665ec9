//! The meter of a response body whose numbers settle charges: it reads them, and charges a stream that its budget can cut
//! while it runs.
//!
//! Such a stream is charged for what it has named beyond its charge, so that parallel streams of a key share what is
//! left. At the end all is settled by [`Bill`](super::settle::Bill).

use std::sync::Arc;

use super::account::Account;
use super::state::LimitState;
use crate::base::fields::Fields;
use crate::engine::limit::Algorithm;
use crate::engine::policy::Limit;
use crate::engine::units::{BodyUnits, Form, UnitReaders, Unreadable};

/// Events without a number between two looks at the budget.
const LOOK_EVERY: u32 = 16;

impl LimitState {
    /// Makes the series of the responses without units and of the cut ones, if bodies name the units of the limit.
    pub(super) fn show_body_units(&self, limit: &Limit) {
        let Some(after) = limit.after.as_ref().filter(|after| after.body_units().is_some()) else { return };
        for reason in Unreadable::ALL {
            self.metrics.unreadable(&self.name, reason.label());
        }
        if after.settle.as_ref().is_some_and(|settle| settle.cut_debt.is_some()) {
            self.metrics.cut(&self.name);
        }
    }
}

/// The meter of the body of one response.
#[derive(Debug, Default)]
pub struct BodyMeter {
    readers: UnitReaders,
    /// The charges whose budgets can cut the stream; none for a body that is no stream.
    running: Vec<RunningCharge>,
    /// Events since the last look at the budgets.
    events: u32,
    course: Course,
}

/// A charge that grows while its stream runs.
#[derive(Debug)]
pub(super) struct RunningCharge {
    /// The number of the item on the bill.
    pub(super) item: usize,
    pub(super) account: Account,
    pub(super) units: Arc<BodyUnits>,
    /// The debt that the key may have.
    pub(super) debt: u64,
    /// Units charged so far.
    pub(super) charged: u64,
}

/// The course of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Course {
    #[default]
    Runs,
    /// The budget of this running charge has ended. One event may follow: often it says that the answer is complete.
    Exhausted(usize),
    /// The stream is cut if anything follows.
    Over(usize),
    Cut(usize),
}

impl RunningCharge {
    /// Charges what the stream has named beyond its charge. Returns whether the budget has room for it.
    fn grow(&mut self, readers: &UnitReaders) -> bool {
        let reading = readers.reading(&self.units);
        let named = reading.units.unwrap_or(0).saturating_add(reading.streamed.unwrap_or(0));
        let extra = named.saturating_sub(self.charged);
        if extra == 0 {
            return true;
        }
        let Account { ref state, key, .. } = self.account;
        let now = state.clock.now();
        let most = |rule: &Algorithm| rule.capacity().saturating_add(self.debt);
        let room = |rule: &Algorithm| most(rule).saturating_sub(state.table.owed(key, rule, now));
        if self.account.in_force(room).is_some_and(|room| extra > room) {
            return false;
        }
        self.account.correct((named, self.charged), u64::MAX, now);
        self.charged = named;
        true
    }
}

impl BodyMeter {
    /// Adds the reader of a rule for a body with these fields.
    pub(super) fn read(&mut self, rule: &Arc<BodyUnits>, fields: Fields<'_>) {
        let [kind, encoding] = ["content-type", "content-encoding"].map(|name| fields.first(name));
        self.readers.add(rule, kind, encoding);
    }

    /// Adds a charge whose budget can cut the body, if that is a stream.
    pub(super) fn watch(&mut self, running: RunningCharge) {
        if self.readers.stream_form().is_some() {
            self.running.push(running);
        }
    }

    /// Reads more of the body. Returns the number of bytes behind which it is cut, if it is.
    pub fn push(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.running.is_empty() {
            self.readers.push(bytes);
            return None;
        }
        let mut at = 0;
        while at < bytes.len() {
            // The end of the last line may still come.
            if let Course::Over(by) = self.course
                && let Some(ends) = bytes[at..].iter().position(|byte| !matches!(byte, b'\r' | b'\n'))
            {
                let state = &self.running[by].account.state;
                state.metrics.cut(&state.name).inc();
                self.course = Course::Cut(by);
                return Some(at + ends);
            }
            let (read, has_ended) = self.readers.push_document(&bytes[at..]);
            at += read;
            if has_ended {
                self.course = match self.course {
                    Course::Runs => self.exhausted().map_or(Course::Runs, Course::Exhausted),
                    Course::Exhausted(by) => Course::Over(by),
                    course => course,
                };
            }
        }
        None
    }

    /// Looks at the budgets if there is a new number or enough events. Returns the number of the exhausted one.
    fn exhausted(&mut self) -> Option<usize> {
        let Self { readers, running, events, .. } = self;
        *events += 1;
        let is_due = *events >= LOOK_EVERY;
        if is_due {
            *events = 0;
        }
        let mut due = running.iter_mut().enumerate().filter(|(_, one)| is_due || readers.has_new_number(&one.units));
        due.find_map(|(at, one)| (!one.grow(readers)).then_some(at))
    }

    /// The limit that has cut the stream, and the form of the latter.
    pub fn cut(&self) -> Option<(&str, Form)> {
        let Course::Cut(by) = self.course else { return None };
        Some((&self.running.get(by)?.account.state.name, self.readers.stream_form()?))
    }

    /// Notes that the body came to its end.
    pub fn end(&mut self) {
        self.readers.end();
    }

    pub(super) fn readers(&self) -> &UnitReaders {
        &self.readers
    }

    /// Units of an item of the bill that were charged while the stream ran, of `cost` units charged before.
    pub(super) fn grown(&self, item: usize, cost: u64) -> u64 {
        self.running.iter().find(|one| one.item == item).map_or(0, |one| one.charged - cost)
    }
}
