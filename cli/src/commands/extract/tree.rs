//! A tree into a directory of this machine.
//!
//! Directories are tasks that make themselves and turn into batches of entries; a batch makes its files. What must come
//! after other things takes a turn in order: a directory gets its mode and times when all in it is done, and which of
//! several names of a file is made first and which are links to it is decided one after the other.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use base::Ino;
use format::inode::FileType;
use read::{Inode, InodeReader, Volume, read_at};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use transfer::Excludes;

use super::flags;
use super::place::{self, Place, Refused, Rights};
use super::progress::Progress;
use super::source::{Facts, Folder, Run, Subject, half_done, is_safe, plan, wanted};
use crate::listing::Listing;
use crate::names::quoted;
use crate::output::Messages;
use crate::walk::{Visited, join};
use base::pipeline::{PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};

/// So many entries of a directory make a task.
const BATCH: usize = 64;
/// Bytes that are copied at a time.
const COPY: usize = 1 << 20;
/// Files of more data than this are copied by several tasks.
const SMALL: u64 = 4 << 20;
/// So many bytes of a large file are planned at a time.
const PLAN: u64 = 64 << 20;

/// The work of making a tree.
pub struct Tree<'t> {
    /// Where from.
    pub volume: &'t Volume,
    /// How far it is.
    pub progress: &'t Progress,
    /// What may be done.
    pub rights: Rights,
    /// The directories that have been in.
    pub visited: Visited,
    /// What is left out, by its path below what the command line named.
    pub excludes: Arc<Excludes>,
    /// Nothing is left of a file that cannot be read to its end.
    pub leaves_out: bool,
    /// Files that unfinished operations left half done.
    pub unfinished: BTreeSet<Ino>,
}

/// A part of the work.
pub enum Task {
    /// What the command line named, into an opened directory.
    Subject(Subject, Arc<Place>),
    /// A directory in another.
    Directory { parent: Arc<Place>, name: Vec<u8>, inode: Inode, depth: usize },
    /// Entries of a directory.
    Batch(Arc<Folder<Arc<Place>>>, usize),
    /// A file that has several links, at its first.
    File(Arc<Linked>),
    /// The contents of a large file from a byte on.
    Plan(Arc<Open>, u64),
    /// Some of its runs.
    Copy(Arc<Open>, Run),
}

/// A file with several names, at one of them.
pub struct Linked {
    place: Arc<Place>,
    name: Vec<u8>,
    inode: Inode,
    facts: Facts,
}

/// A file that several tasks write.
pub struct Open {
    file: std::fs::File,
    place: Arc<Place>,
    name: Vec<u8>,
    /// Something of it could not be read, and it is left out.
    is_left_out: AtomicBool,
    inode: Inode,
    facts: Facts,
}

/// What is done in order.
pub enum Turn {
    /// A directory is complete.
    Directory(Arc<Place>, Box<Facts>),
    /// A large file is complete.
    File(Arc<Open>),
    /// One of several names of a file.
    Linked(Arc<Linked>),
    /// Something that cannot be read: of the file with this number, if it has several names.
    Unreadable(String, Option<Ino>),
    /// Something that failed here.
    Failure(String),
    /// Something worth a warning.
    Warning(String),
    /// There is no sense in going on.
    Stop(String),
}

type Pieces = Vec<PipelineItem<Task, Turn>>;

fn failure(pieces: &mut Pieces, path: &[u8], error: impl std::fmt::Display) {
    pieces.push(PipelineItem::Result(Turn::Unreadable(format!("{}: {error}", quoted(path)), None)));
}

