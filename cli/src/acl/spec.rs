//! ACL entries on the command line, or in a file with one per line.
//!
//! `[d[efault]:][u[ser]:]NAME:PERMS`, `g[roup]:NAME:PERMS`, `m[ask]::PERMS`, `o[ther]::PERMS`. Without a name, an entry
//! applies to the owner or the owning group. `PERMS` are letters of `rwxX-`, or one octal digit.

use std::str::FromStr;

use format::attr::acl::tag;

use crate::owners::Numbers;

/// Tag of an entry, and the ID of a named user or group.
pub type Who = (u32, u32);

/// What an entry allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Read 4, write 2, execute 1.
    pub bits: u16,
    /// Execute only for directories and for files that someone may execute.
    pub execute_if_useful: bool,
}

/// An unresolved entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether it belongs to the default ACL.
    pub default: bool,
    tag: u32,
    /// A user or group by name or ID; `None` is the owner, the owning group, the mask or others.
    name: Option<String>,
    /// Absent in entries to be removed.
    pub permissions: Permissions,
}

/// Entries with permissions: `u:1000:rw,g::r`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(pub Vec<Entry>);

/// Entries without permissions: `u:1000,mask`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removals(pub Vec<Entry>);

impl Entry {
    /// Resolves the name with the users and groups of a volume.
    ///
    /// # Errors
    /// The name does not exist.
    pub fn who(&self, users: &Numbers, groups: &Numbers) -> anyhow::Result<Who> {
        let (named, kind, numbers) = match self.tag {
            tag::USER_OBJ => (tag::USER, "user", users),
            tag::GROUP_OBJ => (tag::GROUP, "group", groups),
            tag => return Ok((tag, u32::MAX)),
        };
        let Some(name) = &self.name else { return Ok((self.tag, u32::MAX)) };
        let number = name.parse().ok().filter(|number| *number != u32::MAX).or_else(|| numbers.get(name));
        let number = number.ok_or_else(|| {
            let file = if kind == "user" { "passwd" } else { "group" };
            anyhow::anyhow!("no {kind} {name:?} in /etc/{file} of the volume (use a numeric ID)")
        })?;
        Ok((named, number))
    }

    /// Whether it is a mask.
    pub fn is_mask(&self) -> bool {
        self.tag == tag::MASK
    }

    fn parse(text: &str, grants: bool) -> Result<Self, String> {
        let bad = |why: &str| format!("invalid ACL entry {text:?}: {why}");
        let mut fields: Vec<&str> = text.split(':').map(str::trim).collect();
        let takes = |fields: &mut Vec<&str>, words: &[&str]| {
            let first = fields.first().is_some_and(|field| words.contains(field)) && fields.len() > 1;
            if first {
                fields.remove(0);
            }
            first
        };
        let default = takes(&mut fields, &["d", "default"]);
        let permissions = match grants {
            true if fields.len() < 2 => return Err(bad("missing :PERMS, as in u:1000:rw")),
            true => fields.pop().and_then(Permissions::parse),
            false => Some(Permissions::default()),
        };
        let permissions =
            permissions.ok_or_else(|| bad("permissions must be letters of rwxX- or an octal digit"))?;
        let (tag, rest) = match fields.as_slice() {
            ["u" | "user", rest @ ..] => (tag::USER_OBJ, rest),
            ["g" | "group", rest @ ..] => (tag::GROUP_OBJ, rest),
            ["m" | "mask", rest @ ..] => (tag::MASK, rest),
            ["o" | "other", rest @ ..] => (tag::OTHER, rest),
            [name] if !name.is_empty() => (tag::USER_OBJ, &[*name][..]),
            _ => return Err(bad("expected user:, group:, mask: or other:")),
        };
        let named = matches!(tag, tag::USER_OBJ | tag::GROUP_OBJ);
        let name = match rest {
            [] if grants && named => return Err(bad("missing :PERMS, as in u:1000:rw")),
            [] | [""] | ["", ""] if !grants || rest.len() < 2 => None,
            [name] if named => Some((*name).to_owned()),
            [name, ""] if !grants && named => Some((*name).to_owned()),
            [_] => return Err(bad("mask and other take no name")),
            _ if !grants => return Err(bad("entries to be removed have no permissions")),
            _ => return Err(bad("too many colons")),
        };
        Ok(Self { default, tag, name, permissions })
    }

