//! Extracts a tree to a directory of the host.
//!
//! A task creates a directory and yields batches of its entries; a batch creates their files. What depends on order is
//! an event for the sink: a directory gets its mode and times when its entries are complete, and the first name of a
//! file with hard links is created before the others.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::counters::Counters;
use super::flags;
use super::host::{self, CreateOptions, HostDirectory};
use super::source::{
    DataRun, DirectoryEntries, FileInfo, FirstNames, Start, UNFINISHED, is_safe, plan_runs, read_entry,
};
use crate::progress::{Cancel, Notice, NoticeKind, Progress};
use crate::syscalls::{HostError, errno_of};
use crate::{Error, Excludes, Result};
use base::Ino;
use base::pipeline::{PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};
use format::inode::FileType;
use read::{Inode, InodeReader, Listing, Visited, Volume, join, read_at};
use rustix::fs::AtFlags;
use rustix::io::Errno;

/// Number of directory entries of a task.
const BATCH: usize = 64;
/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;
/// Files with more bytes of data are copied by several tasks.
const SMALL: u64 = 4 << 20;
/// Bytes of a large file that are planned at a time.
const PLAN: u64 = 64 << 20;

/// The extraction to a directory.
pub struct TreeWork<'t> {
    pub volume: &'t Volume,
    pub counters: &'t Counters,
    pub options: CreateOptions,
    pub visited: Visited,
    /// Patterns for paths below the start.
    pub excludes: Excludes,
    /// Remove files that cannot be read completely.
    pub skip_unreadable: bool,
    /// Files with unfinished operations in the log.
    pub unfinished: BTreeSet<Ino>,
}

/// A task.
pub enum TreeTask {
    /// The file or directory to extract, into an open directory.
    Start(Start, Arc<HostDirectory>),
    /// A subdirectory.
    Directory { parent: Arc<HostDirectory>, name: Vec<u8>, inode: Inode, depth: usize },
    /// A batch of entries of a directory, from this index.
    Entries(Arc<DirectoryEntries<Arc<HostDirectory>>>, usize),
    /// The first name of a file with hard links.
    File(Arc<LinkedFile>),
    /// The contents of a large file from an offset.
    Plan(Arc<OpenFile>, u64),
    /// A run of a large file.
    Copy(Arc<OpenFile>, DataRun),
}

/// A name of a file with hard links.
pub struct LinkedFile {
    dir: Arc<HostDirectory>,
    name: Vec<u8>,
    inode: Inode,
    info: FileInfo,
}

/// A large file that several tasks write. Removed if it is dropped before it is complete.
pub struct OpenFile {
    file: std::fs::File,
    dir: Arc<HostDirectory>,
    name: Vec<u8>,
    /// Nothing is removed on drop: the file is complete, or its error was reported.
    is_done: AtomicBool,
    /// The file was removed because it is unreadable.
    is_removed: AtomicBool,
    inode: Inode,
    info: FileInfo,
}

impl OpenFile {
    fn path(&self) -> Vec<u8> {
        join(&self.dir.path, &self.name)
    }

    /// Sets the metadata.
    fn complete(&self, options: CreateOptions, counters: &Counters) -> std::result::Result<(), HostError> {
        self.is_done.store(true, Relaxed);
        host::complete(&self.file, &self.info, options, counters)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if !self.is_done.load(Relaxed) {
            // The extraction failed or was cancelled; its error is reported.
            let _ = rustix::fs::unlinkat(&self.dir.fd, self.name.as_slice(), AtFlags::empty());
        }
    }
}

/// A result for the sink.
pub enum TreeEvent {
    /// The entries of a directory are complete.
    Directory(Arc<HostDirectory>, Box<FileInfo>),
    /// The contents of a large file are complete.
    File(Arc<OpenFile>),
    /// A name of a file with hard links.
    Linked(Arc<LinkedFile>),
    /// A message; the inode number if contents of this file are missing.
    Notice(Notice, Option<Ino>),
    /// An error that ends the extraction.
    Failed(Error),
}

