//! The command line: what is asked, the exit code, and every line that is said.

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Upstream, Weir};

/// Runs `weir` in `folder` and writes down what happens.
fn transcript(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .current_dir(folder)
        .env_remove("WEIR_JWT_SECRET")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().trim_end().to_owned();
    let command = ["$ weir"].iter().chain(args).copied().collect::<Vec<_>>().join(" ");
    let mut said = format!("{command}\nexit code {}", output.status.code().unwrap());
    for (name, text) in [("stdout", text(&output.stdout)), ("stderr", text(&output.stderr))] {
        if !text.is_empty() {
            said = format!("{said}\n-- {name}\n{text}");
        }
    }
    said
}

const BROKEN: &str = r#"[server]
listn = "0.0.0.0:8080"

[upstream]
url = "ftp://127.0.0.1:9000"

[[limit]]
name = "reports"
key = ["sellr"]
rate = "10/M"

[identity.seller]
header = "x-seller"
"#;

/// A folder with a valid and a broken file.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let valid = "[upstream]\nurl = \"http://127.0.0.1:9000\"\n";
    std::fs::write(folder.path().join("valid.toml"), valid).unwrap();
    std::fs::write(folder.path().join("broken.toml"), BROKEN).unwrap();
    folder
}

#[test]
fn the_schema_is_json() {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("schema").output().unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["limit"]["items"]["properties"]["mode"]["default"], "enforce");
}

/// A warning makes a configuration invalid with `--strict` only.
#[test]
fn a_check_as_json_has_problems_with_their_places() {
    let folder = folder();
    let warned = "[upstream]\nurl = \"http://127.0.0.1:9000\"\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nrate = \"1/s\"\n\
                  except = { ip = [\"0.0.0.0/0\"] }\n";
    std::fs::write(folder.path().join("warned.toml"), warned).unwrap();
    let check = |file: &str, options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["check", "--json", file]).args(options).current_dir(folder.path());
        let output = command.output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let problems = said["problems"].as_array().unwrap().len();
        (output.status.code().unwrap(), said["valid"].as_bool().unwrap(), problems, said["problems"][0]["line"].clone())
    };
    assert_eq!(check("valid.toml", &["--strict"]), (0, true, 0, serde_json::Value::Null));
    let (code, is_valid, problems, line) = check("broken.toml", &[]);
    assert_eq!((code, is_valid, line), (3, false, 2.into()));
    assert!(problems > 2, "{problems}");
    assert_eq!(check("warned.toml", &[]), (0, true, 1, 7.into()));
    assert_eq!(check("warned.toml", &["--strict"]), (3, true, 1, 7.into()));
}

