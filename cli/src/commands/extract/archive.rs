//! A tree as a stream of tar members, in the order of the disk.
//!
//! Workers fill buffers with whole members: headers, and the contents of small files read to where they belong. A
//! large file is a header and a row of pieces. Buffers are of one size and are used again and again. Which of several
//! names of a file comes first is only known in order, so a file with several links takes a turn of its own.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use base::Ino;
use format::inode::FileType;
use read::{Inode, InodeReader, Volume};
use transfer::Excludes;

use super::contents::{Survey, fill, push_map_entry, verify};
use super::pax::{self, Kind, Member};
use super::progress::Progress;
use super::source::{Facts, Folder, Run, Runs, Subject, half_done, is_safe, plan, wanted};
use crate::listing::Listing;
use crate::names::quoted;
use crate::output::Messages;
use crate::walk::{Visited, join};
use base::pipeline::{PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};

/// Bytes of a buffer: the longest member that is written in one piece, and the piece in which large files are read.
pub const BUFFER: usize = 1 << 20;
/// Files of at most this many bytes go into a buffer with others.
const SMALL: u64 = 256 << 10;
/// So many entries of a directory make a task, unless they fill some buffers before.
const BATCH: usize = 256;
const BATCH_BUFFERS: usize = 4;
/// So many bytes of a large file are planned at a time.
const PLAN: u64 = 32 << 20;

/// A fixed piece of memory, filled from its start.
pub struct Buffer {
    bytes: Box<[u8]>,
    used: usize,
}

impl Buffer {
    /// Room for so many bytes; `None` where that is more than is left. Its contents are whatever was there.
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        let room = self.bytes.get_mut(self.used..self.used + length)?;
        self.used += length;
        Some(room)
    }

    fn filled(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }
}

/// Buffers that wait to be used again.
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

/// The work of making an archive.
pub struct Archive<'a> {
    /// Where from.
    pub volume: &'a Volume,
    /// How far it is.
    pub progress: &'a Progress,
    /// Shared with the sink.
    pub buffers: &'a Buffers,
    /// The directories that have been in.
    pub visited: Visited,
    /// What is left out, by its path below what the command line named.
    pub excludes: Arc<Excludes>,
    /// Contents are read before their file is begun, so that one that cannot be read can be left out: what a header
    /// promises must follow.
    pub verifies: bool,
    /// Files that unfinished operations left half done.
    pub unfinished: BTreeSet<Ino>,
}

/// A part of the work.
pub enum Task {
    /// What the command line named.
    Subject(Subject),
    /// The contents of a directory with this name (empty for the archive's root).
    Directory { name: Vec<u8>, ino: Ino, depth: usize },
    /// Entries of a directory, from one on.
    Batch(Arc<Folder<Vec<u8>>>, usize, usize),
    /// A file that has several links, at its first.
    File(Arc<Large>),
    /// The map of a sparse file from a byte on.
    Map(Arc<Large>, u64),
    /// The contents of a large file from a byte on.
    Plan(Arc<Large>, u64),
    /// Some of its runs, and how many bytes of padding follow.
    Read(Arc<Large>, Vec<Run>, usize),
}

/// A file that takes several tasks.
pub struct Large {
    name: Vec<u8>,
    inode: Inode,
    facts: Facts,
}

/// What goes to the sink.
pub enum Turn {
    /// Bytes of the archive.
    Bytes(Buffer),
    /// A few bytes of the archive.
    Few(Vec<u8>),
    /// A file with several links.
    Linked(Arc<Large>),
    /// Something that cannot be read: of the file with this number, if it has several names.
    Unreadable(String, Option<Ino>),
    /// Something worth a note.
    Note(String),
    /// Something worth a warning.
    Warning(String),
    /// The archive cannot be completed.
    Broken(String),
}

type Pieces = Vec<PipelineItem<Task, Turn>>;

/// Fills buffers, and hands them out when they are full.
struct Writer<'w> {
    buffers: &'w Buffers,
    buffer: Option<Buffer>,
    given: usize,
}

