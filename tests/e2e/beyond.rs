//! What is done to those who go on beyond a limit.

use crate::support::{Answer, Client, Upstream, Weir};

fn retry_after(answer: &Answer) -> (u16, Option<u64>) {
    (answer.status, answer.header("retry-after").map(|value| value.parse().unwrap()))
}

#[test]
fn who_is_refused_too_often_is_banned() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"header:x-key\"]\nrate = \"1/h\"\n\
                 ban = { after = \"2/h\", for = \"10min\" }\n";
    let weir = Weir::start(&upstream, limit);
    let mut client = Client::connect(weir.address());
    let mut ask = |key: &str, rest: &str| {
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\nContent-Length: 0\r\n{rest}\r\n")).answer()
    };
    let statuses: Vec<_> = (0..3).map(|_| ask("k", "").status).collect();
    assert_eq!(statuses, [200, 429, 429]);

    let banned = ask("k", "");
    let (status, seconds) = retry_after(&banned);
    assert!(status == 403 && seconds.is_some_and(|seconds| (595..=600).contains(&seconds)), "{}", banned.head);
    let problem: serde_json::Value = serde_json::from_slice(&banned.body).unwrap();
    assert_eq!(banned.header("content-type"), Some("application/problem+json"));
    assert_eq!((&problem["status"], &problem["title"]), (&403.into(), &"Forbidden".into()));
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.starts_with("banned by l; retry after ")));
    let call = ask("k", "Content-Type: application/grpc\r\n");
    assert_eq!((call.status, call.header("grpc-status")), (200, Some("7")));

    assert_eq!(ask("other", "").status, 200);
    assert_eq!(weir.metric("weir_bans_total{limit=\"l\"}"), 1.0);
    assert_eq!(weir.metric("weir_banned_keys{limit=\"l\"}"), 1.0);
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"rejected\",limit=\"l\"}"), 4.0);
    assert_eq!(weir.metric("weir_requests_total{verdict=\"rejected\"}"), 4.0);
    assert_eq!(upstream.targets().len(), 2);
}

#[test]
fn a_ban_at_arrival_comes_before_identity() {
    let upstream = Upstream::start();
    let limits = "[identity.api_key]\nheader = \"x-api-key\"\n\
                  [[limit]]\nname = \"guard\"\nstage = \"arrival\"\nkey = [\"ip\"]\nrate = \"2/h\"\n\
                  ban = { after = \"1/h\", for = \"1h\" }\n\
                  [[limit]]\nname = \"l\"\nkey = [\"api_key\"]\nrate = \"100/h\"\n";
    let weir = Weir::start(&upstream, limits);
    let mut client = Client::connect(weir.address());
    let statuses: Vec<_> = (0..5).map(|_| client.get("/").status).collect();
    assert_eq!(statuses, [401, 401, 429, 403, 403]);
}
