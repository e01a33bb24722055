//! Extracts a tree of a volume to a directory of the host or to a tar archive, with all metadata.
//!
//! | part | does |
//! |---|---|
//! | `source` | reads files of the volume |
//! | `archive`, `contents`, `pax`, [`compress`] | write a stream of tar members |
//! | `tree`, `host`, `flags` | create files on the host |
//! | `counters` | count files, bytes, and metadata that is not preserved |
//!
//! ```no_run
//! use xebec_transfer::Extraction;
//!
//! let report = Extraction::open("disk.xfs")?.path(b"/etc")?.to_directory("etc")?;
//! println!("{} files; not preserved: {:?}", report.files, report.not_preserved);
//! # Ok::<(), xebec_transfer::Error>(())
//! ```
//!
//! # Invariants
//! - The volume is only read. A dirty log must have been replayed: [`Extraction::open`] does so in memory.
//! - Nothing outside of the target directory is created or changed (see `host`).
//! - An archive appears under its name when it is complete. After an error or a cancellation, no file with incomplete
//!   contents remains, except files that are reported because they could not be read or written.

mod archive;
pub mod compress;
mod contents;
mod counters;
mod flags;
mod host;
mod pax;
mod source;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use base::{Ino, pipeline};
use block::ReplacedFile;
use format::inode::FileType;
use read::{FinalSymlink, Inode, Visited, Volume, resolve};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use volume::image::OpenedImage;
use volume::{Access, ImageOptions};

use crate::progress::{Cancel, Progress};
use crate::{Error, Excludes, Result};
use archive::{ArchiveSink, ArchiveTask, ArchiveWork, Buffers};
use compress::{Compressed, Compression};
use counters::Counters;
use host::{CreateOptions, HostDirectory};
pub use source::{DataRun, DataRuns, FileInfo, is_safe};
use source::{FirstNames, Start};
use tree::{TreeSink, TreeTask, TreeWork};

/// An extraction. Options are set by methods; [`to_directory`](Self::to_directory), [`to_file`](Self::to_file) and
/// [`to_writer`](Self::to_writer) perform it.
pub struct Extraction<'e> {
    volume: Volume,
    start: Start,
    unfinished: BTreeSet<Ino>,
    excludes: Arc<Excludes>,
    skip_unreadable: bool,
    overwrite: bool,
    threads: usize,
    progress: &'e dyn Progress,
    cancel: Cancel,
}

/// What was extracted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtractReport {
    /// Files of all types, with each of their names.
    pub files: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Files that could not be created.
    pub failed: u64,
    /// Files and directories that could not be read, or only in part.
    pub unreadable: u64,
    /// Metadata that was not preserved, with its number: plurals with a reason, such as `owners (that takes root)`.
    pub not_preserved: BTreeMap<String, u64>,
}

impl Extraction<'static> {
    /// Extracts from the volume in an image file or block device, which is opened read-only; a dirty log is replayed in
    /// memory.
    ///
    /// # Errors
    /// [`Error::Image`], [`Error::Read`].
    pub fn open(image: impl AsRef<Path>) -> Result<Self> {
        let options = ImageOptions::new(Access::ReadOnly);
        let opened = volume::open_image(image.as_ref(), &options, &mut |_| {}).map_err(Error::Image)?;
        let OpenedImage { device, log, .. } = opened;
        let volume = Volume::open(device).map_err(|error| Error::read(b"/", error))?;
        Ok(Self::new(&volume).unfinished(log.files_unfinished()))
    }
}

impl<'e> Extraction<'e> {
    /// Extracts from an open volume, by default the whole tree on all CPUs.
    pub fn new(volume: &Volume) -> Self {
        Self {
            volume: volume.clone(),
            start: Start { ino: volume.root(), name: Vec::new() },
            unfinished: BTreeSet::new(),
            excludes: Arc::default(),
            skip_unreadable: false,
            overwrite: false,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            progress: &(),
            cancel: Cancel::default(),
        }
    }

    /// Sets the directory or file to extract. A symlink as the last component is not followed.
    ///
    /// # Errors
    /// [`Error::Read`] if the path cannot be resolved; [`Error::Bad`] if it does not end with the name of the file.
    pub fn path(mut self, path: &[u8]) -> Result<Self> {
        let failed = |error| Error::read(path, error);
        let inode: Inode = resolve(&self.volume, path, FinalSymlink::Keep).map_err(failed)?;
        let name = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or_default();
        if inode.dinode().file_type() != Some(FileType::Directory) && !is_safe(name) {
            return Err(Error::bad(path, "name the file itself"));
        }
        self.start = Start { ino: inode.ino(), name: name.to_vec() };
        Ok(self)
    }

    /// Skips files that match these patterns, relative to the directory to extract.
    #[must_use]
    pub fn excludes(mut self, excludes: &Arc<Excludes>) -> Self {
        self.excludes = Arc::clone(excludes);
        self
    }

