//! Writes a tree as a stream of tar members, in disk order.
//!
//! Worker threads fill buffers with whole members: headers, and the contents of small files, read in place. A large
//! file is a header followed by pieces. Buffers have one size and are reused. Which name of a file with hard links
//! comes first is known only in order, so each of its names is an event for the sink.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use base::Ino;
use base::pipeline::{PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};
use format::inode::FileType;
use read::{Inode, InodeReader, Listing, Visited, Volume, join};

use super::contents::{StoredData, fill, push_map_entry, verify};
use super::counters::Counters;
use super::pax::{self, Member, MemberType};
use super::source::{
    DataRun, DataRuns, DirectoryEntries, FileInfo, FirstNames, Start, UNFINISHED, is_safe, plan_runs,
    read_entry,
};
use crate::progress::{Cancel, Notice, NoticeKind, Progress};
use crate::{Error, Excludes, Result};

/// Size of a buffer in bytes: the longest member that is written in one piece, and the piece in which large files are
/// read.
pub const BUFFER: usize = 1 << 20;
/// Maximum size in bytes of a file that shares a buffer with others.
const SMALL: u64 = 256 << 10;
/// Maximum number of directory entries of a task; it ends earlier after this many buffers.
const BATCH: usize = 256;
const BATCH_BUFFERS: usize = 4;
/// Bytes of a large file that are planned at a time.
const PLAN: u64 = 32 << 20;

/// Memory of a fixed size, filled from its start.
pub struct Buffer {
    bytes: Box<[u8]>,
    used: usize,
}

impl Buffer {
    /// The next `length` bytes, uninitialized; `None` if fewer are free.
    fn reserve(&mut self, length: usize) -> Option<&mut [u8]> {
        let reserved = self.bytes.get_mut(self.used..self.used + length)?;
        self.used += length;
        Some(reserved)
    }

    fn filled(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }
}

/// Buffers for reuse.
#[derive(Default)]
pub struct Buffers(Mutex<Vec<Box<[u8]>>>);

impl Buffers {
    fn take(&self) -> Buffer {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Buffer { bytes: spare.unwrap_or_else(|| vec![0; BUFFER].into()), used: 0 }
    }

    fn give(&self, buffer: Buffer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer.bytes);
    }
}

/// The extraction to an archive.
pub struct ArchiveWork<'a> {
    pub volume: &'a Volume,
    pub counters: &'a Counters,
    /// Shared with the sink.
    pub buffers: &'a Buffers,
    pub visited: Visited,
    /// Patterns for paths below the start.
    pub excludes: Excludes,
    /// Read all contents of a file before its header is written, so that an unreadable file can be skipped: the data
    /// that a header announces must follow.
    pub verify_first: bool,
    /// Files with unfinished operations in the log.
    pub unfinished: BTreeSet<Ino>,
}

/// A task.
pub enum ArchiveTask {
    /// The file or directory to extract.
    Start(Start),
    /// The contents of a directory with this name (empty for the archive's root).
    Directory { name: Vec<u8>, ino: Ino, depth: usize },
    /// A range of entries of a directory.
    Entries(Arc<DirectoryEntries<Vec<u8>>>, Range<usize>),
    /// The first name of a file with hard links.
    File(Arc<MemberFile>),
    /// The map of a sparse file from an offset.
    Map(Arc<MemberFile>, u64),
    /// The contents of a large file from an offset.
    Plan(Arc<MemberFile>, u64),
    /// Some runs of a large file, followed by padding.
    Read { file: Arc<MemberFile>, runs: Vec<DataRun>, padding: usize },
}

/// A file that takes several tasks.
pub struct MemberFile {
    name: Vec<u8>,
    inode: Inode,
    info: FileInfo,
}

