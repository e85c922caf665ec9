//! The calls of one session, as a limiter remembers them: what each charged, until it is given back or forgotten.
//!
//! A call has effect once. A call that is given back before it arrives has none. Both hold for the newest calls of a
//! session; an older number is taken for one that was made.

use std::collections::VecDeque;

/// Calls that are remembered. Refunds come soon: a caller that needs longer has them settled by their age.
const CALLS_MAX: usize = 4096;

/// Calls before the first one that is known, which may be on their way.
const EARLIER_MAX: u64 = 1024;

/// The newest calls of one session, in the order of their numbers. `T` is what a call charged.
#[derive(Debug)]
pub struct Calls<T> {
    /// The number of the first call.
    first: u64,
    calls: VecDeque<Call<T>>,
}

/// A call is too old to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten;

#[derive(Debug)]
enum Call<T> {
    /// It has not arrived.
    Absent,
    /// It was made.
    Made(T),
    /// It was made without a charge, or given back.
    Ended,
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Self { first: 0, calls: VecDeque::new() }
    }
}

impl<T> Calls<T> {
    /// Whether the call `number` has neither been made nor given back.
    pub fn is_new(&mut self, number: u64) -> bool {
        self.call(number).is_some_and(|call| matches!(call, Call::Absent))
    }

    /// The call `number` is made, with these charges; `None` if it charged nothing.
    pub fn made(&mut self, number: u64, charged: Option<T>) {
        if let Some(call) = self.call(number) {
            *call = charged.map_or(Call::Ended, Call::Made);
        }
    }

    /// What the call `number` charged; `None` if it charged nothing, or was given back.
    ///
    /// # Errors
    /// If the call is not known any more.
    pub fn charged(&mut self, number: u64) -> Result<Option<&mut T>, Forgotten> {
        match self.call(number) {
            Some(Call::Made(charged)) => Ok(Some(charged)),
            Some(Call::Ended) => Ok(None),
            Some(Call::Absent) | None => Err(Forgotten),
        }
    }

    /// Takes what the call `number` charged. From now on it has no effect, whether it has arrived or not.
    pub fn end(&mut self, number: u64) -> Option<T> {
        match std::mem::replace(self.call(number)?, Call::Ended) {
            Call::Made(charged) => Some(charged),
            Call::Absent | Call::Ended => None,
        }
    }

    /// The place of a call; `None` if it is too old.
    fn call(&mut self, number: u64) -> Option<&mut Call<T>> {
        if self.calls.is_empty() || number >= self.first.saturating_add(2 * CALLS_MAX as u64) {
            self.calls.clear();
            self.first = number.saturating_sub(EARLIER_MAX);
        }
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        while self.calls.len() <= index {
            self.calls.push_back(Call::Absent);
        }
        let surplus = self.calls.len().saturating_sub(CALLS_MAX);
        self.calls.drain(..surplus);
        self.first += surplus as u64;
        self.calls.get_mut(index.checked_sub(surplus)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line is a call, an event, and what follows.
    fn check(table: &str) {
        let mut calls = Calls::default();
        for line in table.lines().map(str::trim) {
            let [number, event, expected]: [&str; 3] = line.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
            let number = number.parse().unwrap();
            let shown = |charged: Option<u64>| charged.map_or("nothing".to_owned(), |units| units.to_string());
            let found = match event {
                "new" => calls.is_new(number).to_string(),
                "end" => shown(calls.end(number)),
                "look" => calls.charged(number).map_or("forgotten".to_owned(), |units| shown(units.copied())),
                "denied" => {
                    calls.made(number, None);
                    "-".to_owned()
                }
                units => {
                    calls.made(number, Some(units.parse().unwrap()));
                    "-".to_owned()
                }
            };
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn a_call_has_effect_once() {
        check(
            "1 new true
             1 5 -
             1 new false
             1 look 5
             2 new true
             2 denied -
             2 new false
             2 end nothing
             1 end 5
             1 new false
             1 end nothing",
        );
    }

    #[test]
    fn a_call_that_ended_before_it_arrives_has_no_effect() {
        check(
            "7 end nothing
             7 new false
             6 new true
             9 new true",
        );
    }

    #[test]
    fn the_newest_calls_are_remembered() {
        check(
            "1 1 -
             2 2 -
             4096 3 -
             1 look 1
             4097 new true
             1 look forgotten
             1 new false
             2 look 2
             8000 4 -
             2 look forgotten
             4096 look 3
             900000 new true
             4096 new false
             899999 new true",
        );
    }
}