type Items = Vec<PipelineItem<TreeTask, TreeEvent>>;

fn notice(pieces: &mut Items, kind: NoticeKind, path: &[u8], message: impl Display) {
    pieces.push(PipelineItem::Result(TreeEvent::Notice(Notice::new(kind, path, message), None)));
}

fn unreadable(pieces: &mut Items, path: &[u8], error: impl Display) {
    notice(pieces, NoticeKind::Unreadable, path, error);
}

/// Reports a failed call. A full or read-only file system ends the extraction: every further file would fail, too.
fn fail(pieces: &mut Items, path: &[u8], error: HostError) {
    let HostError { action, errno } = error;
    // Extended attributes have a limit of their own.
    let is_fatal = action.starts_with("create") || action.starts_with("write");
    if is_fatal && matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::ROFS) {
        let error = Error::target(path, action, errno);
        return pieces.push(PipelineItem::Result(TreeEvent::Failed(error)));
    }
    let reason = match errno {
        Errno::EXIST => "already exists (--overwrite replaces it)".into(),
        Errno::PERM if action == "create the device" => "requires root".into(),
        errno => errno.to_string(),
    };
    notice(pieces, NoticeKind::Failed, path, format_args!("cannot {action}: {reason}"));
}

/// State of a thread.
pub struct Worker<'t> {
    reader: InodeReader<'t>,
    /// Buffer of [`PIECE`] bytes.
    buffer: Vec<u8>,
}

impl<'t> PipelineWork for TreeWork<'t> {
    type Task = TreeTask;
    type Result = TreeEvent;
    type Worker = Worker<'t>;

    fn worker(&self) -> Worker<'t> {
        Worker { reader: self.volume.inodes(), buffer: vec![0; PIECE] }
    }

    fn perform(&self, worker: &mut Worker<'t>, task: TreeTask, pieces: &mut Items) {
        match task {
            TreeTask::Start(start, dir) => self.start(worker, &start, dir, pieces),
            TreeTask::Directory { parent, name, inode, depth } => {
                self.directory(&parent, &name, &inode, depth, pieces)
            }
            TreeTask::Entries(entries, from) => self.entries(worker, &entries, from, pieces),
            TreeTask::File(file) => {
                let (inode, info) = (file.inode.clone(), file.info.clone());
                self.file(worker, &file.dir, &file.name, inode, info, pieces);
            }
            TreeTask::Plan(open, from) => self.plan(open, from, pieces),
            TreeTask::Copy(open, run) => {
                if let Err(error) = self.copy(worker, &open.file, &open.inode, run) {
                    self.copy_failed(&open, error, pieces);
                }
            }
        }
    }

    fn weight(&self, event: &TreeEvent) -> usize {
        match event {
            TreeEvent::Directory(_, info) => size_of::<FileInfo>() + info.xattrs.len() * 64,
            TreeEvent::File(_) => size_of::<OpenFile>(),
            TreeEvent::Linked(_) => size_of::<LinkedFile>(),
            TreeEvent::Notice(notice, _) => notice.weight(),
            TreeEvent::Failed(_) => size_of::<Error>(),
        }
    }
}

/// Why a copy failed.
enum ContentsError {
    Read(read::Error),
    Write(Errno),
}

impl From<read::Error> for ContentsError {
    fn from(error: read::Error) -> Self {
        Self::Read(error)
    }
}

impl ContentsError {
    fn report(self, pieces: &mut Items, path: &[u8], ino: Ino) {
        match self {
            Self::Read(error) => {
                let notice = Notice::new(NoticeKind::Unreadable, path, error);
                pieces.push(PipelineItem::Result(TreeEvent::Notice(notice, Some(ino))));
            }
            Self::Write(errno) => fail(pieces, path, HostError { action: "write the file", errno }),
        }
    }
}