/// A result for the sink.
pub enum ArchiveEvent {
    /// Bytes of the archive.
    Buffer(Buffer),
    /// A few bytes of the archive.
    Bytes(Vec<u8>),
    /// A name of a file with hard links.
    Linked(Arc<MemberFile>),
    /// A message; the inode number if contents of this file are missing.
    Notice(Notice, Option<Ino>),
    /// The archive cannot be completed.
    Failed(Error),
}

type Items = Vec<PipelineItem<ArchiveTask, ArchiveEvent>>;

/// Fills buffers, and emits them when they are full.
struct Writer<'w> {
    buffers: &'w Buffers,
    buffer: Option<Buffer>,
    /// Number of buffers emitted.
    emitted: usize,
    pieces: &'w mut Items,
}

impl Writer<'_> {
    fn task(&mut self, task: ArchiveTask) {
        self.pieces.push(PipelineItem::Task(task));
    }

    fn event(&mut self, event: ArchiveEvent) {
        self.pieces.push(PipelineItem::Result(event));
    }

    fn notice(&mut self, kind: NoticeKind, name: &[u8], message: impl Display) {
        self.event(ArchiveEvent::Notice(Notice::new(kind, name, message), None));
    }

    fn unreadable(&mut self, name: &[u8], error: impl Display) {
        self.notice(NoticeKind::Unreadable, name, error);
    }

    fn flush(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            if buffer.used > 0 {
                self.emitted += 1;
                self.event(ArchiveEvent::Buffer(buffer));
            } else {
                self.buffers.give(buffer);
            }
        }
    }

    /// Reserves `length` bytes, in a new buffer if necessary; `None` if no buffer is that large.
    fn reserve(&mut self, length: usize) -> Option<&mut [u8]> {
        let free = self.buffer.as_ref().map_or(0, |buffer| buffer.bytes.len() - buffer.used);
        if length > free {
            self.flush();
        }
        self.buffer.get_or_insert_with(|| self.buffers.take()).reserve(length)
    }

    fn put(&mut self, bytes: &[u8]) {
        match self.reserve(bytes.len()) {
            Some(reserved) => reserved.copy_from_slice(bytes),
            None => {
                self.flush();
                self.event(ArchiveEvent::Bytes(bytes.to_vec()));
            }
        }
    }
}

impl<'a> PipelineWork for ArchiveWork<'a> {
    type Task = ArchiveTask;
    type Result = ArchiveEvent;
    type Worker = InodeReader<'a>;

    fn worker(&self) -> InodeReader<'a> {
        self.volume.inodes()
    }

    fn perform(&self, reader: &mut InodeReader<'a>, task: ArchiveTask, pieces: &mut Items) {
        let writer = &mut Writer { buffers: self.buffers, buffer: None, emitted: 0, pieces };
        match task {
            ArchiveTask::Start(start) => self.start(reader, &start, writer),
            ArchiveTask::Directory { name, ino, depth } => self.directory(reader, name, ino, depth, writer),
            ArchiveTask::Entries(dir, range) => self.entries(reader, &dir, range, writer),
            ArchiveTask::File(file) => self.file(&file.name, &file.inode, &file.info, writer),
            ArchiveTask::Map(file, from) => self.map(&file, from, writer),
            ArchiveTask::Plan(file, from) => self.plan(file, from, writer),
            ArchiveTask::Read { file, runs, padding } => {
                self.read(&file, &runs, padding, writer);
            }
        }
        writer.flush();
    }

    fn weight(&self, event: &ArchiveEvent) -> usize {
        match event {
            ArchiveEvent::Buffer(buffer) => buffer.bytes.len(),
            ArchiveEvent::Bytes(bytes) => bytes.capacity(),
            ArchiveEvent::Notice(notice, _) => notice.weight(),
            ArchiveEvent::Linked(_) => size_of::<MemberFile>(),
            ArchiveEvent::Failed(_) => size_of::<Error>(),
        }
    }
}