    /// Sets the files for which a warning is reported: those with unfinished operations in the log.
    #[must_use]
    pub fn unfinished(mut self, files: BTreeSet<Ino>) -> Self {
        self.unfinished = files;
        self
    }

    /// Skips files that cannot be read completely. By default, their readable parts are extracted. For an archive, each
    /// file is then read twice.
    #[must_use]
    pub fn skip_unreadable(mut self, skip: bool) -> Self {
        self.skip_unreadable = skip;
        self
    }

    /// Replaces existing files. By default, they are reported as failed.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Sets the number of threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Reports progress and messages.
    #[must_use]
    pub fn progress(mut self, progress: &'e dyn Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Fails with [`Error::Cancelled`] after [`Cancel::cancel`].
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Extracts to a directory, which is created if necessary and gets the mode and times of the extracted one. A
    /// symlink at `to` itself is followed.
    ///
    /// # Errors
    /// [`Error::Target`], [`Error::Cancelled`]. Problems of single files are reported as messages and counted.
    pub fn to_directory(self, to: impl AsRef<Path>) -> Result<ExtractReport> {
        let to = to.as_ref();
        let failed = |action| move |error| Error::Target { path: to.into(), action, source: error };
        match std::fs::create_dir(to) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            created => created.map_err(failed("make it"))?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd =
            rustix::fs::open(to, flags, Mode::empty()).map_err(|errno| failed("open it")(errno.into()))?;
        allow_many_descriptors();
        let root = Arc::new(HostDirectory { fd, path: Vec::new() });
        let options = CreateOptions::new(self.overwrite);
        let Self { volume, start, unfinished, excludes, skip_unreadable, threads, progress, cancel, .. } =
            self;
        let counters = Counters::default();
        let work = TreeWork {
            volume: &volume,
            counters: &counters,
            options,
            visited: Visited::default(),
            excludes,
            skip_unreadable,
            unfinished,
        };
        let mut sink = TreeSink {
            root: root.clone(),
            links: FirstNames::default(),
            last: None,
            options,
            counters: &counters,
            progress,
            cancel: &cancel,
        };
        pipeline::run(&work, vec![TreeTask::Start(start, root)], &mut sink, threads)?;
        Ok(counters.into_report())
    }

    /// Extracts to an archive, which appears at `to` when it is complete.
    ///
    /// # Errors
    /// [`Error::Exists`] unless existing files are replaced; [`Error::Target`], [`Error::Output`],
    /// [`Error::Incomplete`], [`Error::Cancelled`].
    pub fn to_file(self, to: impl AsRef<Path>, compression: Compression) -> Result<ExtractReport> {
        let to = to.as_ref();
        let exists = to.symlink_metadata().is_ok();
        if exists && !self.overwrite {
            return Err(Error::Exists { path: to.into() });
        }
        // A file that another program is writing to is not replaced.
        let replaced = exists.then(|| ReplacedFile::lock(to, None)).transpose().map_err(Error::Open)?;
        let mut name = to.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.part", std::process::id()));
        let part = to.with_file_name(name);
        let failed = |action| move |source| Error::Target { path: to.into(), action, source };
        let file = File::create_new(&part).map_err(failed("make it"))?;
        let result = Compressed::new(file, compression).map_err(Error::Output).and_then(|out| {
            let (out, report) = self.to_writer(out)?;
            out.finish().map_err(Error::Output)?;
            replaced.as_ref().map_or(Ok(()), ReplacedFile::relock).map_err(Error::Open)?;
            std::fs::rename(&part, to).map_err(failed("rename it"))?;
            Ok(report)
        });
        if result.is_err() {
            // The first error is reported.
            let _ = std::fs::remove_file(&part);
        }
        result
    }

    /// Extracts to a stream as a tar archive in the POSIX (pax) format, uncompressed ([`Compressed`] compresses).
    ///
    /// # Errors
    /// [`Error::Output`] if the stream fails; [`Error::Incomplete`] if contents cannot be read that a header has
    /// announced; [`Error::Cancelled`].
    pub fn to_writer<W: Write + Send>(self, out: W) -> Result<(W, ExtractReport)> {
        let Self { volume, start, unfinished, excludes, skip_unreadable, threads, progress, cancel, .. } =
            self;
        let (buffers, counters) = (Buffers::default(), Counters::default());
        let work = ArchiveWork {
            volume: &volume,
            counters: &counters,
            buffers: &buffers,
            visited: Visited::default(),
            excludes,
            verify_first: skip_unreadable,
            unfinished,
        };
        let mut sink = ArchiveSink {
            out,
            written: 0,
            links: FirstNames::default(),
            buffers: &buffers,
            counters: &counters,
            progress,
            cancel: &cancel,
        };
        pipeline::run(&work, vec![ArchiveTask::Start(start)], &mut sink, threads)?;
        let out = sink.finish()?;
        Ok((out, counters.into_report()))
    }
}

/// Raises the limit of open files to its maximum: each directory on the path to a file is open.
pub fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, very deep trees fail with their own error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
