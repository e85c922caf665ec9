//! Files of keys: what is read, what is wrong, and how edits change the text.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use super::{edit, locate, read};
use crate::base::time::Timestamp;
use crate::engine::policy::api_keys::{KeyChange, KeyEdit, KeyEditError, digest_of, is_well_formed};

const HASH: &str = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef";
/// A key in a place where it must not be.
const KEY: &str = "weir_0000000000000000000000000000000000zUqMb";

fn now() -> Timestamp {
    Timestamp::from_ns(1_700_000_000_123_000_000)
}

fn new(name: &str, plan: Option<&str>) -> KeyEdit {
    KeyEdit { name: name.to_owned(), change: KeyChange::New { plan: plan.map(str::to_owned), lifetime: None } }
}

fn rotate(name: &str) -> KeyEdit {
    let change = KeyChange::Rotate { overlap: Duration::from_hours(24), lifetime: Some(Duration::from_hours(48)) };
    KeyEdit { name: name.to_owned(), change }
}

fn revoke(name: &str, id: Option<&str>) -> KeyEdit {
    KeyEdit { name: name.to_owned(), change: KeyChange::Revoke { id: id.map(str::to_owned) } }
}

#[test]
fn wrong_files_are_explained_and_not_repeated() {
    let with = |text: &str| text.replace("HASH", HASH).replace("KEY", KEY);
    for (text, expected) in [
        ("", Ok(0)),
        ("[ACME]", Ok(1)),
        ("[[a.keys]]\nsha256 = 'HASH'\ncreated = 2026-01-31T18:00:00Z\noverlap_ends = 2026-02-01T18:00:00Z", Ok(1)),
        (
            "[ACME]\nplan = 'premium'\ndisabled = true\nkeys = [{ sha256 = 'HASH', created = 2026-01-31T18:00:00Z }]",
            Ok(1),
        ),
        ("[a]\nx = \n[b]", Err("is not valid TOML at line 2")),
        ("KEY = 'KEY'", Err("has an entry that is not a table")),
        ("[a]\nkey = 'KEY'", Err("has an error in `[a]`: an unknown key; there can be `plan`, `disabled`, `keys`")),
        ("[a]\nkeys = 'KEY'", Err("`[a]`: `keys` must be a list of tables")),
        ("[a]\nkeys = ['KEY']", Err("`[a]`: key 1: it must be a table")),
        ("[a]\nplan = ''", Err("`[a]`: `plan` must be the name of a plan")),
        ("[a]\ndisabled = 'yes'", Err("`[a]`: `disabled` must be `true` or `false`")),
        ("['a|b']", Err("has an error in `[a|b]`: a name has")),
        ("[[a.keys]]\nsha256 = 'KEY'", Err("key 1: `sha256` must have 64 hexadecimal digits")),
        (
            "[[a.keys]]\nsha256 = '+123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef'",
            Err("key 1: `sha256` must"),
        ),
        ("[[a.keys]]\nsha256 = 'HASH'", Err("key 1: `created` is missing")),
        ("[[a.keys]]\nsha256 = 'HASH'\ncreated = '2026-01-31T18:00:00Z'", Err("`created` must be a time in UTC")),
        ("[[a.keys]]\nsha256 = 'HASH'\ncreated = 2026-01-31T18:00:00+01:00", Err("`created` must be a time in UTC")),
        (
            "[[a.keys]]\nsha256 = 'HASH'\ncreated = 2026-01-31T18:00:00Z\n\
             [[b.keys]]\nsha256 = 'HASH'\ncreated = 2026-01-31T18:00:00Z",
            Err("has an error in `[b]`: another key has the same `sha256`"),
        ),
    ] {
        match (read(&with(text)), expected) {
            (Ok(owners), Ok(count)) => assert_eq!(owners.len(), count, "{text}"),
            (Err(what), Err(expected)) => assert!(what.contains(expected) && !what.contains("weir_"), "{text}: {what}"),
            (read, _) => unreachable!("{text}: {read:?}"),
        }
    }
}

#[test]
fn a_key_is_adopted_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let key = "0123456789abcdef".to_owned();
    let adopt = |name: &str| {
        let change = KeyChange::Adopt { secret: key.clone(), plan: Some("premium".to_owned()) };
        edit(&path, &KeyEdit { name: name.to_owned(), change }, now()).map(|edited| edited.after)
    };
    let owner = adopt("ACME").unwrap().unwrap();
    assert_eq!((owner.plan.as_deref(), owner.keys[0].digest), (Some("premium"), digest_of(key.as_bytes())));
    assert!(!std::fs::read_to_string(&path).unwrap().contains(&key));
    for (name, expected) in [("Zeta", "it is a key of `ACME`"), ("ACME", "`ACME` has an API key already; rotate it")] {
        assert_eq!(adopt(name), Err(KeyEditError::Conflict(expected.to_owned())));
    }
}