impl<'a> ArchiveWork<'a> {
    fn start(&self, reader: &mut InodeReader<'a>, start: &Start, writer: &mut Writer<'_>) {
        let inode = match reader.get(start.ino) {
            Ok(inode) => Inode::from(inode),
            Err(error) => return writer.unreadable(&start.name, error),
        };
        if inode.dinode().file_type() == Some(FileType::Directory) {
            // The directory itself is the archive's root.
            self.member(b"./", &inode, writer);
            writer.flush();
            writer.task(ArchiveTask::Directory { name: Vec::new(), ino: start.ino, depth: 0 });
        } else {
            self.member(&start.name, &inode, writer);
        }
    }

    fn directory(
        &self,
        reader: &mut InodeReader<'a>,
        name: Vec<u8>,
        ino: Ino,
        depth: usize,
        writer: &mut Writer<'_>,
    ) {
        if let Err(reason) = self.visited.enter(ino, depth) {
            return writer.unreadable(&name, reason);
        }
        let listing = match reader.get(ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| writer.unreadable(&name, error)),
            Err(error) => return writer.unreadable(&name, error),
        };
        let count = listing.items().len();
        let dir = Arc::new(DirectoryEntries { target: name, listing, depth });
        for first in (0..count).step_by(BATCH) {
            let range = first..count.min(first + BATCH);
            writer.task(ArchiveTask::Entries(dir.clone(), range));
        }
    }

    fn entries(
        &self,
        reader: &mut InodeReader<'a>,
        dir: &Arc<DirectoryEntries<Vec<u8>>>,
        range: Range<usize>,
        writer: &mut Writer<'_>,
    ) {
        for (n, item) in dir.listing.items().iter().enumerate().take(range.end).skip(range.start) {
            if writer.emitted >= BATCH_BUFFERS {
                writer.flush();
                return writer.task(ArchiveTask::Entries(dir.clone(), n..range.end));
            }
            let name = dir.listing.name(item);
            let mut path = join(&dir.target, name);
            if !is_safe(name) {
                writer.unreadable(&path, "invalid name: skipped");
                continue;
            }
            let inode = match read_entry(reader, &self.excludes, || path.clone(), item.ino) {
                Ok(Some(inode)) => inode,
                Ok(None) => continue,
                Err(error) => {
                    writer.unreadable(&path, error);
                    continue;
                }
            };
            if inode.dinode().file_type() == Some(FileType::Directory) {
                path.push(b'/');
                self.member(&path, &inode, writer);
                writer.flush();
                let (ino, depth) = (item.ino, dir.depth + 1);
                path.pop();
                writer.task(ArchiveTask::Directory { name: path, ino, depth });
            } else {
                self.member(&path, &inode, writer);
            }
        }
    }

    /// Writes a member with its contents, or with tasks that will read them.
    fn member(&self, name: &[u8], inode: &Inode, writer: &mut Writer<'_>) {
        let dinode = inode.dinode();
        let info = match FileInfo::read(self.volume, &dinode, |error| writer.unreadable(name, error)) {
            Ok(info) => info,
            Err(error) => return writer.unreadable(name, error),
        };
        if self.unfinished.contains(&inode.ino()) {
            writer.notice(NoticeKind::Warning, name, UNFINISHED);
        }
        if info.metadata.file_type == FileType::Socket {
            return writer.notice(NoticeKind::NotStored, name, "archives cannot store sockets: skipped");
        }
        if info.is_linked() {
            writer.flush();
            let file = MemberFile { name: name.to_vec(), inode: inode.clone(), info };
            return writer.event(ArchiveEvent::Linked(Arc::new(file)));
        }
        self.file(name, inode, &info, writer);
    }

    fn file(&self, name: &[u8], inode: &Inode, info: &FileInfo, writer: &mut Writer<'_>) {
        if info.metadata.file_type == FileType::Regular {
            let readable = match self.verify_first {
                true => verify(self.volume, inode),
                false => Ok(()),
            };
            if let Err(error) = readable.and_then(|()| self.regular(name, inode, info, writer)) {
                let notice = Notice::new(NoticeKind::Unreadable, name, error);
                writer.event(ArchiveEvent::Notice(notice, Some(inode.ino())));
            }
            return;
        }
        self.counters.add_file(0);
        let member_type = info.target.as_deref().map_or(MemberType::Other, MemberType::Symlink);
        self.header(name, info, member_type, writer);
    }

    fn header(&self, name: &[u8], info: &FileInfo, member_type: MemberType<'_>, writer: &mut Writer<'_>) {
        let mut header = Vec::with_capacity(3 * pax::BLOCK);
        Member { name, metadata: &info.metadata, member_type, xattrs: &info.xattrs }.push(&mut header);
        writer.put(&header);
    }

    fn regular(
        &self,
        name: &[u8],
        inode: &Inode,
        info: &FileInfo,
        writer: &mut Writer<'_>,
    ) -> read::Result<()> {
        let size = info.metadata.size;
        let data = StoredData::of(self.volume, inode, size)?;
        self.counters.add_file(data.bytes);
        if data.is_sparse {
            let stored = data.map_bytes.next_multiple_of(pax::BLOCK as u64) + data.bytes;
            self.header(name, info, MemberType::Sparse { stored, size }, writer);
            writer.flush();
            let file = Arc::new(MemberFile { name: name.to_vec(), inode: inode.clone(), info: info.clone() });
            let count = format!("{}\n", data.map_entries).into_bytes();
            writer.event(ArchiveEvent::Bytes(count));
            writer.task(ArchiveTask::Map(file.clone(), 0));
            let padding = vec![0; pax::padding(data.map_bytes)];
            writer.event(ArchiveEvent::Bytes(padding));
            writer.task(ArchiveTask::Plan(file, 0));
            return Ok(());
        }
        if size > SMALL {
            self.header(name, info, MemberType::File { stored: size }, writer);
            writer.flush();
            let file = Arc::new(MemberFile { name: name.to_vec(), inode: inode.clone(), info: info.clone() });
            writer.task(ArchiveTask::Plan(file, 0));
            return Ok(());
        }
        self.header(name, info, MemberType::File { stored: size }, writer);
        let (length, padding) = (size as usize, pax::padding(size)); // at most SMALL
        if let Some(reserved) = writer.reserve(length + padding) {
            let (contents, tail) = reserved.split_at_mut(length);
            tail.fill(0);
            if let Err(error) = fill(self.volume, inode, 0, contents) {
                writer.unreadable(name, format_args!("{error}; stored as zeros"));
            }
        }
        Ok(())
    }

    /// Writes a part of a sparse file's map: as many entries as fill a buffer.
    fn map(&self, file: &Arc<MemberFile>, from: u64, writer: &mut Writer<'_>) {
        let size = file.info.metadata.size;
        let mut text = Vec::new();
        let runs = match DataRuns::new(self.volume, &file.inode.dinode(), from) {
            Ok(runs) => runs,
            Err(error) => return self.fail(file, error, writer),
        };
        let mut end = from;
        for run in runs {
            let run = match run {
                Ok(run) => run,
                Err(error) => return self.fail(file, error, writer),
            };
            push_map_entry(&mut text, run);
            end = run.end();
            if text.len() >= BUFFER / 2 {
                writer.put(&text);
                writer.flush();
                return writer.task(ArchiveTask::Map(file.clone(), end));
            }
        }
        if end < size || size == 0 {
            push_map_entry(&mut text, DataRun { offset: size, length: 0 });
        }
        writer.put(&text);
    }

    /// Fails: the header has announced data that cannot be read.
    fn fail(&self, file: &MemberFile, error: read::Error, writer: &mut Writer<'_>) {
        writer.event(ArchiveEvent::Failed(Error::incomplete(&file.name, error)));
    }

    fn plan(&self, file: Arc<MemberFile>, from: u64, writer: &mut Writer<'_>) {
        let (runs, next) = match plan_runs(self.volume, &file.inode.dinode(), from, BUFFER as u64, PLAN) {
            Ok(planned) => planned,
            Err(error) => return self.fail(&file, error, writer),
        };
        // Short runs are read together.
        let (mut batch, mut length) = (Vec::new(), 0);
        for run in runs {
            if length + run.length > BUFFER as u64 {
                let runs = std::mem::take(&mut batch);
                let read = ArchiveTask::Read { file: file.clone(), runs, padding: 0 };
                writer.task(read);
                length = 0;
            }
            length += run.length;
            batch.push(run);
        }
        // Whole runs begin at block boundaries, so that only the last can end within 512 bytes.
        let padding = if next.is_none() { pax::padding(length) } else { 0 };
        let read = ArchiveTask::Read { file: file.clone(), runs: batch, padding };
        writer.task(read);
        if let Some(next) = next {
            writer.task(ArchiveTask::Plan(file, next));
        }
    }

    fn read(&self, file: &MemberFile, runs: &[DataRun], padding: usize, writer: &mut Writer<'_>) {
        for run in runs {
            let Some(reserved) = writer.reserve(run.length as usize) else { continue }; // at most BUFFER
            if let Err(error) = fill(self.volume, &file.inode, run.offset, reserved) {
                let message = format!("{error}; {} bytes at {} stored as zeros", run.length, run.offset);
                writer.unreadable(&file.name, message);
            }
        }
        writer.put(&vec![0; padding]);
    }
}

