//! What can be told of one file, and short fingerprints of it.
//!
//! A tree's fingerprint is the sum of its files' fingerprints, and a directory's part the sum of its entries': so it
//! follows a change at the cost of the files concerned, and any number of states of a tree are told apart by one
//! number each.

use std::hash::{DefaultHasher, Hash, Hasher};

use base::time::Time;

use crate::operation::Kind;

/// The four times of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Times {
    /// Last access.
    pub accessed: Time,
    /// Last change of contents.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// Creation.
    pub born: Time,
}

/// What `stat` tells of a file, but for its number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// What it is, with the target of a symlink and the numbers of a device.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links.
    pub links: u32,
    /// Times; `None` where they are not compared.
    pub times: Option<Times>,
}

/// The fingerprint of an entry of a directory.
pub(crate) fn entry_print(name: &[u8], number: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, number).hash(&mut hasher);
    hasher.finish()
}

/// The fingerprint of a file with this number; `entries` is the sum of its entries' fingerprints.
pub(crate) fn file_print(number: u64, facts: &Facts, entries: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (number, facts, entries).hash(&mut hasher);
    hasher.finish()
}
