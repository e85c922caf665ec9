//! `[snapshot]`, and whether a limit is in snapshots.

use super::warnings::of_folder;
use super::written_files::file_to_write;
use crate::config::reader::{Fault, Table};
use crate::engine::limit::{Algorithm, ban};
use crate::engine::policy::Allowed;
use crate::engine::store::snapshot::Settings;

/// Compiles the file and the interval of snapshots.
pub(super) fn snapshot(table: &Table<'_>) -> Option<Settings> {
    let (path, every) = (file_to_write(table, "path"), table.duration("interval"));
    let path = path?;
    of_folder(table, "path", path.span(), path.get_ref());
    Some(Settings { path: path.into_inner(), every: every? })
}

/// The shortest memory of a limit that is in snapshots by default: one hour.
const KEPT_NS_MIN: u64 = 3600 * 1_000_000_000;

/// Whether the state of a limit is in snapshots. `has_snapshot` says whether there are any.
pub(super) fn persist(table: &Table<'_>, allowed: &Allowed, ban: Option<&ban::Rule>, has_snapshot: bool) -> bool {
    let wanted = table.switch("persist");
    if wanted == Some(true) && allowed.usual.is_released() {
        table.fault_if_present("persist", "requests in flight end with the process, so there is no state to save");
    } else if wanted == Some(true) && is_shared(allowed) {
        table.fault_if_present("persist", "fair shares begin anew with the process");
    } else if wanted == Some(true) && !has_snapshot {
        let fault = Fault::new("the configuration names no file for the state");
        table.fault_if_present("persist", fault.help("add `[snapshot]` with the `path` of a file").absence());
    }
    lasts(table, allowed, ban)
}

fn is_shared(allowed: &Allowed) -> bool {
    matches!(allowed.usual, Algorithm::FairShare(_))
}

/// Whether snapshots contain the state of rules of the limit `table`.
pub(super) fn lasts(table: &Table<'_>, allowed: &Allowed, ban: Option<&ban::Rule>) -> bool {
    let special = allowed.plans.iter().chain(&allowed.overrides).filter_map(|(_, rule)| rule.as_ref());
    let rules = special.chain([&allowed.usual]).map(|rule| rule.memory_ns());
    let longest_ns = rules.chain(ban.map(ban::Rule::longest_ns)).max().unwrap_or(0);
    !allowed.usual.is_released() && !is_shared(allowed) && table.switch("persist").unwrap_or(longest_ns >= KEPT_NS_MIN)
}