/// Writes the archive.
pub struct ArchiveSink<'s, O> {
    pub out: O,
    /// Bytes written.
    pub written: u64,
    /// Files with hard links that were written.
    pub links: FirstNames,
    pub buffers: &'s Buffers,
    pub counters: &'s Counters,
    pub progress: &'s dyn Progress,
    pub cancel: &'s Cancel,
}

impl<O: Write> ArchiveSink<'_, O> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes).map_err(Error::Output)
    }

    /// Writes the end of the archive.
    pub fn finish(mut self) -> Result<()> {
        let tail = pax::tail(self.written);
        self.write(&tail)?;
        self.out.flush().map_err(Error::Output)
    }

    /// Writes a name of a file with hard links: the first with its contents, the others as links to the first.
    fn linked(&mut self, file: Arc<MemberFile>, pieces: &mut Items) -> Result<()> {
        let metadata = &file.info.metadata;
        let Some(first) = self.links.first_name(metadata, &file.name) else {
            pieces.push(PipelineItem::Task(ArchiveTask::File(file)));
            return Ok(());
        };
        let member_type = MemberType::Link(&first);
        let mut header = Vec::new();
        Member { name: &file.name, metadata, member_type, xattrs: &file.info.xattrs }.push(&mut header);
        self.counters.add_file(0);
        self.write(&header)
    }
}

impl<'a, O: Write> PipelineSink<ArchiveWork<'a>> for ArchiveSink<'_, O> {
    type Error = Error;

    fn take(&mut self, event: ArchiveEvent, pieces: &mut Vec<PipelineItemOf<ArchiveWork<'a>>>) -> Result<()> {
        self.cancel.check()?;
        self.progress.advance(self.counters.counts());
        match event {
            ArchiveEvent::Buffer(buffer) => {
                self.write(buffer.filled())?;
                self.buffers.give(buffer);
                Ok(())
            }
            ArchiveEvent::Bytes(bytes) => self.write(&bytes),
            ArchiveEvent::Linked(file) => self.linked(file, pieces),
            ArchiveEvent::Notice(notice, ino) => {
                if let Some(ino) = ino {
                    self.links.forget(ino);
                }
                self.counters.count(&notice);
                self.progress.notice(&notice);
                Ok(())
            }
            ArchiveEvent::Failed(error) => Err(error),
        }
    }
}
