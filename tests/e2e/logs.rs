//! The access log, and the secrets that no log may contain.

use std::io::Read;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Value, json};

use crate::ops::{replace, until};
use crate::support::{Client, PATIENCE, Upstream, Weir, free_port};

fn log(access: &str, level: &str) -> String {
    format!("[log]\nformat = \"json\"\naccess = \"{access}\"\nlevel = \"{level}\"\n")
}

/// A limit of one request an hour.
const ONE: &str = "[[limit]]\nname = \"one\"\nkey = [\"path\"]\nrate = \"1/h\"\n";

/// The access lines so far. Every line must be a JSON object.
fn access_lines(weir: &Weir) -> Vec<Value> {
    let lines: Vec<Value> = weir.lines().iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    lines.into_iter().filter(|line| line["message"] == "request").collect()
}

#[track_caller]
fn wait_for_access(weir: &Weir, count: usize) -> Vec<Value> {
    weir.wait_until(&format!("{count} access lines"), || access_lines(weir).len() >= count);
    access_lines(weir)
}

/// Stops a Weir and returns its whole log.
fn all_lines(weir: &Weir) -> Vec<Value> {
    weir.signal("TERM");
    weir.wait_for_line("\"stopped\"");
    access_lines(weir)
}

#[test]
fn all_writes_a_line_for_each_request() {
    let weir = Weir::start(&Upstream::start(), &format!("{}{ONE}", log("all", "info")));
    let mut client = Client::connect(weir.address());
    assert_eq!([client.get("/a?b").status, client.get("/a").status], [200, 429]);
    let lines = wait_for_access(&weir, 2);

    let expected = [(200, "forwarded", None, None), (429, "refused", Some("limit"), Some("one"))];
    for (line, (status, verdict, refused_by, limit)) in lines.iter().zip(expected) {
        assert_eq!((line["status"].as_u64(), line["verdict"].as_str()), (Some(status), Some(verdict)));
        assert_eq!((line["refused_by"].as_str(), line["limit"].as_str()), (refused_by, limit));
        assert_eq!(line["held_us"].as_u64(), Some(0));
        assert_eq!((line["client"].as_str(), line["host"].as_str()), (Some("127.0.0.1"), Some("weir.test")));
        assert_eq!((line["method"].as_str(), line["path"].as_str()), (Some("GET"), Some("/a")));
    }
}

#[test]
fn a_client_that_leaves_while_held_has_a_line() {
    let hold = "[[limit]]\nname = \"hold\"\nkey = []\nrate = \"1/h\"\non_limit = \"hold\"\n";
    let weir = Weir::start(&Upstream::start(), &format!("{}{hold}", log("refused", "trace")));
    assert_eq!(Client::connect(weir.address()).get("/a").status, 200);
    let mut leaving = Client::connect(weir.address());
    leaving.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.wait_for_metric("weir_held_requests{limit=\"hold\"}", |held| held == 1.0);
    drop(leaving);

    let line = &wait_for_access(&weir, 1)[0];
    assert_eq!((line["status"].as_u64(), line["verdict"].as_str()), (Some(499), Some("abandoned")));
    assert_eq!((line["path"].as_str(), line["limit"].as_str()), (Some("/b"), Some("hold")), "{line}");
    assert!(line["held_us"].as_u64().is_some_and(|held_us| held_us > 0), "{line}");
}

#[test]
fn refused_omits_forwarded_requests_and_off_omits_all() {
    for (access, paths) in [("refused", vec!["/a", "/b"]), ("off", vec![])] {
        let weir = Weir::start(&Upstream::start(), &format!("{}{ONE}", log(access, "info")));
        let mut client = Client::connect(weir.address());
        for path in ["/a", "/a", "/b", "/b"] {
            client.get(path);
        }
        let lines = all_lines(&weir);
        let found: Vec<_> = lines.iter().map(|line| line["path"].as_str().unwrap()).collect();
        assert_eq!(found, paths);
    }
}

#[test]
fn access_lines_do_not_depend_on_the_level() {
    let said = quiet("format = \"json\"\naccess = \"all\"\nlevel = \"error\"");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("\"message\":\"request\""), "{said}");
}