    /// Parses entries separated by commas and newlines; `#` starts a comment.
    fn parse_all(text: &str, grants: bool) -> Result<Vec<Self>, String> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let parts = lines.flat_map(|line| line.split([',', ' ', '\t'])).map(str::trim);
        parts.filter(|part| !part.is_empty()).map(|part| Self::parse(part, grants)).collect()
    }
}

impl Permissions {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(bits @ 0..=7) = text.parse() {
            return Some(Self { bits, execute_if_useful: false });
        }
        let mut permissions = Self::default();
        for letter in text.chars() {
            match letter {
                'r' => permissions.bits |= 4,
                'w' => permissions.bits |= 2,
                'x' => permissions.bits |= 1,
                'X' => permissions.execute_if_useful = true,
                '-' => {}
                _ => return None,
            }
        }
        Some(permissions)
    }
}

fn some(entries: Vec<Entry>) -> Result<Vec<Entry>, String> {
    if entries.is_empty() {
        Err("no ACL entry (expected, for example, u:1000:rw)".into())
    } else {
        Ok(entries)
    }
}

impl FromStr for Grants {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Entry::parse_all(text, true).and_then(some).map(Self)
    }
}

impl FromStr for Removals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Entry::parse_all(text, false).and_then(some).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(text: &str) -> Vec<(bool, Who, u16, bool)> {
        let numbers = Numbers::parse(b"joe:x:1001:\nroot:x:0:");
        let Grants(entries) = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let all = entries.iter().map(|entry| {
            let who = entry.who(&numbers, &numbers).unwrap_or_else(|error| panic!("{error}"));
            (entry.default, who, entry.permissions.bits, entry.permissions.execute_if_useful)
        });
        all.collect()
    }

    #[test]
    fn entries_are_read_as_setfacl_reads_them() {
        const NOBODY: u32 = u32::MAX;
        assert_eq!(grants("u:7:rwx"), [(false, (tag::USER, 7), 7, false)]);
        assert_eq!(grants("7:rx"), [(false, (tag::USER, 7), 5, false)]);
        assert_eq!(grants("user:joe:rX"), [(false, (tag::USER, 1001), 4, true)]);
        assert_eq!(
            grants("g::-,o:r"),
            [(false, (tag::GROUP_OBJ, NOBODY), 0, false), (false, (tag::OTHER, NOBODY), 4, false)]
        );
        assert_eq!(
            grants("default:group:joe:6, d:m::rw"),
            [(true, (tag::GROUP, 1001), 6, false), (true, (tag::MASK, NOBODY), 6, false)]
        );
        assert_eq!(grants("# file: x\nuser::rw-\nmask::r-- #effective\n").len(), 2);
        let Removals(entries) = "u:joe,g:7:,mask,d:o".parse().unwrap();
        let numbers = Numbers::parse(b"joe:x:1001:");
        let who: Vec<Who> = entries.iter().map(|entry| entry.who(&numbers, &numbers).unwrap()).collect();
        assert_eq!(who, [(tag::USER, 1001), (tag::GROUP, 7), (tag::MASK, NOBODY), (tag::OTHER, NOBODY)]);
        assert!(entries[3].default && !entries[0].default && entries[2].is_mask());
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for text in ["", "u:7", "u:7:z", "u:7:8", "q:7:r", "m:7:r", "o:joe:r", "u:7:r:w", ":r", "# nothing"] {
            assert!(text.parse::<Grants>().is_err(), "{text}");
        }
        for text in ["", "u:7:r", "m:7"] {
            assert!(text.parse::<Removals>().is_err(), "{text}");
        }
        let numbers = Numbers::default();
        let Grants(entries) = "u:joe:r".parse().unwrap();
        assert!(entries[0].who(&numbers, &numbers).unwrap_err().to_string().contains("/etc/passwd"));
    }
}
