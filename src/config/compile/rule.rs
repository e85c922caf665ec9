//! The rules of a limit: its algorithm with its rates, `burst` and `max`.
//!
//! `allowed` assigns rules to plans and keys; `limit` computes with them.

use std::cell::OnceCell;

use toml::Spanned;

use super::adaptive;
use super::fleet::Sharing;
use crate::config::reader::time_units::{self, Factor, WrittenRate};
use crate::config::reader::{Fault, Located, Problem, Table, did_you_mean, nearest};
use crate::config::schema;
use crate::config::schema::words::{self, Align, OnLimitWord};
use crate::engine::limit::concurrency::{self, adaptive::Range};
use crate::engine::limit::sliding_log;
use crate::engine::limit::windows::WINDOWS_MAX;
use crate::engine::limit::{Algorithm, AlgorithmName, Calendar, CalendarError, QuotaError, Rate, Settings, Unit};
use crate::engine::policy::Strategy;

/// Options that only some algorithms have, and these algorithms.
const OWNERS: [(&str, &[AlgorithmName]); 7] = [
    ("burst", &[AlgorithmName::TokenBucket, AlgorithmName::LeakyBucket]),
    ("max", &[AlgorithmName::Concurrency]),
    ("floor", &[AlgorithmName::Concurrency]),
    ("ceiling", &[AlgorithmName::Concurrency]),
    ("align", &[AlgorithmName::FixedWindow]),
    ("time_zone", &[AlgorithmName::FixedWindow]),
    ("sub_windows", &[AlgorithmName::SubWindow]),
];

/// The common settings of all rules of a limit. A setting with an error is `None`.
pub(super) struct Scheme {
    kind: Option<AlgorithmName>,
    /// Whether requests that exceed the limit wait.
    holds: Option<bool>,
    align: Option<Align>,
    time_zone: Option<String>,
    sub_windows: Option<u32>,
    /// How replicas share each rule.
    strategy: Strategy,
    /// The number of replicas that each rule must have a unit for.
    shares: u64,
    /// The numbers of the limit itself, once they are read without an error.
    usual: OnceCell<Numbers>,
}

/// The numbers of a rule as they are written.
#[derive(Clone, Debug)]
struct Numbers {
    rates: Vec<Located<WrittenRate>>,
    burst: Option<Located<u64>>,
    max: Option<Located<u64>>,
    /// The bounds of a `max` that follows the service.
    range: Option<Range>,
}

fn name(algorithm: AlgorithmName) -> &'static str {
    AlgorithmName::ALL.iter().find(|(_, known)| *known == algorithm).map_or("", |(name, _)| name)
}

impl Scheme {
    /// Reads the settings of the limit `table`.
    pub(super) fn of(table: &Table<'_>, on_limit: Option<OnLimitWord>, sharing: Option<&Sharing>) -> Self {
        let kind = table.choice("algorithm", &words::ALGORITHMS);
        let align = table.choice("align", &words::ALIGNS);
        let time_zone = table.parsed("time_zone", time_zone);
        if kind == Some(AlgorithmName::FixedWindow) && align == Some(Align::First) && time_zone.is_some() {
            let what = "needs `align = \"calendar\"`: windows that begin with a request have no time zone";
            table.fault_if_present("time_zone", what);
        }
        if kind == Some(AlgorithmName::Concurrency) && on_limit == Some(OnLimitWord::Delay) {
            let help = "with `hold` a request waits until others end";
            table.fault_at("on_limit", ("`delay` bounds no requests in flight: it lets all of them pass", help));
        }
        let (strategy, shares) = sharing.map_or((Strategy::Local, 1), |sharing| (sharing.strategy, sharing.shares));
        let (sub_windows, usual) = (table.count("sub_windows"), OnceCell::new());
        let holds = on_limit.map(|word| word == OnLimitWord::Hold);
        Self { kind, holds, align, time_zone, sub_windows, strategy, shares, usual }
    }

    /// Whether the burst is the length of the wait queue.
    pub(super) fn shapes(&self) -> bool {
        self.kind == Some(AlgorithmName::LeakyBucket) && self.holds == Some(true)
    }