/// By a signal and by the API of operators.
#[test]
fn a_reload_changes_the_level() {
    let weir = Weir::start(&Upstream::start(), &log("off", "info"));
    let debug_lines = || weir.lines().iter().filter(|line| line.contains("\"level\":\"DEBUG\"")).count();
    let ask = || Client::connect(weir.address()).send("GET / HTTP/1.1\r\n: a\r\n\r\n").answer().status;
    let change = |from: &str, to: &str| {
        let text = std::fs::read_to_string(weir.config_file()).unwrap();
        assert!(text.contains(from), "{text}");
        replace(&weir.config_file(), &text.replace(from, to));
    };
    // Lines have the order in which they are logged.
    let reload = || {
        let reloads = weir.lines().iter().filter(|line| line.contains("\"reloaded\"")).count();
        weir.signal("HUP");
        weir.wait_for_lines("\"reloaded\"", reloads + 1);
    };
    assert_eq!(ask(), 400);
    change("level = \"info\"", "level = \"debug\"");
    reload();
    assert_eq!(debug_lines(), 0);
    weir.wait_until("a line of level debug", || ask() == 400 && debug_lines() > 0);
    assert!(!weir.lines().iter().any(|line| line.contains("only after a restart")));

    change("level = \"debug\"", "level = \"info\"");
    assert_eq!(weir.ask_admin("POST", "/v1/reload", &json!({ "reason": "test" })).status, 200);
    reload();
    let before = debug_lines();
    assert_eq!((ask(), ask()), (400, 400));
    reload();
    assert_eq!(debug_lines(), before);
}

#[test]
fn text_of_clients_stays_within_its_field() {
    let weir = Weir::start(&Upstream::start(), &log("all", "debug"));
    let requests: [&[u8]; 9] = [
        b"GET /%0a%0dlevel%22 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /%1b[31m%00 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /\"}{\" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /\xe2\x80\xa8\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a\x1b[2J\"b\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n",
        b"G\"ET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a\r\nX-A: \x1b[31m\"\\\r\nUser-Agent: \"\r\n\r\n",
        b"GET http://a%0a/ HTTP/1.1\r\nHost: b\r\n\r\n",
    ];
    for request in requests {
        let mut client = Client::connect(weir.address());
        client.send(request).try_answer();
        let _ = client.stream().shutdown(Shutdown::Both);
    }
    let lines = wait_for_access(&weir, requests.len());
    assert_eq!(lines.len(), requests.len(), "{lines:#?}");
    for line in weir.lines() {
        assert!(line.chars().all(|char| !char.is_control()), "{line:?}");
    }
}

#[test]
fn no_line_has_a_query_a_token_or_a_secret() {
    const SECRET: &str = "hunter2-hunter2-hunter2-hunter2!";
    let claims = json!({ "sub": "subject", "exp": 4_000_000_000_u64 });
    let token =
        jsonwebtoken::encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes()).unwrap())
            .unwrap();
    let encoded = URL_SAFE_NO_PAD.encode("hunter2");
    let identity = "[identity.user]\njwt = { claim = \"sub\", algorithms = [\"HS256\"], keys = [{ secret = { file = \"secret\" } }] }\n\
        [[limit]]\nname = \"all\"\nkey = [\"user\", \"header:x-key\", \"query:key\", \"cookie:session\"]\nrate = \"4/h\"\n";
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), SECRET).unwrap();
    let text = Weir::config(&upstream, "", &format!("{}{identity}", log("all", "trace")));
    std::fs::write(folder.path().join("weir.toml"), text).unwrap();
    let weir = Weir::start_in(folder);
    let secrets = "Cookie: session=hunter2\r\nX-Key: hunter2\r\nProxy-Authorization: Basic hunter2";
    let mut asked = 0;
    for authorization in
        [format!("Bearer {token}"), "Bearer hunter2.hunter2.hunter2".into(), format!("Basic {encoded}")]
    {
        let head = format!("?key=hunter2 HTTP/1.1\r\nHost: a\r\nAuthorization: {authorization}\r\n{secrets}\r\n\r\n");
        for start in ["GET /", "GET http://a/", "POST /%", "G@T /"] {
            Client::connect(weir.address()).send(format!("{start}{head}")).try_answer();
            asked += 1;
        }
    }
    asked += ask_by_h2(&weir, &token);
    asked += ask_malformed_by_h2(&weir);
    std::fs::write(weir.folder().join("secret"), "hunter2").unwrap();
    weir.wait_for_line("the old one stays");
    wait_for_access(&weir, asked);

    weir.signal("TERM");
    weir.wait_for_line("\"stopped\"");
    for line in weir.lines() {
        let is_clean = !["hunter2", &token, &encoded, "eyJ"].iter().any(|secret| line.contains(secret));
        assert!(is_clean, "{line}");
    }
}

