//! Upgraded connections, byte for byte.

use std::io::{ErrorKind, Write};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::{AGREE, ASK, OPEN, echo, echoing, start, upgraded};
use crate::ops::replace;
use crate::support::{Client, Upstream, Weir};

#[test]
fn both_sides_get_the_agreement() {
    let upstream = echoing();
    let weir = start(&upstream, "", "");
    let mut client = Client::connect(weir.address());
    let answer = client.send(ASK).head().unwrap();
    assert!(answer.head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{}", answer.head);
    assert_eq!([answer.header("connection"), answer.header("upgrade")], [Some("upgrade"), Some("websocket")]);
    assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("99"));
    assert!(["content-length", "transfer-encoding"].iter().all(|name| answer.header(name).is_none()));
    let got = upstream.received().pop().unwrap();
    let header = |name| got.header(name).unwrap_or_default();
    assert_eq!([header("connection"), header("upgrade")], ["upgrade", "websocket"]);
    assert_eq!(header("sec-websocket-key"), "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(header("x-forwarded-for"), "127.0.0.1");
    echo(&mut client, "GET / HTTP/1.1\r\n\r\n");
}

#[test]
fn early_bytes_are_not_lost() {
    let upstream = Upstream::serving(|mut peer| {
        let _ = peer.head();
        let fields = "content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n";
        peer.send(format!("{}{fields}first", AGREE.strip_suffix("\r\n").unwrap()));
        let early = peer.read(5).unwrap();
        peer.send(early);
        peer.finish();
        assert_eq!(peer.rest(), b"");
    });
    let weir = start(&upstream, "", "");
    let mut client = Client::connect(weir.address());
    let head = client.send(format!("{ASK}early")).head().unwrap();
    assert!(head.header("content-length").is_none() && head.header("transfer-encoding").is_none(), "{}", head.head);
    assert_eq!(client.rest(), b"firstearly");
}

#[test]
fn other_protocols_need_no_handshake() {
    let upstream = Upstream::serving(|mut peer| {
        let _ = peer.head();
        peer.send("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
        peer.send("HTTP/1.1 101 As you wish\r\nconnection: keep-alive, Upgrade\r\nUpgrade: IRC/6.9\r\n\r\nNOTICE");
        assert_eq!(peer.rest(), b"QUIT");
    });
    let weir = Weir::start_as(&Weir::upgrading(&upstream, &["websocket", "irc/6.9"], "", ""));
    let mut client = Client::connect(weir.address());
    let upgrade =
        "connection: Upgrade, x-mine\r\nupgrade: SHTTP/1.3, irc/6.9, websocket\r\nx-mine: 1\r\nte: trailers\r\n";
    client.send(format!("OPTIONS /irc HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n{upgrade}\r\n"));
    assert_eq!(client.head().unwrap().status, 103);
    let answer = client.head().unwrap();
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("irc/6.9")), "{}", answer.head);
    client.send("QUIT").finish();
    assert_eq!(client.rest(), b"NOTICE");
    let got = upstream.received().pop().unwrap();
    let header = |name| got.header(name).unwrap_or_default();
    assert_eq!(
        [header("connection"), header("upgrade"), header("x-mine"), header("te")],
        ["upgrade", "irc/6.9", "", ""]
    );
}

#[test]
fn each_side_may_end_first() {
    let (tell, told) = channel();
    let upstream = Upstream::serving(move |mut peer| {
        let target = peer.head().unwrap().target().to_owned();
        peer.send(AGREE);
        if target == "/upstream-first" {
            peer.send("bye");
            peer.finish();
            tell.send(peer.rest()).unwrap();
        } else {
            tell.send(peer.rest()).unwrap();
            peer.send("bye");
        }
    });
    let weir = start(&upstream, "", "");
    let mut client = upgraded(&weir);
    client.send("last words").finish();
    assert_eq!(told.recv().unwrap(), b"last words");
    assert_eq!(client.rest(), b"bye");

    let mut client = Client::connect(weir.address());
    client.send(ASK.replace("/chat", "/upstream-first"));
    assert_eq!(client.head().unwrap().status, 101);
    assert_eq!(client.rest(), b"bye");
    client.send("last words").finish();
    assert_eq!(told.recv().unwrap(), b"last words");
    weir.wait_for_metric(OPEN, |open| open == 0.0);
}

