//! Edits the file. Comments and edits by hand stay. The file is replaced atomically, and keeps its user, its group
//! and its mode.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use toml_edit::{ArrayOfTables, Datetime, DocumentMut, Item, Table, TableLike, value};

use super::read;
use crate::admin::rfc3339;
use crate::base::time::Timestamp;
use crate::config::files::FILE_BYTES_MAX;
use crate::engine::policy::api_keys::{
    ApiKey, Digest, EditedKeys, KeyChange, KeyEdit, KeyEditError, KeyOwner, RANDOM_BYTES, digest_of, key_of,
};
use crate::engine::store::snapshot::file;

/// The first lines of a new file.
const OPENING: &str = "# API keys: a table for each owner. `weir apikeys` and the admin API edit this file, and keep comments.\n\
    # Keys are not here, only their SHA-256. `disabled = true` refuses all keys of an owner.\n\n";

/// Makes one edit of the file at `path`, which need not exist for a first key. Another edit waits meanwhile, also of
/// another process.
///
/// # Errors
/// Why the file was not changed.
pub fn edit(path: &Path, edit: &KeyEdit, now: Timestamp) -> Result<EditedKeys, KeyEditError> {
    // The target of a symlink is replaced, not the link.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let shown = path.display();
    let fault = |what: &str| KeyEditError::File(format!("`{shown}` {what}"));
    let unwritable = |error: io::Error| fault(&format!("cannot be written: {error}"));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder).map_err(unwritable)?;
    folder.lock().map_err(unwritable)?; // until it is dropped
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => OPENING.to_owned(),
        Err(error) => return Err(fault(&format!("cannot be read: {error}"))),
    };
    let owners = read(&text).map_err(|what| fault(&what))?;
    let has = |digest: &Digest| owners.iter().find(|owner| owner.keys.iter().any(|key| key.digest == *digest));
    if let KeyChange::Adopt { secret, .. } = &edit.change
        && let Some(other) = has(&digest_of(secret.as_bytes())).filter(|other| *other.name != *edit.name)
    {
        return Err(KeyEditError::Conflict(format!("it is a key of `{}`", other.name)));
    }
    let before = owners.into_iter().find(|owner| *owner.name == *edit.name);
    let secret = edit.change.makes_key().then(secret).transpose().map_err(unwritable)?;
    let digest = secret.as_ref().map(|secret| digest_of(secret.as_bytes())).unwrap_or_default();
    let after = edit.apply(before.as_ref(), digest, now)?;
    let (opening, rest) = text.strip_prefix(OPENING).map_or(("", &*text), |rest| (OPENING, rest));
    let mut document: DocumentMut = rest.parse().map_err(|_| fault("is not valid TOML"))?;
    match &after {
        None => drop(document.remove(&edit.name)),
        Some(owner) => set(&mut document, owner).ok_or_else(|| fault("has a table of another form"))?,
    }
    let text = format!("{opening}{document}");
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(fault("would be longer than 16 MiB"));
    }
    replace(path, &text).map_err(unwritable)?;
    Ok(EditedKeys { secret, before, after })
}

/// Makes a file of keys with these owners, whose keys were made at `now`.
///
/// # Errors
/// There is a file already, or it cannot be written.
pub fn create(path: &Path, owners: &[KeyOwner], now: Timestamp) -> Result<(), KeyEditError> {
    let fault = |what: &str| KeyEditError::File(format!("`{}` {what}", path.display()));
    if path.exists() {
        return Err(fault("exists already"));
    }
    let mut document = DocumentMut::new();
    for mut owner in owners.iter().cloned() {
        owner.keys.iter_mut().for_each(|key| key.created = now);
        set(&mut document, &owner).ok_or_else(|| fault("has an owner with another form"))?;
    }
    let text = format!("{OPENING}{document}");
    read(&text).map_err(|what| fault(&what))?;
    replace(path, &text).map_err(|error| fault(&format!("cannot be written: {error}")))
}

fn secret() -> io::Result<String> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(key_of(random))
}

/// Replaces the file. Weir may run as another user than the one who edits, and must be able to read it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let before = fs::metadata(path).ok();
    file::replace(path, |to| {
        if let Some(before) = before {
            let new = to.get_ref().metadata()?;
            if (new.uid(), new.gid()) != (before.uid(), before.gid()) {
                fchown(to.get_ref(), Some(before.uid()), Some(before.gid()))?;
            }
            to.get_ref().set_permissions(Permissions::from_mode(before.mode() & 0o666))?;
        }
        to.write_all(text.as_bytes())
    })?;
    Ok(())
}

/// Makes the table of an owner say the same as `owner`. `None` if the file has other forms of tables there.
fn set(document: &mut DocumentMut, owner: &KeyOwner) -> Option<()> {
    let is_new = !document.contains_key(&owner.name);
    let table = document.entry(&owner.name).or_insert_with(toml_edit::table).as_table_like_mut()?;
    if let Some(plan) = owner.plan.as_deref().filter(|_| is_new) {
        table.insert("plan", value(plan));
    }
    let keys = table.entry("keys").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    if keys.is_array() {
        *keys = std::mem::take(keys).into_array_of_tables().map(Item::ArrayOfTables).ok()?;
    }
    let keys = keys.as_array_of_tables_mut()?;
    let of = |table: &Table| table.get("sha256").and_then(Item::as_str).map(str::to_ascii_lowercase);
    let mut missing: Vec<(String, &ApiKey)> = owner.keys.iter().map(|key| (hexadecimal(&key.digest), key)).collect();
    keys.retain(|table| missing.iter().any(|(digest, _)| of(table).as_ref() == Some(digest)));
    for table in keys.iter_mut() {
        let digest = of(table);
        let at = missing.iter().position(|(known, _)| Some(known) == digest.as_ref())?;
        set_instant(table, "overlap_ends", missing.remove(at).1.overlap_ends)?;
    }
    for (digest, key) in missing {
        let mut table = Table::new();
        table.insert("sha256", value(digest));
        set_instant(&mut table, "created", Some(key.created))?;
        set_instant(&mut table, "expires", key.expires)?;
        keys.push(table);
    }
    Some(())
}

fn set_instant(table: &mut dyn TableLike, key: &str, instant: Option<Timestamp>) -> Option<()> {
    let Some(instant) = instant else { return Some(()) };
    // Whole seconds, rounded down.
    let written: Datetime = rfc3339(instant).split('.').next().map(|text| format!("{text}Z"))?.parse().ok()?;
    if table.get(key).and_then(Item::as_datetime) != Some(&written) {
        table.insert(key, value(written));
    }
    Some(())
}

fn hexadecimal(digest: &Digest) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a string cannot fail
        text
    })
}
