//! A changed configuration is taken over whole or not at all, and costs nobody anything.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;

use crate::ops::{count_lines, replace};
use crate::support::{Client, PATIENCE, Upstream, Weir};

const SUCCESSFUL: &str = "weir_config_last_reload_successful";
const OLD_STAYS: &str = "the old one stays";

/// A limit over everything.
fn limit(rate: &str, more: &str) -> String {
    format!("[[limit]]\nname = \"all\"\nkey = []\nrate = \"{rate}\"\n{more}\n")
}

fn config(upstream: &Upstream, limits: &str) -> String {
    Weir::config(upstream, "", limits)
}

/// The burst that clients are told of.
fn shown_limit(weir: &Weir) -> Option<String> {
    Client::connect(weir.address()).get("/").header("x-ratelimit-limit").map(str::to_owned)
}

#[track_caller]
fn until_limit(weir: &Weir, burst: &str) {
    weir.wait_until(&format!("a limit of {burst}"), || shown_limit(weir).as_deref() == Some(burst));
}

#[test]
fn every_way_to_change_the_file_is_noticed() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit("1000/s", ""));
    until_limit(&weir, "1000");
    let since = weir.metric("weir_config_last_reload_timestamp_seconds");
    assert!(since > 1e9);

    weir.signal("HUP");
    weir.wait_for_lines("\"reloaded\"", 1);
    std::fs::write(weir.config_file(), config(&upstream, &limit("2000/s", ""))).unwrap();
    until_limit(&weir, "2000");
    replace(&weir.config_file(), &config(&upstream, &limit("3000/s", "")));
    until_limit(&weir, "3000");

    std::fs::remove_file(weir.config_file()).unwrap();
    weir.wait_for_metric(SUCCESSFUL, |value| value == 0.0);
    assert_eq!(shown_limit(&weir).as_deref(), Some("3000"), "the old one stays in force");
    std::fs::write(weir.config_file(), config(&upstream, &limit("4000/s", ""))).unwrap();
    until_limit(&weir, "4000");
    weir.wait_for_metric(SUCCESSFUL, |value| value == 1.0);
    assert!(weir.metric("weir_config_last_reload_timestamp_seconds") >= since);
}

#[test]
fn a_start_and_a_reload_log_each_warning_once() {
    let upstream = Upstream::start();
    let text = config(&upstream, "[access]\nallow.path = \"/{*all}\"\n");
    let weir = Weir::start_as(&text);
    let line = weir.wait_for_line("allows_everything");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let at = text.lines().position(|line| line.starts_with("allow.path")).unwrap() + 1;
    assert_eq!((line["level"].as_str(), line["line"].as_u64()), (Some("WARN"), Some(at as u64)));
    assert_eq!((line["column"].as_u64(), line["code"].as_str()), (Some(14), Some("allows_everything")));
    assert_eq!(line["file"].as_str(), weir.config_file().to_str());
    assert_eq!(count_lines(&weir, "allows_everything"), 1);

    weir.signal("HUP");
    weir.wait_for_lines("allows_everything", 2);
    replace(&weir.config_file(), &config(&upstream, &limit("2000/s", "")));
    until_limit(&weir, "2000");
    weir.wait_for_lines("\"reloaded\"", 2);
    assert_eq!(count_lines(&weir, "allows_everything"), 2);
}

#[test]
fn a_reload_logs_the_place_of_each_error() {
    let upstream = Upstream::start();
    let weir = Weir::start_as(&config(&upstream, &limit("2000/s", "")));
    let wrong = config(&upstream, "[timeouts]\nidel = \"1s\"\ntotal = 5\n[[limit]]\nname = \"a\"\nrate = \"1/s\"\n");
    replace(&weir.config_file(), &wrong);
    weir.wait_for_line("missing_option");
    let errors: Vec<serde_json::Value> =
        weir.lines().iter().map(|line| serde_json::from_str(line).unwrap()).filter(has_place).collect();
    let line_of = |text: &str| wrong.lines().position(|line| line.starts_with(text)).unwrap() as u64 + 1;
    let expected = [
        ("unknown_key", line_of("idel"), 1),
        ("wrong_type", line_of("total"), 9),
        ("missing_option", line_of("[[limit]]"), 1),
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, (code, line, column)) in errors.iter().zip(expected) {
        assert_eq!((error["code"].as_str(), error["level"].as_str()), (Some(code), Some("ERROR")), "{error}");
        assert_eq!((error["line"].as_u64(), error["column"].as_u64()), (Some(line), Some(column)), "{error}");
        assert_eq!(error["file"].as_str(), weir.config_file().to_str());
    }
}