/// A call on this machine that failed. A full or read-only disk ends everything: every further file would fail too.
fn refused(pieces: &mut Pieces, path: &[u8], refused: Refused) {
    let Refused { what, errno } = refused;
    let reason = match errno {
        Errno::EXIST => "it exists already (--overwrite replaces it)".into(),
        Errno::PERM if what == "make the device" => "that takes root".into(),
        errno => errno.to_string(),
    };
    let text = format!("{}: cannot {what}: {reason}", quoted(path));
    pieces.push(PipelineItem::Result(match errno {
        // Attributes have a limit of their own.
        Errno::NOSPC | Errno::DQUOT | Errno::ROFS
            if what.starts_with("make") || what.starts_with("write") =>
        {
            Turn::Stop(text)
        }
        _ => Turn::Failure(text),
    }));
}

/// What a thread keeps.
pub struct Worker<'t> {
    reader: InodeReader<'t>,
    piece: Vec<u8>,
}

impl<'t> PipelineWork for Tree<'t> {
    type Task = Task;
    type Result = Turn;
    type Worker = Worker<'t>;

    fn worker(&self) -> Worker<'t> {
        Worker { reader: self.volume.inodes(), piece: vec![0; COPY] }
    }

    fn perform(&self, worker: &mut Worker<'t>, task: Task, pieces: &mut Pieces) {
        match task {
            Task::Subject(subject, place) => self.subject(worker, &subject, place, pieces),
            Task::Directory { parent, name, inode, depth } => {
                self.directory(&parent, &name, &inode, depth, pieces)
            }
            Task::Batch(folder, from) => self.batch(worker, &folder, from, pieces),
            Task::File(file) => self.file(worker, &file.place, &file.name, &file.inode, &file.facts, pieces),
            Task::Plan(open, from) => self.plan(open, from, pieces),
            Task::Copy(open, run) => {
                if let Err(error) = self.copy(worker, &open.file, &open.inode, run) {
                    self.broken(&open, error, pieces);
                }
            }
        }
    }

    fn weight(&self, turn: &Turn) -> usize {
        match turn {
            Turn::Directory(_, facts) => size_of::<Facts>() + facts.xattrs.len() * 64,
            Turn::File(_) => size_of::<Open>(),
            Turn::Linked(_) => size_of::<Linked>(),
            Turn::Unreadable(text, _) | Turn::Failure(text) | Turn::Warning(text) | Turn::Stop(text) => {
                text.capacity()
            }
        }
    }
}

/// Why contents were not copied.
enum CopyError {
    Read(read::Error),
    Write(Errno),
}

impl From<read::Error> for CopyError {
    fn from(error: read::Error) -> Self {
        Self::Read(error)
    }
}

impl Open {
    fn path(&self) -> Vec<u8> {
        join(&self.place.path, &self.name)
    }
}

impl CopyError {
    fn report(self, pieces: &mut Pieces, path: &[u8], ino: Ino) {
        match self {
            Self::Read(error) => {
                let text = format!("{}: {error}", quoted(path));
                pieces.push(PipelineItem::Result(Turn::Unreadable(text, Some(ino))));
            }
            Self::Write(errno) => refused(pieces, path, Refused { what: "write the file", errno }),
        }
    }
}

impl<'t> Tree<'t> {
    fn subject(&self, worker: &mut Worker<'t>, subject: &Subject, place: Arc<Place>, pieces: &mut Pieces) {
        let inode = match worker.reader.get(subject.ino) {
            Ok(inode) => Inode::from(inode),
            Err(error) => return failure(pieces, &subject.name, error),
        };
        if inode.dinode().file_type() == Some(FileType::Directory) {
            // The directory itself is the one that the user named.
            self.contents(place, &inode, 0, pieces);
        } else {
            self.entry(worker, &place, &subject.name, &inode, pieces);
        }
    }

    fn directory(&self, parent: &Place, name: &[u8], inode: &Inode, depth: usize, pieces: &mut Pieces) {
        let path = join(&parent.path, name);
        match place::make_directory(parent, name, self.rights) {
            Ok(fd) => self.contents(Arc::new(Place { fd, path }), inode, depth, pieces),
            Err(errno) => refused(pieces, &path, Refused { what: "make the directory", errno }),
        }
    }