#[test]
fn edits_keep_comments_and_write_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let secret = edit(&path, &new("ACME", Some("premium")), now()).unwrap().secret.unwrap();
    assert!(is_well_formed(secret.as_bytes()));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&secret) && !text.contains("weir_"), "{text}");
    assert!(text.starts_with("# API keys") && text.trim_end().ends_with('Z'), "{text}");
    let owners = read(&text).unwrap();
    assert_eq!(owners[0].keys[0].digest, digest_of(secret.as_bytes()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let edited = format!(
        "# by hand\n[old] # stays\nkeys = [ # inline\n  {{ sha256 = \"{HASH}\", created = 2020-01-01T00:00:00Z }},\n]\n{text}"
    );
    std::fs::write(&path, edited).unwrap();
    edit(&path, &rotate("ACME"), now()).unwrap();
    edit(&path, &rotate("old"), now()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("# by hand") && text.contains("# stays"), "{text}");
    let owners = read(&text).unwrap();
    for owner in &owners {
        let ends: Vec<_> = owner.keys.iter().map(|key| key.end().unwrap().as_secs() - 1_700_000_000).collect();
        assert_eq!(ends, [24 * 3600, 48 * 3600], "{text}");
    }
    let id = owners[0].keys[1].id();
    edit(&path, &revoke(&owners[0].name, Some(&id)), now()).unwrap();
    edit(&path, &revoke(&owners[1].name, None), now()).unwrap();
    let left = read(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(left.iter().map(|owner| (&*owner.name, owner.keys.len())).collect::<Vec<_>>(), [(&*owners[0].name, 1)]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_edit_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let absent = edit(&path, &rotate("ACME"), now()).unwrap_err();
    assert_eq!(absent, KeyEditError::Absent("there is no API key of `ACME`".to_owned()));
    assert!(!path.exists());
    std::fs::write(&path, "[ACME\n").unwrap();
    let damaged = edit(&path, &new("b", None), now()).unwrap_err().to_string();
    assert!(damaged.contains("keys.toml` is not valid TOML at line 1"), "{damaged}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "[ACME\n");
    let elsewhere = edit(&folder.path().join("none/keys.toml"), &new("b", None), now()).unwrap_err().to_string();
    assert!(elsewhere.contains("cannot be written"), "{elsewhere}");
    std::fs::create_dir(folder.path().join("dir")).unwrap();
    assert!(
        edit(&folder.path().join("dir"), &new("b", None), now()).unwrap_err().to_string().contains("cannot be read")
    );
}

/// Weir may read the file by a link and as another user than the one who edits.
#[test]
fn a_link_stays_and_edits_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let [path, link] = ["keys.toml", "link.toml"].map(|name| folder.path().join(name));
    edit(&path, &new("first", None), now()).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    // Only a privileged user can give files away.
    let _ = std::os::unix::fs::chown(&path, Some(65_534), None);
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let owner = std::fs::metadata(&path).unwrap().uid();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let link = &link;
            scope.spawn(move || edit(link, &new(&format!("owner {number}"), None), now()).unwrap());
        }
    });
    assert!(link.is_symlink());
    assert_eq!(read(&std::fs::read_to_string(&path).unwrap()).unwrap().len(), 9);
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!((after.uid(), after.mode() & 0o777), (owner, 0o640));
}

#[test]
fn the_file_is_found_without_the_secrets_of_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    let one = "[identity.partner]\napi_keys = { file = 'keys.toml' }\n[identity.user.jwt]\nkeys = [{ secret = { env = 'X' } }]\n";
    let two = "[identity.app.api_keys]\nfile = '/keys.toml'\n";
    for (text, identity, expected) in [
        (one.to_owned(), None, Ok(folder.path().join("keys.toml"))),
        (format!("{one}{two}"), Some("app"), Ok("/keys.toml".into())),
        (format!("{one}{two}"), None, Err("several identities")),
        (one.to_owned(), Some("app"), Err("`app` has no `api_keys`")),
        (one.to_owned(), Some("user"), Err("identities with API keys: `partner`")),
        ("[identity.a]\nheader = 'x-a'".to_owned(), None, Err("no identity in")),
        ("[identity".to_owned(), None, Err("is not valid TOML; `weir check` shows why")),
        ("\u{0}".to_owned(), Some("a"), Err("is not valid TOML")),
    ] {
        std::fs::write(&path, text).unwrap();
        match (locate(&path, identity), expected) {
            (Ok((_, found)), Ok(expected)) => assert_eq!(found, expected),
            (Err(what), Err(expected)) => assert!(what.contains(expected), "{what}"),
            (found, _) => unreachable!("{identity:?}: {found:?}"),
        }
    }
    assert!(locate(Path::new("/none.toml"), None).unwrap_err().contains("cannot read `/none.toml`"));
}
