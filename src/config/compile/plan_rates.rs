//! `limit.max_plan_rate`: plans that are rates.

use std::sync::Arc;

use super::rule::Scheme;
use crate::base::fields::decimal;
use crate::config::reader::time_units::{self, WrittenRate};
use crate::config::reader::{Fault, Table};
use crate::engine::limit::{Algorithm, Scale};
use crate::engine::policy::PlanRates;

const OPTION: &str = "max_plan_rate";

/// Compiles the rules of plans that are rates; `None` without them, and after an error.
pub(super) fn compile(table: &Table<'_>, scheme: &Scheme, usual: Option<&Algorithm>) -> Option<PlanRates> {
    if !table.has(OPTION) {
        return None;
    }
    let max = table.parsed_at(OPTION, time_units::rate)?;
    let fault = |fault: Fault| table.fault(OPTION, max.span(), fault);
    if !scheme.counts_alone() {
        fault(Fault::new("a store or a peer does not know the rates of tokens").help("write `strategy = \"split\"`"));
        return None;
    }
    table.fault_if_present("candidate", "does not go with `max_plan_rate`: it has no rates of tokens");
    let [rate] = scheme.usual_rates() else {
        fault("needs a limit with one rate".into());
        return None;
    };
    let (rate, max_rate) = (*rate.get_ref(), *max.get_ref());
    let Some(greatest) = part(&max_rate, &rate) else {
        let help = "write it with the same period, and less than 4294967296 times the rate";
        fault(Fault::new(format!("cannot be compared with `{rate}`")).help(help));
        return None;
    };
    if usual?.scaled(greatest).is_err() {
        fault("is more than this limit can count".into());
        return None;
    }
    if greatest.numerator < greatest.denominator {
        fault(format!("is less than the rate, `{rate}`").into());
        return None;
    }
    let read = move |plan: &str| {
        let mut written = rate;
        match decimal(plan.as_bytes()) {
            Some(count) => written.count = count,
            None => written = time_units::rate(plan).ok()?,
        }
        let scale = part(&written, &rate).filter(|scale| scale.numerator > 0)?;
        Some(if is_less(greatest, scale) { greatest } else { scale })
    };
    Some(PlanRates::new(Arc::new(read)))
}

fn part(rate: &WrittenRate, of: &WrittenRate) -> Option<Scale> {
    rate.as_part_of(of).map(|(numerator, denominator)| Scale { numerator, denominator })
}

fn is_less(one: Scale, other: Scale) -> bool {
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    product(one.numerator, other.denominator) < product(other.numerator, one.denominator)
}
