//! The end of a process in which many wait.

use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;

use super::service::quick;
use crate::support::{Client, PATIENCE, Weir, over_h2};

/// Of those who wait, so many come over one connection of HTTP/2.
const STREAMS: usize = 100;

/// Stops a process in which `count` requests wait. Some have their turn within the `grace`, the others are told when to
/// come back. Says what it saw.
pub fn held(count: usize, grace: Duration) -> String {
    // A connection for each, and those of the service.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let upstream = quick();
    // About a tenth of them have their turn, so that some wait still if the machine pauses before the signal.
    let rate = count as u128 * 100 / grace.as_millis();
    let limit = format!(
        "[[limit]]\nname = \"all\"\nkey = []\nrate = \"{rate}/s\"\nburst = 1\non_limit = \"hold\"\n\
         hold = {{ max_waiting = {} }}\nmatch = {{ path = \"/held\" }}\n\
         [[limit]]\nname = \"first\"\nkey = []\nrate = \"1/h\"\nburst = 1\nmatch = {{ path = \"/first\" }}\n",
        count + 1
    );
    // Until then nobody has a turn.
    let waiting = limit.replace(&format!("{rate}/s"), "1/h");
    let config =
        |limit: &str| Weir::config(&upstream, &format!("shutdown_grace = \"{}ms\"\n", grace.as_millis()), limit);
    let weir = Weir::start_as(&config(&waiting));
    assert_eq!(Client::connect(weir.address()).get("/held").status, 200);
    let mut clients: Vec<Client> = (STREAMS..count).map(|_| ask(&weir)).collect();
    let statuses = over_h2(weir.address(), async |client, _| {
        let mut streams = JoinSet::new();
        for _ in 0..STREAMS {
            let mut client = client.clone();
            streams.spawn(async move { client.get("/held").await.unwrap().status });
        }
        let is_full = || weir.metric("weir_held_requests{limit=\"all\"}") == count as f64;
        while !is_full() {
            tokio::task::yield_now().await;
        }
        crate::ops::replace(&weir.config_file(), &config(&limit));
        weir.signal("HUP");
        weir.wait_for_line("\"reloaded\"");
        weir.signal("TERM");
        streams.join_all().await
    });
    let answers = clients.iter_mut().map(|client| client.try_answer().map_or(0, |answer| answer.status));
    let all: Vec<u16> = statuses.into_iter().chain(answers).collect();
    let of = |status: u16| all.iter().filter(|one| **one == status).count();
    let (served, refused) = (of(200), of(503));
    assert_eq!((all.len(), served + refused), (count, count), "{all:?}");
    assert!(served > 0 && refused > 0, "{served} and {refused}");
    assert_eq!(weir.wait(), Some(0));
    format!("{count} waited at the end: {served} were served, {refused} told when to come back")
}

fn ask(weir: &Weir) -> Client {
    let stream = TcpStream::connect(weir.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client::over(stream);
    client.send("GET /held HTTP/1.1\r\nhost: h\r\n\r\n");
    client
}
