//! Charges of upgraded connections.

use super::{AGREE, ASK, OPEN, echo, echoing, h2, start, upgraded};
use crate::attacks::h2_frames::{RST_STREAM, frame};
use crate::support::{Client, Upstream, poll};

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

/// So a client that connects anew behind the end is not refused.
#[test]
fn a_unit_comes_back_before_the_client_sees_the_end_of_the_service() {
    let upstream = Upstream::serving(|mut peer| {
        if peer.head().is_some() {
            peer.send(AGREE);
        }
    });
    let weir = start(&upstream, "", "[[limit]]\nname = \"l\"\nkey = []\nalgorithm = \"concurrency\"\nmax = 1\n");
    let mut open: Vec<Client> = Vec::new();
    for _ in 0..8 {
        let mut client = upgraded(&weir);
        assert_eq!(client.rest(), b"");
        open.push(client);
    }
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

/// Over HTTP/2 its task is dropped then.
#[test]
fn an_upgrade_that_breaks_off_is_settled() {
    const LEN: u64 = 700;
    let upstream = h2::echoing();
    let limit = "[[limit]]\nname = \"l\"\nkey = []\nrate = \"1/day\"\nburst = 10000\n\
                 settle = { by = \"response_bytes\" }\n[log]\naccess = \"all\"\nformat = \"json\"\n";
    let weir = start(&upstream, "", limit);
    for turn in 1..=2 {
        let mut tunnel = h2::tunnel(&weir);
        tunnel.data(1, &[b'x'; LEN as usize], 0);
        assert_eq!(h2::read(&mut tunnel, 1, LEN as usize).0.len(), LEN as usize);
        if turn == 1 {
            tunnel.send(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
        } else {
            drop(tunnel);
        }
        weir.wait_for_metric(OPEN, |open| open == 0.0);
        // This request costs 1 until its answer of 5 bytes has ended.
        assert_eq!(ask(&weir), (200, (10_000 - turn * LEN - (turn - 1) * 5 - 1).to_string()), "{turn}");
        weir.wait_for_lines(&format!("\"bytes_in\":{LEN},\"bytes_out\":{LEN}"), turn as usize);
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
