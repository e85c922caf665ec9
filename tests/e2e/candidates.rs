//! Candidates: other numbers that are counted beside a limit.

use std::fs;

use serde_json::Value;

use crate::admin_tap::Watcher;
use crate::ops::replace;
use crate::support::{Client, Upstream, Weir, over_h2};

fn decided(weir: &Weir, limit: &str, decision: &str) -> f64 {
    weir.metric(&format!("weir_limit_decisions_total{{decision=\"{decision}\",limit=\"{limit}\"}}"))
}

/// Looser and stricter numbers are counted as if they were in force, in metrics, lines and taps; requests that wait count
/// at their turn, a reload keeps the state, and overrides are those of the limit.
#[test]
fn candidates_count_and_refuse_nothing() {
    let upstream = Upstream::start();
    let text = "[log]\nformat = 'json'\naccess = 'all'\naccess_file = 'access.log'
         [[limit]]\nname = 'loose'\nmatch = { path = '/loose' }\nkey = ['ip']\nrate = '2/h'\ncandidate = { rate = '4/h' }
         [[limit]]\nname = 'strict'\nmatch = { path = '/strict' }\nkey = ['ip']\nrate = '4/h'\ncandidate = { rate = '2/h' }
         [[limit]]\nname = 'slow'\nmatch = { path = '/slow' }\nkey = ['ip']\nrate = '50/s'\nburst = 1
         on_limit = 'hold'\ncandidate = { rate = '1/h' }\n";
    let weir = Weir::start(&upstream, text);
    let mut watcher = Watcher::open(&weir, "?limit=loose.candidate");
    let mut client = Client::connect(weir.address());
    let statuses = |client: &mut Client, path: &str| [0; 6].map(|_| client.get(path).status);
    assert_eq!(statuses(&mut client, "/loose"), [200, 200, 429, 429, 429, 429]);
    assert_eq!(statuses(&mut client, "/strict"), [200, 200, 200, 200, 429, 429]);
    assert_eq!(statuses(&mut client, "/slow"), [200; 6]);
    let counts = |weir: &Weir| {
        ["loose", "strict", "slow"].map(|name| {
            let name = format!("{name}.candidate");
            ["admitted", "shadow_refused", "shadow_held", "refused"].map(|decision| decided(weir, &name, decision))
        })
    };
    assert_eq!(counts(&weir), [[4.0, 2.0, 0.0, 0.0], [2.0, 4.0, 0.0, 0.0], [1.0, 0.0, 5.0, 0.0]]);
    let shadow = |request: &Value| request["shadow_limits"].as_str().unwrap_or_default().to_owned();
    let tapped = [0; 6].map(|_| shadow(&watcher.next()));
    assert_eq!(tapped, ["", "", "", "", "loose.candidate", "loose.candidate"]);
    let lines = weir.wait_for("18 access lines", || {
        let text = fs::read_to_string(weir.folder().join("access.log")).unwrap_or_default();
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines.len() == 18).then_some(lines)
    });
    let of = |path: &str| lines.iter().filter(|line| line["path"] == path).map(&shadow).collect::<Vec<_>>();
    assert_eq!(of("/strict"), ["", "", "strict.candidate", "strict.candidate", "strict.candidate", "strict.candidate"]);
    assert_eq!(of("/slow")[1..], ["slow.candidate"; 5]);

    let before = fs::read_to_string(weir.config_file()).unwrap();
    let [old, new] = [("4", "2"), ("6", "3")]
        .map(|(rate, other)| format!("rate = '{rate}/h'\ncandidate = {{ rate = '{other}/h' }}"));
    replace(&weir.config_file(), &before.replace(&old, &new));
    weir.wait_for_line("\"reloaded\"");
    assert_eq!([0; 4].map(|_| client.get("/strict").status), [200, 200, 429, 429]);
    assert_eq!(counts(&weir)[1][..2], [3.0, 7.0], "one unit more, and no bucket full again");
    let over_http2 = over_h2(weir.address(), async |mut client, _| client.get("/loose").await.unwrap());
    assert_eq!((over_http2.status, counts(&weir)[0][1]), (429, 3.0));

    let body = r#"{"limit":"loose.candidate","key":{"ip":"127.0.0.1"},"to":"9/h"}"#;
    let head = format!(
        "POST /v1/overrides HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}",
        body.len()
    );
    let answer = Client::connect(weir.admin()).send(format!("{head}\r\n\r\n{body}")).answer();
    assert!(answer.text().contains("there is no limit `loose.candidate`"), "{}", answer.text());

    // The page shows what candidates refuse and hold.
    weir.wait_until("series of candidates", || {
        let head = "GET /v1/history HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let history: Value = serde_json::from_str(&Client::connect(weir.admin()).send(head).answer().text()).unwrap();
        let has_any = |name: &str, of: &str| {
            let mut limits = history["limits"].as_array().unwrap().iter();
            let limit = limits.find(|limit| limit["limit"] == name);
            limit.is_some_and(|limit| limit[of].as_array().unwrap().iter().any(|rate| rate.as_f64() > Some(0.0)))
        };
        has_any("strict.candidate", "refused") && has_any("slow.candidate", "held")
    });
}