impl Writer<'_> {
    fn flush(&mut self, pieces: &mut Pieces) {
        if let Some(buffer) = self.buffer.take() {
            if buffer.used > 0 {
                self.given += 1;
                pieces.push(PipelineItem::Result(Turn::Bytes(buffer)));
            } else {
                self.buffers.give(buffer);
            }
        }
    }

    /// Room for so many bytes, in a new buffer if need be; `None` if no buffer is that large.
    fn room(&mut self, length: usize, pieces: &mut Pieces) -> Option<&mut [u8]> {
        let left = self.buffer.as_ref().map_or(0, |buffer| buffer.bytes.len() - buffer.used);
        if length > left {
            self.flush(pieces);
        }
        self.buffer.get_or_insert_with(|| self.buffers.take()).room(length)
    }

    fn put(&mut self, bytes: &[u8], pieces: &mut Pieces) {
        match self.room(bytes.len(), pieces) {
            Some(room) => room.copy_from_slice(bytes),
            None => {
                self.flush(pieces);
                pieces.push(PipelineItem::Result(Turn::Few(bytes.to_vec())));
            }
        }
    }
}

impl<'a> PipelineWork for Archive<'a> {
    type Task = Task;
    type Result = Turn;
    type Worker = InodeReader<'a>;

    fn worker(&self) -> InodeReader<'a> {
        self.volume.inodes()
    }

    fn perform(&self, reader: &mut InodeReader<'a>, task: Task, pieces: &mut Pieces) {
        let mut writer = Writer { buffers: self.buffers, buffer: None, given: 0 };
        match task {
            Task::Subject(subject) => self.subject(reader, &subject, &mut writer, pieces),
            Task::Directory { name, ino, depth } => self.directory(reader, name, ino, depth, pieces),
            Task::Batch(folder, from, to) => self.batch(reader, &folder, from, to, &mut writer, pieces),
            Task::File(file) => self.file(&file.name, &file.inode, &file.facts, &mut writer, pieces),
            Task::Map(file, from) => self.map(&file, from, &mut writer, pieces),
            Task::Plan(file, from) => self.plan(file, from, pieces),
            Task::Read(file, runs, padding) => self.read(&file, &runs, padding, &mut writer, pieces),
        }
        writer.flush(pieces);
    }

    fn weight(&self, turn: &Turn) -> usize {
        match turn {
            Turn::Bytes(buffer) => buffer.bytes.len(),
            Turn::Few(bytes) => bytes.capacity(),
            Turn::Unreadable(text, _) | Turn::Note(text) | Turn::Warning(text) | Turn::Broken(text) => {
                text.capacity()
            }
            Turn::Linked(_) => size_of::<Large>(),
        }
    }
}

fn failure(pieces: &mut Pieces, name: &[u8], error: impl std::fmt::Display) {
    pieces.push(PipelineItem::Result(Turn::Unreadable(format!("{}: {error}", quoted(name)), None)));
}

impl<'a> Archive<'a> {
    fn subject(
        &self,
        reader: &mut InodeReader<'a>,
        subject: &Subject,
        writer: &mut Writer<'_>,
        pieces: &mut Pieces,
    ) {
        let inode = match reader.get(subject.ino) {
            Ok(inode) => Inode::from(inode),
            Err(error) => return failure(pieces, &subject.name, error),
        };
        if inode.dinode().file_type() == Some(FileType::Directory) {
            // The directory itself is the archive's root.
            self.member(b"./", &inode, writer, pieces);
            writer.flush(pieces);
            pieces.push(PipelineItem::Task(Task::Directory { name: Vec::new(), ino: subject.ino, depth: 0 }));
        } else {
            self.member(&subject.name, &inode, writer, pieces);
        }
    }

