//! `[identity.NAME]`: the source of an identity, and the keys that verify tokens.
//!
//! Secrets leave this module only inside a verifier. Messages never repeat them.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use http::{HeaderName, Uri};

use crate::config::diagnostics::Problem;
use crate::config::reader::context::Context;
use crate::config::reader::units::Fault;
use crate::config::reader::{Located, Table};
use crate::engine::policy::jwt::{Algorithm, FetchedKeys, KeyMaterial, Verifier, VerifierSpec};
use crate::engine::policy::{CREDENTIALS, CertificateName, Identity, IdentitySource, OnMissing, Repeated};

/// The parts of a key that are not an identity.
pub(super) const BUILT_IN_PARTS: [&str; 5] = ["ip", "path", "route", "host", "method"];

/// RFC 7518, section 3.2: a key of HS256 has at least the length of its hash.
const HS256_SECRET_BYTES_MIN: usize = 32;

/// Compiles all identities; `None` if one has an error. Returns the names of all, also of invalid identities. Both lists
/// have the order of the text. `shows_certificates` says whether clients may send a certificate.
pub(super) fn identities(table: &Table<'_>, shows_certificates: bool) -> (Vec<String>, Option<Vec<Identity>>) {
    let tables = table.named_tables();
    let names = tables.iter().map(|(name, _)| name.get_ref().clone()).collect();
    let all: Vec<_> = tables.iter().map(|(name, table)| identity(name, table, shows_certificates)).collect();
    (names, all.into_iter().collect())
}

fn identity(name: &Located<String>, table: &Table<'_>, shows_certificates: bool) -> Option<Identity> {
    check_name(name, table);
    if table.is_broken() {
        return None;
    }
    let on_missing = table.choice(
        "on_missing",
        &[("reject", OnMissing::Reject), ("anonymous", OnMissing::Anonymous), ("ip", OnMissing::Ip)],
    );
    let given: Vec<_> = ["header", "tls", "jwt"].into_iter().filter(|key| table.has(key)).collect();
    let source = match given[..] {
        ["header"] => {
            let (name, several) = (table.parsed("header", |name| request_header(table.context, name)), several(table));
            name.zip(several).map(|(name, several)| IdentitySource::Header(name.into_inner(), several))
        }
        ["tls"] => certificate_name(table, shows_certificates).map(IdentitySource::Certificate),
        ["jwt"] => jwt(&table.table("jwt")),
        _ => {
            let what = match given[..] {
                [one, other] => format!("has both `{one}` and `{other}`"),
                [] => "has none of `header`, `tls` and `jwt`".into(),
                _ => "has all of `header`, `tls` and `jwt`".into(),
            };
            let problem = Problem::new(name.span(), format!("identity `{}` {what}", name.get_ref()));
            let problem = problem.help(Some("an identity needs exactly one of them".into()));
            table.context.note(if given.is_empty() { problem.absence() } else { problem });
            None
        }
    };
    if let (Some(value), false) = (table.get("several"), table.has("header")) {
        table.fault("several", value.span(), Fault::new("only a `header` without `jwt` may occur several times"));
    }
    let (source, is_plain) = (source?, is_plain(table)?);
    if let Some(value) = table.get("show").filter(|_| is_plain) {
        let reason = match &source {
            IdentitySource::Header(name, _) if CREDENTIALS.contains(name) => Some("this header has credentials"),
            IdentitySource::Jwt { .. } => Some("the claims of tokens are always shown whole"),
            IdentitySource::Header(..) | IdentitySource::Certificate(_) => None,
        };
        if let Some(reason) = reason {
            table.fault("show", value.span(), Fault::new(reason));
        }
    }
    Some(Identity { name: name.get_ref().as_str().into(), source, on_missing: on_missing?, is_plain })
}

/// Whether values are shown whole: the option `show`.
fn is_plain(table: &Table<'_>) -> Option<bool> {
    table.choice("show", &[("masked", false), ("plain", true)])
}

