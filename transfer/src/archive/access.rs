//! Access control lists as text, as `tar --acls` and bsdtar write them.
//!
//! Entries end with commas or newlines: `user::rwx`, `user:1000:r-x`, `user:NAME:r-x:1000`. Names without numbers,
//! which GNU tar writes for users known to its machine, are unknown here.

use format::attr::acl::{self, LinuxEntry, tag};

/// Parses a list; returns it in the format of Linux, and whether it is equivalent to permission bits. `None` if it is
/// invalid or contains a name.
pub fn list(text: &[u8]) -> Option<(Vec<u8>, bool)> {
    let mut entries = entries(std::str::from_utf8(text).ok()?)?;
    entries.sort_unstable_by_key(LinuxEntry::key);
    let list = acl::write_linux(entries);
    let stored = acl::from_linux(&list).ok()?;
    Some((list, stored.is_mode))
}

fn entries(text: &str) -> Option<Vec<LinuxEntry>> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let parts = lines.flat_map(|line| line.split(',')).map(str::trim);
    parts.filter(|part| !part.is_empty()).map(entry).collect()
}

fn entry(text: &str) -> Option<LinuxEntry> {
    let text = text.strip_prefix("default:").unwrap_or(text);
    let mut fields = text.split(':');
    let (kind, name, permissions) = (fields.next()?, fields.next()?, fields.next()?);
    let id = fields.next().filter(|id| !id.is_empty()).unwrap_or(name);
    let perm = permissions.chars().try_fold(0, |bits, letter| {
        Some(
            bits | match letter {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                '-' => 0,
                _ => return None,
            },
        )
    })?;
    let (tag, named) = match kind {
        "user" | "u" => (tag::USER_OBJ, tag::USER),
        "group" | "g" => (tag::GROUP_OBJ, tag::GROUP),
        "mask" | "m" => (tag::MASK, tag::MASK),
        "other" | "o" => (tag::OTHER, tag::OTHER),
        _ => return None,
    };
    let is_named = !name.is_empty() && named != tag;
    let (tag, id) =
        if is_named { (named, id.parse().ok().filter(|id| *id != u32::MAX)?) } else { (tag, u32::MAX) };
    Some(LinuxEntry { tag, perm, id })
}
