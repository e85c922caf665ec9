//! `[identity.NAME]`: the source of an identity, and the keys that verify tokens.
//!
//! Secrets leave this module only inside a verifier. Messages never repeat them.

use std::ops::Range;
use std::sync::Arc;

use http::HeaderName;

use super::urls::jwks_url;
use crate::base::fields::{PLAIN, are_all};
use crate::config::api_keys;
use crate::config::reader::context::Context;
use crate::config::reader::{Fault, Located, Problem, Table, syntax, time_units, units, whole};
use crate::config::schema::words;
use crate::engine::policy::api_keys::ApiKeys;
use crate::engine::policy::jwt::{Algorithm, FetchedKeys, KeyMaterial, Verifier, VerifierSpec};
use crate::engine::policy::{CREDENTIALS, CertificateName, Identity, IdentitySource};

/// The parts of a key that are not an identity.
pub(super) const BUILT_IN_PARTS: [&str; 6] = ["ip", "path", "uri", "route", "host", "method"];

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
    let on_missing = table.choice("on_missing", &words::ON_MISSING);
    let kinds: Vec<_> = ["header", "tls", "jwt", "api_keys"].into_iter().filter(|key| table.has(key)).collect();
    let source = match kinds[..] {
        ["header"] => {
            let header = table.parsed("header", |name| request_header(table.context, name));
            header
                .zip(table.choice("several", &words::SEVERAL))
                .map(|(name, several)| IdentitySource::Header(name, several))
        }
        ["tls"] => certificate_name(table, shows_certificates).map(IdentitySource::Certificate),
        ["jwt"] => jwt(&table.table("jwt")),
        ["api_keys"] => api_keys(&table.table("api_keys")),
        _ => {
            let what = match kinds[..] {
                [one, other] => format!("has both `{one}` and `{other}`"),
                [] => "has none of `header`, `tls`, `jwt` and `api_keys`".into(),
                _ => "has more than two of `header`, `tls`, `jwt` and `api_keys`".into(),
            };
            let problem = Problem::new(name.span(), format!("identity `{}` {what}", name.get_ref()));
            let problem = problem.help("an identity needs exactly one of them");
            table.context.note(if kinds.is_empty() { problem.absence() } else { problem });
            None
        }
    };
    if !table.has("header") {
        table.fault_if_present("several", "only a `header` without `jwt` may occur several times");
    }
    let (source, is_plain) = (source?, table.choice("show", &words::SHOWN)?);
    let reason = match &source {
        IdentitySource::Header(name, _) if CREDENTIALS.contains(name) => Some("this header has credentials"),
        IdentitySource::Jwt { .. } => Some("the claims of tokens are always shown whole"),
        IdentitySource::ApiKeys { .. } => Some("the names of API keys are always shown whole"),
        IdentitySource::Header(..) | IdentitySource::Certificate(_) => None,
    };
    if let Some(reason) = reason.filter(|_| is_plain) {
        table.fault_if_present("show", reason);
    }
    Some(Identity { name: name.get_ref().as_str().into(), source, on_missing: on_missing?, is_plain })
}

fn certificate_name(table: &Table<'_>, shows_certificates: bool) -> Option<CertificateName> {
    if !shows_certificates {
        table.fault_at("tls", Fault::new("clients send certificates only with `server.tls.client_ca`").absence());
    }
    table.choice("tls", &words::CERTIFICATE_NAMES)
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
        let what = "Weir forwards the host of the target, and the field `host` may contain another";
        return Err((what, "use the part `host` in a key, or `match.host`").into());
    }
    if context.keeps_all_names.get() || are_all(name.as_str().as_bytes(), PLAIN) {
        return Ok(());
    }
    let what = format!("no request has `{name}`: `server.underscores` removes or refuses it");
    let dashed = name.as_str().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    Err((what, format!("name `{dashed}`, or set `server.underscores = \"keep\"`")).into())
}

fn jwt(table: &Table<'_>) -> Option<IdentitySource> {
    let (claim, algorithms) = (table.text("claim"), table.list("algorithms", units::one_of(&Algorithm::ALL)));
    let header = table.parsed("header", |name| request_header(table.context, name));
    let (keys, fetched) = keys(table, algorithms.as_deref().unwrap_or_default()).unzip();
    let (spans, keys) = keys.map(|keys| keys.into_iter().unzip::<_, _, Vec<_>, Vec<_>>()).unzip();
    let spec = whole!(VerifierSpec {
        claim,
        algorithms,
        issuer: Some(table.text("issuer")),
        audience: Some(table.text("audience")),
        require_exp: table.switch("require_exp"),
        leeway: table.parsed("leeway", time_units::duration_or_zero),
        keys,
        fetched,
    })?;
    let span = |index: usize| spans.iter().flatten().nth(index).cloned().unwrap_or(table.span());
    let verifier =
        Verifier::new(spec).map_err(|error| table.fault("keys", span(error.index), error.to_string())).ok()?;
    for skipped in verifier.skipped() {
        table.warn("keys", span(skipped.index), "skipped_keys", skipped.to_string());
    }
    Some(IdentitySource::Jwt { header: header?, verifier: Box::new(verifier) })
}

