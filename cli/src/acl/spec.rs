//! ACL entries on the command line, or in a file with one per line.
//!
//! `[d[efault]:][u[ser]:]NAME:PERMS`, `g[roup]:NAME:PERMS`, `m[ask]::PERMS`, `o[ther]::PERMS`. Without a name, an entry
//! applies to the owner or the owning group. `PERMS` are letters of `rwxX-`, or one octal digit.

use std::str::FromStr;

use format::attr::acl::tag;

use crate::owners::IdsByName;

/// Tag of an entry, and the ID of a named user or group.
pub type Subject = (u32, u32);

/// Permissions of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Read 4, write 2, execute 1.
    pub bits: u16,
    /// Execute only for directories and for files that someone may execute.
    pub execute_if_useful: bool,
}

/// An unresolved entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Whether it belongs to the default ACL.
    pub default: bool,
    tag: u32,
    /// A user or group by name or ID; `None` is the owner, the owning group, the mask or others.
    name: Option<String>,
    /// Absent in entries to be removed.
    pub permissions: Permissions,
}

/// Entries of a list, as words of the command line or lines of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries<const HAVE_PERMISSIONS: bool>(pub Vec<AclEntry>);

/// Entries with permissions: `u:1000:rw,g::r`.
pub type Grants = Entries<true>;

/// Entries without permissions: `u:1000,mask`.
pub type Removals = Entries<false>;

impl AclEntry {
    /// Resolves the name with the users and groups of a volume.
    ///
    /// # Errors
    /// The name does not exist.
    pub fn resolve(&self, users: &IdsByName, groups: &IdsByName) -> anyhow::Result<Subject> {
        let (named_tag, kind, ids) = match self.tag {
            tag::USER_OBJ => (tag::USER, "user", users),
            tag::GROUP_OBJ => (tag::GROUP, "group", groups),
            tag => return Ok((tag, u32::MAX)),
        };
        let Some(name) = &self.name else { return Ok((self.tag, u32::MAX)) };
        let id = name.parse().ok().filter(|id| *id != u32::MAX).or_else(|| ids.get(name));
        let id = id.ok_or_else(|| {
            let file = if kind == "user" { "passwd" } else { "group" };
            anyhow::anyhow!("no {kind} {name:?} in /etc/{file} of the volume (use a numeric ID)")
        })?;
        Ok((named_tag, id))
    }

    /// Whether it is a mask.
    pub fn is_mask(&self) -> bool {
        self.tag == tag::MASK
    }

    fn parse(text: &str, grants: bool) -> Result<Self, String> {
        let invalid = |why: &str| format!("invalid ACL entry {text:?}: {why}");
        let mut fields: Vec<&str> = text.split(':').map(str::trim).collect();
        let default = fields.len() > 1 && matches!(fields.first(), Some(&("d" | "default")));
        if default {
            fields.remove(0);
        }
        let permissions = match grants {
            true if fields.len() < 2 => return Err(invalid("missing :PERMS, as in u:1000:rw")),
            true => fields.pop().and_then(Permissions::parse),
            false => Some(Permissions::default()),
        };
        let permissions =
            permissions.ok_or_else(|| invalid("permissions must be letters of rwxX- or an octal digit"))?;
        let (tag, rest) = match fields.as_slice() {
            ["u" | "user", rest @ ..] => (tag::USER_OBJ, rest),
            ["g" | "group", rest @ ..] => (tag::GROUP_OBJ, rest),
            ["m" | "mask", rest @ ..] => (tag::MASK, rest),
            ["o" | "other", rest @ ..] => (tag::OTHER, rest),
            [name] if !name.is_empty() => (tag::USER_OBJ, &[*name][..]),
            _ => return Err(invalid("expected user:, group:, mask: or other:")),
        };
        let named = matches!(tag, tag::USER_OBJ | tag::GROUP_OBJ);
        let name = match rest {
            [] if grants && named => return Err(invalid("missing :PERMS, as in u:1000:rw")),
            [] | [""] | ["", ""] if !grants || rest.len() < 2 => None,
            [name] if named => Some((*name).to_owned()),
            [name, ""] if !grants && named => Some((*name).to_owned()),
            [_] => return Err(invalid("mask and other take no name")),
            _ if !grants => return Err(invalid("entries to be removed have no permissions")),
            _ => return Err(invalid("too many colons")),
        };
        Ok(Self { default, tag, name, permissions })
    }