fn has_place(line: &serde_json::Value) -> bool {
    line.get("column").is_some()
}

#[test]
fn a_folder_swapped_by_its_symlink_is_noticed() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let put = |version: &str, rate: &str| {
        std::fs::create_dir(folder.path().join(version)).unwrap();
        let file = folder.path().join(version).join("weir.toml");
        std::fs::write(file, config(&upstream, &limit(rate, ""))).unwrap();
    };
    put("..1", "1000/s");
    symlink("..1", folder.path().join("..data")).unwrap();
    symlink("..data/weir.toml", folder.path().join("weir.toml")).unwrap();
    let weir = Weir::start_in(folder);
    until_limit(&weir, "1000");

    for (version, rate, burst) in [("..2", "2000/s", "2000"), ("..3", "3000/s", "3000")] {
        let folder = weir.folder();
        std::fs::create_dir(folder.join(version)).unwrap();
        std::fs::write(folder.join(version).join("weir.toml"), config(&upstream, &limit(rate, ""))).unwrap();
        symlink(version, folder.join("..data_tmp")).unwrap();
        std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        until_limit(&weir, burst);
    }
}

/// A JWK set of one Ed25519 key.
fn jwks(x: &[u8]) -> String {
    json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(x) }] }).to_string()
}

#[test]
fn a_changed_key_file_alone_is_noticed() {
    let pem = include_str!("../fixtures/keys/ed25519.public.pem");
    let der = STANDARD.decode(pem.lines().filter(|line| !line.starts_with('-')).collect::<String>()).unwrap();
    let (ours, other) = (jwks(&der[der.len() - 32..]), jwks(&[7; 32]));
    let key = EncodingKey::from_ed_pem(include_bytes!("../fixtures/keys/ed25519.private.pem")).unwrap();
    let claims = json!({ "sub": "a", "exp": 4_000_000_000_u64 });
    let token = jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), &claims, &key).unwrap();
    let identity = "[identity.user]\njwt = { claim = \"sub\", algorithms = [\"EdDSA\"], keys = [{ jwks = \"jwks.json\" }] }\n\
        [[limit]]\nname = \"all\"\nkey = [\"user\"]\nrate = \"1000/s\"\n";
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("jwks.json"), &other).unwrap();
    std::fs::write(folder.path().join("weir.toml"), config(&upstream, identity)).unwrap();
    let weir = Weir::start_in(folder);
    let status = || {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n");
        Client::connect(weir.address()).send(head).answer().status
    };

    assert_eq!(status(), 401);
    replace(&weir.folder().join("jwks.json"), &ours);
    weir.wait_until("the new key", || status() == 200);
    std::fs::write(weir.folder().join("jwks.json"), &other).unwrap();
    weir.wait_until("the token, verified before, holds no more", || status() == 401);
}

#[test]
fn an_invalid_file_is_said_once_and_changes_nothing() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit("1000/s", ""));
    let broken = config(&upstream, &limit("2000/fortnight", ""));

    for _ in 0..5 {
        replace(&weir.config_file(), &broken);
        std::fs::write(weir.folder().join("beside"), "").unwrap();
        weir.wait_for_lines(OLD_STAYS, 1);
    }
    assert_eq!(weir.metric(SUCCESSFUL), 0.0);
    assert_eq!(shown_limit(&weir).as_deref(), Some("1000"));
    assert!(weir.wait_for_line(OLD_STAYS).contains("unknown unit `fortnight`"));
    replace(&weir.config_file(), &config(&upstream, &limit("3000/s", "")));
    until_limit(&weir, "3000");
    assert_eq!(weir.metric(SUCCESSFUL), 1.0);
    assert_eq!(count_lines(&weir, OLD_STAYS), 1);
}

#[test]
fn what_an_invalid_file_lacks_may_come_later() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit("1000/s", ""));
    let identity = "[identity.user]\njwt = { claim = \"sub\", algorithms = [\"HS256\"], keys = [{ secret = { file = \"keys/secret\" } }] }\n";
    std::fs::create_dir(weir.folder().join("keys")).unwrap();

    replace(&weir.config_file(), &config(&upstream, &format!("{identity}{}", limit("2000/s", ""))));
    weir.wait_for_lines(OLD_STAYS, 1);
    std::fs::write(weir.folder().join("keys/secret"), "0123456789abcdef0123456789abcdef").unwrap();
    until_limit(&weir, "2000");
}

