//! Copies files and trees between the host and volumes, with the semantics of GNU cp.
//!
//! | part | does |
//! |---|---|
//! | [`TreeCopy`] | options |
//! | [`CopyRules`] | what is followed, preserved and overwritten |
//! | [`CopyError`] | why a file was not copied |
//! | `engine` | copies each file |
//! | `ends` | the traits of sources and targets |
//! | `host`, `volume`, `reader` | the host, an open volume, a volume that is read without the engine |
//!
//! Unlike [`Extraction`](crate::Extraction), [`TreeSync`](crate::TreeSync) and [`ImageBuilder`](crate::ImageBuilder),
//! which are faster, a copy merges trees into existing ones by rules, and runs on one thread.
//!
//! # Invariants
//! - A file that fails is reported, and the others are copied.
//! - Contents of unreadable files: with [`CopyRules::ignore_unreadable`], nothing remains of them, and an existing
//!   target is not changed. Without, the part before the first error remains, as with GNU cp.
//! - Cancellation: an incomplete new file is removed, and a file that is being replaced is completed first. The
//!   directories on the path to it may lack metadata.
//! - Below the paths of the caller, symlinks of the host in the source are followed only with [`Follow::Always`], and
//!   no directory of the target is entered through one. An existing file of the target that is a symlink to a regular
//!   file is written through, as by GNU cp, unless [`CopyRules`] say that it is removed first.

pub(crate) mod ends;
mod engine;
pub(crate) mod error;
pub(crate) mod host;
pub(crate) mod reader;
mod rules;
pub(crate) mod volume;

use std::collections::BTreeSet;

use ::volume::Volume;
use base::Ino;
use format::inode::FileType;

use self::volume::VolumeEnd;
use crate::options::setters;
use crate::{Cancel, Error, Excludes, Progress, Result};
use ends::{Location, SourceEnd, TargetEnd, joined};
use engine::Copier;
pub use error::{CopyError, CopyReason, CopySide};
use host::HostEnd;
use reader::ReaderEnd;
pub use rules::{CopyRules, Follow, Preserve};

/// Where files are copied from.
#[derive(Clone, Copy)]
pub enum CopySource<'c> {
    /// The host. Paths are relative to the working directory.
    Host,
    /// An open volume. Files that are copied within one volume share their blocks if possible.
    Volume(&'c Volume),
    /// A volume that is read without the engine, also a damaged one.
    Reader(&'c read::Volume),
}

impl<'c> From<&'c Volume> for CopySource<'c> {
    fn from(volume: &'c Volume) -> Self {
        Self::Volume(volume)
    }
}

impl<'c> From<&'c read::Volume> for CopySource<'c> {
    fn from(volume: &'c read::Volume) -> Self {
        Self::Reader(volume)
    }
}

/// Where files are copied to.
#[derive(Clone, Copy)]
pub enum CopyTarget<'c> {
    /// The host. Paths are relative to the working directory. New files belong to the user of the process and get modes
    /// by its umask.
    Host,
    /// An open volume. New files belong to root and get modes by a umask of 022.
    Volume(&'c Volume),
}

impl<'c> From<&'c Volume> for CopyTarget<'c> {
    fn from(volume: &'c Volume) -> Self {
        Self::Volume(volume)
    }
}

/// Whether sources are copied into the target, under their names, or to the target itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyInto {
    /// Into an existing directory; to the target itself, if it is not a directory and there is one source.
    #[default]
    IfDirectory,
    /// Into the target, which must be a directory.
    Always,
    /// To the target itself, even if it is a directory. Requires one source.
    Never,
}

/// An event of a copy. Paths are those that the caller has named, with names below them.
#[derive(Debug)]
pub enum CopyEvent {
    /// A file is being copied, or a directory created.
    Copying {
        /// The source.
        from: Vec<u8>,
        /// The target.
        to: Vec<u8>,
    },
    /// A file was not copied, or not completely.
    Failed(CopyError),
    /// An unreadable file was skipped.
    Skipped(CopyError),
    /// A source directory was copied to the same target before.
    Repeated {
        /// The source.
        path: Vec<u8>,
    },
    /// A part of a directory or of the attributes of a file is damaged; the rest is copied. Reported again each time
    /// that it is read.
    Damaged {
        /// The source.
        path: Vec<u8>,
        /// The damage.
        error: read::Error,
    },
    /// A directory has an entry with an invalid name, which is not copied.
    InvalidName {
        /// The source directory.
        path: Vec<u8>,
    },
    /// The log has an unfinished operation on a file, whose copy may be inconsistent.
    Unfinished {
        /// The source.
        path: Vec<u8>,
    },
}

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Files of all types, with each of their names; of directories, those that were created.
    pub files: u64,
    /// Bytes of contents that were written, without holes and shared blocks.
    pub bytes: u64,
    /// Files that failed.
    pub failed: u64,
    /// Unreadable files that were skipped.
    pub unreadable: u64,
    /// Extended attributes and ACLs that could not be preserved.
    pub not_preserved: u64,
}

/// A copy of files and trees. Options are set by methods; [`run`](Self::run) performs it.
pub struct TreeCopy<'c> {
    from: CopySource<'c>,
    to: CopyTarget<'c>,
    rules: CopyRules,
    into_target: CopyInto,
    excludes: Excludes,
    unfinished: BTreeSet<Ino>,
    progress: &'c dyn Progress,
    cancel: Cancel,
}

