//! `[hold]`: bounds on all waiting requests, and on those of one client.

use crate::config::reader::Table;
use crate::engine::gate::HoldCaps;
use crate::engine::store::Usage;

pub(super) fn hold(table: &Table<'_>) -> Option<HoldCaps> {
    let max_waiting = table.count("max_waiting");
    let max_waiting_bytes = table.size("max_waiting_bytes");
    let per_client = table.count("max_waiting_per_client");
    let per_client_bytes = table.size("max_waiting_bytes_per_client");
    Some(HoldCaps {
        all: Usage { count: max_waiting?.into_inner(), bytes: max_waiting_bytes? },
        per_client: Usage { count: per_client?.into_inner(), bytes: per_client_bytes? },
    })
}