#[test]
fn no_bucket_is_refilled_and_no_connection_dropped() {
    let go_on = Arc::new(AtomicBool::new(false));
    let may_go_on = Arc::clone(&go_on);
    let upstream = Upstream::answering(move |request, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").unwrap();
        while request.target() == "/slow" && !may_go_on.load(Ordering::Acquire) {
            std::thread::park_timeout(std::time::Duration::from_millis(2));
        }
        stream.write_all(b"hello").is_ok()
    });
    let weir = Weir::start(&upstream, &limit("2/h", ""));
    let mut running = Client::connect(weir.address());
    running.send("GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(running.head().unwrap().status, 200);
    let mut kept = Client::connect(weir.address());
    assert_eq!([kept.get("/").status, kept.get("/").status], [200, 429]);

    for reload in 1..=3 {
        weir.signal("HUP");
        weir.wait_for_lines("\"reloaded\"", reload);
        assert_eq!(kept.get("/").status, 429);
    }
    replace(&weir.config_file(), &config(&upstream, &format!("# new\n{}", limit("2/h", ""))));
    weir.wait_for_lines("\"reloaded\"", 4);
    assert_eq!(kept.get("/").status, 429);
    go_on.store(true, Ordering::Release);
    assert_eq!(String::from_utf8(running.rest()).unwrap(), "hellohello");
}

#[test]
fn a_changed_rate_is_that_of_living_keys_at_once() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit("2/h", ""));
    let mut client = Client::connect(weir.address());
    let statuses: Vec<_> = (0..3).map(|_| client.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 429]);

    replace(&weir.config_file(), &config(&upstream, &limit("100/ms", "burst = 1000")));
    weir.wait_for_lines("\"reloaded\"", 1);
    assert_eq!(client.get("/").status, 200);
    replace(&weir.config_file(), &config(&upstream, &limit("1/h", "burst = 1")));
    weir.wait_for_lines("\"reloaded\"", 2);
    // One unit at most is left.
    client.get("/");
    let refused = client.get("/");
    assert_eq!((refused.status, refused.header("x-ratelimit-limit")), (429, Some("1")));
}

/// A key that nobody asks about gets its units back no later than one that is asked about after the reload.
#[test]
fn a_changed_rate_is_that_of_keys_at_rest() {
    let upstream = Upstream::start();
    let limit = |rate: &str| format!("[[limit]]\nname = \"each\"\nkey = [\"path\"]\nrate = \"{rate}\"\nburst = 1\n");
    let weir = Weir::start(&upstream, &limit("1/day"));
    let mut client = Client::connect(weir.address());
    assert_eq!(["/used", "/unused"].map(|path| client.get(path).status), [200; 2]);

    replace(&weir.config_file(), &config(&upstream, &limit("1/s")));
    weir.wait_for_lines("\"reloaded\"", 1);
    weir.wait_until("a unit", || client.get("/used").status == 200);
    assert_eq!(client.get("/unused").status, 200);
}

#[test]
fn a_raised_rate_wakes_who_waits() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit("1/h", "on_limit = \"hold\""));
    assert_eq!(Client::connect(weir.address()).get("/").status, 200);
    let mut held = Client::connect(weir.address());
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.wait_for_metric("weir_held_requests{limit=\"all\"}", |value| value == 1.0);

    replace(&weir.config_file(), &config(&upstream, &limit("100/ms", "on_limit = \"hold\"")));
    assert_eq!(held.answer().status, 200);
    assert_eq!(weir.metric("weir_held_requests{limit=\"all\"}"), 0.0);
}

#[test]
fn new_requests_go_to_a_new_upstream() {
    let (old, new) = (Upstream::start(), Upstream::start());
    let weir = Weir::start(&old, &limit("1000/s", ""));
    let mut client = Client::connect(weir.address());
    assert_eq!(client.get("/old").status, 200);
    assert_eq!(old.connections(), 1);

    replace(&weir.config_file(), &config(&new, &limit("1000/s", "")));
    weir.wait_for_line("\"reloaded\"");
    assert_eq!(client.get("/new").status, 200);
    assert_eq!((old.targets(), new.targets()), (vec!["/old".to_owned()], vec!["/new".to_owned()]));
    // Nobody would look after what is idle to the old one, however long the client stays.
    old.wait_until(|old| old.connections() == 0);
    assert_eq!(client.get("/new").status, 200);
}

