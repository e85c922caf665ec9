//! Upstreams that fail, clients that dawdle, and the deadlines for both.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::support::{Client, NEVER, Upstream, Weir, echo, over_h2};

#[test]
fn a_connection_that_the_upstream_closed_is_not_used_again() {
    let upstream = Upstream::answering(|request, stream| echo(request, stream) && request.target() != "/close");
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    for round in 0..5 {
        assert_eq!(client.get("/close").status, 200, "{round}");
        upstream.wait_until(|upstream| upstream.connections() == 0);
        assert_eq!(client.get("/stay").status, 200, "{round}");
        assert_eq!(upstream.connections(), 1);
    }
}

#[test]
fn an_upstream_that_is_down_costs_nothing() {
    let upstream = Upstream::start();
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"10/h\"";
    let weir = Weir::start(&upstream, limit);
    let mut client = Client::connect(weir.address());
    let mut ask = || {
        let answer = client.get("/");
        (answer.status, answer.header("x-ratelimit-remaining").unwrap().parse::<u32>().unwrap())
    };
    assert_eq!(ask(), (200, 9));
    let address = upstream.stop();
    assert_eq!([ask(), ask()], [(502, 9), (502, 9)]);
    let _upstream = Upstream::start_at(address);
    assert_eq!([ask(), ask()], [(200, 8), (200, 7)]);
}

#[test]
fn an_upstream_that_does_not_answer_is_given_up_and_charged_for() {
    let upstream = Upstream::serving(|mut peer| drop(peer.rest()));
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nrate = \"10/h\"\n[timeouts]\nresponse_head = \"300ms\"";
    let weir = Weir::start(&upstream, limit);
    let answer = Client::connect(weir.address()).get("/");
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (504, Some("9")));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    upstream.wait_until(|upstream| upstream.connections() == 0);
}

#[test]
fn an_upstream_that_dies_before_it_answers_is_a_bad_gateway() {
    let upstream = Upstream::answering(|request, stream| request.target() != "/die" && echo(request, stream));
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    let statuses = ["/die", "/ok", "/ok"].map(|target| client.get(target).status);
    assert_eq!(statuses, [502, 200, 200]);
    let garbage = Upstream::saying("SSH-2.0-OpenSSH_9.9\r\n");
    let weir = Weir::start(&garbage, NEVER);
    assert_eq!(Client::connect(weir.address()).get("/").status, 502);
}

#[test]
fn a_connection_that_closes_just_then_costs_only_what_must_not_be_repeated() {
    let seen = Mutex::new(HashSet::new());
    // Whoever comes a second time on the same connection gets no answer.
    let upstream = Upstream::answering(move |request, stream| {
        seen.lock().unwrap().insert(stream.peer_addr().unwrap()) && echo(request, stream)
    });
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    let post = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(client.get("/1").status, 200);
    assert_eq!(client.get("/2").status, 200);
    assert_eq!(client.send(post).answer().status, 502);
    assert_eq!(client.send(post).answer().status, 200);
    assert_eq!(upstream.targets(), ["/1", "/2", "/2", "/p", "/p"]);
    let counted = ["answered", "failed"].map(|result| {
        let endpoint = upstream.address();
        let labels = format!("endpoint=\"http://{endpoint}\",result=\"{result}\",upstream=\"upstream\"");
        weir.metric(&format!("weir_endpoint_requests_total{{{labels}}}"))
    });
    assert_eq!(counted, [3.0, 1.0], "the answers of the endpoint, and the 502");
}

#[test]
fn a_head_that_does_not_come_is_408_and_silence_is_silence() {
    let upstream = Upstream::start();
    let weir = Weir::start(
        &upstream,
        "[timeouts]\nrequest_head = \"2s\"\nkeep_alive = \"2s\"\n\
         [[limit]]\nname = \"none\"\nmatch = { path = \"/none\" }\nkey = []\nrate = \"1/h\"",
    );
    Client::connect(weir.address()).get("/none");
    let mut client = Client::connect(weir.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ");
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
    assert_eq!(client.rest(), b"");
    // The second head on a connection, too.
    let mut client = Client::connect(weir.address());
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.send("GET").answer().status, 408);
    // Whoever says nothing is told nothing, before and after a request.
    let mut client = Client::connect(weir.address());
    assert_eq!(client.rest(), b"");
    for (target, status) in [("/", 200), ("/none", 429), ("/a%zz", 400)] {
        let mut client = Client::connect(weir.address());
        assert_eq!(client.get(target).status, status);
        assert_eq!(client.rest(), b"", "after {status}");
    }
}