impl<'t> TreeWork<'t> {
    fn start(&self, worker: &mut Worker<'t>, start: &Start, dir: Arc<HostDirectory>, pieces: &mut Items) {
        let inode = match worker.reader.get(start.ino) {
            Ok(inode) => Inode::from(inode),
            Err(error) => return unreadable(pieces, &start.name, error),
        };
        if inode.dinode().file_type() == Some(FileType::Directory) {
            // Its target is the target directory itself.
            self.contents(dir, &inode, 0, pieces);
        } else {
            self.entry(worker, &dir, &start.name, inode, pieces);
        }
    }

    fn directory(
        &self,
        parent: &HostDirectory,
        name: &[u8],
        inode: &Inode,
        depth: usize,
        pieces: &mut Items,
    ) {
        let path = join(&parent.path, name);
        match host::create_directory(parent, name, self.options) {
            Ok(fd) => self.contents(Arc::new(HostDirectory { fd, path }), inode, depth, pieces),
            Err(errno) => fail(pieces, &path, HostError { action: "create the directory", errno }),
        }
    }

    fn contents(&self, dir: Arc<HostDirectory>, inode: &Inode, depth: usize, pieces: &mut Items) {
        let dinode = inode.dinode();
        if let Err(reason) = self.visited.enter(inode.ino(), depth) {
            return unreadable(pieces, &dir.path, reason);
        }
        self.counters.add_file(0);
        let info = match FileInfo::read(self.volume, &dinode, |error| unreadable(pieces, &dir.path, error)) {
            Ok(info) => info,
            Err(error) => return unreadable(pieces, &dir.path, error),
        };
        let listing = Listing::read(self.volume, &dinode, |error| unreadable(pieces, &dir.path, error));
        let entries = Arc::new(DirectoryEntries { target: dir, listing, depth });
        for from in (0..entries.listing.items().len()).step_by(BATCH) {
            pieces.push(PipelineItem::Task(TreeTask::Entries(entries.clone(), from)));
        }
        pieces.push(PipelineItem::Result(TreeEvent::Directory(entries.target.clone(), Box::new(info))));
    }

    fn entries(
        &self,
        worker: &mut Worker<'t>,
        entries: &DirectoryEntries<Arc<HostDirectory>>,
        from: usize,
        pieces: &mut Items,
    ) {
        let dir = &entries.target;
        for item in entries.listing.items().iter().skip(from).take(BATCH) {
            let name = entries.listing.name(item);
            if !is_safe(name) {
                unreadable(pieces, &join(&dir.path, name), "invalid name: skipped");
                continue;
            }
            let path = || join(&dir.path, name);
            let inode = match read_entry(&mut worker.reader, &self.excludes, path, item.ino) {
                Ok(Some(inode)) => inode,
                Ok(None) => continue,
                Err(error) => {
                    unreadable(pieces, &path(), error);
                    continue;
                }
            };
            if inode.dinode().file_type() == Some(FileType::Directory) {
                let (parent, name, depth) = (dir.clone(), name.to_vec(), entries.depth + 1);
                pieces.push(PipelineItem::Task(TreeTask::Directory { parent, name, inode, depth }));
            } else {
                self.entry(worker, dir, name, inode, pieces);
            }
        }
    }

    /// Extracts a file that is not a directory.
    fn entry(
        &self,
        worker: &mut Worker<'t>,
        dir: &Arc<HostDirectory>,
        name: &[u8],
        inode: Inode,
        pieces: &mut Items,
    ) {
        let path = || join(&dir.path, name);
        if self.unfinished.contains(&inode.ino()) {
            notice(pieces, NoticeKind::Warning, &path(), UNFINISHED);
        }
        let info =
            match FileInfo::read(self.volume, &inode.dinode(), |error| unreadable(pieces, &path(), error)) {
                Ok(info) => info,
                Err(error) => return unreadable(pieces, &path(), error),
            };
        if info.is_linked() {
            let (dir, name) = (dir.clone(), name.to_vec());
            let linked = LinkedFile { dir, name, inode, info };
            pieces.push(PipelineItem::Result(TreeEvent::Linked(Arc::new(linked))));
        } else {
            self.file(worker, dir, name, inode, info, pieces);
        }
    }