#[test]
fn a_held_request_goes_to_the_upstream_that_is_in_force_after_its_wait() {
    let ((old, may_end), new) = (Upstream::slow(), Upstream::start());
    let one = "[[limit]]\nname = \"one\"\nkey = []\nalgorithm = \"concurrency\"\nmax = 1\non_limit = \"hold\"\n";
    let weir = Weir::start_as(&config(&old, one));
    let [mut first, mut held] = ["/slow", "/held"].map(|target| {
        let mut client = Client::connect(weir.address());
        client.send(format!("GET {target} HTTP/1.1\r\nhost: h\r\n\r\n"));
        old.wait_until(|old| old.received_count() == 1);
        client
    });
    weir.wait_for_metric("weir_held_requests{limit=\"one\"}", |held| held == 1.0);
    replace(&weir.config_file(), &config(&new, one));
    weir.wait_for_line("\"reloaded\"");
    drop(may_end);
    assert_eq!([first.answer().status, held.answer().status], [200, 200]);
    assert_eq!((old.targets(), new.targets()), (vec!["/slow".to_owned()], vec!["/held".to_owned()]));
}

#[test]
fn what_needs_a_restart_is_said() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit("1000/s", ""));
    let text = config(&upstream, &limit("2000/s", "")).replace("workers = 2", "workers = 3");
    let text = text.replacen("127.0.0.1:0", "127.0.0.2:0", 1);
    let text = text.replacen("[log]\n", "[log]\naccess_file = \"access.log\"\naccess = \"all\"\n", 1);
    replace(&weir.config_file(), &text);

    let line = weir.wait_for_line("only after a restart");
    assert!(line.contains("WARN") && line.contains("server") && !line.contains("admin"), "{line}");
    assert!(line.contains("log.access_file") && !line.contains("log.level"), "{line}");
    until_limit(&weir, "2000");
}

#[test]
fn reloads_under_load_fail_nothing_and_give_nothing_away() {
    const RELOADS: usize = 30;
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit("100/s", "burst = 20"));
    let (stop, admitted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (started, address) = (Instant::now(), weir.address());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                while !stop.load(Ordering::Acquire) && started.elapsed() < PATIENCE {
                    let answer = client.get("/");
                    match answer.status {
                        200 => drop(admitted.fetch_add(1, Ordering::AcqRel)),
                        status => assert_eq!(status, 429),
                    }
                    // After so many requests as a connection may have.
                    if answer.header("connection") == Some("close") {
                        client = Client::connect(address);
                    }
                }
            });
        }
        for reload in 0..RELOADS {
            let another = format!("[[limit]]\nname = \"another-{reload}\"\nkey = [\"ip\"]\nrate = \"1000000/s\"\n");
            replace(&weir.config_file(), &config(&upstream, &format!("{}{another}", limit("100/s", "burst = 20"))));
            let before = count_lines(&weir, "\"reloaded\"");
            weir.signal("HUP");
            weir.wait_for_lines("\"reloaded\"", before + 1);
        }
        stop.store(true, Ordering::Release);
    });
    let bound = 20 + 100 * started.elapsed().as_millis() / 1000;
    let admitted = admitted.load(Ordering::Acquire);
    assert!(admitted >= 20 && admitted as u128 <= bound, "{admitted} of at most {bound}");
    assert_eq!(count_lines(&weir, "\"ERROR\""), 0);
}

/// The CPU time of a process and of its first thread, in ticks.
fn cpu_ticks(weir: &Weir) -> [u64; 2] {
    let pid = weir.pid();
    [format!("/proc/{pid}/stat"), format!("/proc/{pid}/task/{pid}/stat")].map(|path| {
        let stat = std::fs::read_to_string(path).unwrap();
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        // utime and stime, proc_pid_stat(5)
        after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    })
}

/// Ticks of 10 ms that a measurement has at least, so that one of them more or less does not matter.
const TICKS_MIN: u64 = 50;

#[test]
fn a_large_configuration_is_compiled_beside_the_control_thread() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, &limit("1000/s", ""));
    let address = |index: usize| format!("\"10.{}.{}.{}\" = \"5/s\"\n", index >> 16, index >> 8 & 255, index & 255);
    let overrides: String = (0..40_000).map(address).collect();
    let before = cpu_ticks(&weir);
    // A fast machine needs several reloads for so many ticks.
    let [process, control] = (1..=100)
        .map(|reload| {
            let clients = format!("[[limit]]\nname = \"clients\"\nkey = [\"ip\"]\nrate = \"{reload}/s\"\n");
            replace(&weir.config_file(), &config(&upstream, &format!("{clients}[limit.overrides]\n{overrides}")));
            weir.wait_for_lines("\"reloaded\"", reload);
            let after = cpu_ticks(&weir);
            [0, 1].map(|index| after[index] - before[index])
        })
        .find(|[process, _]| *process >= TICKS_MIN)
        .unwrap();
    // The control thread answers probes and keeps the fleet together, so most of the work must be elsewhere.
    assert!(control * 2 < process, "the control thread had {control} of {process} ticks");
}