/// The handling of several values: the option `several`.
pub(super) fn several(table: &Table<'_>) -> Option<Repeated> {
    let words =
        [("reject", Repeated::Reject), ("first", Repeated::First), ("last", Repeated::Last), ("join", Repeated::Join)];
    table.choice("several", &words)
}

fn certificate_name(table: &Table<'_>, shows_certificates: bool) -> Option<CertificateName> {
    let names = [
        ("subject_cn", CertificateName::SubjectCn),
        ("san_dns", CertificateName::SanDns),
        ("san_uri", CertificateName::SanUri),
    ];
    let name = table.choice("tls", &names);
    if let Some(value) = table.get("tls").filter(|_| !shows_certificates) {
        let fault = Fault { absence: true, ..Fault::new("clients send certificates only with `server.tls.client_ca`") };
        table.fault("tls", value.span(), fault);
    }
    name
}

fn check_name(name: &Located<String>, table: &Table<'_>) {
    let text = name.get_ref().as_str();
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    let what = if BUILT_IN_PARTS.contains(&text) {
        "is a built-in part of keys; choose another name for the identity"
    } else if text.is_empty() || !text.bytes().all(is_plain) {
        "is not a valid identity name: use only `a-z 0-9 _ -`"
    } else {
        return;
    };
    table.context.note(Problem::new(name.span(), format!("`{text}` {what}")));
}

/// Parses a header name, in any case.
pub(super) fn header_name(text: &str) -> Result<HeaderName, Fault> {
    text.parse().map_err(|_| Fault::new(format!("`{text}` is not a header name")))
}

/// Parses the name of a header that requests can have.
pub(super) fn request_header(context: &Context<'_>, text: &str) -> Result<HeaderName, Fault> {
    let name = header_name(text)?;
    check_request_header(context, &name)?;
    Ok(name)
}

/// Errs if a field of this name never reaches the limits, or if the service reads it differently.
pub(super) fn check_request_header(context: &Context<'_>, name: &HeaderName) -> Result<(), Fault> {
    if name == http::header::HOST {
        // RFC 9112 3.2.2 and RFC 9113 8.3.1: the target goes before the field, which a client can make up then.
        let fault = Fault::new("Weir forwards the host of the target, and the field `host` may contain another");
        return Err(fault.help(Some("use the part `host` in a key, or `match.host`".into())));
    }
    if context.has_underscores.get() || !name.as_str().contains('_') {
        return Ok(());
    }
    let fault = Fault::new(format!("no request has `{name}`: `server.underscores` removes or refuses it"));
    let dashed = name.as_str().replace('_', "-");
    Err(fault.help(Some(format!("name `{dashed}`, or set `server.underscores = \"keep\"`"))))
}

fn jwt(table: &Table<'_>) -> Option<IdentitySource> {
    let claim = table.text("claim");
    let algorithms = algorithms(table);
    let header = table.parsed("header", |name| request_header(table.context, name));
    let issuer = table.text("issuer");
    let audience = table.text("audience");
    let require_exp = table.switch("require_exp");
    let leeway = table.parsed("leeway", crate::config::reader::time_units::duration_or_zero);
    let (keys, fetched) = keys(table, algorithms.as_deref().unwrap_or_default())?;
    let (spans, keys): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
    let spec = VerifierSpec {
        claim: claim?.into_inner(),
        algorithms: algorithms?,
        keys,
        fetched,
        issuer: issuer.map(Located::into_inner),
        audience: audience.map(Located::into_inner),
        require_exp: require_exp?,
        leeway: leeway?.into_inner(),
    };
    let span = |index: usize| spans.get(index).cloned().unwrap_or(table.span());
    let verifier = Verifier::new(spec)
        .map_err(|error| table.fault("keys", span(error.index), Fault::new(error.to_string())))
        .ok()?;
    for skipped in verifier.skipped() {
        table.warn("keys", span(skipped.index), "skipped_keys", Fault::new(skipped.to_string()));
    }
    Some(IdentitySource::Jwt { header: header?.into_inner(), verifier: Box::new(verifier) })
}

