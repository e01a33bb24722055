//! Access control lists in their text form.
//!
//! | part | subject |
//! |---|---|
//! | this file | [`Acl`]: the entries of an ACL and changes to them |
//! | [`spec`] | entries of the command line: `u:1000:rwX,d:g::r` |
//!
//! # Invariants
//! Entries are sorted by tag and ID, each at most once.

pub mod spec;

use anyhow::bail;
use format::attr::acl::{LinuxEntry, linux_entries, tag, write_linux};

use spec::{Permissions, Subject};

/// An access ACL or a default ACL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl(Vec<LinuxEntry>);

/// How a change affects the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// Recalculate the mask unless the change sets it.
    Auto,
    /// Always recalculate the mask.
    Always,
    /// Keep the mask.
    Keep,
}

impl Acl {
    /// The minimal ACL of permission bits.
    pub fn of_mode(permissions: u16) -> Self {
        let entry = |tag, shift: u16| LinuxEntry { tag, perm: permissions >> shift & 7, id: u32::MAX };
        Self(vec![entry(tag::USER_OBJ, 6), entry(tag::GROUP_OBJ, 3), entry(tag::OTHER, 0)])
    }

    /// Parses the value of the extended attribute in Linux's format.
    pub fn of_linux(value: &[u8]) -> Result<Self, format::damage::Damage> {
        let mut entries = linux_entries(value)?;
        entries.sort_by_key(LinuxEntry::key);
        entries.dedup_by_key(|entry| entry.key());
        Ok(Self(entries))
    }

    /// Encodes the value of the extended attribute in Linux's format.
    pub fn to_linux(&self) -> Vec<u8> {
        write_linux(self.0.iter().copied())
    }

    /// The entries.
    pub fn entries(&self) -> &[LinuxEntry] {
        &self.0
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has more entries than permission bits can express.
    pub fn is_extended(&self) -> bool {
        self.0.len() > 3
    }

    /// Permissions of an entry.
    pub fn perm(&self, tag: u32) -> Option<u16> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }

    /// Permissions of an entry that the mask leaves.
    pub fn effective(&self, entry: &LinuxEntry) -> u16 {
        match entry.tag {
            tag::USER | tag::GROUP | tag::GROUP_OBJ => entry.perm & self.perm(tag::MASK).unwrap_or(7),
            _ => entry.perm,
        }
    }

    /// Sets an entry. `execute_if_useful` is the letter `X`.
    pub fn set(&mut self, subject: Subject, permissions: Permissions, is_directory: bool) {
        let any_execute = self.0.iter().any(|entry| entry.perm & 1 != 0);
        let perm =
            permissions.bits | u16::from(permissions.execute_if_useful && (is_directory || any_execute));
        let (tag, id) = subject;
        let new = LinuxEntry { tag, perm, id };
        match self.0.binary_search_by_key(&new.key(), LinuxEntry::key) {
            Ok(index) => {
                if let Some(entry) = self.0.get_mut(index) {
                    entry.perm = perm;
                }
            }
            Err(index) => self.0.insert(index, new),
        }
    }

    /// Removes an entry if it exists.
    pub fn remove(&mut self, (tag, id): Subject) {
        let key = LinuxEntry { tag, perm: 0, id }.key();
        self.0.retain(|entry| entry.key() != key);
    }

    /// Reduces the list to permission bits. The group keeps only the permissions that the mask allows.
    pub fn reduce(&mut self) {
        let mask = self.perm(tag::MASK).unwrap_or(7);
        self.0.retain(|entry| matches!(entry.tag, tag::USER_OBJ | tag::GROUP_OBJ | tag::OTHER));
        if let Some(group) = self.0.iter_mut().find(|entry| entry.tag == tag::GROUP_OBJ) {
            group.perm &= mask;
        }
    }

    /// Adds missing base entries from `other`.
    pub fn complete(&mut self, other: &Self) {
        for tag in [tag::USER_OBJ, tag::GROUP_OBJ, tag::OTHER] {
            if let (None, Some(bits)) = (self.perm(tag), other.perm(tag)) {
                self.set((tag, u32::MAX), Permissions { bits, execute_if_useful: false }, false);
            }
        }
    }

