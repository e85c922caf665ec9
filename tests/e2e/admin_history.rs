//! `GET /v1/history`: rates of the last hour.

use serde_json::{Value, json};

use crate::support::{Answer, Client, Upstream, Weir};

const LIMITS: &str = "[[limit]]\nname = \"one\"\nkey = [\"ip\"]\nrate = \"2/h\"\n";

fn get(weir: &Weir, target: &str) -> Answer {
    Client::connect(weir.admin()).send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).answer()
}

fn sum(rates: &Value) -> f64 {
    rates.as_array().unwrap().iter().filter_map(Value::as_f64).sum()
}

#[test]
fn requests_are_in_the_history() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, LIMITS);
    let statuses = [(); 3].map(|()| Client::connect(weir.address()).get("/").status);
    assert_eq!(statuses, [200, 200, 429]);
    let history = weir.wait_for("a sample", || {
        let history: Value = serde_json::from_slice(&get(&weir, "/v1/history").body).unwrap();
        let seen = history["refused_by"]["limit"].as_array().is_some_and(|rates| sum(&json!(rates)) > 0.0);
        seen.then_some(history)
    });
    let limit = &history["limits"][0];
    assert_eq!(
        (&limit["limit"], &history["every_s"], &history["limits_left_out"]),
        (&json!("one"), &json!(5), &json!(0))
    );
    assert_eq!(history["requests"]["refused"], history["refused_by"]["limit"], "{history}");
    assert!(sum(&history["requests"]["forwarded"]) > 0.0 && sum(&limit["refused"]) > 0.0, "{history}");
    assert!(sum(&limit["headroom"]) > 0.0 && sum(&history["added_us_p99"]) > 0.0, "{history}");
    let samples = history["at_s"].as_array().unwrap().len();
    assert_eq!(limit["admitted"].as_array().unwrap().len(), samples);
    let last: Value = serde_json::from_slice(&get(&weir, "/v1/history?n=1").body).unwrap();
    assert_eq!(last["at_s"].as_array().unwrap().len(), 1);
    for query in ["?n=0", "?n=721", "?m=1"] {
        assert_eq!(get(&weir, &format!("/v1/history{query}")).status, 400, "{query}");
    }
}
