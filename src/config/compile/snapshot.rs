//! `[snapshot]`, and whether a limit is in snapshots.

use super::warnings::of_folder;
use crate::config::diagnostics::Problem;
use crate::config::reader::Table;
use crate::config::reader::units::Fault;
use crate::engine::limit::{Algorithm, ban};
use crate::engine::policy::Allowed;
use crate::engine::store::snapshot::Settings;

/// Compiles the file and the interval of snapshots; the inner option is `None` without `[snapshot]`. `admin` names another
/// file that Weir writes.
#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
pub(super) fn snapshot(table: &Table<'_>, admin: &Table<'_>) -> Option<Option<Settings>> {
    if !table.is_present() {
        return Some(None);
    }
    let path = table.text("path");
    let every = table.duration("interval");
    let path = path?;
    if path.get_ref().ends_with('/') {
        table.fault("path", path.span(), Fault::new("is a folder; name a file in it"));
    }
    let overrides = admin.get("overrides");
    if let Some(other) = overrides.filter(|other| other.get_ref().as_str() == Some(path.get_ref())) {
        let problem = Problem::new(path.span(), "`snapshot.path` and `admin.overrides` are the same file");
        table.context.note(problem.also(other.span(), "here"));
    }
    let file = table.context.path(path.get_ref());
    of_folder(table, "path", path.span(), &file);
    Some(Some(Settings { path: file, every: every? }))
}

/// The shortest memory of a limit that is in snapshots by default: one hour.
const KEPT_NS_MIN: u64 = 3600 * 1_000_000_000;

/// Whether the state of a limit is in snapshots. `has_snapshot` says whether there are any.
pub(super) fn persist(table: &Table<'_>, allowed: &Allowed, ban: Option<&ban::Rule>, has_snapshot: bool) -> bool {
    let is_released = allowed.usual.is_released();
    let wanted = table.switch("persist");
    if let (Some(true), Some(value)) = (wanted, table.get("persist")) {
        if is_released {
            let what = "requests in flight end with the process, so there is no state to save";
            table.fault("persist", value.span(), Fault::new(what));
        } else if !has_snapshot {
            let help = "add `[snapshot]` with the `path` of a file";
            let fault = Fault::new("the configuration names no file for the state").help(Some(help.to_owned()));
            table.fault("persist", value.span(), Fault { absence: true, ..fault });
        }
    }
    let special = allowed.plans.iter().chain(&allowed.overrides).filter_map(|(_, rule)| rule.as_ref());
    let rules = special.chain([&allowed.usual]).map(Algorithm::memory_ns);
    let longest_ns = rules.chain(ban.map(ban::Rule::longest_ns)).max().unwrap_or(0);
    !is_released && wanted.unwrap_or(longest_ns >= KEPT_NS_MIN)
}