    /// Whether no replica learns what the others charge.
    pub(super) fn counts_alone(&self) -> bool {
        self.strategy.counts_alone()
    }

    /// Compiles the rule of the limit `table` itself. Factors are of its numbers.
    pub(super) fn usual(&self, table: &Table<'_>) -> Option<Algorithm> {
        let numbers = self.numbers(table)?;
        let numbers = self.usual.get_or_init(|| numbers);
        self.compile(table, numbers)
    }

    /// Compiles `rate`, `burst` and `max` of `table`, which is a plan or an override.
    pub(super) fn rule(&self, table: &Table<'_>) -> Option<Algorithm> {
        self.compile(table, &self.numbers(table)?)
    }

    /// Reads `rate`, `burst` and `max` of `table`.
    fn numbers(&self, table: &Table<'_>) -> Option<Numbers> {
        self.note_misplaced(table);
        let owns = |option| self.kind.is_none_or(|kind| owners(option).contains(&kind));
        let range = if owns("max") { adaptive::range(table, self.strategy)? } else { None };
        let max = match range {
            Some(range) => Some(Spanned::new(table.span_of("max"), range.floor)),
            None if owns("max") => table.count_at("max"),
            None => None,
        };
        if self.kind == Some(AlgorithmName::Concurrency) {
            if let (false, Some(option)) = (table.has("max"), schema::find(&table.path_of("max"))) {
                table.note_missing(option);
            }
            return Some(Numbers { rates: Vec::new(), burst: None, max: Some(max?), range });
        }
        let burst = if owns("burst") { table.optional("burst", |key| table.count_at(key)) } else { Some(None) };
        // After an error in `algorithm`, it is unknown whether a rate is needed.
        let needs_rate = self.kind.is_some() || table.has("rate");
        let rates = if needs_rate { table.list_at("rate", time_units::rate) } else { None };
        Some(Numbers { rates: rates?, burst: burst?, max: None, range: None })
    }

    fn compile(&self, table: &Table<'_>, Numbers { rates, burst, max, range }: &Numbers) -> Option<Algorithm> {
        match max {
            Some(_) if let Some(range) = range => Some(Algorithm::Concurrency(concurrency::Rule::adaptive(*range))),
            Some(max) => self.in_flight(table, "max", max),
            None => self.of_rates(table, "rate", rates, burst.as_ref()),
        }
    }

    /// Compiles the maximum in flight, which is the option `key` of `table`.
    fn in_flight(&self, table: &Table<'_>, key: &str, max: &Located<u64>) -> Option<Algorithm> {
        let settings = Settings::from(Rate { count: *max.get_ref(), period_ns: 1 });
        let rule = AlgorithmName::Concurrency.rule(&settings).ok()?;
        self.share(&rule).map_err(|fault| table.fault(key, max.span(), fault)).ok()
    }

    /// Compiles a factor of each window of the limit, of its burst and of its `max`. The factor is at `span`, and is the
    /// option `key` of `table`.
    pub(super) fn scaled(
        &self,
        table: &Table<'_>,
        key: &str,
        span: &std::ops::Range<usize>,
        factor: Factor,
    ) -> Option<Algorithm> {
        let numbers = self.usual.get()?;
        let at = |number: u64| Spanned::new(span.clone(), number);
        let fault = |fault| table.fault(key, span.clone(), fault);
        if let Some(max) = &numbers.max {
            let Some(max @ 1..) = factor.of_count(*max.get_ref()) else {
                fault(Fault::new("this factor of `max` is no number of requests in flight"));
                return None;
            };
            return self.in_flight(table, key, &at(max));
        }
        let is_continuous = owners("burst").contains(&self.kind?);
        let each = numbers.rates.iter().map(|rate| {
            let scaled = factor.of_rate(rate.get_ref(), is_continuous).map_err(fault).ok()?;
            let burst = numbers.burst.as_ref().map_or(rate.get_ref().count, |burst| *burst.get_ref());
            let burst = at(factor.of_count(burst).unwrap_or(u64::MAX).max(1));
            let scaled = Spanned::new(span.clone(), scaled);
            self.of_rate(table, key, &scaled, Some(&burst).filter(|_| is_continuous))
        });
        several(each.collect::<Option<Vec<_>>>()?)
    }