fn api_keys(table: &Table<'_>) -> Option<IdentitySource> {
    let is_forwarded = table.switch("forward");
    let header = table.parsed("header", |name| request_header(table.context, name));
    let file = table.text("file")?;
    let bytes = table.context.file(&file).map_err(|what| {
        table.fault_at("file", (what, "`weir apikeys new --name NAME` makes the file with a first key"));
    });
    let owners = syntax::text(bytes.ok()?).and_then(|text| api_keys::read(&text));
    let owners = owners.map_err(|what| table.fault_at("file", format!("`{file}` {what}"))).ok()?;
    let keys = Box::new(ApiKeys::new(table.context.path(&file), owners));
    Some(IdentitySource::ApiKeys { header: header?, keys, is_forwarded: is_forwarded? })
}

/// Keys, each with its position.
type KeysAt = Vec<(Range<usize>, KeyMaterial)>;

/// Compiles all keys, and the URL of fetched keys. `None` after an error.
fn keys(table: &Table<'_>, algorithms: &[Algorithm]) -> Option<(KeysAt, Option<Arc<FetchedKeys>>)> {
    let items = table.some_tables("keys", "Weir needs at least one key to verify tokens")?;
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
    let fetched = FetchedKeys::new(item.parsed("jwks_url", jwks_url)?, algorithms);
    if fetched.is_none() && !algorithms.is_empty() {
        item.fault_at("jwks_url", "fetched keys are public, and HS256 needs a secret key");
    }
    fetched
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
    if path.contains(['\n', '{']) || path.contains("-----BEGIN") {
        table.context.hide(table.span_of(key));
        table.fault_at(key, "must be the name of a file, not its content");
        return None;
    }
    read_file(table, key, &path)
}

fn read_file(table: &Table<'_>, key: &str, path: &str) -> Option<Vec<u8>> {
    table.context.file(path).map_err(|what| table.fault_at(key, what)).ok()
}

fn secret(key: &Table<'_>, algorithms: &[Algorithm]) -> Option<Vec<u8>> {
    secret_of(key, "secret", |bytes| match bytes.len() {
        0 => Err("this secret is empty".into()),
        length if length < HS256_SECRET_BYTES_MIN && algorithms.contains(&Algorithm::Hs256) => {
            Err(format!("this secret has {length} bytes; HS256 needs at least {HS256_SECRET_BYTES_MIN}"))
        }
        _ => Ok(bytes),
    })
}

/// Reads a secret from the variable or the file that an option names. Notes an error of `read` at that name.
pub(super) fn secret_of<T>(
    holder: &Table<'_>,
    key: &str,
    read: impl FnOnce(Vec<u8>) -> Result<T, String>,
) -> Option<T> {
    check_not_literal(holder, holder.get(key)?)?;
    let table = holder.table(key);
    let (span, bytes) = match (table.has("env"), table.has("file")) {
        (true, false) => secret_of_variable(&table)?,
        (false, true) => secret_of_file(&table)?,
        _ => {
            let problem = Problem::new(table.span(), "a secret is exactly one of `env` and `file`");
            table.context.note(problem.absence());
            return None;
        }
    };
    read(bytes).map_err(|what| table.context.note(Problem::new(span, what))).ok()
}

/// Notes a secret that is written in the configuration, and hides it from messages.
fn check_not_literal(key: &Table<'_>, value: &toml::Spanned<toml::de::DeValue<'_>>) -> Option<()> {
    if value.get_ref().as_table().is_some() {
        return Some(());
    }
    key.hide_all(value);
    let problem = Problem::new(value.span(), "a secret must not be written into the configuration");
    key.context.note(problem.help("use `{ env = \"NAME\" }` or `{ file = \"path\" }`"));
    None
}

fn secret_of_variable(table: &Table<'_>) -> Option<(Range<usize>, Vec<u8>)> {
    let (name, span) = (table.text("env")?, table.span_of("env"));
    // A text that is no variable name is probably the secret itself.
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name(&name) || name.len() > 64 {
        table.context.hide(span);
        let help = "a name has only letters, digits and `_`";
        table.fault_at("env", ("is not the name of an environment variable", help));
        return None;
    }
    let value = table.context.env(&name);
    if value.is_none() {
        table.fault_at("env", "this environment variable is not set, or not UTF-8");
    }
    Some((span, value?.into_bytes()))
}

fn secret_of_file(table: &Table<'_>) -> Option<(Range<usize>, Vec<u8>)> {
    let mut bytes = read_file(table, "file", &table.text("file")?)?;
    // Editors and `echo` end a file with a newline. It is not a part of the secret.
    for end in [b'\n', b'\r'] {
        bytes.pop_if(|last| *last == end);
    }
    Some((table.span_of("file"), bytes))
}