    fn contents(&self, place: Arc<Place>, inode: &Inode, depth: usize, pieces: &mut Pieces) {
        let dinode = inode.dinode();
        if let Err(reason) = self.visited.enter(inode.ino(), depth) {
            return failure(pieces, &place.path, reason);
        }
        self.progress.file(0);
        let facts = match Facts::of(self.volume, &dinode, |error| failure(pieces, &place.path, error)) {
            Ok(facts) => facts,
            Err(error) => return failure(pieces, &place.path, error),
        };
        let listing = Listing::read(self.volume, &dinode, |error| failure(pieces, &place.path, error));
        let folder = Arc::new(Folder { place, listing, depth });
        for from in (0..folder.listing.items().len()).step_by(BATCH) {
            pieces.push(PipelineItem::Task(Task::Batch(folder.clone(), from)));
        }
        pieces.push(PipelineItem::Result(Turn::Directory(folder.place.clone(), Box::new(facts))));
    }

    fn batch(&self, worker: &mut Worker<'t>, folder: &Folder<Arc<Place>>, from: usize, pieces: &mut Pieces) {
        for item in folder.listing.items().iter().skip(from).take(BATCH) {
            let name = folder.listing.name(item);
            if !is_safe(name) {
                failure(pieces, &join(&folder.place.path, name), "a name that no file can have: left out");
                continue;
            }
            let path = || join(&folder.place.path, name);
            let inode = match wanted(&mut worker.reader, &self.excludes, path, item.ino) {
                Ok(Some(inode)) => inode,
                Ok(None) => continue,
                Err(error) => {
                    failure(pieces, &path(), error);
                    continue;
                }
            };
            if inode.dinode().file_type() == Some(FileType::Directory) {
                let (parent, name, depth) = (folder.place.clone(), name.to_vec(), folder.depth + 1);
                pieces.push(PipelineItem::Task(Task::Directory { parent, name, inode, depth }));
            } else {
                self.entry(worker, &folder.place, name, &inode, pieces);
            }
        }
    }

    /// Anything but a directory.
    fn entry(
        &self,
        worker: &mut Worker<'t>,
        place: &Arc<Place>,
        name: &[u8],
        inode: &Inode,
        pieces: &mut Pieces,
    ) {
        let path = || join(&place.path, name);
        if self.unfinished.contains(&inode.ino()) {
            pieces.push(PipelineItem::Result(Turn::Warning(half_done(&path()))));
        }
        let facts = match Facts::of(self.volume, &inode.dinode(), |error| failure(pieces, &path(), error)) {
            Ok(facts) => facts,
            Err(error) => return failure(pieces, &path(), error),
        };
        if facts.is_linked() {
            let (place, name, inode) = (place.clone(), name.to_vec(), inode.clone());
            pieces.push(PipelineItem::Result(Turn::Linked(Arc::new(Linked { place, name, inode, facts }))));
        } else {
            self.file(worker, place, name, inode, &facts, pieces);
        }
    }

    fn file(
        &self,
        worker: &mut Worker<'t>,
        place: &Arc<Place>,
        name: &[u8],
        inode: &Inode,
        facts: &Facts,
        pieces: &mut Pieces,
    ) {
        if facts.metadata.file_type == FileType::Regular {
            return match place::make_file(place, name, self.rights) {
                Ok(fd) => self.regular(worker, fd, (place, name), (inode, facts), pieces),
                Err(errno) => {
                    refused(pieces, &join(&place.path, name), Refused { what: "make the file", errno })
                }
            };
        }
        match place::make_special(place, name, facts, self.rights, self.progress) {
            Ok(()) => self.progress.file(0),
            Err(error) => refused(pieces, &join(&place.path, name), error),
        }
    }