fn algorithms(table: &Table<'_>) -> Option<Vec<Algorithm>> {
    let names = Algorithm::ALL_NAMES.map(|name| (name, name));
    let chosen = table.list("algorithms", crate::config::reader::units::one_of(&names))?;
    chosen.iter().map(|name| name.get_ref().parse().ok()).collect()
}

/// Keys, each with its position.
type KeysAt = Vec<(Range<usize>, KeyMaterial)>;

/// Compiles all keys, and the URL of fetched keys. `None` after an error.
fn keys(table: &Table<'_>, algorithms: &[Algorithm]) -> Option<(KeysAt, Option<Arc<FetchedKeys>>)> {
    let Some(value) = table.get("keys") else {
        // Reading it notes that it is required.
        table.text("keys");
        return None;
    };
    let items = table.tables("keys");
    if items.is_empty() && value.get_ref().as_array().is_some() {
        table.fault("keys", value.span(), Fault::new("Weir needs at least one key to verify tokens"));
        return None;
    }
    let (urls, files): (Vec<_>, Vec<_>) = items.iter().partition(|item| item.has("jwks_url"));
    if let [first, second, ..] = urls[..] {
        let problem = Problem::new(second.span(), "a second `jwks_url`: an identity has one at most");
        table.context.note(problem.also(first.span(), "the first"));
    }
    let fetched = urls.first().map(|item| fetched(item, algorithms));
    let read = |item: &Table<'_>| Some((item.span(), key(item, algorithms)?));
    let keys = files.into_iter().map(read).collect::<Vec<_>>().into_iter().collect::<Option<_>>();
    Some((keys?, fetched.map_or(Some(None), |fetched| fetched.map(Some))?))
}

fn fetched(item: &Table<'_>, algorithms: &[Algorithm]) -> Option<Arc<FetchedKeys>> {
    if let Some(value) = item.get("jwks_url").filter(|url| url.get_ref().as_str().is_some_and(|url| url.contains('@')))
    {
        item.context.hide(value.span());
    }
    if ["jwks", "pem", "secret"].iter().any(|other| item.has(other)) {
        item.context.note(Problem::new(item.span(), ONE_KEY));
        return None;
    }
    let url = item.parsed("jwks_url", jwks_url)?;
    let span = url.span();
    let fetched = FetchedKeys::new(url.into_inner(), algorithms);
    if fetched.is_none() && !algorithms.is_empty() {
        let what = "fetched keys are public, and HS256 needs a secret key";
        item.fault("jwks_url", span, Fault::new(what));
    }
    fetched
}

/// A URL of `https`, or of `http` on this machine.
fn jwks_url(text: &str) -> Result<Uri, Fault> {
    let fault = |what| Err(Fault::new(what));
    let Ok(url) = text.parse::<Uri>() else { return fault("is not a URL") };
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return fault("must begin with `https://` and a host");
    };
    let host = authority.host().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    match scheme {
        _ if authority.as_str().contains('@') => fault("must not contain a user or a password"),
        _ if text.contains('#') => fault("must not have a fragment"),
        "https" => Ok(url),
        "http" if is_here => Ok(url),
        "http" => fault("must be `https`: an attacker who can change the fetched keys can sign tokens"),
        _ => fault("must begin with `https://`"),
    }
}

const ONE_KEY: &str = "a key is exactly one of `jwks`, `jwks_url`, `pem` and `secret`";

fn key(table: &Table<'_>, algorithms: &[Algorithm]) -> Option<KeyMaterial> {
    if table.is_broken() {
        return None;
    }
    match (table.has("jwks"), table.has("pem"), table.has("secret")) {
        (true, false, false) => key_file(table, "jwks").map(KeyMaterial::Jwks),
        (false, true, false) => key_file(table, "pem").map(KeyMaterial::Pem),
        (false, false, true) => secret(table, algorithms).map(KeyMaterial::Secret),
        _ => {
            if let Some(value) = table.get("secret") {
                check_not_literal(table, value);
            }
            let problem = Problem::new(table.span(), ONE_KEY);
            table.context.note(problem.absence());
            None
        }
    }
}

