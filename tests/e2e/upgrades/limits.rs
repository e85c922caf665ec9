//! Charges of upgraded connections.

use super::{ASK, OPEN, echo, echoing, start, upgraded};
use crate::support::{Client, poll};

/// Sends a request that peeks at the limit. Returns its status and the remaining units.
fn ask(weir: &crate::support::Weir) -> (u16, String) {
    let answer = Client::connect(weir.address()).get("/");
    (answer.status, answer.header("x-ratelimit-remaining").unwrap_or("-").to_owned())
}

#[test]
fn an_upgrade_is_in_flight_until_it_closes() {
    let upstream = echoing();
    let weir = start(&upstream, "", "[[limit]]\nname = \"l\"\nkey = []\nalgorithm = \"concurrency\"\nmax = 2\n");
    let (mut one, mut other) = (upgraded(&weir), upgraded(&weir));
    echo(&mut one, "a");
    echo(&mut other, "b");
    assert_eq!(Client::connect(weir.address()).send(ASK).answer().status, 429);
    assert_eq!(ask(&weir).0, 429);
    drop(one);
    weir.wait_for_metric(OPEN, |open| open == 1.0);
    assert_eq!(poll(|| Some(ask(&weir)).filter(|(status, _)| *status == 200)).0, 200);
    echo(&mut other, "still here");
}

#[test]
fn an_upgrade_is_settled_when_it_closes() {
    let upstream = echoing();
    for (by, atleast) in [("response_bytes", 700), ("elapsed_ms", 1)] {
        let limit = format!(
            "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/day\"\nburst = 10000\nsettle = {{ by = \"{by}\" }}\n\
             match = {{ path = [\"/chat\"] }}\n"
        );
        let weir = start(&upstream, "", &limit);
        let remaining = |client: &mut Client| {
            let head = client.send(ASK).head().unwrap();
            head.header("x-ratelimit-remaining").unwrap().parse::<u64>().unwrap()
        };
        let mut client = Client::connect(weir.address());
        assert_eq!(remaining(&mut client), 9_999);
        echo(&mut client, &"x".repeat(700));
        let mut second = Client::connect(weir.address());
        assert_eq!(remaining(&mut second), 9_998, "nothing more is charged while it is open");
        drop((client, second));
        weir.wait_for_metric(OPEN, |open| open == 0.0);
        let left = remaining(&mut Client::connect(weir.address()));
        assert!(left <= 9_999 - atleast, "{by}: {left}");
        if by == "response_bytes" {
            assert_eq!(left, 9_999 - 700, "{by}");
        }
    }
}

/// A declined upgrade is an ordinary request.
#[test]
fn a_declined_upgrade_is_not_in_flight() {
    let upstream = crate::support::Upstream::start();
    let weir = start(&upstream, "", "[[limit]]\nname = \"l\"\nkey = []\nalgorithm = \"concurrency\"\nmax = 1\n");
    let mut client = Client::connect(weir.address());
    for _ in 0..3 {
        assert_eq!(client.send(ASK).answer().status, 200);
    }
    assert_eq!(weir.metric(OPEN), 0.0);
}
