//! The files in config/ compile, and two of them show every option.

use std::path::Path;

use weir::config::{self, Config, Preset};

const SECRET: &str = "0123456789abcdef0123456789ABCDEF";

fn compile(name: &str) -> Config {
    let text = std::fs::read_to_string(Path::new("config").join(name)).unwrap();
    let env = |name: &str| {
        let known = ["WEIR_JWT_SECRET", "WEIR_ADMIN_TOKEN", "WEIR_FLEET_SECRET", "REDIS_PASSWORD"];
        known.contains(&name).then(|| SECRET.to_owned())
    };
    config::compile(&text, name, Path::new("config"), &env).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn every_file_compiles() {
    let mut count = 0;
    for entry in ["config", "config/examples", "config/examples/fleet"]
        .map(|folder| std::fs::read_dir(folder).unwrap())
        .into_iter()
        .flatten()
    {
        let path = entry.unwrap().path();
        let name = path.strip_prefix("config").unwrap().to_str().unwrap();
        if Path::new(name).extension().is_some_and(|extension| extension == "toml") {
            assert!(!compile(name).policy.limits().is_empty());
            count += 1;
        }
    }
    assert!(count >= 8);
}

#[test]
fn minimal_equals_the_default() {
    let without = config::compile("[upstream]\nurl = 'http://127.0.0.1:9000'", "", Path::new(""), &|_| None).unwrap();
    assert_eq!(format!("{:?}", compile("minimal.toml").policy), format!("{:?}", without.policy));
}

/// `full.toml` with the options that need files of the reader's own.
fn full() -> String {
    let text = std::fs::read_to_string("config/full.toml").unwrap();
    let uncomment = |line: &str| {
        let rest = line.strip_prefix('#').filter(|rest| !rest.starts_with(' ') || rest.starts_with("  {"));
        rest.unwrap_or(line).to_owned()
    };
    text.lines().map(uncomment).collect::<Vec<_>>().join("\n")
}

#[test]
fn options_that_need_files_compile_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["a.test".into()]).unwrap().self_signed(&key).unwrap();
    for (name, text) in [
        ("server.pem", certificate.pem()),
        ("clients.pem", certificate.pem()),
        ("directory.pem", certificate.pem()),
        ("server.key", key.serialize_pem()),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    std::fs::write(folder.path().join("grafana.token"), "0123456789abcdef").unwrap();
    std::fs::write(folder.path().join("customers.toml"), "").unwrap();
    std::os::unix::fs::symlink(std::path::absolute("config/keys").unwrap(), folder.path().join("keys")).unwrap();
    let env = |_: &str| Some(SECRET.to_owned());
    let config = config::compile(&full(), "full.toml", folder.path(), &env);
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    assert!(config.proxy.tls.is_some() && config.policy.identities.len() == 5);
}

#[test]
fn full_shows_every_option() {
    let (full, several) = (full(), std::fs::read_to_string("config/upstreams.toml").unwrap());
    for option in config::options() {
        // `[upstreams]` excludes `[upstream]`, so several services have a file of their own.
        let text =
            if option.path.starts_with("upstreams.") || option.path.starts_with("route.") { &several } else { &full };
        let document: toml::Value = toml::from_str(text).unwrap();
        let names: Vec<_> = option.path.split('.').collect();
        // Alternatives to an option are in comments.
        let in_comment = || {
            text.lines().any(|line| {
                let comment = line.split_once('#').map_or("", |(_, comment)| comment);
                names.last().is_some_and(|name| comment.contains(&format!("{{ {name} = ")))
            })
        };
        assert!(is_written(&document, &names) || in_comment(), "`{}` is in no configuration", option.path);
    }
}

#[test]
fn values_and_comments_have_the_defaults() {
    let (full, several) = (full(), std::fs::read_to_string("config/upstreams.toml").unwrap());
    let documents: Vec<toml::Value> = [&full, &several].map(|text| toml::from_str(text).unwrap()).into();
    for option in config::options() {
        let Preset::Toml(default) = option.default else { continue };
        let names: Vec<_> = option.path.split('.').collect();
        let parsed: toml::Table = toml::from_str(&format!("default = {default}")).unwrap();
        let values: Vec<_> = documents.iter().flat_map(|document| written(document, &names)).collect();
        let key = format!("{} = ", names.last().unwrap());
        let in_comment = |line: &str| {
            let comment =
                line.split_once('#').filter(|(code, _)| code.contains(&key)).map_or("", |(_, comment)| comment);
            let (_, shown) = comment.split_once("default").unwrap_or_default();
            shown.trim_start_matches([':', ' ']).starts_with(default) || default == "[]" && !shown.is_empty()
        };
        let is_shown = values.contains(&&parsed["default"]) || full.lines().chain(several.lines()).any(in_comment);
        assert!(is_shown || values.is_empty(), "`{}`: the default {default} is not shown", option.path);
    }
}

fn is_written(value: &toml::Value, names: &[&str]) -> bool {
    !written(value, names).is_empty()
}

/// The values of the option at the path `names`.
fn written<'v>(value: &'v toml::Value, names: &[&str]) -> Vec<&'v toml::Value> {
    if let Some(items) = value.as_array().filter(|_| !names.is_empty()) {
        return items.iter().flat_map(|item| written(item, names)).collect();
    }
    match (names.split_first(), value.as_table()) {
        (None, _) => vec![value],
        (Some((_, _)), None) => Vec::new(),
        (Some((&("NAME" | "PART"), rest)), Some(table)) => {
            table.values().flat_map(|value| written(value, rest)).collect()
        }
        (Some((name, rest)), Some(table)) => table.get(*name).map_or(Vec::new(), |value| written(value, rest)),
    }
}