/// Reads the file that an option names. The content may be a key.
pub(super) fn key_file(table: &Table<'_>, key: &str) -> Option<Vec<u8>> {
    let path = table.text(key)?;
    if path.get_ref().contains(['\n', '{']) || path.get_ref().contains("-----BEGIN") {
        table.context.hide(path.span());
        table.fault(key, path.span(), Fault::new("must be the name of a file, not its content"));
        return None;
    }
    read_file(table, key, &path)
}

fn read_file(table: &Table<'_>, key: &str, path: &Located<String>) -> Option<Vec<u8>> {
    match table.context.file(path.get_ref()) {
        Ok(bytes) => Some(bytes),
        Err(what) => {
            table.fault(key, path.span(), Fault::new(what));
            None
        }
    }
}

fn secret(key: &Table<'_>, algorithms: &[Algorithm]) -> Option<Vec<u8>> {
    let (span, bytes) = secret_of(key, "secret")?;
    let what = match bytes.len() {
        0 => "this secret is empty".to_owned(),
        length if length < HS256_SECRET_BYTES_MIN && algorithms.contains(&Algorithm::Hs256) => {
            format!("this secret has {length} bytes; HS256 needs at least {HS256_SECRET_BYTES_MIN}")
        }
        _ => return Some(bytes),
    };
    key.context.note(Problem::new(span, what));
    None
}

/// Reads a secret from the variable or the file that an option names. Returns the position of the name, too.
pub(super) fn secret_of(holder: &Table<'_>, key: &str) -> Option<(Range<usize>, Vec<u8>)> {
    check_not_literal(holder, holder.get(key)?)?;
    let table = holder.table(key);
    match (table.has("env"), table.has("file")) {
        (true, false) => secret_of_variable(&table),
        (false, true) => secret_of_file(&table),
        _ => {
            let problem = Problem::new(table.span(), "a secret is exactly one of `env` and `file`");
            table.context.note(problem.absence());
            None
        }
    }
}

/// Notes a secret that is written in the configuration, and hides it from messages.
fn check_not_literal(key: &Table<'_>, value: &toml::Spanned<toml::de::DeValue<'_>>) -> Option<()> {
    if value.get_ref().as_table().is_some() {
        return Some(());
    }
    key.hide_all(value);
    let problem = Problem::new(value.span(), "a secret must not be written into the configuration");
    key.context.note(problem.help(Some("use `{ env = \"NAME\" }` or `{ file = \"path\" }`".into())));
    None
}

fn secret_of_variable(table: &Table<'_>) -> Option<(Range<usize>, Vec<u8>)> {
    let name = table.text("env")?;
    // A text that is no variable name is probably the secret itself.
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name(name.get_ref()) || name.get_ref().len() > 64 {
        table.context.hide(name.span());
        let help = "a name has only letters, digits and `_`".to_owned();
        table.fault("env", name.span(), Fault::new("is not the name of an environment variable").help(Some(help)));
        return None;
    }
    let value = table.context.env(name.get_ref());
    if value.is_none() {
        table.fault("env", name.span(), Fault::new("this environment variable is not set, or not UTF-8"));
    }
    Some((name.span(), value?.into_bytes()))
}

fn secret_of_file(table: &Table<'_>) -> Option<(Range<usize>, Vec<u8>)> {
    let path = table.text("file")?;
    let mut bytes = read_file(table, "file", &path)?;
    // Editors and `echo` end a file with a newline. It is not a part of the secret.
    if bytes.ends_with(b"\n") {
        bytes.pop();
    }
    if bytes.ends_with(b"\r") {
        bytes.pop();
    }
    Some((path.span(), bytes))
}
