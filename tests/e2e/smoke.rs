//! The shortest way through.

use crate::support::{Client, Upstream, Weir};

#[test]
fn a_request_goes_through_and_says_where_it_stands() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, "[[limit]]\nname = \"per-ip\"\nkey = [\"ip\"]\nrate = \"2/h\"");
    let mut client = Client::connect(weir.address());

    let answers: Vec<_> = (0..3).map(|_| client.get("/a?b=c")).collect();

    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    let remaining: Vec<_> = answers.iter().map(|answer| answer.header("x-ratelimit-remaining")).collect();
    assert_eq!(remaining, [Some("1"), Some("0"), Some("0")]);
    assert_eq!(upstream.targets(), ["/a?b=c", "/a?b=c"]);
    assert_eq!(weir.metric("weir_requests_total{verdict=\"rejected\"}"), 1.0);
}