#[test]
fn what_it_is() {
    let folder = folder();
    insta::assert_snapshot!(transcript(folder.path(), &["--version"]), @r#"
    $ weir --version
    exit code 0
    -- stdout
    weir 0.1.0
    "#);
    insta::assert_snapshot!(transcript(folder.path(), &["--help"]), @r#"
    $ weir --help
    exit code 0
    -- stdout
    A rate-limiting reverse proxy that forwards, refuses or holds

    Usage: weir <COMMAND>

    Commands:
      run          Run Weir with a configuration
      check        Check a configuration and show all errors; exit code 3 if it is invalid
      import       Translate the limits of another proxy into a configuration; exit code 3 if a line is not translated exactly
      init         Ask a few questions and write a first configuration; an existing file stays
      schema       Print a JSON Schema of the configuration, for editors
      completions  Print the completions of a shell
      man          Write manual pages: `weir.1`, and one for each subcommand
      demo         Demonstrate Weir with a built-in service; needs no configuration file
      explain      Explain how each limit would decide about a request, or a refusal by its id; charges nothing
      client       Show what all limits of a running Weir know of one client: keys, bans, overrides, plan, last requests
      keys         Show or reset keys of a running Weir, or list those that are limited
      bans         List, set and lift bans of a running Weir
      overrides    List, set and remove overrides of a running Weir
      plans        List, assign and remove plans of single keys of a running Weir
      apikeys      Make, list, rotate and revoke API keys, in the file that a configuration names
      upstreams    Show the services and endpoints of a running Weir, drain endpoints, and set their weights
      top          Show limits, verdicts, headroom, the most refused keys and the endpoints of a running Weir
      config       Show, check and reload the configuration of a running Weir
      audit        List the last changes that operators made to a running Weir
      tap          Show requests of a running Weir as they end
      healthcheck  Check whether a running Weir is healthy; for container health checks
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version
    "#);
    insta::assert_snapshot!(transcript(folder.path(), &["help", "run"]), @r#"
    $ weir help run
    exit code 0
    -- stdout
    Run Weir with a configuration.

    Weir watches the configuration, and reads it again after a change or on SIGHUP. It keeps the last good version of a remote configuration on disk, and starts with it if the newest version cannot be read or is invalid.

    Usage: weir run [OPTIONS] [CONFIG]

    Arguments:
      [CONFIG]
              The configuration: a file, `etcd://HOST:PORT/KEY`, `etcds://HOST:PORT/KEY` with TLS, or an https URL. The default is `weir.toml` in the working directory, then `/etc/weir/weir.toml`

    Options:
          --config <CONFIG>
              The configuration, as above

      -h, --help
              Print help (see a summary with '-h')

    Remote configuration:
          --config-folder <FOLDER>
              The folder of relative paths in the configuration; the default is the working directory

          --config-ca <FILE>
              The CA certificates in PEM; replaces the root certificates of the system

          --config-cert <FILE>
              The client certificate in PEM

          --config-key <FILE>
              The private key of the client certificate

          --config-login <FILE>
              The file with `user:password`; the default is the environment variable `WEIR_CONFIG_LOGIN`

          --config-token <FILE>
              The file with a bearer token for https; the default is the environment variable `WEIR_CONFIG_TOKEN`

          --state-dir <FOLDER>
              The folder of the last configurations in force; the default is `$STATE_DIRECTORY` of systemd, or `/var/lib/weir`

          --replica <NAME>
              The name of this replica in etcd; the default is the name of the host and the process id

          --config-poll <TIME>
              The interval at which a URL is polled; the default is 10s
    "#);
}

/// Runs `weir init` with these answers, and returns its exit code and standard error.
fn init(folder: &Path, answers: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["init", "new.toml"]).current_dir(folder);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // It may end before it reads all answers.
    let _ = child.stdin.take().unwrap().write_all(answers.as_bytes());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn init_writes_a_valid_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new.toml");
    let check = || transcript(folder.path(), &["check", "--strict", "new.toml"]);
    for (answers, expected) in [
        ("", ["listen = \"127.0.0.1:8080\"", "url = \"http://127.0.0.1:9000\"", "key = [\"ip\"]"]),
        ("\n\n\n\n\n", ["rate = \"100/min\"", "on_limit = \"reject\"", "listen = \"127.0.0.1:9901\""]),
        (
            "http://127.0.0.1:9001\nunix:/run/weir.sock\n ip , path \n5/s\nhold",
            ["listen = \"unix:/run/weir.sock\"", "key = [\"ip\", \"path\"]", "on_limit = \"hold\""],
        ),
    ] {
        let (code, said) = init(folder.path(), answers);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.starts_with("URL of the service [http://127.0.0.1:9000]: "), "{said}");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(expected.iter().all(|line| text.contains(line)), "{text}");
        let checked = check();
        assert!(checked.contains("exit code 0") && checked.contains("valid; limits: 1"), "{checked}");
        let (code, said) = init(folder.path(), "http://127.0.0.1:1\n");
        assert_eq!((code, said.trim()), (Some(1), "weir: new.toml exists; nothing was changed"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        std::fs::remove_file(&file).unwrap();
    }
    for (answers, error) in [
        ("ftp://a\n", "`upstream.url`"),
        ("\n\nip\n10\n", "`limit.rate`"),
        ("\n\n\" = 1\n", "`limit.key`"),
        ("\n\n\n\nrefuse\n", "`limit.on_limit`"),
    ] {
        let (code, said) = init(folder.path(), answers);
        assert!(code == Some(3) && said.contains(error), "{said}");
        assert!(!file.exists());
    }
}

#[test]
fn a_wrong_command_line_is_2() {
    let folder = folder();
    insta::assert_snapshot!(transcript(folder.path(), &[]), @r#"
    $ weir
    exit code 2
    -- stderr
    A rate-limiting reverse proxy that forwards, refuses or holds

    Usage: weir <COMMAND>

    Commands:
      run          Run Weir with a configuration
      check        Check a configuration and show all errors; exit code 3 if it is invalid
      import       Translate the limits of another proxy into a configuration; exit code 3 if a line is not translated exactly
      init         Ask a few questions and write a first configuration; an existing file stays
      schema       Print a JSON Schema of the configuration, for editors
      completions  Print the completions of a shell
      man          Write manual pages: `weir.1`, and one for each subcommand
      demo         Demonstrate Weir with a built-in service; needs no configuration file
      explain      Explain how each limit would decide about a request, or a refusal by its id; charges nothing
      client       Show what all limits of a running Weir know of one client: keys, bans, overrides, plan, last requests
      keys         Show or reset keys of a running Weir, or list those that are limited
      bans         List, set and lift bans of a running Weir
      overrides    List, set and remove overrides of a running Weir
      plans        List, assign and remove plans of single keys of a running Weir
      apikeys      Make, list, rotate and revoke API keys, in the file that a configuration names
      upstreams    Show the services and endpoints of a running Weir, drain endpoints, and set their weights
      top          Show limits, verdicts, headroom, the most refused keys and the endpoints of a running Weir
      config       Show, check and reload the configuration of a running Weir
      audit        List the last changes that operators made to a running Weir
      tap          Show requests of a running Weir as they end
      healthcheck  Check whether a running Weir is healthy; for container health checks
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version
    "#);
    insta::assert_snapshot!(transcript(folder.path(), &["rnu"]), @r#"
    $ weir rnu
    exit code 2
    -- stderr
    error: unrecognized subcommand 'rnu'

    Usage: weir <COMMAND>

    For more information, try '--help'.
    "#);
    for option in ["--expires", "--overlap"] {
        let said = transcript(folder.path(), &["apikeys", "rotate", "--name", "a", option, "2020-01-01"]);
        let expected = format!("invalid value '2020-01-01' for '{option} <LENGTH>': expected a length such as `90d`");
        assert!(said.contains(&expected), "{said}");
    }
    insta::assert_snapshot!(transcript(folder.path(), &["demo", "--listen", "here"]), @r#"
    $ weir demo --listen here
    exit code 2
    -- stderr
    error: invalid value 'here' for '--listen <ADDRESS>': invalid socket address syntax

    For more information, try '--help'.
    "#);
}

#[test]
fn check_says_all_that_is_wrong() {
    let folder = folder();
    insta::assert_snapshot!(transcript(folder.path(), &["check", "valid.toml"]), @r#"
    $ weir check valid.toml
    exit code 0
    -- stdout
    valid.toml: valid; limits: 1

    LIMIT     STAGE       MODE     KEY   RULE                   BEYOND  REQUESTS
    per-path  identified  enforce  path  100/min, token bucket  hold    all paths
    "#);
    insta::assert_snapshot!(transcript(folder.path(), &["check", "broken.toml"]), @r#"
    $ weir check broken.toml
    exit code 3
    -- stderr
    error: unknown key `listn` in `[server]`
     --> broken.toml:2:1
      |
    2 | listn = "0.0.0.0:8080"
      | ^^^^^
      |
      = help: did you mean `listen`?

    error: `upstream.url`: must begin with `http://`, `https://` or `unix:`
     --> broken.toml:5:7
      |
    5 | url = "ftp://127.0.0.1:9000"
      |       ^^^^^^^^^^^^^^^^^^^^^^

    error: `limit.key`: `sellr` is not a part of a key
     --> broken.toml:9:8
      |
    9 | key = ["sellr"]
      |        ^^^^^^^
      |
      = help: did you mean `seller`?

    error: `limit.rate`: unknown unit `M`; units are ms, s, min, h, day, week, month
      --> broken.toml:10:8
       |
    10 | rate = "10/M"
       |        ^^^^^^
       |
       = help: write `min` for minutes or `month` for months
    "#);
    // The file can be given in both ways, to both commands.
    let without_command = |said: String| said.split_once('\n').unwrap().1.to_owned();
    for file in ["valid.toml", "broken.toml"] {
        let checked = |args: &[&str]| without_command(transcript(folder.path(), args));
        assert_eq!(checked(&["check", "--config", file]), checked(&["check", file]));
    }
    insta::assert_snapshot!(transcript(folder.path(), &["check", "missing.toml"]), @r#"
    $ weir check missing.toml
    exit code 3
    -- stderr
    error: cannot read `missing.toml`: No such file or directory (os error 2)
    "#);
}

/// Without an argument, `run` and `check` take the file here, then that in /etc/weir, and name it.
#[test]
fn a_configuration_has_default_places() {
    let folder = folder();
    for command in ["run", "check"] {
        let said = transcript(folder.path(), &[command]);
        let expected = "exit code 3\n-- stderr\nweir: there is no configuration: neither `weir.toml` nor \
            `/etc/weir/weir.toml` exists; name a file";
        assert!(said.ends_with(expected), "{said}");
    }
    std::fs::copy(folder.path().join("valid.toml"), folder.path().join("weir.toml")).unwrap();
    let said = transcript(folder.path(), &["check"]);
    assert!(said.contains("exit code 0\n-- stdout\nweir.toml: valid; limits: 1\n"), "{said}");
    assert!(said.ends_with("-- stderr\nweir: the configuration is weir.toml"), "{said}");
    std::fs::copy(folder.path().join("broken.toml"), folder.path().join("weir.toml")).unwrap();
    let said = transcript(folder.path(), &["run"]);
    assert!(
        said.contains("exit code 3\n-- stderr\nweir: the configuration is weir.toml\nerror: unknown key"),
        "{said}"
    );
}

/// Overrides that do not fit prevent no start, so a check before a start does not either. `--strict` exits with 1.
#[test]
fn overrides_that_do_not_fit_fail_only_a_strict_check() {
    let folder = folder();
    std::fs::write(folder.path().join("valid.overrides.toml"), "[gone]\na = \"5/s\"\n").unwrap();
    let said = transcript(folder.path(), &["check", "valid.toml"]);
    assert!(
        said.contains("exit code 0\n") && said.contains("valid, and overrides set at run time do not fit"),
        "{said}"
    );
    assert!(said.contains("there is no limit `gone`"), "{said}");
    let strict = transcript(folder.path(), &["check", "--strict", "valid.toml"]);
    assert!(strict.contains("exit code 1\n") && strict.ends_with("do not fit, because of --strict"), "{strict}");
}

/// The result of a check has tables of the routes and the limits.
#[test]
fn check_shows_routes_and_limits() {
    let folder = folder();
    let config = "[upstreams.api]\nendpoints = [\"http://127.0.0.1:9000\"]\n[upstreams.web]\nendpoints = [\"http://127.0.0.1:9001\"]\n\
        [[route]]\nmatch = { path = [\"/a\", \"/b\", \"/c\", \"/d\"], method = \"POST\" }\nupstream = \"api\"\n[[route]]\nupstream = \"web\"\n\
        [[limit]]\nname = \"per-ip\"\nstage = \"arrival\"\nkey = [\"ip\"]\nrate = \"50/s\"\n\
        [[limit]]\nname = \"all\"\nmode = \"shadow\"\nkey = []\nrate = \"9/min\"\non_limit = \"hold\"\nmatch = { path = \"/a\" }\n";
    std::fs::write(folder.path().join("routes.toml"), config).unwrap();
    let said = transcript(folder.path(), &["check", "routes.toml"]);
    let tables: Vec<Vec<_>> = said
        .lines()
        .skip(5)
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(
        tables[..3],
        [
            vec!["ROUTE", "REQUESTS", "UPSTREAM"],
            vec!["1", "/a, /b, /c, 1 more; method POST", "api"],
            vec!["2", "all paths", "web"]
        ],
        "{said}"
    );
    assert_eq!(tables[4], ["LIMIT", "STAGE", "MODE", "KEY", "RULE", "BEYOND", "REQUESTS"]);
    for (row, cells) in [
        (5, ["per-ip", "arrival", "enforce", "ip", "reject", "all paths"]),
        (6, ["all", "identified", "shadow", "one for all requests", "hold", "/a"]),
    ] {
        let mut found = tables[row].clone();
        assert!(found.remove(4).contains(if row == 5 { "50" } else { "9" }), "{said}");
        assert_eq!(found, cells, "{said}");
    }
}

#[test]
fn a_large_configuration_is_announced() {
    let folder = folder();
    let valid = std::fs::read_to_string(folder.path().join("valid.toml")).unwrap();
    std::fs::write(folder.path().join("large.toml"), format!("{}{valid}", "# 16 bytes long\n".repeat(1 << 17)))
        .unwrap();
    insta::assert_snapshot!(transcript(folder.path(), &["check", "large.toml"]), @r#"
    $ weir check large.toml
    exit code 0
    -- stdout
    large.toml: valid; limits: 1

    LIMIT     STAGE       MODE     KEY   RULE                   BEYOND  REQUESTS
    per-path  identified  enforce  path  100/min, token bucket  hold    all paths
    -- stderr
    weir: compiling a configuration of 2048 KiB
    "#);
}

#[test]
fn a_warning_is_shown_and_strict_makes_it_an_error() {
    let folder = folder();
    let text = "server.trusted_proxies = \"0.0.0.0/0\"\nupstream.url = \"http://127.0.0.1:9000\"\n";
    std::fs::write(folder.path().join("open.toml"), text).unwrap();
    insta::assert_snapshot!(transcript(folder.path(), &["check", "open.toml"]), @r#"
    $ weir check open.toml
    exit code 0
    -- stdout
    open.toml: valid, with 1 warning; limits: 1

    LIMIT     STAGE       MODE     KEY   RULE                   BEYOND  REQUESTS
    per-path  identified  enforce  path  100/min, token bucket  hold    all paths
    -- stderr
    warning[trusts_everyone]: `server.trusted_proxies`: `0.0.0.0/0` is every address: any client can choose its own address
     --> open.toml:1:26
      |
    1 | server.trusted_proxies = "0.0.0.0/0"
      |                          ^^^^^^^^^^^
    "#);
    let strict = transcript(folder.path(), &["check", "--strict", "open.toml"]);
    assert!(strict.contains("exit code 3\n-- stderr\nwarning[trusts_everyone]"), "{strict}");
    assert!(strict.ends_with("weir: open.toml: invalid, with 1 warning, because of --strict"), "{strict}");
    assert!(transcript(folder.path(), &["check", "--strict", "valid.toml"]).contains("exit code 0"));
}

/// The exit code of `weir check FILE` when nobody reads what it says, and when the disk is full.
#[test]
fn who_does_not_listen_breaks_nothing() {
    let folder = folder();
    let code = |file: &str, nobody: fn() -> Stdio| {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let weir = weir.args(["check", file]).current_dir(folder.path()).stdout(nobody()).stderr(nobody());
        weir.status().unwrap().code()
    };
    let gone = || Stdio::from(std::io::pipe().unwrap().1);
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    assert_eq!([code("valid.toml", gone), code("broken.toml", gone)], [Some(0), Some(3)]);
    assert_eq!([code("valid.toml", full), code("broken.toml", full)], [Some(1), Some(3)]);
    // A new key is shown once, so the owner must get it, or the operator its id.
    for (edit, nobody) in [("new", gone as fn() -> Stdio), ("rotate", gone), ("rotate", full)] {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let weir = weir.args(["apikeys", edit, "--file", "keys.toml", "--name", "ACME"]).current_dir(folder.path());
        let output = weir.stdout(nobody()).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{edit}: {said}");
        let (_, id) = said.split_once("was not printed; `revoke --id ").unwrap();
        let revoke = ["apikeys", "revoke", "--file", "keys.toml", "--name", "ACME", "--id", &id[..8]];
        let listed = transcript(folder.path(), &["apikeys", "list", "--file", "keys.toml"]);
        assert!(listed.rfind(&id[..8]) == listed.rfind("\"id\": \"").map(|at| at + 7), "{listed}");
        if edit == "rotate" {
            assert!(transcript(folder.path(), &revoke).contains("exit code 0\n"), "{said}");
        }
    }
}

/// A process gets `/dev/null` in place of a standard output that is closed.
#[test]
fn a_key_that_nobody_can_see_is_not_made() {
    let folder = folder();
    let keys = folder.path().join("keys.toml");
    let edit = |edit: &str, output: &str| {
        let mut shell = Command::new("sh");
        let script = format!("exec \"$0\" apikeys {edit} --file keys.toml --name ACME {output}");
        let run = shell.args(["-c", &script, env!("CARGO_BIN_EXE_weir")]).current_dir(folder.path()).output().unwrap();
        (run.status.code(), String::from_utf8(run.stderr).unwrap())
    };
    let refused = |action: &str, output: &str| {
        let before = std::fs::read(&keys).ok();
        let (code, said) = edit(action, output);
        assert_eq!(code, Some(1), "{action} {output}: {said}");
        assert!(said.contains("standard output is closed or `/dev/null`; nothing was changed"), "{said}");
        assert_eq!(std::fs::read(&keys).ok(), before, "{action} {output}");
    };
    refused("new", ">&-");
    refused("new", ">/dev/null");
    assert_eq!(edit("new", ">key").0, Some(0));
    assert!(std::fs::read_to_string(folder.path().join("key")).unwrap().starts_with("weir_"));
    refused("rotate", ">&-");
    refused("rotate", ">/dev/null");
    // A revocation prints no key.
    assert_eq!(edit("revoke", ">&-").0, Some(0));
}

#[test]
fn run_starts_only_what_is_valid() {
    let folder = folder();
    let checked = transcript(folder.path(), &["check", "broken.toml"]);
    for args in [&["run", "--config", "broken.toml"][..], &["run", "broken.toml"]] {
        let run = transcript(folder.path(), args);
        assert_eq!(run.split_once('\n').unwrap().1, checked.split_once('\n').unwrap().1);
    }
    insta::assert_snapshot!(transcript(folder.path(), &["run", "--config", "missing.toml"]), @r#"
    $ weir run --config missing.toml
    exit code 3
    -- stderr
    error: cannot read `missing.toml`: No such file or directory (os error 2)
    "#);
}

#[test]
fn what_is_no_configuration_is_refused_at_once() {
    let folder = folder();
    let made = Command::new("mkfifo").arg(folder.path().join("fifo")).status().unwrap();
    assert!(made.success());
    std::fs::write(folder.path().join("weir.json"), "{\"server\": {}}").unwrap();
    let utf16: Vec<u8> = "[server]\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(folder.path().join("utf16"), [&[0xff, 0xfe], &utf16[..]].concat()).unwrap();
    std::fs::write(folder.path().join("utf16-bare"), utf16).unwrap();
    let token = "[upstream]\nurl = \"http://127.0.0.1:9000\"\n[admin]\ntoken = { file = \"fifo\" }\n";
    std::fs::write(folder.path().join("token.toml"), token).unwrap();
    for (file, said) in [
        ("fifo", "`fifo` is a FIFO, not a file"),
        (".", "`.` is a directory, not a file"),
        ("/dev/zero", "`/dev/zero` is a device, not a file"),
        ("weir.json", "`weir.json` is JSON; a configuration must be TOML"),
        ("utf16", "`utf16` is encoded in UTF-16; save it as UTF-8"),
        ("utf16-bare", "`utf16-bare` is encoded in UTF-16; save it as UTF-8"),
        ("token.toml", "`fifo` is a FIFO, not a file"),
    ] {
        for args in [&["check", file], &["run", file]] {
            let found = transcript(folder.path(), args);
            assert!(found.contains("\nexit code 3\n-- stderr\nerror: ") && found.contains(said), "{found}");
        }
    }
}

#[test]
fn a_port_in_use_is_1_and_one_line() {
    let folder = folder();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (listen, admin) in [(&*address, "off"), ("127.0.0.1:0", &*address)] {
        let text = format!(
            "server.listen = \"{listen}\"\nadmin.listen = \"{admin}\"\nupstream.url = \"http://127.0.0.1:9000\"\n"
        );
        std::fs::write(folder.path().join("taken.toml"), text).unwrap();
        let said = transcript(folder.path(), &["run", "--config", "taken.toml"]).replace(&address, "ADDRESS");
        insta::allow_duplicates! {
            insta::assert_snapshot!(said, @r#"
            $ weir run --config taken.toml
            exit code 1
            -- stderr
            weir: cannot listen on ADDRESS: Address already in use (os error 98)
            "#);
        }
    }
    let said = transcript(folder.path(), &["demo", "--listen", &address]).replace(&address, "ADDRESS");
    insta::assert_snapshot!(said, @r#"
    $ weir demo --listen ADDRESS
    exit code 1
    -- stderr
    weir: cannot listen on ADDRESS: Address already in use (os error 98)
    "#);
}

#[test]
fn healthcheck_asks_the_admin_listener() {
    let folder = folder();
    let weir = Weir::start(&Upstream::start(), "");
    let admin = weir.admin().to_string();
    let ask = || transcript(folder.path(), &["healthcheck", "--admin", &admin]).replace(&admin, "ADDRESS");
    insta::assert_snapshot!(ask(), @r#"
    $ weir healthcheck --admin ADDRESS
    exit code 0
    "#);
    let other = Upstream::start();
    let of_other = ["healthcheck", "--admin", &other.address().to_string()];
    insta::assert_snapshot!(transcript(folder.path(), &of_other).replace(of_other[2], "OTHER"), @r#"
    $ weir healthcheck --admin OTHER
    exit code 1
    -- stderr
    weir: OTHER answers 200 OK, but not as Weir does; `--admin` names the admin listener of Weir
    "#);
    weir.signal("TERM");
    assert_eq!(weir.wait(), Some(0));
    insta::assert_snapshot!(ask(), @r#"
    $ weir healthcheck --admin ADDRESS
    exit code 1
    -- stderr
    weir: ADDRESS does not answer: Connection refused (os error 111); `--admin` or `WEIR_ADMIN` names another admin listener
    "#);
}

/// A command that another service answers with a success has failed.
#[test]
fn an_answer_of_another_service_is_a_failure() {
    let folder = folder();
    let of_json = |body: &str| format!("200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{body}");
    let html = "200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\n{}".to_owned();
    for answer in [html, of_json("{["), of_json("{}"), "204 No Content\r\n\r\n".to_owned()] {
        let other = Upstream::saying(&format!("HTTP/1.1 {answer}"));
        let address = other.address().to_string();
        for command in [
            &["bans", "add", "--address", "203.0.113.7", "--forever"][..],
            &["bans", "lift", "a", "1"],
            &["overrides", "set", "a", "1", "5/min"],
            &["plans", "remove", "a", "1"],
            &["keys", "reset", "a", "1"],
            &["upstreams", "drain", "a", "127.0.0.1:1"],
            &["config", "check", "valid.toml"],
            &["config", "diff"],
            &["config", "reload"],
            &["config", "rollback"],
            &["config", "show", "--toml"],
            &["apikeys", "list"],
            &["explain"],
        ] {
            let said = transcript(folder.path(), &[command, &["--admin", &address]].concat());
            let (_, said) = said.split_once('\n').unwrap();
            let status = if answer.starts_with("204") { "204 No Content" } else { "200 OK" };
            let expected = format!(
                "exit code 1\n-- stderr\nweir: {address} answers {status}, but not as Weir does; `--admin` names the admin \
                 listener of Weir"
            );
            assert_eq!(said, expected, "{command:?}");
        }
    }
}