#[test]
fn a_broken_side_ends_the_other() {
    let upstream = echoing();
    let weir = start(&upstream, "", "");
    let mut client = upgraded(&weir);
    echo(&mut client, "a");
    socket2::SockRef::from(&*client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    upstream.wait_until(|upstream| upstream.connections() == 0);
    weir.wait_for_metric(OPEN, |open| open == 0.0);

    let mut client = upgraded(&weir);
    upstream.stop();
    assert_eq!(client.rest(), b"");
    // The upstream reads nothing. The first piece finds that out, the next one ends the tunnel.
    while client.stream().write_all(b"x").is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    weir.wait_for_metric(OPEN, |open| open == 0.0);
}

/// Bytes that the other side does not read are not read either.
#[test]
fn a_slow_side_slows_the_other() {
    const TOTAL: usize = 256 << 20;
    const GROWTH: usize = 32 << 20;
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let (tell, told) = channel();
    let upstream = Upstream::serving(move |mut peer| {
        let _ = peer.head();
        peer.send(AGREE);
        let first = peer.read(1).unwrap();
        peer.send(first);
        let _ = may_go_on.lock().unwrap().recv();
        tell.send(peer.rest().len()).unwrap();
    });
    let weir = start(&upstream, "", "");
    let mut client = upgraded(&weir);
    echo(&mut client, "a");
    let before = weir.resident();
    client.stream().set_write_timeout(Some(Duration::from_secs(3))).unwrap();
    let (piece, mut sent) = (vec![7; 1 << 20], 0);
    let stalled = loop {
        match client.stream().write(&piece) {
            Ok(len) => sent += len,
            Err(error) => break error,
        }
        assert!(sent < TOTAL, "all of it was taken");
    };
    assert!(matches!(stalled.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{stalled}");
    let after = weir.resident();
    assert!(after < before + GROWTH, "{before} became {after}");
    go_on.send(()).unwrap();
    client.finish();
    assert_eq!(told.recv().unwrap(), sent);
}

#[test]
fn silence_ends_a_tunnel() {
    let upstream = echoing();
    let weir = start(&upstream, "", "[timeouts]\nupgraded_idle = \"3s\"\nbody_idle = \"1s\"\ntotal = \"2s\"\n");
    let began = Instant::now();
    let mut client = upgraded(&weir);
    echo(&mut client, "a");
    assert_eq!(client.rest(), b"");
    assert!(began.elapsed() >= Duration::from_secs(3));
    upstream.wait_until(|upstream| upstream.connections() == 0);
}

#[test]
fn a_tunnel_lives_until_the_end_of_the_grace_period() {
    let upstream = echoing();
    let weir = start(&upstream, "shutdown_grace = \"10min\"", "");
    let mut client = upgraded(&weir);
    weir.signal("TERM");
    weir.wait_for_line("\"draining\"");
    echo(&mut client, "still here");
    weir.signal("TERM");
    assert_eq!(client.rest(), b"");
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn a_drain_ends_with_the_last_tunnel() {
    let upstream = echoing();
    let weir = start(&upstream, "shutdown_grace = \"10min\"", "");
    let mut client = upgraded(&weir);
    weir.signal("TERM");
    weir.wait_for_line("\"draining\"");
    echo(&mut client, "bye");
    drop(client);
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn a_reload_changes_the_allowed_protocols() {
    let upstream = echoing();
    let weir = start(&upstream, "", "");
    let mut client = upgraded(&weir);
    replace(&weir.config_file(), &Weir::config(&upstream, "", ""));
    weir.wait_for_lines("\"reloaded\"", 1);
    assert_eq!(Client::connect(weir.address()).send(ASK).answer().status, 200);
    echo(&mut client, "still here");
}