impl<'c> TreeCopy<'c> {
    /// Copies from a source to a target.
    pub fn new(from: impl Into<CopySource<'c>>, to: impl Into<CopyTarget<'c>>) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
            rules: CopyRules::default(),
            into_target: CopyInto::default(),
            excludes: Excludes::default(),
            unfinished: BTreeSet::new(),
            progress: &(),
            cancel: Cancel::default(),
        }
    }

    setters! {
        /// Sets what is followed, preserved and overwritten.
        rules: CopyRules;
        /// Sets whether sources are copied into the target.
        into_target: CopyInto;
        /// Skips files that match these patterns: relative to a source that is a directory, or by the name of another
        /// source.
        excludes: Excludes;
        /// Sets the files of a [`CopySource::Reader`] for which [`CopyEvent::Unfinished`] is reported.
        unfinished: BTreeSet<Ino>;
        /// Reports the number of files and bytes.
        progress: &'c dyn Progress;
        /// Fails with [`Error::Cancelled`] after [`Cancel::cancel`] of a clone.
        cancel: Cancel;
    }

    /// Copies sources to a target. A source without a last name (`/`, `.`, `..`) stands for the contents of the
    /// directory.
    ///
    /// Each directory on the path to a file of the host is open: very deep trees need a higher limit of open files
    /// (`RLIMIT_NOFILE`) than the usual 1024.
    ///
    /// # Errors
    /// [`Error::Copy`] if nothing can be copied to the target, [`Error::Cancelled`]. Problems of single files are
    /// events and counted.
    pub fn run<P: AsRef<[u8]>>(
        &self,
        sources: &[P],
        target: impl AsRef<[u8]>,
        events: &mut dyn FnMut(CopyEvent),
    ) -> Result<CopyReport> {
        let sources: Vec<_> = sources.iter().map(AsRef::as_ref).collect();
        let target = target.as_ref();
        match self.to {
            CopyTarget::Host => self.run_to(&HostEnd::default(), &sources, target, events),
            CopyTarget::Volume(volume) => self.run_to(&target_end(volume), &sources, target, events),
        }
    }

    /// Checks the target as [`run`](Self::run) does before it copies anything.
    ///
    /// # Errors
    /// [`Error::Copy`].
    pub fn check_target(&self, source_count: usize, target: impl AsRef<[u8]>) -> Result<()> {
        let checked = match self.to {
            CopyTarget::Host => self.is_into(&HostEnd::default(), source_count, target.as_ref()),
            CopyTarget::Volume(volume) => self.is_into(&target_end(volume), source_count, target.as_ref()),
        };
        checked.map(|_| ())
    }

    fn run_to<T: TargetEnd>(
        &self,
        to: &T,
        sources: &[&[u8]],
        target: &[u8],
        events: &mut dyn FnMut(CopyEvent),
    ) -> Result<CopyReport> {
        match self.from {
            CopySource::Host => self.run_between(&HostEnd::default(), to, sources, target, events),
            CopySource::Volume(volume) => {
                let is_target = matches!(self.to, CopyTarget::Volume(to) if std::ptr::eq(to, volume));
                let device = if is_target { TARGET_DEVICE } else { SOURCE_DEVICE };
                self.run_between(&VolumeEnd { volume, device }, to, sources, target, events)
            }
            CopySource::Reader(volume) => {
                let from = ReaderEnd { volume, device: SOURCE_DEVICE, unfinished: &self.unfinished };
                self.run_between(&from, to, sources, target, events)
            }
        }
    }

    fn run_between<S: SourceEnd, T: TargetEnd>(
        &self,
        from: &S,
        to: &T,
        sources: &[&[u8]],
        target: &[u8],
        events: &mut dyn FnMut(CopyEvent),
    ) -> Result<CopyReport> {
        if sources.is_empty() {
            return Ok(CopyReport::default());
        }
        let into = self.is_into(to, sources.len(), target)?;
        let mut copier = Copier::new(from, to, self, sources.len() > 1, events);
        for source in sources {
            let to = match last_name(source).filter(|_| into) {
                Some(name) => joined(target, name),
                None => target.to_vec(),
            };
            copier.copy(Location::path(source), Location::path(&to))?;
        }
        Ok(copier.finish())
    }

    /// Whether sources are copied into the target directory, and not to the target itself.
    fn is_into<T: TargetEnd>(&self, to: &T, source_count: usize, target: &[u8]) -> Result<bool> {
        let failed = |reason| Error::Copy(Box::new(CopyError::of_target(target, reason)));
        if self.into_target == CopyInto::Never {
            return if source_count == 1 { Ok(false) } else { Err(failed(CopyReason::SeveralSources)) };
        }
        let existing = to.stat(&Location::path(target), true).map_err(failed)?;
        let is_directory = existing.as_ref().is_some_and(|existing| existing.kind == FileType::Directory);
        if !is_directory && (source_count > 1 || self.into_target == CopyInto::Always) {
            return Err(failed(match existing {
                Some(_) => CopyReason::TargetNotDirectory,
                None => CopyReason::TargetMissing,
            }));
        }
        Ok(is_directory)
    }
}

/// Device number in the identities of files of a target; no host device has it.
const TARGET_DEVICE: u64 = u64::MAX;
/// Device number in the identities of files of a source volume that is not the target.
const SOURCE_DEVICE: u64 = u64::MAX - 1;

fn target_end(volume: &Volume) -> VolumeEnd<'_> {
    VolumeEnd { volume, device: TARGET_DEVICE }
}

/// Last name of a path; `None` for the root, `.` and `..`.
fn last_name(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty())?;
    (!matches!(name, b"." | b"..")).then_some(name)
}
