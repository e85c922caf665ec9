//! `weir check`.

use std::process::ExitCode;

use clap::Args;

use super::output::{Exit, FAILURE, INVALID_CONFIGURATION, announce_large, complain, failed, invalid, say, unusable};
use super::table::table;
use crate::admin::{key_parts, mode, on_limit, requests, rfc3339, rule, unit_in_words};
use crate::app;
use crate::app::remote::{self, ConfigAddress, RemoteOptions};
use crate::base::time::{Timestamp, system_now};
use crate::config::{self, Config, Origin};
use crate::engine::policy::route::Route;
use crate::engine::policy::{Limit, Match, Policy, Stage, Variant};

/// The form of the check.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct CheckArgs {
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Most rows of a table.
const ROWS_MAX: usize = 50;
/// Most steps of a ramp, without the last.
const STEPS_MAX: usize = 12;
/// Most paths of a row.
const PATHS_MAX: usize = 3;

/// Shows errors, or warnings and the result. With `strict`, a warning makes the configuration invalid, and overrides that do
/// not fit are a failure.
pub(super) fn check(address: ConfigAddress, options: &RemoteOptions, form: CheckArgs) -> Exit {
    let CheckArgs { strict, json } = form;
    let file = address.to_string();
    let origin = remote::origin(address, options).map_err(|error| unusable(&error))?;
    if json {
        return check_as_json(&origin, strict);
    }
    announce_large(&origin);
    let config = config::load(&origin).map_err(|diagnostics| invalid(&diagnostics))?;
    let limits = config.policy.limits().len();
    let warned = match config.warnings.warnings() {
        0 => String::new(),
        1 => ", with 1 warning".to_owned(),
        count => format!(", with {count} warnings"),
    };
    if !config.warnings.is_empty() {
        complain(&config.warnings, FAILURE);
    }
    if strict && !warned.is_empty() {
        let what = format!("\nweir: {file}: invalid{warned}, because of --strict");
        return Err(complain(&what, INVALID_CONFIGURATION));
    }
    let overview = overview(&config);
    let Some(problems) = config.run_time.problems else {
        return say(&format_args!("{file}: valid{warned}; limits: {limits}\n\n{overview}"));
    };
    let what = "valid, and overrides set at run time do not fit";
    let said = say(&format_args!("{file}: {what}{warned}; limits: {limits}\n\n{overview}"));
    // Weir starts without these overrides, so they prevent no start.
    complain(&problems, FAILURE);
    if strict { Err(complain(&format_args!("\nweir: {file}: {what}, because of --strict"), FAILURE)) } else { said }
}

/// Prints the result as the API does.
fn check_as_json(origin: &Origin, strict: bool) -> Exit {
    let compiled = config::load(origin);
    let is_invalid = match &compiled {
        Ok(config) => strict && config.warnings.warnings() > 0,
        Err(_) => true,
    };
    let misfits = compiled.as_ref().is_ok_and(|config| config.run_time.problems.is_some());
    let said = say(&serde_json::to_string_pretty(&app::check_body(compiled)).map_err(failed)?);
    match (is_invalid, strict && misfits) {
        (true, _) => Ok(ExitCode::from(INVALID_CONFIGURATION)),
        (false, true) => Ok(ExitCode::from(FAILURE)),
        (false, false) => said,
    }
}

/// The routes and the limits, as tables.
fn overview(config: &Config) -> String {
    let paths = |matches: &Match| match matches.paths.len() {
        0 => "all paths".to_owned(),
        count => {
            let first = matches.paths.iter().take(PATHS_MAX).map(|path| path.as_str().to_owned());
            first
                .chain((count > PATHS_MAX).then(|| format!("{} more", count - PATHS_MAX)))
                .collect::<Vec<_>>()
                .join(", ")
        }
    };
    let requests =
        |matches: &Match| std::iter::once(paths(matches)).chain(requests(matches)).collect::<Vec<_>>().join("; ");
    let upstream = |index: usize| {
        let name = config.proxy.upstreams.get(index).and_then(|upstream| upstream.name.as_deref());
        name.unwrap_or("-").to_owned()
    };
    let route = |(index, route): (usize, &Route)| {
        vec![(index + 1).to_string(), requests(&route.matches), upstream(route.upstream)]
    };
    let routes: Vec<_> = config.proxy.routes.iter().flat_map(|routes| routes.all()).enumerate().map(route).collect();
    let now = config.policy.ramped(system_now());
    let policy = now.as_ref().unwrap_or(&config.policy);
    let limit = |limit: &Limit| {
        let stage = if limit.stage == Stage::Arrival { "arrival" } else { "identified" };
        let (mode, beyond) = (mode(limit), on_limit(&limit.on_limit).to_owned());
        let (key, rule) = (key_parts(policy, limit), rule(&limit.allowed, Variant::Usual));
        let rule = rule + &unit_in_words(limit.unit().as_ref(), &limit.allowed.usual);
        vec![limit.name.to_string(), stage.to_owned(), mode, key, rule, beyond, requests(&limit.matches)]
    };
    let limits = policy.limits();
    let shown: Vec<_> = limits.iter().take(ROWS_MAX).map(limit).collect();
    let ramps = config.policy.limits().iter().filter_map(|limit| limit.ramp.as_ref());
    let steps_count = ramps.map(|ramp| ramp.schedule().len().min(STEPS_MAX + 2)).sum();
    let steps = limits.iter().enumerate().flat_map(|(index, limit)| steps(&config.policy, index, limit));
    let tables = [
        (routes.len(), short(&["ROUTE", "REQUESTS", "UPSTREAM"], routes)),
        (limits.len(), short(&["LIMIT", "STAGE", "MODE", "KEY", "RULE", "BEYOND", "REQUESTS"], shown)),
        (steps_count, short(&["RAMP", "FROM", "RULE"], steps.take(ROWS_MAX).collect())),
    ];
    let table = |(count, table): (usize, String)| match count {
        0 => None,
        count if count > ROWS_MAX => Some(format!("{table}\nand {} more", count - ROWS_MAX)),
        _ => Some(table),
    };
    tables.into_iter().filter_map(table).collect::<Vec<_>>().join("\n\n")
}

/// The rule of a limit at the begin of its ramp, at the first steps and at the end.
fn steps(policy: &Policy, index: usize, limit: &Limit) -> Vec<Vec<String>> {
    let Some(schedule) = limit.ramp.as_ref().map(|ramp| ramp.schedule()) else { return Vec::new() };
    let last = schedule.len() - 1;
    let row = |at: Timestamp| {
        let then = policy.ramped(at);
        let allowed = &then.as_ref().unwrap_or(policy).limits()[index].allowed;
        vec![limit.name.to_string(), rfc3339(at), rule(allowed, Variant::Usual)]
    };
    let shown = schedule.enumerate().filter(|(step, _)| *step < STEPS_MAX || *step == last);
    let mut rows: Vec<_> = shown.map(|(_, (at, _))| row(at)).collect();
    if last > STEPS_MAX {
        rows.insert(STEPS_MAX, vec![limit.name.to_string(), format!("{} more", last - STEPS_MAX), String::new()]);
    }
    rows
}

/// A table of the first rows.
fn short(headings: &[&str], mut rows: Vec<Vec<String>>) -> String {
    rows.truncate(ROWS_MAX);
    table(headings, &rows)
}
