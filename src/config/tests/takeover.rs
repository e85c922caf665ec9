//! `server.takeover`.

use super::{compile, said};

#[test]
fn a_socket_is_relative_to_the_file() {
    let takeover = |text: &str| {
        let text = format!("[server]\n{text}\n[upstream]\nurl = 'http://127.0.0.1:9000'");
        compile(&text).unwrap().fixed.takeover
    };
    assert_eq!(takeover(""), None);
    assert_eq!(takeover("takeover = 'next.sock'").unwrap().to_str(), Some("config/next.sock"));
    assert_eq!(takeover("takeover = '/run/weir/next.sock'").unwrap().to_str(), Some("/run/weir/next.sock"));
}

#[test]
fn a_place_that_cannot_be() {
    insta::assert_snapshot!(said("[server]\ntakeover = 'unix:/run/weir.sock'"), @r#"
    error: `server.takeover`: is a path, without `unix:`
     --> weir.toml:2:12
      |
    2 | takeover = 'unix:/run/weir.sock'
      |            ^^^^^^^^^^^^^^^^^^^^^
      |
      = help: it is always a Unix socket; write "/run/weir.sock"
    "#);
    insta::assert_snapshot!(said("[server]\ntakeover = '/run/weir/'"), @r#"
    error: `server.takeover`: `/run/weir/` names no file
     --> weir.toml:2:12
      |
    2 | takeover = '/run/weir/'
      |            ^^^^^^^^^^^^
      |
      = help: write it like "/run/weir/takeover.sock"
    "#);
    let long = said(&format!("[server]\ntakeover = '/{}'", "a".repeat(120)));
    assert!(long.contains("the path of a socket has at most 107"), "{long}");
    insta::assert_snapshot!(said("[server]\nlisten = 'unix:/run/a.sock'\ntakeover = '/run/a.sock'"), @r"
    error: `server.takeover` and `server.listen` are the same address
     --> weir.toml:3:12
      |
    2 | listen = 'unix:/run/a.sock'
      |          ------------------ here
    3 | takeover = '/run/a.sock'
      |            ^^^^^^^^^^^^^
    ");
    insta::assert_snapshot!(said("[server]\ntakeover = '/run/b.sock'\n[admin]\nlisten = 'unix:/run/b.sock'"), @r"
    error: `server.takeover` and `admin.listen` are the same address
     --> weir.toml:2:12
      |
    2 | takeover = '/run/b.sock'
      |            ^^^^^^^^^^^^^
    3 | [admin]
    4 | listen = 'unix:/run/b.sock'
      |          ------------------ here
    ");
}