    /// Parses entries separated by commas and newlines; `#` starts a comment.
    fn parse_all(text: &str, grants: bool) -> Result<Vec<Self>, String> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let entries = lines.flat_map(|line| line.split([',', ' ', '\t'])).map(str::trim);
        entries.filter(|entry| !entry.is_empty()).map(|entry| Self::parse(entry, grants)).collect()
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

impl<const HAVE_PERMISSIONS: bool> FromStr for Entries<HAVE_PERMISSIONS> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let entries = AclEntry::parse_all(text, HAVE_PERMISSIONS)?;
        if entries.is_empty() {
            return Err("no ACL entry (expected, for example, u:1000:rw)".into());
        }
        Ok(Self(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(text: &str) -> Vec<(bool, Subject, u16, bool)> {
        let ids = IdsByName::parse(b"joe:x:1001:\nroot:x:0:");
        let Entries::<true>(entries) = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let all = entries.iter().map(|entry| {
            let subject = entry.resolve(&ids, &ids).unwrap_or_else(|error| panic!("{error}"));
            (entry.default, subject, entry.permissions.bits, entry.permissions.execute_if_useful)
        });
        all.collect()
    }

    #[test]
    fn parses_entries_as_setfacl_does() {
        const NO_ID: u32 = u32::MAX;
        assert_eq!(grants("u:7:rwx"), [(false, (tag::USER, 7), 7, false)]);
        assert_eq!(grants("7:rx"), [(false, (tag::USER, 7), 5, false)]);
        assert_eq!(grants("user:joe:rX"), [(false, (tag::USER, 1001), 4, true)]);
        assert_eq!(
            grants("g::-,o:r"),
            [(false, (tag::GROUP_OBJ, NO_ID), 0, false), (false, (tag::OTHER, NO_ID), 4, false)]
        );
        assert_eq!(
            grants("default:group:joe:6, d:m::rw"),
            [(true, (tag::GROUP, 1001), 6, false), (true, (tag::MASK, NO_ID), 6, false)]
        );
        assert_eq!(grants("# file: x\nuser::rw-\nmask::r-- #effective\n").len(), 2);
        let entries = "u:joe,g:7:,mask,d:o".parse::<Removals>().unwrap().0;
        let ids = IdsByName::parse(b"joe:x:1001:");
        let subjects: Vec<Subject> = entries.iter().map(|entry| entry.resolve(&ids, &ids).unwrap()).collect();
        assert_eq!(subjects, [(tag::USER, 1001), (tag::GROUP, 7), (tag::MASK, NO_ID), (tag::OTHER, NO_ID)]);
        assert!(entries[3].default && !entries[0].default && entries[2].is_mask());
    }

    #[test]
    fn refuses_invalid_entries() {
        for text in ["", "u:7", "u:7:z", "u:7:8", "q:7:r", "m:7:r", "o:joe:r", "u:7:r:w", ":r", "# nothing"] {
            assert!(text.parse::<Grants>().is_err(), "{text}");
        }
        for text in ["", "u:7:r", "m:7"] {
            assert!(text.parse::<Removals>().is_err(), "{text}");
        }
        let ids = IdsByName::default();
        let entries = "u:joe:r".parse::<Grants>().unwrap().0;
        assert!(entries[0].resolve(&ids, &ids).unwrap_err().to_string().contains("/etc/passwd"));
    }
}
