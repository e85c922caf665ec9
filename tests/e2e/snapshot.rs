//! State that outlives a process: what is kept, what a kill costs, and what becomes of a file that is no good.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::ops::until;
use crate::support::{Answer, Client, Upstream, Weir};

/// What `spent` says is kept, and `brief` is not; `/login` bans who is refused.
const LIMITS: &str = "\
[[limit]]
name = \"spent\"
key = [\"query:who\"]
rate = \"10/day\"
match = { path = \"/\" }

[[limit]]
name = \"brief\"
key = []
rate = \"5/min\"
match = { path = \"/brief\" }

[[limit]]
name = \"logins\"
key = [\"query:who\"]
rate = \"1/min\"
match = { path = \"/login\" }
ban = { after = \"2/min\", for = \"1h\" }
";

/// A place for a snapshot, and Weirs one after another that keep their state in it.
struct Place {
    upstream: Upstream,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { upstream: Upstream::start(), folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn start(&self, interval: &str) -> Weir {
        self.start_with(interval, LIMITS)
    }

    fn start_with(&self, interval: &str, limits: &str) -> Weir {
        let path = self.file();
        let table = format!("[snapshot]\npath = \"{}\"\ninterval = \"{interval}\"\n", path.display());
        Weir::start(&self.upstream, &format!("{table}{limits}"))
    }

    /// Waits for a snapshot that was begun after this was called: the first of two more may have been begun before.
    fn wait_for_snapshot(&self) {
        let written = || fs::metadata(self.file()).and_then(|file| file.modified()).ok();
        for _ in 0..2 {
            let before = written();
            until("a snapshot is written", || written().is_some_and(|now| Some(now) != before));
        }
    }

    /// The names in its folder.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn ask(weir: &Weir, target: &str) -> Answer {
    Client::connect(weir.address()).get(target)
}

/// Spends a unit and says how many are left.
fn left(weir: &Weir, target: &str) -> u64 {
    ask(weir, target).header("x-ratelimit-remaining").unwrap().parse().unwrap()
}

fn stop(weir: Weir) {
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
}

#[test]
fn a_restart_refills_nothing_and_forgives_nobody() {
    let place = Place::new();
    let weir = place.start("1h");
    weir.wait_for_line("no snapshot yet");
    assert_eq!((left(&weir, "/?who=a"), left(&weir, "/?who=a"), left(&weir, "/?who=b")), (9, 8, 9));
    assert_eq!(left(&weir, "/brief"), 4);
    let statuses: Vec<_> = (0..4).map(|_| ask(&weir, "/login?who=a").status).collect();
    assert_eq!(statuses, [200, 429, 429, 403]);
    assert_eq!(weir.metric("weir_snapshot_restored"), 0.0);
    let metrics = Client::connect(weir.admin()).get("/metrics").text();
    assert_eq!(metrics.lines().filter(|line| line.starts_with("weir_snapshot_")).count(), 4);
    stop(weir);
    assert_eq!(place.names(), ["state"]);
    assert_eq!(fs::metadata(place.file()).unwrap().permissions().mode() & 0o777, 0o600);

    let weir = place.start("1h");
    weir.wait_for_line("limits continue from the snapshot");
    assert_eq!((left(&weir, "/?who=a"), left(&weir, "/?who=b"), left(&weir, "/?who=c")), (7, 8, 9));
    assert_eq!(left(&weir, "/brief"), 4, "five a minute are not kept");
    assert_eq!((ask(&weir, "/login?who=a").status, ask(&weir, "/login?who=b").status), (403, 200));
    assert_eq!(weir.metric("weir_snapshot_restored"), 1.0);
    weir.wait_for_metric("weir_snapshot_last_successful", |written| written == 1.0);
    assert!(weir.metric("weir_snapshot_bytes") > 100.0 && weir.metric("weir_snapshot_last_timestamp_seconds") > 1e9);
}

#[test]
fn a_kill_costs_no_more_than_an_interval() {
    let place = Place::new();
    for run in 1..=8 {
        let weir = place.start("5ms");
        assert_eq!(left(&weir, "/?who=a"), 10 - run, "run {run}");
        place.wait_for_snapshot();
        // While the next one is being written, as likely as not.
        weir.signal("KILL");
        weir.wait();
    }
    let weir = place.start("1h");
    assert!(!weir.lines().iter().any(|line| line.contains("damaged")));
    until("what was left behind is gone", || place.names() == ["state"]);
}

#[test]
fn a_file_that_is_no_good_is_set_aside() {
    let place = Place::new();
    let weir = place.start("1h");
    assert_eq!(left(&weir, "/?who=a"), 9);
    stop(weir);
    let whole = fs::read(place.file()).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cases = [
        ("empty", Vec::new(), "it is cut short"),
        ("half written", whole[..whole.len() / 2].to_vec(), "it is cut short"),
        ("a byte short", whole[..whole.len() - 1].to_vec(), "it is cut short"),
        ("longer", [&whole[..], b"x"].concat(), "there is data after its end"),
        ("in the middle", flipped(whole.len() / 2), "a checksum is wrong"),
        ("of another version", flipped(9), "has version 258, and only version 2 is known"),
        ("something else", b"[server]\nlisten = []\n".to_vec(), "it does not begin like a snapshot"),
    ];
    for (what, bytes, why) in cases {
        fs::write(place.file(), &bytes).unwrap();
        let weir = place.start("1h");
        let line = weir.wait_for_line("it was set aside");
        assert!(line.contains(why) && line.contains("ERROR"), "{what}: {line}");
        assert_eq!(left(&weir, "/?who=a"), 9, "{what}: begins anew");
        assert_eq!(fs::read(place.folder.path().join("state.damaged")).unwrap(), bytes, "{what}");
        stop(weir);
        let weir = place.start("1h");
        assert_eq!(left(&weir, "/?who=a"), 8, "{what}: goes on from a new one");
        stop(weir);
    }
    assert_eq!(place.names(), ["state", "state.damaged"]);
}

#[test]
fn a_changed_limit_goes_on_as_after_a_reload() {
    let place = Place::new();
    let limit = |name: &str, rule: &str| {
        format!("[[limit]]\nname = \"{name}\"\nkey = [\"query:who\"]\nmatch = {{ path = \"/\" }}\n{rule}\n")
    };
    let cases = [
        ("10/day", "rate = \"10/day\"", 9),
        ("another rate, what is spent stays spent", "rate = \"5/day\"", 3),
        ("and back", "rate = \"10/day\"", 7),
        ("another algorithm begins anew", "rate = \"10/day\"\nalgorithm = \"sliding_log\"", 9),
        ("and goes on", "rate = \"10/day\"\nalgorithm = \"sliding_log\"", 8),
        ("also in a larger one", "rate = \"20/day\"\nalgorithm = \"sliding_log\"", 17),
        ("which is no longer kept", "rate = \"20/day\"\nalgorithm = \"sliding_log\"\npersist = false", 16),
        ("so it begins anew", "rate = \"20/day\"\nalgorithm = \"sliding_log\"\npersist = false", 19),
    ];
    for (what, rule, expected) in cases {
        let weir = place.start_with("1h", &limit("a", rule));
        assert_eq!(left(&weir, "/?who=a"), expected, "{what}");
        stop(weir);
    }
    // A limit that is not there for a run is not forgotten.
    for (name, expected) in [("b", 9), ("c", 9), ("b", 8), ("c", 8)] {
        let weir = place.start_with("1h", &limit(name, "rate = \"10/day\""));
        assert_eq!(left(&weir, "/?who=a"), expected, "{name}");
        stop(weir);
    }
}

#[test]
fn a_place_that_cannot_be_written_stops_nothing() {
    let place = Place::new();
    // The name is taken by a folder, which is not moved away.
    fs::create_dir_all(place.file().join("within")).unwrap();
    let weir = place.start("10ms");
    weir.wait_for_line("cannot be set aside");
    weir.wait_for_line("the snapshot cannot be written");
    assert_eq!(left(&weir, "/?who=a"), 9);
    assert_eq!(weir.metric("weir_snapshot_last_successful"), 0.0);
    fs::remove_dir_all(place.file()).unwrap();
    weir.wait_for_metric("weir_snapshot_last_successful", |written| written == 1.0);
    stop(weir);
    assert_eq!(place.names(), ["state"]);
}

#[test]
fn requests_pass_while_it_is_written() {
    let place = Place::new();
    let weir = place.start("1ms");
    let mut client = Client::connect(weir.address());
    for number in 0..500 {
        assert_eq!(client.get(&format!("/?who={number}")).status, 200);
    }
    place.wait_for_snapshot();
    weir.signal("KILL");
    weir.wait();
    let weir = place.start("1h");
    for number in 0..500 {
        assert_eq!(left(&weir, &format!("/?who={number}")), 8, "{number}");
    }
}
