//! Patterns, and the paths that they match.

use super::{PathPattern, parameter};

#[test]
fn a_pattern_matches_whole_segments() {
    for (pattern, paths, others) in [
        ("/", &["/"][..], &["", "a", "/a", "//"][..]),
        ("/a", &["/a"], &["", "/", "a", "/a/", "/A", "/b", "/aa", "/a/b", "/b/a"]),
        ("/a/", &["/a/"], &["/", "/a", "/a//", "/a/b"]),
        ("/a/b", &["/a/b"], &["/a", "/a/", "/a/c", "/b/b", "/a/b/", "/a/b/c"]),
        ("/{one}", &["/a", "/b"], &["", "/", "a", "/a/", "/a/b"]),
        ("/{one}/b", &["/a/b", "/b/b"], &["/b", "//b", "/a/b/", "/a/c", "/a"]),
        ("/{*rest}", &["/", "/a", "/a/", "/a/b/c"], &["", "a"]),
        ("/a/{*rest}", &["/a/", "/a/b", "/a/b/c", "/a/b/"], &["", "/", "/b", "/b/a", "/aa/b", "/b/a/"]),
        ("/{one}/{*rest}", &["/a/", "/a/b", "/a/b/c"], &["/", "//", "//a"]),
    ] {
        let parsed = PathPattern::parse(pattern).unwrap();
        let matched = |path: &&str| parsed.matches(path);
        assert_eq!(paths.iter().copied().find(|path| !matched(path)), None, "{pattern} does not match this");
        assert_eq!(others.iter().copied().find(matched), None, "{pattern} matches this");
    }
}

#[test]
fn a_parameter_is_a_part_of_the_path() {
    for (pattern, name, path, value) in [
        ("/t/{tenant}/{*rest}", "tenant", "/t/a%2Fb/", Some("a%2Fb")),
        ("/t/{tenant}/{*rest}", "rest", "/t/a/b/c", Some("b/c")),
        ("/t/{tenant}/{*rest}", "rest", "/t/a/", Some("")),
        ("/{x}/{x}", "x", "/a/b", Some("a")),
        ("/t/{tenant}", "rest", "/t/a", None),
        // With `trailing_slash = "same"` the rest may be absent.
        ("/t/{*rest}", "rest", "/t", None),
        ("/t/", "t", "/t/", None),
    ] {
        assert_eq!(parameter(pattern, name, path), value, "{pattern} {name} {path}");
        let has = PathPattern::parse(pattern).unwrap().has_parameter(name);
        assert!(has || value.is_none(), "{pattern} {name}");
    }
    assert!(!PathPattern::parse("/{a}/{*b}").unwrap().has_parameter("c"));
}

#[test]
fn a_pattern_starts_with_literal_segments() {
    let starts = |pattern: &str, prefix: &str| PathPattern::parse(pattern).unwrap().starts_with(prefix);
    for (pattern, prefix, expected) in [
        ("/a/b/{*rest}", "/a", true),
        ("/a/b", "/a/b", true),
        ("/a/b", "/b", false),
        ("/a/b", "/a/b/c", false),
        ("/ab", "/a", false),
        ("/{one}/b", "/a", false),
        ("/{*rest}", "/a", false),
    ] {
        assert_eq!(starts(pattern, prefix), expected, "{pattern} {prefix}");
    }
}