    /// The rates of the limit itself; empty without one, and after an error.
    pub(super) fn usual_rates(&self) -> &[Located<WrittenRate>] {
        self.usual.get().map_or(&[], |usual| &usual.rates)
    }

    /// Compiles one rate or several, which are the option `key` of `table`.
    pub(super) fn of_rates(
        &self,
        table: &Table<'_>,
        key: &str,
        rates: &[Located<WrittenRate>],
        burst: Option<&Located<u64>>,
    ) -> Option<Algorithm> {
        if self.kind == Some(AlgorithmName::Concurrency) {
            table.fault(key, rates.first()?.span(), ("`concurrency` has no rate", "write it like `{ max = 100 }`"));
            return None;
        }
        if let Some(rate) = rates.get(WINDOWS_MAX) {
            table.fault(key, rate.span(), format!("a limit has at most {WINDOWS_MAX} rates"));
        }
        if let Some(burst) = burst.filter(|_| rates.len() > 1) {
            let help = "the burst of each rate is its COUNT; for another burst, write one `[[limit]]` for each rate";
            table.fault("burst", burst.span(), ("does not apply to several rates", help));
        }
        let each: Vec<_> = rates.iter().map(|rate| self.of_rate(table, key, rate, burst)).collect();
        several(each.into_iter().collect::<Option<Vec<_>>>()?)
    }

    fn of_rate(
        &self,
        table: &Table<'_>,
        key: &str,
        written: &Located<WrittenRate>,
        burst: Option<&Located<u64>>,
    ) -> Option<Algorithm> {
        let (kind, is_calendar) = (self.kind?, self.align? == Align::Calendar);
        let settings = match kind {
            AlgorithmName::FixedWindow if is_calendar => self.calendar_window(written.get_ref()),
            _ => written.get_ref().rate().map(Settings::from),
        };
        let rule = settings.map_err(|fault| (key, fault)).and_then(|settings| {
            let burst_units = burst.map_or(settings.rate.count, |burst| *burst.get_ref());
            let sub_windows = self.sub_windows.unwrap_or(settings.sub_windows);
            let settings = Settings { burst: burst_units, shapes: self.shapes(), sub_windows, ..settings };
            kind.rule(&settings).map_err(|error| {
                let is_of_burst = burst.is_some() && error == QuotaError::TooLong;
                (if is_of_burst { "burst" } else { key }, fault_of(kind, error))
            })
        });
        let note = |(option, fault): (&str, Fault)| {
            let option = if key == "rate" { option } else { key };
            let span = if option == "burst" { burst.map(Located::span) } else { None };
            table.fault(option, span.unwrap_or(written.span()), fault);
        };
        let share = |rule: Algorithm| {
            let option = if burst.is_some() { "burst" } else { key };
            self.share(&rule).map_err(|fault| (option, fault))
        };
        rule.and_then(share).map_err(note).ok()
    }

    /// The part of `rule` that one replica may spend alone: its share, or the whole rule. A rule in a store needs a share
    /// too, for the time in which the store is down.
    fn share(&self, rule: &Algorithm) -> Result<Algorithm, Fault> {
        let replicas = self.shares;
        let share = rule.share(replicas).map_err(|_| {
            let capacity = rule.capacity();
            let fault = Fault::new(format!("{replicas} replicas cannot share {capacity} units: a share has none"));
            let (when, or) = match self.strategy {
                Strategy::Local | Strategy::Split(_) | Strategy::Stream => ("with `strategy = \"split\"`", ""),
                Strategy::Redis { .. } | Strategy::Service { .. } | Strategy::Lease { .. } => {
                    ("while the store is down,", "; or set another `on_failure` in the store")
                }
            };
            fault.help(format!("{when} this must be at least `fleet.replicas`, which is {replicas}{or}"))
        })?;
        if self.strategy.counts_alone() {
            return Ok(share);
        }
        let portable = rule.to_portable(0).map_err(|error| {
            let who = if self.strategy.is_remote() { "a store cannot decide" } else { "streams cannot carry" };
            let fault = Fault::new(format!("{who} this limit: it {error}"));
            let is_bucket = rule.interval_ns() > 0;
            let help = "write a long quota as a window, with `algorithm = \"fixed_window\"`";
            fault.help(Some(help).filter(|_| is_bucket))
        })?;
        if matches!(self.strategy, Strategy::Service { .. }) && portable != *rule {
            let what = "a limiter service cannot decide this limit: its sub-windows are no whole microseconds";
            return Err(what.into());
        }
        Ok(portable)
    }