    fn file(
        &self,
        worker: &mut Worker<'t>,
        dir: &Arc<HostDirectory>,
        name: &[u8],
        inode: Inode,
        info: FileInfo,
        pieces: &mut Items,
    ) {
        if info.metadata.file_type == FileType::Regular {
            return match host::create_file(dir, name, self.options) {
                Ok(fd) => {
                    let open = OpenFile {
                        file: fd.into(),
                        dir: dir.clone(),
                        name: name.to_vec(),
                        is_done: AtomicBool::new(false),
                        is_removed: AtomicBool::new(false),
                        inode,
                        info,
                    };
                    self.regular(worker, Arc::new(open), pieces);
                }
                Err(errno) => {
                    fail(pieces, &join(&dir.path, name), HostError { action: "create the file", errno });
                }
            };
        }
        match host::create_special(dir, name, &info, self.options, self.counters) {
            Ok(()) => self.counters.add_file(0),
            Err(error) => fail(pieces, &join(&dir.path, name), error),
        }
    }

    fn regular(&self, worker: &mut Worker<'t>, open: Arc<OpenFile>, pieces: &mut Items) {
        let OpenFile { file, inode, info, .. } = &*open;
        flags::set_hints(file, info, self.counters);
        let (runs, next) = match plan_runs(self.volume, &inode.dinode(), 0, PIECE as u64, SMALL) {
            Ok(planned) => planned,
            Err(error) => return self.copy_failed(&open, ContentsError::Read(error), pieces),
        };
        // Set first if a hole is at the end or much data follows: the file system then knows the final size.
        let end = runs.last().map_or(0, DataRun::end);
        if end < info.metadata.size
            && let Err(errno) = rustix::fs::ftruncate(file, info.metadata.size)
        {
            open.is_done.store(true, Relaxed);
            return fail(pieces, &open.path(), HostError { action: "set the size of the file", errno });
        }
        if next.is_some() {
            self.counters.add_file(0);
            pieces.push(PipelineItem::Task(TreeTask::Plan(open.clone(), 0)));
            return pieces.push(PipelineItem::Result(TreeEvent::File(open)));
        }
        for run in &runs {
            if let Err(error) = self.copy(worker, file, inode, *run) {
                return self.copy_failed(&open, error, pieces);
            }
        }
        self.counters.add_file(0);
        if let Err(error) = open.complete(self.options, self.counters) {
            fail(pieces, &open.path(), error);
        }
    }

    fn plan(&self, open: Arc<OpenFile>, from: u64, pieces: &mut Items) {
        match plan_runs(self.volume, &open.inode.dinode(), from, PIECE as u64, PLAN) {
            Ok((runs, next)) => {
                let copy = |run| PipelineItem::Task(TreeTask::Copy(open.clone(), run));
                pieces.extend(runs.into_iter().map(copy));
                pieces.extend(next.map(|next| PipelineItem::Task(TreeTask::Plan(open, next))));
            }
            Err(error) => self.copy_failed(&open, ContentsError::Read(error), pieces),
        }
    }

    /// Reports that contents could not be copied; the incomplete file is removed if unreadable files are skipped. The
    /// first task of a file that fails reports a removed file.
    fn copy_failed(&self, open: &OpenFile, error: ContentsError, pieces: &mut Items) {
        open.is_done.store(true, Relaxed);
        if self.skip_unreadable && matches!(error, ContentsError::Read(_)) {
            if open.is_removed.swap(true, Relaxed) {
                return;
            }
            if let Err(errno) = rustix::fs::unlinkat(&open.dir.fd, open.name.as_slice(), AtFlags::empty()) {
                fail(pieces, &open.path(), HostError { action: "remove the incomplete file", errno });
            }
        }
        error.report(pieces, &open.path(), open.inode.ino());
    }

