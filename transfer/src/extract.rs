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
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Ino, pipeline};
use block::{NewFile, OpenError, OpenOptions, ReplacedFile};
use format::inode::FileType;
use read::{FinalSymlink, Inode, Visited, Volume, resolve};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use volume::image::OpenedImage;
use volume::{Access, ImageOptions};

use crate::options::{setters, thread_count};
use crate::progress::{Cancel, Progress};
use crate::{Error, Excludes, Result};
use archive::{ArchiveSink, ArchiveTask, ArchiveWork, Buffers};
use compress::{Compressed, Compression};
use counters::Counters;
use host::{CreateOptions, HostDirectory};
pub(crate) use source::{DataRuns, FileInfo, is_safe};
use source::{FirstNames, Start};
use tree::{TreeSink, TreeTask, TreeWork};

/// An extraction. Options are set by methods; [`to_directory`](Self::to_directory), [`to_file`](Self::to_file) and
/// [`to_writer`](Self::to_writer) perform it.
pub struct Extraction<'e> {
    volume: Volume,
    start: Start,
    unfinished: BTreeSet<Ino>,
    excludes: Excludes,
    skip_unreadable: bool,
    overwrite: bool,
    wait: Option<Duration>,
    threads: Option<usize>,
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
    /// Metadata that was not preserved, with its number: plurals with a reason, such as `owners (requires root)`.
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
            excludes: Excludes::default(),
            skip_unreadable: false,
            overwrite: false,
            wait: None,
            threads: None,
            progress: &(),
            cancel: Cancel::default(),
        }
    }

    /// Sets the directory or file to extract. A symlink as the last component is not followed.
    ///
    /// # Errors
    /// [`Error::Read`] if the path cannot be resolved; [`Error::Invalid`] if it does not end with the name of a file.
    pub fn path(mut self, path: &[u8]) -> Result<Self> {
        let failed = |error| Error::read(path, error);
        let inode: Inode = resolve(&self.volume, path, FinalSymlink::Keep).map_err(failed)?;
        let name = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or_default();
        if inode.dinode().file_type() != Some(FileType::Directory) && !is_safe(name) {
            return Err(Error::invalid(path, "must end with the name of a file"));
        }
        self.start = Start { ino: inode.ino(), name: name.to_vec() };
        Ok(self)
    }

    setters! {
        /// Skips files that match these patterns, relative to the directory to extract.
        excludes: Excludes;
        /// Sets the files for which a warning is reported: those with unfinished operations in the log.
        unfinished: BTreeSet<Ino>;
        /// Skips files that cannot be read completely. By default, their readable parts are extracted. For an archive,
        /// each file is then read twice.
        skip_unreadable: bool;
        /// Replaces existing files. By default, they are reported as failed.
        overwrite: bool;
        /// Waits for another program that uses an existing archive, for at most this time.
        wait: impl Into<Option<Duration>>;
        /// Sets the number of threads.
        threads: impl Into<Option<usize>>;
        /// Reports progress and messages.
        progress: &'e dyn Progress;
        /// Fails with [`Error::Cancelled`] after [`Cancel::cancel`] of a clone.
        cancel: Cancel;
    }

    /// Extracts to a directory, which is created if necessary and gets the mode and times of the extracted one. A
    /// symlink at `to` itself is followed.
    ///
    /// Each directory on the path to a file is open, for each thread: very deep trees need a higher limit of open files
    /// (`RLIMIT_NOFILE`) than the usual 1024.
    ///
    /// # Errors
    /// [`Error::Target`], [`Error::Cancelled`]. Problems of single files are reported as messages and counted.
    pub fn to_directory(self, to: impl AsRef<Path>) -> Result<ExtractReport> {
        let to = to.as_ref();
        let failed = |action| move |error| Error::Target { path: to.into(), action, source: error };
        match std::fs::create_dir(to) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            created => created.map_err(failed("create it"))?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd =
            rustix::fs::open(to, flags, Mode::empty()).map_err(|errno| failed("open it")(errno.into()))?;
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
        pipeline::run(&work, vec![TreeTask::Start(start, root)], &mut sink, thread_count(threads))?;
        Ok(counters.into_report())
    }

    /// Extracts to an archive, which appears at `to` when it is complete and on stable storage.
    ///
    /// # Errors
    /// [`Error::Exists`] unless existing files are replaced; [`Error::Open`] if the file cannot be created or replaced;
    /// [`Error::Output`], [`Error::Incomplete`], [`Error::Cancelled`].
    pub fn to_file(self, to: impl AsRef<Path>, compression: Compression) -> Result<ExtractReport> {
        let to = to.as_ref();
        let (overwrite, wait) = (self.overwrite, self.wait);
        let failed = |error: OpenError| match Errno::from_raw_os_error(error.errno()) {
            Errno::EXIST if !overwrite => Error::Exists { path: to.into() },
            _ => Error::Open(error),
        };
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let new = match overwrite {
            // A file that another program is writing to is not replaced.
            true => {
                ReplacedFile::lock(to, wait).and_then(|old| NewFile::replacing(&Arc::new(old), 0, &options))
            }
            false => NewFile::create(to, 0, &options),
        };
        let new = new.map_err(failed)?;
        let file = File::from(new.device().as_fd().try_clone_to_owned().map_err(Error::Output)?);
        let mut out = Compressed::new(file, compression).map_err(Error::Output)?;
        let report = self.to_writer(&mut out)?;
        out.finish().map_err(Error::Output)?;
        new.publish().map_err(failed)?;
        Ok(report)
    }

    /// Extracts to a stream as a tar archive in the POSIX (pax) format, uncompressed ([`Compressed`] compresses).
    ///
    /// # Errors
    /// [`Error::Output`] if the stream fails; [`Error::Incomplete`] if contents cannot be read that a header has
    /// announced; [`Error::Cancelled`].
    pub fn to_writer(self, out: impl Write + Send) -> Result<ExtractReport> {
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
        pipeline::run(&work, vec![ArchiveTask::Start(start)], &mut sink, thread_count(threads))?;
        sink.finish()?;
        Ok(counters.into_report())
    }
}
