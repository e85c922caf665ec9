//! Reloads under load.

use super::load::{Load, PAUSE};
use super::service::quick;
use super::{BUDGET, budget, left};
use crate::ops::{count_lines, replace};
use crate::support::Weir;

/// Reloads `count` times, each time with another configuration, while `clients` ask. Says what it saw.
pub fn reloads(clients: usize, count: usize) -> String {
    let upstream = quick();
    let config = |number: usize| {
        let other = format!("[[limit]]\nname = \"other\"\nkey = [\"ip\"]\nrate = \"{}/s\"\n", 1_000_000 + number);
        Weir::config(&upstream, "", &format!("{}{other}", budget()))
    };
    let weir = Weir::start_as(&config(0));
    let (load, seen) = Load::during(weir.address(), clients, PAUSE, |load| {
        load.wait_for(20);
        let mut seen = 0;
        for number in 1..=count {
            replace(&weir.config_file(), &config(number));
            weir.signal("HUP");
            // A change is noticed as well, so there may be more than one.
            weir.wait_for_lines("\"reloaded\"", seen + 1);
            seen = count_lines(&weir, "\"reloaded\"");
            load.wait_for(20);
        }
        seen
    });
    load.assert_good();
    assert_eq!(weir.metric("weir_config_last_reload_successful"), 1.0);
    let (left, charged) = (left(&weir), load.answers() + 1);
    assert_eq!(left, BUDGET - charged, "{charged} charged");
    format!("{seen} reloads during {} requests: none failed, none was forgotten", load.answers())
}
