//! Finds what differs between two trees: in volumes, or on the host.
//!
//! | part | does |
//! |---|---|
//! | [`TreeDifference`] | options |
//! | `walk` | walks both trees, name by name |
//! | `contents` | compares contents |
//!
//! The trees are read by the sources of copies (`copy::ends`).
//!
//! # Invariants
//! - Nothing is changed, and symlinks below the two paths are not followed.
//! - Differences are reported in the order of paths, each path once. Memory is bounded by the names of the directories
//!   on one path, and by one number for each directory.

mod contents;
mod walk;

use std::collections::BTreeSet;

use base::Ino;
use base::time::Time;
use format::inode::FileType;
use volume::DeviceNumber;

use crate::copy::ends::SourceEnd;
use crate::copy::host::HostEnd;
use crate::copy::reader::ReaderEnd;
use crate::copy::volume::VolumeEnd;
use crate::copy::{CopyReason, CopySource};
use crate::options::setters;
use crate::{Cancel, Progress, Result};
use walk::DifferenceWalk;

/// A tree: where it is, and the path of its root.
#[derive(Clone)]
pub struct ComparedTree<'d> {
    /// The volume, or the host.
    pub source: CopySource<'d>,
    /// Path of the root. A symlink is followed.
    pub path: Vec<u8>,
    /// Files with unfinished operations in the log of a [`CopySource::Reader`].
    pub unfinished: BTreeSet<Ino>,
}

/// One of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeSide {
    /// The first one.
    Old,
    /// The second one.
    New,
}

/// What can differ in a file that both trees have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileProperty {
    /// File type.
    Type,
    /// Contents of a regular file: its size, or its bytes.
    Contents,
    /// Target of a symlink.
    Target,
    /// Number of a device.
    Device,
    /// Permissions, set-ID bits and sticky bit. Those of symlinks are not compared.
    Mode,
    /// Owner and group.
    Owner,
    /// Extended attributes and ACLs.
    Attributes,
    /// Modification time (mtime).
    Modified,
}

impl FileProperty {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Type,
        Self::Contents,
        Self::Target,
        Self::Device,
        Self::Mode,
        Self::Owner,
        Self::Attributes,
        Self::Modified,
    ];
}

/// Metadata of a file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferentFile {
    /// File type.
    pub kind: FileType,
    /// Size of a regular file in bytes, otherwise 0.
    pub size: u64,
    /// Lower twelve bits of the mode.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time (mtime).
    pub modified: Time,
    /// Number of a device.
    pub device: DeviceNumber,
    /// Target of a symlink, if it was compared.
    pub target: Option<Vec<u8>>,
}

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path below the roots; empty for the roots.
    pub path: Vec<u8>,
    /// The file in the first tree, if it has one.
    pub old: Option<DifferentFile>,
    /// The file in the second tree, if it has one.
    pub new: Option<DifferentFile>,
    /// What differs, if both have one.
    pub properties: BTreeSet<FileProperty>,
    /// Names of attributes that differ.
    pub attributes: Vec<Vec<u8>>,
}

/// An event of a comparison. Paths are those below the roots.
#[derive(Debug)]
pub enum DifferenceEvent {
    /// A file differs.
    Different(Difference),
    /// A file cannot be read, and is not compared completely.
    Failed {
        /// The tree.
        side: TreeSide,
        /// The file.
        path: Vec<u8>,
        /// The reason.
        reason: CopyReason,
    },
    /// The log has an unfinished operation on a file, whose contents may be inconsistent.
    Unfinished {
        /// The tree.
        side: TreeSide,
        /// The file.
        path: Vec<u8>,
    },
}

/// Totals of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DifferenceReport {
    /// Names that both trees have, or one of them.
    pub files: u64,
    /// Files of the second tree only.
    pub added: u64,
    /// Files of the first tree only.
    pub removed: u64,
    /// Files that both have, and that differ.
    pub changed: u64,
    /// Files with other contents, among those.
    pub rewritten: u64,
    /// Sizes of added files, and the new sizes of rewritten ones.
    pub bytes_added: u64,
    /// Sizes of removed files, and the old sizes of rewritten ones.
    pub bytes_removed: u64,
    /// Files that could not be compared.
    pub failed: u64,
}

impl DifferenceReport {
    /// Whether no difference was found.
    pub fn is_equal(&self) -> bool {
        self.added + self.removed + self.changed == 0
    }
}

/// A comparison of two trees. Options are set by methods; [`run`](Self::run) performs it.
pub struct TreeDifference<'d> {
    old: ComparedTree<'d>,
    new: ComparedTree<'d>,
    compared: BTreeSet<FileProperty>,
    progress: &'d dyn Progress,
    cancel: Cancel,
}

impl<'d> TreeDifference<'d> {
    /// Compares everything except modification times.
    pub fn new(old: ComparedTree<'d>, new: ComparedTree<'d>) -> Self {
        let compared = FileProperty::ALL.into_iter().filter(|property| *property != FileProperty::Modified);
        Self { old, new, compared: compared.collect(), progress: &(), cancel: Cancel::default() }
    }

    setters! {
        /// Sets what is compared. File types always are.
        compared: BTreeSet<FileProperty>;
        /// Reports the number of files and bytes.
        progress: &'d dyn Progress;
        /// Fails with [`Error::Cancelled`](crate::Error::Cancelled) after [`Cancel::cancel`] of a clone.
        cancel: Cancel;
    }

    /// Compares the trees.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::Error::Cancelled). Files that cannot be read are events, and counted.
    pub fn run(&self, events: &mut dyn FnMut(DifferenceEvent)) -> Result<DifferenceReport> {
        match self.old.source {
            CopySource::Host => self.run_from(&HostEnd::default(), events),
            CopySource::Volume(volume) => self.run_from(&VolumeEnd { volume, device: OLD_DEVICE }, events),
            CopySource::Reader(volume) => {
                let unfinished = &self.old.unfinished;
                self.run_from(&ReaderEnd { volume, device: OLD_DEVICE, unfinished }, events)
            }
        }
    }

    fn run_from<S: SourceEnd>(
        &self,
        old: &S,
        events: &mut dyn FnMut(DifferenceEvent),
    ) -> Result<DifferenceReport> {
        match self.new.source {
            CopySource::Host => self.run_between(old, &HostEnd::default(), events),
            CopySource::Volume(volume) => {
                self.run_between(old, &VolumeEnd { volume, device: NEW_DEVICE }, events)
            }
            CopySource::Reader(volume) => {
                let unfinished = &self.new.unfinished;
                self.run_between(old, &ReaderEnd { volume, device: NEW_DEVICE, unfinished }, events)
            }
        }
    }

    fn run_between<S: SourceEnd, T: SourceEnd>(
        &self,
        old: &S,
        new: &T,
        events: &mut dyn FnMut(DifferenceEvent),
    ) -> Result<DifferenceReport> {
        DifferenceWalk::new(self, old, new, events).run()
    }

    /// The host shows attributes of the namespace `trusted` to root only.
    fn ignores_trusted(&self) -> bool {
        let is_host = |tree: &ComparedTree<'_>| matches!(tree.source, CopySource::Host);
        (is_host(&self.old) || is_host(&self.new)) && !rustix::process::geteuid().is_root()
    }
}

/// Device numbers in the identities of files of volumes; no host device has them.
const OLD_DEVICE: u64 = u64::MAX;
const NEW_DEVICE: u64 = u64::MAX - 1;
