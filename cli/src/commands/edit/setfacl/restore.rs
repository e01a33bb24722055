//! `setfacl --restore`: restores ACLs, owners and special mode bits from the output of `getfacl`.
//!
//! Each file starts with a line `# file: PATH`, optionally `# owner:`, `# group:` and `# flags:`, then ACL entries, one
//! per line. In the path, a backslash and three octal digits are a byte.

use std::path::Path;

use anyhow::{Context as _, bail};
use xebec::{SetMetadata, Volume};

use super::{AclChange, Setfacl, read_bytes};
use crate::acl::spec::{AclEntry, Entries};
use crate::failure::AtPath;
use crate::owners::IdsByName;

/// Set-user-ID, set-group-ID and sticky.
const SPECIAL: u16 = 0o7000;

/// The saved state of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct SavedFile {
    path: Vec<u8>,
    owner: Option<String>,
    group: Option<String>,
    special: u16,
    entries: Vec<AclEntry>,
}

/// Restores from a host file.
pub(super) fn perform(
    path: &Path,
    volume: &Volume,
    report: &mut dyn FnMut(anyhow::Error),
) -> anyhow::Result<()> {
    let files = parse(&read_bytes(path)?).with_context(|| path.display().to_string())?;
    // Like -b and -m.
    let arguments = Setfacl { remove_all: true, ..Setfacl::default() };
    let mut change = AclChange::of(&arguments, volume)?;
    for file in files {
        if let Err(error) = file.restore(volume, &mut change) {
            report(error.context(AtPath(file.path.clone())));
        }
    }
    Ok(())
}

impl SavedFile {
    fn restore(&self, volume: &Volume, change: &mut AclChange<'_>) -> anyhow::Result<()> {
        let id = volume.resolve(&self.path, true)?;
        let before = volume.metadata(id)?;
        let uid = resolve(self.owner.as_deref(), &change.users, "user")?.filter(|uid| *uid != before.uid);
        let gid = resolve(self.group.as_deref(), &change.groups, "group")?.filter(|gid| *gid != before.gid);
        if uid.is_some() || gid.is_some() {
            volume.set_metadata(id, &SetMetadata { uid, gid, ..SetMetadata::default() })?;
        }
        change.modify.clone_from(&self.entries);
        change.apply(volume, id, &volume.metadata(id)?)?;
        let now = volume.metadata(id)?.permissions;
        if now & SPECIAL != self.special {
            let permissions = Some(now & !SPECIAL | self.special);
            volume.set_metadata(id, &SetMetadata { permissions, ..SetMetadata::default() })?;
        }
        Ok(())
    }
}

fn resolve(name: Option<&str>, ids: &IdsByName, kind: &str) -> anyhow::Result<Option<u32>> {
    let Some(name) = name else { return Ok(None) };
    let id = name.parse().ok().or_else(|| ids.get(name));
    let file = if kind == "user" { "passwd" } else { "group" };
    id.map(Some).with_context(|| format!("no {kind} {name:?} in /etc/{file} of the volume"))
}

fn parse(text: &[u8]) -> anyhow::Result<Vec<SavedFile>> {
    let mut files: Vec<SavedFile> = Vec::new();
    for (line, n) in text.split(|byte| *byte == b'\n').zip(1..) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(path) = line.strip_prefix(b"# file: ") {
            files.push(SavedFile { path: unquote(path), ..SavedFile::default() });
            continue;
        }
        let text = std::str::from_utf8(line).with_context(|| format!("line {n}"))?.trim();
        if text.is_empty() {
            continue;
        }
        let Some(saved) = files.last_mut() else {
            bail!("line {n}: missing \"# file: PATH\" before it (getfacl -c omits it)");
        };
        let context = || format!("line {n}");
        match text.strip_prefix('#').map(|comment| comment.trim().split_once(':')) {
            None => {
                let Entries::<true>(entries) =
                    text.parse().map_err(anyhow::Error::msg).with_context(context)?;
                saved.entries.extend(entries);
            }
            Some(Some(("owner", name))) => saved.owner = Some(name.trim().to_owned()),
            Some(Some(("group", name))) => saved.group = Some(name.trim().to_owned()),
            Some(Some(("flags", letters))) => {
                saved.special = special(letters.trim()).with_context(context)?
            }
            Some(_) => {}
        }
    }
    Ok(files)
}

/// Set-user-ID, set-group-ID and sticky, each by its letter or a dash.
fn special(letters: &str) -> anyhow::Result<u16> {
    let mut bits = 0;
    let expected = [('s', 0o4000), ('s', 0o2000), ('t', 0o1000)];
    if letters.chars().count() != expected.len() {
        bail!("flags must be three characters, such as s-t");
    }
    for (found, (letter, bit)) in letters.chars().zip(expected) {
        match found {
            '-' => {}
            found if found == letter => bits |= bit,
            _ => bail!("flags must be three characters, such as s-t"),
        }
    }
    Ok(bits)
}

/// Decodes octal escapes in a path.
fn unquote(text: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let escaped = match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        path.push(escaped.unwrap_or(*first));
        rest = after.get(if escaped.is_some() { 3 } else { 0 }..).unwrap_or_default();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_output_of_getfacl() {
        let text = b"# file: a\\040b\\012\\134\xff\n# owner: joe\n# group: 7\n# flags: s-t\nuser::rwx\n\
            user:8:rwx\t#effective:r--\ngroup::r--\nmask::r--\nother::---\ndefault:user::rwx\n\n# file: /c\nu::r\n";
        let all = parse(text).unwrap_or_else(|error| panic!("{error:#}"));
        let [first, second] = &all[..] else { panic!("{all:?}") };
        assert_eq!(first.path, b"a b\n\\\xff");
        assert_eq!((first.owner.as_deref(), first.group.as_deref()), (Some("joe"), Some("7")));
        assert_eq!((first.special, first.entries.len()), (0o5000, 6));
        assert!(first.entries[5].default);
        assert_eq!((&second.path[..], &second.owner, second.entries.len()), (&b"/c"[..], &None, 1));
        assert_eq!(unquote(b"\\08\\400\\1"), b"\\08\\400\\1");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, message) in [
            (&b"user::rwx\n"[..], "line 1: missing"),
            (b"# file: a\nuser\n", "line 2"),
            (b"# file: a\n\n# flags: st-\n", "line 3"),
            (b"# file: a\n\xff\n", "line 2"),
        ] {
            let error = parse(text).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.starts_with(message), "{error}");
        }
        assert_eq!(parse(b"\n\n").map(|all| all.len()).ok(), Some(0));
    }
}
