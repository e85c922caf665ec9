//! Verification and edits of keys.

use super::*;
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;
const HOUR: Duration = Duration::from_hours(1);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_ns(1_700_000_000 * SECOND_NS + seconds * SECOND_NS)
}

fn secret(number: u8) -> String {
    key_of([number; RANDOM_BYTES])
}

fn key(number: u8, expires: Option<u64>) -> ApiKey {
    ApiKey {
        digest: digest_of(secret(number).as_bytes()),
        created: at(0),
        expires: expires.map(at),
        overlap_ends: None,
    }
}

/// A key that a rotation refuses from `overlap_ends` on.
fn rotated(number: u8, expires: Option<u64>, overlap_ends: u64) -> ApiKey {
    ApiKey { overlap_ends: Some(at(overlap_ends)), ..key(number, expires) }
}

fn owner(name: &str, keys: Vec<ApiKey>) -> KeyOwner {
    KeyOwner { name: name.into(), plan: Some("premium".into()), is_disabled: false, keys }
}

fn keys(owners: Vec<KeyOwner>) -> ApiKeys {
    ApiKeys::new("keys.toml".into(), owners)
}

#[test]
fn only_valid_keys_name_their_owner() {
    let disabled = KeyOwner { is_disabled: true, ..owner("Zeta", vec![key(3, Some(1))]) };
    let known = keys(vec![owner("ACME", vec![key(1, None), key(2, Some(60))]), disabled]);
    let mut typo = secret(1);
    typo.replace_range(6..7, "z");
    for (shown, seconds, expected) in [
        (secret(1), 0, Ok("ACME")),
        (secret(1), 1_000_000_000, Ok("ACME")),
        (secret(2), 59, Ok("ACME")),
        (secret(2), 60, Err(ApiKeyError::Expired)),
        (secret(3), 0, Err(ApiKeyError::Disabled)),
        (secret(3), 2, Err(ApiKeyError::Disabled)),
        (secret(4), 0, Err(ApiKeyError::Unknown)),
        (typo, 0, Err(ApiKeyError::Malformed)),
        (String::new(), 0, Err(ApiKeyError::Malformed)),
    ] {
        let found = known.verify(shown.as_bytes(), at(seconds)).map(|owner| &*owner.name);
        assert_eq!(found, expected, "{shown} at {seconds}");
    }
}

/// Keys of other systems have no form, but enough entropy.
#[test]
fn keys_of_other_systems_are_adopted() {
    let long = "k".repeat(512);
    for (key, expected) in [
        ("0123456789abcdef", Ok("ACME")),
        (&long, Ok("ACME")),
        ("0123456789abcde", Err("an adopted key has 16 to 512 visible ASCII characters; make a new one instead")),
        ("0123456789abcde ", Err("an adopted key has 16 to 512 visible ASCII characters; make a new one instead")),
        ("0123456789abcdé", Err("an adopted key has 16 to 512 visible ASCII characters; make a new one instead")),
        (&format!("{long}k"), Err("an adopted key has 16 to 512 visible ASCII characters; make a new one instead")),
    ] {
        let change = KeyChange::Adopt { secret: key.to_owned(), plan: None };
        let owner = KeyEdit { name: "ACME".to_owned(), change }.apply(None, Digest::default(), at(0));
        let verified = owner.map(|owner| {
            let known = keys(owner.into_iter().collect());
            let other = known.verify(&key.as_bytes()[1..], at(0)).unwrap_err();
            assert_eq!(other, ApiKeyError::Malformed);
            known.verify(key.as_bytes(), at(0)).unwrap().name.to_string()
        });
        assert_eq!(
            verified.map_err(|error| error.to_string()),
            expected.map(str::to_owned).map_err(str::to_owned),
            "{key}"
        );
    }
}

#[test]
fn the_last_use_is_an_hour_and_outlives_a_reload() {
    let known = keys(vec![owner("ACME", vec![key(1, None), key(2, Some(0))])]);
    let (used, refused) = (key(1, None).digest, key(2, None).digest);
    assert_eq!(known.last_used(&used), None);
    known.verify(secret(1).as_bytes(), at(0)).unwrap();
    known.verify(secret(2).as_bytes(), at(0)).unwrap_err();
    let hour = Timestamp::from_ns(at(0).as_ns() / HOUR_NS * HOUR_NS);
    assert_eq!((known.last_used(&used), known.last_used(&refused)), (Some(hour), None));
    let next = keys(vec![owner("ACME", vec![key(1, Some(9)), key(4, None)])]);
    next.adopt_uses(&known);
    assert_eq!((next.last_used(&used), next.last_used(&key(4, None).digest)), (Some(hour), None));
    next.verify(secret(1).as_bytes(), at(8)).unwrap();
    assert_eq!(next.last_used(&used), Some(hour));
}

