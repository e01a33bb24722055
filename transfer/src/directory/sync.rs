//! A tree in a volume becomes equal to a directory of this machine, and only what differs is changed.
//!
//! Both sides are looked at by many threads, a directory of one beside that of the other. What differs is given in
//! order to one receiver, which changes the volume while the threads look on.
//!
//! | part | does |
//! |---|---|
//! | [`TreeSync`] | options |
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
use crate::{Cancel, Error, Overrides, Progress, Result};
use compare::{Against, Task};
use update::Update;

/// The synchronization of a tree in a volume to a directory.
pub struct TreeSync<'s> {
    /// The source.
    pub directory: &'s Directory,
    /// Overrides of metadata.
    pub overrides: &'s Overrides,
    /// Delete files that the source does not have.
    pub delete: bool,
    /// Compare contents even if sizes and times are equal.
    pub checksum: bool,
    /// Report changes without making them.
    pub dry_run: bool,
    /// Keep the volume's version of unreadable files, with a message. Otherwise they are errors.
    pub skip_unreadable: bool,
    /// Receives messages.
    pub progress: &'s dyn Progress,
    /// Cancels the synchronization between two files.
    pub cancel: Cancel,
}

/// What was done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncAction {
    /// It did not exist.
    Created,
    /// Its type or contents differed.
    Replaced,
    /// Its metadata differed: owner, permissions, times, attributes, flags.
    Amended,
    /// The source does not have it.
    Removed,
}

/// What was done, or would be done by a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncReport {
    /// Files that were created.
    pub created: u64,
    /// Files that were replaced.
    pub replaced: u64,
    /// Files whose metadata was changed.
    pub amended: u64,
    /// Files that were removed, including those in removed directories.
    pub removed: u64,
    /// Files that were equal.
    pub unchanged: u64,
    /// Bytes of contents that were written.
    pub bytes: u64,
    /// Metadata that was not preserved, by type.
    pub lost: BTreeMap<Lost, u64>,
    /// Unreadable files that were skipped.
    pub unreadable: u64,
}

impl SyncReport {
    /// Number of files that were compared or created.
    pub fn files(&self) -> u64 {
        self.created + self.replaced + self.amended + self.unchanged
    }
}

/// Receives the action and path of each file that changes, and the totals so far.
pub type Watch<'w> = &'w mut (dyn FnMut(Option<(SyncAction, &[u8])>, &SyncReport) + Send);

impl<'s> TreeSync<'s> {
    /// Deletes files that the source does not have, and compares contents only if sizes are equal and times differ.
    pub fn new(directory: &'s Directory, overrides: &'s Overrides) -> Self {
        Self {
            directory,
            overrides,
            delete: true,
            checksum: false,
            dry_run: false,
            skip_unreadable: false,
            progress: &(),
            cancel: Cancel::default(),
        }
    }

    /// Synchronizes the tree below the directory `root` of a volume.
    ///
    /// # Errors
    /// Unreadable or changing sources, failures of the volume, [`Error::Cancelled`]. Changes made until then remain; no
    /// file has incomplete contents.
    pub fn run(&self, volume: &Volume, root: Ino, threads: usize, watch: Watch<'_>) -> Result<SyncReport> {
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
