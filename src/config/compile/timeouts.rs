//! `[timeouts]`: the bounds on waiting for clients and services.

use crate::config::reader::Table;
use crate::transport::net::Timeouts;
use crate::transport::net::pace::MinRate;

pub(super) fn timeouts(table: &Table<'_>) -> Option<Timeouts> {
    let request_head = table.duration("request_head");
    let keep_alive = table.duration("keep_alive");
    let connect = table.duration("connect");
    let response_head = table.duration("response_head");
    let body_idle = table.duration("body_idle");
    let window = table.duration("rate_window");
    let [min_send, min_read] = ["min_send_rate", "min_read_rate"].map(|key| {
        let (bytes_per_s, window) = (table.size_or(key)?, window?);
        Some(Some(MinRate { bytes_per_s, window }).filter(|rate| rate.bytes_per_s != u64::MAX))
    });
    let total = table.duration_or("total");
    let upgraded_idle = table.duration("upgraded_idle");
    Some(Timeouts {
        request_head: request_head?,
        keep_alive: keep_alive?,
        connect: connect?,
        response_head: response_head?,
        body_idle: body_idle?,
        min_send: min_send?,
        min_read: min_read?,
        total: total?,
        upgraded_idle: upgraded_idle?,
    })
}