    /// Copies a run of at most [`PIECE`] bytes.
    fn copy(
        &self,
        worker: &mut Worker<'t>,
        file: &std::fs::File,
        inode: &Inode,
        run: DataRun,
    ) -> std::result::Result<(), ContentsError> {
        let buffer = worker.buffer.get_mut(..run.length as usize).unwrap_or_default(); // at most PIECE
        let read = read_at(self.volume, &inode.dinode(), run.offset, buffer)?;
        let written = file.write_all_at(buffer.get(..read).unwrap_or_default(), run.offset);
        self.counters.add_bytes(read as u64);
        written.map_err(|error| ContentsError::Write(errno_of(&error)))
    }
}

/// Handles what depends on order.
pub struct TreeSink<'s> {
    /// The target directory.
    pub root: Arc<HostDirectory>,
    /// Files with hard links that were created.
    pub links: FirstNames,
    /// The directory of the last first name, with its path: hard links are often near each other.
    pub last: Option<(Vec<u8>, OwnedFd)>,
    pub options: CreateOptions,
    pub counters: &'s Counters,
    pub progress: &'s dyn Progress,
    pub cancel: &'s Cancel,
}

impl TreeSink<'_> {
    fn linked(&mut self, file: Arc<LinkedFile>, pieces: &mut Items) {
        let path = join(&file.dir.path, &file.name);
        let Some(first) = self.links.first_name(&file.info.metadata, &path) else {
            return pieces.push(PipelineItem::Task(TreeTask::File(file)));
        };
        match self.link(&first, &file) {
            Ok(()) => self.counters.add_file(0),
            Err(errno) => {
                fail(pieces, &path, HostError { action: "link the file to its first name", errno });
            }
        }
    }

    fn link(&mut self, first: &[u8], file: &LinkedFile) -> std::result::Result<(), Errno> {
        let split = first.iter().rposition(|byte| *byte == b'/');
        let (directory, name) = match split {
            Some(at) => (first.get(..at).unwrap_or_default(), first.get(at + 1..).unwrap_or_default()),
            None => (&[][..], first),
        };
        if self.last.as_ref().is_none_or(|(path, _)| path != directory) {
            self.last = Some((directory.to_vec(), self.open(directory)?));
        }
        let Some((_, from)) = &self.last else { return Err(Errno::BADF) };
        let link = || rustix::fs::linkat(from, name, &file.dir.fd, file.name.as_slice(), AtFlags::empty());
        match link() {
            Err(Errno::EXIST) if self.options.overwrite => {
                rustix::fs::unlinkat(&file.dir.fd, file.name.as_slice(), AtFlags::empty())?;
                link()
            }
            linked => linked,
        }
    }

    /// Opens a directory of this extraction, one component after the other.
    fn open(&self, path: &[u8]) -> std::result::Result<OwnedFd, Errno> {
        let mut dir = rustix::io::dup(&self.root.fd)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            dir = host::open_directory(dir.as_fd(), name)?;
        }
        Ok(dir)
    }
}

impl<'t> PipelineSink<TreeWork<'t>> for TreeSink<'_> {
    type Error = Error;

    fn take(&mut self, event: TreeEvent, pieces: &mut Vec<PipelineItemOf<TreeWork<'t>>>) -> Result<()> {
        self.cancel.check()?;
        self.progress.advance(self.counters.counts());
        match event {
            TreeEvent::Directory(dir, info) => {
                if let Err(error) = host::complete(&dir.fd, &info, self.options, self.counters) {
                    fail(pieces, &dir.path, error);
                }
            }
            TreeEvent::File(open) if open.is_removed.load(Relaxed) => {}
            TreeEvent::File(open) => {
                if let Err(error) = open.complete(self.options, self.counters) {
                    fail(pieces, &open.path(), error);
                }
            }
            TreeEvent::Linked(file) => self.linked(file, pieces),
            TreeEvent::Notice(notice, ino) => {
                if let Some(ino) = ino {
                    self.links.forget(ino);
                }
                self.counters.count(&notice);
                self.progress.notice(&notice);
            }
            TreeEvent::Failed(error) => return Err(error),
        }
        Ok(())
    }
}
