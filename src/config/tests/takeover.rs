//! `server.takeover`.

use super::{brief, compile, said};

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
    insta::assert_snapshot!(brief("[server]\ntakeover = 'unix:/run/weir.sock'"), @r#"
    2:12 «'unix:/run/weir.sock'» `server.takeover`: is a path, without `unix:`
      = it is always a Unix socket; write "/run/weir.sock"
    "#);
    insta::assert_snapshot!(brief("[server]\ntakeover = '/run/weir/'"), @r#"
    2:12 «'/run/weir/'» `server.takeover`: `/run/weir/` names no file
      = write it like "/run/weir/takeover.sock"
    "#);
    let long = said(&format!("[server]\ntakeover = '/{}'", "a".repeat(120)));
    assert!(long.contains("the path of a socket has at most 107"), "{long}");
    insta::assert_snapshot!(brief("[server]\nlisten = 'unix:/run/a.sock'\ntakeover = '/run/a.sock'"), @"3:12 «'/run/a.sock'» `server.takeover` and `server.listen` have an address in common [also 2:10 «'unix:/run/a.sock'» here]");
    insta::assert_snapshot!(brief("[server]\ntakeover = '/run/b.sock'\n[admin]\nlisten = 'unix:/run/b.sock'"), @"2:12 «'/run/b.sock'» `server.takeover` and `admin.listen` have an address in common [also 4:10 «'unix:/run/b.sock'» here]");
}