    fn calendar_window(&self, written: &WrittenRate) -> Result<Settings, Fault> {
        let every = u32::try_from(written.every).unwrap_or(u32::MAX);
        // An unknown zone is noted when it is read.
        let zone = self.time_zone.as_deref().unwrap_or("UTC");
        let calendar = Calendar::new(written.unit, every, zone).map_err(|error| {
            let help = "`align = \"first\"` accepts any length, but no months";
            Fault::new(format!("a window of the calendar {error}")).help(help)
        })?;
        let rate = Rate { count: written.count, period_ns: calendar.nominal_ns() };
        Ok(Settings { calendar: Some(calendar), ..rate.into() })
    }

    /// Notes options of other algorithms.
    fn note_misplaced(&self, table: &Table<'_>) {
        let Some(kind) = self.kind else { return };
        if kind == AlgorithmName::Concurrency {
            let help = "use `max`, the number of units that may be in flight";
            table.fault_if_present("rate", ("does not apply to `concurrency`", help));
            let help = "a unit in flight comes back as it was taken, when its request ends";
            table.fault_if_present("settle", ("does not apply to `concurrency`", help));
        }
        for (option, kinds) in OWNERS.iter().filter(|(_, kinds)| !kinds.contains(&kind)) {
            // An option that this table never has is noted as unknown elsewhere.
            let known = schema::find(&table.path_of(option)).and_then(|_| table.get(option));
            let Some(value) = known else { continue };
            let names: Vec<_> = kinds.iter().map(|kind| format!("`{}`", name(*kind))).collect();
            let what = format!("belongs to {}, not to `{}`", names.join(" and "), name(kind));
            let problem = Problem::new(value.span(), format!("`{}` {what}", table.path_of(option)));
            table.context.note(problem.help(match kinds {
                [owner] => format!("it goes with `algorithm = \"{}\"`", name(*owner)),
                _ if kind == AlgorithmName::Concurrency => "remove it: `max` limits the units in flight".to_owned(),
                _ => "remove it: the burst is the COUNT of `rate`".to_owned(),
            }));
        }
    }
}

/// One window, or a list of windows. `None` without a window, and with too many, which is noted.
fn several(mut windows: Vec<Algorithm>) -> Option<Algorithm> {
    match windows.len() {
        0 | 1 => windows.pop(),
        2..=WINDOWS_MAX => Some(Algorithm::Several(windows.into())),
        _ => None,
    }
}

fn owners(option: &str) -> &'static [AlgorithmName] {
    OWNERS.iter().find(|(name, _)| *name == option).map_or(&[], |(_, kinds)| kinds)
}

fn fault_of(kind: AlgorithmName, error: QuotaError) -> Fault {
    match error {
        QuotaError::TooMany => {
            let what = format!("`sliding_log` counts at most {}: it remembers each", sliding_log::COUNT_MAX);
            (what, "`sliding_window` accepts any number").into()
        }
        QuotaError::TooLong if !owners("burst").contains(&kind) => "is longer than 146 years".into(),
        _ => error.to_string().into(),
    }
}

/// Checks the name of a time zone.
pub(super) fn time_zone(name: &str) -> Result<String, Fault> {
    let Err(error) = Calendar::new(Unit::Day, 1, name) else { return Ok(name.to_owned()) };
    if error != CalendarError::UnknownZone {
        return Err(error.to_string().into());
    }
    let zones = Calendar::zones();
    let help = did_you_mean(nearest(name, zones.iter().map(String::as_str)));
    let help = help.unwrap_or_else(|| "write it like \"Europe/Berlin\"".to_owned());
    Err((format!("`{name}` {error}"), help).into())
}
