//! The page of API keys: a new key is shown once, and changes are confirmed.

use super::requests::{ORIGIN, ask, csrf};
use crate::support::{NEVER, Upstream, Weir};

#[test]
fn a_new_key_is_shown_once() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let identity = "[identity.partner]\napi_keys = { file = \"keys.toml\" }\n";
    std::fs::write(folder.path().join("weir.toml"), Weir::config(&upstream, "", &format!("{identity}{NEVER}")))
        .unwrap();
    std::fs::write(folder.path().join("keys.toml"), "").unwrap();
    let weir = Weir::start_in(folder);
    let page = || ask(&weir, "GET", "/apikeys", &[], "");
    assert!(page().text().contains("There are no API keys."));
    let token = csrf(&page());
    let post = |path: &str, fields: &str| {
        let answer = ask(&weir, "POST", path, &[ORIGIN], &format!("csrf={token}&identity=partner&{fields}"));
        (answer.status, answer.text())
    };
    let (status, made) = post("/apikeys/new", "name=ACME&plan=premium&expires=90d");
    assert!(status == 200 && made.contains("cannot be shown again: <code>weir_"), "{made}");
    let (_, again) = post("/apikeys/new", "name=ACME");
    assert!(again.contains("has an API key already") && !again.contains("weir_"), "{again}");
    let listed = page().text();
    assert!(listed.contains("premium") && listed.contains(">valid<") && !listed.contains("weir_"), "{listed}");
    let (_, question) = post("/apikeys/rotate", "name=ACME");
    assert!(question.contains("The old key stays valid for 24 hours."), "{question}");
    let (_, rotated) = post("/apikeys/rotate", "name=ACME&confirmed=yes");
    assert!(rotated.contains("cannot be shown again"), "{rotated}");
    let text = std::fs::read_to_string(weir.folder().join("keys.toml")).unwrap();
    assert_eq!(text.matches("sha256").count(), 2, "{text}");
    let id = &text.split_once("sha256 = \"").unwrap().1[..8];
    let (_, revoked) = post("/apikeys/revoke", &format!("name=ACME&id={id}&confirmed=yes"));
    assert!(revoked.contains("The key was revoked.") && !revoked.contains(&format!(">{id}<")), "{revoked}");
}