/// Sends requests on HTTP/2 and returns their number.
fn ask_by_h2(weir: &Weir, token: &str) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(weir.address()).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut send, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        tokio::spawn(connection);
        for path in ["/a", "/%2"] {
            let request = http::Request::get(format!("http://a{path}?key=hunter2"))
                .header("authorization", format!("Bearer {token}"))
                .header("x-key", "hunter2")
                .body(http_body_util::Empty::<bytes::Bytes>::new())
                .unwrap();
            let status = send.send_request(request).await.unwrap().status().as_u16();
            assert!(matches!(status, 200 | 400 | 429), "{status}");
        }
    });
    2
}

/// The type of a frame (RFC 9113, section 6.2).
const HEADERS: u8 = 1;

/// Sends a request on HTTP/2 for a path with a space, and waits for its answer. Returns the number of requests.
fn ask_malformed_by_h2(weir: &Weir) -> usize {
    let path = b"/ ?key=hunter2";
    // RFC 7541: GET and http by index, then :path and :authority as literals.
    let fields = [&[0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()], &path[..], &[0x01, 1, b'a']].concat();
    // RFC 9113: an empty SETTINGS frame, and HEADERS that end both the head and the stream.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let headers = [0, 0, u8::try_from(fields.len()).unwrap(), 1, 5, 0, 0, 0, 1];
    let mut client = Client::connect(weir.address());
    client.send([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &headers, &fields].concat());
    let mut kind = 0;
    while kind != HEADERS {
        let mut head = [0; 9];
        client.stream().read_exact(&mut head).unwrap();
        kind = head[3];
        client.stream().read_exact(&mut vec![0; usize::from(head[1]) * 256 + usize::from(head[2])]).unwrap();
    }
    1
}

#[test]
fn lines_lost_on_a_full_disk_are_counted() {
    let (upstream, folder) = (Upstream::start(), tempfile::tempdir().unwrap());
    let [front, admin] = ["front.sock", "admin.sock"].map(|name| folder.path().join(name));
    let text = Weir::config(&upstream, "", &log("all", "info"));
    let text = text.replacen("127.0.0.1:0", &format!("unix:{}", front.display()), 1);
    let text = text.replacen("127.0.0.1:0", &format!("unix:{}", admin.display()), 1);
    std::fs::write(folder.path().join("weir.toml"), text).unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let mut child = command.arg("run").arg(folder.path().join("weir.toml")).stderr(full).spawn().unwrap();
    let ask = |socket: &std::path::Path, target: &str| {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::over(stream).get(target)
    };
    until("it listens", || UnixStream::connect(&front).is_ok() && UnixStream::connect(&admin).is_ok());
    let lost = || {
        let text = ask(&admin, "/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix("weir_log_lines_dropped_total ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    until("what it said at the start is counted", || lost() > 0);
    let before = lost();
    (0..10).for_each(|_| assert_eq!(ask(&front, "/").status, 200));
    until("a line for each request is counted", || lost() >= before + 10);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_text_format() {
    let said = quiet("format = \"text\"\naccess = \"all\"");
    let line = said.lines().find(|line| line.contains("path=")).unwrap();
    assert!(line.contains(" INFO ") && line.contains("path=\"/quiet\"") && !line.contains('\u{1b}'), "{line}");
    assert!(said.lines().any(|line| line.ends_with("stopped")), "{said}");
}

/// The log of a Weir that gets one request and is stopped. The harness cannot read its listening address from a text
/// log.
fn quiet(log: &str) -> String {
    let (upstream, folder) = (Upstream::start(), tempfile::tempdir().unwrap());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let text = Weir::config(&upstream, "", &format!("[log]\n{log}\n"));
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, text.replacen("127.0.0.1:0", &address.to_string(), 1)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let mut child = command.arg("run").arg("--config").arg(file).stderr(Stdio::piped()).spawn().unwrap();
    until("it listens", || TcpStream::connect(address).is_ok());
    assert_eq!(Client::connect(address).get("/quiet").status, 200);
    let kill = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert!(kill.success());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    said
}