    fn regular(
        &self,
        worker: &mut Worker<'t>,
        fd: OwnedFd,
        (place, name): (&Arc<Place>, &[u8]),
        (inode, facts): (&Inode, &Facts),
        pieces: &mut Pieces,
    ) {
        let file = std::fs::File::from(fd);
        let path = join(&place.path, name);
        flags::hint(&file, facts, self.progress);
        let (runs, next) = match plan(self.volume, &inode.dinode(), 0, COPY as u64, SMALL) {
            Ok(planned) => planned,
            Err(error) => return self.unread(place, name, CopyError::Read(error), inode.ino(), pieces),
        };
        // The length is set first where the end is a hole, or where much is to come: the file system then knows it.
        let end = runs.last().map_or(0, Run::end);
        if end < facts.metadata.size
            && let Err(errno) = rustix::fs::ftruncate(&file, facts.metadata.size)
        {
            return refused(pieces, &path, Refused { what: "give the file its length", errno });
        }
        if next.is_some() {
            self.progress.file(0);
            let (place, name, is_left_out) = (place.clone(), name.to_vec(), AtomicBool::new(false));
            let (inode, facts) = (inode.clone(), facts.clone());
            let open = Arc::new(Open { file, place, name, is_left_out, inode, facts });
            pieces.push(PipelineItem::Task(Task::Plan(open.clone(), 0)));
            return pieces.push(PipelineItem::Result(Turn::File(open)));
        }
        for run in &runs {
            if let Err(error) = self.copy(worker, &file, inode, *run) {
                return self.unread(place, name, error, inode.ino(), pieces);
            }
        }
        self.progress.file(0);
        if let Err(error) = place::complete(file.as_fd(), facts, self.rights, self.progress) {
            refused(pieces, &path, error);
        }
    }

    fn plan(&self, open: Arc<Open>, from: u64, pieces: &mut Pieces) {
        match plan(self.volume, &open.inode.dinode(), from, COPY as u64, PLAN) {
            Ok((runs, next)) => {
                pieces.extend(runs.into_iter().map(|run| PipelineItem::Task(Task::Copy(open.clone(), run))));
                pieces.extend(next.map(|next| PipelineItem::Task(Task::Plan(open, next))));
            }
            Err(error) => self.broken(&open, CopyError::Read(error), pieces),
        }
    }

    /// The contents of a file could not be copied.
    fn unread(&self, place: &Place, name: &[u8], error: CopyError, ino: Ino, pieces: &mut Pieces) {
        let path = join(&place.path, name);
        if self.leaves_out
            && matches!(error, CopyError::Read(_))
            && let Err(errno) = rustix::fs::unlinkat(&place.fd, name, AtFlags::empty())
        {
            refused(pieces, &path, Refused { what: "remove what was made of it", errno });
        }
        error.report(pieces, &path, ino);
    }

    /// The same of a file that several tasks write: the first of them tells.
    fn broken(&self, open: &Open, error: CopyError, pieces: &mut Pieces) {
        let is_unreadable = matches!(error, CopyError::Read(_));
        if !(self.leaves_out && is_unreadable) {
            error.report(pieces, &open.path(), open.inode.ino());
        } else if !open.is_left_out.swap(true, Relaxed) {
            self.unread(&open.place, &open.name, error, open.inode.ino(), pieces);
        }
    }

