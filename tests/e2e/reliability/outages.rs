//! A service that goes and comes back under load.

use std::time::{Duration, Instant};

use super::load::Load;
use super::service::{quick, quick_at};
use crate::support::{NEVER, Weir};

/// How soon there is to be full service again. Requests that begin later must pass, however long their answers take.
const BACK_WITHIN: Duration = Duration::from_secs(2);

/// Stops one of `endpoints` and starts it again, `count` times, while `clients` ask, with `pause` after an answer. Says what it saw.
pub fn outages(clients: usize, count: usize, endpoints: usize, pause: Duration) -> String {
    let mut upstreams: Vec<_> = (0..endpoints).map(|_| quick()).collect();
    let urls: Vec<_> = upstreams.iter().map(|upstream| format!("http://{}", upstream.address())).collect();
    let text = if endpoints == 1 {
        format!("[upstream]\nurl = \"{}\"\n", urls[0])
    } else {
        format!("[upstreams.a]\nendpoints = {urls:?}\neject = {{ after = 5, for = \"10s\" }}\n")
    };
    let weir = Weir::with(&format!("{text}{NEVER}"));
    let (load, back_after) = Load::during(weir.address(), clients, pause, |load| {
        let mut back_after = Vec::new();
        for number in 0..count {
            load.wait_for(50);
            let address = upstreams.remove(0).stop();
            let answers = load.answers();
            crate::ops::until("answers without it", || load.answers() >= answers + 50);
            if endpoints == 1 {
                assert_ne!(load.other().last().map(|(_, status)| *status), None, "it was there");
            }
            upstreams.push(quick_at(address));
            let began = Instant::now();
            // Longer than it may take, so that what fails later is seen.
            while began.elapsed() < BACK_WITHIN + Duration::from_millis(200) {
                load.wait_for(1);
            }
            let late = load.other().into_iter().filter(|(when, _)| *when > began).map(|(when, _)| when - began).max();
            let late = late.unwrap_or_default();
            assert!(late < BACK_WITHIN, "outage {number}: {late:?}");
            back_after.push(late);
        }
        back_after.into_iter().max().unwrap_or_default()
    });
    load.assert_answered();
    let other = load.other();
    assert!(other.iter().all(|(_, status)| matches!(status, 502 | 503)), "{:?}", other.first());
    format!(
        "{count} outages of one of {endpoints}: {} of {} requests got 502 or 503, none {:.0} ms after it was back",
        other.len(),
        load.answers(),
        back_after.as_secs_f64() * 1e3,
    )
}
