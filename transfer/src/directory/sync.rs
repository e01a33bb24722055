//! A tree in a volume becomes equal to a directory of this machine, and only what differs is changed.
//!
//! Both sides are looked at by many threads, a directory of one beside that of the other. What differs is given in
//! order to one receiver, which changes the volume while the threads look on.
//!
//! | part | does |
//! |---|---|
//! | [`Sync`] | what is wanted |
//! | `compare` | finds what differs |
//! | `contents` | whether two files hold the same |
//! | `amend` | what to change of a file that stays |
//! | `locked` | lifts what keeps files as they are, and sets it again |
//! | `update` | changes the volume |
//!
//! # Invariants
//! - A file that is not changed is not written, and contents are read only where sizes are equal and times are not (or
//!   where that is asked for).
//! - What is new of contents is made under a hidden name, and takes its place when it is stable: a power cut leaves the
//!   old file or the new one. What it may leave is a hidden file, `.xebec-sync.N`, which the next run takes away.
//! - Names of one file in the directory are names of one file in the volume, and no others are.

mod amend;
mod compare;
mod contents;
mod locked;
mod update;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base::{Ino, pipeline};
use volume::Volume;

use super::host::Folder;
use super::{Directory, Walk};
use crate::item::{Lost, split};
use crate::{Error, Overrides, Result};
use compare::{Against, Task};
use update::Update;

/// How a tree is made equal to a directory.
pub struct Sync<'s> {
    /// The directory.
    pub directory: &'s Directory,
    /// What shall be otherwise than there.
    pub overrides: &'s Overrides,
    /// What the directory does not have goes away.
    pub delete: bool,
    /// Contents are compared where sizes and times are equal, too.
    pub checksum: bool,
    /// Nothing is changed: what would be is only told.
    pub dry_run: bool,
    /// What cannot be read is left out, and the volume keeps what it has of it; who is told. Without, it is an error.
    pub unreadable: Option<&'s (dyn Fn(&Error) + std::marker::Sync)>,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// It was not there.
    Created,
    /// It was there, of another kind or with other contents.
    Replaced,
    /// What is known of it was another: owner, permissions, times, attributes, flags.
    Amended,
    /// The directory does not have it.
    Removed,
}

/// How much was done, and with a dry run how much would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Names that were not there.
    pub created: u64,
    /// Files that were replaced.
    pub replaced: u64,
    /// Files of which something else than the contents was changed.
    pub amended: u64,
    /// Names that went away, those in directories that went too.
    pub removed: u64,
    /// Names that stayed as they were.
    pub unchanged: u64,
    /// Bytes of contents that were written.
    pub bytes: u64,
    /// What is not kept, and how often.
    pub lost: BTreeMap<Lost, u64>,
    /// What could not be read, and was left out.
    pub unreadable: u64,
}

impl Done {
    /// Names that were looked at or made.
    pub fn files(&self) -> u64 {
        self.created + self.replaced + self.amended + self.unchanged
    }
}

/// Who is told what becomes of each file that changes (with its path), and how much is done.
pub type Watch<'w> = &'w mut (dyn FnMut(Option<(Step, &[u8])>, &Done) + Send);

impl Sync<'_> {
    /// Makes the tree below the directory `root` of a volume equal, with so many threads.
    ///
    /// # Errors
    /// What cannot be read, what changes meanwhile, and what the volume reports. What was done until then stays.
    pub fn run(&self, volume: &Volume, root: Ino, threads: usize, watch: Watch<'_>) -> Result<Done> {
        let folder = Folder::open_root(&self.directory.path, false, &self.directory.excludes)?;
        let device = self.directory.one_file_system.then_some(folder.stat.st_dev);
        let walk = Walk { contents: !self.dry_run, device, without: &self.directory.without };
        let against = Against { walk, volume, sync: self, listed: self.listed() };
        let mut update = Update::new(volume, root, self, watch);
        let first = vec![Task::Both(Arc::new(folder), root)];
        match pipeline::run(&against, first, &mut update, threads) {
            Ok(()) => update.finish(),
            Err(error) => {
                update.give_up();
                Err(error)
            }
        }
    }

    /// Paths of what lists of overrides make, and of the directories above.
    fn listed(&self) -> HashSet<Vec<u8>> {
        let mut listed = HashSet::new();
        for entry in self.overrides.missing().0 {
            let mut path = entry.path.as_slice();
            while let Some((parent, _)) = split(path) {
                listed.insert(path.to_vec());
                path = parent;
            }
        }
        listed
    }
}
