//! Synchronizes a tree in a volume to a directory of the host; only differences are written.
//!
//! Many threads compare the two trees, directory by directory. One receiver gets the differences in order and changes
//! the volume, while the threads continue.
//!
//! | part | does |
//! |---|---|
//! | [`TreeSync`] | options |
//! | `compare` | finds what differs |
//! | `contents` | compares contents |
//! | `amend` | changes of metadata |
//! | `locked` | clears immutable and append-only flags, and sets them again |
//! | `update` | changes the volume |
//!
//! # Invariants
//! - Files that are equal are not written. Contents are read only if sizes are equal and times differ (or with
//!   `checksum`).
//! - New contents are written under a hidden name, which replaces the file when they are stable: a power cut leaves the
//!   old file or the new one. It may leave a hidden file `.xebec-sync.N`, which the next run removes.
//! - Hard links in the directory are hard links in the volume, and there are no others.

mod amend;
mod compare;
mod contents;
mod locked;
mod update;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base::pipeline;
use volume::{FileId, Volume};

use super::host::Folder;
use super::{Directory, WAITING, Walk};
use crate::item::{Loss, split};
use crate::{Cancel, Overrides, Progress, Result};
use compare::{CompareTask, Comparison};
use update::Update;

/// Part of the volume's memory budget, as a divisor, that waits to be written at most.
const WAITING_PART: u64 = 8;

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
    pub lost: BTreeMap<Loss, u64>,
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
    /// Unreadable or changing sources, failures of the volume, [`Error::Cancelled`](crate::Error::Cancelled). Changes
    /// made until then remain; no file has incomplete contents.
    pub fn run(&self, volume: &Volume, root: FileId, threads: usize, watch: Watch<'_>) -> Result<SyncReport> {
        let folder = Folder::open_root(&self.directory.path, false, &self.directory.excludes)?;
        let device = self.directory.one_file_system.then_some(folder.stat.st_dev);
        // What was read, and waits to be written, is memory beside that of the volume's caches.
        let part = volume.statistics().memory.budget / WAITING_PART;
        let waiting = usize::try_from(part).unwrap_or(usize::MAX).min(WAITING);
        let walk = Walk { contents: !self.dry_run, device, without: &self.directory.without, waiting };
        let comparison = Comparison { walk, volume, sync: self, listed: self.listed() };
        let mut update = Update::new(volume, root, self, watch);
        let first = vec![CompareTask::Both(Arc::new(folder), root.ino)];
        match pipeline::run(&comparison, first, &mut update, threads) {
            Ok(()) => update.finish(),
            Err(error) => {
                update.abort();
                Err(error)
            }
        }
    }

    /// Paths of the files in lists of overrides, and of their parent directories.
    fn listed(&self) -> HashSet<Vec<u8>> {
        let mut listed = HashSet::new();
        for mut path in self.overrides.created_paths() {
            while let Some((parent, _)) = split(path) {
                listed.insert(path.to_vec());
                path = parent;
            }
        }
        listed
    }
}