    fn directory(
        &self,
        reader: &mut InodeReader<'a>,
        name: Vec<u8>,
        ino: Ino,
        depth: usize,
        pieces: &mut Pieces,
    ) {
        if let Err(reason) = self.visited.enter(ino, depth) {
            return failure(pieces, &name, reason);
        }
        let listing = match reader.get(ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| failure(pieces, &name, error)),
            Err(error) => return failure(pieces, &name, error),
        };
        let count = listing.items().len();
        let folder = Arc::new(Folder { place: name, listing, depth });
        for from in (0..count).step_by(BATCH) {
            pieces.push(PipelineItem::Task(Task::Batch(folder.clone(), from, count.min(from + BATCH))));
        }
    }

    fn batch(
        &self,
        reader: &mut InodeReader<'a>,
        folder: &Arc<Folder<Vec<u8>>>,
        from: usize,
        to: usize,
        writer: &mut Writer<'_>,
        pieces: &mut Pieces,
    ) {
        for (n, item) in folder.listing.items().iter().enumerate().take(to).skip(from) {
            if writer.given >= BATCH_BUFFERS {
                writer.flush(pieces);
                return pieces.push(PipelineItem::Task(Task::Batch(folder.clone(), n, to)));
            }
            let name = folder.listing.name(item);
            let mut path = join(&folder.place, name);
            if !is_safe(name) {
                failure(pieces, &path, "a name that no file can have: left out");
                continue;
            }
            let inode = match wanted(reader, &self.excludes, || path.clone(), item.ino) {
                Ok(Some(inode)) => inode,
                Ok(None) => continue,
                Err(error) => {
                    failure(pieces, &path, error);
                    continue;
                }
            };
            if inode.dinode().file_type() == Some(FileType::Directory) {
                path.push(b'/');
                self.member(&path, &inode, writer, pieces);
                writer.flush(pieces);
                let (ino, depth) = (item.ino, folder.depth + 1);
                path.pop();
                pieces.push(PipelineItem::Task(Task::Directory { name: path, ino, depth }));
            } else {
                self.member(&path, &inode, writer, pieces);
            }
        }
    }

    /// One member, with its contents or with tasks that will read them.
    fn member(&self, name: &[u8], inode: &Inode, writer: &mut Writer<'_>, pieces: &mut Pieces) {
        let dinode = inode.dinode();
        let facts = match Facts::of(self.volume, &dinode, |error| failure(pieces, name, error)) {
            Ok(facts) => facts,
            Err(error) => return failure(pieces, name, error),
        };
        if self.unfinished.contains(&inode.ino()) {
            pieces.push(PipelineItem::Result(Turn::Warning(half_done(name))));
        }
        if facts.metadata.file_type == FileType::Socket {
            let note = format!("{}: a socket, which an archive cannot hold: left out", quoted(name));
            return pieces.push(PipelineItem::Result(Turn::Note(note)));
        }
        if facts.is_linked() {
            writer.flush(pieces);
            let file = Large { name: name.to_vec(), inode: inode.clone(), facts };
            return pieces.push(PipelineItem::Result(Turn::Linked(Arc::new(file))));
        }
        self.file(name, inode, &facts, writer, pieces);
    }

    fn file(&self, name: &[u8], inode: &Inode, facts: &Facts, writer: &mut Writer<'_>, pieces: &mut Pieces) {
        if facts.metadata.file_type == FileType::Regular {
            let readable = match self.verifies {
                true => verify(self.volume, inode),
                false => Ok(()),
            };
            if let Err(error) = readable.and_then(|()| self.regular(name, inode, facts, writer, pieces)) {
                let text = format!("{}: {error}", quoted(name));
                pieces.push(PipelineItem::Result(Turn::Unreadable(text, Some(inode.ino()))));
            }
            return;
        }
        self.progress.file(0);
        let kind = facts.target.as_deref().map_or(Kind::Other, Kind::Symlink);
        self.header(name, facts, kind, writer, pieces);
    }

    fn header(
        &self,
        name: &[u8],
        facts: &Facts,
        kind: Kind<'_>,
        writer: &mut Writer<'_>,
        pieces: &mut Pieces,
    ) {
        let mut header = Vec::with_capacity(3 * pax::BLOCK);
        Member { name, metadata: &facts.metadata, kind, xattrs: &facts.xattrs }.push(&mut header);
        writer.put(&header, pieces);
    }

    fn regular(
        &self,
        name: &[u8],
        inode: &Inode,
        facts: &Facts,
        writer: &mut Writer<'_>,
        pieces: &mut Pieces,
    ) -> read::Result<()> {
        let size = facts.metadata.size;
        let survey = Survey::of(self.volume, inode, size)?;
        self.progress.file(survey.data);
        if survey.is_sparse {
            let stored = survey.map_bytes.next_multiple_of(pax::BLOCK as u64) + survey.data;
            self.header(name, facts, Kind::Sparse { stored, size }, writer, pieces);
            writer.flush(pieces);
            let file = Arc::new(Large { name: name.to_vec(), inode: inode.clone(), facts: facts.clone() });
            let head = format!("{}\n", survey.entries).into_bytes();
            pieces.push(PipelineItem::Result(Turn::Few(head)));
            pieces.push(PipelineItem::Task(Task::Map(file.clone(), 0)));
            let padding = vec![0; pax::padding(survey.map_bytes)];
            pieces.push(PipelineItem::Result(Turn::Few(padding)));
            pieces.push(PipelineItem::Task(Task::Plan(file, 0)));
            return Ok(());
        }
        if size > SMALL {
            self.header(name, facts, Kind::File { stored: size }, writer, pieces);
            writer.flush(pieces);
            let file = Arc::new(Large { name: name.to_vec(), inode: inode.clone(), facts: facts.clone() });
            pieces.push(PipelineItem::Task(Task::Plan(file, 0)));
            return Ok(());
        }
        self.header(name, facts, Kind::File { stored: size }, writer, pieces);
        let (length, padding) = (size as usize, pax::padding(size)); // at most SMALL
        if let Some(room) = writer.room(length + padding, pieces) {
            let (contents, behind) = room.split_at_mut(length);
            behind.fill(0);
            if let Err(error) = fill(self.volume, inode, 0, contents) {
                failure(pieces, name, format_args!("{error}; stored as zeros"));
            }
        }
        Ok(())
    }

    /// A part of a sparse file's map: as many entries as fill a buffer.
    fn map(&self, file: &Arc<Large>, from: u64, writer: &mut Writer<'_>, pieces: &mut Pieces) {
        let size = file.facts.metadata.size;
        let mut text = Vec::new();
        let runs = match Runs::new(self.volume, &file.inode.dinode(), from) {
            Ok(runs) => runs,
            Err(error) => return self.broken(file, &error, pieces),
        };
        let mut end = from;
        for run in runs {
            let run = match run {
                Ok(run) => run,
                Err(error) => return self.broken(file, &error, pieces),
            };
            push_map_entry(&mut text, run);
            end = run.end();
            if text.len() >= BUFFER / 2 {
                writer.put(&text, pieces);
                writer.flush(pieces);
                return pieces.push(PipelineItem::Task(Task::Map(file.clone(), end)));
            }
        }
        if end < size || size == 0 {
            push_map_entry(&mut text, Run { offset: size, length: 0 });
        }
        writer.put(&text, pieces);
    }

    /// The header has promised what cannot be given.
    fn broken(&self, file: &Large, error: &read::Error, pieces: &mut Pieces) {
        pieces.push(PipelineItem::Result(Turn::Broken(format!("{}: {error}", quoted(&file.name)))));
    }

    fn plan(&self, file: Arc<Large>, from: u64, pieces: &mut Pieces) {
        let (runs, next) = match plan(self.volume, &file.inode.dinode(), from, BUFFER as u64, PLAN) {
            Ok(planned) => planned,
            Err(error) => return self.broken(&file, &error, pieces),
        };
        // Short runs are read together.
        let (mut together, mut length) = (Vec::new(), 0);
        for run in runs {
            if length + run.length > BUFFER as u64 {
                pieces.push(PipelineItem::Task(Task::Read(file.clone(), std::mem::take(&mut together), 0)));
                length = 0;
            }
            length += run.length;
            together.push(run);
        }
        // Whole runs begin at block boundaries, so that only the last can end within 512 bytes.
        let padding = if next.is_none() { pax::padding(length) } else { 0 };
        pieces.push(PipelineItem::Task(Task::Read(file.clone(), together, padding)));
        if let Some(next) = next {
            pieces.push(PipelineItem::Task(Task::Plan(file, next)));
        }
    }

    fn read(&self, file: &Large, runs: &[Run], padding: usize, writer: &mut Writer<'_>, pieces: &mut Pieces) {
        for run in runs {
            let Some(room) = writer.room(run.length as usize, pieces) else { continue }; // at most BUFFER
            if let Err(error) = fill(self.volume, &file.inode, run.offset, room) {
                let place = format!("{error}; {} bytes at {} stored as zeros", run.length, run.offset);
                failure(pieces, &file.name, place);
            }
        }
        writer.put(&vec![0; padding], pieces);
    }
}