#[test]
fn a_broken_body_is_the_clients_fault() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, "");
    for method in ["POST", "PUT"] {
        let mut client = Client::connect(weir.address());
        client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"));
        assert_eq!(client.answer().status, 400);
        assert_eq!(client.rest(), b"");
    }
    assert_eq!(weir.metric("weir_problems_total{kind=\"bad_gateway\"}"), 0.0);
    assert_eq!(weir.metric("weir_problems_total{kind=\"malformed\"}"), 2.0);
}

#[test]
fn an_upstream_that_is_down_does_not_flood_the_log() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, "");
    upstream.stop();
    let mut client = Client::connect(weir.address());
    for _ in 0..200 {
        assert_eq!(client.get("/").status, 502);
    }
    weir.wait_for_line("cannot be reached");
    let lines = weir.lines().iter().filter(|line| line.contains("cannot be reached")).count();
    assert!((1..100).contains(&lines), "{lines} lines");
}

#[test]
fn a_failure_is_logged_with_its_endpoint() {
    let broken = Upstream::answering(|_, _| false);
    let endpoint = format!("\"endpoint\":\"http://{}\"", broken.address());
    let weir = Weir::start(&broken, "");
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(Client::connect(weir.address()).send(post).answer().status, 502);
    let line = weir.wait_for_line("closed the connection");
    assert!(line.contains(&endpoint), "{line}");
    let weir = Weir::start(&broken, "");
    let status = over_h2(weir.address(), async |mut client, _| client.post("/", "").await.unwrap().status);
    assert_eq!(status, 502);
    let line = weir.wait_for_line("closed the connection");
    assert!(line.contains(&endpoint), "{line}");
}

#[test]
fn a_request_body_that_stalls_is_408() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, "[timeouts]\nbody_idle = \"300ms\"");
    for framing in ["Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"] {
        let mut client = Client::connect(weir.address());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
        assert_eq!(client.rest(), b"");
    }
    upstream.wait_until(|upstream| upstream.connections() == 0);
}

#[test]
fn an_answer_that_stalls_is_broken_off() {
    let upstream = Upstream::serving(|mut peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
        peer.rest();
    });
    let weir = Weir::start(&upstream, "[timeouts]\nbody_idle = \"300ms\"");
    let mut client = Client::connect(weir.address());
    assert!(client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").try_answer().is_none());
    upstream.wait_until(|upstream| upstream.connections() == 0);
}

#[test]
fn the_total_bounds_head_and_body() {
    let upstream = Upstream::serving(|mut peer| {
        if peer.head().is_some_and(|head| head.target() == "/drip") {
            peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            while peer.send("1\r\nx\r\n") {
                thread::sleep(Duration::from_millis(1));
            }
        }
        peer.rest();
    });
    let weir = Weir::start(&upstream, "[timeouts]\ntotal = \"2s\"");
    assert_eq!(Client::connect(weir.address()).get("/silent").status, 504);
    let mut client = Client::connect(weir.address());
    assert!(client.send("GET /drip HTTP/1.1\r\nHost: a\r\n\r\n").try_answer().is_none());
    upstream.wait_until(|upstream| upstream.connections() == 0);
}

#[test]
fn the_total_bounds_an_answer_that_is_not_taken() {
    let upstream = Upstream::serving(|mut peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n");
        let piece = vec![0; 65536];
        while peer.send(&piece) {}
    });
    let weir = Weir::start(&upstream, "[timeouts]\ntotal = \"2s\"");
    let mut client = Client::connect(weir.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    upstream.wait_until(|upstream| upstream.connections() == 1);
    upstream.wait_until(|upstream| upstream.connections() == 0);
}

#[test]
fn an_upstream_that_breaks_the_rules_is_a_bad_gateway() {
    let many = "x: y\r\n".repeat(2100);
    let answers = vec![
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\nhello!".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: five\r\n\r\nhello".to_owned(),
        "HTTP/1.1 200 OK\r\n x: y\r\ncontent-length: 5\r\n\r\nhello".to_owned(),
        "HTTP/1.1 200 OK\r\nx y\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
    ];
    let upstream = Upstream::saying_each(answers.clone());
    let weir = Weir::start(&upstream, NEVER);
    for (index, answer) in answers.iter().enumerate() {
        let mut client = Client::connect(weir.address());
        for _ in 0..2 {
            assert_eq!(client.get(&format!("/{index}")).status, 502, "{answer:.50}");
        }
        assert_eq!(weir.metric("weir_panics_total"), 0.0, "{answer:.50}");
    }
}

