//! Processes that fail while they take over, or while they are taken over from.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};

use serde_json::{Value, json};

use super::{Place, fails, left, status};
use crate::support::{Client, PATIENCE, Weir};

/// The protocol that Weir speaks.
const PROTOCOL: u32 = 2;
const BUDGET: &str = "[[limit]]\nname = \"spent\"\nkey = []\nrate = \"100/day\"\n";

/// One end of what two processes say, as tests say it.
struct End(UnixStream);

impl End {
    fn connect(place: &Place) -> Self {
        let stream = UnixStream::connect(place.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn say(&mut self, message: &Value) -> &mut Self {
        let text = message.to_string();
        let mut frame = vec![1];
        frame.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        frame.extend(text.as_bytes());
        self.0.write_all(&frame).unwrap();
        self
    }

    fn hello(&mut self, protocol: u32) -> &mut Self {
        self.say(&json!({"hello": {"protocol": protocol, "version": "test"}}))
    }

    /// The next message; pieces of the state are passed by. None at the end.
    fn hear(&mut self) -> Option<Value> {
        loop {
            let mut head = [0; 5];
            match self.0.read_exact(&mut head) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return None,
                read => read.unwrap(),
            }
            let [kind, length @ ..] = head;
            let mut payload = vec![0; u32::from_le_bytes(length) as usize];
            self.0.read_exact(&mut payload).unwrap();
            if kind == 1 {
                return Some(serde_json::from_slice(&payload).unwrap());
            }
        }
    }

    /// Reads up to a message that says this.
    fn until(&mut self, what: &str) -> &mut Self {
        while self.hear().unwrap_or_else(|| panic!("the end, before {what}")).as_str() != Some(what) {}
        self
    }

    fn refusal(&mut self) -> String {
        let said = std::iter::from_fn(|| self.hear()).find(|said| said.get("refused").is_some()).expect("a refusal");
        said["refused"]["why"].as_str().unwrap().to_owned()
    }
}

fn prepared() -> Value {
    json!({"prepared": {"groups": [0, 1, 2]}})
}

/// Whether everything is as if nobody had asked: new connections are served, and nothing was refilled.
fn goes_on(weir: &Weir, place: &Place, remaining: u64) {
    assert_eq!(left(weir, "/"), Some(remaining));
    let mut client = Client::connect(weir.address());
    // Its connections may have been told to end, but not those that come now.
    assert_eq!(client.get("/free").header("connection"), None);
    assert_eq!(Client::connect(weir.admin()).get("/readyz").status, 200);
    assert!(place.socket().exists());
}

#[test]
fn one_that_ends_at_any_step_changes_nothing() {
    let place = Place::new(BUDGET);
    let weir = place.start();
    let steps: [fn(&mut End); 6] = [
        |_| {},
        |end| _ = end.hello(PROTOCOL),
        |end| _ = end.hello(PROTOCOL).until("prepare"),
        |end| _ = end.hello(PROTOCOL).until("prepare").say(&prepared()),
        |end| _ = end.hello(PROTOCOL).until("prepare").say(&prepared()).until("state_end"),
        // It was told that all is its own, and never accepts.
        |end| {
            _ = end
                .hello(PROTOCOL)
                .until("prepare")
                .say(&prepared())
                .until("state_end")
                .say(&json!("taken"))
                .until("yours");
        },
    ];
    for (step, go) in steps.into_iter().enumerate() {
        let mut end = End::connect(&place);
        go(&mut end);
        let mut early = Client::connect(weir.address());
        early.send("GET /early HTTP/1.1\r\nhost: h\r\n\r\n");
        drop(end);
        assert_eq!(early.answer().status, 200, "step {step}");
        // Before this line connections may be told to close, and another takeover is refused.
        weir.wait_for_lines("a takeover failed", step + 1);
        goes_on(&weir, &place, 99 - 3 * step as u64 - 1);
    }
    let next = place.start();
    next.wait_for_line("\"took over\"");
    assert_eq!(weir.wait(), Some(0));
    assert_eq!(left(&next, "/"), Some(100 - 18 - 1));
}

#[test]
fn an_order_meanwhile_prevents_the_takeover() {
    let place = Place::new(BUDGET);
    let weir = place.start();
    let mut end = End::connect(&place);
    end.hello(PROTOCOL).until("prepare").say(&prepared()).until("state_end").say(&json!("taken")).until("yours");
    let endpoint = place.upstream.address().to_string();
    let weight = json!({ "upstream": "upstream", "endpoint": endpoint, "weight": 7 });
    assert_eq!(weir.ask_admin("POST", "/v1/upstreams/weight", &weight).status, 200);
    assert!(end.say(&json!("serving")).refusal().contains("an operator has changed"));
    weir.wait_for_line("a takeover failed");
    goes_on(&weir, &place, 99);
    let next = place.start();
    next.wait_for_line("\"took over\"");
    let upstreams: Value = serde_json::from_str(&next.ask_admin("GET", "/v1/upstreams", &Value::Null).text()).unwrap();
    assert_eq!(upstreams["upstreams"][0]["endpoints"][0]["weight"], 7, "{upstreams}");
}

#[test]
fn one_that_hangs_is_not_waited_for() {
    hangs(|end| _ = end.hello(PROTOCOL).until("prepare").say(&prepared()).until("state_end"));
}

#[test]
fn nor_is_one_that_hangs_when_it_has_everything() {
    hangs(|end| {
        end.hello(PROTOCOL).until("prepare").say(&prepared()).until("state_end").say(&json!("taken")).until("yours");
    });
}

fn hangs(go: fn(&mut End)) {
    let place = Place::new(BUDGET);
    let weir = place.start();
    let mut end = End::connect(&place);
    go(&mut end);
    let mut early = Client::connect(weir.address());
    early.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    // It neither leaves nor goes on.
    assert_eq!(early.answer().status, 200);
    assert!(end.refusal().contains("it has not answered for 10 s"));
    assert_eq!(end.hear(), None);
    goes_on(&weir, &place, 98);
}

#[test]
fn only_one_at_a_time_takes_over() {
    let place = Place::new(BUDGET);
    let weir = place.start();
    let mut end = End::connect(&place);
    end.hello(PROTOCOL).until("prepare");
    let said = fails(&place.config(""), 1);
    let expected = "weir: cannot take over from the running process, which continues: another process is taking over";
    assert!(said.starts_with(expected), "{said}");
    assert_eq!(End::connect(&place).hello(PROTOCOL).refusal(), "another process is taking over already");
    drop(end);
    weir.wait_for_line("a takeover failed");
    goes_on(&weir, &place, 99);
}

#[test]
fn what_cannot_start_does_not_take_over() {
    let place = Place::new(BUDGET);
    let weir = place.start();
    fails(&place.config("workers = 0"), 3);
    // The last of what it needs is not to be had, when it has been given all the rest.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("listen = [\"127.0.0.1:0\", \"{}\"]", taken.local_addr().unwrap());
    let config = place.config("").replacen("listen = \"127.0.0.1:0\"", &listen, 1);
    let said = fails(&config, 1);
    assert!(said.starts_with("weir: cannot listen on 127.0.0.1:"), "{said}");
    goes_on(&weir, &place, 99);
    weir.signal("TERM");
    weir.wait_for_line("\"draining\"");
    assert_eq!(weir.wait(), Some(0));
    assert!(!place.socket().exists());
}

#[test]
fn another_way_to_speak_is_refused_by_both() {
    let place = Place::new(BUDGET);
    let weir = place.start();
    let mut end = End::connect(&place);
    end.hello(PROTOCOL + 1);
    let why = end.refusal();
    assert!(why.contains("another takeover protocol"), "{why}");
    goes_on(&weir, &place, 99);
    drop(weir);

    let _ = std::fs::remove_file(place.socket());
    let listener = UnixListener::bind(place.socket()).unwrap();
    let config = place.config("");
    std::thread::scope(|scope| {
        let old = scope.spawn(|| {
            let mut end = End(listener.accept().unwrap().0);
            assert_eq!(end.hear().unwrap()["hello"]["protocol"], PROTOCOL);
            end.hello(PROTOCOL + 1);
            end.hear()
        });
        let said = fails(&config, 1);
        assert!(said.contains("its version test has another takeover protocol"), "{said}");
        assert_eq!(old.join().unwrap(), None);
    });
}

/// It begins as if nobody had been there, with what is on disk.
#[test]
fn if_the_old_one_dies_midway_the_new_one_starts() {
    let place = Place::new(BUDGET);
    let listener = UnixListener::bind(place.socket()).unwrap();
    // The socket has gone by the time that the new one binds its own.
    let config = place.config("");
    let socket = place.socket();
    let old = std::thread::spawn(move || {
        let mut end = End(listener.accept().unwrap().0);
        end.hear().unwrap();
        std::fs::remove_file(&socket).unwrap();
        end.hello(PROTOCOL).say(&json!("prepare"));
        end.hear().unwrap()
    });
    let weir = Weir::start_as(&config);
    assert_eq!(old.join().unwrap()["prepared"]["groups"], json!([]));
    weir.wait_for_line("the predecessor ended during the takeover");
    assert_eq!(status(&weir, "/"), 200);
    goes_on(&weir, &place, 98);
    assert!(TcpStream::connect(weir.address()).is_ok());
}