    /// Copies one run of at most [`COPY`] bytes.
    fn copy(
        &self,
        worker: &mut Worker<'t>,
        file: &std::fs::File,
        inode: &Inode,
        run: Run,
    ) -> Result<(), CopyError> {
        let piece = worker.piece.get_mut(..run.length as usize).unwrap_or_default(); // at most COPY
        let read = read_at(self.volume, &inode.dinode(), run.offset, piece)?;
        let piece = piece.get(..read).unwrap_or_default();
        let written = file.write_all_at(piece, run.offset);
        self.progress.bytes(read as u64);
        written.map_err(|error| CopyError::Write(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }
}

/// Does what must be done in order.
pub struct TreeSink<'s> {
    /// The directory that the user named.
    pub root: Arc<Place>,
    /// The first names of files with several links, and how many links are still to come.
    pub seen: HashMap<Ino, (Vec<u8>, u32)>,
    /// The directory of the last first name: links often lie together.
    pub last: Option<(Vec<u8>, OwnedFd)>,
    /// What may be done.
    pub rights: Rights,
    /// How far it is.
    pub progress: &'s Progress,
    /// What there is to say.
    pub messages: &'s Messages,
}

impl TreeSink<'_> {
    fn linked(&mut self, file: Arc<Linked>, pieces: &mut Pieces) {
        let ino = file.inode.ino();
        let path = join(&file.place.path, &file.name);
        let Some((first, left)) = self.seen.get_mut(&ino) else {
            self.seen.insert(ino, (path, file.facts.metadata.links.saturating_sub(1)));
            return pieces.push(PipelineItem::Task(Task::File(file)));
        };
        *left = left.saturating_sub(1);
        let (first, is_last) = (first.clone(), *left == 0);
        if is_last {
            self.seen.remove(&ino);
        }
        match self.link(&first, &file) {
            Ok(()) => self.progress.file(0),
            Err(errno) => refused(pieces, &path, Refused { what: "link the file to its first name", errno }),
        }
    }

    fn link(&mut self, first: &[u8], file: &Linked) -> Result<(), Errno> {
        let split = first.iter().rposition(|byte| *byte == b'/');
        let (directory, name) = match split {
            Some(at) => (first.get(..at).unwrap_or_default(), first.get(at + 1..).unwrap_or_default()),
            None => (&[][..], first),
        };
        if self.last.as_ref().is_none_or(|(path, _)| path != directory) {
            self.last = Some((directory.to_vec(), self.open(directory)?));
        }
        let Some((_, from)) = &self.last else { return Err(Errno::BADF) };
        let link = || rustix::fs::linkat(from, name, &file.place.fd, file.name.as_slice(), AtFlags::empty());
        match link() {
            Err(Errno::EXIST) if self.rights.overwrite => {
                rustix::fs::unlinkat(&file.place.fd, file.name.as_slice(), AtFlags::empty())?;
                link()
            }
            linked => linked,
        }
    }

    /// Opens a directory that this run has made, one component after the other.
    fn open(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut at = rustix::io::dup(&self.root.fd)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = place::open_directory(at.as_fd(), name)?;
        }
        Ok(at)
    }
}

impl<'t> PipelineSink<Tree<'t>> for TreeSink<'_> {
    type Error = io::Error;

    fn take(&mut self, turn: Turn, pieces: &mut Vec<PipelineItemOf<Tree<'t>>>) -> io::Result<()> {
        self.progress.show();
        match turn {
            Turn::Directory(place, facts) => {
                if let Err(error) = place::complete(&place.fd, &facts, self.rights, self.progress) {
                    refused(pieces, &place.path, error);
                }
            }
            Turn::File(open) if open.is_left_out.load(Relaxed) => {}
            Turn::File(open) => {
                if let Err(error) =
                    place::complete(open.file.as_fd(), &open.facts, self.rights, self.progress)
                {
                    refused(pieces, &open.path(), error);
                }
            }
            Turn::Linked(file) => self.linked(file, pieces),
            Turn::Unreadable(text, ino) => {
                if let Some(ino) = ino {
                    // The next of its names is tried as the first.
                    self.seen.remove(&ino);
                }
                self.progress.pause(|| self.messages.unreadable(text));
            }
            Turn::Failure(text) => self.progress.pause(|| self.messages.fail(text)),
            Turn::Warning(text) => self.progress.pause(|| self.messages.warn(text)),
            Turn::Stop(text) => return Err(io::Error::other(text)),
        }
        Ok(())
    }
}
