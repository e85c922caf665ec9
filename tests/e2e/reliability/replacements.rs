//! Processes that take over one from another under load.

use super::load::{Load, PAUSE};
use super::service::quick;
use super::{BUDGET, budget, left};
use crate::support::{Client, Weir};

/// Replaces the process `count` times, with other numbers of workers, while `clients` ask. Says what it saw.
pub fn replacements(clients: usize, count: usize) -> String {
    let (upstream, folder) = (quick(), tempfile::tempdir().unwrap());
    let few =
        "[[limit]]\nname = \"few\"\nkey = [\"query:who\"]\nrate = \"1/day\"\nburst = 3\nmatch = { path = \"/few\" }\n";
    let start = |workers: usize| {
        let takeover = format!("takeover = \"{}\"\n", folder.path().join("takeover.sock").display());
        let config = Weir::config(&upstream, &takeover, &format!("{}{few}", budget()));
        Weir::start_as(&config.replacen("workers = 2", &format!("workers = {workers}"), 1))
    };
    let mut weir = start(2);
    let ask = |weir: &Weir| Client::connect(weir.address()).get("/few?who=a").status;
    assert_eq!([ask(&weir), ask(&weir), ask(&weir), ask(&weir)], [200, 200, 200, 429]);
    let address = weir.address();
    let (load, longest_ms) = Load::during(address, clients, PAUSE, |load| {
        let mut longest_ms = 0.0_f64;
        for number in 0..count {
            load.wait_for(20);
            let next = start(1 + number % 3);
            next.wait_for_line("\"took over\"");
            assert_eq!((next.address(), ask(&next)), (address, 429), "replacement {number}");
            let old = std::mem::replace(&mut weir, next);
            longest_ms = longest_ms.max(paused_ms(&old.wait_for_line("\"handed over\"")));
            assert_eq!(old.wait(), Some(0));
        }
        load.wait_for(20);
        longest_ms
    });
    load.assert_good();
    let (left, charged) = (left(&weir), load.answers() + 3 + 1);
    assert!(left <= BUDGET - charged, "{left} left after {charged}");
    // A charge that is made while the state is sent may count twice: one of each client, each time.
    let twice = BUDGET - charged - left;
    assert!(twice <= (clients * count) as u64, "{left} left after {charged}");
    format!(
        "{count} replacements during {} requests: none failed, none was forgotten, {twice} counted twice; \
         nobody accepted for at most {longest_ms:.1} ms",
        load.answers()
    )
}

/// How long nobody accepted, as the old process says.
fn paused_ms(line: &str) -> f64 {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let text = line["paused_for"].as_str().unwrap().to_owned();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic() || c == 'µ').unwrap());
    let number: f64 = number.parse().unwrap();
    number
        * [("ns", 1e-6), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3)].into_iter().find(|(known, _)| *known == unit).unwrap().1
}