#[test]
fn changed_owners_are_named() {
    let before = keys(vec![owner("a", vec![key(1, None)]), owner("b", vec![key(2, None)]), owner("c", vec![])]);
    let after = keys(vec![owner("c", vec![]), owner("b", vec![key(2, Some(1))]), owner("d", vec![])]);
    assert_eq!(after.changed_names(&before), ["a", "b", "d"]);
    assert_eq!(after.changed_names(&after), [""; 0]);
}

fn rotate(overlap: Duration) -> KeyChange {
    KeyChange::Rotate { overlap, lifetime: None }
}

/// The ends of the keys after a change, in seconds after the begin; `u64::MAX` without an end.
fn ends(before: Option<&KeyOwner>, change: KeyChange, seconds: u64) -> Result<Vec<u64>, KeyEditError> {
    let edit = KeyEdit { name: "ACME".to_owned(), change };
    let after = edit.apply(before, key(9, None).digest, at(seconds))?;
    let end = |key: &ApiKey| key.end().map_or(u64::MAX, |end| end.ns_since(at(0)) / SECOND_NS);
    Ok(after.iter().flat_map(|owner| &owner.keys).map(end).collect())
}

#[test]
fn a_rotation_has_two_keys_and_an_end() {
    for (keys, change, seconds, expected) in [
        (vec![key(1, None)], rotate(HOUR), 10, Some(vec![3610, u64::MAX])),
        // A key that ends earlier is not prolonged. The new key lives as long as the newest one did.
        (vec![key(1, Some(100))], rotate(HOUR), 10, Some(vec![100, 110])),
        (vec![key(1, None)], KeyChange::Rotate { overlap: HOUR, lifetime: Some(HOUR) }, 10, Some(vec![3610, 3610])),
        (vec![key(1, Some(10))], rotate(HOUR), 10, Some(vec![20])),
        (vec![key(1, Some(11)), key(2, None)], rotate(HOUR), 10, None),
        (vec![key(1, Some(10)), key(2, None)], rotate(HOUR), 10, Some(vec![3610, u64::MAX])),
        (vec![key(1, Some(11)), key(2, None)], rotate(Duration::ZERO), 10, Some(vec![u64::MAX])),
        // The new one of an earlier rotation was revoked: what that rotation did to the old key says nothing about the next.
        (vec![rotated(1, None, 3600)], rotate(HOUR), 10, Some(vec![3600, u64::MAX])),
        (vec![rotated(1, Some(100), 20)], rotate(HOUR), 10, Some(vec![20, 110])),
        (vec![rotated(1, None, 20)], rotate(HOUR), 20, Some(vec![u64::MAX])),
        (vec![], rotate(HOUR), 10, Some(vec![u64::MAX])),
        (vec![key(1, None), key(2, None)], KeyChange::Revoke { id: Some(key(1, None).id()) }, 0, Some(vec![u64::MAX])),
        (vec![key(1, None)], KeyChange::Revoke { id: Some(key(1, None).id()) }, 0, Some(vec![])),
        (vec![key(1, None)], KeyChange::Revoke { id: Some(key(2, None).id()) }, 0, None),
        (vec![key(1, None), key(2, None)], KeyChange::Revoke { id: None }, 0, Some(vec![])),
        (vec![key(1, None)], KeyChange::New { plan: None, lifetime: None }, 0, None),
    ] {
        let what = format!("{keys:?} {change:?}");
        assert_eq!(ends(Some(&owner("ACME", keys)), change, seconds).ok(), expected, "{what}");
    }
}

#[test]
fn an_owner_begins_with_one_key() {
    for (lifetime, end) in [(None, u64::MAX), (Some(HOUR), 3600)] {
        assert_eq!(ends(None, KeyChange::New { plan: Some("premium".into()), lifetime }, 0), Ok(vec![end]));
    }
    for change in [rotate(HOUR), KeyChange::Revoke { id: None }] {
        assert!(matches!(ends(None, change, 0), Err(KeyEditError::Absent(_))));
    }
    for (name, is_good) in [
        ("ACME", true),
        ("Straßen & Söhne", true),
        ("", false),
        (" ACME", false),
        ("a|b", false),
        ("a\nb", false),
        ("a\u{202e}b", false),
        (&"a".repeat(128), true),
        (&"a".repeat(129), false),
    ] {
        assert_eq!(is_name(name), is_good, "{name}");
        let change = KeyChange::New { plan: Some(name.to_owned()), lifetime: None };
        assert_eq!(ends(None, change, 0).is_ok(), is_good, "{name}");
    }
}