/// Where the archive goes.
pub struct ArchiveSink<'s, O> {
    /// The file, or standard output.
    pub out: O,
    /// Bytes written.
    pub written: u64,
    /// Names of files with several links, and how many of their links are still to come.
    pub seen: HashMap<Ino, (Vec<u8>, u32)>,
    /// Where buffers go back to.
    pub buffers: &'s Buffers,
    /// How far it is.
    pub progress: &'s Progress,
    /// What there is to say.
    pub messages: &'s Messages,
}

impl<O: Write> ArchiveSink<'_, O> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Closes the archive.
    pub fn finish(mut self) -> io::Result<O> {
        let tail = pax::tail(self.written);
        self.write(&tail)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// The first name of a file brings its contents; the others are links to it.
    fn linked(&mut self, file: Arc<Large>, pieces: &mut Pieces) -> io::Result<()> {
        let ino = file.inode.ino();
        let Some((first, left)) = self.seen.get_mut(&ino) else {
            self.seen.insert(ino, (file.name.clone(), file.facts.metadata.links.saturating_sub(1)));
            pieces.push(PipelineItem::Task(Task::File(file)));
            return Ok(());
        };
        *left = left.saturating_sub(1);
        let is_last = *left == 0;
        let mut header = Vec::new();
        let facts = &file.facts;
        Member {
            name: &file.name,
            metadata: &facts.metadata,
            kind: Kind::Link(first),
            xattrs: &facts.xattrs,
        }
        .push(&mut header);
        if is_last {
            self.seen.remove(&ino);
        }
        self.progress.file(0);
        self.write(&header)
    }
}

impl<'a, O: Write> PipelineSink<Archive<'a>> for ArchiveSink<'_, O> {
    type Error = io::Error;

    fn take(&mut self, turn: Turn, pieces: &mut Vec<PipelineItemOf<Archive<'a>>>) -> io::Result<()> {
        self.progress.show();
        match turn {
            Turn::Bytes(buffer) => {
                self.write(buffer.filled())?;
                self.buffers.give(buffer);
                Ok(())
            }
            Turn::Few(bytes) => self.write(&bytes),
            Turn::Linked(file) => self.linked(file, pieces),
            Turn::Unreadable(text, ino) => {
                if let Some(ino) = ino {
                    // The next of its names is tried as the first.
                    self.seen.remove(&ino);
                }
                self.progress.pause(|| self.messages.unreadable(text));
                Ok(())
            }
            Turn::Note(text) => {
                self.progress.pause(|| self.messages.note(text));
                Ok(())
            }
            Turn::Warning(text) => {
                self.progress.pause(|| self.messages.warn(text));
                Ok(())
            }
            Turn::Broken(text) => Err(io::Error::other(format!("the archive cannot be completed: {text}"))),
        }
    }
}