#[test]
fn harmless_faults_of_a_response_are_repaired() {
    let many = "x: y\r\n".repeat(1000);
    let heads = [
        "content-length: 5, 5\r\n",
        "content-length: 5\r\ncontent-length: 05\r\n",
        "content-length: 005\t\r\n",
        "x: a\r\n b\r\ncontent-length:\r\n 5\r\n",
        &format!("{many}content-length: 5\r\n"),
    ];
    let upstream = Upstream::saying_each(heads.map(|head| format!("HTTP/1.1 200 OK\r\n{head}\r\nhello")).into());
    let weir = Weir::start(&upstream, NEVER);
    for (index, head) in heads.iter().enumerate() {
        let (target, mut client) = (format!("/{index}"), Client::connect(weir.address()));
        for _ in 0..2 {
            let answer = client.get(&target);
            let lines = answer.head.lines().filter(|line| line.starts_with("content-length"));
            assert_eq!(lines.collect::<Vec<_>>(), ["content-length: 5"], "{head:.60}");
            assert_eq!(answer.text(), "hello", "{head:.60}");
            if head.starts_with("x: a") {
                assert_eq!(answer.header("x"), Some("a   b"));
            }
        }
        if head.len() > 1000 {
            continue; // more than the client of HTTP/2 takes
        }
        let lengths = over_h2(weir.address(), async |mut client, _| {
            let answer = client.get(&target).await.unwrap();
            assert_eq!(answer.body, "hello", "{head:.60}");
            answer.headers.get_all("content-length").iter().cloned().collect::<Vec<_>>()
        });
        assert_eq!(lengths, ["5"], "{head:.60}");
    }
}

/// A service that sends the body of a response which has none, once the next request is there.
#[test]
fn a_late_body_answers_nobody() {
    const LATE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate";
    let heads = [
        "HTTP/1.1 204 No Content\r\ncontent-length: 42\r\n\r\n",
        "HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 42\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\ncontent-length: 42\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ];
    let upstream = Upstream::serving(move |mut peer| {
        let Some(request) = peer.head() else { return };
        if let Some(index) = request.target().strip_prefix("/late/") {
            let head = heads[index.parse::<usize>().unwrap()];
            let _ = peer.send(head) && peer.head().is_some() && peer.send(LATE);
        } else {
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
        }
    });
    let weir = Weir::start(&upstream, NEVER);
    for (index, head) in heads.iter().enumerate() {
        let mut client = Client::connect(weir.address());
        client.send(format!("GET /late/{index} HTTP/1.1\r\nHost: a\r\n\r\n"));
        while client.head().unwrap().status < 200 {}
        assert_eq!(client.get("/").text(), "hello", "{head}");
        upstream.wait_until(|upstream| upstream.connections() == 0);
    }
}

#[test]
fn bytes_that_nobody_asked_for_answer_nobody() {
    let upstream = Upstream::answering(|request, stream| {
        // In one write, so that it is there when the answer is.
        let answer = match request.target() {
            "/more" => {
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
            }
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        };
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let weir = Weir::start(&upstream, NEVER);
    let mut client = Client::connect(weir.address());
    for _ in 0..5 {
        assert_eq!(client.get("/more").text(), "hello");
        assert_eq!(client.get("/").text(), "hello");
        // To HEAD, a body is what nobody asked for.
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().unwrap().status, 200);
        assert_eq!(client.get("/").text(), "hello");
    }
}

/// A process without one of its workers would serve a part of its connections.
#[test]
fn a_worker_that_cannot_start_ends_the_process() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, Weir::config(&upstream, "", NEVER)).unwrap();
    // Without inherited descriptors, the second worker has one too few.
    let run = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n 18; exec timeout 60 \"$0\" run --config \"$1\"";
    let ended = Command::new("sh").args(["-c", run, env!("CARGO_BIN_EXE_weir")]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && said.contains("cannot run the workers"), "{said}");
}

/// The first line that Weir logs with `descriptors`, and `server` in its `[server]`.
fn first_line(descriptors: usize, server: &str) -> String {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, Weir::config(&upstream, server, NEVER)).unwrap();
    let mut weir = Command::new("sh")
        .args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" run --config \"$1\""), env!("CARGO_BIN_EXE_weir")])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first_line = String::new();
    BufReader::new(weir.stderr.take().unwrap()).read_line(&mut first_line).unwrap();
    weir.kill().unwrap();
    weir.wait().unwrap();
    first_line
}

#[test]
fn few_descriptors_mean_few_connections() {
    // 64, less 32 and 8 for each of two workers, at two a connection.
    let line = first_line(64, "max_connections = 10000");
    assert!(line.contains("\"wanted\":10000,\"max_connections\":8"), "{line}");
}

#[test]
fn connections_that_nobody_asked_for_are_not_missed() {
    for (descriptors, server) in [(64, ""), (1024, ""), (1024, "max_connections = 400")] {
        let line = first_line(descriptors, server);
        assert!(line.contains("\"level\":\"INFO\"") && !line.contains("descriptors"), "{descriptors} {server}: {line}");
    }
}