    /// Recalculates the mask from the other entries; `is_explicit`: the change set the mask itself.
    pub fn update_mask(&mut self, mask: Mask, is_explicit: bool) {
        let named = self.0.iter().any(|entry| matches!(entry.tag, tag::USER | tag::GROUP));
        let has = self.perm(tag::MASK).is_some();
        let is_masked = |entry: &&LinuxEntry| matches!(entry.tag, tag::USER | tag::GROUP | tag::GROUP_OBJ);
        let bits = match mask {
            Mask::Auto if is_explicit => return,
            Mask::Keep if has || !named => return,
            Mask::Keep => self.perm(tag::GROUP_OBJ).unwrap_or(0),
            Mask::Auto | Mask::Always if !has && !named => return,
            _ => self.0.iter().filter(is_masked).fold(0, |all, entry| all | entry.perm),
        };
        self.set((tag::MASK, u32::MAX), Permissions { bits, execute_if_useful: false }, false);
    }

    /// Fails if a required entry is missing.
    pub fn verify(&self, kind: &str) -> anyhow::Result<()> {
        for (tag, name) in [(tag::USER_OBJ, "user::"), (tag::GROUP_OBJ, "group::"), (tag::OTHER, "other::")] {
            if self.perm(tag).is_none() {
                bail!("the {kind} ACL would lack the required entry {name}");
            }
        }
        let named = self.0.iter().any(|entry| matches!(entry.tag, tag::USER | tag::GROUP));
        if named && self.perm(tag::MASK).is_none() {
            bail!("the {kind} ACL would lack mask::, which is required with named users or groups");
        }
        Ok(())
    }
}

/// Permissions as letters.
pub fn letters(perm: u16) -> String {
    [(4, 'r'), (2, 'w'), (1, 'x')]
        .map(|(bit, letter)| if perm & bit != 0 { letter } else { '-' })
        .iter()
        .collect()
}

/// Name of an entry's tag.
pub fn tag_name(tag: u32) -> &'static str {
    match tag {
        tag::USER_OBJ | tag::USER => "user",
        tag::GROUP_OBJ | tag::GROUP => "group",
        tag::MASK => "mask",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: fn(u16) -> Permissions = |bits| Permissions { bits, execute_if_useful: false };

    fn text(acl: &Acl) -> String {
        let entry = |entry: &LinuxEntry| {
            let id = if entry.id == u32::MAX { String::new() } else { entry.id.to_string() };
            format!("{}:{id}:{}", &tag_name(entry.tag)[..1], letters(entry.perm))
        };
        acl.entries().iter().map(entry).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn recalculates_keeps_and_sets_the_mask() {
        let mut list = Acl::of_mode(0o640);
        list.set((tag::USER, 7), PLAIN(7), false);
        assert!(list.verify("access").is_err());
        let mut kept = list.clone();
        list.update_mask(Mask::Auto, false);
        assert_eq!(text(&list), "u::rw-,u:7:rwx,g::r--,m::rwx,o::---");
        kept.update_mask(Mask::Keep, false);
        assert_eq!(text(&kept), "u::rw-,u:7:rwx,g::r--,m::r--,o::---");
        assert_eq!(kept.effective(&kept.entries()[1]), 4);
        list.set((tag::MASK, u32::MAX), PLAIN(1), false);
        list.update_mask(Mask::Auto, true);
        assert_eq!(list.perm(tag::MASK), Some(1));
        // Permissions that the mask removed are not restored with the mask's removal.
        list.reduce();
        assert_eq!(text(&list), "u::rw-,g::---,o::---");
        list.update_mask(Mask::Always, false);
        assert!(!list.is_extended() && list.verify("access").is_ok());
    }

    #[test]
    fn encodes_and_decodes_the_format_of_linux() {
        let mut list = Acl::of_mode(0o751);
        list.set((tag::GROUP, 9), PLAIN(5), false);
        list.set((tag::GROUP, 8), Permissions { bits: 4, execute_if_useful: true }, false);
        list.update_mask(Mask::Auto, false);
        assert_eq!(text(&list), "u::rwx,g::r-x,g:8:r-x,g:9:r-x,m::r-x,o::--x");
        assert_eq!(Acl::of_linux(&list.to_linux()), Ok(list.clone()));
        list.remove((tag::GROUP, 9));
        list.remove((tag::GROUP, 77));
        assert_eq!(text(&list), "u::rwx,g::r-x,g:8:r-x,m::r-x,o::--x");
        list.remove((tag::OTHER, u32::MAX));
        assert!(list.verify("default").unwrap_err().to_string().contains("other::"));
        list.complete(&Acl::of_mode(0o642));
        assert_eq!(list.perm(tag::OTHER), Some(2));
    }
}
